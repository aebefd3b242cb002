"""Parts of an explanation's dataset, selected by position."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from kpp.explanations.parts.build import SAMPLE_DIMS


def select(dataset: xr.Dataset, indexers: Mapping[str, object]) -> xr.Dataset:
    """Return the part of a dataset at some positions; see `Explanation.isel`."""
    allowed = [dim for dim in (*SAMPLE_DIMS, "instance", "output") if dim in dataset["values"].dims]
    unknown = sorted(set(indexers) - set(allowed))
    if unknown:
        raise ValueError(f"`isel` selects along {allowed}, got {unknown}")
    kept: dict[str, Any] = {dim: _keep_dim(index) if dim != "output" else index for dim, index in indexers.items()}
    if "instance" in kept and "instance_other" in dataset.dims:
        kept["instance_other"] = kept["instance"]
    selected = dataset.isel(kept)
    return selected if "output" in selected.dims else selected.drop_vars("output", errors="ignore")


def _keep_dim(index: object) -> object:
    return [int(index)] if isinstance(index, (int, np.integer)) else index
