"""The configuration of an application: the typed `args:` of `config.yaml`, and the check of the whole file.

python -m router.config --check config.yaml   # exit 1 and one line naming the field where something is wrong
python -m router.config --schema              # the JSON schema of `args:`
"""

from __future__ import annotations

import argparse
import ipaddress
import json
import logging
import os
import re
import sys
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from encoder_pool.settings import EncoderSettings, ModelSettings
from llm_pool.settings import LLMSettings
from router.config_error import ConfigError, model_in, nearest, validated
from router.errors import path_of
from router.live_settings import live_settings
from router.placement import Placement, check_colocated
from router.serve_file import check_checkpoint, check_serve_file
from router.special_tokens import Mode

IMPORT_PATH = "router.app:build_app"
# What `args:` derives for each deployment must not be overridden behind its back, its number of replicas apart.
DEPLOYMENTS = ("Router", "EncoderPool", "LLMPool")


class RouterSettings(BaseModel):
    """The HTTP ingress: request checks, image intake, hand-off."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    replicas: int = Field(1, ge=1, description="Router replicas; each decodes and tiles on its own CPU threads.")
    num_cpus: float = Field(0.1, ge=0, description="CPUs a replica reserves with Ray's scheduler.")
    resources: dict[str, float] = Field({}, description="Custom Ray resources a replica reserves.")
    max_ongoing_requests: int = Field(512, ge=1, description="Requests a replica works on at a time.")
    max_queued_requests: int = Field(
        1024, ge=1, description="Requests that may wait for a pool in one Router before it answers 429."
    )
    image_threads: int = Field(2, ge=1, description="Threads that decode and tile pictures.")
    max_body_bytes: int = Field(64 * 2**20, ge=1024, description="Largest request body in bytes; 413 above it.")
    max_images: int = Field(16, ge=1, description="Most images in one request.")
    max_image_bytes: int = Field(50 * 2**20, ge=1024, description="Largest encoded picture in bytes.")
    max_image_pixels: int = Field(
        64_000_000, ge=1, description="Largest picture in pixels, read from its header before it is decoded."
    )
    max_decoding_pixels: int = Field(
        128_000_000,
        ge=1,
        description="Pixels of the pictures that a Router decodes at the same time, at about 15 bytes of memory each; "
        "other pictures wait. At least max_image_pixels.",
    )
    max_tiles: int = Field(
        272,
        ge=1,
        description="Most tiles in one request, global ones counted: a large picture has 17. Known before decoding.",
    )
    accept_image_embeds: bool = Field(
        False,
        description="Whether clients may send embeddings in the place of pictures (`image_embeds` parts): for callers "
        "who run an encoder of the same weights. The answers are only as good as what they send.",
    )
    fetch_timeout_s: float = Field(10, gt=0, le=600, description="Seconds for fetching one picture by URL, in all.")
    fetch_private_networks: tuple[str, ...] = Field(
        (),
        description="Networks (CIDR) that are not public and from which pictures may be fetched all the same, "
        "e.g. 10.1.0.0/16. Others that are not public are never contacted.",
    )
    max_choices: int = Field(
        128, ge=1, description="Most answers of one request: its `n`, times its prompts at /v1/completions."
    )
    special_tokens: Mode = Field(
        "refuse",
        description="What becomes of a control token that a client types: `refuse` answers 400, `escape` makes it "
        "plain text. At /v1/completions callers whose key is trusted may send them.",
    )
    fetch_allowed_hosts: tuple[str, ...] = Field(
        (),
        description='The only hosts from which pictures may be fetched: "host" (ports 80 and 443), "host:port", or '
        '"*.host" for all names below it. Default: every public host.',
    )
    allowed_local_media_path: str | None = Field(
        None,
        min_length=1,
        description="Folder of the Routers' nodes below which `file://` URLs may point; default: none. Every client "
        "may ask about every picture in it.",
    )
    cors_origins: tuple[str, ...] = Field(
        (),
        description='Origins whose web pages may read answers in a browser, e.g. https://chat.example; "*" is all. '
        "Default: none.",
    )
    embedding_store_bytes: int = Field(
        100 * 2**20,
        ge=0,
        description="Bytes of finished embeddings that are kept for pictures that come again (1.47 MB a tile for "
        "Scout); they lie in the object stores of the encoders' nodes. 0 keeps none.",
    )
    embedding_store_actors: int = Field(
        1,
        ge=1,
        description="Processes that keep them for several Routers together, each its part; one Router does that "
        "itself.",
    )
    in_flight_bytes: int = Field(
        512 * 2**20,
        ge=2**20,
        description="Bytes of tiles (0.34 MB each) and embeddings (1.47 MB a tile for Scout) that the requests of each "
        "Router may hold in the object stores at a time, an answer's embeddings until it ends; 429 above it.",
    )
    embedding_ttl_s: float = Field(600, gt=0, description="Seconds after its encode that an embedding is kept at most.")
    encode_timeout_s: float = Field(60, gt=0, description="Seconds for the encoding of a request's pictures.")
    body_timeout_s: float = Field(60, gt=0, description="Seconds for a request's body to arrive; 408 after them.")
    heartbeat_s: float = Field(
        15,
        gt=0,
        description="Seconds after which a stream without a chunk is begun with a comment, and kept open by more of "
        "them; an error after that is an event of the stream.",
    )
    chunk_timeout_s: float = Field(
        120, gt=0, description="Seconds between two chunks of a stream before it ends with an error."
    )
    first_chunk_timeout_s: float = Field(
        600,
        gt=0,
        description="Seconds from the hand-off to the first chunk of the answer, or to all of it if it is "
        "not streamed.",
    )

    @model_validator(mode="after")
    def _largest_picture_can_be_decoded(self) -> RouterSettings:
        if self.max_decoding_pixels < self.max_image_pixels:
            raise ValueError(f"max_decoding_pixels: must be at least max_image_pixels, {self.max_image_pixels}")
        return self

    @field_validator("fetch_allowed_hosts")
    @classmethod
    def _hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if not re.fullmatch(r"(\*\.)?[a-z0-9.-]+(:\d+)?|\[[0-9a-f:]+\](:\d+)?", host):
                raise ValueError(f"{host!r} is no host, host:port or *.host, in small letters")
        return hosts

    @field_validator("fetch_private_networks")
    @classmethod
    def _networks(cls, networks: tuple[str, ...]) -> tuple[str, ...]:
        for network in networks:
            ipaddress.ip_network(network)
        return networks


class AppConfig(BaseModel):
    """`args:` of the application in `config.yaml`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    placement: Placement = Field(
        "dedicated",
        description="`dedicated`: encoders have GPUs of their own. `colocated`: one encoder beside every GPU of the "
        "decoders, which must fill their nodes; experimental.",
    )
    model: ModelSettings
    encoder: EncoderSettings = EncoderSettings()  # type: ignore[call-arg]
    llm: LLMSettings = LLMSettings()  # type: ignore[call-arg]
    router: RouterSettings = RouterSettings()  # type: ignore[call-arg]


