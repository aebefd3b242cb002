"""The layout of the arrays of an explanation in blocks, which is that of its first block."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import xarray as xr

# The attributes that must be the same in all blocks, or the attributes of the whole would be wrong.
_SHARED = ("uncertainty", "levels", "covariance_at")
_TOLERANCE = 1e-6  # relative, of what blocks share: equal up to rounding, in single precision too


@dataclasses.dataclass(frozen=True)
class Layout:
    """The part of an explanation's dataset that all blocks of rows share.

    Args:
        dims: The dimensions of each array.
        dtypes: Their types.
        shared: The arrays without the dimension ``instance``, such as base values.
        attrs: The attributes of the first block.
    """

    dims: dict[str, tuple[str, ...]]
    dtypes: dict[str, np.dtype]
    shared: dict[str, np.ndarray]
    attrs: dict[str, Any]

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
