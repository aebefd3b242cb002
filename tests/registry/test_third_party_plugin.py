"""A plugin made by `kpp new plugin`, installed as a user would and used from another process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kpp_study.scaffold.plugin import write_plugin

# It installs with pip; the step of .ci/run for a third party does most of it.
pytestmark = pytest.mark.nightly

# All in one process, since most of its time goes to imports.
SCRIPT = """
import json, os, sys
import jax
jax.config.update("jax_enable_x64", True)
import kpp, numpy as np, pytest
from click.testing import CliRunner
from kpp import registry
from kpp.__main__ import main

record = next(record for record in registry.plugins() if record.name == "example")
kernel = kpp.storage.serialization.from_spec({"name": "Cosine", "lengthscale": 2.0}, "kernels")
explanation = kpp.explain(lambda x: x[:, 0] * x[:, 1], np.eye(2), explainer="occlusion", reference=[1.0, 0.0])
checked = CliRunner().invoke(main, ["check", "Cosine"])
folder, result = sys.argv[1:]
options = ["-q", "-p", "no:cacheprovider", "--rootdir", folder]
own_tests = pytest.main([*options, os.path.join(folder, "tests")])
os.environ["KPP_DISABLE_PLUGINS"] = "example"
registry.refresh()
listed = CliRunner().invoke(main, ["plugins", "--json"])
with open(result, "w") as file:
    json.dump({
        "distribution": record.distribution, "version": record.version, "offers": record.offers, "error": record.error,
        "value": float(kernel.evaluate(np.zeros(1), np.ones(1))), "attrs": explanation.attrs["explainer"],
        "check": [checked.exit_code, checked.output], "own_tests": own_tests, "listed": listed.stdout,
    }, file)
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the plugin."""
    return write_plugin("example", tmp_path_factory.mktemp("new") / "plugin")


@pytest.fixture(scope="module")
def installed(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the plugin, installed without network."""
    target = tmp_path_factory.mktemp("site")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "--quiet"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(target), str(source)]
    subprocess.run(command, check=True, timeout=120)
    return target


@pytest.fixture(scope="module")
def found(installed: Path, source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The results of the script, in a process of its own."""
    result = tmp_path_factory.mktemp("result") / "found.json"
    paths = [str(installed), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(source), str(result)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {**json.loads(result.read_text(encoding="utf-8")), "stdout": done.stdout}


@pytest.mark.nightly
def test_installed_plugin_is_found_and_used(found):
    assert (found["distribution"], found["version"], found["error"]) == ("kpp-example", "0.1.0", None)
    assert found["offers"] == {
        "kernels": ["Cosine"],
        "explainers": ["occlusion"],
        "inferences": ["BlackJAXNUTS"],
        "converters": ["scipy"],
        "commands": ["example"],
    }
    assert found["value"] == pytest.approx(0.8775825618903728)  # cos(1/2)
    assert found["attrs"] == "occlusion"


def test_installed_plugin_can_be_listed_checked_and_switched_off(found):
    status, checked = found["check"]
    assert status == 0, checked
    assert "Cosine (kernels)" in checked
    assert "passed positive_semi_definite" in checked
    record = next(record for record in json.loads(found["listed"]) if record["name"] == "example")
    assert record["disabled"]
    assert record["offers"] == {}


def test_plugins_own_tests_pass(found):
    assert found["own_tests"] == 0, found["stdout"]
