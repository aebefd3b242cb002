"""Fits in notebooks: the model, the data, and the posterior of its parameters with diagnostics of the draws."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import xarray as xr

from kpp.kernels.parameters import fields_html
from kpp.runtime.notebook import Html, details, items, panel, table
from kpp.storage import arviz_data

_SHOWN = 20
_PROBABILITY = 0.9


def fit_html(fit: Any) -> Html:
    """Return a summary of a `kpp.Fit` as HTML."""
    title = f"{type(fit.model).__name__} by {type(fit.inference).__name__}"
    divergences = fit.attrs.get("divergences", 0)
    draws = f"{_counted(fit.num_chains, 'chain')} of {_counted(fit.num_draws, 'draw')}"
    divergent = f"{divergences} divergent" if divergences else ""
    return panel(
        title,
        ", ".join(filter(None, (draws, divergent))),
        *_posterior(arviz_data.groups(fit.idata).get("posterior", xr.Dataset()), fit.inference.approximates),
        details("Data", items(_data(fit))),
        details("Model", fields_html(fit.model)),
        f"Groups: {', '.join(arviz_data.group_names(fit.idata))}",
    )


def _posterior(posterior: xr.Dataset, approximates: bool) -> Iterator[object]:
    """Yield a table of the scalars of small sites, and a sentence about the others."""
    sizes = {str(name): site.size // (site.sizes["chain"] * site.sizes["draw"]) for name, site in posterior.items()}
    small = [name for name, size in sizes.items() if size <= _SHOWN]
    if small:
        yield _table(posterior[small], approximates)
    large = [f"{name} ({size} numbers)" for name, size in sizes.items() if size > _SHOWN]
    if large:
        yield f"Not shown: {', '.join(large)}"


def _table(posterior: xr.Dataset, approximates: bool) -> Html:
    if posterior.sizes["draw"] == 1 and posterior.sizes["chain"] == 1:
        flat = posterior.isel(chain=0, draw=0, drop=True)
        rows = [(name, np.array2string(site.values, precision=4)) for name, site in flat.items()]
        return table(rows, ("site", "value"))
    found = arviz_data.summary(posterior, interval_probability=_PROBABILITY)
    percent = f"{100 * _PROBABILITY:g} %"
    columns = {"mean": "mean", "sd": "sd", "lower": f"{percent} from", "upper": "to"}
    if not approximates:
        columns |= {"ess_bulk": "effective draws", "r_hat": "R-hat"}
    rows = [(label, *map(_number, row)) for label, row in zip(found.index, found[list(columns)].values, strict=True)]
    return table(rows, ("site", *columns.values()))


def _counted(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")


def _number(value: float) -> str:
    return f"{value:.4g}" if np.isfinite(value) else "\u2013"


def _data(fit: Any) -> Iterator[Any]:
    for name, value in fit.data.items():
        shapes = ", ".join(str(np.shape(leaf)) for leaf in jax.tree.leaves(value))
        yield f"{name}: {shapes or value}"
    if fit.schema is not None:
        yield repr(fit.schema)
