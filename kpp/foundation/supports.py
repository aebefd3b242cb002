"""Priors of single parameters: whether their shapes and supports fit the parameter."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from numpyro.distributions import Delta, Distribution, constraints


def is_prior(value: object) -> bool:
    """Return whether a leaf is a prior, a NumPyro distribution; pass it as `is_leaf` to JAX's tree functions."""
    return isinstance(value, Distribution)


def leaf_shape(value: Any) -> tuple[int, ...]:
    """Return the shape of a leaf, a number, an array or a prior for one."""
    return value.shape() if is_prior(value) else np.shape(value)


def check_prior_shape(prior: Distribution, name: str) -> None:
    """Raise ValueError unless the draws of a prior have at least one number along each axis."""
    if any(length < 1 for length in prior.shape()):
        raise ValueError(
            f"`{name}` must have a prior whose shape has lengths of at least 1, got shape {prior.shape()}; "
            "`expand([d])` makes d independent numbers"
        )


def check_prior_support(prior: Distribution, name: str, low: float = 0.0, high: float = np.inf) -> None:
    """Raise ValueError if a prior is known to have draws out of the range of its parameter."""
    if isinstance(prior, Delta):  # its support is all real numbers, but its only draw is the value
        return
    support = _base_support(prior.support)
    if is_real(support):
        least, most = -np.inf, np.inf
    else:
        ends = getattr(support, "lower_bound", None), getattr(support, "upper_bound", np.inf)
        if ends[0] is None or any(isinstance(end, jax.core.Tracer) for end in ends):
            return
        least, most = float(np.min(ends[0])), float(np.max(ends[1]))
    if least < low or (high < np.inf and most > high):
        allowed = f"at least {low:g}" if high == np.inf else f"between {low:g} and {high:g}"
        instead = "LogNormal, HalfNormal, Gamma or TruncatedNormal(low=0.0)" if high == np.inf else "Beta or Uniform"
        raise ValueError(
            f"`{name}` must be {allowed}, but its prior {type(prior).__name__} has draws between {least:g} and "
            f"{most:g}; take {instead}"
        )


def is_real(support: Any) -> bool:
    """Return whether a constraint of NumPyro allows all real numbers, or all arrays of them."""
    return type(_base_support(support)) is type(constraints.real)


def _base_support(support: Any) -> Any:
    while hasattr(support, "base_constraint"):
        support = support.base_constraint
    return support