def parse_args(args: Any) -> AppConfig:
    """`args:` as a checked AppConfig.

    Raises ConfigError: a wrong key (the nearest right one is named) or value, vLLM's own argument names included.
    """
    config = validated(AppConfig, args, "args")
    check_llm_kwargs(config.llm)
    if config.placement == "colocated":
        try:
            check_colocated(config.encoder, config.llm)
        except ValueError as error:
            raise ConfigError(f"args.{error}") from None
    return config


def check_llm_kwargs(llm: LLMSettings) -> None:
    """Holds the two pass-through maps against vLLM's own fields. Raises ConfigError."""
    # Imports vLLM, which takes seconds: only where there is something to check.
    from llm_pool.engine_args import check_engine_kwargs, check_frontend_kwargs

    for name, check in (("engine_kwargs", check_engine_kwargs), ("frontend_kwargs", check_frontend_kwargs)):
        try:
            check(getattr(llm, name))
        except ValueError as error:
            raise ConfigError(f"args.llm.{name}: {error}") from None


def check_file(path: Path) -> AppConfig:
    """The application's AppConfig, once every key of the whole Serve file is known to be right.

    Ray's own schema ignores keys that it does not know, so they are looked for here. Raises ConfigError.
    """
    from ray.serve.schema import ServeDeploySchema

    try:
        raw = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: {error}") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: not a Serve configuration (a map with `applications:`)")
    try:
        ServeDeploySchema.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        raise ConfigError(f"{path_of(tuple(first['loc']))}: {first['msg']}") from None
    _refuse_unknown_keys(raw, ServeDeploySchema, "")

    ours = [app for app in raw["applications"] if app.get("import_path") == IMPORT_PATH]
    if len(ours) != 1:
        raise ConfigError(f"applications: exactly one must have import_path {IMPORT_PATH!r}, found {len(ours)}")
    try:
        check_serve_file(raw, ours[0], DEPLOYMENTS)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    for entry in ours[0].get("deployments", []):
        # A changed argument restarts the replicas of all three; these may change without.
        may = {"name", "num_replicas"} | ({"user_config"} if entry["name"] == "Router" else set())
        overridden = sorted(entry.keys() - may)
        if entry["name"] in DEPLOYMENTS and overridden:
            raise ConfigError(
                f"applications.deployments: {entry['name']}: {overridden[0]} is set in `args:`, not here; "
                f"only {' and '.join(sorted(may - {'name'}))} may be"
            )
        if entry.get("user_config") is not None and entry["name"] == "Router":
            live_settings(entry["user_config"])
    config = parse_args(ours[0].get("args", {}))
    _check_autoscaling(config, ours[0])
    return config


