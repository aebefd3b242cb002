"""Explanations of Dask arrays and data frames are those of the rows in memory; stores; jobs that are interrupted."""

from __future__ import annotations

import asyncio
import errno
import itertools
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
import xarray as xr

import kpp
from kpp.explanations import predictors
from kpp.kernels import RBF
from kpp_models import GPRegression
from kpp_study import explain_to_store

da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
zarr = pytest.importorskip("zarr")
import dask

NAMES = ["a", "b", "c"]
ROWS = np.random.default_rng(3).normal(size=(23, 3))
BACKGROUND = ROWS[:4]


def make_function() -> kpp.RKHSFunction:
    rng = np.random.default_rng(5)
    return kpp.RKHSFunction(RBF(lengthscale=jnp.ones(3)), rng.normal(size=(6, 3)), rng.normal(size=6), 0.3)


@pytest.fixture(autouse=True)
def _one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def frame(rows: np.ndarray = ROWS) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=NAMES)


@pytest.mark.slow
def test_draws_of_a_posterior_are_independent_between_blocks_and_say_so():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 3))
    kernel = RBF(lengthscale=dist.LogNormal(0.0, 1.0).expand([3]))
    model = GPRegression(kernel, noise_variance=dist.HalfNormal(1.0))
    fit = model.fit(
        jax.random.key(0), x, x[:, 0] + rng.normal(size=30), inference=kpp.MAP(progress=False), num_prior_samples=0
    )
    lazy = kpp.explain(fit, da.from_array(np.tile(x[:5], (2, 1)), chunks=(5, 3)))
    first, second = lazy.values.values[0, :, 0, 0], lazy.values.values[0, :, 5, 0]  # of the same point
    # The correlation of 200 independent pairs has standard error 0.07; with one key for both blocks it would be 1.
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.3
    assert lazy.attrs["instances_drawn"] == "independently"
    assert float(lazy.additivity_error().max()) < 1e-10


def of_parts(*parts: pd.DataFrame) -> object:
    return dd.from_map(lambda part: part, parts, meta=frame(ROWS[:0]), enforce_metadata=False)


def uneven() -> object:
    return of_parts(frame(ROWS[:5]), frame(ROWS[5:5]), frame(ROWS[5:19]), frame(ROWS[19:]))


def broken_frame() -> object:
    return of_parts(frame(), frame()[["a", "b"]].assign(z=1.0))


TABLES = {
    "array": lambda: da.from_array(ROWS, chunks=(10, 3)),
    "chunks of features": lambda: da.from_array(ROWS, chunks=(7, 2)),
    "empty chunk": lambda: da.concatenate([da.from_array(ROWS[:9]), da.zeros((0, 3)), da.from_array(ROWS[9:])]),
    "data frame": lambda: dd.from_pandas(frame(), npartitions=3),
    "empty partition": uneven,
    "xarray": lambda: xr.DataArray(ROWS, dims=("row", "column")).chunk(row=8),
}


@pytest.mark.slow_variants("array", "chunks of features", "data frame", "empty chunk", "empty partition", "xarray")
@pytest.mark.parametrize("table", TABLES)
def test_the_values_are_those_of_the_rows_in_memory(table):
    lazy = kpp.explain(make_function(), TABLES[table](), background=BACKGROUND)
    known = kpp.explain(make_function(), ROWS, background=BACKGROUND, progress=False)
    assert lazy.values.chunks is not None
    for name in ("values", "base_values", "predictions", "data"):
        assert lazy.dataset[name].dtype == np.float64
        # The same computation in other blocks: equal up to rounding.
        np.testing.assert_allclose(lazy.dataset[name].values, known.dataset[name].values, rtol=1e-12, atol=1e-13)
    assert lazy.attrs["method"] == known.attrs["method"]


@pytest.mark.slow
def test_only_the_first_block_is_computed_at_once_and_the_predictor_is_read_once(monkeypatch):
    seen, read_function, functions = [], predictors.read_function, []
    monkeypatch.setattr(predictors, "read_function", lambda *given: functions.append(given) or read_function(*given))

    def read(block):
        seen.append(len(block))
        return block

    rows = da.from_array(ROWS, chunks=(10, 3)).map_blocks(read, dtype=float, meta=np.zeros((0, 0)))
    lazy = kpp.explain(make_function(), rows, background=BACKGROUND)
    assert seen == [10]
    lazy[:10].values.compute()
    assert seen == [10]
    lazy.values.compute()
    assert sorted(seen) == [3, 10, 10]
    assert len(functions) == 1


