"""Numbers with noise.

Gaussian noise has one variance, one for each row, or a variance that is a function of the point. Noise of Student's t
keeps outliers from bending the function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Array, Float

from kpp.foundation.validation import as_targets
from kpp.gp.integrals.expectations import expected_log_one_plus_square, log_mixture_of_noises, student_t_marginal
from kpp.gp.integrals.links import Derivatives
from kpp.gp.laws.gaussian_laws import LatentPredictive, draw_joint
from kpp.gp.laws.normal import LOG_TWO_PI, normal_log_density
from kpp.gp.likelihoods.base import AbstractPointwiseLikelihood, observed_field
from kpp.gp.likelihoods.multi_latent import AbstractMultiLatentLikelihood, Latents
from kpp.kernels import check_non_negative, parameter
from kpp.kernels.toolkit import check_positive
from kpp.storage.serialization import data_class
from kpp.typing import AnyArray, Leaf, RngKey


@data_class
class GaussianLikelihood(AbstractPointwiseLikelihood):
    r"""Numbers with Gaussian noise, :math:`y_i \sim N(f_i, \sigma^2 + s_i)`.

    Args:
        y: The observations, (n,), or None.
        noise_variance: :math:`\sigma^2`, a number or a prior, the variance of the noise of a new observation.
        row_variances: s, (n,), what the variance of each of the n observations has in addition; None for nothing.
    """

    per_observation: ClassVar[tuple[str, ...]] = ("y", "row_variances")

    y: Any = observed_field()
    noise_variance: Leaf = eqx.field(converter=parameter("noise_variance"), default=1.0)
    row_variances: Any = observed_field("row_variances")

    def __check_init__(self) -> None:
        check_non_negative(self.noise_variance, "noise_variance")

    @property
    def variances(self) -> Float[Array, "*n"]:
        """The variances of the n observations, (n,), or one number if all are equal."""
        return self.noise_variance if self.row_variances is None else self.noise_variance + self.row_variances

    def log_density(self, f: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        return normal_log_density(self.y, jnp.asarray(f), self.variances)

    def derivatives(self, f: Float[AnyArray, " n"]) -> Derivatives:
        precision = jnp.broadcast_to(1.0 / self.variances, jnp.shape(f))
        return Derivatives((self.y - f) * precision, precision, jnp.zeros_like(precision))

    def draw(self, rng_key: RngKey, f: Float[AnyArray, "*p"]) -> Float[Array, "*p"]:
        f = jnp.asarray(f)
        return f + jnp.sqrt(self.noise_variance) * jax.random.normal(rng_key, f.shape, f.dtype)

    def draw_observed(self, rng_key: RngKey, f: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        f = jnp.asarray(f)
        return f + jnp.sqrt(self.variances) * jax.random.normal(rng_key, f.shape, f.dtype)

    def predict(self, mean: Float[AnyArray, " p"], variance: Float[AnyArray, " p"]) -> dict[str, Float[Array, " p"]]:
        """Return the ``noise_variance``, repeated for each point."""
        return {"noise_variance": jnp.broadcast_to(self.noise_variance, mean.shape)}

    def draw_predictive(self, rng_key: RngKey, latent: LatentPredictive, scale: Float[AnyArray, ""]) -> Array:
        return draw_joint(rng_key, latent, scale, self.noise_variance)  # one draw, of values with noise

    def draw_again(self, rng_key: RngKey, latent: LatentPredictive, scale: Float[AnyArray, ""]) -> Array:
        return draw_joint(rng_key, latent, scale, self.variances)

    def marginal_log_density(self, mean: Float[AnyArray, " n"], variance: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        return normal_log_density(self.y, jnp.asarray(mean), variance + self.variances)

    def expected_log_density(self, mean: Float[AnyArray, " n"], variance: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        return self.log_density(mean) - 0.5 * jnp.asarray(variance) / self.variances  # E (y - f)^2 = (y - mu)^2 + v


@data_class
class StudentTLikelihood(AbstractPointwiseLikelihood):
    r"""Numbers with noise of Student's t, :math:`(y_i - f_i) / s \sim t_\nu`; not log-concave.

    Args:
        y: The observations, (n,), or None.
        scale: s, in units of y, positive: a number, a prior, or one number per observation, (n,).
        degrees_of_freedom: :math:`\nu`, positive: a number or a prior.
    """

    log_concave: ClassVar[bool] = False
    per_observation: ClassVar[tuple[str, ...]] = ("y", "scale")

    y: Any = observed_field()
    scale: Leaf = eqx.field(converter=parameter("scale"), default=1.0)
    degrees_of_freedom: Leaf = eqx.field(converter=parameter("degrees_of_freedom"), default=4.0)

    def __check_init__(self) -> None:
        check_positive(self.scale, "scale")
        check_positive(self.degrees_of_freedom, "degrees_of_freedom")

    def log_density(self, f: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        return self._log_density(jnp.log1p(jnp.square(self.y - f) / self._width))

    def draw(self, rng_key: RngKey, f: Float[AnyArray, "*p"]) -> Float[Array, "*p"]:
        f = jnp.asarray(f)
        return f + self.scale * jax.random.t(rng_key, self.degrees_of_freedom, f.shape, f.dtype)

    def predict(self, mean: Float[AnyArray, " p"], variance: Float[AnyArray, " p"]) -> dict[str, Float[Array, " p"]]:
        r"""Return the ``noise_variance``, :math:`s^2 \nu / (\nu - 2)`, which is infinite for :math:`\nu \le 2`."""
        freedom = jnp.asarray(self.degrees_of_freedom)
        finite = freedom > 2.0
        noise = jnp.where(finite, self._width / jnp.where(finite, freedom - 2.0, 1.0), jnp.inf)
        return {"noise_variance": jnp.broadcast_to(noise, jnp.shape(mean))}

    def marginal_log_density(self, mean: Float[AnyArray, " n"], variance: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        return student_t_marginal(self.y - mean, variance, self.scale, self.degrees_of_freedom)

    def expected_log_density(self, mean: Float[AnyArray, " n"], variance: Float[AnyArray, " n"]) -> Float[Array, " n"]:
        width = jnp.broadcast_to(self._width, jnp.shape(mean))
        # E log(1 + g^2) is the only integral.
        return self._log_density(expected_log_one_plus_square((self.y - mean) / jnp.sqrt(width), variance / width))

    @property
    def _width(self) -> Array:
        return self.degrees_of_freedom * jnp.square(self.scale)

    def _log_density(self, log_excess: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return log densities, which are linear in log(1 + residual^2 / (nu s^2))."""
        half = 0.5 * jnp.asarray(self.degrees_of_freedom)
        norm = gammaln(half + 0.5) - gammaln(half) - 0.5 * jnp.log(jnp.pi * self._width)
        return norm - (half + 0.5) * log_excess


