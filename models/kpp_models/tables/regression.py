r"""Gaussian-process regression, exact, with priors on the kernel, the noise and the mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpyro
from jaxtyping import Array, Float
from numpyro import distributions as dist

from kpp import linalg
from kpp.functions import RKHSFunction
from kpp.gp import (
    GaussianProcessMarginal,
    draw_gaussian,
    example_points,
    gaussian_loo_log_density,
    latent_predictive,
    read_data,
    refuse_below,
    scalar_field,
)
from kpp.inference import AbstractModel
from kpp.kernels import RBF, AbstractKernel, Matern52
from kpp.posteriors import GPPosterior
from kpp.priors import sample as draw_priors
from kpp.priors import substitute
from kpp.tables import Schema
from kpp.typing import Leaf, RngKey
from kpp.validation import as_targets

__all__ = ["GPRegression", "gp_regression"]


def gp_regression(x: Array, y: Array | None, kernel: AbstractKernel, noise_variance: Leaf, mean: Leaf = 0.0) -> None:
    r"""Gaussian-process regression as an ordinary NumPyro model.

    .. math:: y \sim N(m 1,\; k(X, X) + \sigma^2 I)

    The sites are those of the priors in `kernel`, `noise_variance` and `mean` (``kernel.lengthscale``, ...) and the
    observed site ``y``, one vector.

    Args:
        x: The points, of shape (n, d).
        y: The targets, of shape (n,), or None to draw them.
        kernel: k, with or without priors among its leaves.
        noise_variance: :math:`\sigma^2`, the variance of the observation noise, a number or a prior.
        mean: m, the prior mean, a number or a prior.
    """
    kernel = draw_priors("kernel", kernel)
    noise_variance = draw_priors("noise_variance", noise_variance)
    mean = draw_priors("mean", mean)
    numpyro.sample("y", GaussianProcessMarginal(mean, kernel.gram(x), noise_variance), obs=y)


class _Draw(NamedTuple):
    """One draw of the hyperparameters and what follows: y less its mean, and the covariance of y."""

    kernel: AbstractKernel
    noise_variance: Array
    mean: Array
    residual: Array
    covariance: Array


class GPRegression(AbstractModel):
    r"""Exact Gaussian-process regression.

    .. math:: y_i = f(x_i) + \epsilon_i, \qquad f \sim GP(m, k), \qquad \epsilon_i \sim N(0, \sigma^2)

    f is integrated out in closed form, so that inference sees the hyperparameters only. The pointwise log likelihood is
    leave-one-out, :math:`\log p(y_i \mid y_{-i}, \theta)`, in closed form.

    Args:
        kernel: k, with numbers or priors for leaves.
        noise_variance: :math:`\sigma^2`, in squared units of y; a number (at least 0) or a prior.
        mean: m, in units of y; a number or a prior.

    Raises:
        ValueError: If a number is not a scalar, not finite, or `noise_variance` is negative.

    References:
        Rasmussen and Williams (2006), algorithm 2.1 and section 5.4.
    """

    kernel: AbstractKernel
    noise_variance: Leaf = scalar_field("noise_variance")
    mean: Leaf = scalar_field("mean", default=0.0)

    def __check_init__(self) -> None:
        """Refuse a negative variance."""
        refuse_below(self.noise_variance, "noise_variance", zero_allowed=True)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[GPRegression, Array, Array]]:
        """Yield models with points and targets for the conformance suite."""
        x, y = example_points(rng_key)
        prior = dist.LogNormal(0.0, 0.5)
        yield cls(RBF(lengthscale=prior.expand([2]), variance=prior), noise_variance=dist.HalfNormal(1.0)), x, y
        yield cls(Matern52(1.0), noise_variance=prior, mean=dist.Normal(0.0, 1.0)), x, y + 3.0

    def prepare(self, x: Any, y: Any) -> tuple[GPRegression, dict[str, Any], Schema]:
        """Read the data; see `AbstractModel.prepare`."""
        return read_data(self, x, y, as_targets)

    def numpyro_model(self, x: Float[Array, "n d"], y: Float[Array, " n"] | None = None) -> None:
        """Be an ordinary NumPyro model, `gp_regression` with this kernel, noise and mean."""
        gp_regression(x, y, self.kernel, self.noise_variance, self.mean)

    def log_likelihood(self, sample: Mapping[str, Array], data: Mapping[str, Any]) -> dict[str, Array]:
        """Return the leave-one-out log likelihood of every target; see `AbstractModel.log_likelihood`."""
        draw = self._at(sample, data)
        return {"y": gaussian_loo_log_density(draw.residual, draw.covariance)}

    def predictive(
        self, sample: Mapping[str, Array], data: Mapping[str, Any], x: Float[Array, "p d"], *, covariance: bool = False
    ) -> dict[str, Array]:
        """Return mean, latent variance and noise variance at new points; see `AbstractModel.predictive`."""
        draw = self._at(sample, data)
        factor = linalg.cholesky(draw.covariance, what="the covariance matrix of `y`")
        latent = latent_predictive(
            draw.kernel,
            data["x"],
            x,
            draw.mean,
            linalg.cho_solve(factor, draw.residual),
            lambda cross: linalg.solve_lower(factor, cross),
            covariance=covariance,
        )
        noise = jnp.broadcast_to(draw.noise_variance, latent.mean.shape)
        result = {"mean": latent.mean, "latent_variance": latent.variance, "noise_variance": noise}
        return result | ({"latent_covariance": latent.covariance} if latent.covariance is not None else {})

    def draw_predictive(
        self, rng_key: RngKey, sample: Mapping[str, Array], data: Mapping[str, Any], x: Float[Array, "p d"]
    ) -> Float[Array, " p"]:
        """Draw new targets given the data, jointly at all points; see `AbstractModel.draw_predictive`."""
        found = self.predictive(sample, data, x, covariance=True)
        kernel = substitute("kernel", self.kernel, sample)
        covariance = linalg.add_diagonal(found["latent_covariance"], found["noise_variance"])
        return draw_gaussian(rng_key, found["mean"], covariance, jnp.mean(kernel.diagonal(x)))

    def function_draw(self, sample: Mapping[str, Array], data: Mapping[str, Any]) -> RKHSFunction:
        r"""Return the posterior mean function, :math:`\alpha = (K + \sigma^2 I)^{-1}(y - m)`, intercept m."""
        return self._function(self._at(sample, data), data)[0]

    def posterior_draw(self, sample: Mapping[str, Array], data: Mapping[str, Any]) -> GPPosterior:
        r"""Return the posterior of the function, :math:`R R^\top = (K + \sigma^2 I)^{-1}`."""
        mean, factor = self._function(self._at(sample, data), data)
        return GPPosterior(mean, linalg.solve_lower(factor, jnp.eye(mean.num_points, dtype=factor.dtype)).T)

    def _function(self, draw: _Draw, data: Mapping[str, Any]) -> tuple[RKHSFunction, Array]:
        """Return the posterior mean function and the factor of the covariance of y."""
        factor = linalg.cholesky(draw.covariance, what="the covariance matrix of `y`")
        return RKHSFunction(draw.kernel, data["x"], linalg.cho_solve(factor, draw.residual), draw.mean), factor

    def _at(self, sample: Mapping[str, Array], data: Mapping[str, Any]) -> _Draw:
        """Put the values of one draw in place."""
        kernel = substitute("kernel", self.kernel, sample)
        noise_variance = jnp.asarray(substitute("noise_variance", self.noise_variance, sample))
        mean = jnp.asarray(substitute("mean", self.mean, sample))
        covariance = linalg.add_diagonal(kernel.gram(data["x"]), noise_variance)
        return _Draw(kernel, noise_variance, mean, data["y"] - mean, covariance)
