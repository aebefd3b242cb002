"""Checks of the arguments of users, made once at the boundary.

Every function here either returns the input as a clean array or raises a ``ValueError`` or ``TypeError`` that names the
argument in backticks, shows its value or shape, and says what is needed. Values can only be inspected outside traced
code: under ``jit`` or ``vmap`` shapes are still checked and values are trusted.
"""

from __future__ import annotations

import datetime
import difflib
import logging
import re
import sys
from collections.abc import Iterable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

T = TypeVar("T")

_MOST = 2**53  # larger integers are not all numbers of float64
_BITS_64 = 2**63
# Rounding to float32 that changes values by more than this share of their range gets a warning.
_MOST_ROUNDED = 1e-3
# Larger arrays on an accelerator are examined there, so that one boolean is copied and not the array.
_MAX_COPIED = 2**16

_LOGGER = logging.getLogger("kpp")
_warned_float32 = False


def is_concrete(value: object) -> bool:
    """Return whether the values of an array are known, which they are not inside ``jit``, ``vmap`` or ``grad``."""
    return not isinstance(value, jax.core.Tracer)


def check_rng_key(rng_key: object, name: str = "rng_key") -> Any:
    """Return a JAX random key, typed or raw, unchanged; raise TypeError for a seed or anything else."""
    if isinstance(rng_key, (jax.Array, np.ndarray)):
        if jnp.issubdtype(rng_key.dtype, jax.dtypes.prng_key) and rng_key.shape == ():
            return jnp.asarray(rng_key)
        if rng_key.dtype == jnp.uint32 and rng_key.shape == (2,):
            return jnp.asarray(rng_key)
    hint = f"; write jax.random.key({rng_key})" if isinstance(rng_key, (int, np.integer)) else ""
    raise TypeError(f"`{name}` must be a single JAX random key, got {_describe(rng_key)}{hint}")


def one_of(value: T, name: str, allowed: Iterable[T]) -> T:
    """Return an option that is one of the allowed values, or raise ValueError, whose message suggests a similar one."""
    choices = tuple(allowed)
    for choice in choices:
        # True == 1, and comparing an array gives an array: only values of one type are compared.
        if isinstance(value, type(choice)) and isinstance(value, bool) == isinstance(choice, bool) and value == choice:
            return value
    words = [choice for choice in choices if isinstance(choice, str)]
    near = difflib.get_close_matches(value, words, 1) if isinstance(value, str) else []
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"`{name}` must be one of {choices}, got {_shown(value)}{hint}")


def check_type(value: object, name: str, types: Iterable[str]) -> None:
    """Check that a value is an instance of one of some types, which are given by their names.

    A boolean is not an integer, an integer is a float, and numbers of NumPy are numbers. Traced values are trusted. The
    types are "bool", "int", "float", "str", "None", or the name of any class or of one of its bases. Raises ValueError
    if plain types are needed or the value is NaN, and otherwise TypeError.
    """
    types = tuple(types)
    if not is_concrete(value) or any(is_instance(value, kind) for kind in types):
        if isinstance(value, (float, np.floating)) and np.isnan(value):
            raise ValueError(f"`{name}` must be a number, got NaN")
        return
    raise wrong_kind(value, name, [_WORDS.get(kind) or in_words(kind) for kind in types])


def wrong_kind(value: object, name: str, needed: Iterable[str]) -> Exception:
    """Return the error for an argument of a kind that is not allowed.

    The kinds `needed` are in words: "an integer", "a kernel". It is a ValueError if plain types are needed, and
    otherwise a TypeError.
    """
    needed = dict.fromkeys(needed)
    plain = all(words in _WORDS.values() for words in needed)
    shown = f" {_clip(repr(value))}" if isinstance(value, (str, float, list, tuple)) else ""
    got = _shown(value) if plain or isinstance(value, int) else f"{type(value).__name__}{shown}"
    return (ValueError if plain else TypeError)(f"`{name}` must be {' or '.join(needed)}, got {got}")


