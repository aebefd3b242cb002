"""The description of a model in the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kpp.inference import AbstractModel
from kpp.storage import serialization


def describe_model(model: AbstractModel) -> tuple[str, str]:
    """Return the name of a model, and its fields as indented text with ``~`` before each prior."""
    described = serialization.to_spec(model)
    return str(described["name"]), "\n".join(_lines(described, ""))


def _lines(described: Mapping[str, Any], indent: str) -> Iterator[str]:
    for key, value in described.items():
        if key not in ("name", "kind") and value is not None:
            yield from _field_lines(key, value, indent)


def _field_lines(key: str, value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, Mapping) and "prior" in value:
        yield f"{indent}{key} ~ {_prior(value)}"
    elif isinstance(value, Mapping) and value["name"] == "Selected":
        first, *rest = _field_lines(key, value["kernel"], indent)
        yield f"{first}, on {', '.join(map(str, value['features']))}"
        yield from rest
    elif isinstance(value, Mapping):
        yield f"{indent}{key} = {value['name']}"
        yield from _lines(value, indent + "    ")
    elif isinstance(value, list) and any(isinstance(entry, Mapping) for entry in value):
        for index, entry in enumerate(value):
            yield from _field_lines(f"{key}.{index}", entry, indent)
    else:
        yield f"{indent}{key} = {value}"


def _prior(described: Mapping[str, Any]) -> str:
    shown = {key: value for key, value in described.items() if key not in ("prior", "expand", "to_event")}
    arguments = ", ".join(
        f"{key}={_prior(value) if isinstance(value, Mapping) else value}" for key, value in shown.items()
    )
    expand = described.get("expand")
    return f"{described['prior']}({arguments})" + (f", {' × '.join(map(str, expand))} independent" if expand else "")
