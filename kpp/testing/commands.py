"""The laws of a command of the command line. The example is the command itself."""

from __future__ import annotations

import subprocess
import sys

import click
from click.testing import CliRunner

from kpp.testing.compare import laws_in


def has_a_help_text(command: click.Command) -> None:
    """A command and each of its commands says by --help what it does, with exit code 0."""
    for words, _ in _all(command):
        shown = CliRunner().invoke(command, [*words, "--help"])
        assert shown.exit_code == 0, f"`{' '.join(words)} --help` ends with exit code {shown.exit_code}: {shown.output}"
    assert command.get_short_help_str(), "the docstring of the command is empty"


def refuses_unknown_options(command: click.Command) -> None:
    """An option that does not exist ends a command with exit code 2, before anything is done."""
    for words, _ in _all(command):
        done = CliRunner().invoke(command, [*words, "--no-such-option"])
        assert done.exit_code == 2, f"`{' '.join(words)} --no-such-option` ends with exit code {done.exit_code}"


def imports_no_jax_before_it_runs(command: click.Command) -> None:
    """The module of a command imports JAX only when the command runs, so that `kpp --help` is quick."""
    modules = sorted({found.callback.__module__ for _, found in _all(command) if found.callback is not None})
    code = f"import sys\nfor name in {modules!r}: __import__(name)\nprint('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{modules} cannot be imported: {done.stderr}"
    assert done.stdout.split() == ["False"], f"{modules} import JAX; import it in the function of the command"


LAWS = laws_in(globals())


def _all(command: click.Command) -> list[tuple[list[str], click.Command]]:
    """Return a command and the commands of a group, each with the words that call it."""
    inner = command.commands.items() if isinstance(command, click.Group) else ()
    return [([], command), *(([name, *words], found) for name, each in inner for words, found in _all(each))]
