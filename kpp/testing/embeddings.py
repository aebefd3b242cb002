"""The laws of an embedding. Each is a check of one example: an embedding and a batch of queries, or None."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from kpp.embeddings import AbstractEmbedding, AbstractEmpiricalEmbedding
from kpp.functions import RKHSFunction
from kpp.testing.compare import assert_close, assert_raises, laws_in, num_points, rows, spec_copy, tree_copy


def weights_have_one_column_a_query(embedding: AbstractEmbedding, query: PyTree) -> None:
    """weights(query) has shape (m, p), with p = 1 without a query, and is finite."""
    weights = embedding.weights(query)
    expected = (num_points(embedding.points), 1 if query is None else num_points(query))
    assert weights.shape == expected, f"`weights` returns shape {weights.shape}, expected {expected}"
    assert np.isfinite(weights).all(), "`weights` returns NaN or infinity"


def queries_are_independent(embedding: AbstractEmbedding, query: PyTree) -> None:
    """The weights of one query do not depend on the other queries."""
    if query is None:
        return
    weights = np.asarray(embedding.weights(query))
    last = slice(num_points(query) - 1, num_points(query))
    assert_close(embedding.weights(rows(query, last)), weights[:, last], "the weights of the last query alone", 1000)


def evaluates_by_its_weights(embedding: AbstractEmbedding, query: PyTree) -> None:
    """evaluate(x, query) = weights(query).T @ kernel(points, x), here at the points."""
    expected = np.asarray(embedding.weights(query)).T @ np.asarray(embedding.kernel(embedding.points, embedding.points))
    assert_close(
        embedding.evaluate(embedding.points, query), expected, "evaluate(x, query) and the weighted kernel sections"
    )


def expectation_of_a_section_is_the_value(embedding: AbstractEmbedding, query: PyTree) -> None:
    """The expectation of a section of the space's kernel at x is the value at x, and expectations are linear."""
    values = np.asarray(embedding.evaluate(embedding.points, query))[:, 0]
    for factor, what in ((1.0, "<k(x, .), mu> and mu(x)"), (3.0, "<3 k(x, .), mu> and 3 mu(x)")):
        coefficients = jnp.asarray(np.full(1, factor, dtype=values.dtype))
        section = RKHSFunction(embedding.space, rows(embedding.points, slice(0, 1)), coefficients)
        assert_close(embedding.expectation(section, query), factor * values, what, 10)


def expectation_of_values_is_the_weighted_sum(embedding: AbstractEmbedding, query: PyTree) -> None:
    """For an empirical embedding, expectation(values) = weights.T @ values, also for several outputs."""
    if not isinstance(embedding, AbstractEmpiricalEmbedding):
        return
    weights = np.asarray(embedding.weights(query))
    values = np.cos(np.arange(2.0 * weights.shape[0], dtype=weights.dtype)).reshape(-1, 2)
    for what, some in (("(m, 2)", values), ("(m,)", values[:, 0])):
        expected = weights.T @ some
        assert_close(embedding.expectation(some, query), expected, f"the expectation of {what} values")
    assert_raises(ValueError, lambda: embedding.expectation(values[1:], query), "`values` of the wrong length")


def inner_products_agree_with_evaluation(embedding: AbstractEmbedding, query: PyTree) -> None:
    """inner(self) is symmetric, positive semi-definite, and evaluate(points) @ weights if k is the space's kernel."""
    gram = np.asarray(embedding.inner(embedding, query, query))
    if embedding.space is embedding.kernel:
        expected = np.asarray(embedding.evaluate(embedding.points, query)) @ np.asarray(embedding.weights(query))
        assert_close(gram, expected, "inner products and evaluate(points) @ weights", 10)
    assert_close(gram, gram.T, "inner products and their transpose", 10)
    lowest = float(np.linalg.eigvalsh(gram)[0])
    assert lowest >= -1e-8 * float(np.abs(gram).max()), f"the lowest eigenvalue of the inner products is {lowest:.3g}"


def distance_to_itself_is_zero(embedding: AbstractEmbedding, query: PyTree) -> None:
    """mmd_squared is nonnegative, zero on the diagonal, and agrees with the inner products."""
    gram = np.asarray(embedding.inner(embedding, query, query))
    distances = np.asarray(embedding.mmd_squared(embedding, query, query))
    squares = np.diagonal(gram)
    expected = squares[:, None] + squares[None, :] - 2 * gram
    assert_close(distances, expected, "mmd_squared and the distances of the inner products", 10)
    assert (distances >= 0).all(), f"mmd_squared is negative: {float(distances.min()):.3g}"
    assert_close(np.diagonal(distances), np.zeros_like(squares), "mmd_squared of an embedding from itself", 10)


def jit_changes_nothing(embedding: AbstractEmbedding, query: PyTree) -> None:
    """The weights are the same inside jit."""
    compiled = eqx.filter_jit(lambda embedding, query: embedding.weights(query))(embedding, query)
    assert_close(compiled, embedding.weights(query), "weights(query) with and without jit", 1000)


def survives_the_round_trip_as_a_pytree(embedding: AbstractEmbedding, query: PyTree) -> None:
    """Flattening and unflattening, as jit and vmap do, gives the same embedding."""
    weights = tree_copy(embedding).weights(query)
    assert_close(weights, embedding.weights(query), "the weights of the copy and of the embedding")


def survives_the_round_trip_through_a_spec(embedding: AbstractEmbedding, query: PyTree) -> None:
    """A registered embedding written as JSON and read back has the same weights."""
    copy = spec_copy(embedding)
    if copy is not None:
        assert_close(copy.weights(query), embedding.weights(query), "the weights of the copy and of the embedding", 10)


LAWS = laws_in(globals())
