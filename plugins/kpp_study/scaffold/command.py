"""`kpp new`: the command line of new studies and plugins."""

from __future__ import annotations

import functools
import shlex
import sys
from pathlib import Path

import click
import numpy as np

from kpp_study.study.errors import StudyError, in_one_line

_output = functools.partial(click.option, "--output", "-o", type=click.Path(path_type=Path))
_INFERENCE = """quick (the default: Laplace's approximation, or NaturalGradient for more than 1000 rows with labels), or
full (NUTS)."""

# By inference, from examples/benchmarks/study_times.py; a second run compiles nothing and takes less time.
_EXACT = {100: 36, 400: 57, 1000: 146}  # the seconds of quick runs by their rows, up to those with inducing points
_STEPS = ", ".join(f"{seconds} s with {rows}" for rows, seconds in _EXACT.items())
_TIMES = {
    "quick": f"{_STEPS} rows, and 88 s with 5000, which have inducing points",
    "full": "168 s with 400 rows",
}


@click.group("new")
def new() -> None:
    """Write a study file or a plugin to begin with."""


@new.command("study")
@click.argument("data", required=False)
@click.option("--target", help="The column to predict.")
@click.option("--task", help="regression or classification; by default what the target suggests.")
@click.option("--features", help='The columns to predict from, such as "a,b,c"; by default all that can be used.')
@click.option("--inference", help=_INFERENCE)
@_output(default=Path("study.toml"), show_default=True, help="The study file to write.")
@click.option("--yes", "-y", is_flag=True, help="Ask nothing: take the defaults of all that is not given.")
@click.option("--overwrite", is_flag=True, help="Replace an existing study file.")
def study(output: Path, yes: bool, overwrite: bool, **answers: str | None) -> None:
    """Write a study file with comments for a table.

    DATA is a CSV or Parquet file. In a terminal, the command asks for what is not given. The file runs unchanged by
    `kpp run`; columns that cannot be used are left out, and a comment says why.
    """
    from kpp_study.scaffold.new_study import choose_study, write_study
    from kpp_study.study.dialect import dialect_keys

    with in_one_line("new study", StudyError):
        if output.exists() and not overwrite:
            raise StudyError(f"--output: {str(output)!r} exists; add --overwrite to replace it")
        choices = choose_study(ask=not yes and is_terminal(), **answers)
        write_study(choices, output)
    click.echo(f"Wrote {output}: {choices.task} of {choices.target!r} on {len(choices.features)} features.")
    for key, value in dialect_keys(choices.dialect).items():
        click.echo(f"The table shows {key} = {value}, which the file says.")
    for column in choices.left_out:
        click.echo(f"Left out: {column.name!r} {column.reason}")
    time = f"First runs on two cores took {_TIMES[choices.inference]}."
    if choices.inference == "quick" and choices.num_rows <= max(_EXACT):
        expected = np.interp(choices.num_rows, list(_EXACT), list(_EXACT.values()))
        time += f" By these times this table of {choices.num_rows} rows takes about {expected:.0f} s."
    click.echo(time)
    click.echo(f"Next: kpp run {shlex.quote(str(output))}")


@new.command("plugin")
@click.argument("name")
@_output(help="The folder to write, new or empty; by default kpp-NAME.")
def plugin(name: str, output: Path | None) -> None:
    """Write a plugin with examples of its classes and their tests.

    For the NAME waves, the distribution is kpp-waves and the package kpp_waves.
    """
    from kpp_study.scaffold.plugin import write_plugin

    with in_one_line("new plugin", OSError, ValueError, code=2):
        folder = write_plugin(name, output)
    click.echo(f"Wrote the plugin kpp-{name.replace('_', '-')} to {folder}")
    click.echo(f"Next: cd {shlex.quote(str(folder))} && pip install -e '.[test]' && pytest")


def is_terminal() -> bool:
    """Return whether somebody can answer questions."""
    return sys.stdin.isatty()
