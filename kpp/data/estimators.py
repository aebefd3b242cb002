"""The base of kpp's estimators for scikit-learn.

It supplies what scikit-learn does not know about JAX: double precision, random keys, parameters inside kernels, and
pickling. Import it by its own name; `import kpp` does not load scikit-learn.
"""

from __future__ import annotations

import dataclasses
import functools
import numbers
import pickle
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float
from sklearn.base import BaseEstimator
from sklearn.utils import assert_all_finite, check_consistent_length, check_random_state, column_or_1d
from sklearn.utils.validation import validate_data

from kpp.data.tables import as_table, is_table
from kpp.foundation.arguments import guard_exports
from kpp.foundation.validation import check_rng_key, refuse_masked, refuse_missing_labels, refuse_not_numbers
from kpp.typing import RngKey

P = ParamSpec("P")
R = TypeVar("R")

_LEAST_ROWS = 8  # numbers of rows from here on, times powers of two, have programs of their own


def as_rng_key(random_state: Any) -> RngKey:
    """Return the JAX random key for a `random_state` of scikit-learn.

    An integer is the seed of the key; from a generator of NumPy or None a seed is drawn; a JAX random key is returned.
    """
    if isinstance(random_state, jax.Array):
        return check_rng_key(random_state)
    if isinstance(random_state, numbers.Integral):
        return jax.random.key(int(random_state))
    return jax.random.key(int(check_random_state(without_generator(random_state)).randint(2**31 - 1)))


def without_generator(random_state: Any) -> Any:
    """Return what scikit-learn takes: a seed drawn from a `numpy.random.Generator`, anything else unchanged."""
    return int(random_state.integers(2**31 - 1)) if isinstance(random_state, np.random.Generator) else random_state


def in_float64(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function compute in double precision, also if this process has not turned it on for JAX."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        with jax.enable_x64(True):
            return function(*args, **kwargs)

    return wrapped


class KernelEstimator(BaseEstimator):
    """A scikit-learn estimator whose parameters may be kernels, inferences and other Equinox modules.

    The fields of these modules are parameters, too: ``kernel__lengthscale``, or ``kernel__kernels__0__variance`` for
    the first part of a sum, so that searches can vary them. Modules are immutable: setting such a parameter replaces
    the module. Pickled arrays keep their double precision in processes that have not turned it on for JAX.
    """

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name; `deep` adds the fields of modules and the parameters of estimators."""
        found = super().get_params(deep=deep)
        if deep:
            found |= {path: part for name, value in list(found.items()) for path, part in _parts(name, value)}
        return found

    def set_params(self, **params: Any) -> KernelEstimator:
        """Set parameters by name; a name with a double underscore is a field of a module."""
        inner = {name: value for name, value in params.items() if "__" in name}
        super().set_params(**{name: value for name, value in params.items() if name not in inner})
        for name, value in inner.items():
            known = self.get_params()
            if name not in known:
                raise ValueError(
                    f"Invalid parameter {name!r} for estimator {self}. Valid parameters are: {list(known)}"
                )
            first, *path = name.split("__")
            setattr(self, first, _replace(getattr(self, first), path, value))
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Return the state as bytes, which only `__setstate__` turns into arrays again."""
        return {"packed": pickle.dumps(super().__getstate__())}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Read the bytes in double precision."""
        with jax.enable_x64(True):
            super().__setstate__(pickle.loads(state["packed"]))


def check_labels(y: Any) -> None:
    """Raise ValueError if labels of classes, which may be numbers, text or dates, are masked or missing."""
    refuse_masked(y, "y")
    labels = np.asarray(y)
    if labels.dtype.kind in "OM" and y is not None:
        refuse_missing_labels(labels, "y")


def read_arrays(
    estimator: BaseEstimator, X: Any, y: Any = "no_validation", *, numeric: bool = True, **options: Any
) -> Any:
    """Call `validate_data` of scikit-learn, after refusing what it would convert in silence.

    The options are those of `validate_data`, such as `reset`, and `dtype`, by default float64; `numeric` says whether
    the labels are numbers. Returns the rows as an array, and the labels if there are. Raises ValueError if the data are
    invalid: entries are masked, dates or text, for example.
    """
    refuse_not_numbers(X, "X")
    options = {"dtype": np.float64} | options
    if isinstance(y, str):
        return validate_data(estimator, X, **options)
    refuse_not_numbers(y, "y") if numeric else check_labels(y)
    return validate_data(estimator, X, y, y_numeric=numeric, **options)


def read_training(estimator: BaseEstimator, X: Any, y: Any, *, numeric: bool) -> tuple[Any, np.ndarray]:
    """Read labeled rows, and make the estimator remember number and names of the columns.

    The columns of a data frame or an xarray object may hold categories; `numeric` says whether the labels are numbers.
    """
    X = as_table(X, "X")
    if not _has_names(X):
        table, labels = read_arrays(estimator, X, y, ensure_min_samples=2, numeric=numeric)
        return table, labels.astype(np.float64) if numeric else labels
    refuse_not_numbers(y, "y") if numeric else check_labels(y)
    validate_data(estimator, X, y, skip_check_array=True)
    check_consistent_length(X, y)
    labels = column_or_1d(y, dtype=np.float64 if numeric else None, warn=True)
    assert_all_finite(labels, input_name="y")
    return X, labels


def read_estimator_rows(estimator: BaseEstimator, X: Any, *, reset: bool = False) -> Any:
    """Read rows without labels.

    With `reset` the estimator learns the columns, which must otherwise be those it knows.
    """
    X = as_table(X, "X")
    if _has_names(X):
        return validate_data(estimator, X, reset=reset, skip_check_array=True)
    return read_arrays(estimator, X, reset=reset)


def pad_rows(points: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "m d"]:
    """Return points with the last row repeated up to a power of two, so that few programs are compiled."""
    size = max(_LEAST_ROWS, 1 << (len(points) - 1).bit_length())
    return np.concatenate([points, np.repeat(points[-1:], size - len(points), axis=0)])


def _has_names(X: Any) -> bool:
    return is_table(X) and all(isinstance(column, str) for column in X.columns)


def _parts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a module, and of the modules that it holds, with their names."""
    for key, part in _children(value):
        yield f"{name}__{key}", part
        yield from _parts(f"{name}__{key}", part)


def _children(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, eqx.Module):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value) if field.init]  # type: ignore[arg-type]
    if isinstance(value, tuple) and any(isinstance(part, eqx.Module) for part in value):
        return list(enumerate(value))
    return []


def _replace(value: Any, path: list[str], part: Any) -> Any:
    """Return a module, or a tuple of modules, with another value at a path."""
    if not path:
        return part
    if isinstance(value, tuple):
        index = int(path[0])
        return (*value[:index], _replace(value[index], path[1:], part), *value[index + 1 :])
    return dataclasses.replace(value, **{path[0]: _replace(getattr(value, path[0]), path[1:], part)})


guard_exports(globals())
