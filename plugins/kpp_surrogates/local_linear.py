r"""The common part of "lime", "bayes-lime" and "bayes-shap": linear models of the predictions around each point.

The weighted regressions of many points at once are ridge regressions, or Bayesian ones with their posterior, which are
conjugate. With rows :math:`X = [1, Z]`, weights :math:`\Pi` and an improper prior of the noise,

.. math::

    y \mid \beta, \sigma^2 \sim N(X \beta, \sigma^2 \Pi^{-1}), \qquad \beta \mid \sigma^2 \sim N(0, \sigma^2 I),
    \qquad p(\sigma^2) \propto 1 / \sigma^2,

the posterior of :math:`\sigma^2` is a scaled inverse chi-squared law with N degrees of freedom, and each coefficient
has a Student law with N degrees of freedom.

References:
    Slack, Hilgard, Singh and Lakkaraju, Reliable post hoc explanations: modeling uncertainty in explainability, 2021,
    eqs. (4) to (7).
"""

# No `from __future__ import annotations`: Equinox reads `AbstractVar` off the annotation itself.

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp import Explanation
from kpp.explanations import AbstractPointsExplainer, Inputs
from kpp.linalg import add_diagonal, cho_solve, cholesky, solve_lower
from kpp.runtime.batching import even_size, map_blocks, progress_bar
from kpp.typing import AnyArray, RngKey
from kpp_surrogates.perturbation import Perturbations

# The largest number of entries of the perturbed rows, or of their predictions, in a block.
_MAX_ENTRIES = 2**22


class LinearModels(NamedTuple):
    """One linear model of each target around each point."""

    intercepts: Float[AnyArray, "p r"]
    coefficients: Float[AnyArray, "p g r"]
    variance: Float[AnyArray, "p g r"] | None  # of the coefficients; None without a posterior


class LocalProblem(NamedTuple):
    """The perturbations of points, a number of each, and the regression of predictions on their features."""

    sample: Callable[[Float[np.ndarray, "b d"], int], Perturbations]
    fit: Callable[[Float[np.ndarray, "b n g"], Float[np.ndarray, "b n r"]], LinearModels]
    record: dict[str, Any]  # the name of the explainer and its options, for the attributes of the explanation
    base: Float[np.ndarray, " r"] | None = None  # the base value of each target; None if it is the intercept


class _Fields:
    """The fields that final classes declare, each in its own order."""

    num_perturbations: eqx.AbstractVar[int]
    progress: eqx.AbstractVar[bool]