_WORDS = {"bool": "True or False", "int": "an integer", "float": "a number", "str": "text", "None": "None"}


def is_instance(value: object, kind: str) -> bool:
    """Return whether a value is of a plain type or of a class that is given by its name; see `check_type`."""
    if kind == "None":
        return value is None
    if kind == "bool":
        return isinstance(value, (bool, np.bool_))
    if kind in ("int", "float"):
        if isinstance(value, (jax.Array, np.ndarray)):
            return value.ndim == 0 and value.dtype.kind in ("iu" if kind == "int" else "iuf")
        numbers = (int, np.integer) if kind == "int" else (int, float, np.integer, np.floating)
        most = _BITS_64 if kind == "int" else sys.float_info.max
        fits = not isinstance(value, int) or -most <= value < most
        return isinstance(value, numbers) and not isinstance(value, bool) and fits
    if kind == "str":
        return isinstance(value, str)
    return any(base.__name__ == kind for base in type(value).__mro__)


def in_words(kind: str) -> str:
    """Return the name of an abstract class in words: "a value function" for AbstractValueFunction."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind.removeprefix("Abstract"))
    words = words.lower() if kind.startswith("Abstract") else words
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


def count(value: object, name: str, least: int = 1, *, most: int | None = None, most_is: str = "") -> int:
    """Return an integer after checking that it is in a range.

    Booleans are not counts. Without `most` the limit is 2**53; `most_is` is the meaning of `most` for the message: "the
    number of rows".
    """
    limits = f"at least {least}" if most is None else f"between {least} and {most}"
    limits += f" ({most_is})" if most_is else ""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise ValueError(f"`{name}` must be an integer {'of ' if most is None else ''}{limits}, got {_shown(value)}")
    if value < least or (most is not None and value > most):
        raise ValueError(f"`{name}` must be {limits}, got {value}")
    if value > _MOST:
        raise ValueError(f"`{name}` must be at most 2**53, up to which floats hold every integer, got {value}")
    return int(value)


def at_least(value: T, name: str, least: int | float, *, infinity_allowed: bool = True) -> T:
    """Return numbers that are not smaller than a bound.

    The values of traced arrays are trusted. Raises ValueError if the value is not numeric, is NaN, is smaller than the
    bound, or is infinite and `infinity_allowed` is False.
    """
    numbers = _numbers(value, name)
    if numbers is not None and not np.all(numbers >= least):
        raise ValueError(f"`{name}` must be at least {least:g}, got {_shown(value)}")
    if numbers is not None and not infinity_allowed and np.isinf(numbers).any():
        raise ValueError(f"`{name}` must be finite, got {_shown(value)}")
    return value


def positive(value: T, name: str, *, infinity_allowed: bool = False) -> T:
    """Return numbers that are greater than 0.

    The values of traced arrays are trusted. Raises ValueError if the value is not numeric, is NaN, is not positive, or
    is infinite and `infinity_allowed` is False.
    """
    numbers = _numbers(value, name)
    if numbers is not None and not np.all(numbers > 0):
        raise ValueError(f"`{name}` must be positive, got {_shown(value)}")
    if numbers is not None and not infinity_allowed and np.isinf(numbers).any():
        raise ValueError(f"`{name}` must be positive and finite, got {_shown(value)}")
    return value


def between(value: T, name: str, low: int | float, high: int | float, *, ends: bool = True) -> T:
    """Return numbers that lie between two bounds, or, if `ends` is True, at one of them; NaN is refused."""
    numbers = _numbers(value, name)
    if numbers is None:
        return value
    if not np.all((numbers >= low) & (numbers <= high) if ends else (numbers > low) & (numbers < high)):
        hint = "" if ends else f"; {low:g} and {high:g} themselves are not allowed"
        raise ValueError(f"`{name}` must be between {low:g} and {high:g}, got {_shown(value)}{hint}")
    return value


def probability(value: T, name: str) -> T:
    """Return a probability that is neither 0 nor 1, such as the mass of an interval or a quantile's level."""
    return between(value, name, 0.0, 1.0, ends=False)


