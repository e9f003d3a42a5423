import asyncio

import pytest

from router.shared_tasks import SharedTasks


class Work:
    def __init__(self) -> None:
        self.begun = self.ended = self.cancelled = 0

    async def __call__(self) -> int:
        self.begun += 1
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        self.ended += 1
        return self.begun


async def test_equal_keys_share_and_results_are_not_kept():
    tasks, work = SharedTasks(), Work()
    assert await asyncio.gather(*(tasks.join("a", work) for _ in range(5))) == [1] * 5
    assert await asyncio.gather(tasks.join("a", work), tasks.join("b", work)) == [3, 3]


async def test_the_first_may_leave_and_the_last_one_ends_it():
    tasks, work = SharedTasks(), Work()
    first, second = (asyncio.create_task(tasks.join("a", work)) for _ in range(2))
    await asyncio.sleep(0.01)
    first.cancel()
    assert await second == 1
    first, second = (asyncio.create_task(tasks.join("a", work)) for _ in range(2))
    await asyncio.sleep(0.01)
    first.cancel()
    second.cancel()
    await asyncio.sleep(0)
    late = asyncio.create_task(tasks.join("a", work))
    assert await late == 3, "nobody joins what is about to end"
    assert (work.begun, work.ended, work.cancelled) == (3, 2, 1)


async def test_all_hear_of_a_failure():
    async def fail():
        await asyncio.sleep(0.01)
        raise ZeroDivisionError

    tasks = SharedTasks()
    found = await asyncio.gather(*(tasks.join("a", fail) for _ in range(3)), return_exceptions=True)
    assert [type(one) for one in found] == [ZeroDivisionError] * 3
    with pytest.raises(ZeroDivisionError):
        await tasks.join("a", fail)
