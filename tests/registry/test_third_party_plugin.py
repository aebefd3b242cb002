"""The example plugin, installed as a user would and used from another process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import json, jax
jax.config.update("jax_enable_x64", True)
import kpp, numpy as np
from kpp import registry
record = next(record for record in registry.plugins() if record.name == "example")
kernel = kpp.serialization.from_spec({"name": "Cosine", "lengthscale": 2.0}, "kernels")
explanation = kpp.explain(lambda x: x[:, 0] * x[:, 1], np.eye(2), explainer="occlusion", reference=[1.0, 0.0])
print(json.dumps({
    "distribution": record.distribution, "version": record.version, "offers": record.offers, "error": record.error,
    "value": float(kernel.evaluate(np.zeros(1), np.ones(1))), "attrs": explanation.attrs["explainer"],
}))
"""


@pytest.fixture(scope="module")
def installed(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example plugin, installed from a copy and without network."""
    source, target = tmp_path_factory.mktemp("copy") / "plugin", tmp_path_factory.mktemp("site")
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", ".*")
    shutil.copytree(root / "examples" / "third_party_plugin", source, ignore=ignored)
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "--quiet"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(target), str(source)]
    subprocess.run(command, check=True, timeout=120)
    return target


def run(installed: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    paths = [str(installed), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_installed_plugin_is_found_and_used(installed):
    done = run(installed, "-c", SCRIPT)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["distribution"], found["version"], found["error"]) == ("kpp-example", "0.1.0", None)
    assert found["offers"] == {"kernels": ["Cosine"], "explainers": ["occlusion"]}
    assert found["value"] == pytest.approx(0.8775825618903728)  # cos(1/2)
    assert found["attrs"] == "occlusion"


def test_installed_plugin_can_be_listed_checked_and_switched_off(installed):
    checked = run(installed, "-m", "kpp.cli", "check", "Cosine")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "Cosine (kernels)" in checked.stdout
    assert "passed positive_semi_definite" in checked.stdout
    listed = run(installed, "-m", "kpp.cli", "plugins", "--json", KPP_DISABLE_PLUGINS="example")
    record = next(record for record in json.loads(listed.stdout) if record["name"] == "example")
    assert record["disabled"]
    assert record["offers"] == {}


def test_plugins_own_tests_pass(installed, root):
    folder = root / "examples" / "third_party_plugin"
    done = run(
        installed, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder / "tests"), "--rootdir", str(folder)
    )
    assert done.returncode == 0, done.stdout + done.stderr
