"""Functions of pairs by matrices of items, against sums over the pairs."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kpp import RKHSFunction
from kpp.features import Nystrom
from kpp.kernels import RBF, Contextual, GeneralizedPreferential, Linear, Preferential
from kpp.preferences import ItemFunction
from kpp.preferences.toolkit import (
    distinct_items,
    entries_at_pairs,
    multiply_skew,
    preference_terms,
    row_sums,
    skew_table,
)

RNG = np.random.default_rng(3)
ITEMS = RNG.normal(size=(8, 2))
PAIRS = np.array([(i, j) for i in range(8) for j in range(8) if i != j])[::3]
ALPHA = RNG.normal(size=len(PAIRS))
matrix = eqx.filter_jit(lambda kernel, a, b: kernel(a, b))
table_of, sums_of = (jax.jit(f, static_argnums=2) for f in (skew_table, row_sums))
product, entries_of = jax.jit(multiply_skew), jax.jit(entries_at_pairs)
NYSTROM = Nystrom(RBF(0.9), ITEMS[:3])
UTILITY = Preferential(RBF(0.7))
KERNELS = [
    pytest.param(GeneralizedPreferential(RBF(0.8) + 0.5), id="generalized", marks=pytest.mark.slow),
    pytest.param(UTILITY, id="utility", marks=pytest.mark.slow),
    pytest.param(2.0 * GeneralizedPreferential(RBF(0.8)) + Preferential(Linear()) * 0.3, id="both"),
    pytest.param(GeneralizedPreferential(NYSTROM) + Preferential(NYSTROM), id="finite rank", marks=pytest.mark.slow),
]


def brute_force(kernel, x):
    """The definition, pair by pair, from the kernels of items."""
    values = np.zeros(len(x))
    for scale, item, has_utility, _ in preference_terms(kernel):
        left, right = (np.asarray(matrix(item, x[:, side], ITEMS)) for side in (0, 1))
        for alpha, (a, b) in zip(ALPHA, PAIRS, strict=True):
            if has_utility:
                values += scale * alpha * (left[:, a] + right[:, b] - left[:, b] - right[:, a])
            else:
                values += scale * alpha * (left[:, a] * right[:, b] - left[:, b] * right[:, a])
    return values


@pytest.mark.nightly_variants("finite rank")
@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS)
def test_it_is_the_function_of_the_pairs(kernel):
    x = RNG.normal(size=(5, 2, 2))
    function = RKHSFunction(kernel, ITEMS[PAIRS], ALPHA)
    item_function = ItemFunction.of(function)
    values = np.asarray(item_function(x))
    grid = np.stack([np.repeat(x[:, 0], 5, axis=0), np.tile(x[:, 0], (5, 1))], axis=1)
    expected = brute_force(kernel, np.concatenate([x, grid]))
    # Sums of some ten products of numbers near 1.
    np.testing.assert_allclose(values, expected[:5], rtol=1e-12, atol=1e-12)
    again = item_function.function()
    assert np.array_equal(again.points, function.points)
    assert np.array_equal(again.coefficients, ALPHA)
    assert np.array_equal(values, -np.asarray(item_function(x[:, ::-1])))
    table = np.asarray(item_function.preference_matrix(x[:, 0]))
    assert np.array_equal(table, -table.T)
    np.testing.assert_allclose(table.ravel(), expected[5:], rtol=1e-12, atol=1e-12)


@pytest.mark.slow_variants("by rows")
@pytest.mark.parametrize("width", [1, 9], ids=["by rows", "by a table"])
def test_products_with_the_table_are_sums_over_pairs(width):
    values = RNG.normal(size=(8, width))
    table = np.zeros((8, 8))
    for alpha, (a, b) in zip(ALPHA, PAIRS, strict=True):
        table[a, b] += alpha
        table[b, a] -= alpha
    assert (64 <= len(PAIRS) * width) == (width == 9)
    np.testing.assert_allclose(table_of(PAIRS, ALPHA, 8), table, atol=1e-15)
    np.testing.assert_allclose(sums_of(PAIRS, ALPHA, 8), table.sum(axis=1), atol=1e-14)
    np.testing.assert_allclose(product(PAIRS, ALPHA, values), table @ values, atol=1e-13)
    entries = entries_of(values, 2 * values, PAIRS)
    np.testing.assert_allclose(entries, (2 * values @ values.T)[PAIRS[:, 0], PAIRS[:, 1]], atol=1e-13)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "context_kernel", [RBF(1.1), pytest.param(Linear() + 0.5, marks=pytest.mark.slow)], ids=["kernel", "features"]
)
def test_in_contexts_it_is_the_function_of_the_pairs(context_kernel):
    """Against the sum over pairs of products of both kernels."""
    contexts = RNG.normal(size=(3, 1))[RNG.integers(0, 3, len(PAIRS))]
    x, z = RNG.normal(size=(5, 2, 2)), RNG.normal(size=(5, 1))
    pair_kernel = 2.0 * GeneralizedPreferential(NYSTROM) + Preferential(Linear()) * 0.3
    kernel = Contextual(pair_kernel, context_kernel)
    sections = np.asarray(matrix(pair_kernel, x, ITEMS[PAIRS])) * np.asarray(matrix(context_kernel, z, contexts))
    function = RKHSFunction.over_draws(kernel, (ITEMS[PAIRS], contexts), ALPHA[None], batch_shape=(1,))
    item_function = ItemFunction.of(function)
    assert item_function.contexts.shape == (3, 1)
    np.testing.assert_allclose(item_function((x, z)), sections @ ALPHA, rtol=1e-12, atol=1e-12)
    again = item_function.function()
    assert all(np.array_equal(found, given) for found, given in zip(again.points, function.points, strict=True))
    table = np.asarray(item_function.preference_matrix(x[:, 0], context=z[0]))
    pairs = np.stack([np.repeat(x[:, 0], 5, axis=0), np.tile(x[:, 0], (5, 1))], axis=1)
    there = matrix(pair_kernel, pairs, ITEMS[PAIRS]) * matrix(context_kernel, z[:1], contexts)
    np.testing.assert_allclose(table.ravel(), there @ ALPHA, rtol=1e-12, atol=1e-12)
    for call, message in [
        (lambda: item_function(x), "`x` must be a tuple of pairs and contexts"),
        (lambda: item_function((x, z[:2])), "x.0.* and .*x.1.*"),
        (lambda: item_function.preference_matrix(ITEMS), "`context` must be given if and only if"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()


def test_items_are_found_in_pairs():
    items, numbers = distinct_items(ITEMS[PAIRS])
    assert len(items) == 8
    assert np.array_equal(items[numbers], ITEMS[PAIRS])


def test_what_has_no_form_in_items_is_refused():
    with pytest.raises(TypeError, match="`kernel` must be Preferential or GeneralizedPreferential.*got RBF"):
        ItemFunction(RBF(1.0), jnp.asarray(ITEMS), jnp.asarray(PAIRS), jnp.asarray(ALPHA))
    with pytest.raises(ValueError, match="no intercept, got .* the intercept 1.0"):
        ItemFunction.of(RKHSFunction(UTILITY, ITEMS[PAIRS], ALPHA, 1.0))
    with pytest.raises(ValueError, match=r"`points` must hold pairs of items.*got shape \(8, 2\)"):
        distinct_items(ITEMS)