@pytest.mark.slow
def test_blocks_have_keys_of_their_own():
    key, options = jax.random.key(4), {"method": "permutation", "num_coalitions": 8, "background": BACKGROUND}
    lazy = kpp.explain(make_function(), da.from_array(ROWS[:12], chunks=(6, 3)), rng_key=key, **options)
    for number in range(2):
        part, own = ROWS[6 * number :][:6], jax.random.fold_in(key, number)
        known = kpp.explain(make_function(), part, rng_key=own, progress=False, **options)
        np.testing.assert_allclose(lazy.values[6 * number :][:6], known.values, rtol=1e-12, atol=1e-13)


def unknown_sizes() -> object:
    rows = da.from_array(ROWS, chunks=(10, 3))
    return rows[rows[:, 0] > 0]


REFUSED = {
    "chunks of unknown size": (unknown_sizes, "unknown size"),
    "other columns": (broken_frame, r"partition 1 lacks \['c'\] and has \['z'\]"),
    "no rows": (lambda: da.zeros((0, 3)), "at least one row"),
    "no rows in a frame": (lambda: dd.from_pandas(frame(ROWS[:0]), npartitions=1), "at least one row"),
    "a vector": (lambda: da.zeros(5), r"shape \(n, d\)"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_tables_are_refused_at_once(case):
    table, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        kpp.explain(make_function(), table(), background=BACKGROUND)


@pytest.mark.parametrize("kind", ["array", "data frame"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_bad_row_is_named(kind, value):
    rows = ROWS.copy()
    rows[17, 1] = value
    table = da.from_array(rows, chunks=(10, 3)) if kind == "array" else dd.from_pandas(frame(rows), npartitions=3)
    lazy = kpp.explain(make_function(), table, background=BACKGROUND)
    column = "x1" if kind == "array" else "b"
    with pytest.raises(ValueError, match=f"row 17, column '{column}'"):
        lazy.values.compute()


@pytest.mark.slow
def test_a_store_holds_the_explanation_and_is_read_lazily(tmp_path):
    lazy = kpp.explain(make_function(), da.from_array(ROWS, chunks=(10, 3)), background=BACKGROUND)
    path = tmp_path / "out.zarr"
    lazy.save(path)
    loaded = kpp.Explanation.load(path)
    assert loaded.values.chunks is not None
    assert loaded.attrs == lazy.attrs
    xr.testing.assert_equal(loaded.dataset.compute(), lazy.dataset.compute())
    loaded.save(path)  # over the store that it is read from
    xr.testing.assert_equal(kpp.Explanation.load(path).dataset.compute(), lazy.dataset.compute())
    assert [file.name for file in tmp_path.iterdir()] == ["out.zarr"]


@pytest.mark.slow
def test_plots_of_a_store_show_a_sample(tmp_path, monkeypatch):
    monkeypatch.setattr("kpp.explanations.parts.plotting._SHOWN", 7)
    lazy = kpp.explain(make_function(), da.from_array(ROWS, chunks=(10, 3)), background=BACKGROUND)
    assert lazy.plot.beeswarm().get_title() == "7 of 23 instances, evenly spaced"
    heights = sorted(bar.get_width() for bar in lazy.plot.bar().patches)
    np.testing.assert_allclose(heights, np.sort(np.abs(lazy.values.values).mean(axis=0)))
    lazy.plot.waterfall(20)


def test_a_folder_that_is_no_store_is_not_replaced(tmp_path):
    (tmp_path / "mine.zarr").mkdir()
    (tmp_path / "mine.zarr" / "letter.txt").write_text("dear")
    explanation = kpp.explain(make_function(), ROWS, background=BACKGROUND, progress=False)
    with pytest.raises(FileExistsError, match="not a Zarr store"):
        explanation.save(tmp_path / "mine.zarr")
    assert (tmp_path / "mine.zarr" / "letter.txt").read_text() == "dear"


def run_job(path: Path, **changes) -> kpp.Explanation:
    job = {"predictor": make_function(), "x": da.from_array(ROWS), "rows_per_block": 5, "background": BACKGROUND}
    job |= changes
    return explain_to_store(job.pop("predictor"), job.pop("x"), path, show_progress=False, **job)


@pytest.fixture
def full_disk(monkeypatch):
    """A function that makes the disk full after some files, and one that empties it."""
    original = zarr.storage.LocalStore.set

    def fill(count: int) -> None:
        left = [count]

        async def write(self, key, value):
            left[0] -= 1
            if left[0] < 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            await original(self, key, value)

        monkeypatch.setattr(zarr.storage.LocalStore, "set", write)

    return fill, lambda: monkeypatch.setattr(zarr.storage.LocalStore, "set", original)


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """The store of a job that was not interrupted."""
    path = tmp_path_factory.mktemp("job") / "b.zarr"
    with dask.config.set(scheduler="synchronous"):
        run_job(path)
    return path


@pytest.mark.slow_variants("3", "40", "45", "48")
@pytest.mark.parametrize("files", [3, 40, 45, 48])
def test_an_interrupted_job_goes_on_and_equals_an_uninterrupted_one(files, tmp_path, full_disk, job):
    fill, empty = full_disk
    fill(files)
    with pytest.raises(OSError, match="No space left"):
        run_job(tmp_path / "a.zarr")
    if (tmp_path / "a.zarr").exists():
        with pytest.raises(ValueError, match=r"not complete: \d of 5 blocks"):
            kpp.Explanation.load(tmp_path / "a.zarr")
    empty()
    found, known = run_job(tmp_path / "a.zarr"), kpp.Explanation.load(job)
    assert found.dataset.compute().identical(known.dataset.compute())


@pytest.mark.parametrize("files", [3, 12])
def test_a_full_disk_leaves_the_store_that_is_there(files, tmp_path, full_disk):
    lazy = kpp.explain(make_function(), da.from_array(ROWS, chunks=(10, 3)), background=BACKGROUND)
    path = tmp_path / "out.zarr"
    lazy.save(path)
    fill, empty = full_disk
    fill(files)
    with pytest.raises(OSError, match="No space left"):
        lazy[:20].save(path)
    empty()
    assert [file.name for file in tmp_path.iterdir()] == ["out.zarr"]
    xr.testing.assert_equal(kpp.Explanation.load(path).dataset.compute(), lazy.dataset.compute())


@pytest.mark.slow
def test_nothing_is_written_after_an_error(tmp_path, monkeypatch):
    original, calls = zarr.storage.LocalStore.set, itertools.count()

    async def write(self, key, value):  # every second one fails at once, and the others are slow
        if next(calls) % 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        await asyncio.sleep(0.3)
        await original(self, key, value)

    monkeypatch.setattr(zarr.storage.LocalStore, "set", write)
    with pytest.raises(OSError, match="No space left"):
        kpp.explain(make_function(), ROWS[:3], background=BACKGROUND).save(tmp_path / "out.zarr")
    time.sleep(0.5)  # a write that nobody waits for would have ended by now
    assert list(tmp_path.iterdir()) == []


def test_finished_blocks_are_not_computed_again(job, monkeypatch):
    def refuse(*_: object) -> None:
        raise AssertionError("a block was computed again")

    monkeypatch.setattr("kpp.lazy.block_task.BlockTask.explain", refuse)
    run_job(job)


CHANGES = {
    "predictor": lambda: {"predictor": other()},
    "x": lambda: {"x": da.from_array(ROWS + 1.0)},
    "background": lambda: {"background": BACKGROUND + 1.0},
    "method": lambda: {"method": "enumeration"},
    "rows_per_block": lambda: {"rows_per_block": 6},
    "rng_key": lambda: {"rng_key": jax.random.key(1)},
}


def other() -> kpp.RKHSFunction:
    return kpp.RKHSFunction(RBF(lengthscale=jnp.ones(3)), ROWS[:6], jnp.ones(6), 0.0)


@pytest.mark.parametrize("name", CHANGES)
def test_another_job_is_refused_by_name(name, job):
    with pytest.raises(ValueError, match=f"differs in `{name}`"):
        run_job(job, **CHANGES[name]())


def test_a_store_records_its_job(job):
    recorded = json.loads(zarr.open_group(job, mode="r").attrs["kpp_job"])
    assert recorded["rows_per_block"] == "5"
    assert recorded["precision"] == "float64"