def as_finite_array(value: object, name: str) -> jax.Array:
    """Convert finite real numbers, not masked, dates or text, to a floating-point JAX array, or raise ValueError."""
    if not isinstance(value, jax.Array):
        value = _numeric(value, name)
    if not (jnp.issubdtype(value.dtype, jnp.floating) or jnp.issubdtype(value.dtype, jnp.integer)):
        if value.dtype != jnp.bool_:
            raise ValueError(f"`{name}` must hold real numbers, got dtype {value.dtype}")
    if is_concrete(value):
        _refuse_non_finite(np.asarray(value), name)
        _warn_if_rounded(value, name)
    dtype = jnp.result_type(float)
    return value.astype(dtype) if isinstance(value, jax.Array) else _to_jax(value, dtype)


def finite_arrays(points: object, name: str) -> Any:
    """Convert the arrays of a batch of points, as `as_finite_array` does, to JAX arrays; integers stay integers."""

    def convert(leaf: Any) -> jax.Array:
        if not isinstance(leaf, jax.Array):
            leaf = _numeric(leaf, name)
            _warn_if_rounded(leaf, name)
        array = leaf if isinstance(leaf, jax.Array) else _to_jax(leaf, jax.dtypes.canonicalize_dtype(leaf.dtype))
        if jnp.issubdtype(array.dtype, jnp.complexfloating):
            raise ValueError(f"`{name}` must hold real numbers, got dtype {array.dtype}")
        return array

    arrays = jax.tree.map(convert, points)
    refuse_non_finite(arrays, name)
    return arrays


def _to_jax(array: np.ndarray, dtype: Any) -> jax.Array:
    """Copy an array to JAX: told the type, JAX may share the memory; not told, it compiles a program for each shape."""
    return jnp.asarray(np.array(array), dtype=dtype)


def refuse_non_finite(points: object, name: str) -> None:
    """Raise ValueError if an array of a batch of points holds NaN or infinity, with the first place."""
    for leaf in jax.tree.leaves(points):
        if isinstance(leaf, (jax.Array, np.ndarray)) and jnp.issubdtype(leaf.dtype, jnp.floating):
            if is_concrete(leaf) and not _is_finite(leaf):
                _refuse_non_finite(np.asarray(leaf), name)


def check_array(value: object, name: str, ndim: int) -> None:
    """Check that a field, which constructors have read, is an array of `ndim` axes with finite real numbers."""
    if not isinstance(value, (jax.Array, np.ndarray)) or not jnp.issubdtype(value.dtype, jnp.number):
        raise ValueError(f"`{name}` must be an array of numbers, got {_describe(value)}")
    if value.ndim != ndim or jnp.issubdtype(value.dtype, jnp.complexfloating):
        raise ValueError(f"`{name}` must be an array of real numbers with {ndim} axes, got {_describe(value)}")
    refuse_non_finite(value, name)


def _is_finite(array: jax.Array | np.ndarray) -> bool:
    if isinstance(array, jax.Array) and array.size > _MAX_COPIED:
        if any(device.platform != "cpu" for device in array.devices()):
            with jax.ensure_compile_time_eval():
                return bool(jnp.isfinite(array).all())
    return bool(np.isfinite(np.asarray(array)).all())


def as_points(x: object, name: str = "x", *, num_features: int | None = None) -> jax.Array:
    """Convert a table of points to a float array of shape (n, d).

    The array has at least one row and one column. Raises ValueError if `x` is not two-dimensional, is empty, does not
    have `num_features` columns, or holds NaN or infinity.
    """
    array = as_finite_array(x, name)
    if array.ndim == 1:
        raise ValueError(
            f"`{name}` must have shape (n, d), got the one-dimensional shape {array.shape}; write "
            f"`{name}[:, None]` for n points with one feature or `{name}[None, :]` for one point with d features"
        )
    if array.ndim != 2:
        raise ValueError(f"`{name}` must have shape (n, d), got shape {array.shape}")
    if 0 in array.shape:
        raise ValueError(f"`{name}` must have at least one row and one column, got shape {array.shape}")
    if num_features is not None and array.shape[1] != num_features:
        raise ValueError(f"`{name}` must have {num_features} columns (features), got shape {array.shape}")
    return array


