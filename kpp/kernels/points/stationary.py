r"""Stationary kernels: functions of the difference of two points.

RBF, Matern12, Matern32, Matern52 and RationalQuadratic depend on the distance in lengthscales,
:math:`r^2 = \sum_j (x_j - x'_j)^2 / \ell_j^2`, with one lengthscale for all features or one for each (ARD).
`kpp.kernels.points.distances` describes how the distances are computed. RBF is a product kernel, and so is Periodic.
"""
# No `from __future__ import annotations`: Equinox must see the annotation `AbstractVar` itself, not a string.

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp.foundation.validation import is_concrete
from kpp.kernels.base import AbstractKernel, AbstractScaledProduct, as_mask, split_variance
from kpp.kernels.checks import check_matrices, check_points, example_points
from kpp.kernels.parameters import check_non_negative, check_positive, parameter, per_feature, scalar, show
from kpp.kernels.points.distances import gram_distances, matern_12, matern_32, matern_52, squared_distances
from kpp.typing import Leaf, Numbers, RngKey


class AbstractStationary(AbstractKernel):
    r"""A kernel :math:`k(x, x') = \sigma^2 \kappa(r^2)` of the distance in lengthscales.

    The methods to write are `correlation`, the function :math:`\kappa`, and `examples`.
    """

    lengthscale: eqx.AbstractVar[Leaf]
    variance: eqx.AbstractVar[Leaf]

    @abstractmethod
    def correlation(self, squared_distance: Float[Array, "..."]) -> Float[Array, "..."]:
        r"""Return :math:`\kappa(r^2)`, elementwise, with :math:`\kappa(0) = 1`."""

    def evaluate(self, x1: Array, x2: Array) -> Float[Array, ""]:
        d = check_points(self, x1, x2)
        # Differences first: quotients far from the origin would be rounded.
        return self._of(jnp.sum(jnp.square((x1 - x2) / self._lengthscale(d))))

    def __call__(self, x1: Array, x2: Array) -> Float[Array, "n1 n2"]:
        lengthscale = self._lengthscale(check_matrices(self, x1, x2))
        return self._of(squared_distances(x1, x2, lengthscale, exact=not self._smooth()))

    def gram(self, x: Array) -> Float[Array, "n n"]:
        """Evaluate the kernel at every pair of n points (n, d); the distances on the diagonal are exactly 0."""
        return self._of(gram_distances(x, self._lengthscale(check_matrices(self, x, x)), exact=not self._smooth()))

    def split_scale(self) -> tuple[Leaf, AbstractKernel]:
        return split_variance(self)

    def _of(self, squared_distance: Float[Array, "..."]) -> Float[Array, "..."]:
        return scalar(self.variance, "variance") * self.correlation(squared_distance)

    def _lengthscale(self, num_features: int) -> Float[Array, " d"]:
        """Return one lengthscale per feature, or raise ValueError if the inverse of one overflows."""
        lengthscale = per_feature(self.lengthscale, "lengthscale", num_features)
        if is_concrete(lengthscale) and (np.asarray(lengthscale) < jnp.finfo(lengthscale.dtype).tiny).any():
            raise ValueError(
                f"`lengthscale` must be at least {jnp.finfo(lengthscale.dtype).tiny:.2g}, the smallest number of "
                f"{lengthscale.dtype}, the precision of the points; got {show(lengthscale)} in this precision"
            )
        return jnp.broadcast_to(lengthscale, (num_features,))

    def _smooth(self) -> bool:
        """Tell whether the correlation is smooth in the squared distance, and forgives it rounding errors near 0."""
        return True

    def __check_init__(self) -> None:
        check_positive(self.lengthscale, "lengthscale")
        check_non_negative(self.variance, "variance")

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractKernel, Any]]:
        x = example_points(rng_key, 3)
        yield cls(lengthscale=0.7, variance=1.3), x  # type: ignore[call-arg]
        yield cls(lengthscale=jnp.array([0.5, 1.0, 3.0])), x  # type: ignore[call-arg]


