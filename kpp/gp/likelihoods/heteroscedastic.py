r"""Numbers whose noise has a variance that is a function of the point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.foundation.validation import as_targets
from kpp.gp.integrals.expectations import log_mixture_of_noises
from kpp.gp.laws.normal import LOG_TWO_PI
from kpp.gp.likelihoods.base import observed_field
from kpp.gp.likelihoods.multi_latent import AbstractMultiLatentLikelihood, Latents
from kpp.storage.serialization import data_class
from kpp.typing import AnyArray, RngKey


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
