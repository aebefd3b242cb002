"""Settings every test runs under (float64, no silent rank promotion, a compile cache, no window); shared fixtures."""

from __future__ import annotations

import gc
import json
import os
import sys
import types
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

# Each process of the tests keeps to one core: two threads of XLA in each of two processes wait for each other, and the
# suite takes a fifth longer.
_WORKER = os.environ.get("PYTEST_XDIST_WORKER", "gw").removeprefix("gw")
if _WORKER and hasattr(os, "sched_setaffinity"):
    _CORES = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {_CORES[int(_WORKER) % len(_CORES)]})
# Before JAX is imported, and in the environment so that the processes some tests start share them.
_CACHE = Path(__file__).resolve().parents[1] / ".jax_cache"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
os.environ["MPLBACKEND"] = "Agg"
# Two test processes on two cores, each with two threads of OpenMP (scikit-learn), spend most of their time waiting.
os.environ.setdefault("OMP_NUM_THREADS", "1")
if os.environ.get("KPP_QUICK_COMPILER"):  # what compiles fastest, however slow the programs are
    _flags = ["--xla_backend_optimization_level=0", "--xla_cpu_parallel_codegen_split_count=1"]
    if version("jaxlib").startswith("0.10."):  # later ones know no such flag, and stop at it
        _flags.append("--xla_cpu_use_fusion_emitters=false")
    os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *_flags])

import jax
import numpy as np
import pandas as pd
import pytest

import kpp
from kpp import registry
from kpp.runtime.programs import release_programs

pytest_plugins = ["costs"]

# Said again here in case a pytest plugin imported JAX earlier.
jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")


def pytest_collection_finish() -> None:
    """Collect garbage rarely: JAX keeps very many objects, and each collection looks at all of them."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 1000)


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what is marked slow
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the variants that `slow_variants` and `nightly_variants` name, and as slow whatever is nightly."""
    unknown = {}
    for item in items:
        for kind in ("slow", "nightly"):
            for marker in item.iter_markers(f"{kind}_variants"):
                test = item.nodeid.partition("[")[0]
                unknown.setdefault((test, kind), set(marker.args)).discard(item.callspec.id)
                if item.callspec.id in marker.args:
                    item.add_marker(kind)
        if item.get_closest_marker("nightly"):
            item.add_marker("slow")
    missing = {test: ids for test, ids in unknown.items() if ids}
    if missing and not any("::" in argument for argument in config.args):
        raise pytest.UsageError(f"a mark of variants names some that do not exist: {missing}")


def _generators(module: types.ModuleType) -> dict[str, np.random.Generator]:
    return {name: value for name, value in vars(module).items() if isinstance(value, np.random.Generator)}


@pytest.fixture(autouse=True, scope="module")
def _states_after_import(request: pytest.FixtureRequest) -> dict[str, dict[str, object]]:
    return {name: generator.bit_generator.state for name, generator in _generators(request.module).items()}


@pytest.fixture(autouse=True)
def _same_random_numbers(request: pytest.FixtureRequest, _states_after_import: dict[str, dict[str, object]]) -> None:
    """Start each test with the random numbers that it gets alone, whichever tests of its file ran before it."""
    for name, generator in _generators(request.module).items():
        generator.bit_generator.state = _states_after_import[name]


@pytest.fixture(autouse=True)
def _forget_compiled_programs() -> Iterator[None]:
    """Release all compiled programs once there are very many; tests that call parts of kpp directly need it too."""
    yield
    release_programs()


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, object]]]:
    """A list that grows by an entry with every program that is compiled."""
    found: list[dict[str, object]] = []
    # A long process releases its programs once in a while, not in the middle of this test.
    monkeypatch.setattr("kpp.runtime.programs._compiled", -(10**6))

    def listen(event: str, _: float, **details: object) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            found.append(details)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield found
    jax.monitoring.unregister_event_duration_listener(listen)


