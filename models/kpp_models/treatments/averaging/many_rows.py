r"""The law of weighted averages over many rows, by the inducing points of a regression.

The covariance of an average under the law of `kpp.gp.toolkit.condition_by_inducing` is a double sum over all rows. The
part of the inducing points Z takes one matrix (n, m) for each value of the treatment. The rest is computed at few rows,

.. math:: \mathrm{Var}\, g = \|\phi\|^2 - \|R^\top k_Z\|^2 + \bar w^\top (K - \Phi \Phi^\top)\, \bar w, \qquad
    k_Z = \sum_i w_i\, k(Z, (t, z_i)), \quad \phi = L^{-1} k_Z, \quad L L^\top = k(Z, Z),

where :math:`\bar w` are equal weights of the few rows. The rest is what the inducing points leave out. Few rows
overstate it a little.
"""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.functionals import FunctionalLaw, GPPosterior
from kpp.functionals.toolkit import PartialDependence
from kpp.gp.toolkit import inducing_features
from kpp.typing import RngKey


def average_by_inducing(
    draw: GPPosterior,
    rows: Float[Array, "n d"],
    column: int,
    values: Float[Array, " t"],
    weights: Float[Array, "b n"],
    few: Float[Array, "m d"],
) -> tuple[FunctionalLaw, Float[Array, " t"]]:
    """Return the laws of the averages at t values of a column, means (b, t) and covariances (b, t, t).

    The covariances contain the variances that the inducing points leave out, (t,), which are returned, too. They are
    computed at `few`, a sample of the rows.
    """
    kernel, inducing = draw.mean.kernel, draw.mean.points
    whitener = inducing_features(kernel, inducing, inducing[:1])[0]

    def at_value(value: Array) -> Array:
        return jnp.matmul(weights, kernel(rows.at[:, column].set(value), inducing), precision="highest")

    sections = jnp.swapaxes(jax.lax.map(at_value, values), 0, 1)  # one matrix (n, m) in memory at a time
    at_few = PartialDependence(few, column, values)
    explained = at_few.representer(kernel)(inducing).T @ whitener.T
    left_out = at_few.prior_covariance(kernel) - explained @ explained.T
    features, whitened = sections @ whitener.T, sections @ draw.root
    covariance = jnp.matmul(features, jnp.swapaxes(features, 1, 2), precision="highest") + left_out[None]
    covariance -= jnp.matmul(whitened, jnp.swapaxes(whitened, 1, 2), precision="highest")
    mean = sections @ draw.mean.coefficients + draw.mean.intercept  # weights sum to 1
    return FunctionalLaw(mean, covariance), jnp.maximum(jnp.diagonal(left_out), 0.0)


@eqx.filter_jit
def laws_by_inducing(
    rng_key: RngKey,
    posterior: GPPosterior,
    rows: Float[Array, "n d"],
    column: int,
    values: Float[Array, " t"],
    draw_weights: Callable[[RngKey], Float[Array, "b n"]],
    few: Float[Array, "m d"],
) -> tuple[FunctionalLaw, Float[Array, "*batch t"]]:
    """Return `average_by_inducing` for each draw of the posterior; the weights of all draws would fill the memory."""

    def of_draw(draw: GPPosterior, key: RngKey) -> tuple[FunctionalLaw, Array]:
        return average_by_inducing(draw, rows, column, values, draw_weights(key), few)

    return posterior.map_draws(of_draw, jax.random.split(rng_key, posterior.batch_shape))
