import asyncio

import numpy as np
import pytest

from encoder_pool.wire import ImageShard
from router.embedding_store import CutImage, Embedding, EmbeddingStore

SIZE = 1000


class Encoder:
    """Encodes when it is told to; remembers what was asked and how each encode ended."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.ended: list[str] = []
        self.go = asyncio.Event()
        self.failure: Exception | None = None

    async def __call__(self, images, request_id, promise):
        self.asked.append([cut.image.hash for cut in images])
        promise([Embedding(cut.image, "bfloat16", "f", ("ref",), SIZE) for cut in images])
        try:
            await self.go.wait()
            if self.failure:
                raise self.failure
        except BaseException as error:
            self.ended.append(type(error).__name__)
            raise
        self.ended.append("done")
        return [Embedding(cut.image, "bfloat16", "f", ("ref",), SIZE) for cut in images]


@pytest.fixture
def encoder():
    return Encoder()


def nothing(*_) -> None:
    """Nobody wants to know of changes."""


def store(encoder, kept=10, ttl_s=60.0, on_change=nothing):
    return EmbeddingStore(encoder, kept * SIZE, ttl_s, on_change)


def cut(name):
    return CutImage(ImageShard(name, 1, (1, 1)), np.zeros((1, 3, 336, 336), np.uint8))


async def fetch(held, *names):
    return [embedding.image.hash for embedding in await held.encode([cut(name) for name in names], "id")]


async def test_what_is_kept_is_not_encoded_again(encoder):
    held = store(encoder)
    encoder.go.set()
    assert await fetch(held, "a", "b", "a") == ["a", "b", "a"]
    assert await fetch(held, "b", "c") == ["b", "c"]
    assert encoder.asked == [["a", "b"], ["c"]]
    assert held.bytes == 3 * SIZE


@pytest.mark.parametrize(
    ("names", "told"),
    [("cd", True), ("c", True), ("ac", False), ("bc", False), ("cc", False)],
    ids=["new", "one", "one kept", "one being encoded", "twice the same"],
)
async def test_a_promise_is_told_of_images_that_are_all_new(encoder, names, told):
    held = store(encoder)
    encoder.go.set()
    await fetch(held, "a")
    encoder.go.clear()
    promises = []
    tasks = [asyncio.create_task(fetch(held, "b"))]
    await asyncio.sleep(0.01)
    tasks.append(asyncio.create_task(held.encode([cut(name) for name in names], "id", promises.append)))
    await asyncio.sleep(0.01)
    assert len(promises) == told
    encoder.go.set()
    _, embeddings = await asyncio.gather(*tasks)
    assert not told or promises == [embeddings]


async def test_followers_share_an_encode_that_is_under_way(encoder):
    held = store(encoder)
    tasks = [asyncio.create_task(fetch(held, "a")) for _ in range(50)]
    await asyncio.sleep(0)
    encoder.go.set()
    assert await asyncio.gather(*tasks) == [["a"]] * 50
    assert encoder.asked == [["a"]]


async def test_a_leader_that_leaves_does_not_take_its_followers_along(encoder):
    held = store(encoder)
    leader = asyncio.create_task(fetch(held, "a", "b"))
    await asyncio.sleep(0.01)
    follower = asyncio.create_task(fetch(held, "b"))
    await asyncio.sleep(0.01)
    leader.cancel()
    await asyncio.gather(leader, return_exceptions=True)
    encoder.go.set()
    assert await follower == ["b"]
    assert encoder.ended == ["done"]


async def test_the_last_to_leave_ends_the_encode(encoder):
    held = store(encoder)
    tasks = [asyncio.create_task(fetch(held, "a")) for _ in range(3)]
    await asyncio.sleep(0.01)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.sleep(0.01)
    assert encoder.ended == ["CancelledError"]
    assert await held.find("a") is None
    encoder.go.set()
    assert await fetch(held, "a") == ["a"]
    assert len(encoder.asked) == 2


async def test_who_looks_for_an_image_that_is_being_encoded_waits_for_it(encoder):
    held = store(encoder)
    leader = asyncio.create_task(fetch(held, "a"))
    await asyncio.sleep(0.01)
    finder = asyncio.create_task(held.find("a"))
    await asyncio.sleep(0.01)
    leader.cancel()
    await asyncio.gather(leader, return_exceptions=True)
    encoder.go.set()
    assert (await finder).image.hash == "a"
    assert encoder.ended == ["done"]


async def test_who_waits_for_two_encodes_keeps_both_alive(encoder):
    held = store(encoder)
    leaders = [asyncio.create_task(fetch(held, name)) for name in "ab"]
    await asyncio.sleep(0.01)
    both = asyncio.create_task(fetch(held, "a", "b", "c"))
    await asyncio.sleep(0.01)
    for leader in leaders:
        leader.cancel()
    await asyncio.gather(*leaders, return_exceptions=True)
    encoder.go.set()
    assert await both == ["a", "b", "c"]
    assert encoder.asked == [["a"], ["b"], ["c"]]


async def test_the_encode_lives_outside_its_requests_context(encoder):
    import contextvars

    seen = contextvars.ContextVar("request", default="none")
    inside = []

    async def encode(images, request_id, promise):
        inside.append(seen.get())
        return [Embedding(c.image, "bfloat16", "f", (), 0) for c in images]

    seen.set("mine")
    await fetch(EmbeddingStore(encode, 0, 1, nothing), "a")
    assert inside == ["none"]


async def test_a_failed_encode_is_told_to_all_and_not_kept(encoder):
    held = store(encoder)
    encoder.failure = ValueError("no")
    tasks = [asyncio.create_task(fetch(held, "a")) for _ in range(2)]
    await asyncio.sleep(0.01)
    encoder.go.set()
    assert [type(e) for e in await asyncio.gather(*tasks, return_exceptions=True)] == [ValueError] * 2
    encoder.failure = None
    assert await fetch(held, "a") == ["a"]


async def test_the_least_recently_used_goes_first(encoder):
    held = store(encoder, kept=2)
    encoder.go.set()
    for name in ("a", "b", "a", "c", "a", "b"):
        await fetch(held, name)
        assert held.bytes <= 2 * SIZE
    assert encoder.asked == [["a"], ["b"], ["c"], ["b"]]


async def test_changes_are_told_with_their_evictions(encoder):
    told = []
    held = store(encoder, kept=2, on_change=lambda *change: told.append(change))
    encoder.go.set()
    await fetch(held, "a", "b")
    await fetch(held, "c", "d")
    await fetch(held, "d")
    assert told == [(2 * SIZE, 0), (2 * SIZE, 2)]


async def test_nothing_is_kept_for_ever_nor_at_all_with_no_room(encoder):
    encoder.go.set()
    brief, none = store(encoder, ttl_s=0.05), store(encoder, kept=0)
    await fetch(brief, "a")
    assert await brief.find("a") is not None
    await asyncio.sleep(0.06)
    assert await brief.find("a") is None
    assert brief.bytes == 0
    await fetch(none, "a")
    assert await none.find("a") is None


async def test_a_lost_embedding_is_dropped(encoder):
    held = store(encoder)
    encoder.go.set()
    await fetch(held, "a", "b")
    await held.drop(["a", "absent"])
    assert await fetch(held, "a", "b") == ["a", "b"]
    assert encoder.asked == [["a", "b"], ["a"]]
