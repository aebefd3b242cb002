"""Explanations by two processes of Dask: precision, travel, workers that die, memory; and `kpp explain`."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from concurrent.futures import CancelledError
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from click.testing import CliRunner

import kpp
from kpp.__main__ import main
from kpp.kernels import RBF
from kpp.lazy.schedulers import active_client
from kpp_models import GPRegression
from kpp_study import explain_to_store

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")
from distributed.comm import CommClosedError

NAMES = ["a", "b", "c"]
ROWS = np.random.default_rng(8).normal(size=(40, 3))


def make_function() -> kpp.RKHSFunction:
    rng = np.random.default_rng(5)
    return kpp.RKHSFunction(RBF(lengthscale=jnp.ones(3)), rng.normal(size=(6, 3)), rng.normal(size=6), 0.3)


@pytest.fixture(scope="module")
def fit() -> kpp.Fit:
    x = pd.DataFrame(ROWS[:12], columns=NAMES)
    model = GPRegression(RBF(lengthscale=dist.LogNormal(0.0, 1.0).expand([3])), noise_variance=dist.HalfNormal(1.0))
    inference = kpp.NUTS(num_warmup=5, num_samples=4, num_chains=1, progress=False)
    return model.fit(jax.random.key(0), x, np.sin(ROWS[:12, 0]), inference=inference)


@pytest.fixture
def client():
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as found:
        yield found


@pytest.mark.nightly
def test_two_processes_compute_in_double_precision_what_one_computes(client, fit):
    for predictor, table in ((make_function(), ROWS), (fit, ROWS)):
        options = {"background": ROWS[:5], "covariance": None}
        lazy = kpp.explain(predictor, da.from_array(table, chunks=(10, 3)), **options)
        known = kpp.explain(predictor, table, progress=False, **options)
        assert lazy.values.dtype == np.float64
        # Single precision anywhere would leave errors of 1e-7.
        np.testing.assert_allclose(lazy.values.values, known.values.values, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(lazy.predictions.values, known.predictions.values, rtol=1e-10, atol=1e-12)


class Arriving:
    """A predictor that writes a line whenever it arrives in a process."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return np.sin(np.asarray(x)).sum(axis=1)

    def __setstate__(self, state: dict) -> None:
        self.__dict__.update(state)
        with self.path.open("a") as file:
            file.write(f"{os.getpid()}\n")


@pytest.mark.nightly
def test_a_predictor_travels_to_workers_and_not_with_each_block(client, tmp_path, monkeypatch):
    # The workers cannot import this file, so its classes travel by value.
    monkeypatch.setattr(Arriving, "__module__", "__main__")
    table = da.from_array(ROWS, chunks=(2, 3))
    lazy = kpp.explain(Arriving(tmp_path / "log"), table, explainer="kernel-shap", background=ROWS[:5])
    (tmp_path / "log").unlink()  # the first block is a computation of its own
    lazy.values.compute()
    arrived = (tmp_path / "log").read_text().split()
    assert len(set(arrived)) <= 2
    assert len(arrived) <= 4  # of 19 blocks; most often once for each worker, but Dask may move it again


@pytest.mark.nightly
def test_the_memory_of_a_worker_stays_bounded_for_a_million_rows(client, tmp_path):
    def peak() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def explain(num_rows: int, name: str) -> int:
        table = da.random.default_rng(0).normal(size=(num_rows, 3), chunks=(10_000, 3))
        options = {"rows_per_block": 10_000, "background": ROWS[:5], "show_progress": False, "data_name": "rows"}
        found = explain_to_store(make_function(), table, tmp_path / name, **options)
        assert found.values.shape == (num_rows, 3)
        return max(client.run(peak).values())

    before = explain(40_000, "small.zarr")
    # Values, data and predictions of all rows take 56 bytes per row, 56 MB, of which a worker would hold a half.
    assert explain(1_000_000, "large.zarr") - before < 25e6


@pytest.mark.nightly
def test_a_lazy_explanation_names_a_scheduler_that_is_gone(tmp_path):
    def slowly(block: np.ndarray) -> np.ndarray:
        if block[0, 0] != ROWS[0, 0]:
            time.sleep(60.0)
        return block

    table = da.from_array(ROWS, chunks=(10, 3)).map_blocks(slowly, dtype=float, meta=np.zeros((0, 0)))
    process, address = start_cluster(tmp_path)
    with distributed.Client(address, timeout=20) as client:
        lazy = kpp.explain(make_function(), table, background=ROWS[:5])
        client.run_on_scheduler(stop_soon)
        with pytest.raises((CancelledError, CommClosedError), match="scheduler"):
            lazy.save(tmp_path / "out.zarr")
    process.wait(timeout=60)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["cluster.py"]


