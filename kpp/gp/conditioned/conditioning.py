r"""Gaussian processes conditioned on data, under one draw of the hyperparameters.

`condition` takes observations with any pointwise likelihood: it is exact for the Gaussian one and Laplace's
approximation for the others. `condition_by_inducing` summarizes many observations by the values at a few points.
`condition_on_values` takes latent values that an inference has drawn.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp import linalg
from kpp.data.bags import Bags
from kpp.functionals import AbstractFunctional, Combination, GPPosterior
from kpp.functions import RKHSFunction
from kpp.gp.conditioned.finite_rank import (
    FeatureGP,
    condition_features,
    few_features,
    fit_features,
    law_of_features,
    leave_one_out_of_features,
)
from kpp.gp.conditioned.process import PriorMean, evaluate_mean, moments_in_blocks, posterior_by_root
from kpp.gp.inducing.features import inducing_features
from kpp.gp.laplace.by_values import laplace_posterior, leave_one_out_latent
from kpp.gp.laws.gaussian_laws import LatentPredictive, leave_one_out_by_factor, prior_factor
from kpp.gp.likelihoods.base import AbstractPointwiseLikelihood
from kpp.gp.likelihoods.gaussian import GaussianLikelihood
from kpp.kernels import AbstractKernel
from kpp.typing import AnyArray, Points


class ConditionedGP(eqx.Module):
    r"""The posterior of a function under a Gaussian process and one draw of the hyperparameters.

    .. math:: f \mid D \sim GP\bigl(m(x) + k(x, X)\, \alpha,\; k(x, x') - V(x)^\top V(x')\bigr), \qquad
        V(x) = M k(X, x)

    The data reduce the prior covariance by an inner product. This form holds for observations at the points X, for
    inducing points X, and for bags of points, whose kernel sections k(X, x) are means over each bag.

    `posterior` returns the same law with a matrix root in place of the map M; `kpp.GPPosterior` keeps these roots for
    all draws. Here M is a function, because solving a triangular system is more accurate than multiplying by an
    inverse.

    Args:
        kernel: k.
        points: The n points X, (n, d) or a batch of inputs of the kernel; or n `kpp.Bags`; or a functional of n
            numbers, where :math:`k(X, x)` are its numbers of the kernel's section at x.
        coefficients: :math:`\alpha`, (n,).
        whiten: The linear map M, from (n, p) to (r, p). For a regression it is :math:`L^{-1}`.
        likelihood: The likelihood of observations at new points. It is also the likelihood of the training
            observations, given the latent values whose law `held_out` returns.
        prior_mean: m, a number, or a function from points to one number per point.
        held_out: Returns mean and variance of the latent value of every observation given all other observations; the
            variance is None if the latent values are known. None means that the observations depend on the function
            only through the values on which it is conditioned.
        at_points: Returns the joint law of the latent values at X where there is a shorter way than `moments`, else
            None.
    """

    kernel: AbstractKernel
    points: Points
    coefficients: Float[Array, " n"]
    whiten: Callable[[Array], Array]
    likelihood: AbstractPointwiseLikelihood
    prior_mean: PriorMean = 0.0
    held_out: Callable[[], tuple[Array, Array | None]] | None = None
    at_points: Callable[[], LatentPredictive] | None = None

    def moments(self, x: Points, *, covariance: bool = False) -> LatentPredictive:
        """Return the law of the function's values; see `ConditionedProcess.moments`."""
        sections = self._sections(x)
        reduction = self.whiten(sections)
        variance = self.kernel.diagonal(x) - jnp.sum(reduction**2, axis=0)
        matrix = self.kernel.gram(x) - reduction.T @ reduction if covariance else None
        mean = sections.T @ self.coefficients + evaluate_mean(self.prior_mean, x)
        # The variance is a difference of nearly equal numbers where there are data.
        return LatentPredictive(mean, jnp.maximum(variance, 0.0), matrix)

    def joint(self, x: Points) -> LatentPredictive:
        """Return the law with its covariance."""
        return self.moments(x, covariance=True)

    def function(self) -> RKHSFunction:
        """Return the posterior mean; see `ConditionedProcess.function`."""
        points, coefficients = self.points, self.coefficients
        if isinstance(points, AbstractFunctional):
            spanned = points.adjoint(self.kernel, coefficients)
        elif isinstance(points, Bags):
            spanned = RKHSFunction(self.kernel, points.points, points.spread(coefficients))
        else:
            spanned = RKHSFunction(self.kernel, points, coefficients)
        return spanned + self.prior_mean

    def posterior(self) -> GPPosterior:
        r"""Return the law with the matrix :math:`R = M^\top`."""
        points, count = self.points, self.coefficients.shape[0]
        root = self.whiten(jnp.eye(count, dtype=self.coefficients.dtype)).T
        if isinstance(points, AbstractFunctional):
            return posterior_by_root(self.function(), points.adjoint(self.kernel, root).coefficients)
        return posterior_by_root(self.function(), points.spread(root) if isinstance(points, Bags) else root)

    def law_of(self, functional: AbstractFunctional) -> tuple[Float[Array, " q"], Float[Array, "q q"]]:
        """Return mean and covariance of linear functionals of the function; the process has observed functionals."""
        assert isinstance(self.points, AbstractFunctional)
        cross = self.points.prior_covariance(self.kernel, functional)
        reduction = self.whiten(cross)
        mean, covariance = prior_law(self.kernel, functional, self.prior_mean)
        return mean + cross.T @ self.coefficients, covariance - reduction.T @ reduction

    def _sections(self, x: Points) -> Float[Array, "n p"]:
        if isinstance(self.points, Bags):
            return self.points.sections(self.kernel, x)
        if isinstance(self.points, AbstractFunctional):
            return self.points.representer(self.kernel)(x).T
        return self.kernel(self.points, x)


