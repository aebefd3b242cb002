"""Labels of classes: any two values in a column, and their codes 0 and 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kpp.foundation.validation import as_binary_labels, as_targets, is_missing, refuse_missing_labels

_SHOWN = 6
_MANY_ROWS = 10  # fewer rows may have different classes by chance


def classes_field() -> Any:
    """Return a static Equinox field that holds two classes, or None for those of the data."""
    return eqx.field(converter=_as_classes, static=True, default=None)


def _as_classes(value: Any) -> tuple[Any, Any] | None:
    if value is None:
        return None
    if not isinstance(value, (tuple, list, np.ndarray)) or len(value) != 2:
        raise ValueError(f"`classes` must be a tuple of two labels, got {value!r}")
    first, second = map(_plain, value)
    if first == second:
        raise ValueError(f"`classes` must be two different labels, got {first!r} twice")
    return first, second


def read_labels(
    y: object, classes: Sequence[Any] | None = None, name: str = "y"
) -> tuple[Float[Array, " n"], tuple[Any, Any]]:
    """Read a column of two classes.

    Labels are numbers, booleans, text, or a categorical column of a data frame, whose categories are the classes in
    their order; by default they are the values in ascending order. Returns the codes, 0 for the first and 1 for the
    second class, and the classes. Raises ValueError if `y` is not a column, a label is missing, or there are not
    exactly two classes.
    """
    if isinstance(y, jax.core.Tracer):
        return as_binary_labels(y, name=name), (0, 1)
    labels = _column(y, name)
    known = _classes(y, labels) if classes is None else tuple(classes)
    if len(known) != 2 or set(labels) != set(known):
        _refuse_classes(labels, known if classes is not None else None, name)
    return _codes(labels, known), (known[0], known[1])


def read_classes(
    y: object, classes: Sequence[Any] | None = None, name: str = "y"
) -> tuple[Float[Array, " n"], tuple[Any, ...]]:
    """Read a column of any number of classes.

    Labels and classes are as for `read_labels`; some classes may not occur. Returns the codes, 0 for the first class,
    and the classes. Raises ValueError if `y` is not a column, a label is missing or not one of the classes, there is
    only one class, or without `classes` the labels are fractions, or each of many rows has another one.
    """
    labels = _column(y, name)
    if classes is None:
        _refuse_measurements(labels, name)
    known = _classes(y, labels) if classes is None else tuple(classes)
    unknown = sorted(set(labels) - set(known))
    if unknown:
        raise ValueError(f"`{name}` must hold labels among `classes`, {_shown(known)}, got {_shown(unknown)}")
    if len(known) < 2:
        raise ValueError(f"`{name}` must hold at least two classes, got only {known[0]!r} in {len(labels)} rows")
    return _codes(labels, known), known


def _refuse_measurements(labels: list[Any], name: str) -> None:
    """Raise ValueError if labels are fractions, or each row has one of its own, as measurements or names have."""
    found = set(labels)
    fractions = sorted(label for label in found if isinstance(label, float))
    if fractions or len(found) == len(labels) >= _MANY_ROWS:
        got = f"fractions such as {_shown(fractions)}" if fractions else "a class of its own in each row"
        raise ValueError(
            f"`{name}` must hold classes, got {len(found)} different values in {len(labels)} rows, {got}; fit numbers "
            "by a regression, or list the classes in `classes`"
        )


def _column(y: object, name: str) -> list[Any]:
    """Return the labels of the rows as Python's own numbers, truth values or texts."""
    values = y if isinstance(y, np.ma.MaskedArray) else np.asarray(y)
    if not _is_text(values) and values.dtype.kind != "b":
        values = np.asarray(as_targets(values, name=name))
    if values.ndim != 1 or values.size == 0:
        hint = f"; write `{name}[:, 0]`" if values.ndim == 2 and values.shape[1] == 1 else ""
        raise ValueError(f"`{name}` must have shape (n,) with at least one row, got shape {values.shape}{hint}")
    refuse_missing_labels(values, name)
    return [_plain(label) for label in values.tolist()]


def _is_text(values: np.ndarray) -> bool:
    """Return whether all entries are text, or text and missing."""
    if values.dtype.kind != "O" or isinstance(values, np.ma.MaskedArray):
        return values.dtype.kind in "US"
    texts = [isinstance(label, str) for label in values.ravel().tolist() if not is_missing(label)]
    return bool(texts) and all(texts)


def _plain(label: Any) -> Any:
    """Return a label as Python's own; whole numbers as integers."""
    label = label.item() if isinstance(label, np.generic) else label
    return int(label) if isinstance(label, float) and label.is_integer() else label


def _codes(labels: list[Any], classes: Sequence[Any]) -> Float[Array, " n"]:
    """Return the position of each label among the classes."""
    codes = {label: float(code) for code, label in enumerate(classes)}
    return jnp.asarray([codes[label] for label in labels])


def _classes(y: object, labels: list[Any]) -> tuple[Any, ...]:
    found = set(labels)
    categories = getattr(getattr(y, "dtype", None), "categories", None)
    if categories is not None:
        return tuple(label for label in map(_plain, categories) if label in found)
    return tuple(sorted(found))


def _refuse_classes(labels: list[Any], classes: tuple[Any, ...] | None, name: str) -> None:
    found = sorted(set(labels))
    if classes is not None:
        raise ValueError(f"`classes` must be the two labels of `{name}`, {_shown(found)}, got {_shown(classes)}")
    raise ValueError(
        f"`{name}` must hold two classes, got "
        + (f"only {found[0]!r} in {len(labels)} rows" if len(found) == 1 else f"{len(found)}: {_shown(found)}")
        + ("" if len(found) == 1 else "; kpp_models.MultiLatentGP with kpp.gp.SoftmaxLikelihood() takes more")
    )


def _shown(labels: Sequence[Any]) -> str:
    return ", ".join(map(repr, labels[:_SHOWN])) + (", ..." if len(labels) > _SHOWN else "")
