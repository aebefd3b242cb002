"""The laws of an embedding. Each is a check of one example: an embedding and a batch of queries, or None."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from kpp.embeddings import AbstractEmbedding, AbstractEmpiricalEmbedding
from kpp.functions import RKHSFunction
from kpp.testing.compare import assert_close, assert_raises, assert_same_tree, rows, spec_copy

__all__ = ["embedding_checks"]


def derives_from_the_abstract_class(embedding: object, query: object) -> None:
    """An embedding is an instance of AbstractEmbedding."""
    assert isinstance(embedding, AbstractEmbedding), (
        f"{type(embedding).__name__} does not derive from AbstractEmbedding"
    )


def weights_have_one_column_a_query(embedding: AbstractEmbedding, query: PyTree) -> None:
    """weights(query) has shape (m, p), with p = 1 without a query, and is finite."""
    weights = embedding.weights(query)
    expected = (_num_rows(embedding.points), 1 if query is None else _num_rows(query))
    assert weights.shape == expected, f"`weights` returns shape {weights.shape}, expected {expected}"
    assert np.isfinite(weights).all(), "`weights` returns NaN or infinity"


def queries_are_independent(embedding: AbstractEmbedding, query: PyTree) -> None:
    """The weights of one query do not depend on the other queries."""
    if query is None:
        return
    weights = embedding.weights(query)
    last = slice(_num_rows(query) - 1, _num_rows(query))
    assert_close(embedding.weights(rows(query, last)), weights[:, last], "the weights of the last query alone", 1000)


def evaluates_by_its_weights(embedding: AbstractEmbedding, query: PyTree) -> None:
    """evaluate(x, query) = weights(query).T @ kernel(points, x)."""
    x = rows(embedding.points, slice(0, 2))
    expected = embedding.weights(query).T @ embedding.kernel(embedding.points, x)
    assert_close(embedding.evaluate(x, query), expected, "evaluate(x, query) and the weighted kernel sections")


def expectation_of_a_section_is_the_value(embedding: AbstractEmbedding, query: PyTree) -> None:
    """The expectation of a section of the space's kernel at x is the value at x, and expectations are linear."""
    x = rows(embedding.points, slice(0, 1))
    values = embedding.evaluate(x, query)
    section = RKHSFunction(embedding.space, x, jnp.ones(1, dtype=values.dtype))
    assert_close(embedding.expectation(section, query), values[:, 0], "<k(x, .), mu> and mu(x)", 10)
    assert_close(embedding.expectation(section * 3.0, query), 3 * values[:, 0], "<3 k(x, .), mu> and 3 mu(x)", 10)


def expectation_of_values_is_the_weighted_sum(embedding: AbstractEmbedding, query: PyTree) -> None:
    """For an empirical embedding, expectation(values) = weights.T @ values, also for several outputs."""
    if not isinstance(embedding, AbstractEmpiricalEmbedding):
        return
    weights = embedding.weights(query)
    values = jnp.cos(jnp.arange(2.0 * weights.shape[0], dtype=weights.dtype)).reshape(-1, 2)
    assert_close(embedding.expectation(values, query), weights.T @ values, "the expectation of (m, 2) values")
    assert_close(embedding.expectation(values[:, 0], query), weights.T @ values[:, 0], "the expectation of (m,) values")
    assert_raises(ValueError, lambda: embedding.expectation(values[1:], query), "`values` of the wrong length")


def inner_products_agree_with_evaluation(embedding: AbstractEmbedding, query: PyTree) -> None:
    """inner(self) is symmetric, positive semi-definite, and evaluate(points) @ weights if k is the space's kernel."""
    gram = embedding.inner(embedding, query, query)
    if embedding.space is embedding.kernel:
        expected = embedding.evaluate(embedding.points, query) @ embedding.weights(query)
        assert_close(gram, expected, "inner products and evaluate(points) @ weights", 10)
    assert_close(gram, gram.T, "inner products and their transpose", 10)
    lowest = float(np.linalg.eigvalsh(np.asarray(gram))[0])
    assert lowest >= -1e-8 * float(np.abs(gram).max()), f"the lowest eigenvalue of the inner products is {lowest:.3g}"


def distance_to_itself_is_zero(embedding: AbstractEmbedding, query: PyTree) -> None:
    """mmd_squared is nonnegative, zero on the diagonal, and agrees with the inner products."""
    distances = embedding.mmd_squared(embedding, query, query)
    gram = embedding.inner(embedding, query, query)
    squares = jnp.diagonal(gram)
    expected = squares[:, None] + squares[None, :] - 2 * gram
    assert_close(distances, expected, "mmd_squared and the distances of the inner products", 10)
    assert (np.asarray(distances) >= 0).all(), f"mmd_squared is negative: {float(distances.min()):.3g}"
    assert_close(jnp.diagonal(distances), jnp.zeros_like(squares), "mmd_squared of an embedding from itself", 10)


def jit_changes_nothing(embedding: AbstractEmbedding, query: PyTree) -> None:
    """The weights are the same inside jit."""
    compiled = eqx.filter_jit(lambda embedding, query: embedding.weights(query))(embedding, query)
    assert_close(compiled, embedding.weights(query), "weights(query) with and without jit", 1000)


def survives_the_round_trip_as_a_pytree(embedding: AbstractEmbedding, query: PyTree) -> None:
    """Flattening and unflattening, as jit and vmap do, gives the same embedding."""
    leaves, structure = jax.tree.flatten(embedding)
    copy = jax.tree.unflatten(structure, leaves)
    assert_same_tree(copy, embedding, "the copy")
    assert_close(copy.weights(query), embedding.weights(query), "the weights of the copy and of the embedding")


def survives_the_round_trip_through_a_spec(embedding: AbstractEmbedding, query: PyTree) -> None:
    """A registered embedding written as JSON and read back has the same weights."""
    copy = spec_copy(embedding)
    if copy is not None:
        assert_close(copy.weights(query), embedding.weights(query), "the weights of the copy and of the embedding", 10)


_CHECKS = (
    derives_from_the_abstract_class,
    weights_have_one_column_a_query,
    queries_are_independent,
    evaluates_by_its_weights,
    expectation_of_a_section_is_the_value,
    expectation_of_values_is_the_weighted_sum,
    inner_products_agree_with_evaluation,
    distance_to_itself_is_zero,
    jit_changes_nothing,
    survives_the_round_trip_as_a_pytree,
    survives_the_round_trip_through_a_spec,
)


def embedding_checks(cls: type = AbstractEmbedding) -> tuple[Any, ...]:
    """Return the checks that apply to embeddings of a class.

    Args:
        cls: The class.

    Returns:
        Functions of (embedding, query).
    """
    return _CHECKS


def _num_rows(batch: PyTree) -> int:
    return jax.tree.leaves(batch)[0].shape[0]