def prior_law(
    kernel: AbstractKernel, functional: AbstractFunctional, mean: PriorMean
) -> tuple[Float[Array, " q"], Float[Array, "q q"]]:
    """Return mean and covariance of linear functionals of a Gaussian process without observations."""

    def function(x: Points) -> Array:
        return jnp.broadcast_to(evaluate_mean(mean, x), jax.tree.leaves(x)[0].shape[:1])

    return functional.apply(function), functional.prior_covariance(kernel)


def condition_functional(
    kernel: AbstractKernel,
    functional: AbstractFunctional,
    likelihood: AbstractPointwiseLikelihood,
    mean: PriorMean = 0.0,
    *,
    given: ConditionedGP | None = None,
) -> ConditionedGP:
    """Condition a Gaussian process on observations of linear functionals, as `condition` does on those of values.

    Args:
        kernel: k.
        functional: The functional, of n numbers.
        likelihood: The likelihood, which holds the n observations.
        mean: The prior mean, a number or a function from points to one number per point.
        given: The process given other observations, with the same kernel and mean; None without any.

    Returns:
        The posterior given all observations; `held_out` and `at_points` are of the last n.
    """
    if given is None:
        return _condition(kernel, functional, likelihood, mean, *prior_law(kernel, functional, mean))
    found = _condition(kernel, functional, likelihood, mean, *given.law_of(functional))
    return _joined(given, found)