def _check_autoscaling(config: AppConfig, app: dict[str, Any]) -> None:
    """What of it stands outside `args:`. Raises ConfigError."""
    numbered = {entry["name"] for entry in app.get("deployments", []) if "num_replicas" in entry}
    scaled = {"EncoderPool": config.encoder.autoscaling, "LLMPool": config.llm.autoscaling}
    for name in numbered:
        if scaled.get(name) is not None:
            raise ConfigError(f"applications.deployments: {name}: num_replicas is the autoscaler's; remove it")
    policy = app.get("autoscaling_policy")
    if policy is not None and None in scaled.values():
        raise ConfigError("applications.autoscaling_policy: needs args.encoder.autoscaling and args.llm.autoscaling")


def _refuse_unknown_keys(raw: Any, model: Any, where: str) -> None:
    """Recurses through a Serve file beside Ray's schema models, as far as those are models."""
    if isinstance(raw, list):
        for index, item in enumerate(raw):
            _refuse_unknown_keys(item, model, f"{where}[{index}]")
        return
    nested = model_in(model)
    if nested is None or not isinstance(raw, dict):
        return
    fields = {(field.alias or name): field for name, field in nested.model_fields.items()}
    for key, value in raw.items():
        path = f"{where}.{key}" if where else str(key)
        if key not in fields:
            raise ConfigError(f"{path}: unknown key{nearest(str(key), list(fields))}")
        if key != "args":  # free-form for Ray; ours is checked by AppConfig
            _refuse_unknown_keys(value, fields[key].annotation, path)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m router.config", description=(__doc__ or "").splitlines()[0])
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--check", type=Path, metavar="FILE", help="check a Serve configuration file")
    action.add_argument("--schema", action="store_true", help="print the JSON schema of `args:`")
    parser.add_argument(
        "--elsewhere", action="store_true", help="do not look for the checkpoint: it lies on another machine"
    )
    options = parser.parse_args(argv)
    if options.schema:
        print(json.dumps(AppConfig.model_json_schema(), indent=2))
        return 0
    # vLLM is imported for its argument names alone; what it logs meanwhile would hide the one line that matters.
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    logging.getLogger("vllm").setLevel(logging.ERROR)
    try:
        config = check_file(options.check)
        if not options.elsewhere:
            check_checkpoint(config.model.source)
    except ValueError as error:
        print(f"{options.check}: {error}", file=sys.stderr)
        return 1
    print(f"{options.check}: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
