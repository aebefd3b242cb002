r"""Draws of the whole function of a Gaussian process, by its values at some points.

Given its values at points E, a process under the posterior covariance c is

.. math:: f = m + c(\cdot, E) W^\top \xi + r, \qquad W c_{EE} W^\top = I, \quad \xi \sim N(0, I),

with a rest r that is independent of :math:`\xi`. A draw of :math:`\xi` gives a function in the span of kernel
sections; of the rest only its covariance is kept.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp.functionals import GPPosterior
from kpp.functionals.sections import join_points
from kpp.functions import RKHSFunction
from kpp.linalg import cholesky, solve_lower
from kpp.linalg.pivoted import pivoted_whitener
from kpp.typing import AnyArray


class FiniteDraws(NamedTuple):
    r"""Draws of a function, up to a rest.

    Attributes:
        mean: The posterior mean, whose points are followed by E with coefficients of 0, N points in all.
        basis: The coefficients of the functions :math:`c(\cdot, E) W^\top`, (N, e).
        root: R, with rows of 0 for E: the posterior covariance is :math:`k - k(\cdot, Z) R R^\top k(Z, \cdot)`, (N, r).
        left_out: The share of the posterior variance that the rest has at points that were given.
    """

    mean: RKHSFunction
    basis: Float[np.ndarray, "N e"]
    root: Float[np.ndarray, "N r"]
    left_out: float

    @classmethod
    def of(cls, posterior: GPPosterior, points: Float[AnyArray, "e d"], checked: Float[AnyArray, "p d"]) -> FiniteDraws:
        """Represent a function by its values at points (e, d); the rest is measured at other points (p, d)."""
        old, points = posterior.mean, jnp.asarray(points)
        basis, left_out = _represent(posterior, points, jnp.asarray(checked))
        coefficients = np.pad(np.asarray(old.coefficients), (0, len(points)))
        root = np.pad(np.asarray(posterior.root), ((0, len(points)), (0, 0)))
        mean = RKHSFunction(old.kernel, join_points([old.points, points]), coefficients, old.intercept)
        return cls(mean, np.asarray(basis), root, float(left_out))

    def draw(self, num: int, generator: np.random.Generator) -> Float[np.ndarray, "N num"]:
        """Draw the coefficients of functions, (N, num)."""
        noise = generator.standard_normal((self.basis.shape[1], num))
        return np.asarray(self.mean.coefficients)[:, None] + self.basis @ noise


@eqx.filter_jit
def shares_left_out(
    posterior: GPPosterior, points: Float[AnyArray, "e d"], checked: Float[AnyArray, "p d"]
) -> Float[Array, " e"]:
    """Return the share of the posterior variance that is left given the values at the first 1, 2, ..., e points."""
    factor = cholesky(posterior.covariance(points, points), what="the posterior covariance")
    # Each row of L^-1 c(E, .) is what its point adds to those before it.
    known = jnp.cumsum(jnp.sum(solve_lower(factor, posterior.covariance(points, checked)) ** 2, axis=1))
    return 1 - known / jnp.sum(posterior.variance(checked))


@eqx.filter_jit
def _represent(
    posterior: GPPosterior, points: Float[Array, "e d"], checked: Float[Array, "p d"]
) -> tuple[Float[Array, "N e"], Float[Array, ""]]:
    whitener = pivoted_whitener(posterior.covariance(points, points), what="the posterior covariance")
    # c(., E) = k(., E) - k(., X) R R^T k(X, E), by sections at X and at E.
    basis = jnp.concatenate([-posterior.root @ posterior.whitened(points).T, jnp.eye(len(points))]) @ whitener.T
    known = jnp.sum((posterior.covariance(checked, points) @ whitener.T) ** 2)
    total = jnp.sum(posterior.variance(checked))
    return basis, jnp.where(total > 0, jnp.maximum(1 - known / total, 0.0), 0.0)
