"""Projected against reference vectors, Gaussian vectors by NumPy, and finite populations with exact expectations."""

from __future__ import annotations

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kpp.kernels import RBF, Polynomial, Projected
from kpp.kernels.points import projected
from kpp.kernels.toolkit import Unprojected
from oracles.kernels import rbf

VECTORS = dict(np.load(Path(__file__).parents[1] / "data" / "collider.npz"))
X, SAMPLE, QUERY = (np.column_stack([VECTORS[f"in_X1{s}"], VECTORS[f"in_X2{s}"]]) for s in ("", "u", "q"))
RESPONSE = RBF(float(VECTORS["in_ls_r"])).on((0,))
CONDITION = RBF(float(VECTORS["in_ls_l"])).on((1, 2))
RIDGE = float(VECTORS["in_gamma_total"]) / len(SAMPLE)
KERNELS = {
    "product": Projected(RESPONSE, CONDITION, SAMPLE, RIDGE),
    "general": Projected((RESPONSE + 1.0) * CONDITION, CONDITION, SAMPLE, RIDGE, form="general"),
}

matrix = eqx.filter_jit(lambda kernel, a, b: kernel(a, b))
gram = eqx.filter_jit(lambda kernel, a: (kernel.gram(a), kernel.diagonal(a)))


@eqx.filter_jit
def of_both_kinds_of_points(kernel):
    """The matrix with the queries; for points projected and not, the Gram matrix and the one with the queries."""
    both = [(kernel.gram(points), kernel(QUERY, points)) for points in (jnp.asarray(X), Unprojected(jnp.asarray(X)))]
    return kernel(X, QUERY), both


@pytest.mark.slow_variants("general", "product")
@pytest.mark.parametrize("form", KERNELS)
def test_reference_vectors(form):
    ridge = float(VECTORS["in_lambda_total"]) * np.eye(len(X))
    values, both = of_both_kinds_of_points(KERNELS[form])
    assert values == pytest.approx(VECTORS[f"out_kP_{form}"], rel=1e-7, abs=1e-10)
    for (whole, sections), name in zip(both, ("HP", "P"), strict=True):
        fitted = np.asarray(sections) @ np.linalg.solve(np.asarray(whole) + ridge, VECTORS["in_y"])
        assert fitted == pytest.approx(VECTORS[f"out_{name}_{form}"], rel=1e-7, abs=1e-10)


def projection(condition, sample, rows, ridge):
    """The matrix that takes values at (rows, sample) to values of the projection at both."""
    both = np.concatenate([rows, sample])
    weights = np.linalg.solve(condition(sample, sample) + ridge * np.eye(len(sample)), condition(sample, both))
    return np.eye(len(both)) - np.pad(weights.T, ((0, 0), (len(rows), 0)))


@eqx.filter_jit
def projected_twice_once_and_never(kernel, rows):
    free = Unprojected(rows)
    return kernel(rows, rows), kernel(rows, free), kernel(free, free)


@pytest.mark.slow
def test_one_after_the_other_is_a_product_of_projections_of_a_gaussian_vector():
    """k_P is the covariance of P f, of P2 P1 f where kernels are nested; unprojected points mean f itself."""
    base = (RESPONSE + 1.0) * CONDITION
    first = Projected(base, RBF(0.9).on((1,)), SAMPLE, 0.02, form="general")
    second = Projected(first, RBF(0.8).on((2,)), SAMPLE, 0.03, form="general")
    rows = np.concatenate([X, SAMPLE])
    covariance = (rbf(rows[:, :1], rows[:, :1], 1.1) + 1.0) * rbf(rows[:, 1:], rows[:, 1:], 1.4)
    n = len(SAMPLE)
    p1 = projection(lambda a, b: rbf(a[:, 1:2], b[:, 1:2], 0.9), SAMPLE, X, n * 0.02)
    p2 = projection(lambda a, b: rbf(a[:, 2:], b[:, 2:], 0.8), SAMPLE, X, n * 0.03)
    for kernel, operator in ((first, p1), (second, p2 @ p1)):
        found = projected_twice_once_and_never(kernel, rows)
        # Tolerance: rounding of solves with condition numbers below 1e3.
        assert found[0] == pytest.approx(operator @ covariance @ operator.T, abs=1e-11)
        assert found[1] == pytest.approx(operator @ covariance, abs=1e-11)
        assert found[2] == pytest.approx(covariance, abs=1e-12)