def as_targets(y: object, num_rows: int | None = None, name: str = "y") -> jax.Array:
    """Convert targets, one finite number for each of `num_rows` rows, to a float array of shape (n,)."""
    array = as_finite_array(y, name)
    if array.ndim != 1:
        hint = f"; write `{name}[:, 0]`" if array.ndim == 2 and array.shape[1] == 1 else ""
        raise ValueError(f"`{name}` must have shape (n,), got shape {array.shape}{hint}")
    if array.size == 0:
        raise ValueError(f"`{name}` must hold at least one value, got shape {array.shape}")
    if is_concrete(array):
        _refuse_overflow(np.asarray(array), name)
    if num_rows is not None:
        check_same_rows(num_rows, array.shape[0], "x", name)
    return array


def _refuse_overflow(array: np.ndarray, name: str) -> None:
    """Raise ValueError if numbers are so large that sums of their squares would be infinite."""
    # Room for sums of a million squares.
    largest, limit = float(np.abs(array).max()), 1e-3 * float(np.finfo(array.dtype).max) ** 0.5
    if largest > limit:
        raise ValueError(
            f"`{name}` must have absolute values of at most {limit:.1g}, whose squares are finite in {array.dtype}, "
            f"got up to {largest:.3g}; choose a larger unit, or replace codes of missing values"
        )


def refuse_first(values: np.ndarray | jax.Array, wrong: np.ndarray | jax.Array, message: str) -> None:
    """Raise ValueError if any value is wrong, with a message, the first wrong value, its index and their number."""
    wrong = np.asarray(wrong)
    if wrong.any():
        first = int(np.argmax(wrong))
        raise ValueError(f"{message}, got {float(values[first]):g} at index {first} ({int(wrong.sum())} such values)")


def as_binary_labels(y: object, num_rows: int | None = None, name: str = "y") -> jax.Array:
    """Convert class labels in {0, 1} to a float array of shape (n,).

    Booleans count as labels. Raises ValueError if a label is neither 0 nor 1, only one class occurs, or the shape is
    wrong.
    """
    words = [] if isinstance(y, jax.Array) else [entry for entry in np.ravel(np.asarray(y)) if isinstance(entry, str)]
    if words:
        raise ValueError(
            f"`{name}` must hold the labels 0 and 1, got text such as {str(words[0])!r}; write `{name} == "
            f"{str(words[0])!r}`, or take kpp_models.GPClassification, which reads any two labels"
        )
    array = as_targets(y, num_rows, name)
    if is_concrete(array):
        found = np.unique(np.asarray(array))
        if not np.isin(found, [0.0, 1.0]).all():
            hint = "; write `(y + 1) / 2` for labels in {-1, 1}" if np.isin(found, [-1.0, 1.0]).all() else ""
            raise ValueError(f"`{name}` must hold the labels 0 and 1, got the values {_shorten(found)}{hint}")
        if found.size < 2:
            raise ValueError(f"`{name}` must hold both labels 0 and 1, got only {found[0]:g} in {array.size} rows")
    return array


def check_same_rows(first: int, second: int, first_name: str, second_name: str) -> None:
    """Check that two arguments have the same number of rows."""
    if first != second:
        raise ValueError(
            f"`{first_name}` and `{second_name}` must have the same number of rows, got {first} and {second}"
        )


def warn_if_float32(where: str) -> None:
    """Warn once in a session that a linear system is about to be solved in single precision."""
    global _warned_float32
    if _warned_float32 or jnp.result_type(float) == jnp.float64:
        return
    _warned_float32 = True
    _LOGGER.warning(
        "%s solves linear systems in float32, where kernel matrices are often numerically singular; add "
        '`jax.config.update("jax_enable_x64", True)` at the top of your program',
        where,
    )


