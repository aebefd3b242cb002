"""Parameters of a kernel: numbers, arrays or priors, which are converted to float arrays and cast before use.

A kernel keeps its parameters in the precision in which they were given and uses them in the precision of the points:
`prepared` casts the kernel before one of its evaluation methods runs, and raises TypeError while a parameter is still a
prior.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree
from numpyro.distributions import Distribution, ExpandedDistribution, Independent

from kpp.foundation.supports import check_prior_shape, check_prior_support, is_prior
from kpp.foundation.validation import at_least, between, finite_arrays, is_concrete, positive, refuse_non_finite
from kpp.runtime.handler_stack import separate_threads
from kpp.runtime.memory import check_memory
from kpp.runtime.notebook import Html, escaped, items, panel
from kpp.typing import Leaf, Points

# Matrices of more entries must fit into the memory that is available; asking the system takes some time.
_MAX_UNCHECKED = 2**26

_NO_DRAWS = "kernels never see draws: `jax.vmap` over the kernel or `RKHSFunction.map_draws` takes them one by one"

separate_threads()


def parameter(name: str) -> Callable[[Leaf], Leaf]:
    """Return the field converter of the parameter called `name`.

    The converter returns priors and floating-point arrays unchanged, converts other real numbers to an array of the
    default float type, and raises TypeError for anything else.
    """

    def convert(value: Leaf) -> Leaf:
        if is_prior(value):
            check_prior_shape(value, name)
            return value
        array = value if isinstance(value, jax.Array) else _as_numpy(value, name)
        if jnp.issubdtype(array.dtype, jnp.floating):
            # With a type given, JAX need not compile the conversion of an array of NumPy.
            return array if isinstance(array, jax.Array) else jnp.asarray(array, jnp.result_type(array))
        if not jnp.issubdtype(array.dtype, jnp.integer):
            raise TypeError(_not_a_parameter(name, value))
        return jnp.asarray(array, dtype=jnp.result_type(float))

    return convert


def point_rows(name: str) -> Callable[[Leaf | None], Leaf | None]:
    """Return the field converter of points that a kernel or a model holds; None and priors are left unchanged.

    The converter raises ValueError unless there is at least one row and, where values are known, all are finite.
    """

    def convert(value: Leaf | None) -> Leaf | None:
        points = None if value is None else parameter(name)(value)
        if points is None or is_prior(points):
            return points
        if points.ndim < 2 or 0 in points.shape:
            raise ValueError(f"`{name}` must have shape (n, d) with at least one row, got shape {points.shape}")
        refuse_non_finite(points, name)
        return points

    return convert


def check_positive(value: Leaf, name: str, *, infinity_allowed: bool = True) -> None:
    """Check that the values of a parameter are positive; traced values are accepted, and infinity if it is allowed."""
    if is_prior(value):
        check_prior_support(value, name)
    if isinstance(value, (jax.Array, np.ndarray)):
        positive(value, name, infinity_allowed=infinity_allowed)


def check_non_negative(value: Leaf, name: str) -> None:
    """Check that the values of a parameter are at least 0 and finite; traced values are accepted.

    Raises:
        ValueError: If a value is negative, infinite or NaN, or a prior has negative draws.
    """
    if is_prior(value):
        check_prior_support(value, name)
    if isinstance(value, (jax.Array, np.ndarray)):
        at_least(value, name, 0)
        if is_concrete(value) and np.isinf(np.asarray(value)).any():
            raise ValueError(f"`{name}` must be finite, got {show(value)}")


def check_in_unit_interval(value: Leaf, name: str) -> None:
    """Check that the values of a parameter are in [0, 1]; traced values are accepted."""
    if is_prior(value):
        check_prior_support(value, name, high=1.0)
    if isinstance(value, (jax.Array, np.ndarray)):
        between(value, name, 0, 1)


def scalar(value: Array, name: str) -> Array:
    """Return a parameter that must be one number, after checking that it is."""
    if value.ndim == 0:
        return value
    raise ValueError(f"`{name}` must be one number, got shape {value.shape}; {_NO_DRAWS}")


def per_feature(value: Array, name: str, num_features: int) -> Array:
    """Return a parameter that is one number, or one per feature; raise ValueError if its shape is not () or (d,)."""
    if value.shape in ((), (num_features,)):
        return value
    if value.ndim > 1:
        raise ValueError(
            f"`{name}` must be one number or have shape ({num_features},), got shape {value.shape}; {_NO_DRAWS}"
        )
    raise ValueError(
        f"`{name}` has shape {value.shape}, but the points have {num_features} features; "
        f"it must be one number or have shape ({num_features},)"
    )


def without_priors(member: Any) -> Any:
    """Make a method or a property of a kernel raise TypeError while the kernel holds priors."""
    if isinstance(member, property):
        return property(without_priors(member.fget), doc=member.__doc__)
    method = member

    @functools.wraps(method)
    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        _refuse_priors(self)
        return method(self, *args, **kwargs)

    return checked


def prepared(method: Callable) -> Callable:
    """Make a method of a kernel, all of whose arguments are points, receive arrays of one precision.

    Before the method runs, arguments become JAX arrays (plain arrays of integers become floats), all floating-point
    ones of their common type, and the kernel's floating-point arrays are cast to it. TypeError is raised if the kernel
    holds priors, and ValueError if points are not finite real numbers; traced arrays are trusted.
    """
    names = tuple(inspect.signature(method).parameters)[1:]

    @functools.wraps(method)
    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        _refuse_priors(self)
        args = tuple(_as_arrays(points, name) for points, name in zip(args, (*names, *["x"] * len(args)), strict=False))
        kwargs = {name: _as_arrays(points, name) for name, points in kwargs.items()}
        dtype = _common_float_type((args, kwargs))
        self, args, kwargs = jax.tree.map(lambda leaf: _cast(leaf, dtype), (self, args, kwargs))
        return method(self, *args, **kwargs)

    return checked


def show(value: object) -> str:
    """Return a short text for a field: values of numbers and arrays, arguments of priors."""
    if is_prior(value):
        return _show_prior(value)
    if isinstance(value, tuple):
        return "(" + ", ".join(map(show, value)) + ("," if len(value) == 1 else "") + ")"
    if not isinstance(value, (jax.Array, np.ndarray)):
        return repr(value)
    if not is_concrete(value):
        return f"<traced {value.dtype}{list(value.shape)}>"
    if value.ndim == 0:
        return repr(value.item())
    return np.array2string(np.asarray(value), separator=", ", threshold=20)


def _as_numpy(value: object, name: str) -> np.ndarray:
    try:
        array = np.asarray(value)
    except ValueError:
        raise TypeError(_not_a_parameter(name, value)) from None
    if array.dtype.kind not in "iuf":
        raise TypeError(_not_a_parameter(name, value))
    return array


def _not_a_parameter(name: str, value: object) -> str:
    text = repr(value)
    text = text if len(text) <= 60 else text[:57] + "..."
    what = f"{type(value).__name__} {text}"
    return f"`{name}` must be a real number, an array of them or a NumPyro distribution, got {what}"


def _refuse_priors(kernel: PyTree) -> None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(kernel, is_leaf=is_prior):
        if is_prior(leaf):
            where = jax.tree_util.keystr(path, simple=True, separator=".")
            raise TypeError(
                f"{type(kernel).__name__} cannot be evaluated while `{where}` is the prior {_show_prior(leaf)}; "
                'draw values first, with `kernel = kpp.sample("kernel", kernel)` inside a NumPyro model'
            )


def _as_arrays(points: Points, name: str) -> Any:
    """Convert a batch of points, or one point, to JAX arrays; plain arrays and lists of rows become floats."""
    arrays = finite_arrays(np.asarray(points) if isinstance(points, list) else points, name)
    if isinstance(arrays, jax.Array) and arrays.ndim == 0:
        raise ValueError(f"`{name}` must hold points, an array of shape (n, d), got shape ()")
    if isinstance(arrays, jax.Array) and not jnp.issubdtype(arrays.dtype, jnp.floating):
        return arrays.astype(jnp.result_type(float))
    return arrays


def _common_float_type(points: Points) -> np.dtype:
    types = {leaf.dtype for leaf in jax.tree.leaves(points) if jnp.issubdtype(leaf.dtype, jnp.floating)}
    if not types:
        return jnp.result_type(float)
    with jax.numpy_dtype_promotion("standard"):
        return jnp.result_type(*types)


def _cast(leaf: object, dtype: np.dtype) -> Any:
    if isinstance(leaf, (jax.Array, np.ndarray)) and jnp.issubdtype(leaf.dtype, jnp.floating) and leaf.dtype != dtype:
        return leaf.astype(dtype)
    return leaf


def _show_prior(prior: Distribution) -> str:
    if isinstance(prior, ExpandedDistribution):
        return f"{_show_prior(prior.base_dist)}.expand({list(prior.batch_shape)})"
    if isinstance(prior, Independent):
        return f"{_show_prior(prior.base_dist)}.to_event({prior.reinterpreted_batch_ndims})"
    arguments = [name for name in prior.arg_constraints if name in vars(prior)]
    if arguments:
        return f"{type(prior).__name__}({', '.join(f'{name}={show(vars(prior)[name])}' for name in arguments)})"
    return f"{type(prior).__name__}(batch_shape={prior.batch_shape}, event_shape={prior.event_shape})"


def show_fields(module: eqx.Module) -> str:
    """Return a text like a call of the constructor: the class and each field with its value."""
    fields = ", ".join(f"{field.name}={show(getattr(module, field.name))}" for field in dataclasses.fields(module))
    return f"{type(module).__name__}({fields})"


def kernel_html(kernel: eqx.Module) -> Html:
    """Return the tree of a kernel as HTML."""
    return panel(type(kernel).__name__, fields_html(kernel))


def fields_html(module: eqx.Module) -> Html:
    """Return the fields of a module as an HTML list; a kernel in a field has a list of its own."""
    return items(_fields(module))


def _fields(kernel: Any) -> Iterator[Html]:
    for field in dataclasses.fields(kernel):
        value = getattr(kernel, field.name)
        parts = value if isinstance(value, tuple) else (value,)
        if parts and all(isinstance(part, eqx.Module) and hasattr(part, "gram") for part in parts):
            for part in parts:
                yield Html(f"{escaped(field.name)}: {escaped(type(part).__name__)}{items(_fields(part))}")
        else:
            yield Html(f"{escaped(field.name)} {'~' if is_prior(value) else '='} <code>{escaped(show(value))}</code>")


def bounded(gram: Callable) -> Callable:
    """Make a method `gram` refuse points whose matrix does not fit into memory, before anything is allocated."""

    @functools.wraps(gram)
    def checked(self: Any, x: Points) -> Array:
        first = jax.tree.leaves(x)[0]
        size = first.shape[0] if first.ndim else 0
        if size**2 > _MAX_UNCHECKED:
            what = f"the kernel matrix of n = {size} points, n * n numbers,"
            check_memory(size**2 * first.dtype.itemsize, what, "use fewer points: kpp.features.landmarks chooses them")
        return gram(self, x)

    return checked
