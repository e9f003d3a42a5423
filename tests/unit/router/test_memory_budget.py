import pytest

from router.errors import ApiError
from router.memory_budget import MemoryBudget


def refusal(budget, sizes) -> ApiError:
    with pytest.raises(ApiError) as caught, budget.hold(sizes):
        pass
    return caught.value


def test_what_fits_is_held_until_its_block_ends():
    budget = MemoryBudget(10)
    with budget.hold({"a": 4}), budget.hold({"b": 6}):
        assert budget.bytes == 10
        error = refusal(budget, {"c": 1})
        assert (error.status, error.retry_after_s) == (429, 1)
    assert budget.bytes == 0
    with budget.hold({"c": 10}):
        pass


def test_an_object_that_several_hold_takes_its_bytes_once():
    budget = MemoryBudget(10)
    with budget.hold({"a": 6}):
        with budget.hold({"a": 6, "b": 4}):
            assert budget.bytes == 10
        assert budget.bytes == 6
    assert budget.bytes == 0


def test_a_refused_request_holds_nothing():
    budget = MemoryBudget(10)
    with budget.hold({"a": 6}):
        refusal(budget, {"b": 3, "c": 3})
        assert budget.bytes == 6


def test_what_never_fits_is_no_reason_to_try_again():
    error = refusal(MemoryBudget(10), {"a": 6, "b": 6})
    assert (error.status, error.param, error.retry_after_s) == (413, "messages", None)


def test_room_is_given_back_when_the_block_fails():
    budget = MemoryBudget(10)
    with pytest.raises(ZeroDivisionError), budget.hold({"a": 10}):
        1 / 0  # noqa: B018
    assert budget.bytes == 0