def _numbers(value: object, name: str) -> np.ndarray | None:
    """Return a numeric value as a NumPy array, or None for a traced array."""
    if not is_concrete(value):
        return None
    # NumPy and not JAX: inside `jit` JAX traces even operations on known arrays, so their values would be unknown.
    try:
        array = np.asarray(value)
    except ValueError:  # lists of different lengths
        array = np.asarray(None)
    if array.dtype.kind not in "iuf":
        raise ValueError(f"`{name}` must be a number, got {_describe(value)}")
    return array


def _shown(value: object) -> str:
    """Return a short text for a value: plain numbers for arrays of either library."""
    if isinstance(value, int) and not -_BITS_64 <= value < _BITS_64:
        return f"an integer of more than 64 bits ({value.bit_length() + 1})"
    if not isinstance(value, (jax.Array, np.ndarray, np.generic)) or not is_concrete(value):
        return _clip(repr(value))
    array = np.asarray(value)
    return repr(array.item()) if array.ndim == 0 else np.array2string(array, separator=", ", threshold=20)


def _clip(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def refuse_masked(value: object, name: str) -> None:
    """Raise ValueError if entries of a masked array, or of one of a list of them, are masked.

    `numpy.asarray` would return what is under the mask.
    """
    if isinstance(value, (list, tuple)):
        for part in value:
            refuse_masked(part, name)
    if isinstance(value, np.ma.MaskedArray) and np.ma.getmaskarray(value).any():
        number = int(np.ma.getmaskarray(value).sum())
        raise ValueError(
            f"`{name}` has {number} masked entries in shape {value.shape}; drop those rows or fill them in"
        )


def refuse_dates(array: np.ndarray, name: str, where: str = "") -> None:
    """Raise ValueError if an array holds dates, times or durations, of NumPy or as objects of Python or pandas."""
    found = str(array.dtype) if array.dtype.kind in "mM" else None
    if array.dtype.kind == "O":
        found = next((type(value).__name__ for value in array.ravel().tolist() if _is_date(value)), None)
    if found is not None:
        raise ValueError(
            f"`{name}` must hold numbers or categories, got dates or times ({found}){where}; write them as a number, "
            "such as days since a start, or as categories, such as the weekday"
        )


def _is_date(value: object) -> bool:
    # Periods of pandas are recognized by their names, because pandas is not needed to run kpp.
    named = type(value).__module__.startswith("pandas") and type(value).__name__ in ("Period", "NaTType")
    return named or isinstance(value, (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64))


def _refuse_sparse(value: object, name: str) -> None:
    """Raise TypeError for a sparse matrix of SciPy, which NumPy would read as one object."""
    if type(value).__module__.startswith("scipy.sparse"):
        shape = getattr(value, "shape", ())
        raise TypeError(
            f"`{name}` must be dense, got a {type(value).__name__} of shape {shape}; write `{name}.toarray()`, or "
            f"`pandas.DataFrame.sparse.from_spmatrix({name}, columns=names)` to name the columns; if there are many, "
            "reduce them first, as sklearn.decomposition.TruncatedSVD does"
        )


def as_array(value: object, name: str) -> np.ndarray:
    """Return a value as an array of NumPy; lists of different lengths, or more than 64 in one another, are refused."""
    try:
        return np.asarray(value)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"`{name}` must be an array, got lists of different lengths or depths ({error})") from None


def refuse_not_numbers(value: object, name: str) -> np.ndarray:
    """Return an array, or raise ValueError if entries are masked, or are dates or text, which NumPy would convert."""
    refuse_masked(value, name)
    array = as_array(value, name)
    refuse_dates(array, name)
    entries = array.ravel().tolist() if array.dtype.kind == "O" else []
    text = next((entry for entry in entries if isinstance(entry, (str, bytes))), None)
    if array.dtype.kind in "US" or text is not None:
        text = array.ravel()[0].item() if text is None and array.size else text
        raise ValueError(f"`{name}` must hold real numbers, got {_describe(array)} (text, such as {text!r})")
    return array