@data_class
class HeteroscedasticLikelihood(AbstractMultiLatentLikelihood):
    r"""Numbers with Gaussian noise of varying size, :math:`y_i \sim N(f_{i1},\, e^{f_{i2}})`.

    The first latent value is the mean, the second the logarithm of the variance of the noise.

    Args:
        y: The observations, (n,), or None.
    """

    y: Any = observed_field()

    @property
    def num_latents(self) -> int:
        """2, the mean and the logarithm of the variance of the noise."""
        return 2

    def read_targets(self, y: object, name: str = "y") -> tuple[HeteroscedasticLikelihood, Float[Array, " n"]]:
        return self, as_targets(y, name=name)

    def coordinates(self) -> dict[str, Sequence[Any]]:
        return {"latent": ["mean", "log_noise_variance"]}

    def log_density(self, f: Latents) -> Float[Array, " n"]:
        f = jnp.asarray(f)
        return -0.5 * (LOG_TWO_PI + f[:, 1] + jnp.square(self.y - f[:, 0]) * jnp.exp(-f[:, 1]))

    def expected_log_density(self, mean: Latents, variance: Latents) -> Float[Array, " n"]:
        r"""Return :math:`-\tfrac12 (\log 2\pi + \mu_2 + ((y - \mu_1)^2 + v_1)\, e^{-\mu_2 + v_2 / 2})`."""
        mean, variance = jnp.asarray(mean), jnp.asarray(variance)
        precision = jnp.exp(0.5 * variance[:, 1] - mean[:, 1])
        return -0.5 * (LOG_TWO_PI + mean[:, 1] + (jnp.square(self.y - mean[:, 0]) + variance[:, 0]) * precision)

    def marginal_log_density(self, mean: Latents, variance: Latents) -> Float[Array, " n"]:
        mean, variance = jnp.asarray(mean), jnp.asarray(variance)
        # The mean integrates in closed form, the variance by quadrature.
        return log_mixture_of_noises(self.y - mean[:, 0], variance[:, 0], mean[:, 1], variance[:, 1])

    def draw(self, rng_key: RngKey, f: Float[AnyArray, "p l"]) -> Float[Array, " p"]:
        f = jnp.asarray(f)
        return f[:, 0] + jnp.exp(0.5 * f[:, 1]) * jax.random.normal(rng_key, f.shape[:1], f.dtype)

    def predict(self, mean: Float[AnyArray, "p l"], variance: Float[AnyArray, "p l"]) -> dict[str, Array]:
        """Return the ``noise_variance``, its mean under the law of the second latent value."""
        return {"noise_variance": jnp.exp(mean[:, 1] + 0.5 * jnp.asarray(variance)[:, 1])}
