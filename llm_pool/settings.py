"""Settings of the decoder pool, as they stand in `config.yaml`."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from encoder_pool.settings import Autoscaling


class LLMSettings(BaseModel):
    """The pool of vLLM decoders."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    replicas: int = Field(1, ge=1, description="Decoder replicas; each is a whole vLLM engine.")
    autoscaling: Autoscaling | None = Field(
        None, description="Lets the number of replicas follow the load; `replicas` are those at the start then."
    )
    gpus_per_node: int | None = Field(
        None,
        ge=0,
        description="GPUs that one node offers an engine; an engine that needs more spans nodes; 0 runs on the CPU; "
        "default: as many as the best equipped node of the cluster has.",
    )
    gpu_share: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Share of its GPU that an engine on one GPU reserves, so that an encoder can have the rest; set "
        "`kv_cache_memory_bytes` in `engine_kwargs` then, since vLLM takes its neighbour's memory for its own.",
    )
    num_cpus: float = Field(0.1, ge=0, description="CPUs a replica reserves with Ray's scheduler.")
    cpu_threads: int | None = Field(
        None, ge=1, description="Threads of a CPU engine's arithmetic; default: the machine's cores."
    )
    resources: dict[str, float] = Field({}, description="Custom Ray resources a replica reserves.")
    max_ongoing_requests: int = Field(
        256, ge=1, description="Requests a replica takes at a time; vLLM queues those over max_num_seqs."
    )
    chunk_window_s: float = Field(
        0.02, ge=0, le=1, description="Seconds over which streamed chunks are gathered before they are sent on."
    )
    max_chunks_per_s: float = Field(
        400,
        gt=0,
        description="Chunks a second that a replica's streams send on together: with n streams, each gathers over at "
        "least n / max_chunks_per_s seconds, so that a Router has CPU left for new requests. First chunks never wait.",
    )
    engine_kwargs: dict[str, Any] = Field(
        {}, description="vLLM engine arguments (fields of AsyncEngineArgs), e.g. max_model_len."
    )
    frontend_kwargs: dict[str, Any] = Field(
        {},
        description="vLLM serving options (fields of FrontendArgs), e.g. tool_call_parser. `chat_template: lossless` "
        "is Llama 4's format without what the checkpoints' own template loses.",
    )
