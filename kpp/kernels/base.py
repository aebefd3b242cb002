r"""The interface of kernels, with default implementations of everything that follows from one method.

A kernel is a function of two points, :math:`k(x, x')`, symmetric and positive semi-definite. One that factorizes over
the features, :math:`k(x, x') = \sigma^2 \prod_j k_j(x_j, x'_j)`, is a product kernel: each feature can be removed from
it separately, as exact Shapley values require.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kpp.foundation.modules import AbstractModule
from kpp.kernels.parameters import bounded, kernel_html, prepared, scalar, show_fields, without_priors
from kpp.typing import AnyArray, Coefficients, Features, Leaf, Numbers, OutputValues, Points, RngKey


@runtime_checkable
class _HasVariance(Protocol):
    @property
    def variance(self) -> Leaf: ...


WithVariance = TypeVar("WithVariance", bound=_HasVariance)
Operator = TypeVar("Operator", bound="Callable[..., AbstractKernel]")

# Methods that need values of all parameters: those whose arguments are points, and the others.
_ON_POINTS = "__call__ diagonal evaluate evaluate_factors factors feature_map finite_features gram".split()
_OPERATORS: dict[str, Callable[..., AbstractKernel]] = {}  # see `implements`
_ON_PARAMETERS = ("scale", "restrict", "split_scale", "unfold")


class AbstractKernel(AbstractModule):
    r"""A kernel: a symmetric, positive semi-definite function of two points.

    The one method to write is `evaluate`, on two points. Everything else follows from it. A batch of points is a pytree
    whose arrays lead with the same axis n: usually one array (n, d), or any other points that `evaluate` takes.

    Parameters are fields. A field may hold a NumPyro distribution, a prior for its value; the kernel can then be built,
    combined and printed, but it cannot be evaluated before `kpp.sample` has replaced the priors by values. The points
    determine the precision: the kernel's floating-point arrays are cast to the type of the points before any
    evaluation.

    Kernels are unhashable: they hold arrays, so they can be neither static arguments of `jax.jit` nor keys.
    """

    #: Whether the kernel is defined at all points; if not, it raises ValueError at others, and is NaN in traced code.
    everywhere: ClassVar[bool] = True

    __hash__ = None  # type: ignore[assignment]
    __array_ufunc__ = None  # so that NumPy numbers on the left of `*` and `+` call the operators of the kernel

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Wrap the methods of a subclass: priors raise TypeError, and arguments are prepared."""
        super().__init_subclass__(**kwargs)
        for names, decorate in ((_ON_POINTS, prepared), (_ON_PARAMETERS, without_priors)):
            for name in names:
                member = cls.__dict__.get(name)
                if member is not None and not getattr(member, "__isabstractmethod__", False):
                    setattr(cls, name, decorate(bounded(member) if name == "gram" else member))

    @abstractmethod
    def evaluate(self, x1: Points, x2: Points) -> Float[Array, ""]:
        """Evaluate the kernel at two points.

        Law: the result is a scalar; it does not change when the two points are exchanged; the matrix of any points with
        themselves is positive semi-definite; the function can go through `jax.jit`, `jax.vmap` and `jax.grad`, with
        finite gradients also where the two points coincide.

        Args:
            x1: A point, usually an array (d,).
            x2: Another point.

        Returns:
            k(x1, x2), a scalar.
        """

    @prepared
    def __call__(self, x1: Points, x2: Points) -> Float[Array, "n1 n2"]:
        """Evaluate the kernel at every pair of two batches of points.

        Args:
            x1: n1 points, usually an array (n1, d).
            x2: n2 points.

        Returns:
            The matrix of k(x1[i], x2[j]), of shape (n1, n2).

        Raises:
            ValueError: If an array of points is one-dimensional, or the shapes do not fit the kernel.
            TypeError: If the kernel holds priors.
        """
        _check_batch(x1, "x1")
        _check_batch(x2, "x2")
        return _over_pairs(self.evaluate)(x1, x2)

    @prepared
    @bounded
    def gram(self, x: Points) -> Float[Array, "n n"]:
        """Evaluate the kernel at every pair of points of one batch.

        Args:
            x: n points, usually an array (n, d).

        Returns:
            The matrix of k(x[i], x[j]), of shape (n, n).

        Raises:
            ValueError: As for a call, or if the matrix needs more memory than is available.
            TypeError: As for a call.
        """
        _check_batch(x, "x")
        return self(x, x)

    @prepared
    def diagonal(self, x: Points) -> Float[Array, " n"]:
        """Evaluate the kernel at each point with itself.

        Args:
            x: n points, usually an array (n, d).

        Returns:
            The vector of k(x[i], x[i]), of shape (n,).

        Raises:
            ValueError: As for a call.
            TypeError: As for a call.
        """
        _check_batch(x, "x")
        return jax.vmap(lambda point: self.evaluate(point, point))(x)

    def combine_sections(self, x: Points, points: Points, coefficients: Coefficients) -> OutputValues:
        r"""Evaluate a function spanned by sections of the kernel, :math:`\sum_i \alpha_i\, k(x, z_i)`.

        A kernel of finite rank can do this without the matrix between the points.

        Args:
            x: n points, usually an array (n, d).
            points: The m points :math:`z_i`.
            coefficients: :math:`\alpha`, (m,) or (m, outputs).

        Returns:
            The values, (n,) or (n, outputs).
        """
        return self(x, points) @ coefficients

    def finite_features(self, x: Points) -> Float[Array, "n q"] | None:
        r"""Return features whose inner products are the kernel, if it is known to have finitely many.

        .. math:: k(x, x') = \phi(x)^\top \phi(x')

        Models then work with a matrix (q, q) in place of (n, n) if there are fewer features than points.

        Law: a row depends on its point alone, and q is the same for all points.

        Args:
            x: n points, usually an array (n, d).

        Returns:
            The features, (n, q); None by default.
        """
        return None

    def product_terms(self) -> tuple[AbstractProductKernel, ...]:
        """Return product kernels that sum to this kernel.

        Returns:
            The terms; exact explainers work on each and add up.

        Raises:
            TypeError: If the kernel is not a finite sum of product kernels, or its fields do not determine the terms.
        """
        raise TypeError(
            f"{type(self).__name__} is not a sum of product kernels: it does not factorize over the features. "
            "Use RBF, Periodic or Categorical, or one kernel per feature: ProductKernel((kernel_1, ..., kernel_d))"
        )

    def split_scale(self) -> tuple[Leaf, AbstractKernel]:
        r"""Write the kernel as :math:`k = \sigma^2 \tilde k`, for use as a factor of a product kernel.

        Returns:
            The scale :math:`\sigma^2`, a scalar, and the kernel :math:`\tilde k` that is left. A kernel that does not
            say otherwise has scale 1.
        """
        return 1.0, self

    def unfold(self, points: Points, coefficients: Coefficients) -> tuple[AbstractKernel, Points, AnyArray]:
        r"""Write a function spanned by sections of this kernel with a simpler kernel, if there is one.

        .. math:: \sum_i \alpha_i\, k(\cdot, x_i) = \sum_j \beta_j\, k'(\cdot, z_j)

        A section of a kernel of finite rank that is built on another one, as by Nyström's method, is a mixture of
        sections of the other. Explainers, which take kernels apart by features, work on those.

        Law: the two functions are equal everywhere. A kernel that has no simpler one returns itself, the same object.

        Args:
            points: The n points :math:`x_i`.
            coefficients: :math:`\alpha`, (n,) or (n, outputs).

        Returns:
            The kernel k', its m points and the coefficients, (m,) or (m, outputs); by default the arguments.

        Raises:
            TypeError: If the kernel holds priors.
        """
        return self, points, coefficients

    def features_as_numbers(self, features: Sequence[str]) -> frozenset[str]:
        """Return the names of the features that the kernel reads as numbers, whose order and distances matter.

        Law: the codes of a feature that is not returned can be exchanged by any bijection, in all points, without
        changing the kernel.

        Args:
            features: The names of the columns that the kernel receives, in their order.

        Returns:
            A part of `features`. By default it is what the kernels among the fields read as numbers, or all features if
            no field holds a kernel. A kernel that computes other numbers from the columns overrides this.
        """
        parts = [part for field in dataclasses.fields(self) for part in _kernels_in(getattr(self, field.name))]  # type: ignore[arg-type]
        if not parts:
            return frozenset(features)
        return frozenset().union(*(part.features_as_numbers(features) for part in parts))

    def on(self, features: Features) -> AbstractKernel:
        """Return the kernel as a function of some of the features only.

        Args:
            features: One column or a tuple of several, by position from 0 or by name, in the order in which the kernel
                receives them. Names are resolved when a model learns them from its table, or by `resolve_features`.

        Returns:
            The kernel as a function of all features.
        """
        return _OPERATORS["on"](self, features)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractKernel, Any]]:
        """Yield instances of the class, each with a batch of points for it, for the conformance suite.

        Args:
            rng_key: A JAX random key for the points.
        """
        raise NotImplementedError(
            f"{cls.__name__} must define the classmethod `examples(rng_key)`, yielding pairs (instance, points)"
        )

    def __add__(self, other: AbstractKernel | Leaf) -> AbstractKernel:
        """Add a kernel, or a number: a `Constant` kernel."""
        return _OPERATORS["+"](self, other)

    def __radd__(self, other: AbstractKernel | Leaf) -> AbstractKernel:
        """Add to a number; `sum` starts from 0."""
        return self if isinstance(other, int) and other == 0 else _OPERATORS["+"](other, self)

    def __mul__(self, other: AbstractKernel | Leaf) -> AbstractKernel:
        """Multiply by a kernel, or by a number: `Scaled`."""
        return _OPERATORS["*"](self, other)

    def __rmul__(self, other: AbstractKernel | Leaf) -> AbstractKernel:
        """Multiply a number by the kernel: `Scaled`."""
        return _OPERATORS["*"](self, other)

    def __repr__(self) -> str:
        return show_fields(self)

    def _repr_html_(self) -> str:
        """Return the kernels that this kernel consists of, with their parameters and priors, for notebooks."""
        return kernel_html(self)


