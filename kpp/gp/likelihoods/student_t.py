r"""Numbers with noise of Student's t, which keeps outliers from bending the function."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Array, Float

from kpp.gp.integrals.expectations import expected_log_one_plus_square, student_t_marginal
from kpp.gp.likelihoods.base import AbstractPointwiseLikelihood, observed_field
from kpp.kernels import parameter
from kpp.kernels.toolkit import check_positive
from kpp.storage.serialization import data_class
from kpp.typing import AnyArray, Leaf, RngKey


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
