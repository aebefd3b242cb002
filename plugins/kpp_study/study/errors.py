"""The exception for an invalid study; the command reports it in one line instead of a traceback."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from kpp.inference import ConvergenceError


class StudyError(ValueError):
    """An error in the study file, its data or the output folder; the message names the key."""


@contextmanager
def blame(where: str) -> Iterator[None]:
    """Convert an error about an argument into a `StudyError` that names the part of the study file, such as "[model]".

    It replaces any ``ValueError``, ``TypeError`` or `kpp.inference.ConvergenceError` of the block.
    """
    try:
        yield
    except StudyError:
        raise
    except (ValueError, TypeError, ConvergenceError) as error:
        raise StudyError(f"{where}: {error}") from error


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return the end of an "unknown ..." message: the nearest known name, or all known names."""
    names = sorted(known)
    near = difflib.get_close_matches(str(name), names, n=3, cutoff=0.5)
    if near:
        return f"did you mean {' or '.join(map(repr, near))}?"
    return f"known are {', '.join(map(repr, names)) or 'none'}"
