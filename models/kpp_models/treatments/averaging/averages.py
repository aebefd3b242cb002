r"""The law of averages of a Gaussian process over weighted rows in which one column is set to a value.

.. math:: g(t) = \sum_i w_i\, f(t, z_i), \qquad \mathrm{E}\, g(t) = \sum_i w_i\, m(t, z_i), \qquad
    \mathrm{Cov}\bigl(g(t), g(t')\bigr) = \sum_{ij} w_i w_j\, c\bigl((t, z_i), (t', z_j)\bigr)
"""

from __future__ import annotations

import equinox as eqx
import jax
from jaxtyping import Array, Float

from kpp.functionals import FunctionalLaw, GPPosterior
from kpp.functionals.toolkit import PartialDependence


@eqx.filter_jit
def average_laws(
    posterior: GPPosterior,
    rows: Float[Array, "n d"],
    column: int,
    values: Float[Array, " t"],
    weights: Float[Array, "*batch b n"],
) -> FunctionalLaw:
    """Return the laws of averages over rows, means (b, t) and covariances (b, t, t), led by the draws of the posterior.

    One column is set to t values, and there are b sets of weights of the rows for every draw, which share the kernel
    matrices.
    """

    def of_draw(draw: GPPosterior, loads: Array) -> FunctionalLaw:
        return jax.vmap(lambda shares: draw.of(PartialDependence(rows, column, values, shares)))(loads)

    return posterior.map_draws(of_draw, weights)
