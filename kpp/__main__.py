"""The command line: `kpp plugins`, `kpp check`, and the commands that plugins register, such as `kpp run`.

Commands import what they need when they run, so that `kpp --help` does not wait for JAX.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
from typing import TYPE_CHECKING, Any

import click

from kpp import registry
from kpp.foundation.distribution import DISTRIBUTION
from kpp.runtime.signals import ends_by_signals

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kpp.testing import Case


class _Commands(click.Group):
    """The commands of this module, and those of all plugins."""

    def invoke(self, ctx: click.Context) -> Any:
        with ends_by_signals():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*self.commands, *registry.commands()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, cmd_name) or registry.commands().get(cmd_name)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name=DISTRIBUTION, prog_name="kpp")
def main() -> None:
    """Kernel probabilistic programming on NumPyro and JAX."""


@main.command("plugins")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs instead of text for people.")
def list_plugins(as_json: bool) -> None:
    """List the installed plugins: what each offers, and why one was left out."""
    import warnings

    with warnings.catch_warnings():  # the list itself shows what the warnings say
        warnings.simplefilter("ignore", registry.PluginWarning)
        records = registry.plugins()
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(record) for record in records], indent=2))
        return
    for record in records:
        click.echo("\n".join(_describe(record)))


def _describe(record: registry.PluginRecord) -> Iterator[str]:
    """Write one plugin as a headline and one line per kind."""
    state = " [disabled]" if record.disabled else " [left out]" if record.error else ""
    yield f"{record.name}{state}  ({record.module}, from {record.distribution} {record.version})"
    if record.error:
        yield f"    {record.error}"
    for kind, names in record.offers.items():
        if names:
            yield f"    {kind.replace('_', ' ')}: {', '.join(names)}"
    for kind, names in record.refused.items():
        if names:
            yield f"    refused {kind.replace('_', ' ')}, offered twice: {', '.join(names)}"


@main.command("check")
@click.argument("target")
def check(target: str) -> None:
    """Run the conformance suite on TARGET.

    TARGET is a registered name (RBF), a name with its kind before it (kernels:RBF), or the name of a plugin, which
    stands for all that it offers. The exit code is 1 if a check fails.
    """
    import jax

    from kpp import testing

    jax.config.update("jax_enable_x64", True)
    try:
        found = _targets(target)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    failed = 0
    for kind, name in found:
        click.echo(f"{name} ({kind.replace('_', ' ')})")
        if kind == "converters" and importlib.util.find_spec(name) is None:
            click.echo(f"  skipped: the library {name} is not installed")
            continue
        failed += sum(not _passes(case) for case in testing.cases({name: getattr(registry, kind)()[name]}))
    if failed:
        click.echo(f"{failed} failed", err=True)
        raise click.exceptions.Exit(1)


def _targets(target: str) -> list[tuple[str, str]]:
    """Return the objects that a target stands for, as pairs of kind and name."""
    kind, colon, name = target.partition(":")
    if colon:
        registry.check_name(kind, name)
        return [(kind, name)]
    found = [(kind, target) for kind in registry.ALL_KINDS if target in getattr(registry, kind)()]
    if len(found) > 1:
        raise ValueError(f"{target!r} is several things; write {' or '.join(f'{kind}:{target}' for kind, _ in found)}")
    if not found:
        records = [record for record in registry.plugins() if record.name == target]
        found = [(kind, name) for record in records for kind, names in record.offers.items() for name in names]
    if not found:
        known = [name for kind in registry.ALL_KINDS for name in getattr(registry, kind)()]
        raise ValueError(f"nothing called {target!r} is registered; there are {', '.join(known) or 'no parts'}")
    return found


def _passes(case: Case) -> bool:
    """Run one check and print its line."""
    try:
        case()
    except AssertionError as error:
        click.echo(f"  FAILED {case.check.__name__}\n    " + str(error).replace("\n", "\n    "))
        return False
    click.echo(f"  passed {case.check.__name__}")
    return True


if __name__ == "__main__":
    main(prog_name="python -m kpp")