class AbstractLocalLinear(_Fields, AbstractPointsExplainer):
    """An explainer by the coefficients of a linear model around each point, which do not add up to the prediction."""

    requires: ClassVar[Literal["callable"]] = "callable"
    additive: ClassVar = False

    @abstractmethod
    def local_problem(self, inputs: Inputs, rng_key: RngKey | None) -> LocalProblem:
        """Return the perturbations around the points and the regression; raise TypeError if `rng_key` is None."""

    def explain_inputs(self, inputs: Inputs, *, rng_key: RngKey | None = None) -> Explanation:
        """Fit a linear model around each point, in blocks of points."""
        problem = self.local_problem(inputs, rng_key)

        def fit_block(points: Float[np.ndarray, "b d"]) -> LinearModels:
            perturbations = problem.sample(points, self.num_perturbations)
            return problem.fit(perturbations.features, inputs.predict(perturbations.rows))

        num_points, num_features = inputs.rows.shape
        entries = self.num_perturbations * max(num_features, inputs.num_targets)
        size = even_size(num_points, _MAX_ENTRIES // entries)
        label = f"explain by {problem.record['explainer']}"
        with progress_bar(math.ceil(num_points / size), label, show=self.progress) as bar:
            models = map_blocks(fit_block, inputs.rows, size, bar=bar)
        base = models.intercepts if problem.base is None else problem.base
        named = {"values": models.coefficients, "base_values": base, "variance": models.variance}
        arrays: dict[str, Any] = {
            name: None if value is None else inputs.unfold(value) for name, value in named.items()
        }
        return inputs.explanation({"perturbations": self.num_perturbations, **problem.record}, **arrays)


def fit_posterior(
    features: Float[np.ndarray, "p n g"],
    targets: Float[np.ndarray, "p n r"],
    weights: Float[np.ndarray, "p n"],
    base: Float[np.ndarray, " r"],
) -> LinearModels:
    """Return the posterior of weighted Bayesian regressions of the targets minus their base values."""
    posterior = bayesian_regression(features, weights, targets - base)
    return LinearModels(posterior.mean[:, 0] + base[None], posterior.mean[:, 1:], posterior.variance[:, 1:])


class RegressionPosterior(NamedTuple):
    """The Student laws of weighted regressions."""

    mean: Float[np.ndarray, "p q r"]  # of the intercept and of the coefficients
    squared_scales: Float[np.ndarray, "p q r"]  # s^2 V_jj
    degrees: int  # of freedom, N

    @property
    def variance(self) -> Float[np.ndarray, "p q r"]:
        r"""The variances of the Student laws, :math:`s^2 V_{jj}\, N / (N - 2)`."""
        return self.squared_scales * (self.degrees / (self.degrees - 2))


def bayesian_regression(
    features: Float[AnyArray, "p n g"], weights: Float[AnyArray, "p n"], targets: Float[AnyArray, "p n r"]
) -> RegressionPosterior:
    r"""Regress the targets y (p, n, r) of each point on its features Z (p, n, g), with the prior of the module.

    .. math:: V = (X^\top \Pi X + I)^{-1}, \quad \hat\beta = V X^\top \Pi y, \quad \beta_j \sim t_N(\hat\beta_j, s^2
    V_{jj})

    with :math:`s^2 = ((y - X \hat\beta)^\top \Pi (y - X \hat\beta) + \hat\beta^\top \hat\beta) / N`, N = n of at least
    3, and the diagonal (p, n) of :math:`\Pi` as the weights.
    """
    mean, squared_scales = (np.asarray(array) for array in _bayesian(features, weights, targets))
    return RegressionPosterior(mean, squared_scales, features.shape[1])


@jax.jit
@jax.vmap
def _bayesian(
    features: Float[Array, "n g"], weights: Float[Array, " n"], targets: Float[Array, "n r"]
) -> tuple[Float[Array, "q r"], Float[Array, "q r"]]:
    design = jnp.concatenate([jnp.ones_like(features[:, :1]), features], axis=1)
    weighted = design * weights[:, None]
    factor = cholesky(add_diagonal(_dot(weighted.T, design), 1.0), what="the matrix of a weighted regression")  # V^-1
    mean = cho_solve(factor, _dot(weighted.T, targets))
    residuals = targets - _dot(design, mean)
    squares = jnp.sum(weights[:, None] * residuals**2, axis=0) + jnp.sum(mean**2, axis=0)  # N s^2
    inverse = solve_lower(factor, jnp.eye(design.shape[1], dtype=design.dtype))  # V_jj are its columns' squares
    return mean, jnp.sum(inverse**2, axis=0)[:, None] * (squares / design.shape[0])[None]


@jax.jit
def ridge_regression(
    features: Float[Array, "p n g"], weights: Float[Array, "p n"], targets: Float[Array, "p n r"], penalty: Array
) -> tuple[Float[Array, "p r"], Float[Array, "p g r"]]:
    r"""Regress the targets of each point on its features, with a penalty on the coefficients but not the intercept.

    .. math:: \min_{b, \beta} \sum_i w_i (y_i - b - z_i^\top \beta)^2 + \lambda \|\beta\|^2

    Features z (p, n, g), weights w (p, n), not all 0, and targets y (p, n, r) give the intercepts (p, r) and the
    coefficients (p, g, r).
    """

    def solve(z: Array, w: Array, y: Array) -> tuple[Array, Array]:
        shares = w / jnp.sum(w)  # centers the columns, so that the intercept is not penalized
        center, level = _dot(shares[None], z)[0], _dot(shares[None], y)[0]
        z, y = z - center[None], y - level[None]
        weighted = z * w[:, None]
        matrix = add_diagonal(_dot(weighted.T, z), penalty)
        beta = cho_solve(cholesky(matrix, what="the matrix of a ridge regression"), _dot(weighted.T, y))
        return level - _dot(center[None], beta)[0], beta

    return jax.vmap(solve)(features, weights, targets)


def _dot(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, precision="highest")
