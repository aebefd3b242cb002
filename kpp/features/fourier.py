"""Random Fourier features of stationary kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.features.base import AbstractFeatureKernel
from kpp.foundation.supports import is_prior
from kpp.kernels import RBF, AbstractKernel, Matern, Matern12, Matern32, Matern52, check_non_negative, parameter
from kpp.kernels.toolkit import check_positive, point_rows
from kpp.runtime.memory import check_count
from kpp.runtime.random import standard_normal
from kpp.typing import Leaf, RngKey

# A Matérn kernel's spectral density is Student's t with twice its smoothness in degrees of freedom.
_DEGREES: dict[type, float] = {Matern12: 1.0, Matern32: 3.0, Matern52: 5.0}


class RandomFourier(AbstractFeatureKernel):
    r"""A stationary kernel as a mean of cosines at random frequencies.

    .. math::

        k(x, x') = \frac{\sigma^2}{q} \sum_{r=1}^q \cos\Big(\sum_j \omega_{rj} (x_j - x'_j)/\ell_j\Big), \qquad
        \phi(x) = \frac{\sigma}{\sqrt q} \bigl(\cos\langle\omega_r, x/\ell\rangle,
        \sin\langle\omega_r, x/\ell\rangle\bigr)_{r}

    Each frequency has a cosine and a sine, so that :math:`k(x, x) = \sigma^2` exactly. Build it with `approximate`,
    which draws the frequencies for a kernel; they are fixed from then on, while lengthscale and variance may be priors.

    Args:
        frequencies: :math:`\omega`, (q, d), for the lengthscale 1.
        lengthscale: :math:`\ell`, in units of x: one number or shape (d,), positive, or a prior.
        variance: :math:`\sigma^2`, a number of at least 0, or a prior.

    References:
        Rahimi and Recht, Random features for large-scale kernel machines, 2007, algorithm 1; Sutherland and Schneider,
        On the error of random Fourier features, 2015, equation (2), for the pairs.
    """

    #: The kernels whose spectral density is known, which `approximate` takes.
    approximated: ClassVar[tuple[type[RBF | Matern | Matern12 | Matern32 | Matern52], ...]] = (RBF, Matern, *_DEGREES)

    frequencies: Leaf = eqx.field(converter=point_rows("frequencies"))
    lengthscale: Leaf = eqx.field(converter=parameter("lengthscale"), default=1.0)
    variance: Leaf = eqx.field(converter=parameter("variance"), default=1.0)

    def __check_init__(self) -> None:
        check_positive(self.lengthscale, "lengthscale")
        check_non_negative(self.variance, "variance")

    @classmethod
    def approximate(
        cls, rng_key: RngKey, kernel: AbstractKernel, num_frequencies: int, num_features: int
    ) -> RandomFourier:
        """Draw the features of a kernel.

        Args:
            rng_key: A JAX random key.
            kernel: An RBF or a Matern kernel. Priors on lengthscale and variance become priors of the returned kernel;
                the `nu` of a Matern kernel is a number.
            num_frequencies: How many frequencies to draw; there are twice as many Fourier features.
            num_features: d, the number of columns of the points.

        Returns:
            The kernel of the features; its error is of the order of one over the root of `num_frequencies`.

        Raises:
            TypeError: If the spectral density of the kernel is not known here, or its `nu` is a prior.
        """
        if not isinstance(kernel, cls.approximated):
            names = ", ".join(each.__name__ for each in cls.approximated)
            raise TypeError(f"`kernel` must be one of {names}, got {type(kernel).__name__}")
        if isinstance(kernel, Matern) and is_prior(kernel.nu):
            raise TypeError("the `nu` of a Matern `kernel` must be a number, because the frequencies depend on it")
        check_count(num_frequencies, "num_frequencies", num_features)
        normal_key, scale_key = jax.random.split(rng_key)
        frequencies = standard_normal(normal_key, (num_frequencies, num_features))
        degrees = 2 * kernel.nu if isinstance(kernel, Matern) else _DEGREES.get(type(kernel))
        if degrees is not None:
            chi_square = 2 * jax.random.gamma(scale_key, degrees / 2, (num_frequencies, 1))
            frequencies = frequencies * jnp.sqrt(degrees / chi_square)
        return cls(frequencies, kernel.lengthscale, kernel.variance)

    def feature_map(self, x: Array) -> Float[Array, "n q2"]:
        """Return the cosines, then the sines, for points (n, d)."""
        count, num_features = self.frequencies.shape
        if x.ndim != 2 or x.shape[1] != num_features:
            raise ValueError(f"`frequencies` are for {num_features} features, got points `x` of shape {x.shape}")
        lengthscale = jnp.broadcast_to(self.lengthscale, (num_features,))[None, :]
        phases = (x / lengthscale) @ self.frequencies.T
        return jnp.sqrt(self.variance / count) * jnp.concatenate([jnp.cos(phases), jnp.sin(phases)], axis=1)

    def split_scale(self) -> tuple[Leaf, AbstractKernel]:
        return self.variance, RandomFourier(self.frequencies, self.lengthscale)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractKernel, Any]]:
        x = jax.random.normal(rng_key, (6, 3))
        yield cls.approximate(rng_key, RBF(jnp.array([0.7, 1.0, 2.0]), 1.3), 4, 3), x
