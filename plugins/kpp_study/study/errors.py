"""The exception for an invalid study; commands report it and other errors in one line instead of a traceback."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import click


class StudyError(ValueError):
    """An error in the study file, its data or the output folder; the message names the key."""


@contextmanager
def blame(where: str) -> Iterator[None]:
    """Convert an error about an argument into a `StudyError` that names the part of the study file, such as "[model]".

    It replaces any ``ValueError``, ``TypeError`` or `kpp.inference.ConvergenceError` of the block.
    """
    from kpp.inference import ConvergenceError  # here, because commands import this module, and this takes a second

    try:
        yield
    except StudyError:
        raise
    except (ValueError, TypeError, ConvergenceError) as error:
        raise StudyError(f"{where}: {error}") from error


@contextmanager
def in_one_line(command: str, *errors: type[Exception], debug: bool = False, code: int | None = None) -> Iterator[None]:
    """End a command by one line if the block raises one of these errors; with `debug` they stay as they are.

    The exit code is 2 for a TypeError or ValueError, an error in what the user gave, and else 1, unless `code` is one.
    """
    try:
        yield
    except errors as error:
        if debug:
            raise
        click.echo(f"kpp {command}: {' '.join(str(error).split())}", err=True)
        raise click.exceptions.Exit(code or (2 if isinstance(error, (TypeError, ValueError)) else 1)) from error


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return the end of an "unknown ..." message: the nearest known name, or all known names."""
    names = sorted(known)
    near = difflib.get_close_matches(str(name), names, n=3, cutoff=0.5)
    if near:
        return f"did you mean {' or '.join(map(repr, near))}?"
    return f"known are {', '.join(map(repr, names)) or 'none'}"