class AbstractBatchKernel(AbstractKernel):
    """A kernel that is computed for batches of points: the methods to write are `__call__` and `examples`."""

    @abstractmethod
    def __call__(self, x1: Points, x2: Points) -> Float[Array, "n1 n2"]:
        """Evaluate the kernel at every pair of two batches of points; the laws are those of `AbstractKernel`."""

    def evaluate(self, x1: Points, x2: Points) -> Float[Array, ""]:
        first, second = (jax.tree.map(lambda leaf: leaf[None], point) for point in (x1, x2))
        return self(first, second)[0, 0]


class AbstractProductKernel(AbstractKernel):
    r"""A kernel that is a product over the features.

    .. math:: k(x, x') = \sigma^2 \prod_{j=1}^d k_j(x_j, x'_j)

    The methods to write are `scale` and `evaluate_factors`. A feature has no influence if its factor is replaced by 1,
    as `restrict` does.
    """

    @property
    @abstractmethod
    def scale(self) -> Float[Array, ""]:
        r"""The factor :math:`\sigma^2` that does not depend on the features, in the precision of the parameters."""

    @property
    def nonnegative(self) -> bool:
        """Whether no factor is negative at any points; False if this is not known.

        Law: where it is True, ``evaluate_factors(x1, x2) >= 0``.
        """
        return False

    @abstractmethod
    def evaluate_factors(self, x1: Points, x2: Points) -> Float[Array, " d"]:
        """Evaluate the factors at two points.

        Law: ``evaluate(x1, x2) == scale * prod(evaluate_factors(x1, x2))``, and entry j depends on feature j only.

        Args:
            x1: A point (d,).
            x2: Another point (d,).

        Returns:
            The factors, of shape (d,), without the scale.
        """

    def evaluate(self, x1: Points, x2: Points) -> Float[Array, ""]:
        """Evaluate the kernel at two points: the scale times the product of the factors."""
        product = jnp.prod(self.evaluate_factors(x1, x2))
        return jnp.asarray(self.scale, dtype=product.dtype) * product

    def factors(self, x1: Points, x2: Points) -> Float[Array, "d n1 n2"]:
        """Evaluate the factors at every pair of two batches of points.

        Args:
            x1: n1 points (n1, d).
            x2: n2 points (n2, d).

        Returns:
            The factors, of shape (d, n1, n2), without the scale.

        Raises:
            ValueError: As for a call.
            TypeError: As for a call.
        """
        _check_batch(x1, "x1")
        _check_batch(x2, "x2")
        return _over_pairs(self.evaluate_factors, axis=1)(x1, x2)

    def restrict(self, mask: Numbers) -> AbstractProductKernel:
        """Leave out features: replace their factors, and the scale, by 1.

        Args:
            mask: True for the features that stay, of shape (d,). It may be traced by JAX.

        Returns:
            A product kernel of scale 1. With no feature left it is 1 everywhere.

        Raises:
            ValueError: If `mask` is not a vector of booleans.
            TypeError: If the kernel holds priors.
        """
        return Restricted(self, as_mask(mask))

    def product_terms(self) -> tuple[AbstractProductKernel, ...]:
        return (self,)


