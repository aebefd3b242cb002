"""`kpp plugins` and `kpp check`."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from kpp import registry
from kpp.__main__ import main

BROKEN = """
import kpp
from kpp.kernels import AbstractKernel

class Broken(AbstractKernel):
    def evaluate(self, x1, x2):
        return x1[0] - x2[0]

    @classmethod
    def examples(cls, rng_key):
        import jax
        yield cls(), jax.random.normal(rng_key, (4, 2))

@kpp.hookimpl
def register_kernels():
    return {"Broken": Broken}
"""


@pytest.fixture
def kpp_command():
    return lambda *arguments: CliRunner().invoke(main, list(arguments))


def test_python_m_kpp_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "kpp", "--help"], capture_output=True, text=True, timeout=60, check=True
    )
    assert "Usage: python -m kpp" in done.stdout and " plugins " in done.stdout


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from click.testing import CliRunner; from kpp.__main__ import main; "
        "result = CliRunner().invoke(main, ['--help']); "
        "heavy = [m for m in ('jax', 'numpyro', 'pandas', 'xarray', 'kpp_study.study.runner') if m in sys.modules]; "
        "print(result.exit_code, heavy, result.output)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith("0 []")
    for command in ("check", "plugins", "run"):
        assert command in done.stdout


def test_version_is_that_of_the_distribution(kpp_command):
    import kpp

    assert kpp_command("--version").output.strip() == f"kpp, version {kpp.__version__}"


def test_run_is_loaded_when_it_is_called(kpp_command):
    result = kpp_command("run", "--help")
    assert result.exit_code == 0
    assert "--output" in result.output


def test_plugins_lists_what_each_offers(kpp_command):
    result = kpp_command("plugins")
    assert result.exit_code == 0
    assert "core  (kpp.builtin, from kpp " in result.output
    assert "    value functions: baseline, causal, " in result.output
    assert "    inferences: Laplace, MAP, MCMC, NUTS, NaturalGradient, SVI" in result.output


def test_plugins_as_json_says_everything(kpp_command):
    records = {record["name"]: record for record in json.loads(kpp_command("plugins", "--json").output)}
    assert records["models"]["offers"]["models"] == sorted(registry.models())
    assert set(records["core"]) == {
        "name", "module", "distribution", "version", "offers", "refused", "error", "disabled"
    }  # fmt: skip


def test_plugins_lists_those_left_out_and_switched_off(kpp_command, install, monkeypatch):
    install("a-kpp", "a", "import a_module_that_is_not_there")
    monkeypatch.setenv("KPP_DISABLE_PLUGINS", "rkhs_shap")
    output = kpp_command("plugins").output
    assert "a [left out]  (a_kpp_plugin, from a-kpp 1.2)\n    ModuleNotFoundError: No module named 'a_module" in output
    assert "rkhs_shap [disabled]" in output


def test_plugins_lists_names_offered_twice(kpp_command, install):
    install("a-kpp", "a", BROKEN.replace('"Broken"', '"RBF"'))
    assert "    refused kernels, offered twice: RBF" in kpp_command("plugins").output


@pytest.mark.parametrize("target", ["Constant", "kernels:Constant"])
def test_check_runs_every_check_of_a_name(kpp_command, target):
    result = kpp_command("check", target)
    assert result.exit_code == 0, result.output
    assert "Constant (kernels)" in result.output
    assert "  passed symmetric\n" in result.output
    assert "FAILED" not in result.output


def test_check_skips_a_converter_whose_library_is_not_installed(kpp_command, install):
    source = """
        import kpp

        class Nothing(kpp.AbstractConverter):
            def gp_posterior(self, model):
                raise TypeError

        @kpp.hookimpl
        def register_converters():
            return {"a_library_that_is_not_there": Nothing}
    """
    install("a-kpp", "a", source)
    result = kpp_command("check", "a")
    assert result.exit_code == 0, result.output
    assert "skipped: the library a_library_that_is_not_there is not installed" in result.output


def test_check_fails_on_a_broken_kernel(kpp_command, install):
    install("a-kpp", "a", BROKEN)
    result = kpp_command("check", "a")
    assert result.exit_code == 1
    assert "  FAILED symmetric\n" in result.output
    assert "k(x, x') = k(x', x)." in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize("target", ["RBG", "kernels:RBG", "kernel:RBF"])
def test_check_of_an_unknown_target_is_an_error_in_one_line(kpp_command, target):
    result = kpp_command("check", target)
    assert result.exit_code == 2
    assert "Error: " in result.output
    assert "Traceback" not in result.output


COMMAND = """
import click, kpp

@click.command("hello")
def hello():
    "Say hello."
    click.echo("hello from a plugin")

@kpp.hookimpl
def register_commands():
    return {names}
"""


def test_a_command_of_a_plugin_is_run_by_its_name(kpp_command, install):
    install("a-kpp", "a", COMMAND.format(names='{"hello": hello}'))
    assert kpp_command("hello").output == "hello from a plugin\n"
    assert "  hello " in kpp_command("--help").output
    assert "    commands: hello\n" in kpp_command("plugins").output


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ('{"check": hello}', "'check', which is a command of kpp itself"),
        ('{"hello": print}', "must map 'hello' to a command of click"),
        ('{"run": hello}', "'run' among the commands is one of kpp's own"),
    ],
)
def test_other_commands_are_left_out_and_those_of_kpp_stay(names, told, kpp_command, install):
    install("a-kpp", "a", COMMAND.format(names=names))
    with pytest.warns(registry.PluginWarning, match=told):
        done = kpp_command("run", "--help")
    assert "Run a study" in done.output
    assert kpp_command("check", "commands:hello").exit_code == 2
