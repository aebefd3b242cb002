"""The choice of landmarks against a greedy search written out, and the error against the embeddings' distance."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from sklearn.cluster import KMeans

from kpp.features import landmarks
from kpp.features.landmarks import mean_discrepancy
from kpp.kernels import RBF, Linear, median_heuristic

X = np.random.default_rng(0).normal(size=(40, 2))
KERNEL = RBF(0.9)


def squared_distance(gram, chosen):
    return gram[np.ix_(chosen, chosen)].mean() - 2 * gram[chosen].mean() + gram.mean()


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [KERNEL, Linear(1.0) + 0.5], ids=["constant_diagonal", "varying_diagonal"])
def test_herding_is_the_greedy_search_over_all_rows(kernel):
    gram, expected = np.asarray(kernel.gram(X)), []
    for _ in range(6):
        others = [row for row in range(40) if row not in expected]
        expected.append(min(others, key=lambda row: squared_distance(gram, [*expected, row])))
    found = landmarks(X, 6, kernel=kernel)
    np.testing.assert_array_equal(found.indices, expected)
    np.testing.assert_array_equal(found.points, X[expected])
    np.testing.assert_allclose(found.error, squared_distance(gram, expected) ** 0.5, rtol=1e-8, atol=1e-8)


@pytest.mark.slow
def test_error_is_the_distance_of_the_mean_embeddings():
    z = X[:6] + 0.1
    gram = np.asarray(KERNEL.gram(np.concatenate([z, X])))
    weights = np.repeat([1 / 6, -1 / 40], [6, 40])
    np.testing.assert_allclose(mean_discrepancy(KERNEL, z, X), (weights @ gram @ weights) ** 0.5, rtol=1e-10)


def test_kmeans_takes_the_centers_of_scikit_learn():
    key = jax.random.key(3)
    found = landmarks(X, 6, method="kmeans", kernel=KERNEL, rng_key=key)
    seed = int(jax.random.randint(key, (), 0, 2**31 - 1))
    np.testing.assert_array_equal(found.points, KMeans(6, n_init=1, random_state=seed).fit(X).cluster_centers_)
    assert found.indices is None


@pytest.mark.slow
def test_herding_beats_random_rows():
    # The squared distance of m random rows is E (1/m)(k(x,x) - |mu|^2) on average; herding's falls faster than 1/m.
    random = [landmarks(X, 6, method="random", kernel=KERNEL, rng_key=jax.random.key(i)).error for i in range(10)]
    assert landmarks(X, 6, kernel=KERNEL).error < 0.5 * np.mean(random)


@pytest.mark.slow
def test_all_rows_have_no_error_and_no_row_comes_twice():
    found = landmarks(X, 40, kernel=KERNEL)
    assert sorted(found.indices) == list(range(40))
    assert found.error < 1e-7  # the root of rounding errors


@pytest.mark.slow
def test_many_rows_are_thinned():
    found = landmarks(X, 6, kernel=KERNEL, rng_key=jax.random.key(0), max_rows=20)
    np.testing.assert_array_equal(found.points, X[found.indices])
    assert len(set(found.indices)) == 6


def test_kernel_is_read_off_the_sample():
    found = landmarks(X, 6, method="random", rng_key=jax.random.key(0))
    np.testing.assert_allclose(found.kernel.lengthscale, median_heuristic(X) * 2**0.5, rtol=1e-12)


MISTAKES = [
    ({"num": 0}, "`num` must be between 1 and 40 \\(the number of rows\\), got 0"),
    ({"num": 41}, "`num` must be between 1 and 40 \\(the number of rows\\), got 41"),
    ({"num": 3, "method": "grid"}, "`method` must be one of .*, got 'grid'"),
    ({"num": 3, "method": "kmeans"}, "`rng_key` is needed for method 'kmeans' and 40 rows, got None"),
    ({"num": 3, "max_rows": 10}, "`rng_key` is needed for method 'herding' and 40 rows, got None"),
]


@pytest.mark.parametrize(("options", "message"), MISTAKES)
def test_mistakes_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        landmarks(X, **options)
