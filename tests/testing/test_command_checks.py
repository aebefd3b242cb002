"""Every check of commands passes on an honest one and catches the violation planted for it."""

from __future__ import annotations

import click
import pytest

from kpp.testing import cases, check_command
from kpp.testing.suite import checks_of

CHECKS = {check.__name__: check for check in checks_of(click.Command("any"))}


def command(function=None, **settings):
    """Return a command whose function has the module of a light one."""
    function = function or (lambda: None)
    function.__module__ = settings.pop("module", "click")
    return click.command("planted", **({"help": "Do nothing."} | settings))(function)


LENIENT = {"ignore_unknown_options": True, "allow_extra_args": True}
PLANTED = {
    "has_a_help_text": lambda: command(help=""),
    "refuses_unknown_options": lambda: command(
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True}
    ),
    "imports_no_jax_before_it_runs": lambda: command(module="kpp.kernels.rbf"),
}


def test_an_honest_command_and_a_group_pass():
    check_command(command())
    group = click.Group("group", help="Hold a command.", commands={"inner": command()})
    for case in cases([group]):
        case()


def test_every_check_has_a_planted_violation():
    assert set(PLANTED) == set(CHECKS)


@pytest.mark.slow_variants("imports_no_jax_before_it_runs")
@pytest.mark.parametrize("name", PLANTED)
def test_planted_violations_are_caught(name):
    with pytest.raises(AssertionError):
        CHECKS[name](PLANTED[name]())


def test_a_command_within_a_group_is_checked():
    group = click.Group("group", help="Hold a command.", commands={"inner": PLANTED["refuses_unknown_options"]()})
    with pytest.raises(AssertionError, match="inner --no-such-option"):
        CHECKS["refuses_unknown_options"](group)
