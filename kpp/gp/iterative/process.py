"""Gaussian-process regression without a kernel matrix: the distribution of the observations, and the posterior."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpyro import distributions as dist
from numpyro.distributions import constraints

from kpp.foundation.validation import is_concrete
from kpp.functionals import GPPosterior
from kpp.functions import RKHSFunction
from kpp.gp.conditioned.process import PriorMean, constant_mean, evaluate_mean
from kpp.gp.iterative.system import IterativeSettings, IterativeSystem, iterative_log_density
from kpp.gp.laws.gaussian_laws import LatentPredictive
from kpp.gp.likelihoods.gaussian import GaussianLikelihood
from kpp.inference.base import ConvergenceError
from kpp.kernels import AbstractKernel
from kpp.runtime.batching import map_rows, rows_that_fit
from kpp.typing import AnyArray, Points

_MAX_ENTRIES = 2**23  # of the kernel sections at a block of points, 67 MB


class IterativeMarginal(dist.Distribution):
    r"""The marginal likelihood of Gaussian-process regression, :math:`y \sim N(m, K + D)`, without a kernel matrix.

    `log_prob` is `kpp.gp.iterative_log_density`, an estimate with fixed random vectors.

    Args:
        mean: m, a number or (n,).
        system: K + D.
        validate_args: As for every NumPyro distribution.
    """

    arg_constraints = {"loc": constraints.real_vector}
    support = constraints.real_vector
    pytree_data_fields = ("loc", "system")

    def __init__(self, mean: AnyArray | float, system: IterativeSystem, *, validate_args: bool | None = None) -> None:
        self.loc, self.system = jnp.broadcast_to(mean, system.noise.shape), system
        super().__init__((), self.loc.shape, validate_args=validate_args)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> NoReturn:
        """Raise NotImplementedError: a draw needs a root of the kernel matrix."""
        raise NotImplementedError("a draw of the observations needs a root of the kernel matrix")

    def log_prob(self, value: AnyArray, intermediates: object = None) -> Array:
        """Return the estimated log density of a vector of observations, (n,); NaN if the systems are not solved."""
        return iterative_log_density(self.system, jnp.asarray(value) - self.loc)


class IterativeGP(eqx.Module):
    r"""The posterior of a regression by conjugate gradients, a `kpp.gp.ConditionedProcess`.

    .. math:: f \mid y \sim GP\bigl(m(x) + k(x, X)\, \alpha,\; k(x, x') - k(x, X) (K + D)^{-1} k(X, x')\bigr)

    Each variance needs the solution of a system; the systems of a block of points are solved together. What needs the
    inverse or a root of the whole matrix is not available: `held_out`, `at_points` and `posterior` raise TypeError.

    Args:
        system: K + D.
        coefficients: :math:`\alpha = (K + D)^{-1} (y - m)`, (n,).
        likelihood: The likelihood.
        prior_mean: m, a number, or a function from points to one number per point.
    """

    system: IterativeSystem
    coefficients: Float[Array, " n"]
    likelihood: GaussianLikelihood
    prior_mean: PriorMean = 0.0

    @property
    def kernel(self) -> AbstractKernel:
        """The kernel."""
        return self.system.kernel

    @property
    def held_out(self) -> Callable[[], NoReturn]:
        """A function that raises TypeError: leave-one-out needs the diagonal of the inverse of K + D."""
        return lambda: _refuse("leave-one-out", "the diagonal of the inverse of the kernel matrix")

    @property
    def at_points(self) -> Callable[[], NoReturn]:
        """A function that raises TypeError: the law at all observations is a matrix (n, n)."""
        return lambda: _refuse("a joint draw at all observations", "a matrix of n * n numbers")

    def moments(self, x: Points, *, covariance: bool = False) -> LatentPredictive:
        """Return the law of the function's values; see `ConditionedProcess.moments`."""
        if covariance:
            return self.joint(x)
        num_points, num_rows = jax.tree.leaves(x)[0].shape[0], self.coefficients.shape[0]
        size = rows_that_fit(num_points, num_rows, _MAX_ENTRIES)
        return self._moments(x) if size == num_points else map_rows(self._moments, x, size)

    def joint(self, x: Points) -> LatentPredictive:
        """Return the law with its covariance; the systems of all points are solved together."""
        mean, white, solved = self._solve(x)
        covariance = self.kernel.gram(x) - white.T @ solved
        covariance = 0.5 * (covariance + covariance.T)  # solutions up to a tolerance are not symmetric
        return LatentPredictive(mean, jnp.maximum(jnp.diagonal(covariance), 0.0), covariance)

    def function(self) -> RKHSFunction:
        """Return the posterior mean; see `ConditionedProcess.function`."""
        return RKHSFunction(self.kernel, self.system.points, self.coefficients, constant_mean(self.prior_mean))

    def posterior(self) -> GPPosterior:
        """Raise TypeError."""
        _refuse("the posterior as a `kpp.GPPosterior`", "a root of the inverse of the kernel matrix")

    def _moments(self, x: Points) -> LatentPredictive:
        mean, white, solved = self._solve(x)
        variance = self.kernel.diagonal(x) - jnp.sum(white * solved, axis=0)
        return LatentPredictive(mean, jnp.maximum(variance, 0.0), None)

    def _solve(self, x: Points) -> tuple[Array, Array, Array]:
        """Return the mean at p points, their sections in the coordinates of A, (n, p), and the solutions for these."""
        sections = self.kernel(self.system.points, x)
        white = self.system.whiten(sections)
        solved = _converged(self.system.solve(white), self.system.settings)
        return sections.T @ self.coefficients + evaluate_mean(self.prior_mean, x), white, solved


def condition_iteratively(
    kernel: AbstractKernel,
    points: Points,
    likelihood: GaussianLikelihood,
    mean: PriorMean = 0.0,
    settings: IterativeSettings | None = None,
) -> IterativeGP:
    """Condition a Gaussian process on observations with noise of positive variance, without a matrix (n, n) in memory.

    Returns:
        The posterior, exact up to the tolerance of the settings; NaN in traced code if a system is not solved.

    Raises:
        kpp.inference.ConvergenceError: If conjugate gradients do not converge and the numbers are concrete.

    References:
        Wang, Pleiss, Gardner, Tyree, Weinberger and Wilson, Exact Gaussian processes on a million data points, 2019.
    """
    settings = IterativeSettings() if settings is None else settings
    system = IterativeSystem.create(kernel, points, likelihood.variances, settings)
    residual = likelihood.y - jnp.broadcast_to(evaluate_mean(mean, points), likelihood.y.shape)
    solved = _converged(system.solve(system.whiten(residual[:, None])), settings)
    return IterativeGP(system, system.unwhiten(solved)[:, 0], likelihood, mean)


def _converged(solution: Array, settings: IterativeSettings) -> Array:
    """Return a solution, or raise ConvergenceError if it is concrete and NaN."""
    if is_concrete(solution) and np.isnan(np.asarray(solution)).any():
        raise ConvergenceError(
            f"conjugate gradients did not reach the `tolerance` {settings.tolerance:g} within `max_steps` = "
            f"{settings.max_steps} steps for {solution.shape[0]} rows: raise `max_steps` or `rank` ({settings.rank}), "
            "or the noise variance"
        )
    return solution


def _refuse(what: str, needed: str) -> NoReturn:
    raise TypeError(
        f"{what} is not available by conjugate gradients, because it needs {needed}; latent='exact' and "
        "latent='inducing' have it"
    )
