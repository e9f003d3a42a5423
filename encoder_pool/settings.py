"""Settings of the encoder pool, and of the model that both pools load, as they stand in `config.yaml`."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from encoder_pool.wire import EmbeddingDtype


class ModelSettings(BaseModel):
    """Which checkpoint both pools load."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: str = Field(min_length=1, description="A folder in Hugging Face format, or a hub id.")
    revision: str | None = Field(None, description="Branch, tag or commit of a hub model.")
    served_names: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        (), description="Names that clients may send as `model`, the first one is reported; default: `source`."
    )
    dtype: EmbeddingDtype = Field(
        "bfloat16", description="Dtype of activations in both pools, and of the embeddings between them."
    )
    load_format: Literal["auto", "dummy"] = Field(
        "auto", description="`dummy`: random weights from `seed`, nothing but the configuration is read."
    )
    seed: int = Field(0, ge=0, description="Seed of dummy weights.")

    @property
    def names(self) -> tuple[str, ...]:
        """The names that clients may use, never empty."""
        return self.served_names or (self.source,)


# The entry of what a replica of either pool tells Serve's autoscaler (`record_autoscaling_stats`).
LOAD_SIGNAL = "load"


class Autoscaling(BaseModel):
    """Bounds of a pool that follows its load."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    min_replicas: int = Field(1, ge=1, description="Replicas that are always there.")
    max_replicas: int = Field(ge=1, description="Replicas at most.")
    target_load: float = Field(
        gt=0,
        description="Load that one replica should have: encoders in tiles that wait or are being encoded, decoders in "
        "sequences that wait or run.",
    )
    upscale_delay_s: float = Field(10, ge=0, description="Seconds of too much load before replicas are added.")
    downscale_delay_s: float = Field(300, ge=0, description="Seconds of too little load before replicas are stopped.")
    look_back_s: float = Field(10, gt=0, description="Seconds over which the load is averaged.")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.max_replicas < self.min_replicas:
            raise ValueError(f"max_replicas {self.max_replicas} is below min_replicas {self.min_replicas}")
        return self


class EncoderSettings(BaseModel):
    """The pool of vision encoders."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    replicas: int = Field(1, ge=1, description="Encoder replicas; each holds the whole vision tower.")
    autoscaling: Autoscaling | None = Field(
        None, description="Lets the number of replicas follow the load; `replicas` are those at the start then."
    )
    num_gpus: float = Field(0, ge=0, le=1, description="GPUs a replica reserves; 0 runs on the CPU.")
    num_cpus: float = Field(0.1, ge=0, description="CPUs a replica reserves with Ray's scheduler.")
    resources: dict[str, float] = Field({}, description="Custom Ray resources a replica reserves.")
    cpu_threads: int | None = Field(
        None, ge=1, description="Threads of a CPU replica's arithmetic; default: the machine's cores."
    )
    quantization: Literal["fp8"] | None = Field(
        None,
        description="`fp8`: row-scaled 8-bit matrix products (Hopper or newer); the embeddings stay `model.dtype`.",
    )
    max_graph_tiles: int = Field(
        64, ge=0, le=512, description="Largest number of tiles a CUDA graph is captured for; 0 runs without graphs."
    )
    graph_memory_gib: float = Field(
        6.0, gt=0, description="GiB of GPU memory that graphs may take; never more than half of what is free at start."
    )
    memory_limit_gib: float | None = Field(
        None, gt=0, description="GiB of its GPU's memory that a replica may take in all; default: no limit."
    )
    max_queued_tiles: int = Field(
        1024, ge=17, description="Tiles that may wait in a replica before it refuses more (429)."
    )
    min_shard_tiles: int = Field(
        5,
        ge=1,
        description="Fewest tiles of a request that are worth a call of their own: a request of twice as many is split "
        "over two replicas. One tile takes an H200 about 2 ms, a call costs about 10 ms.",
    )
