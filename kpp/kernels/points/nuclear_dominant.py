r"""The nuclear dominant kernel of an RBF, and integrals of chains of RBFs, in closed form.

Functions drawn from a Gaussian process with kernel k lie outside the RKHS of k. Functions drawn from a Gaussian process
with the smoother kernel :math:`r(y, y') = \int k(y, u) k(u, y') \nu(du)` lie inside, with probability one, for a finite
measure :math:`\nu`: r is the square of the integral operator of k, which is nuclear.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp.foundation.validation import count, is_concrete
from kpp.kernels.base import AbstractKernel, AbstractProductKernel
from kpp.kernels.checks import check_matrices, check_points, example_points
from kpp.kernels.parameters import check_positive, parameter, per_feature, prepared, show, without_priors
from kpp.kernels.points.distances import gram_distances, squared_distances
from kpp.kernels.points.stationary import RBF
from kpp.typing import Leaf, Points, RngKey


class NuclearDominant(AbstractProductKernel):
    r"""The kernel that dominates an RBF k in the nuclear sense, a product kernel.

    .. math::

        r(y, y') = \int k(y, u)\, k(u, y')\, \nu(du), \qquad \nu(du) = e^{-|u|^2 / (2 \eta^2)} du

    The measure :math:`\nu` is not normalized. In one feature, with :math:`\tau = 2 / \ell^2 + 1 / \eta^2`,

    .. math::

        r(y, y') = \sigma^4 \sqrt{\frac{2 \pi}{\tau}}
        \exp\Bigl(-\frac{(y - y')^2}{2 \tau \ell^4} - \frac{y^2 + y'^2}{2 \tau \ell^2 \eta^2}\Bigr)

    It is not stationary: away from the origin, on the scale of :math:`\eta`, it falls to 0. Center the points, and take
    a width no smaller than their standard deviation; functions far from all points also count, up to this width.

    Args:
        base: k, an RBF; its variance enters squared.
        width: :math:`\eta`, in units of y: one number or shape (d,), positive and finite, or a prior.

    Raises:
        TypeError: If `base` is not an RBF: the integrals have closed forms for this kernel only.
        ValueError: If the width is not positive and finite.

    References:
        Flaxman, Sejdinovic, Cunningham and Filippi, Bayesian learning of kernel embeddings, 2016, appendix A; Lukić and
        Beder, Stochastic processes with sample paths in reproducing kernel Hilbert spaces, 2001.
    """

    base: AbstractKernel
    width: Leaf = eqx.field(converter=parameter("width"))

    def __check_init__(self) -> None:
        if not isinstance(self.base, RBF):
            raise TypeError(
                f"`base` must be an RBF, for which the integrals have closed forms, got {type(self.base).__name__}"
            )
        check_positive(self.width, "width")
        if eqx.is_array(self.width) and is_concrete(self.width) and np.isinf(self.width).any():
            raise ValueError(f"`width` must be finite, got {show(self.width)}")

    @property
    def scale(self) -> Float[Array, ""]:
        return jnp.asarray(self.base.split_scale()[0]) ** 2

    @property
    def nonnegative(self) -> bool:
        return True

    def evaluate_factors(self, x1: Array, x2: Array) -> Float[Array, " d"]:
        """Return the integral over each feature, without the variance, for two points of shape (d,)."""
        terms = self._terms(1, check_points(self, x1, x2))
        exponents = terms.difference * jnp.square(x1 - x2) + terms.origin * (jnp.square(x1) + jnp.square(x2))
        return terms.height * jnp.exp(-0.5 * exponents)

    def factors(self, x1: Array, x2: Array) -> Float[Array, "d n1 n2"]:
        terms = _Terms(*(term[:, None, None] for term in self._terms(1, check_matrices(self, x1, x2))))
        a, b = x1.T[:, :, None], x2.T[:, None, :]
        exponents = terms.difference * jnp.square(a - b) + terms.origin * (jnp.square(a) + jnp.square(b))
        return terms.height * jnp.exp(-0.5 * exponents)

    def __call__(self, x1: Array, x2: Array) -> Float[Array, "n1 n2"]:
        return self._chain(1, x1, x2)

    def gram(self, x: Array) -> Float[Array, "n n"]:
        return self._chain(1, x, None)  # the distances on the diagonal are exactly 0

    def chain(self, order: int, x1: Points, x2: Points) -> Float[Array, "n1 n2"]:
        r"""Integrate a chain of base kernels between every pair of points.

        .. math:: c_m(y, y') = \int k(y, u_1)\, k(u_1, u_2) \cdots k(u_m, y')\, \nu(du_1) \cdots \nu(du_m)

        :math:`c_1` is this kernel r. With the inner product of the RKHS of k, :math:`c_2(y, y') = \langle r(y, \cdot),
        r(y', \cdot) \rangle`, and :math:`c_3(y, y') = \langle r(y, \cdot) \otimes r(y', \cdot), r \rangle`.

        Args:
            order: m, how many points are integrated over, at least 1.
            x1: n1 points (n1, d).
            x2: n2 points (n2, d).

        Returns:
            The integrals, (n1, n2). They carry the variance of the base to the power m + 1.

        Raises:
            ValueError: If the order is not a positive integer, or the points do not fit.
            TypeError: If the kernel holds priors.
        """
        order = count(order, "order")
        return prepared(lambda kernel, a, b: kernel._chain(order, a, b))(self, x1, x2)

    @without_priors
    def squared_norm(self, num_features: int) -> Float[Array, ""]:
        r"""Return the squared norm of r in the tensor product of the RKHS of k with itself.

        .. math::

            \langle r, r \rangle = \int\!\!\int k(u, u')^2\, \nu(du)\, \nu(du')
            = \sigma^4 \prod_{j=1}^d \frac{2 \pi}{\sqrt{\tau_j^2 - 4 / \ell_j^4}}

        Raises:
            ValueError: If a parameter has a shape for another number of features.
            TypeError: If the kernel holds priors.
        """
        rate, decay = self._rates(num_features)
        # tau^2 - 4 / l^4 without the difference, which would lose digits for wide measures.
        return self.scale * jnp.prod(2 * jnp.pi / jnp.sqrt(decay * (decay + 4 * rate)))

    @without_priors
    def trace(self, num_features: int) -> Float[Array, ""]:
        r"""Return the trace of r as an operator on the RKHS of k.

        .. math:: \int k(u, u)\, \nu(du) = \sigma^2 \prod_{j=1}^d \sqrt{2 \pi}\, \eta_j

        Raises:
            ValueError: If a parameter has a shape for another number of features.
            TypeError: If the kernel holds priors.
        """
        return jnp.asarray(self.base.split_scale()[0]) * jnp.prod(jnp.sqrt(2 * jnp.pi / self._rates(num_features)[1]))

    def split_scale(self) -> tuple[Leaf, AbstractKernel]:
        variance, base = self.base.split_scale()
        return variance**2, NuclearDominant(base, self.width)

    def _chain(self, order: int, x1: Array, x2: Array | None) -> Float[Array, "n1 n2"]:
        terms = self._terms(order, check_matrices(self, x1, x1 if x2 is None else x2))
        return jnp.asarray(self.base.split_scale()[0]) ** (order + 1) * _evaluate_chain(terms, x1, x2)

    def _terms(self, order: int, num_features: int) -> _Terms:
        return _chain_terms(order, *self._rates(num_features))

    def _rates(self, num_features: int) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
        r"""Return :math:`1 / \ell^2` and :math:`1 / \eta^2` of each feature."""
        lengthscale = per_feature(self.base.lengthscale, "lengthscale", num_features)  # type: ignore[attr-defined]
        width = per_feature(self.width, "width", num_features)
        rates = 1 / jnp.square(lengthscale), 1 / jnp.square(width)
        return jnp.broadcast_to(rates[0], (num_features,)), jnp.broadcast_to(rates[1], (num_features,))

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractKernel, Any]]:
        yield cls(RBF(jnp.array([0.5, 1.0, 3.0]), 1.3), jnp.array([1.0, 2.0, 4.0])), example_points(rng_key, 3)


class _Terms(NamedTuple):
    r"""A chain in each feature: :math:`h \exp(-\tfrac12 [\delta (y - y')^2 + \omega (y^2 + y'^2)])`."""

    height: Float[Array, "*d"]
    difference: Float[Array, "*d"]
    origin: Float[Array, "*d"]


# Each function is compiled as a whole: outside `jit` every operation would be compiled separately.
@functools.partial(jax.jit, static_argnums=0)
def _chain_terms(order: int, rate: Float[Array, " d"], decay: Float[Array, " d"]) -> _Terms:
    r"""Return the terms of a chain in each feature, from :math:`1 / \ell^2` and :math:`1 / \eta^2`.

    The exponent of the integrand is a quadratic form in :math:`u_1, \dots, u_m` with the tridiagonal matrix
    :math:`T = \tau I - \ell^{-2} (S + S^\top)`, S the shift. Its leading minors follow the recurrence
    :math:`D_k = \tau D_{k-1} - \ell^{-4} D_{k-2}`, and :math:`(T^{-1})_{1j} = \ell^{-2(j-1)} D_{m-j} / D_m`.
    """
    diagonal = 2 * rate + decay
    minors = [jnp.ones_like(diagonal), diagonal]
    for _ in range(order - 1):
        minors.append(diagonal * minors[-1] - rate**2 * minors[-2])  # determinants of a tridiagonal matrix
    first_row = [rate**j * minors[order - 1 - j] / minors[order] for j in range(order)]
    return _Terms(
        height=jnp.sqrt((2 * jnp.pi) ** order / minors[order]),  # the integral of a Gaussian with precision T
        difference=rate**2 * first_row[-1],
        origin=rate * decay * sum(first_row, jnp.zeros_like(diagonal)),
    )


@jax.jit
def _evaluate_chain(terms: _Terms, x1: Float[Array, "n1 d"], x2: Float[Array, "n2 d"] | None) -> Float[Array, "n1 n2"]:
    """Evaluate a chain as a Gaussian of the difference between Gaussians of the distances from the origin."""
    root, origin = jnp.sqrt(terms.difference)[None, :], terms.origin[None, :]
    distances = gram_distances(x1 * root) if x2 is None else squared_distances(x1 * root, x2 * root)
    first = jnp.sum(origin * jnp.square(x1), axis=1)
    second = first if x2 is None else jnp.sum(origin * jnp.square(x2), axis=1)
    return jnp.prod(terms.height) * jnp.exp(-0.5 * (distances + first[:, None] + second[None, :]))
