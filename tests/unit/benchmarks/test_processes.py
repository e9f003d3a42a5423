import pytest

from benchmarks.processes import LEAST_SAMPLES, Samples


def sampled(count: int) -> Samples:
    """Every ten seconds: a process that grows by 600 bytes a second, and one that was not there from the start."""
    grows, came = [1000 + 6000 * i for i in range(count)], [7] * (count - 1)
    return Samples([10.0 * i for i in range(count)], {"grows": grows, "came": came})


def test_growth_is_the_slope_of_what_lasted():
    assert sampled(LEAST_SAMPLES).growth() == {"grows": pytest.approx(36_000)}


def test_few_samples_make_no_line():
    samples = sampled(LEAST_SAMPLES - 1)
    assert samples.growth() == {}
    assert samples.lasting().keys() == {"grows"}