@pytest.mark.parametrize("form", KERNELS)
def test_gram_and_diagonal_of_unprojected_points(form):
    whole, diagonal = gram(KERNELS[form], Unprojected(X))
    expected = (rbf(X[:, :1], X[:, :1], 1.1) + 1.0) * rbf(X[:, 1:], X[:, 1:], 1.4)
    assert whole == pytest.approx(expected, abs=1e-12)
    assert diagonal == pytest.approx(np.diagonal(expected), abs=1e-12)


def population():
    """All of a finite population: three values of the condition, seen 4, 2 and 3 times."""
    condition = np.repeat([-1.0, 0.5, 2.0], [4, 2, 3])
    return np.column_stack([np.linspace(-2.0, 2.0, 9) ** 3 / 4, condition])


@pytest.mark.nightly_variants("general")
@pytest.mark.slow_variants("general")
@pytest.mark.parametrize("form", ["general", pytest.param("product", marks=pytest.mark.slow)])
def test_exact_expectations_of_a_finite_population(form):
    """With a landmark at each value of the condition and no ridge, w averages exactly: k_P has conditional mean 0."""
    x = population()
    values, group = np.unique(x[:, 1], return_inverse=True)
    landmarks = np.column_stack([np.zeros(3), values])
    response = Polynomial(degree=2) if form == "general" else RBF(1.3).on((0,))
    kernel = Projected(response, RBF(0.6).on((1,)), x, 0.0, landmarks, form)
    found = np.asarray(gram(kernel, x)[0])
    means = np.eye(3)[group].T @ found / np.bincount(group)[:, None]
    assert np.abs(means).max() < 1e-10
    average = (np.eye(3)[group] / np.bincount(group)) @ np.eye(3)[group].T
    operator = np.eye(9) - average
    factor = rbf(x[:, 1:], x[:, 1:], 0.6) if form == "product" else 1.0
    plain = np.asarray(gram(response, x)[0])
    assert found == pytest.approx(factor * (operator @ plain @ operator.T), abs=1e-10 * np.abs(plain).max())
    if form == "general":  # projecting twice is projecting once
        again = Projected(kernel, RBF(0.6).on((1,)), x, 0.0, landmarks, form)
        assert gram(again, x)[0] == pytest.approx(found, abs=1e-10 * np.abs(found).max())
    h = np.sin(3 * x[:, 0])
    estimate = eqx.filter_jit(lambda kernel: kernel.conditional_expectation(x, h))
    assert estimate(kernel) == pytest.approx(average @ h, abs=1e-12)


# The forms differ after the averages, which are what landmarks and blocks change.
@pytest.mark.nightly_variants("product")
@pytest.mark.slow
@pytest.mark.parametrize("form", ["product", "general"])
def test_landmarks_at_all_points_blocks_and_precomputed_moments_change_nothing(form, monkeypatch):
    exact = KERNELS[form]
    spanned = eqx.tree_at(lambda k: k.landmarks, exact, jnp.asarray(SAMPLE), is_leaf=lambda leaf: leaf is None)
    expected, diagonal = map(np.asarray, gram(exact, X))
    # Tolerance: the landmarks' kernel matrix is factorized, whose condition number is below 1e5.
    assert gram(spanned, X)[0] == pytest.approx(expected, abs=1e-10)
    monkeypatch.setattr(projected, "_BLOCK", 4)  # 11 rows: two whole blocks and a part
    in_blocks = eqx.filter_jit(lambda kernel, x: (kernel(x, x), kernel.precompute().gram(x), kernel.diagonal(x)))
    for found, right in zip(in_blocks(spanned, X), (expected, expected, diagonal), strict=True):
        assert found == pytest.approx(right, abs=1e-10)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"form": "additive"}, ValueError, "`form` must be one of"),
        ({"kernel": KERNELS["general"]}, ValueError, "`form` must be 'general'"),
        ({"kernel": 1.0}, TypeError, "`kernel` must be a kernel"),
        ({"points": np.zeros((0, 3))}, ValueError, "`points` must have shape"),
        ({"landmarks": np.zeros(3)}, ValueError, "`landmarks` must have shape"),
        ({"regularization": -1.0}, ValueError, "`regularization` must be at least 0"),
    ],
)
def test_refused(arguments, error, message):
    right = {"kernel": RESPONSE, "condition_kernel": CONDITION, "points": SAMPLE, "regularization": 0.1}
    with pytest.raises(error, match=message):
        Projected(**(right | arguments))


def test_points_with_other_features_are_refused():
    with pytest.raises(ValueError, match="same number of features"):
        jax.eval_shape(KERNELS["product"], X[:, :2], X[:, :2])
