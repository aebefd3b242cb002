"""The sections of a study file: each key is declared once, for the reader and for the JSON Schema."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from kpp_study.study.errors import StudyError, did_you_mean

#: A choice of rows: a number of rows, a list of row numbers (from 0), or "all".
Rows = int | tuple[int, ...] | Literal["all"]


@dataclasses.dataclass(frozen=True)
class Key:
    """A key of a section."""

    what: str  # the key means
    schema: Mapping[str, Any]  # the JSON Schema of its values
    needed: str  # what its values must be, for messages
    is_valid: Callable[[Any], bool]
    default: Any = None  # its value if the file does not give it
    required: bool = False  # whether the file must give it
    is_file: bool = False  # whether its values are paths

    def described(self) -> dict[str, Any]:
        """Return the JSON Schema with the meaning and the default of the key."""
        default = {} if self.default in (None, ()) else {"default": self.default}
        return {**self.schema, "description": self.what, **default}

    def read(self, value: Any, name: str) -> Any:
        """Return a value of the file, or raise StudyError with the name of the key; a list becomes a tuple."""
        if not self.is_valid(value):
            raise StudyError(f"{name} must be {self.needed}, got {_shown(value)}")
        if not isinstance(value, list):
            return value
        repeated = sorted({entry for entry in value if value.count(entry) > 1})
        if repeated:
            listed = ", ".join(map(repr, repeated)) if isinstance(repeated[0], str) else f"the rows {repeated}"
            raise StudyError(f"{name} lists {listed} more than once")
        return tuple(value)


def text(what: str, default: str | None = None, *, required: bool = False) -> Key:
    """Declare a text that is not empty."""
    schema = {"type": "string", "minLength": 1}
    return Key(what, schema, f"{what}, as text", lambda v: isinstance(v, str) and bool(v.strip()), default, required)


def file(what: str, *, required: bool = False) -> Key:
    """Declare a path."""
    return dataclasses.replace(text(what, required=required), is_file=True)


def character(what: str, default: str) -> Key:
    """Declare one character, which may be a tab or a space."""
    schema = {"type": "string", "minLength": 1, "maxLength": 1}
    return Key(what, schema, f"{what}, one character", lambda v: isinstance(v, str) and len(v) == 1, default)


def choice(what: str, default: str, allowed: Sequence[str]) -> Key:
    """Declare one of some words."""
    return Key(what, {"enum": list(allowed)}, f"one of {', '.join(map(repr, allowed))}", allowed.__contains__, default)


def flag(what: str, default: bool) -> Key:
    """Declare true or false."""
    return Key(what, {"type": "boolean"}, "true or false", lambda v: isinstance(v, bool), default)


def count(what: str, default: int, least: int = 0) -> Key:
    """Declare a whole number of at least `least`."""
    schema = {"type": "integer", "minimum": least}
    return Key(what, schema, f"a whole number of at least {least}", lambda v: _is_whole(v, least), default)


def names(what: str, default: tuple[str, ...] | None = None, *, required: bool = False) -> Key:
    """Declare a list of different column names."""
    schema = {"type": "array", "items": {"type": "string"}, "uniqueItems": True, "minItems": int(required)}
    return Key(what, schema, "a list of column names", lambda v: _is_list(v, str), default, required)


def rows(what: str, default: Rows | None = None, least: int = 1) -> Key:
    """Declare a choice of rows."""
    numbers = {"type": "array", "minItems": 1, "uniqueItems": True, "items": {"type": "integer", "minimum": 0}}
    schema = {"anyOf": [{"type": "integer", "minimum": least}, numbers, {"const": "all"}]}
    needed = f'a number of rows of at least {least}, a list of row numbers (from 0) or "all"'
    return Key(what, schema, needed, lambda v: v == "all" or _is_whole(v, least) or _is_row_list(v), default)


def read_section(table: Any, name: str, keys: Mapping[str, Key], *, is_open: bool = False) -> dict[str, Any]:
    """Return the values of the keys of a section.

    The keys are checked in their order. An open section may have further keys, which the caller checks. Raises
    StudyError if it is not a section, or a key is missing, invalid or unknown.
    """
    if not isinstance(table, dict):
        raise StudyError(f"[{name}] must be a section (a TOML table), got {_shown(table)}")
    found = {}
    for key, declared in keys.items():
        if key not in table and declared.required:
            near = difflib.get_close_matches(key, table, n=1)
            hint = f" (there is {near[0]!r}, which means nothing here)" if near else ""
            raise StudyError(f"{name}.{key} is missing: {declared.what}{hint}")
        found[key] = declared.read(table[key], f"{name}.{key}") if key in table else declared.default
    unknown = [] if is_open else [key for key in table if key not in keys]
    if unknown:
        raise StudyError(f"[{name}] has an unknown key {unknown[0]!r}; {did_you_mean(unknown[0], keys)}")
    return found


def _is_whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_list(value: Any, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(entry, kind) for entry in value)


def _is_row_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(_is_whole(row, 0) for row in value)


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."


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
