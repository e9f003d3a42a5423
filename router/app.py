"""Builds the application from `args:` of a Serve configuration; `import_path: router.app:build_app`."""

from __future__ import annotations

from typing import Any

from ray.serve import Application

from encoder_pool.deployment import EncoderPool
from llm_pool.deployment import LLMPool
from llm_pool.placement import serve_options
from router.config import AppConfig, ConfigError, parse_args
from router.openai_api import Router

# A dead replica is noticed and replaced after about this long.
HEALTH_CHECK_PERIOD_S = 1.0
# Streams that a replica is told to leave may go on for this long.
DRAIN_S = 60.0


def build_app(args: dict[str, Any]) -> Application:
    """The three deployments, wired. Raises ConfigError, its line being the last of the application's message."""
    config = parse_args(args)
    return bind(config)


def bind(config: AppConfig) -> Application:
    """The application of a checked configuration."""
    router, encoder = config.router, config.encoder
    pools = {
        "max_queued_requests": router.max_queued_requests,
        "health_check_period_s": HEALTH_CHECK_PERIOD_S,
        "graceful_shutdown_timeout_s": DRAIN_S,
    }
    encoders = EncoderPool.options(
        num_replicas=encoder.replicas,
        ray_actor_options={
            "num_cpus": encoder.num_cpus,
            "num_gpus": encoder.num_gpus,
            "resources": encoder.resources,
        },
        # The replica's own queue is bounded in tiles; this only has to be wide enough to fill it.
        max_ongoing_requests=encoder.max_queued_tiles,
        **pools,
    )
    decoders = LLMPool.options(
        num_replicas=config.llm.replicas,
        max_ongoing_requests=config.llm.max_ongoing_requests,
        **serve_options(config.llm),
        **pools,
    )
    ingress = Router.options(
        num_replicas=router.replicas,
        ray_actor_options={"num_cpus": router.num_cpus, "resources": router.resources},
        max_ongoing_requests=router.max_ongoing_requests,
        graceful_shutdown_timeout_s=DRAIN_S,
    )
    return ingress.bind(config, encoders.bind(config.model, config.encoder), decoders.bind(config.model, config.llm))


__all__ = ["ConfigError", "bind", "build_app"]
