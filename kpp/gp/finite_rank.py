r"""Gaussian processes whose kernel has finitely many features, conditioned in the space of the features.

The function is :math:`f = m + \phi(x)^\top w` with :math:`w \sim N(0, I_q)`. After n observations with Gaussian noise,

.. math:: w \mid y \sim N(\beta, \sigma^2 M^{-1}), \qquad M = \sigma^2 I_q + \Phi^\top \Phi, \qquad
    \beta = M^{-1} \Phi^\top (y - m),

so that time is of order n q^2 and memory of order n q, where the kernel matrix would need n^3 and n^2.
"""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp import linalg
from kpp.functions import RKHSFunction
from kpp.gp.conditioned import PriorMean, constant_mean, evaluate_mean
from kpp.gp.gaussian import LatentPredictive
from kpp.gp.likelihoods import GaussianLikelihood
from kpp.kernels import AbstractKernel
from kpp.posteriors import GPPosterior
from kpp.typing import Leaf, Points
from kpp.validation import is_concrete

__all__ = ["FeatureGP", "condition_features", "few_features"]


class FeatureGP(eqx.Module):
    r"""The posterior of a function of finitely many features, a `kpp.gp.ConditionedProcess`; `condition` builds it.

    Args:
        kernel: k, whose `finite_features` are :math:`\phi`.
        points: The n points X, (n, d) or a batch of inputs of the kernel.
        system: The factor of M, with the features of the points.
        coefficients: :math:`\alpha = (K + \sigma^2 I)^{-1} (y - m)`, (n,).
        weights: :math:`\beta`, (q,).
        likelihood: The likelihood, whose noise variance is :math:`\sigma^2`.
        prior_mean: m.
        held_out: Leave-one-out in closed form.
        at_points: The law at the points of the observations.
    """

    kernel: AbstractKernel
    points: Points
    system: linalg.FeatureRidge
    coefficients: Float[Array, " n"]
    weights: Float[Array, " q"]
    likelihood: GaussianLikelihood
    prior_mean: PriorMean
    held_out: Callable[[], tuple[Array, Array | None]] | None
    at_points: Callable[[], LatentPredictive] | None

    def moments(self, x: Points, *, covariance: bool = False) -> LatentPredictive:
        """Return the law of the function's values; see `ConditionedProcess.moments`."""
        law = self.joint(x)
        assert law.root is not None
        return law._replace(covariance=law.root.T @ law.root) if covariance else law

    def joint(self, x: Points) -> LatentPredictive:
        r"""Return the law with its root :math:`\sigma L^{-1} \phi(x)`, :math:`L L^\top = M`."""
        features = self.kernel.finite_features(x)
        assert features is not None
        return self._law(features, evaluate_mean(self.prior_mean, x))

    def function(self) -> RKHSFunction:
        """Return the posterior mean; see `ConditionedProcess.function`."""
        return RKHSFunction(self.kernel, self.points, self.coefficients, constant_mean(self.prior_mean))

    def posterior(self) -> GPPosterior:
        r"""Return the law with a matrix root of q columns.

        With :math:`\Phi^\top \Phi = U \Lambda U^\top` it is :math:`R = \Phi U (\Lambda (\Lambda + \sigma^2 I))^{-1/2}`,
        without the directions in which the points have no features.
        """
        features = self.system.features
        values, vectors = jnp.linalg.eigh(features.T @ features)
        known = values > values.shape[0] * jnp.finfo(values.dtype).eps * values[-1]
        positive = jnp.where(known, values, 1.0)
        scale = jnp.where(known, 1 / jnp.sqrt(positive * (positive + self.system.ridge)), 0.0)
        return GPPosterior(self.function(), features @ (vectors * scale[None]))

    def _law(self, features: Float[Array, "p q"], mean: Array) -> LatentPredictive:
        root = jnp.sqrt(self.system.ridge) * linalg.solve_lower(self.system.factor, features.T)
        return LatentPredictive(features @ self.weights + mean, jnp.sum(root**2, axis=0), None, root)


def few_features(kernel: AbstractKernel, x: Points, noise_variance: Leaf) -> Float[Array, "n q"] | None:
    """Return the finite features of a kernel at n points if there are fewer than n and there is noise, else None.

    Args:
        kernel: The kernel.
        x: The points.
        noise_variance: The variance of the noise; without any noise the features do not determine the process.
    """
    features = kernel.finite_features(x)
    noise = jnp.asarray(noise_variance)
    if features is None or features.shape[1] >= features.shape[0] or noise.ndim != 0:
        return None
    return None if is_concrete(noise) and float(noise) == 0 else features


def condition_features(
    kernel: AbstractKernel,
    points: Points,
    features: Float[Array, "n q"],
    likelihood: GaussianLikelihood,
    mean: PriorMean,
) -> FeatureGP:
    """Condition a Gaussian process of finitely many features on observations; see `kpp.gp.condition`."""
    at_observations = evaluate_mean(mean, points)
    residual = likelihood.y - at_observations
    system = linalg.FeatureRidge.create(features, likelihood.noise_variance)

    def leave_one_out() -> tuple[Array, Array]:
        leverages = system.leverages()
        held_out = likelihood.y - system.leave_one_out(residual)
        return held_out, system.ridge * leverages / (1 - leverages)

    found = FeatureGP(
        kernel,
        points,
        system,
        system.solve(residual),
        linalg.cho_solve(system.factor, features.T @ residual),
        likelihood,
        mean,
        leave_one_out,
        lambda: found._law(features, at_observations),
    )
    return found
