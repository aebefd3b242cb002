"""Two runs of `kpp explain` that begin at the same time share one store, and neither takes the other's blocks away."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import kpp
from kpp.kernels import RBF
from kpp_study import explain_to_store
from kpp_study.jobs.store import JobStore

da = pytest.importorskip("dask.array")
pytest.importorskip("zarr")

ROWS = np.random.default_rng(3).normal(size=(12, 2))
FUNCTION = kpp.RKHSFunction(RBF(1.0), ROWS[:4], np.ones(4))


def run(path: Path, rows_per_block: int = 3) -> xr.Dataset:
    rows = da.from_array(ROWS)
    options = {"rows_per_block": rows_per_block, "background": ROWS[:4], "show_progress": False}
    return explain_to_store(FUNCTION, rows, path, **options).dataset.compute()


def let_another_begin_first(monkeypatch, path: Path, rows_per_block: int) -> None:
    """Let the first run look for a store before another run has made one, and write only after it."""
    find = JobStore.find

    def find_nothing_yet(folder, job):
        monkeypatch.setattr(JobStore, "find", find)
        run(path, rows_per_block)

    monkeypatch.setattr(JobStore, "find", find_nothing_yet)


def test_two_jobs_that_begin_together_keep_each_others_blocks(tmp_path, monkeypatch):
    known, path, written = run(tmp_path / "alone.zarr"), tmp_path / "shared.zarr", []
    let_another_begin_first(monkeypatch, path, 3)
    write = JobStore.write
    monkeypatch.setattr(JobStore, "write", lambda store, *block: (written.append(block[1]), write(store, *block)))
    assert run(path).identical(known)
    assert sorted(written) == [0, 0, 1, 2, 3]  # each computed its first block; the other ones were there already
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".")] == []


@pytest.mark.slow
def test_two_jobs_that_differ_do_not_share_a_store(tmp_path, monkeypatch):
    path = tmp_path / "shared.zarr"
    let_another_begin_first(monkeypatch, path, 4)
    with pytest.raises(ValueError, match="belongs to a job that differs in `rows_per_block`"):
        run(path)
    assert kpp.Explanation.load(path).dataset.sizes["instance"] == len(ROWS)
