"""Builds the application from `args:` of a Serve configuration; `import_path: router.app:build_app`."""

from __future__ import annotations

from typing import Any

import ray
from ray import serve
from ray.serve import Application
from ray.serve.config import RequestRouterConfig

from encoder_pool.deployment import EncoderPool
from llm_pool.deployment import llm_deployment
from llm_pool.placement import gpus_of, resolve
from router.autoscaling import replica_options
from router.config import AppConfig, parse_args
from router.object_stores import check_object_stores
from router.openai_api import Router
from router.placement import encoder_options
from router.store_actor import store_actors

# A dead replica is noticed and replaced after about this long.
HEALTH_CHECK_PERIOD_S = 1.0
# Streams that a replica is told to leave may go on for this long.
DRAIN_S = 60.0


def build_app(args: dict[str, Any]) -> Application:
    """The three deployments, wired. Raises ConfigError, its line being the last of the application's message."""
    config = parse_args(args)
    check_object_stores(config.router, ray.nodes())
    return bind(config)


def bind(config: AppConfig) -> Application:
    """The application of a checked configuration; asks the running cluster for its GPUs where that is left open."""
    router, encoder, llm = config.router, config.encoder, resolve(config.llm)
    pools: dict[str, Any] = {
        "max_queued_requests": router.max_queued_requests,
        "health_check_period_s": HEALTH_CHECK_PERIOD_S,
        "graceful_shutdown_timeout_s": DRAIN_S,
    }
    encoders = EncoderPool.options(  # type: ignore[attr-defined]
        # The replica bounds its own queue, in tiles; every waiting request has at least one.
        max_ongoing_requests=encoder.max_queued_tiles,
        request_router_config=RequestRouterConfig(request_router_class="router.shard_router:TileRouter"),
        **encoder_options(config.placement, encoder, llm),
        **pools,
    ).bind(config.model, encoder, claims_gpu=config.placement == "colocated")
    decoders = (
        llm_deployment(llm)
        .options(
            request_router_config=RequestRouterConfig(request_router_class="router.decoder_router:PrefixRouter"),
            **replica_options(llm.replicas, llm.autoscaling, gpus_of(llm)),
            **pools,
        )
        .bind(config.model, llm)
    )
    ingress = serve.deployment(Router).options(
        name="Router",
        num_replicas=router.replicas,
        ray_actor_options={"num_cpus": router.num_cpus, "resources": router.resources},
        max_ongoing_requests=router.max_ongoing_requests,
        graceful_shutdown_timeout_s=DRAIN_S,
        deployment_actors=store_actors(config),
    )
    return ingress.bind(config, encoders, decoders)
