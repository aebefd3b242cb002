"""`explain_to_store`: an explanation of very many rows, written block by block, which goes on after an interruption."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import xarray as xr

from kpp.api import Reader, read, without_progress
from kpp.data.tables import as_table
from kpp.explanations import AbstractExplainer, Explanation
from kpp.explanations.toolkit import describe_key, is_fit
from kpp.foundation.distribution import versions
from kpp.games import AbstractValueFunction
from kpp.lazy.assembly import block_arrays, first_block
from kpp.lazy.block_task import BlockTask, Layout
from kpp.lazy.blocks import read_blocks
from kpp.lazy.schedulers import complete_all
from kpp.runtime.batching import progress_bar
from kpp.storage import zarr_store
from kpp.typing import RngKey
from kpp_study.jobs.store import JobStore
from kpp_study.study.reading.units import StudyUnits


def explain_to_store(
    predictor: object,
    x: object,
    path: str | os.PathLike[str],
    *,
    rows_per_block: int = 4096,
    explainer: str | AbstractExplainer = "rkhs-shap",
    value_function: str | AbstractValueFunction | None = None,
    rng_key: RngKey | None = None,
    data_name: str | None = None,
    show_progress: bool = True,
    units: StudyUnits | None = None,
    **options: object,
) -> Explanation:
    """Explain the rows of a table, block by block, into a Zarr store.

    If the store is there from an interrupted run of the same job, its blocks are kept and only the others are computed.
    The result is the same, bit for bit, as without the interruption. The store holds the parameters of the job, and a
    job with another one is refused. The blocks are computed by the Dask client of this process if there is one, and
    else in threads; all workers must see the folder under the same path.

    Args:
        predictor: What is explained; see `kpp.explain`.
        x: A Dask array (n, d), a Dask data frame, or an `xarray.DataArray` with chunks.
        path: The folder of the store, which ends in .zarr.
        rows_per_block: The number of rows that a task explains and a file of the store holds.
        explainer: As for `kpp.explain`.
        value_function: As for `kpp.explain`.
        rng_key: As for `kpp.explain`; the key of block b is ``jax.random.fold_in(rng_key, b)``.
        data_name: A text by which a later run recognizes the data. By default it is Dask's token, which stays the same
            for the same array in memory and for files that are not touched.
        show_progress: Whether to show a progress bar of the blocks.
        units: The conversion of units, if `x` and the explanation are in other units than the predictor; the
            fit of a study has one (`kpp_study.study.StudyFit`).
        **options: As for `kpp.explain`.

    Returns:
        The explanation, whose arrays are read from the store when they are needed.

    Raises:
        ImportError: If dask or zarr are not installed.
        OSError: If a block cannot be written, such as on a full disk. The finished blocks stay.
        RuntimeError: If the scheduler is gone. The finished blocks stay.
        ValueError: If the data are bad, or `path` holds something else or another job.
    """
    zarr_store.needed()
    target = Path(path)
    if not zarr_store.is_store(target):
        raise ValueError(f"`path` must end in .zarr, got {str(target)!r}")
    if units is not None and "background" in options:
        options["background"] = units.points(options["background"])
    options = without_progress(explainer, options)
    parts = {"predictor": predictor, "explainer": explainer, "value_function": value_function, **options}
    parts |= {} if units is None else {"units": units}
    job = _describe(parts, x, rng_key, rows_per_block, data_name)
    store = JobStore.find(target, job)
    table = as_table(x)
    blocks = read_blocks(table, rows_per_block)
    reader = read(predictor, table, explainer, value_function, options)
    explain = reader.dataset if units is None else functools.partial(_in_units, reader, units)
    if store is None:
        task, first = first_block(explain, blocks, rng_key, reader.columns)
        store = JobStore.create(target, first, blocks, job)
    else:
        key = jax.random.key(0) if rng_key is None and "rng_key" in store.layout().attrs else rng_key
        task = BlockTask(explain, key, reader.columns)
    _explain_others(task, blocks, store, show_progress)
    return Explanation.load(target)


def _in_units(reader: Reader, units: StudyUnits, rows: Any, rng_key: RngKey | None) -> xr.Dataset:
    """Return the dataset of the explanation of some rows, both in other units than those of the predictor."""
    return units.explanation(reader.explain(units.points(rows), rng_key), rows).dataset


def _explain_others(task: BlockTask, blocks: Any, store: JobStore, show_progress: bool) -> None:
    """Compute and write the blocks that are not done."""
    from dask.delayed import delayed

    done = store.done()
    shared = [delayed(thing, traverse=False) for thing in (task, store, store.layout())]
    places = enumerate(zip(blocks.pieces, blocks.starts, blocks.lengths, strict=True))
    writes = [
        delayed(_run_and_write)(*shared, piece, number, start, length, blocks.size)
        for number, (piece, start, length) in places
        if not done[number]
    ]
    with progress_bar(len(done), "explain", show=show_progress) as bar:
        bar.update(int(done.sum()))
        complete_all(writes, bar.update, "what is finished stays, and the same call goes on from there")


def _run_and_write(
    task: BlockTask, store: JobStore, layout: Layout, block: Any, number: int, start: int, length: int, size: int
) -> None:
    """Explain a block and store it."""
    store.write(block_arrays(task, layout, block, number, start, length, size), number, start)


def _describe(
    parts: Mapping[str, Any], x: object, rng_key: RngKey | None, rows_per_block: int, data_name: str | None
) -> dict[str, str]:
    """Return all that decides the numbers of a job, each by its name; `parts` hold what is explained and how."""
    from dask.base import tokenize

    job = {
        "x": data_name or str(tokenize(x)),
        "rows_per_block": str(rows_per_block),
        "rng_key": "None" if rng_key is None else str(describe_key(rng_key)),
        "precision": "float64" if jax.config.jax_enable_x64 else "float32",
        **{f"version of {name}": version for name, version in versions("jax", "numpy").items()},
    }
    return job | {name: _fingerprint(value, name) for name, value in parts.items()}


def _fingerprint(value: Any, name: str) -> str:
    """Return a short text that is the same for the same value in another process."""
    import joblib

    if value is None or isinstance(value, (str, bool, int, float)):
        return repr(value)
    if is_fit(value) and hasattr(value, "draws"):  # not its ArviZ groups, which hold when it was made
        value = [getattr(value, part, None) for part in ("model", "schema", "data", "draws")]
    try:
        plain = jax.tree.map(lambda leaf: np.asarray(leaf) if isinstance(leaf, jax.Array) else leaf, value)
        return str(joblib.hash(plain))
    except Exception as error:  # pickle raises errors of many types
        raise TypeError(f"`{name}` cannot be recognized by a later run of the job: {error}") from error
