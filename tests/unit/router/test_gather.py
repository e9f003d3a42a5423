import asyncio

import pytest

from router.errors import ApiError
from router.gather import gather


async def test_results_keep_their_order():
    async def later(value, delay):
        await asyncio.sleep(delay)
        return value

    assert await gather([later(1, 0.02), later(2, 0), later(3, 0.01)]) == [1, 2, 3]


async def test_the_first_failure_is_raised_as_itself_and_ends_the_others():
    ended = []

    async def fails():
        await asyncio.sleep(0)
        raise ApiError(429, "full", retry_after_s=1)

    async def goes_on():
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    with pytest.raises(ApiError) as caught:
        await gather([goes_on(), fails()])
    assert caught.value.status == 429
    assert ended == ["cancelled"]
