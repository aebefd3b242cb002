"""Gaussian-process regression without a kernel matrix: the distribution of the observations, and the posterior."""

from __future__ import annotations

import dataclasses
from typing import NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpyro import distributions as dist
from numpyro.distributions import constraints

from kpp import linalg
from kpp.foundation.validation import is_concrete
from kpp.functionals import GPPosterior
from kpp.functions import RKHSFunction
from kpp.gp.conditioned.process import PriorMean, evaluate_mean, posterior_by_root
from kpp.gp.iterative.system import IterativeSettings, IterativeSystem, iterative_log_density, kernel_product
from kpp.gp.laws.gaussian_laws import LatentPredictive
from kpp.gp.likelihoods.gaussian import GaussianLikelihood
from kpp.inference.base import ConvergenceError
from kpp.kernels import AbstractKernel
from kpp.runtime.batching import map_rows, rows_that_fit
from kpp.typing import AnyArray, Points

_MAX_ENTRIES = 2**23  # of the kernel sections at a block of points, 67 MB
# The random vectors for the diagonal of an inverse, over those for the evidence: as many systems as for one evidence.
_PROBES = 8


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

    Each variance needs the solution of a system; the systems of a block of points are solved together. Three laws need
    more than the solutions of few systems, and are approximate:

    * `held_out` takes the diagonal of :math:`(K + D)^{-1}`, which is that of the preconditioner plus an estimate by
      random vectors, eight times those of the settings. `precisions` returns it with its standard errors.
    * `at_points`, for draws of the observations, has these variances. What the landmarks of the preconditioner do not
      explain is drawn independently.
    * `posterior` takes the data through as many linear combinations as there are landmarks. Its mean is exact, and its
      variances are at least the exact ones.

    Args:
        system: K + D.
        coefficients: :math:`\alpha = (K + D)^{-1} (y - m)`, (n,).
        likelihood: The likelihood.
        prior_mean: m, a number, or a function from points to one number per point.

    References:
        Wenger, Pleiss, Pförtner, Hennig and Cunningham, Posterior and computational uncertainty in Gaussian processes,
        2022, equation (3), for `posterior`; Bekas, Kokiopoulou and Saad, An estimator for the diagonal of a matrix,
        2007, for `precisions`.
    """

    system: IterativeSystem
    coefficients: Float[Array, " n"]
    likelihood: GaussianLikelihood
    prior_mean: PriorMean = 0.0

    @property
    def kernel(self) -> AbstractKernel:
        """The kernel."""
        return self.system.kernel

    def precisions(self) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        r"""Return the diagonal of :math:`(K + D)^{-1}`, an estimate, and its standard errors, each (n,)."""
        system, noise = self.system, self.system.noise
        settings = dataclasses.replace(system.settings, num_probes=_PROBES * system.settings.num_probes)
        probes = settings.probes(noise.shape[0], noise.dtype)
        white = system.whiten(probes)
        # The preconditioner's own diagonal is exact; only the difference is estimated.
        differences = probes * system.unwhiten(_converged(system.solve(white), system.settings) - white)
        estimate = (1 - self._explained()) / noise + jnp.mean(differences, axis=1)
        lowest = 1 / (self.kernel.diagonal(system.points) + noise)
        errors = jnp.std(differences, axis=1, ddof=1) / probes.shape[1] ** 0.5
        return jnp.clip(estimate, lowest, 1 / noise), errors

    def held_out(self) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """Return mean and variance of every latent value given all other observations; see `ConditionedProcess`."""
        precisions, _ = self.precisions()
        variance = jnp.maximum(1 / precisions - self.system.noise, 0.0)
        return self.likelihood.y - self.coefficients / precisions, variance

    def at_points(self) -> LatentPredictive:
        """Return the joint law of the latent values at the observations; see `ConditionedProcess.at_points`."""
        noise, (precisions, _) = self.system.noise, self.precisions()
        variance = noise * (1 - noise * precisions)
        root = linalg.solve_lower(self.system.factor, self.system.features.T) * jnp.sqrt(noise)[None]
        rest = jnp.maximum(variance - noise * self._explained(), 0.0)
        return LatentPredictive(self.likelihood.y - noise * self.coefficients, variance, None, root, rest)

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
        return RKHSFunction(self.kernel, self.system.points, self.coefficients) + self.prior_mean

    def posterior(self) -> GPPosterior:
        r"""Return the law with a matrix root of m columns, for m landmarks; see the class.

        .. math:: R R^\top = S \bigl(S^\top (K + D) S\bigr)^{-1} S^\top

        The columns of S span the features of the landmarks divided by the noise.
        """
        system = self.system
        scale = jnp.sqrt(system.noise)[:, None]
        basis = jnp.linalg.qr(system.features)[0]  # so that the matrix below is at least the identity
        products = kernel_product(self.kernel, system.points, basis / scale)
        matrix = linalg.add_diagonal((basis / scale).T @ products, 1.0)
        factor = linalg.cholesky((matrix + matrix.T) / 2, what="the projected kernel matrix")
        return posterior_by_root(self.function(), linalg.solve_lower(factor, (basis / scale).T).T)

    def _explained(self) -> Float[Array, " n"]:
        """Return the shares of the noise variances by which the preconditioner reduces the precisions."""
        return jnp.sum(linalg.solve_lower(self.system.factor, self.system.features.T) ** 2, axis=0)

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
