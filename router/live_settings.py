"""Settings that change while the Router runs: its `user_config` in a Serve file, without a restart of any replica.

    deployments:
      - name: Router
        user_config:
          api_keys:
            - {name: acme, file: /etc/tessera/keys/acme, requests_per_minute: 600}

Keys themselves stand in files or environment variables, since Serve shows a `user_config` to whoever may ask it.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from router.config_error import validated

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"


class ApiKeySettings(BaseModel):
    """One API key: where it is read from, whose it is, and what it may do."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=NAME, description="Names the key in logs and errors; it is not the key.")
    tenant: str | None = Field(
        None,
        pattern=NAME,
        description="Keys of one tenant share cached pictures and prompts, tenants share nothing; default: `name`.",
    )
    file: str | None = Field(
        None, min_length=1, description="File that holds the key and nothing else; read again when it changes."
    )
    env: str | None = Field(None, min_length=1, description="Environment variable of the Routers that holds the key.")
    requests_per_minute: int | None = Field(
        None,
        ge=1,
        description="Requests a minute that one Router replica takes with this key, all of them at once if they come "
        "so; 429 above it. Default: no limit.",
    )
    max_concurrent_requests: int | None = Field(
        None,
        ge=1,
        description="Requests with this key that one Router replica works on at a time; 429 above it. "
        "Default: no limit.",
    )
    trusted: bool = Field(
        False, description="Whether text of this key's requests to /v1/completions may hold the model's control tokens."
    )

    @model_validator(mode="after")
    def _one_source(self) -> ApiKeySettings:
        if (self.file is None) == (self.env is None):
            raise ValueError(f"{self.name}: one of `file` and `env` must say where the key is read from")
        return self


class LiveSettings(BaseModel):
    """`user_config` of the deployment `Router`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    api_keys: tuple[ApiKeySettings, ...] = Field(
        min_length=1,
        description="Keys that clients send as `Authorization: Bearer KEY`; without a `user_config` all are served.",
    )

    @model_validator(mode="before")
    @classmethod
    def _no_keys_in_clear(cls, value: Any) -> Any:
        # Said here, because pydantic's own error would repeat the value, and with it the secret.
        keys = value.get("api_keys", []) if isinstance(value, dict) else []
        if not isinstance(keys, list) or any(not isinstance(key, dict) or "key" in key for key in keys):
            raise ValueError("api_keys: a list of maps, whose keys stand in a `file` or a variable (`env`), not here")
        return value

    @model_validator(mode="after")
    def _distinct_names(self) -> LiveSettings:
        names = [key.name for key in self.api_keys]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise ValueError(f"api_keys: the name {min(twice)!r} stands there twice")
        return self


def live_settings(user_config: Any) -> LiveSettings:
    """Raises ConfigError."""
    return validated(LiveSettings, user_config, "user_config")
