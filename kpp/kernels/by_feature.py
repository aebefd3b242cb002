"""Kernels that treat the features separately: one kernel per feature, and kernels of some of the features."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp.foundation.supports import is_prior
from kpp.foundation.wording import named
from kpp.kernels.base import AbstractKernel, AbstractProductKernel, as_mask, implements
from kpp.kernels.checks import check_matrices, check_points, example_points
from kpp.kernels.parts import AbstractComposite, as_kernel, as_kernels
from kpp.kernels.points.nonstationary import Linear
from kpp.kernels.points.stationary import RBF, Matern12, Matern32
from kpp.priors import prior_sites
from kpp.typing import AnyArray, Coefficients, Features, Leaf, Numbers, OutputValues, Points, RngKey

K = TypeVar("K")


def _as_features(features: Features) -> tuple[int | str, ...]:
    """Convert the field `features`: one or several positions or names, without repetitions."""
    several = (features,) if isinstance(features, str) or not np.iterable(features) else tuple(features)
    if not several:
        raise ValueError("`features` must name at least one feature, got none")
    converted: list[int | str] = []
    for feature in several:
        if isinstance(feature, bool) or not isinstance(feature, (int, str, np.integer)):
            raise TypeError(f"`features` must hold positions or names, got {type(feature).__name__} {feature!r}")
        if not isinstance(feature, str) and feature < 0:
            raise ValueError(f"`features` counts columns from 0, got {feature}")
        converted.append(feature if isinstance(feature, str) else int(feature))
    if len(set(converted)) < len(converted):
        raise ValueError(f"`features` must name each feature once, got {tuple(converted)}")
    return tuple(converted)


class ProductKernel(AbstractProductKernel):
    r"""One kernel for each feature, multiplied; a product kernel for any kernels.

    .. math::

        k(x, x') = \prod_{j=1}^d k_j(x_j, x'_j) = \sigma^2 \prod_{j=1}^d \tilde k_j(x_j, x'_j), \qquad
        k_j = \sigma_j^2 \tilde k_j, \quad \sigma^2 = \prod_j \sigma_j^2

    Each kernel receives only its own feature, as a point of shape (1,). The scale is the product of the kernels'
    scales, in most cases their variances, as `split_scale` returns them; the factors are the kernels without their
    scales. Only the product of the variances matters: leave them at 1 and write ``ProductKernel(...) * prior``.

    Args:
        kernels: One kernel per feature, in the order of the columns.

    Example:
        >>> kernel = kernels.ProductKernel((kernels.RBF(1.0), kernels.Matern32(1.0)))
        >>> kernel.gram(x).shape
        (3, 3)
    """

    kernels: tuple[AbstractKernel, ...] = eqx.field(converter=as_kernels)

    @property
    def scale(self) -> Float[Array, ""]:
        return jnp.asarray(functools.reduce(operator.mul, [kernel.split_scale()[0] for kernel in self.kernels]))

    @property
    def nonnegative(self) -> bool:
        return all(isinstance(kernel, AbstractProductKernel) and kernel.nonnegative for kernel in self.kernels)

    def evaluate_factors(self, x1: Array, x2: Array) -> Float[Array, " d"]:
        """Return each kernel at its feature, without its scale, for two points of shape (d,)."""
        self._check_count(check_points(self, x1, x2))
        return jnp.stack(self._parts(lambda kernel, j: kernel.evaluate(x1[j : j + 1], x2[j : j + 1])))

    def factors(self, x1: Array, x2: Array) -> Float[Array, "d n1 n2"]:
        self._check_count(check_matrices(self, x1, x2))
        return jnp.stack(self._parts(lambda kernel, j: kernel(x1[:, j : j + 1], x2[:, j : j + 1])))

    def __call__(self, x1: Array, x2: Array) -> Float[Array, "n1 n2"]:
        self._check_count(check_matrices(self, x1, x2))
        values = [kernel(x1[:, j : j + 1], x2[:, j : j + 1]) for j, kernel in enumerate(self.kernels)]
        return functools.reduce(operator.mul, values)

    def features_as_numbers(self, features: Sequence[str]) -> frozenset[str]:
        self._check_count(len(features))
        parts = zip(self.kernels, features, strict=True)
        return frozenset().union(*(kernel.features_as_numbers((feature,)) for kernel, feature in parts))

    def _parts(self, evaluate: Callable[[AbstractKernel, int], Array]) -> list[Array]:
        return [evaluate(kernel.split_scale()[1], j) for j, kernel in enumerate(self.kernels)]

    def _check_count(self, num_features: int) -> None:
        if num_features != len(self.kernels):
            raise ValueError(
                f"`kernels` holds {len(self.kernels)} kernels, but the points have {num_features} features; "
                "ProductKernel needs one kernel per feature"
            )

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractKernel, Any]]:
        yield cls((RBF(0.7, 2.0), Matern12(1.5), Linear(0.5) + 1.0)), example_points(rng_key, 3)


class AbstractSelection(AbstractKernel):
    """A kernel of some of the features: positions from 0, or names that `resolve_features` turns into positions."""

    kernel: AbstractKernel = eqx.field(converter=as_kernel)
    features: tuple[int | str, ...] = eqx.field(static=True, converter=_as_features)

    def evaluate(self, x1: Array, x2: Array) -> Float[Array, ""]:
        index = _positions(self.features, check_points(self, x1, x2))
        return self.kernel.evaluate(x1[index], x2[index])

    def __call__(self, x1: Array, x2: Array) -> Float[Array, "n1 n2"]:
        index = _positions(self.features, check_matrices(self, x1, x2))
        return self.kernel(x1[:, index], x2[:, index])

    def gram(self, x: Array) -> Float[Array, "n n"]:
        return self.kernel.gram(x[:, _positions(self.features, check_matrices(self, x, x))])

    def features_as_numbers(self, features: Sequence[str]) -> frozenset[str]:
        kept = tuple(features[_resolve(feature, list(features))] for feature in self.features)
        return self.kernel.features_as_numbers(kept)


class Selected(AbstractSelection, AbstractComposite):
    r"""A kernel of some of the features.

    .. math:: k(x, x') = k_1(x_F, x'_F)

    On one feature it is a product kernel for any kernel; on several features it is one if the kernel is one.

    Args:
        kernel: The kernel :math:`k_1`, which receives only the selected features, in the order given.
        features: F, a static tuple of positions from 0, or of names that `resolve_features` turns into positions.
    """

    def finite_features(self, x: Points) -> Float[Array, "n q"] | None:
        return self.kernel.finite_features(x[:, _positions(self.features, check_matrices(self, x, x))])

    def combine_sections(self, x: Points, points: Points, coefficients: Coefficients) -> OutputValues:
        x, points = jnp.asarray(x), jnp.asarray(points)
        index = _positions(self.features, check_matrices(self, x, points))
        return self.kernel.combine_sections(x[:, index], points[:, index], coefficients)

    def product_terms(self) -> tuple[AbstractProductKernel, ...]:
        """Return the terms of the kernel as functions of all features; on one feature there is one term."""
        if len(self.features) == 1:
            return (SelectedTerm(ProductKernel((self.kernel,)), self.features),)
        return tuple(SelectedTerm(term, self.features) for term in self.kernel.product_terms())

    def split_scale(self) -> tuple[Leaf, AbstractKernel]:
        scale, kernel = self.kernel.split_scale()
        return scale, Selected(kernel, self.features)

    def unfold(self, points: Points, coefficients: Coefficients) -> tuple[AbstractKernel, Points, AnyArray]:
        """Unfold the kernel on its features; the new points are 0 in the other features, which the kernel ignores."""
        index = _positions(self.features, points.shape[1])
        kernel, inner, coefficients = self.kernel.unfold(points[:, index], coefficients)
        if kernel is self.kernel:
            return self, points, coefficients
        outer = jnp.zeros((inner.shape[0], points.shape[1]), dtype=inner.dtype).at[:, index].set(inner)
        return Selected(kernel, self.features), outer, coefficients

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractKernel, Any]]:
        x = example_points(rng_key, 3)
        yield cls(Matern32(0.7, 2.0), (1,)), x
        yield cls(RBF(jnp.array([0.5, 2.0])), (2, 0)), x


class SelectedTerm(AbstractSelection, AbstractProductKernel):
    """A product kernel of some of the features, as a product kernel of all features: the other factors are 1."""

    kernel: AbstractProductKernel

    @property
    def scale(self) -> Float[Array, ""]:
        return self.kernel.scale

    @property
    def nonnegative(self) -> bool:
        return self.kernel.nonnegative

    def evaluate_factors(self, x1: Array, x2: Array) -> Float[Array, " d"]:
        index = _positions(self.features, check_points(self, x1, x2))
        return jnp.ones_like(x1).at[index].set(self.kernel.evaluate_factors(x1[index], x2[index]))

    def restrict(self, mask: Numbers) -> SelectedTerm:
        mask = as_mask(mask)
        return SelectedTerm(self.kernel.restrict(mask[_positions(self.features, mask.shape[0])]), self.features)


@implements("on")
def select(kernel: AbstractKernel, features: Features) -> Selected:
    """Return a kernel as a function of some of the features only."""
    return Selected(kernel, _as_features(features))


def resolve_features(kernel: K, feature_names: Sequence[str]) -> K:
    """Replace names of features by their positions in every `on(...)` of a kernel.

    Args:
        kernel: A kernel, or any pytree that holds kernels, with or without priors.
        feature_names: The names of all features, in the order of the columns.

    Returns:
        The same kernel with positions in place of names. Positions are kept.

    Raises:
        ValueError: If a name is unknown, or a position is beyond the last feature.

    Example:
        >>> kernels.resolve_features(kernels.RBF(1.0).on("bmi"), ["age", "bmi"]).features
        (1,)
    """
    names = list(feature_names)

    def is_leaf(node: object) -> bool:
        return isinstance(node, Selected) or is_prior(node)

    def resolve(node: object) -> Any:
        if not isinstance(node, Selected):
            return node
        features = tuple(_resolve(feature, names) for feature in node.features)
        # The positions of an inner selection refer to the features that this selection keeps.
        return Selected(resolve_features(node.kernel, [names[j] for j in features]), features)

    return jax.tree.map(resolve, kernel, is_leaf=is_leaf)


def names_of_sites(name: str, kernel: AbstractKernel, feature_names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the features of each prior in an `on(...)` that has one number for each of them, by its site.

    Selections inside of sums, products and scaled kernels are found. Names of sites begin with the name of the kernel.
    """
    names, found = tuple(feature_names), {}
    if isinstance(kernel, Selected):
        names = tuple(names[_resolve(feature, list(names))] for feature in kernel.features)
        sites = prior_sites(f"{name}.kernel", kernel.kernel)
        found = {site: names for site, prior in sites.items() if prior.event_shape == (len(names),)}
    if isinstance(kernel, AbstractComposite):
        parts = jax.tree_util.tree_leaves_with_path(kernel, is_leaf=lambda node: node is not kernel and _is_part(node))
        for path, part in parts:
            if isinstance(part, AbstractComposite):
                where = jax.tree_util.keystr(path, simple=True, separator=".")
                found |= names_of_sites(f"{name}.{where}", part, names)
    return found


def _is_part(node: object) -> bool:
    return isinstance(node, AbstractKernel) or is_prior(node)


def _resolve(feature: int | str, names: list[str]) -> int:
    if isinstance(feature, str):
        if feature not in names:
            raise ValueError(f"`features` names {feature!r}, which is not among the features {named(names)}")
        return names.index(feature)
    return _check_position(feature, len(names))


def _positions(features: tuple[int | str, ...], num_features: int) -> np.ndarray:
    """Return positions as a static index, or raise ValueError: JAX would clamp one that is too large."""
    names = [feature for feature in features if isinstance(feature, str)]
    if names:
        raise ValueError(
            f"`features` holds the names {names}, which arrays do not have; give positions, or use "
            "`kpp.kernels.resolve_features(kernel, feature_names)`"
        )
    return np.array([_check_position(int(feature), num_features) for feature in features])


def _check_position(feature: int, num_features: int) -> int:
    if feature >= num_features:
        raise ValueError(f"`features` holds the position {feature}, but the points have {num_features} features")
    return feature
