"""Building of the objects that a study file describes; unknown names and keys are errors."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any

from kpp import registry
from kpp.inference import AbstractInference, AbstractModel
from kpp.storage import serialization
from kpp_study.study.config import ExplainerConfig, InferenceConfig
from kpp_study.study.errors import StudyError, blame, did_you_mean
from kpp_study.study.explainer_plan import ExplainerPlan

_PATH = re.compile(r"^`([\w.]+)`: ")


def build_model(section: Mapping[str, Any]) -> AbstractModel:
    """Build the model of the section [model].

    The section has the format of `kpp.storage.serialization`. A kernel may also have the key ``on = [features]``, which
    means ``kernel.on(features)``.

    Raises:
        StudyError: If a name is not registered, a field is unknown or missing, or a value is invalid.
    """
    try:
        return serialization.from_spec(_with_selections(section), "models")
    except (ValueError, TypeError) as error:
        text = str(error)
        path = _PATH.match(text)
        where = f"model.{path[1]}" if path else "[model]"
        raise StudyError(f"{where}: {text[path.end() :] if path else text}") from error


def complete_model(section: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section [model] with the fields that the data decide.

    Raises:
        StudyError: If the model does not have these fields, or the section gives one of them.
    """
    if fields:
        with blame("model.name"):
            cls: Any = registry.get("models", section["name"])
        known = {field.name for field in _fields(cls)}
        if not known.issuperset(fields):
            raise StudyError(
                f"data.kind 'graph' needs a model with the fields {', '.join(fields)}, such as 'ColliderRegression', "
                f"got model.name {section['name']!r}"
            )
    given = [name for name in fields if name in section]
    if given:
        raise StudyError(f"model.{given[0]} must be left out, because data.graph decides it")
    return {**section, **fields}


def build_inference(config: InferenceConfig) -> AbstractInference:
    """Build the inference of the section [inference].

    Raises:
        StudyError: If the name or an option is unknown, or a value is invalid.
    """
    with blame("inference.name"):
        cls: Any = registry.get("inferences", config.name)
    _check_options("inference", config.options, {field.name: field for field in _fields(cls)}, also=("name",))
    with blame("[inference]"):
        return cls(**config.options)


def plan_explainer(config: ExplainerConfig, *, of_pairs: bool = False) -> ExplainerPlan:
    """Check the section [explainer] before any slow computation.

    Args:
        config: The section.
        of_pairs: Whether the data are matches, so that a function of pairs is explained.

    Raises:
        StudyError: If the explainer, its value function or an option is unknown.
    """
    with blame("explainer.name"):
        cls: Any = registry.get("explainers", config.name)
    if (cls.requires == "pairs") != of_pairs:
        kind = "matches need" if of_pairs else "only data of the kind 'matches' have"
        raise StudyError(f"explainer.name: {kind} an explainer of pairs, such as 'pref-shap', got {config.name!r}")
    options = dict(config.options)
    known = {field.name: field for field in _fields(cls)}
    if "value_function" in known:
        name = options.setdefault("value_function", "interventional")
        with blame("explainer.value_function"):
            value_function = registry.get("value_functions", name)
        known |= {field.name: field for field in _fields(value_function)}
    also = ("name", "instances", "background", "max_draws")
    _check_options("explainer", options, {key: field for key, field in known.items() if key != "background"}, also)
    given = {*options, "background"}
    for name, field in known.items():
        if (
            name not in given
            and name != "value_function"
            and field.default is field.default_factory is dataclasses.MISSING
        ):
            raise StudyError(f"explainer.{name} is missing: the explainer {config.name!r} needs it")
    if "background" not in known and config.background is not None:
        raise StudyError("explainer.background: neither the explainer nor its value function takes a background")
    background = None if "background" not in known else "all" if config.background is None else config.background
    of_function = cls.requires == "rkhs_function"
    return ExplainerPlan(config.name, background, options, of_function, shows_progress="progress" in known)


def describe_model(model: AbstractModel) -> tuple[str, str]:
    """Return the name of a model, and its fields as indented text with ``~`` before each prior."""
    described = serialization.to_spec(model)
    return str(described["name"]), "\n".join(_lines(described, ""))


def _with_selections(section: Any) -> Any:
    """Replace every key ``on`` of a kernel by the kernel that it stands for."""
    if isinstance(section, list):
        return [_with_selections(entry) for entry in section]
    if not isinstance(section, Mapping):
        return section
    inner = {key: _with_selections(value) for key, value in section.items() if key != "on"}
    return {"name": "Selected", "kernel": inner, "features": section["on"]} if "on" in section else inner


def _fields(cls: type) -> Iterator[dataclasses.Field]:
    return (field for field in dataclasses.fields(cls) if field.init)


def _check_options(
    section: str, options: Mapping[str, Any], fields: Mapping[str, dataclasses.Field], also: tuple[str, ...]
) -> None:
    for key, value in options.items():
        if key not in fields:
            raise StudyError(f"[{section}] has an unknown key {key!r}; {did_you_mean(key, {*fields, *also})}")
        for kind, accepted, words in (
            (bool, (bool,), "true or false"),
            (int, (int,), "a whole number"),
            (float, (int, float), "a number"),
            (str, (str,), "text"),
        ):
            if _is_option(fields[key], kind):
                if not isinstance(value, accepted) or (kind is not bool and isinstance(value, bool)):
                    raise StudyError(f"{section}.{key} must be {words}, got {value!r}")
                break


def _is_option(field: dataclasses.Field, kind: type) -> bool:
    """Return whether the values of a field are of a type, or None for its default."""
    return isinstance(field.default, kind) or field.type in (kind | None, f"{kind.__name__} | None")


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
