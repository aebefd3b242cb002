"""The options of a section that builds a registered class: they are the fields of the class."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from kpp_study.study.errors import StudyError, did_you_mean


def fields_of(cls: Any) -> dict[str, dataclasses.Field]:
    """Return the fields by which a class is built, by name."""
    return {field.name: field for field in dataclasses.fields(cls) if field.init}


def is_needed(field: dataclasses.Field) -> bool:
    """Return whether a field has no default."""
    return field.default is field.default_factory is dataclasses.MISSING


def check_options(
    section: str, options: Mapping[str, Any], fields: Mapping[str, dataclasses.Field], also: Iterable[str]
) -> None:
    """Raise StudyError if an option of a section is unknown, or of another type than its field.

    The fields are those of the classes that the options build, and `also` are further keys of the section, for
    messages.
    """
    for key, value in options.items():
        if key not in fields:
            raise StudyError(f"[{section}] has an unknown key {key!r}; {did_you_mean(key, {*fields, *also})}")
        for kind, accepted, words in (
            (bool, (bool,), "true or false"),
            (int, (int,), "a whole number"),
            (float, (int, float), "a number"),
            (str, (str,), "text"),
        ):
            # The values of a field are of a type, or None for its default.
            if isinstance(fields[key].default, kind) or fields[key].type in (kind | None, f"{kind.__name__} | None"):
                if not isinstance(value, accepted) or (kind is not bool and isinstance(value, bool)):
                    raise StudyError(f"{section}.{key} must be {words}, got {value!r}")
                break
