"""The importance of features: their mean absolute contributions, and the order that all plots and tables follow."""

from __future__ import annotations

import numpy as np
import xarray as xr


def mean_absolute(values: xr.DataArray) -> xr.DataArray:
    r"""Return the mean absolute contribution of each feature, :math:`\frac1p \sum_i |\phi_{ij}|`, in memory.

    Args:
        values: Contributions, ([chain, draw,] instance, feature[, output]).

    Returns:
        The means over instances and outputs, ([chain, draw,] feature).
    """
    return abs(values).mean([dim for dim in ("instance", "output") if dim in values.dims]).compute()


def importance_order(importance: xr.DataArray) -> np.ndarray:
    """Return the positions of the features, (d,), the largest posterior mean of the mean absolute contribution first.

    The mean over draws comes last. In each plot, a feature whose contributions have an unknown sign is therefore before
    one with the same mean contributions that are certain.
    """
    means = importance.mean([dim for dim in ("chain", "draw") if dim in importance.dims])
    return np.argsort(-means.values, kind="stable")
