"""Errors of a command in one line instead of a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click


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
