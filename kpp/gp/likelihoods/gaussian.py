"""Numbers with Gaussian noise, of one variance or of one variance for each row."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.gp.integrals.links import Derivatives
from kpp.gp.laws.gaussian_laws import LatentPredictive, draw_joint
from kpp.gp.laws.normal import normal_log_density
from kpp.gp.likelihoods.base import AbstractPointwiseLikelihood, observed_field
from kpp.kernels import check_non_negative, parameter
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