def condition(
    kernel: AbstractKernel, points: Points, likelihood: AbstractPointwiseLikelihood, mean: PriorMean = 0.0
) -> ConditionedGP | FeatureGP:
    r"""Condition a Gaussian process on observations at points.

    With a `GaussianLikelihood`, :math:`\alpha = (K + \sigma^2 I)^{-1} (y - m)` and
    :math:`M = L^{-1}, L L^\top = K + \sigma^2 I`. With any other likelihood it is Laplace's approximation, :math:`M =
    L^{-1} W^{1/2}, L L^\top = I + W^{1/2} K W^{1/2}` (`kpp.gp.laplace_posterior`).

    If the kernel has q < n finite features, time is of order n q^2 (`kpp.gp.FeatureGP`).

    Args:
        kernel: k.
        points: The n points, (n, d), or a batch of inputs of the kernel.
        likelihood: The likelihood, which holds the n observations.
        mean: The prior mean, a number or a function from points to one number per point.

    Returns:
        The posterior; its `held_out` is leave-one-out in closed form.

    References:
        Rasmussen and Williams (2006), algorithms 2.1 and 3.2, equation 5.12; Vehtari, Mononen, Tolvanen, Sivula and
        Winther (2016), section 3.2.
    """
    if not isinstance(points, Bags):
        noise = likelihood.variances if isinstance(likelihood, GaussianLikelihood) else 1.0
        features = few_features(kernel, points, noise)
        if features is not None:
            return condition_features(kernel, points, features, likelihood, mean)
    return _condition(kernel, points, likelihood, mean, evaluate_mean(mean, points), kernel.gram(points))


def _condition(
    kernel: AbstractKernel,
    points: Points,
    likelihood: AbstractPointwiseLikelihood,
    mean: PriorMean,
    at_points: Array,
    gram: Float[Array, "n n"],
) -> ConditionedGP:
    """Condition on observations of values whose prior mean and covariance are known."""
    if isinstance(likelihood, GaussianLikelihood):
        noise, residual = likelihood.variances, likelihood.y - at_points
        factor = linalg.cholesky(linalg.add_diagonal(gram, noise), what="the covariance matrix of `y`")

        def held_out() -> tuple[Array, Array]:
            predicted, variance = leave_one_out_by_factor(residual, factor)
            return at_points + predicted, variance - noise  # of the latent value, which has no noise

        coefficients = linalg.cho_solve(factor, residual)

        def at_observations() -> LatentPredictive:
            return _law_at_observations(likelihood.y, noise, coefficients, factor)

        whiten = _by(factor)
        return ConditionedGP(kernel, points, coefficients, whiten, likelihood, mean, held_out, at_observations)
    approximation = laplace_posterior(likelihood, gram, at_points)
    coefficients, whiten = approximation.coefficients, approximation.whiten
    return ConditionedGP(
        kernel, points, coefficients, whiten, likelihood, mean, lambda: leave_one_out_latent(gram, approximation)
    )


def _joined(given: ConditionedGP, found: ConditionedGP) -> ConditionedGP:
    r"""Return a process given its first observations, and what further ones change, as one process.

    With :math:`C = L k L'^\top` between both, :math:`\alpha` and M become :math:`(\alpha_1 - M_1^\top M_1 C \alpha_2,
    \alpha_2)` and :math:`(M_1 s_1,\; M_2 (s_2 - C^\top M_1^\top M_1 s_1))` of sections :math:`(s_1, s_2)`.
    """
    first, second = given.points, found.points
    size = first.num_values
    cross = given.whiten(first.prior_covariance(given.kernel, second))
    root = given.whiten(jnp.eye(size, dtype=cross.dtype))

    def whiten(sections: Float[Array, "n p"]) -> Float[Array, "r p"]:
        known = given.whiten(sections[:size])
        return jnp.concatenate([known, found.whiten(sections[size:] - cross.T @ known)])

    coefficients = jnp.concatenate([given.coefficients - root.T @ (cross @ found.coefficients), found.coefficients])
    return dataclasses.replace(found, points=Combination((first, second)), coefficients=coefficients, whiten=whiten)