@pytest.mark.slow
def test_a_bad_row_on_a_worker_is_named(client):
    rows = ROWS.copy()
    rows[33, 2] = np.nan
    lazy = kpp.explain(make_function(), da.from_array(rows, chunks=(10, 3)), background=ROWS[:5])
    with pytest.raises(ValueError, match="row 33, column 'x2'"):
        lazy.values.compute()


@pytest.mark.nightly
def test_a_worker_that_is_killed_loses_nothing(client, tmp_path):
    killed = tmp_path / "killed"

    def kill_once(block: np.ndarray) -> np.ndarray:
        if block[0, 0] == ROWS[24, 0] and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return block

    table = da.from_array(ROWS, chunks=(4, 3)).map_blocks(kill_once, dtype=float, meta=np.zeros((0, 0)))
    options = {"rows_per_block": 4, "background": ROWS[:5], "show_progress": False, "data_name": "rows"}
    found = explain_to_store(make_function(), table, tmp_path / "a.zarr", **options)
    assert killed.exists()
    known = explain_to_store(make_function(), da.from_array(ROWS), tmp_path / "b.zarr", **options)
    assert found.dataset.compute().identical(known.dataset.compute())


@pytest.mark.slow
def test_a_scheduler_that_is_gone_is_an_error_and_the_job_goes_on_without_it(tmp_path):
    def slowly(block: np.ndarray) -> np.ndarray:
        if distributed.worker.thread_state.__dict__.get("execution_state"):
            time.sleep(0.3 if block[0, 0] == ROWS[0, 0] else 60.0)
        return block

    table = da.from_array(ROWS, chunks=(10, 3)).map_blocks(slowly, dtype=float, meta=np.zeros((0, 0)))
    options = {"rows_per_block": 10, "background": ROWS[:5], "show_progress": False, "data_name": "rows"}
    process, address = start_cluster(tmp_path)
    with distributed.Client(address, timeout=20):
        distributed.default_client().run_on_scheduler(stop_soon)
        with pytest.raises(RuntimeError, match="the scheduler is gone"):
            explain_to_store(make_function(), table, tmp_path / "a.zarr", **options)
    process.wait(timeout=60)
    found = explain_to_store(make_function(), table, tmp_path / "a.zarr", **options)
    known = kpp.explain(make_function(), ROWS, background=ROWS[:5], progress=False)
    np.testing.assert_allclose(found.values.values, known.values.values, rtol=1e-10, atol=1e-12)


def start_cluster(folder: Path) -> tuple[subprocess.Popen, str]:
    """Start a scheduler with one worker in a process that can be killed."""
    code = "import time; from distributed import LocalCluster\nif __name__ == '__main__':\n"
    code += "    c = LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None)\n"
    code += "    print(c.scheduler_address, flush=True); time.sleep(300)\n"
    script = folder / "cluster.py"
    script.write_text(code)
    process = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def stop_soon() -> None:
    """End the process of the scheduler after the first block has had its time."""
    import threading

    threading.Timer(8.0, os._exit, (1,)).start()


@pytest.mark.slow
def test_the_command_goes_on_after_it_was_killed(tmp_path, fit):
    fit.save(tmp_path / "fit.nc")
    rows = np.tile(ROWS, (10, 1))
    pd.DataFrame(rows, columns=NAMES).assign(name="text").to_parquet(tmp_path / "data.parquet")
    command = ["explain", str(tmp_path / "fit.nc"), str(tmp_path / "data.parquet"), "--rows-per-block", "20"]
    command += ["--option", "covariance=null", "--quiet", "--output"]
    path = tmp_path / "out.zarr"
    process = subprocess.Popen([sys.executable, "-m", "kpp", *command, str(path)])
    deadline = time.monotonic() + 120
    while not list((path / "values").glob("*3.0")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    process.kill()
    process.wait()
    for output in (path, tmp_path / "whole.zarr"):
        done = CliRunner().invoke(main, [*command, str(output)], catch_exceptions=False)
        assert done.exit_code == 0, done.output
    found, known = (kpp.Explanation.load(output).dataset.compute() for output in (path, tmp_path / "whole.zarr"))
    assert found.identical(known)
    eager = kpp.explain(fit, pd.DataFrame(rows, columns=NAMES), covariance=None, progress=False)
    np.testing.assert_allclose(found["values"].values, eager.values.values, rtol=1e-10, atol=1e-12)
    changed = CliRunner().invoke(main, [*command, str(path), "--option", 'method="enumeration"'])
    assert changed.exit_code == 2
    assert "differs in `method`" in changed.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.nc", "data.parquet", "--output", "out.zarr"], "missing.nc"),
        (["missing.nc", "data.parquet", "--output", "out.zarr", "--scheduler", "nonsense://x"], "--scheduler"),
    ],
)
def test_the_command_names_what_is_wrong(arguments: list[str], message: str, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["explain", *arguments])
    assert done.exit_code in (1, 2)
    assert message in done.output
    assert list(tmp_path.iterdir()) == []
    assert active_client() is None
