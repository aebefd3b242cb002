"""What the converters share: rules by the name of a foreign class, without importing its library."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

Rule = TypeVar("Rule", bound=Callable[..., Any])


def class_name(thing: object) -> str:
    """Return the library and the class of an object, such as ``gpytorch.RBFKernel``."""
    return f"{type(thing).__module__.partition('.')[0]}.{type(thing).__name__}"


def find_rule(thing: object, rules: Mapping[str, Rule], what: str, name: str | None = None) -> Rule:
    """Return the rule for the class of a part of a foreign model, named as by `class_name` unless `name` is given.

    Subclasses have no rule, because they may compute anything. Raises ValueError, with what the part is, if there is no
    rule for the class.
    """
    name = class_name(thing) if name is None else name
    if name not in rules:
        raise ValueError(f"the {what} {name} has no exact counterpart in kpp; known are {', '.join(sorted(rules))}")
    return rules[name]


def sklearn_name(value: Any) -> str | None:
    """Return the name of a class of scikit-learn itself; None for others, and for subclasses, which may do anything."""
    return type(value).__name__ if type(value).__module__.startswith("sklearn.") else None


def as_dense(matrix: Any) -> np.ndarray:
    """Return a matrix of numbers, which may be sparse, as a float array."""
    return np.asarray(matrix.toarray() if hasattr(matrix, "toarray") else matrix, dtype=float)
