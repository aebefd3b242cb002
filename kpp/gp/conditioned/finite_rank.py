r"""Gaussian processes whose kernel has finitely many features, conditioned in the space of the features.

The function is :math:`f = m + \phi(x)^\top w` with :math:`w \sim N(0, I_q)`. After n observations with Gaussian noise
of variance c,

.. math:: w \mid y \sim N(\beta, c M^{-1}), \qquad M = c I_q + \Phi^\top R \Phi, \qquad
    \beta = M^{-1} \Phi^\top R (y - m), \quad R = I_n,

so that time is of order n q^2 and memory of order n q, where the kernel matrix would need n^3 and n^2. Where each
observation has a variance of its own, c = 1 and R is the diagonal matrix of the inverse variances; for any other
likelihood, c = 1 and R holds the curvatures of Laplace's approximation (`kpp.gp.laplace.by_features`).
"""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp import linalg
from kpp.foundation.validation import is_concrete
from kpp.functionals import GPPosterior
from kpp.functions import RKHSFunction
from kpp.gp.conditioned.process import PriorMean, evaluate_mean, posterior_by_root
from kpp.gp.laplace.by_features import FeatureCovariance, feature_posterior
from kpp.gp.laws.gaussian_laws import LatentPredictive
from kpp.gp.likelihoods.base import AbstractPointwiseLikelihood
from kpp.gp.likelihoods.gaussian import GaussianLikelihood
from kpp.kernels import AbstractKernel
from kpp.linalg.toolkit import FeatureRidge
from kpp.typing import Leaf, Points


class FeatureGP(eqx.Module):
    r"""The posterior of a function of finitely many features, a `kpp.gp.ConditionedProcess`; `condition` builds it.

    Args:
        kernel: k, whose `finite_features` are :math:`\phi`.
        points: The n points X, (n, d) or a batch of inputs of the kernel.
        system: The factor of M, with the features of the points, c and R.
        weights: :math:`\beta`, (q,).
        coefficients: :math:`\alpha`, (n,), for which :math:`\beta = \Phi^\top \alpha`.
        likelihood: The likelihood.
        prior_mean: m.
        held_out: Leave-one-out in closed form.
        at_points: The law at the points of the observations.
    """

    kernel: AbstractKernel
    points: Points
    system: FeatureRidge
    weights: Float[Array, " q"]
    coefficients: Float[Array, " n"]
    likelihood: AbstractPointwiseLikelihood
    prior_mean: PriorMean
    held_out: Callable[[], tuple[Array, Array | None]] | None
    at_points: Callable[[], LatentPredictive] | None

    def moments(self, x: Points, *, covariance: bool = False) -> LatentPredictive:
        """Return the law of the function's values; see `ConditionedProcess.moments`."""
        law = self.joint(x)
        assert law.root is not None
        return law._replace(covariance=law.root.T @ law.root) if covariance else law

    def joint(self, x: Points) -> LatentPredictive:
        r"""Return the law with its root :math:`\sqrt c L^{-1} \phi(x)`, :math:`L L^\top = M`."""
        features = self.kernel.finite_features(x)
        assert features is not None
        return law_of_features(self.system, self.weights, features, evaluate_mean(self.prior_mean, x))

    def function(self) -> RKHSFunction:
        """Return the posterior mean; see `ConditionedProcess.function`."""
        return RKHSFunction(self.kernel, self.points, self.coefficients) + self.prior_mean

    def posterior(self) -> GPPosterior:
        r"""Return the law with a matrix root of q columns.

        With :math:`\Phi^\top R \Phi = U \Lambda U^\top` it is :math:`R \Phi U (\Lambda (\Lambda + c I))^{-1/2}`,
        without the directions in which the points have no features.
        """
        features, rows = self.system.features, self.system.multiplicity
        weighted = rows[:, None] * features
        values, vectors = jnp.linalg.eigh(features.T @ weighted)
        # The threshold of numpy.linalg.matrix_rank.
        known = values > values.shape[0] * jnp.finfo(values.dtype).eps * values[-1]
        positive = jnp.where(known, values, 1.0)
        scale = jnp.where(known, 1 / jnp.sqrt(positive * (positive + self.system.ridge)), 0.0)
        return posterior_by_root(self.function(), weighted @ (vectors * scale[None]))


