import asyncio

from llm_pool.reply import Reply
from router import readiness
from router.decoders import Answer
from router.errors import unavailable
from router.readiness import Readiness


class Pools:
    """A pipeline whose pools come up, and whose first answers fail, as the test says."""

    def __init__(self, missing, answers) -> None:
        self.now_missing = missing
        self.answers = answers
        self.bodies = []

    def missing(self):
        return self.now_missing

    async def answer(self, endpoint, body, request_id):
        self.bodies.append(body)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return Answer(answer, None)


async def until(condition):
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.01)


async def test_it_names_what_is_missing_and_is_ready_after_one_picture(monkeypatch):
    monkeypatch.setattr(readiness, "LOOK_S", 0.01)
    failures = [unavailable("not yet", "x"), KeyError("odd"), Reply(400, False, "no template")]
    pools = Pools(["EncoderPool", "LLMPool"], [*failures, Reply(200, False, "{}")])
    ready = Readiness(pools, "demo")
    await until(lambda: ready.waiting_for == "replicas of EncoderPool and LLMPool, which are loading")
    assert pools.bodies == []
    pools.now_missing = []
    seen = set()
    await until(lambda: seen.add(ready.waiting_for) or ready.waiting_for is None)
    assert len(pools.bodies) == 4
    assert pools.bodies[0]["messages"][0]["content"][0]["type"] == "image_url"
    assert any("no template" in (said or "") for said in seen)
    pools.now_missing = ["LLMPool"]
    assert ready.waiting_for == "a living replica of LLMPool"
    pools.now_missing = ["EncoderPool"]
    assert ready.waiting_for is None, "text-only requests are served without encoders"