class AbstractScaledProduct(AbstractProductKernel):
    """A product kernel whose scale is its field `variance`, and whose factors are not negative."""

    @property
    def scale(self) -> Float[Array, ""]:
        return scalar(self.variance, "variance")  # type: ignore[attr-defined]

    @property
    def nonnegative(self) -> bool:
        return True

    def split_scale(self) -> tuple[Leaf, AbstractKernel]:
        return split_variance(self)  # type: ignore[type-var]


class Restricted(AbstractProductKernel):
    r"""A product kernel without its scale and with some factors replaced by 1, as returned by `restrict`.

    .. math:: k_S(x, x') = \prod_{j \in S} k_j(x_j, x'_j)
    """

    kernel: AbstractProductKernel
    mask: Bool[Array, " d"]

    @property
    def scale(self) -> Float[Array, ""]:
        return jnp.ones(())

    @property
    def nonnegative(self) -> bool:
        return self.kernel.nonnegative

    def evaluate_factors(self, x1: Points, x2: Points) -> Float[Array, " d"]:
        factors = self.kernel.evaluate_factors(x1, x2)
        if factors.shape != self.mask.shape:
            raise ValueError(f"`mask` has shape {self.mask.shape}, but the kernel has {factors.shape[0]} factors")
        return jnp.where(self.mask, factors, jnp.ones_like(factors))

    def evaluate(self, x1: Points, x2: Points) -> Float[Array, ""]:
        return jnp.prod(self.evaluate_factors(x1, x2))