@pytest.fixture
def register(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """`register(kind, name, cls)` registers a class through a plugin made for the test."""

    def plant(kind: str, name: str, cls: type) -> None:
        def hook() -> dict[str, type]:
            return {name: cls}

        module = types.ModuleType(f"planted_{kind}")
        setattr(module, f"register_{kind}", kpp.hookimpl(specname=f"register_{kind}")(hook))
        monkeypatch.setitem(sys.modules, module.__name__, module)
        info = tmp_path / f"{module.__name__}-1.0.dist-info"
        info.mkdir()
        metadata = f"Metadata-Version: 2.1\nName: {module.__name__}\nVersion: 1.0\n"
        (info / "METADATA").write_text(metadata, encoding="utf-8")
        (info / "entry_points.txt").write_text(f"[kpp]\n{module.__name__} = {module.__name__}\n", encoding="utf-8")
        monkeypatch.syspath_prepend(str(tmp_path))
        registry.refresh()

    yield plant
    registry.refresh()


@pytest.fixture(scope="session")
def root() -> Path:
    """The folder that holds pyproject.toml."""
    return Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def tolerance() -> Callable[..., dict[str, float]]:
    """`rtol` and `atol` for a result of some dtype after a well-conditioned computation.

    `tolerance(dtype, factor)` allows `factor` times 1e-10 in float64 and 1e-4 in float32: some thousand roundings.
    """

    def tolerances(dtype: object = np.float64, factor: float = 1.0) -> dict[str, float]:
        unit = {np.dtype(np.float64): 1e-10, np.dtype(np.float32): 1e-4}[np.dtype(dtype)]
        return {"rtol": factor * unit, "atol": factor * unit}

    return tolerances


@pytest.fixture(scope="session")
def regression_data() -> tuple[np.ndarray, np.ndarray]:
    """20 points with 2 features, a constant third one, one row twice, and noisy targets."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(20, 2)), np.full((20, 1), 3.0)], axis=1)
    x[7] = x[3]
    return x, np.sin(2 * x[:, 0]) + 0.5 * x[:, 1] + 0.2 * rng.normal(size=20) + 1.0


@pytest.fixture(scope="session")
def classification_data() -> tuple[np.ndarray, np.ndarray]:
    """20 points with 2 features, one row twice with both labels, and labels that overlap."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(20, 2))
    y = (x[:, 0] + 0.8 * rng.normal(size=20) > 0).astype(float)
    x[7], y[3], y[7] = x[3], 0.0, 1.0
    return x, y


@pytest.fixture(scope="session")
def derivative() -> Callable[..., float]:
    """The derivative of a function of one number by central differences of fourth order."""

    def differentiate(f: Callable[[float], float], at: float, step: float = 1e-4) -> float:
        outer = (float(f(at + 2 * step)) - float(f(at - 2 * step))) / (4 * step)
        inner = (float(f(at + step)) - float(f(at - step))) / (2 * step)
        return (4 * inner - outer) / 3

    return differentiate


class HostileStudy(NamedTuple):
    """A study whose names, levels and title are HTML, scripts and other text that a page may show wrongly.

    Attributes:
        table: The table. The target is the last column, and no two rows have the same area.
        title: The title of the study, two of the names.
        names: The names of the features and of the target that are hostile.
        levels: The levels of the column "level".
        text: The study as TOML, for the table in "table.csv".
    """

    table: pd.DataFrame
    title: str
    names: tuple[str, ...]
    levels: tuple[str, ...]
    text: str


@pytest.fixture(scope="session")
def hostile_study() -> HostileStudy:
    script = "<script>window.hacked = 1</script>"
    image = "\"><img src=x onerror='window.hacked = 1'>"
    target = "</title></style><svg onload='window.hacked = 1'>"
    formula, two_lines = r"$\frac{a}{0}$ & {{ 7 * 7 }}", "first line\nsecond line"
    right_to_left = "\u05e9\u05dc\u05d5\u05dd \u202e\u0627\u0644\u0639\u0631\u0628\u064a\u0629"
    long = "long " * 999 + "name!"
    features = (script, image, formula, two_lines, right_to_left, long)
    levels = (
        "</td></script><script>window.hacked = 1</script>",
        "' onclick='window.hacked = 1",
        "a & b",
        "$x$",
        "a\tb",
    )
    rng = np.random.default_rng(0)
    table = pd.DataFrame({name: rng.normal(size=10) for name in features})
    table["area"] = rng.permutation(np.linspace(20.0, 130.0, 10))
    table["level"] = np.resize(levels, 10)
    table[target] = 100.0 + 3.0 * table["area"] + rng.normal(size=10)
    text = f"""
[study]
title = {json.dumps(script + image)}
[data]
path = "table.csv"
target = {json.dumps(target)}
[model]
name = "GPRegression"
noise_variance = 0.1
[model.kernel]
name = "Product"
[[model.kernel.kernels]]
name = "RBF"
on = {json.dumps(["area", *features])}
lengthscale = 3.0
[[model.kernel.kernels]]
name = "Categorical"
on = ["level"]
[inference]
name = "MAP"
[explainer]
instances = "all"
background = 4
"""
    return HostileStudy(table, script + image, (*features, target), levels, text)


@pytest.fixture(scope="session")
def hostile_results(hostile_study: HostileStudy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the results of the hostile study, the report among them."""
    from kpp_study import parse_study, run_study

    folder = tmp_path_factory.mktemp("hostile")
    hostile_study.table.to_csv(folder / "table.csv", index=False)
    return run_study(parse_study(hostile_study.text, folder=folder), folder / "results", progress=False)
