"""One block of rows, explained by a task of Dask in this or another process, and the layout that all blocks share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from kpp.lazy.blocks import refuse_bad_rows
from kpp.lazy.tasks import TravelingFunction
from kpp.typing import RngKey

# The attributes that must be the same in all blocks, or the attributes of the whole would be wrong.
_SHARED = ("uncertainty", "levels", "covariance_at")
_TOLERANCE = 1e-6  # relative, of what blocks share: equal up to rounding, in single precision too


@dataclasses.dataclass(frozen=True)
class Layout:
    """The part of an explanation's dataset that all blocks of rows share."""

    dims: dict[str, tuple[str, ...]]
    dtypes: dict[str, np.dtype]
    shared: dict[str, np.ndarray]  # the arrays without the dimension `instance`, such as base values
    attrs: dict[str, Any]  # of the first block

    @classmethod
    def of(cls, dataset: xr.Dataset) -> Layout:
        """Return the layout of the dataset of a block."""
        dims = {str(name): tuple(map(str, array.dims)) for name, array in dataset.data_vars.items()}
        shared = {name: dataset[name].values for name, own in dims.items() if "instance" not in own}
        return cls(dims, {name: dataset[name].dtype for name in dims}, shared, dict(dataset.attrs))

    def arrays(self, dataset: xr.Dataset, length: int, where: str) -> dict[str, np.ndarray]:
        """Return the arrays of a block that have rows, cut to its length; the block must fit the first one."""
        if "standard_errors" in self.dims and "standard_errors" not in dataset:  # this block was solved exactly
            dataset = dataset.assign(standard_errors=xr.zeros_like(dataset["values"]))
        found = {str(name): tuple(map(str, array.dims)) for name, array in dataset.data_vars.items()}
        if found != self.dims:
            raise ValueError(f"{where} has the arrays {found}, and the first block has {self.dims}; {_ADVICE}")
        for name in _SHARED:
            if dataset.attrs.get(name) != self.attrs.get(name):
                raise ValueError(
                    f"{where} has the attribute {name} = {dataset.attrs.get(name)!r}, and the first block has "
                    f"{self.attrs.get(name)!r}; {_ADVICE}"
                )
        for name, known in self.shared.items():
            gap = np.abs(dataset[name].values - known).max(initial=0.0)
            if gap > _TOLERANCE * np.abs(known).max(initial=0.0):
                raise ValueError(f"{where} has other `{name}` than the first block, by up to {gap:.3g}; {_ADVICE}")
        return {
            name: dataset[name].isel(instance=slice(length)).values.astype(dtype, copy=False)
            for name, dtype in self.dtypes.items()
            if name not in self.shared
        }

    def shape(self, name: str, dataset: xr.Dataset, length: int) -> tuple[int, ...]:
        """Return the shape of an array for another number of rows; `dataset` has the other sizes."""
        return tuple(length if dim == "instance" else dataset.sizes[dim] for dim in self.dims[name])


_ADVICE = "explain the rows without Dask, or choose options that do not depend on the rows of a block"


Explain = Callable[[Any, "RngKey | None"], xr.Dataset]


class BlockTask:
    """A function that explains rows, which travels to other processes apart from the blocks.

    The random key is that of the whole table, or None. Only the `columns` of data frames are read; None stands for all.
    """

    def __init__(self, explain: Explain, rng_key: RngKey | None, columns: tuple[str, ...] | None) -> None:
        self._explain = TravelingFunction(explain)
        self._key = None if rng_key is None else np.asarray(jax.random.key_data(_typed(rng_key)))
        self._implementation = None if rng_key is None else str(jax.random.key_impl(_typed(rng_key)))
        self._columns = columns

    @property
    def key_numbers(self) -> list[int] | None:
        """The numbers of the random key of the whole table."""
        return None if self._key is None else self._key.tolist()

    def explain(self, block: Any, number: int, start: int, size: int) -> xr.Dataset:
        """Return the explanation of a block.

        Its random key is made from its `number`, and `start` is the position of its first row in the table. A block of
        less than `size` rows is filled up with copies of its last row, so that all blocks have one compiled program and
        are treated alike.
        """
        refuse_bad_rows(block, self._columns, start)
        chosen = np.minimum(np.arange(size), len(block) - 1)
        rows = block if len(block) == size else block.iloc[chosen] if hasattr(block, "columns") else block[chosen]
        dataset: xr.Dataset = self._explain(rows, self._key_of(number))
        return dataset

    def _key_of(self, number: int) -> RngKey | None:
        if self._key is None:
            return None
        return jax.random.fold_in(jax.random.wrap_key_data(jnp.asarray(self._key), impl=self._implementation), number)


def _typed(rng_key: RngKey) -> RngKey:
    return rng_key if jnp.issubdtype(rng_key.dtype, jax.dtypes.prng_key) else jax.random.wrap_key_data(rng_key)
