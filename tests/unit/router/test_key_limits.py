from contextlib import ExitStack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.errors import ApiError
from router.key_limits import KeyLimits
from router.live_settings import ApiKeySettings


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def key(name="a", **limits):
    return ApiKeySettings(name=name, env="X", **limits)


def admitted(limits, one) -> bool:
    try:
        with limits.admit(one):
            return True
    except ApiError:
        return False


def test_without_limits_everything_comes_in():
    limits = KeyLimits()
    with ExitStack() as stack:
        for _ in range(1000):
            stack.enter_context(limits.admit(key()))


def test_requests_at_a_time():
    limits = KeyLimits()
    two = key(max_concurrent_requests=2)
    with limits.admit(two):
        with limits.admit(two):
            with pytest.raises(ApiError) as caught, limits.admit(two):
                pass
            assert (caught.value.status, caught.value.code) == (429, "concurrency_limit_exceeded")
            assert admitted(limits, key("b", max_concurrent_requests=1)), "another key has its own"
            assert admitted(limits, key(max_concurrent_requests=3)), "a raised limit holds at once"
        assert admitted(limits, two)


def test_a_request_that_fails_leaves_its_place():
    limits = KeyLimits()
    one = key(max_concurrent_requests=1)
    with pytest.raises(ZeroDivisionError), limits.admit(one):
        raise ZeroDivisionError
    assert admitted(limits, one)


def test_a_minutes_requests_may_come_at_once_and_then_at_their_pace():
    clock = Clock()
    limits = KeyLimits(clock)
    thirty = key(requests_per_minute=30)
    assert [admitted(limits, thirty) for _ in range(31)] == [True] * 30 + [False]
    with pytest.raises(ApiError) as caught, limits.admit(thirty):
        pass
    assert (caught.value.code, caught.value.retry_after_s) == ("rate_limit_exceeded", 2)
    clock.now += 2
    assert [admitted(limits, thirty) for _ in range(2)] == [True, False]
    clock.now += 3600
    assert [admitted(limits, thirty) for _ in range(31)] == [True] * 30 + [False]


def test_what_the_other_limit_refuses_is_not_counted():
    limits = KeyLimits(Clock())
    both = key(requests_per_minute=2, max_concurrent_requests=1)
    with limits.admit(both):
        for _ in range(10):
            assert not admitted(limits, both)
    assert admitted(limits, both)
    assert not admitted(limits, both)


@given(st.integers(1, 200), st.lists(st.floats(0, 5), max_size=300))
@settings(deadline=None)
def test_never_more_than_twice_a_minutes_requests_in_any_minute(per_minute, pauses):
    """The burst and the pace together; a client that waits as told is admitted."""
    clock = Clock()
    limits = KeyLimits(clock)
    one = key(requests_per_minute=per_minute)
    times = []
    for pause in pauses:
        clock.now += pause
        try:
            with limits.admit(one):
                times.append(clock.now)
        except ApiError as error:
            clock.now += error.retry_after_s
            assert admitted(limits, one)
            times.append(clock.now)
    for end in times:
        assert sum(end - 60 < t <= end for t in times) <= 2 * per_minute
