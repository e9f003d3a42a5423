"""What is wrong with a configuration, in one line that names the field."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from router.errors import path_of

Model = TypeVar("Model", bound=BaseModel)


class ConfigError(ValueError):
    """One line that names the field and says what is wrong with it."""


def validated(model: type[Model], raw: Any, where: str) -> Model:
    """`raw` as a `model`; `where` is its path in the file. Raises ConfigError; the nearest right key is named."""
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise ConfigError(_describe(error, model, where)) from None


def nearest(key: str, fields: Iterable[str]) -> str:
    close = difflib.get_close_matches(key, fields, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known here: {', '.join(sorted(fields))}"


def model_in(annotation: Any) -> type[BaseModel] | None:
    """The pydantic model inside `annotation` (Optional[M], list[M], M), or None."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        found = model_in(inner)
        if found is not None:
            return found
    return None


def _describe(error: ValidationError, model: type[BaseModel], root: str) -> str:
    errors = error.errors(include_url=False, include_context=False)
    # A misspelt key is the reason for the right one's being absent.
    first = next((one for one in errors if one["type"] == "extra_forbidden"), errors[0])
    where = path_of((root, *first["loc"]))
    if first["type"] == "extra_forbidden":
        return f"{where}: unknown key{nearest(str(first['loc'][-1]), _fields_at(model, first['loc'][:-1]))}"
    if first["type"] == "missing":
        return f"{where}: required, but absent"
    if first["type"] == "value_error":
        return f"{where}: {first['msg'].removeprefix('Value error, ')}"
    return f"{where}: {first['msg']} (got {first['input']!r})"


def _fields_at(model: type[BaseModel], location: tuple[str | int, ...]) -> list[str]:
    for step in location:
        if isinstance(step, str):
            inner = model_in(model.model_fields[step].annotation)
            assert inner is not None, "pydantic found a key there"
            model = inner
    return list(model.model_fields)