class RBF(AbstractStationary, AbstractScaledProduct):
    r"""The squared-exponential or Gaussian kernel, a product kernel.

    .. math:: k(x, x') = \sigma^2 \exp\Big(-\tfrac12 \sum_j (x_j - x'_j)^2 / \ell_j^2\Big)

    Args:
        lengthscale: :math:`\ell`, in units of x: one number or shape (d,), positive, or a prior. An infinite one leaves
            its feature out.
        variance: :math:`\sigma^2`, in squared units of the function: a number of at least 0, or a prior.

    Example:
        >>> kpp.kernels.RBF(lengthscale=2.0).gram(np.array([[0.0], [2.0]])).round(2).tolist()
        [[1.0, 0.61], [0.61, 1.0]]

    References:
        Rasmussen and Williams, Gaussian Processes for Machine Learning (2006), equation (4.9).
    """

    lengthscale: Leaf = eqx.field(converter=parameter("lengthscale"), default=1.0)
    variance: Leaf = eqx.field(converter=parameter("variance"), default=1.0)

    def correlation(self, squared_distance: Float[Array, "..."]) -> Float[Array, "..."]:
        return jnp.exp(-0.5 * squared_distance)

    def evaluate_factors(self, x1: Array, x2: Array) -> Float[Array, " d"]:
        r"""Return :math:`\exp(-(x_j - x'_j)^2 / (2 \ell_j^2))` for two points of shape (d,)."""
        lengthscale = per_feature(self.lengthscale, "lengthscale", check_points(self, x1, x2))
        return jnp.exp(-0.5 * jnp.square((x1 - x2) / lengthscale))

    def factors(self, x1: Array, x2: Array) -> Float[Array, "d n1 n2"]:
        lengthscale = self._lengthscale(check_matrices(self, x1, x2))
        return jnp.exp(-0.5 * jnp.square((x1.T[:, :, None] - x2.T[:, None, :]) / lengthscale[:, None, None]))

    def restrict(self, mask: Numbers) -> "RBF":
        # An infinite lengthscale makes a factor 1 and keeps the fast distances of RBF.
        return RBF(lengthscale=lengthscale_where(mask, self.lengthscale), variance=jnp.ones_like(self.variance))


class Matern12(AbstractStationary):
    r"""The Matérn kernel of smoothness 1/2, also called exponential: continuous, not differentiable functions.

    .. math:: k(x, x') = \sigma^2 e^{-r}, \qquad r^2 = \sum_j (x_j - x'_j)^2 / \ell_j^2

    Its gradient does not exist where the points coincide; it is defined as 0 there.

    Args:
        lengthscale: :math:`\ell`, in units of x: one number or shape (d,), positive, or a prior.
        variance: :math:`\sigma^2`, in squared units of the function: a number of at least 0, or a prior.

    Example:
        >>> kernels.Matern12(lengthscale=2.0).gram(x[:2]).round(3)
        Array([[1.   , 0.368],
               [0.368, 1.   ]], dtype=float64)

    References:
        Rasmussen and Williams (2006), section 4.2.1.
    """

    lengthscale: Leaf = eqx.field(converter=parameter("lengthscale"), default=1.0)
    variance: Leaf = eqx.field(converter=parameter("variance"), default=1.0)

    def correlation(self, squared_distance: Float[Array, "..."]) -> Float[Array, "..."]:
        return matern_12(squared_distance)

    def _smooth(self) -> bool:
        return False


class Matern32(AbstractStationary):
    r"""The Matérn kernel of smoothness 3/2: functions differentiable once.

    .. math:: k(x, x') = \sigma^2 (1 + \sqrt3\, r) e^{-\sqrt3\, r}, \qquad r^2 = \sum_j (x_j - x'_j)^2 / \ell_j^2

    First and second derivatives are right where the points coincide.

    Args:
        lengthscale: :math:`\ell`, in units of x: one number or shape (d,), positive, or a prior.
        variance: :math:`\sigma^2`, in squared units of the function: a number of at least 0, or a prior.

    Example:
        >>> kernels.Matern32(lengthscale=2.0).gram(x[:2]).round(3)
        Array([[1.   , 0.483],
               [0.483, 1.   ]], dtype=float64)

    References:
        Rasmussen and Williams (2006), equation (4.17).
    """

    lengthscale: Leaf = eqx.field(converter=parameter("lengthscale"), default=1.0)
    variance: Leaf = eqx.field(converter=parameter("variance"), default=1.0)

    def correlation(self, squared_distance: Float[Array, "..."]) -> Float[Array, "..."]:
        return matern_32(3 * squared_distance)