def split_variance(kernel: WithVariance) -> tuple[Leaf, WithVariance]:
    """Split a kernel into its field `variance`, which multiplies it, and the kernel with variance 1."""
    variance = scalar(kernel.variance, "variance")
    return variance, eqx.tree_at(lambda k: k.variance, kernel, jnp.ones_like(variance))


def implements(operator: str) -> Callable[[Operator], Operator]:
    """Register a function as the implementation of an operator of kernels: "+", "*" or "on".

    An operator returns a kernel, for example a sum, whose file imports this one. To avoid an import cycle, that file
    registers the function behind the operator, when `kpp.kernels` is imported.
    """

    def register(function: Operator) -> Operator:
        _OPERATORS[operator] = function
        return function

    return register


def as_mask(mask: Numbers) -> Bool[Array, " d"]:
    """Return a mask of features as a JAX array, or raise ValueError if it is not a vector of booleans."""
    mask = jnp.asarray(mask)
    if mask.ndim != 1 or mask.dtype != jnp.bool_:
        raise ValueError(
            f"`mask` must be a vector of booleans, one per feature, got shape {mask.shape} and dtype {mask.dtype}; use "
            "`jax.vmap` for many masks"
        )
    return mask


def _kernels_in(value: object) -> list[AbstractKernel]:
    """Return the kernels in a field, without the kernels that they hold."""
    leaves = jax.tree.leaves(value, is_leaf=lambda node: isinstance(node, AbstractKernel))
    return [leaf for leaf in leaves if isinstance(leaf, AbstractKernel)]


def _over_pairs(function: Callable[..., Array], axis: int = 0) -> Any:
    """Map a function of two points over two batches; the axes of the batches come at position `axis`."""
    inner = jax.vmap(function, in_axes=(None, 0), out_axes=axis)
    return jax.vmap(inner, in_axes=(0, None), out_axes=axis)


def has_product_terms(kernel: AbstractKernel) -> bool:
    """Return whether a kernel is a sum of product kernels."""
    try:
        kernel.product_terms()
    except TypeError:
        return False
    return True


def _check_batch(x: Points, name: str) -> None:
    """Raise ValueError for an array that cannot be a batch of points."""
    if not isinstance(x, jax.Array) or x.ndim > 1:
        return
    raise ValueError(
        f"`{name}` must have shape (n, d), got shape {x.shape}; write `{name}[:, None]` for n points with one feature "
        f"or `{name}[None, :]` for one point with d features"
    )