def few_features(kernel: AbstractKernel, x: Points, noise_variance: Leaf = 1.0) -> Float[Array, "n q"] | None:
    """Return the finite features of a kernel at n points if there are fewer than n and there is noise, else None.

    Args:
        kernel: The kernel.
        x: The points.
        noise_variance: The variance of the noise, a number or (n,), for Gaussian observations; where there is no noise,
            the features do not determine the process.
    """
    found = jax.eval_shape(lambda points: kernel.finite_features(points), x)  # the shape decides: nothing is computed
    if found is None or found.shape[1] >= found.shape[0]:
        return None
    without_noise = is_concrete(noise_variance) and bool(np.any(np.asarray(noise_variance) == 0))
    return None if without_noise else kernel.finite_features(x)


def prior_covariance(kernel: AbstractKernel, x: Points) -> Float[Array, "n n"] | FeatureCovariance:
    """Return the covariance of the values at n points, by features if the kernel has fewer than n."""
    features = few_features(kernel, x)
    return kernel.gram(x) if features is None else FeatureCovariance(features)


def condition_features(
    kernel: AbstractKernel,
    points: Points,
    features: Float[Array, "n q"],
    likelihood: AbstractPointwiseLikelihood,
    mean: PriorMean,
) -> FeatureGP:
    """Condition a Gaussian process of finitely many features on observations; see `kpp.gp.condition`."""
    at_observations = jnp.asarray(evaluate_mean(mean, points))
    system, weights, coefficients = fit_features(features, likelihood, at_observations)

    def held_out() -> tuple[Array, Array]:
        return leave_one_out_of_features(system, features @ weights + at_observations, coefficients)

    def at_points() -> LatentPredictive:
        return law_of_features(system, weights, features, at_observations)

    return FeatureGP(kernel, points, system, weights, coefficients, likelihood, mean, held_out, at_points)


def fit_features(
    features: Float[Array, "n q"], likelihood: AbstractPointwiseLikelihood, mean: Array
) -> tuple[FeatureRidge, Float[Array, " q"], Float[Array, " n"]]:
    r"""Return the system M, the weights :math:`\beta` and the coefficients :math:`\alpha` of n observations."""
    if not isinstance(likelihood, GaussianLikelihood):
        weights, coefficients, curvature = feature_posterior(likelihood, features, mean)
        return FeatureRidge.create(features, 1.0, curvature), weights, coefficients
    noise, residual = likelihood.variances, likelihood.y - mean
    # Variances of their own enter as multiplicities 1 / D, with c = 1.
    ridge, rows = (noise, None) if noise.ndim == 0 else (jnp.ones((), noise.dtype), 1 / noise)
    system = FeatureRidge.create(features, ridge, rows)
    weights = linalg.cho_solve(system.factor, features.T @ (system.multiplicity * residual))
    return system, weights, system.solve(residual)


def law_of_features(
    system: FeatureRidge, weights: Float[Array, " q"], features: Float[Array, "p q"], mean: Array
) -> LatentPredictive:
    r"""Return the law of the function at p points with its root :math:`\sqrt c L^{-1} \phi(x)`."""
    root = jnp.sqrt(system.ridge) * linalg.solve_lower(system.factor, features.T)
    return LatentPredictive(features @ weights + mean, jnp.sum(root**2, axis=0), None, root)


def leave_one_out_of_features(
    system: FeatureRidge, fitted: Float[Array, " n"], coefficients: Float[Array, " n"]
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    r"""Return mean and variance of each latent value given the other observations.

    With the variance :math:`v_i = c\, \phi_i^\top M^{-1} \phi_i` of the latent value given all observations and its
    leverage :math:`h_i = r_i\, \phi_i^\top M^{-1} \phi_i`, the variance is :math:`v_i / (1 - h_i)` and the mean
    :math:`f_i - \alpha_i v_i / (1 - h_i)`. This is exact for Gaussian noise, else it is Laplace's cavity.
    """
    sections = jnp.sum(system.coordinates(system.features).T * system.features, axis=1)
    variance = system.ridge * sections / (1 - system.multiplicity * sections)
    return fitted - coefficients * variance, variance
