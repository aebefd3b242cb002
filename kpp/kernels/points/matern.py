r"""The Matérn kernel of any smoothness, by a quadrature of the integral of its Bessel function.

.. math::

    \kappa(t) = \frac{2^{1-\nu}}{\Gamma(\nu)} t^{\nu/2} K_\nu(\sqrt t)
    = \frac{1}{\Gamma(\nu)} \int_{-\infty}^\infty \exp\Bigl(\nu u - e^u - \frac t4 e^{-u}\Bigr)\, du

The integrand is analytic for :math:`|\mathrm{Im}\, u| < \pi/2`: the error of the trapezoidal rule with step h is of the
order of :math:`e^{-\pi^2/h}`. Derivatives in t lower the exponent :math:`\nu`, and derivatives in :math:`\nu`
multiply the integrand by u: all derivatives are integrals of the same family. JAX has no Bessel function of the second
kind.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import digamma, gammaln
from jaxtyping import Array, Float

from kpp.kernels.base import AbstractKernel
from kpp.kernels.checks import example_points
from kpp.kernels.parameters import check_positive, parameter, scalar
from kpp.kernels.points.stationary import AbstractStationary
from kpp.typing import Leaf, RngKey

_NODES = 128
_DROP = 36.0  # the integrand is cut off where it is below e^-36 = 2e-16 of its maximum
# Below, the quadrature of values would need more nodes; a power law in t has an error below 1e-12.
_NEAR = 1e-12


class Matern(AbstractStationary):
    r"""The Matérn kernel of any smoothness: its functions have derivatives of all orders below :math:`\nu`.

    .. math::

        k(x, x') = \sigma^2 \frac{2^{1-\nu}}{\Gamma(\nu)} z^\nu K_\nu(z), \qquad z = \sqrt{2\nu}\, r, \qquad
        r^2 = \sum_j (x_j - x'_j)^2 / \ell_j^2

    Values are exact up to 1e-12 of the variance, and have derivatives with respect to all parameters. Each value is a
    sum over 128 nodes; Matern12, Matern32 and Matern52 are closed forms of three cases and some eighty times as fast.
    A derivative that does not exist where points coincide is defined as 0 there, as for Matern12.

    Args:
        lengthscale: :math:`\ell`, in units of x: one number or shape (d,), positive, or a prior.
        variance: :math:`\sigma^2`, in squared units of the function: a number of at least 0, or a prior; by keyword.
        nu: :math:`\nu`, a positive number or a prior, by keyword; the kernel tends to RBF as it grows.

    Example:
        >>> kernel = kernels.Matern(nu=2.5, lengthscale=2.0)
        >>> bool(np.allclose(kernel.gram(x), kernels.Matern52(2.0).gram(x)))
        True

    References:
        Rasmussen and Williams (2006), equation (4.14); NIST Digital Library of Mathematical
        Functions, equation 10.32.10.
    """

    lengthscale: Leaf = eqx.field(converter=parameter("lengthscale"), default=1.0)
    variance: Leaf = eqx.field(converter=parameter("variance"), default=1.0, kw_only=True)
    nu: Leaf = eqx.field(converter=parameter("nu"), default=1.5, kw_only=True)

    def __check_init__(self) -> None:
        check_positive(self.nu, "nu", infinity_allowed=False)

    def correlation(self, squared_distance: Float[Array, "..."]) -> Float[Array, "..."]:
        r"""Return :math:`\kappa(2 \nu r^2)`."""
        nu = scalar(self.nu, "nu")
        return matern(2 * nu * squared_distance, nu)

    def _smooth(self) -> bool:
        return False

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractKernel, Any]]:
        x = example_points(rng_key, 3)
        yield cls(lengthscale=0.7, variance=1.3, nu=0.8), x
        yield cls(lengthscale=jnp.array([0.5, 1.0, 3.0]), nu=2.2), x


def matern(t: Float[Array, "..."], nu: Float[Array, ""]) -> Float[Array, "..."]:
    r"""Return :math:`\frac{2^{1-\nu}}{\Gamma(\nu)} t^{\nu/2} K_\nu(\sqrt t)`, and 1 at t = 0, elementwise."""
    return _integral(0, 0, t, nu)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _integral(power: int, order: int, t: Float[Array, "..."], nu: Float[Array, ""]) -> Float[Array, "..."]:
    r"""Return :math:`\Gamma(\nu)^{-1} \int u^p \exp((\nu - q) u - e^u - \tfrac t4 e^{-u}) du`, p power, q order.

    Where :math:`\nu \le q` the integral is infinite at t = 0. It is defined as 0 there and wherever the root of t is
    only a rounding error.
    """
    exponent = nu - order
    smallest = jnp.finfo(t.dtype).eps ** 2
    rounding, finite = t <= smallest, exponent > 0
    # Derivatives in nu have logarithms of t, which the power law lacks.
    least = _NEAR if power == 0 else smallest
    total = _quadrature(power, exponent, jnp.where(finite, jnp.maximum(t, least), jnp.where(rounding, 1.0, t)), nu)
    positive = jnp.where(finite, exponent, jnp.ones_like(exponent))
    at_zero = _at_zero(power, positive, nu)
    near = at_zero - (at_zero - total) * jnp.minimum(t / least, 1) ** jnp.minimum(positive, 1)
    return jnp.where(finite, near, jnp.where(rounding, jnp.zeros_like(t), total))


@_integral.defjvp
def _integral_jvp(power: int, order: int, primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    (t, nu), (dt, dnu) = primals, tangents
    value = _integral(power, order, t, nu)
    by_t = -0.25 * _integral(power, order + 1, t, nu)  # the derivative brings down -exp(-u) / 4
    by_nu = _integral(power + 1, order, t, nu) - digamma(nu) * value
    return value, by_t * dt + by_nu * dnu


def _at_zero(power: int, exponent: Float[Array, ""], nu: Float[Array, ""]) -> Float[Array, ""]:
    r"""Return the integral at t = 0: the derivative of the gamma function at a positive exponent, over that at nu."""

    def gamma(exponent: Array) -> Array:
        return jnp.exp(gammaln(exponent) - gammaln(nu))

    for _ in range(power):
        gamma = jax.grad(gamma)
    return gamma(exponent)


def _quadrature(
    power: int, exponent: Float[Array, ""], t: Float[Array, "..."], nu: Float[Array, ""]
) -> Float[Array, "..."]:
    r"""Return the integral by the trapezoidal rule; t is positive.

    In coordinates v around the maximum, :math:`u = v + \log a`, the logarithm of the integrand is its maximum minus
    :math:`a (e^v - 1 - v) + b (e^{-v} - 1 + v)`, with :math:`a - b` the exponent and :math:`a b = t / 4`. Each part
    alone bounds the interval where this is less than `_DROP`.
    """
    t = jnp.minimum(t, jnp.finfo(t.dtype).max)
    larger = (jnp.abs(exponent) + jnp.sqrt(exponent**2 + t)) / 2
    smaller = t / (4 * larger)  # by the product of the roots: their difference would lose digits
    a, b = jnp.where(exponent > 0, larger, smaller), jnp.where(exponent > 0, smaller, larger)
    low, high = -_reach(b, a), _reach(a, b)
    step, center = (high - low) / (_NODES - 1), jnp.log(a)

    def add(total: Array, node: Array) -> tuple[Array, None]:
        v = low + node * step
        growth = jnp.exp(v)
        drop = exponent * v - a * (growth - 1) - b * (1 / growth - 1)
        return total + (center + v) ** power * jnp.exp(drop), None

    total, _ = jax.lax.scan(add, jnp.zeros_like(t), jnp.arange(_NODES, dtype=t.dtype))
    return step * jnp.exp(exponent * center - a - b - gammaln(nu)) * total


def _reach(a: Float[Array, "..."], b: Float[Array, "..."]) -> Float[Array, "..."]:
    r"""Return a v > 0 with :math:`a (e^v - 1 - v) + b (e^{-v} - 1 + v)` of at least `_DROP`.

    The first part alone reaches it at :math:`e^v = 1 + c + \sqrt{2c}`, with :math:`c = \mathrm{DROP} / a`, and the
    second part alone at :math:`v = 1 + \mathrm{DROP} / b`.
    """
    c = _DROP / a
    return jnp.minimum(jnp.log1p(c + jnp.sqrt(2 * c)), 1 + _DROP / b)
