"""Replicas wanted for a load, and the pools' claims on the same GPUs; with Serve's own contexts and bounds."""

from __future__ import annotations

import time

import pytest
from ray.serve._private.autoscaling_state import _resolve_policy_callable
from ray.serve._private.common import DeploymentID, ReplicaID
from ray.serve.autoscaling_policy import _apply_app_level_autoscaling_config
from ray.serve.config import AutoscalingConfig, AutoscalingContext, AutoscalingPolicy

from encoder_pool.deployment import EncoderPool
from encoder_pool.settings import LOAD_SIGNAL, Autoscaling
from llm_pool.deployment import LLMPool
from router.autoscaling import LoadPolicy, SharedGpus, replica_options


def context(name: str, loads, *, low=1, high=8, target=10, gpus=1.0, queued=0) -> AutoscalingContext:
    """Of a deployment whose replicas report `loads`."""
    deployment = DeploymentID(name, "tessera")
    replicas = [ReplicaID(str(i), deployment) for i in range(len(loads))]
    settings = Autoscaling(min_replicas=low, max_replicas=high, target_load=target, upscale_delay_s=0)
    config = AutoscalingConfig(**replica_options(1, settings, gpus)["autoscaling_config"])
    return AutoscalingContext(
        deployment_id=deployment,
        deployment_name=name,
        app_name="tessera",
        current_num_replicas=len(loads),
        target_num_replicas=len(loads),
        running_replicas=replicas,
        total_num_requests=0,
        total_queued_requests=queued,
        aggregated_metrics={LOAD_SIGNAL: dict(zip(replicas, loads, strict=True))},
        raw_metrics=None,
        capacity_adjusted_min_replicas=low,
        capacity_adjusted_max_replicas=high,
        policy_state={},
        last_scale_up_time=None,
        last_scale_down_time=None,
        current_time=time.time(),
        config=config,
    )


@pytest.mark.parametrize(
    ("loads", "queued", "wanted"),
    [([0], 0, 1), ([10], 0, 1), ([10.5], 0, 2), ([30, 11], 0, 5), ([900], 0, 8), ([5], 26, 4)],
)
def test_replicas_follow_the_load_within_their_bounds(loads, queued, wanted):
    assert LoadPolicy(10, 1).wanted(context("EncoderPool", loads, queued=queued)) == wanted


def share(gpus: float, encoder: AutoscalingContext, decoder: AutoscalingContext) -> tuple[int, int]:
    contexts = {each.deployment_id: each for each in (encoder, decoder)}
    wanted, _ = SharedGpus(gpus)(contexts)
    return wanted[encoder.deployment_id], wanted[decoder.deployment_id]


@pytest.mark.parametrize(
    ("tiles", "sequences", "expected"),
    [
        (10, 10, (1, 1)),
        (60, 10, (6, 1)),  # room for all
        (60, 20, (4, 2)),  # decoders first
        (60, 90, (2, 3)),  # decoders leave the encoders' minimum
        (0, 90, (2, 3)),
    ],
)
def test_encoders_do_not_starve_decoders(tiles, sequences, expected):
    encoder = context("EncoderPool", [tiles], low=min(2, expected[0]), gpus=1)
    decoder = context("LLMPool", [sequences], gpus=2)
    assert share(8, encoder, decoder) == expected


def test_pools_without_gpus_do_not_hinder_each_other():
    encoder = context("EncoderPool", [80], gpus=0)
    assert share(0, encoder, context("LLMPool", [80], gpus=0)) == (8, 8)


def test_serve_takes_both_policies_as_they_are_named():
    """As its controller does: from import paths and keyword arguments, with its own delays around them."""
    shared = AutoscalingPolicy(policy_function="router.autoscaling:SharedGpus", policy_kwargs={"gpus": 8})
    policy = _apply_app_level_autoscaling_config(_resolve_policy_callable(shared))
    encoder, decoder = context("EncoderPool", [60]), context("LLMPool", [20], gpus=2)
    decisions, _ = policy({each.deployment_id: each for each in (encoder, decoder)})
    assert list(decisions.values()) == [4, 2]
    own = _resolve_policy_callable(encoder.config.policy)
    assert own(encoder) == (6, {})


def test_the_deployments_report_what_the_policies_read():
    assert hasattr(EncoderPool.func_or_class, "record_autoscaling_stats")
    assert hasattr(LLMPool, "record_autoscaling_stats")