class Matern52(AbstractStationary):
    r"""The Matérn kernel of smoothness 5/2: functions differentiable twice.

    .. math::

        k(x, x') = \sigma^2 (1 + \sqrt5\, r + \tfrac53 r^2) e^{-\sqrt5\, r}, \qquad
        r^2 = \sum_j (x_j - x'_j)^2 / \ell_j^2

    First and second derivatives are right where the points coincide.

    Args:
        lengthscale: :math:`\ell`, in units of x: one number or shape (d,), positive, or a prior.
        variance: :math:`\sigma^2`, in squared units of the function: a number of at least 0, or a prior.

    Example:
        >>> kernels.Matern52(lengthscale=2.0).gram(x[:2]).round(3)
        Array([[1.   , 0.524],
               [0.524, 1.   ]], dtype=float64)

    References:
        Rasmussen and Williams (2006), equation (4.17).
    """

    lengthscale: Leaf = eqx.field(converter=parameter("lengthscale"), default=1.0)
    variance: Leaf = eqx.field(converter=parameter("variance"), default=1.0)

    def correlation(self, squared_distance: Float[Array, "..."]) -> Float[Array, "..."]:
        return matern_52(5 * squared_distance)


class RationalQuadratic(AbstractStationary):
    r"""The rational quadratic kernel: RBF kernels of many lengthscales, mixed by a gamma distribution.

    .. math::

        k(x, x') = \sigma^2 \Big(1 + \frac{r^2}{2 \alpha}\Big)^{-\alpha}, \qquad r^2 = \sum_j (x_j - x'_j)^2 / \ell_j^2

    Args:
        lengthscale: :math:`\ell`, in units of x: one number or shape (d,), positive, or a prior.
        variance: :math:`\sigma^2`, in squared units of the function: a number of at least 0, or a prior; by keyword.
        alpha: :math:`\alpha`, a positive number or a prior, by keyword; the kernel tends to RBF as it grows.

    Example:
        >>> kernels.RationalQuadratic(lengthscale=2.0).gram(x[:2]).round(3)
        Array([[1.   , 0.667],
               [0.667, 1.   ]], dtype=float64)

    References:
        Rasmussen and Williams (2006), equation (4.19).
    """

    lengthscale: Leaf = eqx.field(converter=parameter("lengthscale"), default=1.0)
    variance: Leaf = eqx.field(converter=parameter("variance"), default=1.0, kw_only=True)
    alpha: Leaf = eqx.field(converter=parameter("alpha"), default=1.0, kw_only=True)

    def __check_init__(self) -> None:
        check_positive(self.alpha, "alpha", infinity_allowed=False)

    def correlation(self, squared_distance: Float[Array, "..."]) -> Float[Array, "..."]:
        alpha = scalar(self.alpha, "alpha")
        return jnp.exp(-alpha * jnp.log1p(squared_distance / (2 * alpha)))  # a power of 1 + small would lose digits


