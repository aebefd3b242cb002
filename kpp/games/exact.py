"""Exact Shapley values of any value function, by whichever method costs less."""

from __future__ import annotations

from typing import Any, Literal, TypeGuard

import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.functions import RKHSFunction
from kpp.games.abstract import AbstractProductValueFunction, AbstractValueFunction
from kpp.games.coalitions import MAX_ENUMERATED
from kpp.games.enumeration import enumeration_shapley, product_enumeration_shapley
from kpp.games.interventional import Interventional
from kpp.games.products import has_product_terms
from kpp.games.quadrature import num_nodes, quadrature_shapley
from kpp.validation import as_points

__all__ = ["choose_method", "interventional_shapley", "shapley_values"]

# Nanoseconds on one core of 2023: a factor at a node, an entry of a table averaged, and one multiplied and added.
_QUADRATURE_COST, _AVERAGE_COST, _ENUMERATION_COST = 0.6, 0.15, 0.5
# Above this many features coalitions of a general value function are enumerated only on request.
_MAX_FEATURES = 14


def choose_method(
    value_function: AbstractValueFunction, function: Any, num_points: int, num_features: int, method: str = "auto"
) -> Literal["quadrature", "enumeration"]:
    """Choose the cheaper of the exact methods that apply.

    Quadrature takes p n m d d/2 steps and needs a value function and a kernel that are products over the features;
    enumeration takes n (m + p) 2^d of them there, and 2^d values of any other value function.

    Args:
        value_function: The value function.
        function: The function to explain.
        num_points: How many points are explained, p.
        num_features: d.
        method: "auto", or the method that is asked for.

    Returns:
        "quadrature" or "enumeration".

    Raises:
        ValueError: If `method` is unknown, or there are too many features to enumerate.
        TypeError: If quadrature is asked for, or is the only hope, and does not apply.
    """
    if method not in ("auto", "quadrature", "enumeration"):
        raise ValueError(f"`method` must be 'auto', 'quadrature' or 'enumeration', got {method!r}")
    if method == "enumeration" and num_features > MAX_ENUMERATED:
        raise ValueError(f"`method` 'enumeration' takes at most {MAX_ENUMERATED} features, got {num_features}")
    if not is_product_game(value_function, function):
        if method == "quadrature" or (method == "auto" and num_features > _MAX_FEATURES):
            raise TypeError(_explain_refusal(value_function, function, num_features))
        return "enumeration"
    if method == "enumeration":
        return "enumeration"
    if method == "quadrature" or num_features > MAX_ENUMERATED:
        return "quadrature"
    num_references = value_function.references(num_features).shape[0]
    quadrature = _QUADRATURE_COST * num_points * num_references * num_features * num_nodes(num_features)
    enumeration = (_AVERAGE_COST * num_references + _ENUMERATION_COST * num_points) * 2**num_features
    return "quadrature" if quadrature <= enumeration else "enumeration"


def shapley_values(
    value_function: AbstractValueFunction,
    function: Any,
    x: Any,
    *,
    method: str = "auto",
    batch_size: int | None = None,
) -> Float[Array, "*draws p d *outputs"]:
    """Compute exact Shapley values.

    Args:
        value_function: The game.
        function: The function to explain, an `RKHSFunction`, or what else the value function takes.
        x: The points to explain, (p, d).
        method: "quadrature", "enumeration", or "auto" for the cheaper one.
        batch_size: How many references are worked on at once; by default what fits a processor's cache.

    Returns:
        The Shapley values, (p, d), led by draws, with the outputs last.

    Raises:
        ValueError: If `x`, `method` or `batch_size` are not as said, or there are too many features to enumerate.
        TypeError: If quadrature is asked for, or is the only hope, and does not apply.
    """
    x = as_points(x)
    if isinstance(function, RKHSFunction):
        x = as_points(x, num_features=function.points.shape[-1])
    if batch_size is not None and (not isinstance(batch_size, int) or batch_size < 1):
        raise ValueError(f"`batch_size` must be a positive integer or None, got {batch_size!r}")
    chosen = choose_method(value_function, function, x.shape[0], x.shape[1], method)
    if not is_product_game(value_function, function):
        return enumeration_shapley(value_function, function, x)
    compute = quadrature_shapley if chosen == "quadrature" else product_enumeration_shapley
    return compute(value_function, function, jnp.asarray(x), batch_size=batch_size)


def interventional_shapley(
    function: Any, x: Any, background: Any, *, method: str = "auto", batch_size: int | None = None
) -> Float[Array, "*draws p d *outputs"]:
    """Compute exact Shapley values of the interventional game, `Interventional`.

    Args:
        function: An `RKHSFunction`, or for few features any function from (n, d) to (n,) or (n, outputs).
        x: The points to explain, (p, d).
        background: The background points, (m, d).
        method: "quadrature", "enumeration", or "auto" for the cheaper one.
        batch_size: How many background points are worked on at once.

    Returns:
        The Shapley values, (p, d), led by draws, with the outputs last.

    Raises:
        ValueError: As `shapley_values`.
        TypeError: As `shapley_values`.
    """
    return shapley_values(Interventional(background), function, x, method=method, batch_size=batch_size)


def is_product_game(value_function: Any, function: Any) -> TypeGuard[AbstractProductValueFunction]:
    """Tell whether a game is one that quadrature solves: a product value function, and a kernel of product terms."""
    return (
        isinstance(value_function, AbstractProductValueFunction)
        and isinstance(function, RKHSFunction)
        and has_product_terms(function.kernel)
    )


def _explain_refusal(value_function: AbstractValueFunction, function: Any, num_features: int) -> str:
    game, kind = type(value_function).__name__, type(function).__name__
    if isinstance(function, RKHSFunction):
        kind = f"an RKHSFunction with kernel {type(function.kernel).__name__}"
    return (
        f"exact Shapley values of {num_features} features by quadrature need a value function and a kernel that are "
        f"products over the features, got {game} and {kind}; enumeration takes up to {_MAX_FEATURES} features, "
        f"and up to {MAX_ENUMERATED} with method='enumeration'"
    )
