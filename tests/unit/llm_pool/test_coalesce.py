"""Coalescing changes where a stream is cut, never what it says."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_pool.coalesce import Pace, coalesce


def pace(window_s: float) -> Pace:
    return Pace(window_s, most_per_s=1e9)


async def source(chunks: list[tuple[float, str]], error: Exception | None = None) -> AsyncIterator[str]:
    for pause, text in chunks:
        await asyncio.sleep(pause)
        yield text
    if error is not None:
        raise error


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.tuples(st.sampled_from([0.0, 0.001, 0.004]), st.text(max_size=4)), max_size=12),
    st.sampled_from([0.0, 0.002, 0.01]),
)
def test_concatenation_is_unchanged(chunks: list[tuple[float, str]], window_s: float) -> None:
    async def run() -> list[str]:
        return [text async for text in coalesce(source(chunks), pace(window_s))]

    pieces = asyncio.run(run())
    assert "".join(pieces) == "".join(text for _, text in chunks)
    assert all(pieces)
    assert len(pieces) <= len(chunks)


async def test_first_chunk_goes_out_at_once_and_the_next_are_gathered() -> None:
    chunks = [(0.0, "a"), (0.01, "b"), (0.01, "c"), (0.01, "d")]
    loop = asyncio.get_running_loop()
    started = loop.time()
    pieces = []
    async for text in coalesce(source(chunks), pace(5.0)):
        pieces.append((text, loop.time() - started))
    assert [text for text, _ in pieces] == ["a", "bcd"]
    assert pieces[0][1] < 1
    # The end of the source ends the wait too.
    assert pieces[1][1] < 1


async def test_a_late_chunk_does_not_wait() -> None:
    loop = asyncio.get_running_loop()
    stream = coalesce(source([(0.0, "a"), (0.3, "b"), (30.0, "c")]), pace(0.2))
    assert await anext(stream) == "a"
    started = loop.time()
    assert await anext(stream) == "b"
    # Its window, counted from "a", was over when it came at 0.3 s.
    assert loop.time() - started < 0.45
    await stream.aclose()


async def test_an_error_comes_after_the_text_before_it() -> None:
    stream = coalesce(source([(0.0, "a"), (0.01, "b")], RuntimeError("broken")), pace(5.0))
    assert [await anext(stream), await anext(stream)] == ["a", "b"]
    with pytest.raises(RuntimeError, match="broken"):
        await anext(stream)


@pytest.mark.parametrize("how", ["close", "cancel"])
async def test_leaving_early_ends_the_source(how: str) -> None:
    ended = asyncio.Event()

    async def endless() -> AsyncIterator[str]:
        try:
            yield "a"
            await asyncio.sleep(3600)
        finally:
            ended.set()

    stream = coalesce(endless(), pace(0.0))
    assert await anext(stream) == "a"
    if how == "close":
        await stream.aclose()
    else:
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert ended.is_set()


async def test_many_streams_share_a_number_of_pieces_a_second() -> None:
    shared = Pace(0.0, most_per_s=100)

    async def pieces() -> int:
        return len([text async for text in coalesce(source([(0.005, "a")] * 100), shared)])

    loop = asyncio.get_running_loop()
    started = loop.time()
    counts = await asyncio.gather(*(pieces() for _ in range(20)))
    # Of 2,000 chunks; beside the pace, each stream's first and last piece go out at once.
    assert sum(counts) <= 100 * (loop.time() - started) + 2 * 20
    assert min(counts) >= 2
    assert shared.window_s == 0.0