class Periodic(AbstractScaledProduct):
    r"""The periodic kernel: functions that repeat in each feature, a product kernel.

    .. math:: k(x, x') = \sigma^2 \exp\Big(-2 \sum_j \sin^2\big(\pi (x_j - x'_j) / p_j\big) / \ell_j^2\Big)

    The sum over features stands inside the exponential. The sine of the distance between the points, which scikit-learn
    and tinygp use instead, gives the same kernel for one feature, but for several features a function that is not
    positive semi-definite.

    Args:
        lengthscale: :math:`\ell`, without unit: one number or shape (d,), positive, or a prior.
        variance: :math:`\sigma^2`, in squared units of the function: a number of at least 0, or a prior; by keyword.
        period: p, in units of x: one number or shape (d,), positive, or a prior; by keyword.

    Example:
        >>> kernel = kernels.Periodic(lengthscale=1.0, period=2.0)
        >>> kernel.gram(np.array([[0.0], [2.0], [1.0]])).round(2)
        Array([[1.  , 1.  , 0.14],
               [1.  , 1.  , 0.14],
               [0.14, 0.14, 1.  ]], dtype=float64)

    References:
        Rasmussen and Williams (2006), equation (4.31), with one factor of this form per feature.
    """

    lengthscale: Leaf = eqx.field(converter=parameter("lengthscale"), default=1.0)
    variance: Leaf = eqx.field(converter=parameter("variance"), default=1.0, kw_only=True)
    period: Leaf = eqx.field(converter=parameter("period"), default=1.0, kw_only=True)

    def __check_init__(self) -> None:
        check_positive(self.lengthscale, "lengthscale")
        check_positive(self.period, "period")
        check_non_negative(self.variance, "variance")

    def evaluate(self, x1: Array, x2: Array) -> Float[Array, ""]:
        return self.scale * jnp.exp(jnp.sum(self._exponents(x1, x2)))

    def __call__(self, x1: Array, x2: Array) -> Float[Array, "n1 n2"]:
        check_matrices(self, x1, x2)
        center = jax.lax.stop_gradient(jnp.mean(x2, axis=0, keepdims=True))  # large angles lose digits
        return self.scale * jnp.exp(
            -0.5 * squared_distances(self._on_circles(x1 - center), self._on_circles(x2 - center))
        )

    def gram(self, x: Array) -> Float[Array, "n n"]:
        check_matrices(self, x, x)
        center = jax.lax.stop_gradient(jnp.mean(x, axis=0, keepdims=True))
        # On circles the kernel is an RBF of chords.
        return self.scale * jnp.exp(-0.5 * gram_distances(self._on_circles(x - center)))

    def evaluate_factors(self, x1: Array, x2: Array) -> Float[Array, " d"]:
        r"""Return :math:`\exp(-2 \sin^2(\pi (x_j - x'_j) / p_j) / \ell_j^2)` for two points of shape (d,)."""
        return jnp.exp(self._exponents(x1, x2))

    def restrict(self, mask: Numbers) -> "Periodic":
        lengthscale = lengthscale_where(mask, self.lengthscale)
        return Periodic(lengthscale=lengthscale, variance=jnp.ones_like(self.variance), period=self.period)

    def _exponents(self, x1: Array, x2: Array) -> Float[Array, " d"]:
        d = check_points(self, x1, x2)
        lengthscale = per_feature(self.lengthscale, "lengthscale", d)
        period = per_feature(self.period, "period", d)
        return -2 * jnp.square(jnp.sin(jnp.pi * (x1 - x2) / period) / lengthscale)

    def _on_circles(self, x: Float[Array, "n d"]) -> Float[Array, "n 2*d"]:
        r"""Place each feature on a circle: chords between its points have length :math:`2 |\sin(\pi t / p)| / \ell`."""
        d = x.shape[1]
        lengthscale = jnp.broadcast_to(per_feature(self.lengthscale, "lengthscale", d), (1, d))
        angle = 2 * jnp.pi * x / jnp.broadcast_to(per_feature(self.period, "period", d), (1, d))
        return jnp.concatenate([jnp.cos(angle) / lengthscale, jnp.sin(angle) / lengthscale], axis=1)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractKernel, Any]]:
        x = example_points(rng_key, 3)
        yield cls(lengthscale=0.9, variance=1.3, period=1.7), x
        yield cls(lengthscale=jnp.array([0.5, 1.0, 3.0]), period=jnp.array([1.0, 2.0, 0.5])), x


def lengthscale_where(mask: Numbers, lengthscale: Array) -> Float[Array, " d"]:
    """Return the lengthscale of each feature of a mask, infinite for those that are left out."""
    mask = as_mask(mask)
    per_feature(lengthscale, "lengthscale", mask.shape[0])
    return jnp.where(mask, lengthscale, jnp.full((), jnp.inf, dtype=lengthscale.dtype))
