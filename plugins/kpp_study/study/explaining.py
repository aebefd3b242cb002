"""Parts of the explanation of a study: a rehearsal before the fit, and the rows of waterfall plots."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
import xarray as xr

from kpp.data.tables import Schema
from kpp.explanations import Explanation
from kpp.functions import RKHSFunction
from kpp.inference import AbstractModel
from kpp.kernels import AbstractKernel
from kpp.posteriors import GPPosterior
from kpp.priors import prior_sites, substitute
from kpp.typing import RngKey
from kpp_study.study.section import Rows


@dataclasses.dataclass(frozen=True)
class Rehearsal:
    """The part of a `kpp.Fit` that explainers use, for a function that was not fitted to data.

    Args:
        schema: The names of the columns.
        tiny: The function.
    """

    schema: Schema
    tiny: RKHSFunction

    def function(self) -> RKHSFunction:
        """Return the function."""
        return self.tiny

    def function_posterior(self, *, at: str = "draws") -> GPPosterior:
        """Return a Gaussian posterior with the function as its mean and the prior covariance."""
        return GPPosterior(self.tiny, jnp.zeros((self.tiny.num_points, 0)))

    def predict(self, x: Any) -> xr.Dataset:
        """Return probabilities."""
        probability = scipy.special.expit(np.asarray(self.tiny(np.asarray(x))))
        return xr.Dataset({"probability": (("chain", "draw", "instance"), probability[None, None])})


def rehearsal(rng_key: RngKey, model: AbstractModel, points: np.ndarray, schema: Schema) -> Rehearsal | None:
    """Return a small function with the model's kernel; explaining it before the fit reveals errors early.

    For example, some explainers require kernels that factorize, and options may have invalid values. The function has
    the interface of a fit to points (n, d) in the model's units; it is None for a model without a field `kernel`.
    """
    kernel = getattr(model, "kernel", None)
    if not isinstance(kernel, AbstractKernel):
        return None
    priors = prior_sites("kernel", kernel)
    draws = {site: prior.sample(jax.random.fold_in(rng_key, i)) for i, (site, prior) in enumerate(priors.items())}
    return Rehearsal(schema, RKHSFunction(substitute("kernel", kernel, draws), points, np.ones(len(points))))


def waterfall_positions(rows: Rows, explanation: Explanation, instances: np.ndarray) -> list[int]:
    """Return the positions of the explained rows that get a waterfall plot, in the order of their predictions.

    `rows` is a number of rows, spread evenly from the lowest to the highest prediction, a list of row numbers, or all;
    `instances` are the numbers of the explained rows.
    """
    predictions = explanation.mean().predictions
    ranked = predictions.isel(output=-1) if "output" in predictions.dims else predictions
    order = np.argsort(ranked.values, kind="stable")
    if isinstance(rows, tuple):
        return [int(position) for position in order if instances[position] in rows]
    if rows == "all" or rows >= order.size:
        return order.tolist()
    if rows == 1:
        return [int(order[order.size // 2])]
    return order[np.linspace(0, order.size - 1, rows).round().astype(int)].tolist()
