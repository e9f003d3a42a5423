"""How many replicas a pool should have for its load, and which pool goes first where GPUs are short.

`LoadPolicy` is each pool's own; `SharedGpus` is the application's, named in the Serve file (`autoscaling_policy:`),
since Serve takes it from nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ray.serve.config import AutoscalingContext

from encoder_pool.settings import LOAD_SIGNAL, Autoscaling


class LoadPolicy:
    """As many replicas as bring each one's share of the load to its target.

    target: a replica's share of the load. gpus: that one replica takes.
    """

    def __init__(self, target: float, gpus: float) -> None:
        self._target = target
        self.gpus = gpus

    def __call__(self, context: AutoscalingContext) -> tuple[float, dict[str, Any]]:
        return self.wanted(context), {}

    def wanted(self, context: AutoscalingContext) -> int:
        """Replicas, within the deployment's bounds; what waits in front of all replicas counts one a request."""
        told = context.aggregated_metrics or {}
        load = sum(told.get(LOAD_SIGNAL, {}).values()) + (context.total_queued_requests or 0)
        low, high = context.capacity_adjusted_min_replicas, context.capacity_adjusted_max_replicas
        return min(max(math.ceil(load / self._target), low), high)


class SharedGpus:
    """Both pools by their own policies, within `gpus` together: decoders first, encoders as many as then have room.

    A picture that waits for an encoder has at least been taken; a decoder that is missing stops all answers. So
    encoders give way, down to their minimum, which decoders leave them.
    """

    def __init__(self, gpus: float) -> None:
        self._gpus = gpus

    def __call__(self, contexts: Mapping[Any, AutoscalingContext]) -> tuple[dict[Any, int], dict[Any, dict[str, Any]]]:
        wanted, policies = {}, {}
        for deployment, context in contexts.items():
            policy = LoadPolicy(**context.config.policy.policy_kwargs)
            policies[context.deployment_name] = deployment, policy
            wanted[deployment] = policy.wanted(context)
        if policies.keys() >= {"EncoderPool", "LLMPool"}:
            encoder, encoder_policy = policies["EncoderPool"]
            decoder, decoder_policy = policies["LLMPool"]
            left = self._gpus - contexts[encoder].capacity_adjusted_min_replicas * encoder_policy.gpus
            wanted[decoder] = min(wanted[decoder], _fitting(left, decoder_policy.gpus))
            left = self._gpus - wanted[decoder] * decoder_policy.gpus
            wanted[encoder] = min(wanted[encoder], _fitting(left, encoder_policy.gpus))
        return wanted, {}


def _fitting(gpus: float, each: float) -> int:
    """Replicas that fit; without GPUs of their own, any number does."""
    return max(int(gpus / each), 0) if each else 2**31


def replica_options(replicas: int, autoscaling: Autoscaling | None, gpus: float) -> dict[str, Any]:
    """Serve's options of a pool: a number of replicas, or how it follows the load. gpus: that one replica takes."""
    if autoscaling is None:
        return {"num_replicas": replicas}
    kwargs = {"target": autoscaling.target_load, "gpus": gpus}
    return {
        "num_replicas": "auto",
        "autoscaling_config": {
            "min_replicas": autoscaling.min_replicas,
            "initial_replicas": min(max(replicas, autoscaling.min_replicas), autoscaling.max_replicas),
            "max_replicas": autoscaling.max_replicas,
            "upscale_delay_s": autoscaling.upscale_delay_s,
            "downscale_delay_s": autoscaling.downscale_delay_s,
            "look_back_period_s": autoscaling.look_back_s,
            "policy": {"policy_function": "router.autoscaling:LoadPolicy", "policy_kwargs": kwargs},
        },
    }
