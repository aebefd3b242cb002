"""Sections of a study file: their keys are read with checks, and described for a JSON Schema by the same calls."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any, Literal

from kpp_study.study.errors import StudyError, did_you_mean

#: A choice of rows: a number of rows, a list of row numbers (from 0), or "all".
Rows = int | tuple[int, ...] | Literal["all"]


class Section:
    """A table of the file that records which of its keys were read, so that unknown keys are found.

    Attributes:
        table: The table.
        name: Its name in the file.
        asked: The keys that were read.
        described: For each key that was read the JSON Schema of its values.
        required: The keys that must be given.
    """

    def __init__(self, table: Any, name: str) -> None:
        if not isinstance(table, dict):
            raise StudyError(f"[{name}] must be a section (a TOML table), got {_shown(table)}")
        self.table = table
        self.name = name
        self.asked: set[str] = set()
        self.described: dict[str, dict[str, Any]] = {}
        self.required: list[str] = []

    def describe(self, key: str, schema: dict[str, Any], default: Any = None) -> None:
        """Record the JSON Schema of a key's values, with its default."""
        self.described[key] = schema if default is None else {**schema, "default": default}

    def get(self, key: str, default: Any) -> Any:
        """Return the value of a key, or a default."""
        self.asked.add(key)
        return self.table.get(key, default)

    def require(self, key: str, what: str) -> Any:
        """Return the value of a key that must be given."""
        self.asked.add(key)
        self.required.append(key)
        if key not in self.table:
            self.refuse_missing(key, what)
        return self.table.get(key, key)

    def refuse_missing(self, key: str, what: str) -> None:
        """Raise StudyError because a key is missing."""
        near = difflib.get_close_matches(key, self.table, n=1)
        hint = f" (there is {near[0]!r}, which means nothing here)" if near else ""
        raise StudyError(f"{self.name}.{key} is missing: {what}{hint}")

    def text(self, key: str, default: str | None, what: str) -> str:
        """Return a text that is not empty; it must be given if the default is None."""
        self.describe(key, {"type": "string", "minLength": 1, "description": what}, default)
        value = self.require(key, what) if default is None else self.get(key, default)
        if not isinstance(value, str) or not value.strip():
            raise StudyError(f"{self.name}.{key} must be {what}, as text, got {_shown(value)}")
        return value

    def character(self, key: str, default: str, what: str) -> str:
        """Return one character, which may be a tab or a space."""
        self.describe(key, {"type": "string", "minLength": 1, "maxLength": 1, "description": what}, default)
        value = self.get(key, default)
        if not isinstance(value, str) or len(value) != 1:
            raise StudyError(f"{self.name}.{key} must be {what}, one character, got {_shown(value)}")
        return value

    def optional_text(self, key: str, what: str) -> str | None:
        """Return a text, or None if the key is missing."""
        found = self.text(key, "", what) if key in self.table else None
        self.describe(key, {"type": "string", "minLength": 1, "description": what})
        self.asked.add(key)
        return found

    def choice(self, key: str, default: str, allowed: Sequence[str], what: str) -> str:
        """Return one of some words."""
        self.describe(key, {"enum": list(allowed), "description": what}, default)
        value = self.get(key, default)
        if value not in allowed:
            raise StudyError(f"{self.name}.{key} must be one of {', '.join(map(repr, allowed))}, got {_shown(value)}")
        return str(value)

    def flag(self, key: str, default: bool, what: str) -> bool:
        """Return true or false."""
        self.describe(key, {"type": "boolean", "description": what}, default)
        value = self.get(key, default)
        if not isinstance(value, bool):
            raise StudyError(f"{self.name}.{key} must be true or false, got {_shown(value)}")
        return value

    def count(self, key: str, default: int, least: int, what: str) -> int:
        """Return a whole number of at least `least`."""
        self.describe(key, {"type": "integer", "minimum": least, "description": what}, default)
        value = self.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise StudyError(f"{self.name}.{key} must be a whole number of at least {least}, got {_shown(value)}")
        return value

    def names(self, key: str, what: str, *, required: bool = False) -> tuple[str, ...] | None:
        """Return a list of different column names; None if the key is missing and not required."""
        columns = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
        self.describe(key, {**columns, "minItems": int(required), "description": what})
        if required:
            self.require(key, what)
        value = self.get(key, None)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise StudyError(f"{self.name}.{key} must be a list of column names, got {_shown(value)}")
        repeated = sorted({name for name in value if value.count(name) > 1})
        if repeated:
            raise StudyError(f"{self.name}.{key} lists {', '.join(map(repr, repeated))} more than once")
        return tuple(value)

    def rows(self, key: str, default: Any, what: str, least: int = 1) -> Any:
        """Return a choice of rows, or None if the key is missing and the default is None."""
        numbers = {"type": "array", "minItems": 1, "uniqueItems": True, "items": {"type": "integer", "minimum": 0}}
        choices = [{"type": "integer", "minimum": least}, numbers, {"const": "all"}]
        self.describe(key, {"anyOf": choices, "description": what}, default)
        value = self.get(key, default)
        if value is None or value == "all" or (_is_row(value) and value >= least):
            return value
        if isinstance(value, list) and value and all(_is_row(row) for row in value):
            repeated = sorted({row for row in value if value.count(row) > 1})
            if repeated:
                raise StudyError(f"{self.name}.{key} lists the rows {repeated} more than once")
            return tuple(value)
        raise StudyError(
            f'{self.name}.{key} must be a number of rows of at least {least}, a list of row numbers (from 0) or "all", '
            f"got {_shown(value)}"
        )

    def rest(self) -> dict[str, Any]:
        """Return the keys that were not read yet; the caller then checks them."""
        return {key: value for key, value in self.table.items() if key not in self.asked}

    def finish(self) -> None:
        """Raise StudyError if keys remain that were not read."""
        for key in self.rest():
            raise StudyError(f"[{self.name}] has an unknown key {key!r}; {did_you_mean(key, self.asked)}")


class BlankSection(Section):
    """A section in which every key is missing and none is an error: what its reader asks for describes the file."""

    def refuse_missing(self, key: str, what: str) -> None:
        """Accept that a key is missing."""


def _is_row(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
