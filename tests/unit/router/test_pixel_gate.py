import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from router.pixel_gate import PixelGate


async def test_first_come_first_served():
    gate, order = PixelGate(10), []

    async def take(name, pixels):
        await gate.acquire(pixels)
        order.append(name)

    await take("a", 8)
    tasks = [asyncio.create_task(take(name, pixels)) for name, pixels in (("large", 9), ("small", 1))]
    await asyncio.sleep(0)
    assert order == ["a"], "a small one does not pass a large one, which would never get its turn"
    gate.release(8)
    await asyncio.gather(*tasks)
    assert order == ["a", "large", "small"]


async def test_who_leaves_lets_the_next_one_in():
    gate = PixelGate(10)
    await gate.acquire(8)
    large = asyncio.create_task(gate.acquire(9))
    small = asyncio.create_task(gate.acquire(2))
    await asyncio.sleep(0)
    large.cancel()
    await asyncio.wait_for(small, 1)


async def test_who_leaves_just_when_admitted_gives_it_back():
    gate = PixelGate(10)
    await gate.acquire(10)
    first = asyncio.create_task(gate.acquire(10))
    await asyncio.sleep(0)
    gate.release(10)
    first.cancel()
    await asyncio.wait([first])
    await asyncio.wait_for(gate.acquire(10), 1)


@given(st.lists(st.tuples(st.integers(1, 10), st.integers(0, 3), st.booleans()), max_size=30))
@settings(deadline=None)
def test_never_more_than_there_are_and_all_come_back(steps):
    async def play():
        gate, held, most = PixelGate(10), 0, 0

        async def one(pixels, turns):
            nonlocal held, most
            await gate.acquire(pixels)
            held += pixels
            most = max(most, held)
            try:
                for _ in range(turns):
                    await asyncio.sleep(0)
            finally:
                held -= pixels
                gate.release(pixels)

        tasks = []
        for pixels, turns, leaves in steps:
            tasks.append(asyncio.create_task(one(pixels, turns)))
            await asyncio.sleep(0)
            if leaves:
                tasks[len(tasks) // 2].cancel()
        await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5)
        await asyncio.wait_for(gate.acquire(10), 1)
        return most

    assert asyncio.run(play()) <= 10
