"""The computations of a fit for one draw of its posterior.

All parts of a fit that the functions need are arguments, the model included, so that fits of equal shapes share the
compiled programs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jaxtyping import PyTree
from numpyro import handlers
from numpyro.infer.util import compute_log_probs

from kpp.functions import RKHSFunction
from kpp.inference.base import CalledWith
from kpp.inference.fit.arviz_groups import LATENT

Sample = dict[str, jax.Array]
OfOneDraw = Callable[[Sample, jax.Array, Any], Any]


def call(sample: Sample, number: jax.Array, shared: PyTree) -> Any:
    """Call a function of one draw; `shared` holds the function, model, data and further arguments."""
    function, model, data, arguments = shared
    return function(model, sample, data, *arguments)


def predict(sample: Sample, number: jax.Array, shared: PyTree) -> dict[str, jax.Array]:
    """Return the moments at points; `shared` holds model, data, points and whether to compute covariances."""
    model, data, points, covariance = shared
    return model.predictive(sample, data, points, covariance=covariance)


def draw_predictive(sample: Sample, number: jax.Array, shared: PyTree) -> jax.Array:
    """Draw observations at points; `shared` holds model, data, points and a random key."""
    model, data, points, key = shared
    return model.draw_predictive(jax.random.fold_in(key, number), sample, data, points)


def function(sample: Sample, shared: PyTree) -> RKHSFunction:
    """Return the posterior mean; `shared` holds model, data and whether to unfold the function."""
    model, data, unfolded = shared
    found = model.function_draw(sample, data)
    return found.unfold() if unfolded else found


def function_parts(sample: Sample, number: jax.Array, shared: PyTree) -> tuple[PyTree, jax.Array, jax.Array]:
    """Return the arrays of the kernel of `function`, its coefficients and its intercept."""
    found = function(sample, shared)
    return eqx.filter(found.kernel, eqx.is_array), found.coefficients, found.intercept


def function_points(sample: Sample, number: jax.Array, shared: PyTree) -> PyTree:
    """Return the points of `function`."""
    return function(sample, shared).points


def roots(sample: Sample, number: jax.Array, shared: PyTree) -> tuple[jax.Array, jax.Array | None]:
    """Return the root and the covariance of outputs of the posterior of the function; `shared` holds model and data."""
    model, data = shared
    posterior = model.posterior_draw(sample, data)
    return posterior.root, posterior.output_covariance


def pointwise(sample: Sample, number: jax.Array, shared: PyTree) -> dict[str, dict[str, jax.Array]]:
    """Return the arrays of the groups of ArviZ that are computed for each draw.

    `shared` holds the model, the data, a random key, and the sites whose prior densities are returned.
    """
    model, data, key, sites = shared
    likelihoods, replicates = model.pointwise(jax.random.fold_in(key, number), sample, data)
    run = handlers.seed(CalledWith(model.numpyro_model), jax.random.key(0))
    densities, _ = compute_log_probs(run, (data,), {}, sample, sum_log_prob=False) if sites else ({}, None)
    return {
        "log_likelihood": likelihoods,
        "posterior_predictive": replicates,
        LATENT: model.latent_values(sample, data),
        "log_prior": {name: densities[name] for name in sites},
    }
