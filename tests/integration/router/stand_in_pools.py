"""An application of two pools as far as their GPUs and their loads go, for what the autoscaler makes of them."""

from __future__ import annotations

from pathlib import Path

from ray import serve

from encoder_pool.settings import LOAD_SIGNAL, Autoscaling
from router.autoscaling import replica_options

SCALING = Autoscaling(
    min_replicas=1, max_replicas=3, target_load=10, upscale_delay_s=0, downscale_delay_s=1, look_back_s=3
)


class StandIn:
    """Its first replica tells the whole pool's load, which stands in a file."""

    def __init__(self, load: Path) -> None:
        self._load = load

    def record_autoscaling_stats(self) -> dict[str, float]:
        first = serve.get_replica_context().rank.rank == 0
        return {LOAD_SIGNAL: float(self._load.read_text()) if first else 0.0}


@serve.deployment(ray_actor_options={"num_cpus": 0})
class Ingress:
    def __init__(self, *pools) -> None:
        pass


def build(args: dict[str, str]):
    """args: pool -> the file with its load."""
    pools = [
        serve.deployment(StandIn)
        .options(
            name=pool,
            ray_actor_options={"num_cpus": 0, "num_gpus": 1},
            graceful_shutdown_timeout_s=1,
            **replica_options(1, SCALING, gpus=1),
        )
        .bind(Path(load))
        for pool, load in args.items()
    ]
    return Ingress.bind(*pools)
