"""The dialect of a CSV file: its separator, its decimal mark, its encoding, and what it has for missing values."""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import io
import itertools
import json
import lzma
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kpp_study.study.errors import StudyError

REFUSE, DROP = "refuse", "drop"
_SEPARATORS = (",", ";", "\t", "|")
_FIRST_BYTES, _FIRST_ROWS = 2**16, 20
_COMMENTS = ("#", "%", "//")
#: The opener of a packed file, by its ending.
OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_WIDE = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_DECIMAL_COMMA = re.compile(r"\s*[-+]?\d+,\d+\s*")
_NUMBER = re.compile(r"\s*[-+]?(\d+([.,]\d*)?|[.,]\d+)([eE][-+]?\d+)?\s*")


@dataclass(frozen=True)
class TableFormat:
    """The keys of the section [data] about the format of its tables; all but the last are about CSV files."""

    separator: str = ","  # between the columns
    decimal: str = "."  # the decimal mark
    encoding: str = "utf-8"
    missing_values: tuple[str, ...] = ()  # texts that stand for missing values, besides empty fields, "NA" and the like
    missing: str = REFUSE  # or "drop", to leave out the rows in which a value that is used is missing


PLAIN = TableFormat()


def seen_dialect(path: Path) -> TableFormat:
    """Return the dialect that the beginning of a CSV file shows."""
    start = _first_bytes(path)
    encoding = "utf-16" if start.startswith(_WIDE) else "utf-8" if _is_utf8(start) else "latin-1"
    text = _decode(start, encoding)
    separator = ","
    for mark in _SEPARATORS:
        fields = _widths(text, mark)
        if len(set(fields)) == 1 and fields[0] > _widths(text, separator)[0]:
            separator = mark
    entries = [entry for row in _records(text, separator)[1:] for entry in row]
    decimal = "," if separator != "," and any(map(_DECIMAL_COMMA.fullmatch, entries)) else "."
    return TableFormat(separator, decimal, encoding)


def check_dialect(path: Path, given: TableFormat, key: str) -> None:
    """Raise StudyError if a CSV file shows another dialect than the given one, by which it would be misread.

    It is also raised if the file begins with a comment, has no line of names, or has two columns of one name.
    """
    seen, where = seen_dialect(path), f"{key}: {path.name!r}"
    try:
        text = _decode(_first_bytes(path), given.encoding)
    except (UnicodeError, LookupError):
        raise StudyError(f"{where} is not text in {given.encoding!r}{_say(seen, given)}") from None
    names, *rows = _records(text, given.separator) or [[]]
    widths = _widths(text, given.separator)
    if text.startswith(_COMMENTS) and len(set(widths)) > 1:
        raise StudyError(f"{where} begins with a comment, {text[:30]!r}; remove such lines")
    if seen.separator != given.separator and len(names) < _widths(text, seen.separator)[0]:
        raise StudyError(f"{where} has other marks between its columns{_say(seen, given)}")
    if given.decimal == "." and seen.decimal == "," and given.separator == seen.separator:
        raise StudyError(f"{where} has numbers with a decimal comma{_say(seen, given)}")
    if names and all(map(_NUMBER.fullmatch, names)):
        raise StudyError(f"{where} has no line with the names of the columns, it begins with {names[:5]}; add one")
    if rows and widths[1] > len(names):
        raise StudyError(f"{where} has {len(names)} names in its first line and {widths[1]} values in the second")
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise StudyError(f"{where} has more than one column called {', '.join(map(repr, repeated))}")


def dialect_keys(dialect: TableFormat) -> dict[str, str]:
    """Return the keys of [data] about the format of a file that differ from their defaults, as TOML writes them."""
    keys = {name: getattr(dialect, name) for name in ("separator", "decimal", "encoding", "missing")}
    return {name: json.dumps(value) for name, value in keys.items() if value != getattr(PLAIN, name)}


def _say(seen: TableFormat, given: TableFormat) -> str:
    keys = ("separator", "decimal", "encoding")
    other = [f"{key} = {json.dumps(getattr(seen, key))}" for key in keys if getattr(seen, key) != getattr(given, key)]
    return f"; it looks like {', '.join(other)}, which are keys of [data]" if other else ""


def _first_bytes(path: Path) -> bytes:
    with OPENERS.get(path.suffix.lower(), open)(path, "rb") as file:
        return bytes(file.read(_FIRST_BYTES))


def _is_utf8(start: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start)  # the last character may be cut
    except UnicodeError:
        return False
    return True


def _decode(start: bytes, encoding: str) -> str:
    name = "utf-8-sig" if codecs.lookup(encoding).name == "utf-8" else encoding
    return codecs.getincrementaldecoder(name)().decode(start)


def _records(text: str, separator: str) -> list[list[str]]:
    """Return the first rows that are not empty, without the last one of a text that is cut."""
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    found = list(itertools.islice((row for row in rows if row), _FIRST_ROWS))
    return found[:-1] if 1 < len(found) < _FIRST_ROWS and not text.endswith(("\n", "\r")) else found


def _widths(text: str, separator: str) -> list[int]:
    """Return the numbers of fields of the first rows."""
    return [len(row) for row in _records(text, separator)] or [0]
