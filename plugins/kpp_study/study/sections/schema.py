"""A JSON Schema of the study file, so that editors complete and check it.

The keys of each section come from the declarations by which it is read, and those of models, kernels, inferences,
explainers and value functions from the fields of the registered classes. So the schema cannot differ from what is
read. It holds the plugins that are installed.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from kpp import registry
from kpp.storage.serialization import prior_classes
from kpp_study.study.sections.config import DECIDED_FIELDS, SECTIONS
from kpp_study.study.sections.data_config import KINDS
from kpp_study.study.sections.section import Key, fields_of, is_needed

Schema = dict[str, Any]

_PLAIN = {"bool": "boolean", "int": "integer", "float": "number", "str": "string"}
_KERNEL, _VALUE = {"$ref": "#/definitions/kernel"}, {"$ref": "#/definitions/value"}


def study_schema() -> Schema:
    """Return the JSON Schema (draft 7) of study files, for the installed plugins."""
    sections = {name: _section(SECTIONS[name]) for name in ("study", "certificate", "report")}
    sections["data"] = {"oneOf": [_section(keys, kind=kind) for kind, keys in KINDS.items()]}
    sections["model"] = _one_of(registry.models(), optional=DECIDED_FIELDS)
    sections["inference"] = _one_of(registry.inferences(), default="NUTS")
    sections["explainer"] = {"oneOf": [_explainer(name, cls) for name, cls in registry.explainers().items()]}
    on = {"type": "array", "minItems": 1, "items": {"type": ["string", "integer"]}, "description": "its features"}
    kernel = _one_of(registry.kernels(), further={"on": on})  # before the priors: their plugins may have some
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "kpp study",
        "type": "object",
        "required": ["data", "model"],
        "additionalProperties": False,
        "properties": {name: sections[name] for name in SECTIONS},
        "definitions": {"kernel": kernel, "prior": _prior(), "value": _value()},
    }


def _section(keys: Mapping[str, Key], **given: str) -> Schema:
    """Describe a section by its keys, of which some have a given value."""
    described = {name: key.described() for name, key in keys.items()}
    required = [name for name, key in keys.items() if key.required]
    # The first kind of data is the default, which need not be written.
    required += [name for name, value in given.items() if value != keys[name].default]
    return _object(described | {name: {"const": value} for name, value in given.items()}, required)


def _named(
    name: str, cls: type, *, default: str | None = None, optional: Iterable[str] = (), further: Schema | None = None
) -> Schema:
    """Describe a section or an object that builds a registered class by its name and fields."""
    fields = fields_of(cls)
    needed = [name for name, field in fields.items() if is_needed(field) and name not in optional]
    texts = _field_texts(cls)
    described = {name: _field(field, texts.get(name)) for name, field in fields.items()}
    summary = (inspect.getdoc(cls) or "").partition("\n")[0]
    names = {"name": {"const": name, "description": summary}, "kind": {"type": "string"}}
    required = needed if name == default else ["name", *needed]
    return _object({**described, **(further or {}), **names}, required)


def _one_of(classes: Mapping[str, type], **options: Any) -> Schema:
    return {"oneOf": [_named(name, cls, **options) for name, cls in classes.items()]}


def _explainer(name: str, cls: Any) -> Schema:
    """Describe an explainer with the options of all value functions, which are chosen by a key of their own."""
    further = {name: key.described() for name, key in SECTIONS["explainer"].items() if name != "name"}
    value_functions, fields = registry.value_functions(), {field.name for field in dataclasses.fields(cls)}
    if "value_function" in fields:
        for value_function in value_functions.values():
            options = _named("", value_function)["properties"]
            further = {**{key: schema for key, schema in options.items() if key not in ("name", "kind")}, **further}
        further["value_function"] = {"enum": sorted(value_functions), "default": "interventional"}
    return _named(name, cls, default="rkhs-shap", optional=fields & {"background", "value_function"}, further=further)


def _prior() -> Schema:
    described = {"prior": {"enum": sorted(prior_classes()), "description": "a distribution of NumPyro or of a plugin"}}
    sizes = {"type": "array", "items": {"type": "integer", "minimum": 1}, "description": "independent copies"}
    return {"type": "object", "properties": {**described, "expand": sizes}, "required": ["prior"]}


def _value() -> Schema:
    """Describe the values of a parameter: a number, numbers, text, a prior, or an object that a name builds."""
    named = {"type": "object", "required": ["name"]}
    numbers = {"type": "array", "items": _VALUE}
    return {"anyOf": [{"type": ["number", "string", "boolean"]}, numbers, {"$ref": "#/definitions/prior"}, named]}


def _field(field: dataclasses.Field, text: str | None) -> Schema:
    schema = dict(_type(field))
    if text:
        schema["description"] = text
    default = _as_json(field.default)
    return schema if default is None or "$ref" in schema else {**schema, "default": default}


def _type(field: dataclasses.Field) -> Mapping[str, Any]:
    """Return the schema of a field's annotation; any value where it is not plain."""
    text = field.type.__name__ if isinstance(field.type, type) else str(field.type)
    parts = [part.strip().rpartition(".")[2] for part in text.split("|") if part.strip() != "None"]
    if parts and all(part in _PLAIN for part in parts):
        return {"type": [_PLAIN[part] for part in parts] if len(parts) > 1 else _PLAIN[parts[0]]}
    if parts == ["AbstractKernel"]:
        return {"allOf": [_KERNEL]}
    return {"allOf": [_VALUE]} if parts == ["Leaf"] else {}


def _as_json(value: object) -> Any:
    """Return a default that JSON can hold, else None."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError):
        return None


def _field_texts(cls: type) -> dict[str, str]:
    """Return the descriptions of the fields in the docstring of a class."""
    arguments = re.search(r"^Args:\n((?:(?:    .*)?\n)+)", (inspect.getdoc(cls) or "") + "\n", re.MULTILINE)
    if arguments is None:
        return {}
    entries = re.findall(r"^    (\w+): ((?:.*\n)(?:        .*\n)*)", arguments[1], re.MULTILINE)
    return {name: re.sub(r":math:`([^`]*)`", r"\1", " ".join(text.split())) for name, text in entries}


def _object(properties: Schema, required: Iterable[str]) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
