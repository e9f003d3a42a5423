import asyncio

from encoder_pool import gauges


class FakeGauge:
    def __init__(self):
        self.values = []

    def set(self, value):
        self.values.append(value)


async def test_a_gauge_is_set_again_and_again(monkeypatch):
    monkeypatch.setattr(gauges, "REPEAT_S", 0.01)
    gauge, numbers = FakeGauge(), iter(range(1000))
    task = gauges.keep_set(gauge, lambda: next(numbers))
    async with asyncio.timeout(5):
        while len(gauge.values) < 3:
            await asyncio.sleep(0.01)
    task.cancel()
    assert gauge.values[:3] == [0, 1, 2]
