"""Shared parts of models: fields that hold a number or a prior, and functions that read points and targets."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp.data.tables import Schema, read_points
from kpp.foundation.validation import as_array, as_finite_array, check_same_rows, warn_if_float32
from kpp.functionals import AbstractFunctional
from kpp.functions import RKHSFunction
from kpp.kernels import AbstractKernel, resolve_features
from kpp.priors import has_priors, is_prior, leaf_shape, prior_sites, substitute
from kpp.runtime.memory import check_memory
from kpp.typing import Leaf, Points

Model = TypeVar("Model", bound=eqx.Module)

# Matrices of n * n numbers that an exact fit holds at once. With 2,500 rows, 7 were measured for kernel ridge
# regression and 9 for GPRegression by MAP; a smaller number refuses only what is sure to fail.
_MATRICES = 4
# Seconds for n^3 of an evidence with its gradient, measured on two cores at n = 2000.
_SECONDS = 4.6e-11


def scalar_field(name: str, **options: Any) -> Any:
    """Return an Equinox field that holds one number, or a prior for it."""
    return eqx.field(converter=functools.partial(as_scalar, name=name), **options)


def optional_scalar_field(name: str, **options: Any) -> Any:
    """Return an Equinox field that holds one number, a prior for it, or None."""
    return eqx.field(converter=lambda value: None if value is None else as_scalar(value, name), **options)


def as_scalar(value: Leaf, name: str) -> Leaf:
    """Return one finite number as an array, or a prior for one number unchanged; raise ValueError for anything else."""
    shape = leaf_shape(value if is_prior(value) or not isinstance(value, (list, tuple)) else as_array(value, name))
    if shape != ():
        what = "a prior of" if is_prior(value) else "an array of"
        raise ValueError(f"`{name}` must be one number or a prior for one, got {what} shape {shape}")
    return value if is_prior(value) else as_finite_array(value, name)


def refuse_priors_in(model: eqx.Module, instead: str) -> None:
    """Check that a model holds no priors."""
    if has_priors(model):
        raise TypeError(f"{type(model).__name__} is a fit without priors; {instead} takes them")


def replace_priors(model: Model, replace: Callable[[str, Any], Any]) -> Model:
    """Return a model in which a function of name and value replaces every field that holds priors.

    Args:
        model: The model.
        replace: `kpp.priors.sample` inside a NumPyro model, or a function that substitutes the values of a draw.
    """
    names = [field.name for field in dataclasses.fields(model) if has_priors(getattr(model, field.name))]  # type: ignore[arg-type]
    if not names:
        return model
    values = [replace(name, getattr(model, name)) for name in names]
    return eqx.tree_at(lambda tree: [getattr(tree, name) for name in names], model, values, is_leaf=is_prior)


def read_data(
    model: Model,
    x: Any,
    y: Any,
    as_targets: Callable[..., Array],
    *,
    by_features: bool = False,
    num_inducing: int | None = None,
    advice: str = "",
) -> tuple[Model, dict[str, Any], Schema]:
    """Read points and targets and resolve the feature names of a model's kernel to columns.

    Args:
        model: A model with a field `kernel`.
        x: The points: an array of shape (n, d) or a data frame.
        y: The targets, n of them.
        as_targets: Checks and converts the targets (`kpp.foundation.validation.as_targets`, or
            `kpp.data.labels.read_labels`).
        by_features: Whether the model makes no kernel matrix if the kernel has fewer finite features than rows.
        num_inducing: The number of inducing points, or of other columns for each row, if the model makes no kernel
            matrix because of them.
        advice: What to do with too many rows, in front of the general advice, for a model with an evidence.

    Returns:
        The model with feature names resolved to columns, the data ``{"x": (n, d), "y": (n,)}``, and the schema of x.

    Raises:
        ValueError: If x or y is invalid, the kernel does not match the columns or reads a category as a number, or an
            exact fit needs more memory than is available.
    """
    warn_if_float32(type(model).__name__)
    rows, schema = read_points(x)
    targets = as_targets(y, name="y")
    check_same_rows(rows.shape[0], targets.shape[0], "x", "y")
    kernel = resolve_features(model.kernel, schema.feature_names)  # type: ignore[attr-defined]
    points = jnp.asarray(rows, dtype=targets.dtype)
    check_kernel_fits(kernel, points)
    check_categories(kernel, schema)
    num_rows = rows.shape[0]
    columns = min(num_rows, _num_features(kernel, points) or num_rows) if by_features else num_rows
    columns = min(columns, num_inducing or columns)
    size = num_rows * columns * targets.dtype.itemsize
    timed = advice and columns == num_rows
    hours = f", about {_SECONDS * num_rows**3 / 3600:.1f} hours for one evidence with its gradient" if timed else ""
    check_memory(
        _MATRICES * size,
        f"{type(model).__name__} on n = {num_rows} rows of `x`, with matrices of n * "
        f"{'n' if columns == num_rows else columns} numbers ({size / 1e9:.1f} GB each{hours}),",
        f"{advice}fit fewer rows: kpp.features.compress and kpp.features.landmarks choose them",
    )
    model = eqx.tree_at(lambda tree: tree.kernel, model, kernel, is_leaf=is_prior)
    return model, {"x": points, "y": targets}, schema


def check_categories(kernel: AbstractKernel, schema: Schema, name: str = "kernel", points: str = "x") -> None:
    """Check that a kernel reads no category as a number, which the codes of its levels are not.

    Raises:
        ValueError: If a column with levels reaches a kernel other than `kpp.kernels.Categorical`; the message shows a
            kernel for the table.
    """
    wrong = kernel.features_as_numbers(schema.feature_names).intersection(schema.levels)
    if not wrong:
        return
    listed = [feature for feature in schema.feature_names if feature in wrong]
    numbers = [feature for feature in schema.feature_names if feature not in schema.levels]
    example = f"Categorical().on({_names(schema.levels)})"
    example = f"RBF().on({_names(numbers)}) * {example}" if numbers else example
    raise ValueError(
        f"`{name}` reads the {'categories' if len(listed) > 1 else 'category'} {', '.join(map(repr, listed))} of "
        f"`{points}` as numbers, but the codes of levels are not quantities; give categories to a Categorical kernel, "
        f"as in {example}, or use `kpp.kernels.default_kernel(schema)` with "
        f"`_, schema = kpp.data.tables.read_points({points})`"
    )


def _names(features: Collection[str]) -> str:
    """Return the argument of `on` as Python writes it."""
    return repr(next(iter(features)) if len(features) == 1 else tuple(features))


def check_kernel_fits(kernel: AbstractKernel, x: Points, name: str = "kernel", points: str = "x") -> None:
    """Check that a kernel can be evaluated on the points; for example, a kernel with d lengthscales needs d columns.

    Raises:
        ValueError: If it cannot; the message holds the error of the kernel.
    """
    few = jax.tree.map(lambda leaf: leaf[:2], x)  # a matrix of all points may be too large
    try:
        jax.eval_shape(lambda rows: with_ones(kernel, rows).gram(rows), few)
    except (TypeError, ValueError, IndexError) as error:
        shapes = " and ".join(str(leaf.shape) for leaf in jax.tree.leaves(x))
        raise ValueError(f"`{name}` cannot be evaluated on `{points}` of shape {shapes}: {error}") from error
    if not _is_defined_everywhere(kernel):
        known, extremes = with_ones(kernel, x), _extremes(x)
        known.finite_features(extremes)  # its message says what is wrong
        if bool(jnp.any(jnp.isnan(known.diagonal(extremes)))):
            raise ValueError(f"`{name}` is not defined at all points of `{points}`")


def check_functional_fits(
    functional: AbstractFunctional, kernel: AbstractKernel, x: Float[Array, "n d"], name: str
) -> None:
    """Check that a functional is one of functions of the points x, and defined for those of a kernel.

    Raises:
        ValueError: If its points have other columns, or the functions of the kernel do not have its numbers, such as
            derivatives.
        TypeError: If it is not a functional of values and derivatives of any function.
    """

    def probe(points: Points) -> Array:
        if jnp.shape(points)[1:] != x.shape[1:]:
            raise ValueError(
                f"`{name}` must have points with {x.shape[1]} columns, as `x`, got points of shape {jnp.shape(points)}"
            )
        return jnp.zeros(points.shape[0], x.dtype)

    try:
        jax.eval_shape(lambda: functional.apply(probe))
    except (AttributeError, TypeError) as error:
        raise TypeError(
            f"`{name}` must be functionals of values and derivatives, got {type(functional).__name__}: {error}"
        ) from error
    functional.check_space(RKHSFunction(with_ones(kernel, x), x[:1], jnp.ones(1, x.dtype)))


def _is_defined_everywhere(kernel: AbstractKernel) -> bool:
    """Return whether all kernels that a kernel is made of are defined at all points."""

    def partial(node: object) -> bool:
        return isinstance(node, AbstractKernel) and not node.everywhere

    return not any(map(partial, jax.tree.leaves(kernel, is_leaf=partial)))


def _extremes(x: Points) -> Points:
    """Return those rows of all arrays of points that hold the least or the largest value of a column."""
    columns = [np.asarray(leaf).reshape(leaf.shape[0], -1) for leaf in jax.tree.leaves(x)]
    rows = np.unique(
        np.concatenate([choose(values, axis=0) for values in columns for choose in (np.argmin, np.argmax)])
    )
    return jax.tree.map(lambda leaf: leaf[rows], x)


def _num_features(kernel: AbstractKernel, x: Points) -> int | None:
    """Return the number of finite features of a kernel, which may hold priors, or None."""
    one = jax.tree.map(lambda leaf: leaf[:1], x)
    found = jax.eval_shape(lambda rows: with_ones(kernel, rows).finite_features(rows), one)
    return None if found is None else found.shape[1]


def with_ones(kernel: AbstractKernel, x: Points) -> AbstractKernel:
    """Return a kernel with ones in place of its priors."""
    dtype = jax.tree.leaves(x)[0].dtype
    ones = {site: jnp.ones(prior.shape(), dtype) for site, prior in prior_sites("kernel", kernel).items()}
    return substitute("kernel", kernel, ones)


def example_points(rng_key: Array) -> tuple[Float[Array, "12 2"], Float[Array, " 12"]]:
    """Return 12 points with two features and noisy values of a smooth function, for the conformance suite."""
    first, second = jax.random.split(rng_key)
    x = jax.random.uniform(first, (12, 2), minval=-2.0, maxval=2.0)
    return x, jnp.sin(x[:, 0]) + 0.5 * x[:, 1] + 0.1 * jax.random.normal(second, (12,))
