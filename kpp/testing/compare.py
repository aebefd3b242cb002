"""Comparisons used by several suites."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import PyTree

from kpp import registry
from kpp.storage import serialization


def laws_in(namespace: Mapping[str, Any]) -> tuple[Callable[..., None], ...]:
    """Return the public functions that a module has defined so far, in order: the laws that it checks."""
    found = [value for name, value in namespace.items() if inspect.isfunction(value) and not name.startswith("_")]
    return tuple(function for function in found if function.__module__ == namespace["__name__"])


def once_per_example(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Let several laws share what a function computes from an example; a decorator."""
    # The example is kept as well: the `id` of a deleted object can be used again.
    known: dict[tuple[int, ...], tuple[tuple[object, ...], Any]] = {}

    @functools.wraps(compute)
    def shared(*example: object) -> Any:
        key = tuple(map(id, example))
        if key not in known:
            known[key] = example, compute(*example)
        return known[key][1]

    return shared


def tolerance(dtype: DTypeLike) -> float:
    """Return a relative tolerance for sums of a few hundred well-scaled terms: 1e-12 in float64, 1e-5 in float32."""
    return 1e-5 if np.dtype(dtype) == np.float32 else 1e-12


def assert_close(actual: ArrayLike, expected: ArrayLike, what: str, factor: int = 1) -> None:
    """Assert that two arrays have the same shape and agree up to rounding, relative to the largest expected value.

    The message names the arrays by `what`; `factor` multiplies the tolerance.
    """
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape, f"{what}: shape {actual.shape}, expected {expected.shape}"
    assert np.isfinite(actual).all(), f"{what}: not finite"
    dtypes = [array.dtype for array in (actual, expected) if array.dtype.kind == "f"]
    dtype = min(dtypes, key=lambda dtype: dtype.itemsize, default=np.dtype(float))
    scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
    difference = float(np.abs(actual - expected).max(initial=0.0))
    allowed = factor * tolerance(dtype) * scale
    assert difference <= allowed, f"{what}: differ by {difference:.3g}, allowed {allowed:.3g}"


def assert_raises(errors: type[Exception] | tuple[type[Exception], ...], call: Callable[[], Any], what: str) -> str:
    """Assert that a call raises, for the invalid input that `what` names, and return the message."""
    try:
        call()
    except errors as error:
        return str(error)
    except Exception as error:
        raise AssertionError(f"{what} raises {type(error).__name__} ({error})") from error
    raise AssertionError(f"{what} is accepted")


def assert_same_tree(copy: PyTree, tree: PyTree) -> None:
    """Assert that the copy of a pytree has the same structure and equal leaves."""
    assert jax.tree.structure(copy) == jax.tree.structure(tree), "the copy: the structure of the pytree differs"
    for leaf, other in zip(jax.tree.leaves(copy), jax.tree.leaves(tree), strict=True):
        assert np.array_equal(np.asarray(leaf), np.asarray(other)), "the copy: a leaf of the pytree differs"


def tree_copy(tree: PyTree) -> Any:
    """Flatten and unflatten a pytree, as jit and vmap do, and assert that this gives the same pytree."""
    copy = jax.tree.unflatten(jax.tree.structure(tree), jax.tree.leaves(tree))
    assert_same_tree(copy, tree)
    return copy


def rows(batch: PyTree, index: slice | int | np.ndarray) -> PyTree:
    """Select rows of a batch of points, a pytree whose leaves have the rows as their first axis, as NumPy arrays."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[index], batch)


def num_points(batch: PyTree) -> int:
    """Return the number of points of a batch."""
    return jax.tree.leaves(batch)[0].shape[0]


def spec_copy(obj: object) -> Any:
    """Write a registered object as JSON text and read it back; return None if its class is not registered."""
    for kind in registry.KINDS:
        try:
            registry.name_of(kind, type(obj))
        except registry.PluginError:
            continue
        return serialization.from_spec(json.loads(json.dumps(serialization.to_spec(obj))), kind)
    return None