def refuse_missing_labels(values: np.ndarray, name: str) -> None:
    """Raise ValueError if labels are missing: None, NaN, or the missing values of pandas."""
    missing = [i for i, label in enumerate(values.ravel().tolist()) if is_missing(label)]
    if missing:
        raise ValueError(f"`{name}` has missing labels, {len(missing)} of them, the first in row {missing[0]}")


def is_missing(label: Any) -> bool:
    """Return whether an entry of a column is None, NaN, or a missing value of pandas."""
    return label is None or str(label) in ("<NA>", "NaT") or bool(label != label)


def _numeric(value: object, name: str) -> np.ndarray:
    _refuse_sparse(value, name)
    array = refuse_not_numbers(value, name)
    if array.dtype.kind in "biuf":
        return array
    try:
        if array.dtype.kind == "c":
            raise TypeError("complex numbers")
        return array.astype(float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"`{name}` must hold real numbers, got {_describe(value)} ({error})") from None


def _refuse_non_finite(array: np.ndarray, name: str) -> None:
    finite = np.isfinite(array)
    if finite.all():
        return
    nan = int(np.isnan(array).sum())
    infinite = int((~finite).sum()) - nan
    where = np.argwhere(~finite)[0]
    raise ValueError(
        f"`{name}` must be finite, got {nan} NaN and {infinite} infinite values in shape {array.shape}, "
        f"the first at index {tuple(int(i) for i in where)}"
    )


def _warn_if_rounded(array: jax.Array | np.ndarray, name: str) -> None:
    """Warn if numbers of 64 bits become numbers of 32 bits and the differences within a column are lost."""
    if jnp.result_type(float) == jnp.float64 or array.dtype.itemsize <= 4 or array.ndim == 0 or not array.size:
        return
    rows = np.asarray(array, float).reshape(-1, array.shape[-1] if array.ndim > 1 else 1)
    error = np.abs(rows).max(axis=0) * float(np.finfo(np.float32).eps)
    lost = np.flatnonzero((error > _MOST_ROUNDED * np.ptp(rows, axis=0)) & (np.ptp(rows, axis=0) > 0))
    if lost.size:
        low, high = rows[:, lost[0]].min(), rows[:, lost[0]].max()
        _LOGGER.warning(
            "`%s` loses its differences in float32: column %d has values from %.10g to %.10g, and float32 holds 7 "
            "digits; subtract the mean, as kpp.data.tables.standardize does, or turn on jax_enable_x64",
            name,
            lost[0],
            low,
            high,
        )


def _describe(value: object) -> str:
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"an array of shape {tuple(value.shape)} and dtype {value.dtype}"
    return f"{type(value).__name__} {_clip(repr(value))}"


def _shorten(values: np.ndarray, limit: int = 6) -> str:
    shown = ", ".join(f"{v:g}" for v in values[:limit])
    return shown + (f", ... ({values.size} different)" if values.size > limit else "")


def as_floats(value: Any, name: str) -> jax.Array:
    """Convert numbers to a float array, keeping a float type that they already have."""
    array = finite_arrays(value if isinstance(value, (jax.Array, np.ndarray)) else as_array(value, name), name)
    floating = jnp.issubdtype(array.dtype, jnp.floating)
    dtype = jax.dtypes.canonicalize_dtype(array.dtype) if floating else jnp.result_type(float)
    return jnp.asarray(array, dtype=dtype)  # no weak type


def as_point_arrays(points: Any, name: str) -> Any:
    """Convert nested lists of numbers, and every NumPy leaf of a batch of points, to JAX arrays."""
    if isinstance(points, list):
        return as_floats(points, name)
    if not jax.tree.leaves(points):
        raise TypeError(f"`{name}` must be an array (n, d), or another batch that the kernel takes, got {points!r}")
    arrays = finite_arrays(points, name)
    if isinstance(arrays, jax.Array) and arrays.ndim == 0:
        raise ValueError(f"`{name}` must hold points, an array of shape (n, d), got shape ()")
    return arrays
