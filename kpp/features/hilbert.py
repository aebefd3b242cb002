"""The Hilbert-space approximation of a kernel: sines with variances from its spectral density."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp.features.base import AbstractFeatureKernel
from kpp.foundation.validation import as_finite_array, as_points, count, is_concrete
from kpp.kernels import RBF, AbstractKernel, Matern, Matern12, Matern32, Matern52, Periodic
from kpp.kernels.parameters import per_feature, scalar
from kpp.kernels.toolkit import check_positive
from kpp.typing import AnyArray, Leaf, Numbers, RngKey

# The smoothness of each Matern kernel in closed form.
_SMOOTHNESS: dict[type, float] = {Matern12: 0.5, Matern32: 1.5, Matern52: 2.5}
# Two numbers a, b for each kernel (Riutort-Mayol et al. 2023, section 4.4): with points in [-S, S], a boundary c S and
# m basis functions, the shortest lengthscale is a c S / m, and the longest is c S / b.
_ACCURACY: dict[type, tuple[float, float]] = {RBF: (1.75, 3.2), Matern52: (2.65, 4.1), Matern32: (3.42, 4.5)}
_PERIODIC = 3.72  # the shortest lengthscale of a periodic kernel times the number of basis functions
_MIN_FACTOR, _MAX_FEATURES, _MAX_BASIS = 1.2, 3, 100_000
_NODES = 512  # nodes of the trapezoidal rule, and four times the number of basis functions if that is more
_ROUNDING = 1e-15  # Fourier coefficients below are rounding errors


def _as_numbers_of_basis(value: Any) -> tuple[int, ...]:
    values = tuple(value) if isinstance(value, (tuple, list, np.ndarray)) else (value,)
    return tuple(count(number, "num_basis") for number in values)


def _as_feature_numbers(name: str) -> Callable[[Numbers], AnyArray]:
    def convert(value: Numbers) -> AnyArray:
        if np.ndim(value) > 1:
            raise ValueError(f"`{name}` must be one number or one per feature, (d,), got shape {np.shape(value)}")
        return as_finite_array(value, name)

    return convert


class HilbertSpace(AbstractFeatureKernel):
    r"""A stationary kernel on a box, as a sum over the eigenfunctions of the Laplacian there.

    .. math::

        k(x, x') = \sum_{j} S\bigl(\sqrt{\lambda_j}\bigr)\, \varphi_j(x)\, \varphi_j(x'), \qquad
        \varphi_j(x) = \prod_{i=1}^d \frac{1}{\sqrt{L_i}} \sin\Bigl(\frac{\pi j_i (x_i - c_i + L_i)}{2 L_i}\Bigr), \quad
        \sqrt{\lambda_j}_i = \frac{\pi j_i}{2 L_i}

    S is the spectral density of the kernel, and the sum is over the :math:`m_1 \cdots m_d` indices with
    :math:`1 \le j_i \le m_i`. The functions do not depend on the parameters of the kernel, only their variances S do.
    It suits one to three features. Points must be in the box; near its boundary the variance is too small, so that it
    should be wider than the points. `over` chooses a box and numbers of functions for a range of lengthscales, and
    `lengthscale_range` is the diagnostic: a posterior outside of it needs more functions or a wider box.

    A `kpp.kernels.Periodic` kernel needs no box: its functions are the cosines and sines of its first m - 1 frequencies
    and a constant.

    Args:
        kernel: An RBF, Matern, Matern12, Matern32, Matern52 or Periodic kernel; its parameters may be priors.
        num_basis: m, the number of functions of each feature: one number, or one per feature.
        boundary: L, half the width of the box: one number or shape (d,), in units of x; None for a Periodic kernel.
        center: c, the center of the box: one number or shape (d,).

    Example:
        >>> kernel = kpp.features.HilbertSpace(kpp.kernels.Periodic(1.0, period=7.0), 3)
        >>> kernel.finite_features(np.arange(7.0)[:, None]).shape
        (7, 5)

    References:
        Solin and Särkkä, Hilbert space methods for reduced-rank Gaussian process regression, 2020, equation (56);
        Riutort-Mayol, Bürkner, Andersen, Solin and Vehtari, Practical Hilbert space approximate Bayesian Gaussian
        processes for probabilistic programming, 2023, section 4.4 and appendix B.
    """

    everywhere: ClassVar[bool] = False

    kernel: AbstractKernel
    num_basis: Any = eqx.field(static=True, converter=_as_numbers_of_basis)
    boundary: Any = eqx.field(
        converter=lambda value: None if value is None else _as_feature_numbers("boundary")(value), default=None
    )
    center: Any = eqx.field(converter=_as_feature_numbers("center"), default=0.0)

    def __check_init__(self) -> None:
        if not isinstance(self.kernel, (RBF, Periodic, Matern, *_SMOOTHNESS)):
            raise TypeError(
                "`kernel` must be RBF, Matern, Matern12, Matern32, Matern52 or Periodic, whose spectral densities are "
                f"known, got {type(self.kernel).__name__}"
            )
        if isinstance(self.kernel, Periodic) != (self.boundary is None):
            needed = "needs no box" if self.boundary is not None else "needs one, or `HilbertSpace.over`"
            raise ValueError(f"`boundary` is the box of the points: {type(self.kernel).__name__} {needed}")
        if self.boundary is not None:
            check_positive(self.boundary, "boundary", infinity_allowed=False)
        if math.prod(self.num_basis) > _MAX_BASIS or len(self.num_basis) > _MAX_FEATURES:
            raise ValueError(
                f"`num_basis` must be at most {_MAX_FEATURES} numbers with a product of at most {_MAX_BASIS}, got "
                f"{self.num_basis}; for more features use Nystrom or RandomFourier"
            )

    @classmethod
    def over(cls, x: Numbers, kernel: AbstractKernel, lengthscales: tuple[Numbers, Numbers]) -> HilbertSpace:
        r"""Choose a box around points, and numbers of basis functions, for a range of lengthscales.

        .. math:: L = c S, \quad c = \max(1.2,\; b\, \ell_{\max} / S), \qquad m = \lceil a\, c S / \ell_{\min} \rceil,

        with half the range of the points S, and a = 1.75, 2.65, 3.42 and b = 3.2, 4.1, 4.5 for RBF, Matern52 and
        Matern32. For a Periodic kernel :math:`m = \lceil 3.72 / \ell_{\min} \rceil`.

        Args:
            x: The points at which the kernel will be needed, (n, d), new points included; d is at most 3.
            kernel: An RBF, Matern32, Matern52 or Periodic kernel; its parameters may be priors.
            lengthscales: The shortest and the longest lengthscale to represent, each one number or shape (d,), in units
                of x; for example quantiles of the prior.

        Raises:
            ValueError: If the points or the lengthscales are invalid, or there are more than 3 features.
            TypeError: If there is no rule for the kernel.
        """
        points = np.asarray(as_points(x, "x"))
        shortest, longest = (np.asarray(_as_feature_numbers("lengthscales")(value)) for value in lengthscales)
        if np.any(shortest <= 0) or np.any(longest < shortest):
            raise ValueError(f"`lengthscales` must be positive and ascending, got {shortest} and {longest}")
        num_features = points.shape[1]
        if isinstance(kernel, Periodic):
            return cls(kernel, np.ceil(np.broadcast_to(_PERIODIC / shortest, num_features)).astype(int) + 1)
        short, long = _accuracy(kernel)
        low, high = points.min(axis=0), points.max(axis=0)
        half = np.where(high > low, (high - low) / 2, longest)
        boundary = np.maximum(_MIN_FACTOR * half, long * longest)
        return cls(kernel, np.ceil(short * boundary / shortest).astype(int), boundary, (low + high) / 2)

    def lengthscale_range(self, x: Numbers) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, " d"]]:
        r"""Return the shortest and the longest lengthscale that the functions represent accurately, for each feature.

        Args:
            x: The points at which the kernel is needed, (n, d).

        Returns:
            The shortest, :math:`a L / m`, and the longest, :math:`L / b`, of shape (d,) in units of x; see `over`. If
            the box is less than 1.2 times as wide as the points, the longest is 0: no lengthscale is accurate.

        Raises:
            TypeError: If there is no rule for the kernel.
        """
        points = np.asarray(as_points(x, "x"))
        numbers = np.broadcast_to(self.num_basis, points.shape[1])
        if isinstance(self.kernel, Periodic):
            return _PERIODIC / np.maximum(numbers - 1, 1), np.full(points.shape[1], np.inf)
        short, long = _accuracy(self.kernel)
        boundary = np.broadcast_to(np.asarray(self.boundary), points.shape[1])
        reach = np.abs(points - np.asarray(self.center)).max(axis=0)
        return short * boundary / numbers, np.where(boundary >= _MIN_FACTOR * reach * (1 - 1e-12), boundary / long, 0.0)

    def feature_map(self, x: Array) -> Float[Array, "n q"]:
        """Return the functions at points (n, d), times the roots of their variances.

        Raises:
            ValueError: If the points have too many features or are outside of the box; in traced code the features of
                points outside are NaN.
        """
        x = jnp.asarray(x)
        if x.ndim != 2 or x.shape[1] > _MAX_FEATURES or len(self.num_basis) not in (1, x.shape[1]):
            raise ValueError(
                f"`num_basis` are for {len(self.num_basis)} features, and there may be at most {_MAX_FEATURES}, got "
                f"points `x` of shape {x.shape}"
            )
        numbers = [int(number) for number in np.broadcast_to(self.num_basis, x.shape[1])]
        return self._periodic(x, numbers) if isinstance(self.kernel, Periodic) else self._sines(x, numbers)

    def split_scale(self) -> tuple[Leaf, AbstractKernel]:
        scale, kernel = self.kernel.split_scale()
        return scale, HilbertSpace(kernel, self.num_basis, self.boundary, self.center)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractKernel, Any]]:
        x = jax.random.uniform(rng_key, (6, 2), minval=-1.0)
        yield cls(RBF(jnp.array([0.7, 1.2]), 1.3), (5, 4), jnp.array([1.5, 2.0])), x
        yield cls(Matern32(0.8), 6, 2.0, center=0.1), x
        yield cls(Periodic(1.5, variance=1.2, period=2.0), 3), x

    def _sines(self, x: Float[Array, "n d"], numbers: list[int]) -> Float[Array, "n q"]:
        from numpyro.contrib.hsgp.laplacian import eigenfunctions, sqrt_eigenvalues  # loaded on use

        num_features = x.shape[1]
        boundary, center = (
            jnp.broadcast_to(jnp.asarray(value), (num_features,)) for value in (self.boundary, self.center)
        )
        shifted = x - center[None]
        inside = jnp.all(jnp.abs(shifted) <= boundary[None], axis=1)
        if is_concrete(inside) and not bool(jnp.all(inside)):
            raise ValueError(
                f"{int(jnp.sum(~inside))} of {len(x)} points are outside of the box of HilbertSpace, "
                f"{center - boundary} to {center + boundary}; give `HilbertSpace.over` all points, also new ones"
            )
        frequencies = sqrt_eigenvalues(boundary[:, None], numbers, num_features).T.astype(x.dtype)
        functions = eigenfunctions(shifted, boundary[:, None], numbers).astype(x.dtype)
        features = functions * jnp.sqrt(self._density(frequencies))[None]
        return jnp.where(inside[:, None], features, jnp.nan)

    def _density(self, frequencies: Float[Array, "q d"]) -> Float[Array, " q"]:
        """Return the spectral density, by that of the lengthscale 1."""
        from numpyro.contrib.hsgp import spectral_densities as densities

        kernel, dim = self.kernel, frequencies.shape[1]
        shared = per_feature(kernel.lengthscale, "lengthscale", dim)  # type: ignore[attr-defined]
        lengthscale = jnp.broadcast_to(shared, (dim,))

        def density(frequency: Array) -> Array:
            if isinstance(kernel, RBF):
                return densities.spectral_density_squared_exponential(dim, frequency, 1.0, 1.0)
            nu = kernel.nu if isinstance(kernel, Matern) else _SMOOTHNESS[type(kernel)]
            return densities.spectral_density_matern(dim, nu, frequency, 1.0, 1.0)

        values = jax.vmap(density)(frequencies * lengthscale[None])
        variance = scalar(kernel.variance, "variance")  # type: ignore[attr-defined]
        return (variance * jnp.prod(lengthscale) * values.reshape(-1)).astype(frequencies.dtype)

    def _periodic(self, x: Float[Array, "n d"], numbers: list[int]) -> Float[Array, "n q"]:
        kernel = self.kernel
        assert isinstance(kernel, Periodic)
        lengthscale, period = (
            jnp.broadcast_to(per_feature(getattr(kernel, name), name, x.shape[1]), (x.shape[1],))
            for name in ("lengthscale", "period")
        )
        features = jnp.ones((x.shape[0], 1), x.dtype)
        for i, number in enumerate(numbers):
            angles = 2 * jnp.pi * x[:, i : i + 1] / period[i] * jnp.arange(number, dtype=x.dtype)[None]
            roots = _fourier_roots(lengthscale[i], number)[None]
            own = jnp.concatenate([roots * jnp.cos(angles), roots[:, 1:] * jnp.sin(angles[:, 1:])], axis=1)
            features = (features[:, :, None] * own[:, None]).reshape(x.shape[0], -1)
        return jnp.sqrt(scalar(kernel.variance, "variance")) * features


def _fourier_roots(lengthscale: Array, number: int) -> Float[Array, " m"]:
    r"""Return the roots of the Fourier coefficients of the periodic kernel with period :math:`2\pi` and variance 1.

    .. math:: \exp\bigl(a (\cos\theta - 1)\bigr) = q_0 + \sum_{j \ge 1} q_j \cos(j\theta), \qquad a = \ell^{-2}, \quad
        q_j = 2 e^{-a} I_j(a) \text{ for } j \ge 1

    They are means over equally spaced angles, which converge faster than every power of their number.
    """
    angles = 2 * np.pi * np.arange(max(_NODES, 4 * number)) / max(_NODES, 4 * number)
    values = jnp.exp(lengthscale**-2 * jnp.asarray(np.cos(angles) - 1, lengthscale.dtype))
    cosines = jnp.asarray(np.cos(np.outer(np.arange(number), angles)), lengthscale.dtype)
    weights = jnp.asarray([1.0] + [2.0] * (number - 1), lengthscale.dtype)
    coefficients = weights * jnp.mean(cosines * values[None], axis=1)
    known = coefficients > _ROUNDING
    return jnp.where(known, jnp.sqrt(jnp.where(known, coefficients, 1.0)), 0.0)


def _accuracy(kernel: AbstractKernel) -> tuple[float, float]:
    for known, numbers in _ACCURACY.items():
        if type(kernel) is known:
            return numbers
    raise TypeError(
        f"there is no rule for the accuracy of {type(kernel).__name__}, only for RBF, Matern32, Matern52 and Periodic"
    )
