r"""The kernel of functions whose conditional expectation is zero, as a collider in a causal graph implies.

Where Y is independent of :math:`X_2` given :math:`X_3`, the regression of Y on all variables minus the regression on
:math:`X_3` has expectation zero given :math:`C = (X_2, X_3)`. The projection :math:`P f(x) = f(x) - E[f(X) \mid C = c]`
gives any function this property. The projected functions of an RKHS have the kernel of this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.foundation.validation import one_of
from kpp.kernels.base import AbstractBatchKernel, AbstractKernel
from kpp.kernels.checks import check_matrices, example_points
from kpp.kernels.parameters import check_non_negative, parameter, point_rows
from kpp.kernels.parts import as_kernel
from kpp.kernels.points.nonstationary import Constant
from kpp.kernels.points.stationary import RBF
from kpp.linalg.pivoted import pivoted_whitener
from kpp.linalg.toolkit import DenseRidge, FeatureRidge
from kpp.runtime.batching import split_rows, split_weights, sum_over
from kpp.typing import Leaf, Numbers, Points, RngKey

#: What the projection is applied to; see `Projected`.
FORMS = ("product", "general")

_BLOCK = 2048  # rows of the sample per block, so that with landmarks the memory stays bounded


class Unprojected(eqx.Module):
    r"""Points at which a `Projected` kernel means the function f itself, not its projection.

    .. math:: k_P(x, \mathrm{Unprojected}(x')) = \mathrm{cov}(P f(x), f(x')) = k(x, x') - w(c)^\top k(X_u, x')

    So if a Gaussian process is observed without the projection and predicted with it, use a `Projected` kernel with the
    data at unprojected points.

    Args:
        points: n points, an array (n, d).
    """

    points: Any


class Projected(AbstractBatchKernel):
    r"""The kernel of functions minus their conditional expectation, which is estimated from a sample.

    .. math::

        k_P(x, x') = \langle k_x - \hat\mu_c,\; k_{x'} - \hat\mu_{c'} \rangle, \qquad
        \hat\mu_c = \sum_j w_j(c)\, k_{x_{u,j}}, \qquad w(c) = (L_{uu} + n' \gamma I)^{-1} l(C_u, c)

    That is ``form="general"``, where k is `kernel`, a function of all features:

    .. math:: k_P(x, x') = k(x, x') - w(c)^\top k(X_u, x') - k(x, X_u) w(c') + w(c)^\top K_{uu} w(c')

    With ``form="product"`` the kernel is :math:`k = (r + 1)\, l`, r being `kernel`, so that functions of the condition
    alone can also be removed; only r + 1 is averaged, which gives a different estimator:

    .. math::

        k_P(x, x') = l(c, c') \bigl[r_+(x, x') - w(c)^\top r_+(X_u, x') - r_+(x, X_u) w(c')
        + w(c)^\top R_{+,uu} w(c')\bigr], \qquad r_+ = r + 1

    Both kernels receive all features; `on` selects the features of each, for example ``Projected(RBF(8.0).on(children),
    RBF(2.0).on(spouses), x, 0.01)``. For successive constraints nest the kernels, with ``form="general"`` outside; for
    constraints that hold jointly use one kernel whose `condition_kernel` is a sum.

    Args:
        kernel: r, or k for the general form; its parameters may be priors.
        condition_kernel: l, the kernel of the condition C; its parameters may be priors.
        points: :math:`X_u`, the n' points of the sample (n', d), with all features; rows need no label.
        regularization: :math:`\gamma`, at least 0, or a prior; it is multiplied by n'.
        landmarks: Z, points (q, d) with all features, for Nyström's method: w is spanned by the features of their
            conditions. Time and memory are then linear in n', except for :math:`K_{uu}`, which takes time :math:`n'^2`
            but is never stored. None for no landmarks.
        form: "product" or "general".
        moments: :math:`\Phi^\top K_{uu} \Phi`, (q, q), if it is already known, :math:`\Phi` being the features that
            the landmarks span; `precompute` computes it.

    Raises:
        ValueError: If the points are not a matrix with at least one row, the regularization is negative, or the form is
            unknown.
        TypeError: If a kernel field does not hold a kernel.

    References:
        Bouabid, Fawkes and Sejdinovic, Returning the favour: when regression benefits from probabilistic causal
        knowledge, 2023, proposition 4.3 and appendices D and E, with the sign of the last term corrected.
    """

    kernel: AbstractKernel = eqx.field(converter=as_kernel)
    condition_kernel: AbstractKernel
    points: Leaf = eqx.field(converter=point_rows("points"))
    regularization: Leaf = eqx.field(converter=parameter("regularization"))
    landmarks: Leaf = eqx.field(converter=point_rows("landmarks"), default=None)
    form: str = eqx.field(static=True, default="product")
    moments: Array | None = eqx.field(converter=point_rows("moments"), default=None)

    def __check_init__(self) -> None:
        one_of(self.form, "form", FORMS)
        if self.form == "product" and isinstance(self.kernel, Projected):
            raise ValueError("`form` must be 'general' where `kernel` is itself Projected, got 'product'")
        check_non_negative(self.regularization, "regularization")

    def __call__(self, x1: Points, x2: Points) -> Float[Array, "n1 n2"]:
        """Evaluate the kernel at every pair of points (n1, d) and (n2, d), each batch possibly `Unprojected`."""
        expectation = self._expectation()
        return self._inner(expectation, self._elements(expectation, x1), self._elements(expectation, x2))

    def gram(self, x: Points) -> Float[Array, "n n"]:
        """Evaluate the kernel at every pair of points of one batch (n, d), possibly `Unprojected`."""
        expectation = self._expectation()
        elements = self._elements(expectation, x)
        return self._inner(expectation, elements, elements)

    def diagonal(self, x: Points) -> Float[Array, " n"]:
        expectation = self._expectation()
        elements = self._elements(expectation, x)
        values = expectation.kernel.diagonal(elements.seen)
        if elements.coordinates is not None:
            # k - 2 w k(X_u, x) + w K_uu w, in the coordinates of the sample or of the landmarks.
            taken = 2 * expectation.sections(elements.seen) - expectation.spread(elements.coordinates)
            values = values - jnp.sum(elements.coordinates * taken, axis=0)
        return values * self.condition_kernel.diagonal(elements.points) if self.form == "product" else values

    def precompute(self) -> Projected:
        """Return the same kernel with `moments` computed, which otherwise takes time :math:`n'^2` per evaluation.

        The result is valid for the current parameters of the kernel only. Without landmarks the kernel is returned
        unchanged.
        """
        if self.landmarks is None:
            return self
        moments = self._expectation().moments()
        return eqx.tree_at(lambda kernel: kernel.moments, self, moments, is_leaf=lambda leaf: leaf is None)

    def conditional_expectation(self, condition: Numbers, values: Numbers) -> Float[Array, "p *outputs"]:
        r"""Estimate :math:`E[h(X) \mid C = c]` as the kernel does, from the values of h at the points of the sample.

        .. math:: \hat E[h \mid c] = \sum_j w_j(c)\, h(x_{u,j})

        Args:
            condition: p points (p, d) with all features, from which the condition kernel selects its own.
            values: The values of h at `points`, (n',) or (n', outputs).

        Returns:
            The estimates, (p,) or (p, outputs).
        """
        expectation = self._expectation()
        return expectation.coordinates(jnp.asarray(condition)).T @ expectation.reduce(jnp.asarray(values))

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractKernel, Any]]:
        first, second = jax.random.split(rng_key)
        x, sample = example_points(first, 3), example_points(second, 3, 5)
        response, condition = RBF(jnp.array([0.8, 1.5])).on((0, 2)), RBF(1.2).on((1,))
        yield cls(response, condition, sample, 0.1, sample[:3] + 0.1), x
        yield cls(response * condition, condition, sample, 0.1, form="general"), x

    def _inner(self, expectation: _Expectation, first: _Elements, second: _Elements) -> Array:
        matrix = expectation.inner(first, second)
        return matrix * self.condition_kernel(first.points, second.points) if self.form == "product" else matrix

    def _elements(self, expectation: _Expectation, x: Points) -> _Elements:
        if isinstance(x, Unprojected):
            check_matrices(self, x.points, self.points)
            return _Elements(x.points, x if isinstance(self.kernel, Projected) else x.points, None)
        check_matrices(self, x, self.points)
        return _Elements(x, x, expectation.coordinates(x))

    def _expectation(self) -> _Expectation:
        averaged = self.kernel + Constant(1.0) if self.form == "product" else self.kernel
        # The paper prints gamma for an averaged loss, which takes n' gamma.
        ridge = self.points.shape[0] * self.regularization
        if self.landmarks is None:
            what = "the matrix of the condition kernel plus n * regularization * I"
            dense = DenseRidge.create(self.condition_kernel.gram(self.points), ridge, what=what)
            return _Expectation(averaged, self.condition_kernel, self.points, dense, None, None)
        whitener = pivoted_whitener(
            self.condition_kernel.gram(self.landmarks), what="the kernel matrix of the landmarks"
        )
        features = self.condition_kernel(self.points, self.landmarks) @ whitener.T
        low_rank = FeatureRidge.create(features, ridge, what="the matrix of the features")
        landmarks = self.landmarks, whitener
        return _Expectation(averaged, self.condition_kernel, self.points, low_rank, landmarks, self.moments)


class _Elements(NamedTuple):
    r"""Elements :math:`k_x - \sum_j w_j k_{x_{u,j}}` of the RKHS.

    Holds the points x as the kernel receives them (`Unprojected` if the kernel is itself projected), and the weights w,
    or their image under `reduce`; None if nothing is subtracted.
    """

    points: Array
    seen: Any
    coordinates: Array | None


class _Expectation(NamedTuple):
    r"""The estimated conditional mean embedding: :math:`w(c) = (L_{uu} + n'\gamma I)^{-1} l(C_u, c)`.

    With landmarks :math:`w(c) = \Phi (\Phi^\top \Phi + n' \gamma I)^{-1} \phi(c)`. The coordinates are then the factor
    to the right of :math:`\Phi`, and values v at the sample are reduced to :math:`\Phi^\top v`.
    """

    kernel: AbstractKernel
    condition_kernel: AbstractKernel
    points: Array
    ridge: DenseRidge | FeatureRidge
    landmarks: tuple[Array, Array] | None  # with the whitener of their kernel matrix
    known_moments: Array | None

    def coordinates(self, x: Array) -> Float[Array, "q n"]:
        if isinstance(self.ridge, DenseRidge):
            return self.ridge.solve(self.condition_kernel(self.points, x))
        assert self.landmarks is not None  # they span the features
        landmarks, whitener = self.landmarks
        return self.ridge.coordinates(self.condition_kernel(x, landmarks) @ whitener.T)

    def reduce(self, values: Array) -> Float[Array, "q *outputs"]:
        return values if self.features is None else self.features.T @ values

    @property
    def features(self) -> Float[Array, "n q"] | None:
        return None if isinstance(self.ridge, DenseRidge) else self.ridge.features

    def sections(self, x: Points) -> Float[Array, "q n"]:
        """Return the reduced sections of the kernel, `reduce(kernel(points, x))`, without the matrix."""
        if self.features is None:
            return self.kernel(self.points, x)
        return _sum_over_blocks(
            lambda points, features: features.T @ self.kernel(points, x), self.points, self.features
        )

    def spread(self, coordinates: Array) -> Float[Array, "q n"]:
        """Return the inner products of the sections with elements in the span of the sample, `reduce(K_uu w)`."""
        if self.features is None:
            return self.kernel.combine_sections(self.points, self.points, coordinates)
        return self.moments() @ coordinates

    def moments(self) -> Float[Array, "q q"]:
        """Return the inner products of the features' averages, `reduce(reduce(K_uu).T)`."""
        if self.known_moments is not None:
            return self.known_moments
        assert self.features is not None  # only landmarks have moments
        return _sum_over_blocks(lambda points, features: self.sections(points) @ features, self.points, self.features)

    def inner(self, first: _Elements, second: _Elements) -> Float[Array, "n1 n2"]:
        matrix = self.kernel(first.seen, second.seen)
        if second.coordinates is not None:
            matrix = matrix - self.sections(first.seen).T @ second.coordinates
        if first.coordinates is None:
            return matrix
        right = self.sections(second.seen)
        if second.coordinates is not None:
            right = right - self.spread(second.coordinates)
        return matrix - first.coordinates.T @ right


def _sum_over_blocks(term: Callable[[Array, Array], Array], points: Array, features: Array) -> Array:
    """Sum a term over blocks of rows; the rows that fill up the last block have features 0, so they add nothing."""
    if points.shape[0] <= _BLOCK:
        return term(points, features)
    return sum_over(lambda block: term(*block), (split_rows(points, _BLOCK), split_weights(features, _BLOCK)))
