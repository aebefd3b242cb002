"""Replications, calibration and sums over rows on Dask: the results of one process, and errors that name the task."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro.infer import HMC

from kpp.calibration import simulation_based_calibration
from kpp.kernels import RBF
from kpp.lazy.schedulers import complete_all
from kpp.runtime.batching import progress_bar
from kpp_models import LandmarkLogistic, LandmarkRidge
from kpp_models.tables.machines import landmark_machines
from kpp_optimization import replicate

da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
distributed = pytest.importorskip("distributed")
import dask

KEY = jax.random.key(0)
RNG = np.random.default_rng(3)
X = RNG.normal(size=(400, 2))
Y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * RNG.normal(size=400)
LABELS = (RNG.uniform(size=400) < 1 / (1 + np.exp(-2 * Y))).astype(float)
TIMES = np.linspace(0.5, 2.0, 4)
FIELDS = {"landmarks": 20, "num_held_out": 50, "progress": False}


def draw(key, number):
    """Numbers that are not the same in single precision, and that use JAX and NumPy."""
    return {"value": jax.random.normal(key, (3,)) / (1.0 + number), "number": np.float64(number) / 3.0}


def replications():
    return replicate(KEY, draw, 5, progress=False)


def model(times, y=None):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(slope * times, 1.0).to_event(1), obs=y)


def calibration():
    options = {"num_datasets": 11, "num_draws": 7, "num_warmup": 5, "thinning": 1, "datasets_per_block": 4}
    kernel = lambda model: HMC(model, num_steps=2)  # noqa: E731  # it travels to workers, as a user's would
    found = simulation_based_calibration(KEY, model, {"times": TIMES}, kernel=kernel, progress=False, **options)
    return found.ranks, found.truth


def landmark_fit(kind, table):
    y = Y if kind is LandmarkRidge else LABELS
    x, target = da.from_array(X, chunks=(90, 1)), da.from_array(y, chunks=70)
    if table == "data frame":
        frame = pd.DataFrame({"a": X[:, 0], "target": y, "b": X[:, 1]})
        x, target = dd.from_pandas(frame, npartitions=3), "target"
    found = kind(RBF(np.array([1.2, 0.9])), (1e-1, 1e-2), **FIELDS).fit(KEY, x, target)
    return found.function.points, found.function.coefficients, found.function.intercept, found.scores


USERS = {
    "replications": replications,
    "calibration": calibration,
    "ridge": lambda: landmark_fit(LandmarkRidge, "array"),
    "ridge of a data frame": lambda: landmark_fit(LandmarkRidge, "data frame"),
    "logistic": lambda: landmark_fit(LandmarkLogistic, "array"),
}


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(landmark_machines, "_BLOCK_ENTRIES", 20 * 16)


def assert_identical(found, known):
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(known), strict=True)
    assert jax.tree.structure(found) == jax.tree.structure(known)
    for one, other in pairs:
        assert np.asarray(one).dtype == np.asarray(other).dtype
        np.testing.assert_array_equal(one, other)


@pytest.mark.nightly
def test_all_schedulers_give_the_bits_of_no_scheduler(tmp_path):
    """One test, so that programs are compiled once. A process of a worker that is killed loses no replication."""
    known = {name: user() for name, user in USERS.items()}  # before there is a client
    with dask.config.set(scheduler="synchronous"):
        for name in USERS.keys() - {"calibration"}:
            assert_identical(USERS[name](), known[name])
    killed = tmp_path / "killed"

    def kill_once(key, number):
        if number == 3 and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return draw(key, number)

    options = {"n_workers": 1, "dashboard_address": ":0"}
    inside = distributed.LocalCluster(**options, threads_per_worker=2, processes=False)
    with inside, distributed.Client(inside):
        for name, user in USERS.items():
            assert_identical(user(), known[name])
    with distributed.LocalCluster(**options, threads_per_worker=1) as cluster, distributed.Client(cluster):
        assert_identical(replicate(KEY, kill_once, 5, progress=False), known["replications"])
    assert killed.exists()


def fail_at_two(key, number):
    if number == 2:
        raise ValueError("no such number")
    return number


def test_an_error_names_its_replication():
    for scheduler in (None, "synchronous"):
        with dask.config.set(scheduler=scheduler), pytest.raises(ValueError, match="no such number") as caught:
            replicate(KEY, fail_at_two, 4, progress=False)
        assert caught.value.__notes__ == ["in replication 2 of 4, counted from 0"]


def test_a_function_that_cannot_travel_is_named():
    lock = threading.Lock()
    with dask.config.set(scheduler="synchronous"), pytest.raises(TypeError, match="each replication cannot be sent"):
        replicate(KEY, lambda key, number: lock, 2, progress=False)


def test_replications_inside_replications_are_made_there():
    def outer(key, number):
        return replicate(key, draw, 2)

    known = replicate(KEY, outer, 2, progress=False)
    with dask.config.set(scheduler="synchronous"):
        assert_identical(replicate(KEY, outer, 2, progress=False), known)


def test_pieces_of_work_show_no_bars_of_their_own():
    def shows(key, number):
        return not progress_bar(3, "inner").disable

    assert replicate(KEY, shows, 2, num_workers=2, progress=False) == [False, False]
    assert replicate(KEY, shows, 2, progress=False) == [True, True]


def poisoned(where):
    x, y = X.copy(), Y.copy()
    if where == "x":
        x[333, 1] = np.nan
    else:
        y[333] = np.inf
    return da.from_array(x, chunks=(90, 2)), da.from_array(y, chunks=90)


@pytest.mark.slow_variants("x-row 333, column 'x1'", "y-`y` .* got inf in row 333")
@pytest.mark.parametrize(("where", "message"), [("x", "row 333, column 'x1'"), ("y", "`y` .* got inf in row 333")])
def test_a_bad_row_is_named_from_any_pass(where, message):
    for held_out in (0, 50):  # the first pass sums or takes rows
        machine = LandmarkRidge(RBF(np.ones(2)), 1e-2, landmarks=X[:20], num_held_out=held_out, progress=False)
        with dask.config.set(scheduler="synchronous"), pytest.raises(ValueError, match=message):
            machine.fit(KEY, *poisoned(where))


def unknown_sizes():
    x = da.from_array(X, chunks=(90, 2))
    return x[x[:, 0] > 0], da.from_array(Y, chunks=90)


def other_columns():
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(y=Y)
    parts = (frame, frame.drop(columns="b"))
    return dd.from_map(lambda part: part, parts, meta=frame.iloc[:0], enforce_metadata=False), "y"


BAD = {
    "chunks of unknown size": (unknown_sizes, "unknown size"),
    "other columns": (other_columns, r"partition 1 lacks \['b'\]"),
    "no rows": (lambda: (da.zeros((0, 2)), da.zeros(0)), "at least one row"),
    "fewer targets": (lambda: (da.from_array(X, chunks=90), da.from_array(Y[:-1], chunks=90)), "`y` shape"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_tables_of_dask_are_refused(case):
    table, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        LandmarkRidge(RBF(np.ones(2)), 1e-2, **FIELDS).fit(KEY, *table())


@pytest.mark.slow
def test_empty_partitions_are_left_out():
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(y=Y)
    parts = (frame[:5], frame[5:5], frame[5:])
    table = dd.from_map(lambda part: part, parts, meta=frame.iloc[:0], enforce_metadata=False)
    machine = LandmarkRidge(RBF(np.ones(2)), 1e-2, **FIELDS)
    found, known = machine.fit(KEY, table, "y"), machine.fit(KEY, X, Y)
    # The same sums in another order.
    np.testing.assert_allclose(found.function(X[:9]), known.function(X[:9]), rtol=1e-9)


def start_cluster(folder: Path) -> tuple[subprocess.Popen, str]:
    """Start a scheduler with one worker in a process that can be killed."""
    script = folder / "cluster.py"
    script.write_text(
        "import time; from distributed import LocalCluster\n"
        "if __name__ == '__main__':\n"
        "    c = LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None)\n"
        "    print(c.scheduler_address, flush=True); time.sleep(300)\n"
    )
    process = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def stop_soon() -> None:
    threading.Timer(3.0, os._exit, (1,)).start()


def wait(key, number):
    import time

    time.sleep(60.0)


@pytest.mark.slow
def test_a_scheduler_that_is_gone_is_an_error(tmp_path):
    process, address = start_cluster(tmp_path)
    with distributed.Client(address, timeout=20) as client:
        client.run_on_scheduler(stop_soon)
        with pytest.raises(RuntimeError, match="the scheduler is gone .* nothing is kept"):
            replicate(KEY, wait, 3, progress=False)
    process.wait(timeout=60)


@pytest.mark.slow
def test_after_an_error_no_other_task_goes_on_unseen(tmp_path):
    both_run = threading.Barrier(2, timeout=60)

    def fail():
        both_run.wait()
        raise OSError("No space left on device")

    def write():
        both_run.wait()
        time.sleep(0.5)
        (tmp_path / "written").touch()

    tasks = [dask.delayed(fail)(), dask.delayed(write)()]
    with dask.config.set(num_workers=2), pytest.raises(OSError, match="No space left"):
        complete_all(tasks, lambda _: None, if_gone="")
    assert (tmp_path / "written").exists()
