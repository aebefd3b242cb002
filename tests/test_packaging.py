"""What is shipped, and what an import costs and touches."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

import kpp
from kpp.foundation.distribution import DISTRIBUTION, extra

ROOT = Path(__file__).parents[1]

PACKAGES = (
    "kpp",
    "kpp_models",
    "kpp_areal",
    "kpp_converters",
    "kpp_gpec",
    "kpp_optimization",
    "kpp_pref_shap",
    "kpp_rkhs_shap",
    "kpp_structures",
    "kpp_study",
    "kpp_surrogates",
)
HEAVY = ("arviz", "shap", "sklearn", "matplotlib", "networkx", "xarray", "optax", "pandas")


# One process for all that an import and a compile cache do, since most of its time goes to imports.
SCRIPT = f"""
import importlib, json, pkgutil, sys
import jax, jax.numpy as jnp
before = dict(jax.config.values)
import kpp
with_kpp = [name for name in {HEAVY!r} if name in sys.modules]
import kpp.kernels, kpp.priors
with_kernels = [name for name in {HEAVY[:4]!r} if name in sys.modules]
for package in map(importlib.import_module, {PACKAGES!r}):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
changed = [name for name, value in jax.config.values.items() if before[name] != value]
jax.jit(lambda x: x + 1)(jnp.ones(3))            # compiled before: must not fix "no cache" for good
path = kpp.enable_compile_cache(sys.argv[1])
jax.jit(lambda x: jnp.sin(x) @ x)(jnp.ones(7)).block_until_ready()
print(json.dumps(dict(
    with_kpp=with_kpp, with_kernels=with_kernels, changed=changed, cached=len(list(path.iterdir())),
)))
"""


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the script finds in a fresh interpreter outside the checkout."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    command = [sys.executable, "-P", "-c", SCRIPT, str(tmp_path_factory.mktemp("new") / "cache")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def built(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist and the wheel made from that sdist."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(root)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_the_wheel_holds_every_module_and_nothing_else(built: Path, root: Path):
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        shipped = {name for name in wheel.namelist() if ".dist-info/" not in name}
    folders = [root / "kpp", root / "models" / "kpp_models", *(root / "plugins").glob("kpp_*")]
    on_disk = {
        str(path.relative_to(folder.parent))
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert shipped == on_disk
    assert {f"{package}/py.typed" for package in PACKAGES} <= shipped


def test_the_wheel_registers_the_plugins_and_the_command(built: Path):
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        (path,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
        entry_points = wheel.read(path).decode()
        licensed = [name for name in wheel.namelist() if name.endswith("licenses/LICENSE")]
    for line in (
        "kpp = kpp.__main__:main",
        "core = kpp.builtin",
        "areal = kpp_areal",
        "converters = kpp_converters",
        "gpec = kpp_gpec",
        "models = kpp_models",
        "optimization = kpp_optimization",
        "pref_shap = kpp_pref_shap",
        "rkhs_shap = kpp_rkhs_shap",
        "structures = kpp_structures",
        "study = kpp_study",
        "surrogates = kpp_surrogates",
    ):
        assert line in entry_points
    assert licensed


def test_the_sdist_holds_the_packages_and_no_tests(built: Path):
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {name.partition("/")[0] for name in names} == {
        *(
            "kpp",
            "models",
            "plugins",
            "docs",
            "examples",
            "CHANGELOG.md",
            "CITATION.cff",
            "LICENSE",
            "PKG-INFO",
            "README.md",
            "hatch_build.py",
            "pyproject.toml",
            ".gitignore",
        ),
    }


def test_importing_kpp_loads_nothing_heavy(fresh):
    assert fresh["with_kpp"] == []


def test_kernels_and_priors_load_no_plotting_and_no_statistics(fresh):
    assert fresh["with_kernels"] == []


def test_importing_changes_no_setting_of_jax(fresh):
    assert fresh["changed"] == []


@pytest.mark.parametrize("name", sorted({*kpp.__all__, "__version__"}))
def test_every_lazy_name_is_there(name: str):
    assert getattr(kpp, name) is not None
    assert name in {*dir(kpp), "__version__"}


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="No kpp attribute kernel"):
        _ = kpp.kernel


def test_the_name_under_which_kpp_is_installed_stands_in_one_place_of_the_code():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == DISTRIBUTION
    assert extra("dask") == f"pip install '{DISTRIBUTION}[dask]'"
    assert kpp.__version__ == importlib.metadata.version(DISTRIBUTION)
    files = [path for part in ("kpp", "models", "plugins") for path in (ROOT / part).rglob("*.py")]
    told = ("pip install 'kpp[", 'version("kpp")', 'distribution("kpp")')
    assert not [path for path in files if any(text in path.read_text(encoding="utf-8") for text in told)]


def test_the_compile_cache_is_filled_where_it_is_told(fresh):
    assert fresh["cached"] > 0


def test_the_compile_cache_is_in_the_users_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    from kpp.runtime.cache import default_cache_directory

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache_directory() == tmp_path / "kpp" / "jax"


def test_a_file_is_no_compile_cache(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="`directory` must be a folder"):
        kpp.enable_compile_cache(tmp_path / "file")
