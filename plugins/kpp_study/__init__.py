"""Studies: from a table and a TOML file to a fit, an explanation and a report; `kpp run`, `new`, `report`, `explain`.

Names are listed in `__init__.pyi` and loaded on first use, so that finding this plugin costs nothing.
"""

from __future__ import annotations

import click

import kpp
from kpp.foundation.exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)


@kpp.hookimpl
def register_commands() -> dict[str, click.Command]:
    """Register the commands of this package."""
    from kpp_study.jobs.command import explain
    from kpp_study.scaffold.command import new
    from kpp_study.study.command import predict, report, run, schema

    return {command.name or "": command for command in (explain, new, predict, report, run, schema)}
