"""Sums over the rows of a table; those of a table of Dask are computed by its workers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from kpp.lazy.schedulers import complete_all
from kpp.lazy.traveling import TravelingFunction
from kpp.runtime.batching import NUM_BLOCKS, progress_bar
from kpp_models.tables.machines.row_blocks import IF_GONE, RowBlocks

_AT_ONCE = 8  # partial sums that a task adds


def sum_over_rows(sums: Callable[[RowBlocks], PyTree], table: RowBlocks, label: str, *, progress: bool) -> PyTree:
    """Return sums over the rows of a table, by a function that can travel to workers.

    The blocks of a table of Dask are summed by its workers, and their sums are added in an order that depends only on
    the number of blocks. So the result is the same, bit for bit, for any number of workers. Raises RuntimeError if the
    scheduler of Dask is gone, and ValueError, with row and column, if the data are invalid.
    """
    if table.pieces is None:
        return sums(table)
    from dask.delayed import delayed

    call, add = delayed(_sum_of_block), delayed(_add)
    shared = delayed(TravelingFunction(functools.partial(_as_numpy, sums)).pack("the model"), traverse=False)
    groups = []
    for pieces in _split([*table.pieces.places]):
        parts = [call(shared, table.feature_names, start, block) for block, start, _ in pieces]
        while len(parts) > 1:
            parts = [add(*parts[start : start + _AT_ONCE]) for start in range(0, len(parts), _AT_ONCE)]
        groups += parts
    with progress_bar(len(groups), label, show=progress) as bar:
        return jax.tree.map(jnp.asarray, _add(*complete_all(groups, bar.update, IF_GONE)))


def _split(pieces: Sequence[Any]) -> list[Sequence[Any]]:
    """Return consecutive groups of blocks, one for each step of a progress bar."""
    size = -(-len(pieces) // NUM_BLOCKS)
    return [pieces[start : start + size] for start in range(0, len(pieces), size)]


def _as_numpy(sums: Callable[[RowBlocks], PyTree], table: RowBlocks) -> PyTree:
    """Return sums as NumPy arrays, which keep their precision wherever they are read."""
    return jax.tree.map(np.asarray, sums(table))


def _sum_of_block(
    sums: TravelingFunction, feature_names: tuple[str, ...], start: int, block: tuple[Any, Any]
) -> PyTree:
    return sums(RowBlocks.of_block(feature_names, start, block))


def _add(*sums: PyTree) -> PyTree:
    return functools.reduce(lambda total, part: jax.tree.map(np.add, total, part), sums)
