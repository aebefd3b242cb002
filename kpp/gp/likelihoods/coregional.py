r"""Several outputs, each a mixture of latent values; entries may be missing."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp import linalg
from kpp.gp.laws.normal import LOG_TWO_PI
from kpp.gp.likelihoods.base import observed_field
from kpp.gp.likelihoods.multi_latent import AbstractMultiLatentLikelihood, Latents
from kpp.kernels import parameter
from kpp.kernels.toolkit import check_positive
from kpp.priors import leaf_shape
from kpp.storage.serialization import data_class
from kpp.typing import AnyArray, Leaf, RngKey


@data_class
class CoregionalLikelihood(AbstractMultiLatentLikelihood):
    r"""P outputs, each a mixture of L latent functions: :math:`y_{ip} \sim N(\sum_l W_{pl} f_{il},\, \sigma_p^2)`.

    With one kernel k for all latent functions, the outputs have the covariance :math:`(W W^\top)_{pq}\, k(x, x')`, the
    intrinsic model of coregionalization. An entry of y that is NaN is missing: it says nothing.

    Args:
        mixing: W, (P, L), numbers or a prior for them, such as ``Normal(0, 1).expand([P, L])``.
        noise_variance: :math:`\sigma^2`, positive: a number or a prior, for all outputs or one for each, (P,).
        y: The observations, (n, P), or None.
        outputs: The names of the outputs. By default those of the columns of a data frame, else numbers.

    References:
        Bonilla, Chai and Williams, Multi-task Gaussian process prediction, 2007, equation (1).
    """

    observation_dims: ClassVar[tuple[str, ...]] = ("output",)
    predictive_dims: ClassVar[dict[str, tuple[str, ...]]] = dict.fromkeys(
        ("output_mean", "output_variance", "noise_variance"), ("output",)
    )

    mixing: Leaf = eqx.field(converter=parameter("mixing"))
    noise_variance: Leaf = eqx.field(converter=parameter("noise_variance"), default=1.0)
    y: Any = observed_field()
    outputs: tuple[str, ...] | None = eqx.field(
        static=True, converter=lambda value: None if value is None else tuple(map(str, value)), default=None
    )

    def __check_init__(self) -> None:
        shape, noise = leaf_shape(self.mixing), leaf_shape(self.noise_variance)
        if len(shape) != 2 or 0 in shape:
            raise ValueError(f"`mixing` must have shape (P, L), outputs by latent functions, got shape {shape}")
        if noise not in ((), shape[:1]):
            raise ValueError(f"`noise_variance` must be one number or have shape ({shape[0]},), got shape {noise}")
        if self.outputs is not None and len(set(self.outputs)) != shape[0]:
            raise ValueError(f"`outputs` must be {shape[0]} different names, got {self.outputs!r}")
        check_positive(self.noise_variance, "noise_variance", infinity_allowed=False)

    @property
    def num_latents(self) -> int:
        return leaf_shape(self.mixing)[1]

    @property
    def mixing_matrix(self) -> Float[Array, "p l"]:
        return self.mixing

    @property
    def observation_shape(self) -> tuple[int, ...]:
        return leaf_shape(self.mixing)[:1]

    def read_targets(self, y: object, name: str = "y") -> tuple[CoregionalLikelihood, Float[Array, "n outputs"]]:
        """Read a table of numbers, NaN where an entry is missing, at least one number in each column."""
        values = (
            np.ma.filled(np.ma.asarray(y, dtype=float), np.nan) if not hasattr(y, "columns") else np.asarray(y, float)
        )
        if values.ndim != 2 or values.shape[1:] != self.observation_shape or not len(values):
            raise ValueError(
                f"`{name}` must have shape (n, {self.observation_shape[0]}), one column per row of `mixing`, got shape "
                f"{values.shape}"
            )
        if np.isinf(values).any():
            raise ValueError(f"`{name}` must be finite, or NaN where an entry is missing, got infinity")
        empty = np.flatnonzero(np.isnan(values).all(axis=0))
        if empty.size:
            raise ValueError(f"`{name}` must have a number in each column, got none in column {empty[0]}")
        named = self.outputs if self.outputs is not None else getattr(y, "columns", None)
        return dataclasses.replace(self, outputs=named), jnp.asarray(values)

    def coordinates(self) -> dict[str, Sequence[Any]]:
        return {} if self.outputs is None else {"output": list(self.outputs)}

    def log_density(self, f: Latents) -> Float[Array, " n"]:
        return self._expected(jnp.asarray(f) @ self.mixing.T, 0.0)

    def expected_log_density(self, mean: Latents, variance: Latents) -> Float[Array, " n"]:
        return self._expected(jnp.asarray(mean) @ self.mixing.T, jnp.asarray(variance) @ jnp.square(self.mixing).T)

    def marginal_log_density(self, mean: Latents, variance: Latents) -> Float[Array, " n"]:
        """Return the joint log density of the known entries of every row, in closed form."""
        known = ~jnp.isnan(self.y)
        residual = jnp.where(known, self.y - jnp.asarray(mean) @ self.mixing.T, 0.0)

        def of_row(residual: Array, variance: Array, known: Array) -> Array:
            covariance = linalg.add_diagonal((self.mixing * variance[None]) @ self.mixing.T, self._noise)
            both = known[:, None] & known[None]  # a missing entry becomes an independent one of variance 1
            factor = jnp.linalg.cholesky(jnp.where(both, covariance, jnp.eye(known.shape[0], dtype=covariance.dtype)))
            white = linalg.solve_lower(factor, residual)
            return -0.5 * (jnp.sum(known) * LOG_TWO_PI + white @ white) - jnp.sum(jnp.log(jnp.diagonal(factor)))

        return jax.vmap(of_row)(residual, jnp.asarray(variance), known)

    def draw(self, rng_key: RngKey, f: Float[AnyArray, "p l"]) -> Float[Array, "p outputs"]:
        mean = jnp.asarray(f) @ self.mixing.T
        return mean + jnp.sqrt(self._noise)[None] * jax.random.normal(rng_key, mean.shape, mean.dtype)

    def predict(self, mean: Float[AnyArray, "p l"], variance: Float[AnyArray, "p l"]) -> dict[str, Array]:
        """Return ``output_mean`` and ``output_variance`` of the functions without noise, and ``noise_variance``."""
        center = jnp.asarray(mean) @ self.mixing.T
        return {
            "output_mean": center,
            "output_variance": jnp.asarray(variance) @ jnp.square(self.mixing).T,
            "noise_variance": jnp.broadcast_to(self._noise[None], center.shape),
        }

    @property
    def _noise(self) -> Float[Array, " outputs"]:
        return jnp.broadcast_to(self.noise_variance, self.observation_shape)

    def _expected(self, center: Float[Array, "n outputs"], variance: AnyArray | float) -> Float[Array, " n"]:
        known, noise = ~jnp.isnan(self.y), self._noise[None]
        squares = jnp.square(jnp.where(known, self.y - center, 0.0)) + variance  # NaN here would reach the gradient
        return -0.5 * jnp.sum(jnp.where(known, LOG_TWO_PI + jnp.log(noise) + squares / noise, 0.0), axis=1)