def condition_by_inducing(
    kernel: AbstractKernel, inducing: Points, points: Points, likelihood: GaussianLikelihood, mean: PriorMean = 0.0
) -> ConditionedGP:
    r"""Condition a Gaussian process on observations with Gaussian noise through its values at inducing points.

    The law of these values is the one that attains the bound of `kpp.gp.InducingBound`. With the features
    :math:`\phi(x) = L^{-1} k(Z, x)`, :math:`L L^\top = K_{ww}`, and the law :math:`N(\beta, A^{-1})` of their weights,

    .. math:: f \mid D \sim GP\bigl(m(x) + \phi(x)^\top \beta,\; k(x, x') - \phi(x)^\top (I - A^{-1})\, \phi(x')\bigr),
        \qquad A = I + \Phi^\top D^{-1} \Phi

    Time is of order n w^2, memory n w. `held_out` is what fits without the observation give, in closed form. In draws
    at the observations, what the inducing points do not explain is independent.

    References:
        Titsias, Variational learning of inducing variables in sparse Gaussian processes, 2009, equations (6) and (10).
    """
    whitener, features, rest = inducing_features(kernel, inducing, points)
    at_observations = jnp.asarray(evaluate_mean(mean, points))
    system, weights, coefficients = fit_features(features, likelihood, at_observations)
    values, vectors = jnp.linalg.eigh(features.T @ (system.multiplicity[:, None] * features))
    values = jnp.maximum(values, 0.0)  # rounding may make eigenvalues negative
    known = (vectors * jnp.sqrt(values / (values + system.ridge))[None]).T

    def held_out() -> tuple[Array, Array]:
        predicted, variance = leave_one_out_of_features(system, features @ weights + at_observations, coefficients)
        return predicted, variance + rest

    def at_points() -> LatentPredictive:
        law = law_of_features(system, weights, features, at_observations)
        return law._replace(variance=law.variance + rest, rest=rest)

    def whiten(sections: Array) -> Array:
        return known @ (whitener @ sections)

    return ConditionedGP(kernel, inducing, whitener.T @ weights, whiten, likelihood, mean, held_out, at_points)


def condition_on_values(
    kernel: AbstractKernel,
    points: Points,
    white: Float[AnyArray, " n"],
    likelihood: AbstractPointwiseLikelihood,
    mean: PriorMean = 0.0,
    *,
    observed: Points | None = None,
) -> ConditionedGP:
    r"""Condition a Gaussian process on its values at points, :math:`f = m + L w`, :math:`L L^\top = K`.

    Args:
        kernel: k.
        points: The n points, (n, d), or a batch of inputs of the kernel.
        white: w, the whitened values, (n,).
        likelihood: The likelihood of observations.
        mean: The prior mean, a number or a function from points to one number per point.
        observed: The points of the observations, if `points` are inducing points. None if `points` are those of the
            observations, so that their latent values are known. In draws at the points of the observations, what the
            inducing points do not explain is independent.
    """
    factor = prior_factor(kernel.gram(points))
    values = factor @ white

    def known() -> tuple[Array, None]:
        return evaluate_mean(mean, points) + values, None

    def at_points() -> LatentPredictive:
        law = moments_in_blocks(found.moments, observed)
        return law._replace(root=jnp.zeros((0, law.mean.shape[0]), law.mean.dtype), rest=law.variance)

    coefficients = linalg.cho_solve(factor, values)
    laws = (known, None) if observed is None else (None, at_points)
    found = ConditionedGP(kernel, points, coefficients, _by(factor), likelihood, mean, *laws)
    return found


def _law_at_observations(
    y: Float[Array, " n"], noise: Float[AnyArray, "*n"], coefficients: Float[Array, " n"], factor: Float[Array, "n n"]
) -> LatentPredictive:
    r"""Return the law of the latent values at n observations with Gaussian noise of variances D.

    .. math:: f \mid y \sim N(y - D \alpha,\; D - D C^{-1} D), \qquad C = K + D

    Equal to :math:`K - K C^{-1} K`, but without the two products, and more accurate where D is small.
    """
    variances = jnp.broadcast_to(noise, y.shape)
    reduction = variances[:, None] * linalg.cho_inverse(factor) * variances[None]
    covariance = linalg.add_diagonal(-reduction, variances)  # K - K C^-1 K = D - D C^-1 D, for C = K + D
    return LatentPredictive(y - variances * coefficients, jnp.maximum(jnp.diagonal(covariance), 0.0), covariance)


def _by(factor: Float[Array, "n n"]) -> Callable[[Array], Array]:
    return lambda sections: linalg.solve_lower(factor, sections)
