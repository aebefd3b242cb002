"""Rows of a matrix as points: the same numbers as the kernel that the matrix was computed with."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import kpp
from kpp.kernels import RBF
from kpp_models import GPRegression
from kpp_structures import Precomputed, Tanimoto

RNG = np.random.default_rng(0)
COUNTS = RNG.poisson(1.0, size=(20, 6)).astype(float)
GRAM = np.asarray(Tanimoto().gram(COUNTS))


@pytest.mark.slow
def test_values_are_entries_of_the_matrix():
    kernel, rows, others = Precomputed(GRAM, 1.3), np.array([[3], [0], [19]]), np.array([[5], [3]])
    np.testing.assert_array_equal(kernel(rows, others), 1.3 * GRAM[np.ix_([3, 0, 19], [5, 3])])
    np.testing.assert_array_equal(kernel.diagonal(rows), 1.3 * GRAM[[3, 0, 19], [3, 0, 19]])
    assert float(kernel.evaluate(rows[0], others[0])) == 1.3 * GRAM[3, 5]


@pytest.mark.slow
def test_a_gaussian_process_predicts_rows_that_it_was_not_fitted_to(tmp_path):
    y, numbers = np.sin(COUNTS[:, 0]), np.arange(20)[:, None]
    fit = GPRegression(Precomputed(GRAM, 2.0), 0.01).fit(jax.random.key(0), numbers[:14], y[:14], num_prior_samples=0)
    found = fit.predict(numbers[14:])
    cross, inverse = 2 * GRAM[14:, :14], np.linalg.inv(2 * GRAM[:14, :14] + 0.01 * np.eye(14))
    np.testing.assert_allclose(found["mean"].values.squeeze(), cross @ inverse @ y[:14], rtol=1e-8)
    variance = 2.0 - np.sum((cross @ inverse) * cross, axis=1)
    np.testing.assert_allclose(found["latent_variance"].values.squeeze(), variance, rtol=1e-8)
    fit.save(tmp_path / "fit.nc")
    np.testing.assert_array_equal(kpp.Fit.load(tmp_path / "fit.nc").predict(numbers[14:])["mean"], found["mean"])
    with pytest.raises(ValueError, match=r"integers from 0 to 19, got 20\.0"):
        fit.predict([[20]])


@pytest.mark.slow
def test_a_structure_is_one_player_beside_the_other_columns():
    x = np.column_stack([np.arange(20), RNG.normal(size=20)])
    kernel = Precomputed(GRAM).on(0) * RBF(1.5).on(1) + Precomputed(GRAM, 0.5).on(0)
    function = kpp.RKHSFunction(kernel, x, RNG.normal(size=20))
    explanation = kpp.explain(function, x[:2], explainer="rkhs-shap", background=x)
    average = [float(np.mean(function(np.column_stack([np.full(20, row[0]), x[:, 1]])))) for row in x[:2]]
    opposite = [float(np.mean(function(np.column_stack([x[:, 0], np.full(20, row[1])])))) for row in x[:2]]
    both, none = np.asarray(function(x[:2])), float(np.mean(function(x)))
    expected = (np.array(average) - none + both - np.array(opposite)) / 2
    np.testing.assert_allclose(explanation.values.values[..., 0].squeeze(), expected, atol=1e-10)


def test_rounding_errors_are_forgiven_and_the_matrix_is_made_symmetric():
    noisy = GRAM + 1e-10 * RNG.normal(size=GRAM.shape)
    matrix = np.asarray(Precomputed(noisy).matrix)
    np.testing.assert_array_equal(matrix, matrix.T)
    np.testing.assert_allclose(matrix, GRAM, atol=1e-9)
    assert Precomputed(GRAM.astype(np.float32)).matrix.dtype == np.float32


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.ones((2, 3)), r"`matrix` must have shape \(m, m\).* got shape \(2, 3\)"),
        (np.ones(3), r"`matrix` must have shape \(n, d\)"),
        (np.zeros((0, 0)), "`matrix` must have shape"),
        (np.array([[1.0, 0.5], [0.4, 1.0]]), r"`matrix` must be symmetric, .* differ by up to 0\.1"),
        (np.array([[1.0, 2.0], [2.0, 1.0]]), "`matrix` must be positive semi-definite, .* eigenvalue is -1; .* to 0"),
        (np.array([[1.0, np.nan], [np.nan, 1.0]]), "`matrix`.* NaN"),
        (np.array([[1.0, 0.0], [0.0, np.inf]]), "`matrix`.* inf"),
    ],
)
def test_a_matrix_that_is_not_a_kernel_is_refused(matrix, message):
    with pytest.raises(ValueError, match=message):
        Precomputed(matrix)


@pytest.mark.parametrize(
    ("matrix", "message"),
    [("text", "`matrix` must be a real number"), (dist.HalfNormal().expand([2, 2]), "priors belong to `variance`")],
)
def test_a_matrix_is_numbers(matrix, message):
    with pytest.raises(TypeError, match=message):
        Precomputed(matrix)


@pytest.mark.slow_variants("20")
@pytest.mark.parametrize("wrong", [20, -1, 0.5])
def test_points_are_row_numbers(wrong):
    kernel, points = Precomputed(GRAM), np.array([[3.0], [wrong]])
    for evaluate in (kernel.gram, kernel.diagonal, lambda x: kernel(np.array([[0.0]]), x)):
        with pytest.raises(ValueError, match=f"row numbers of `matrix`, integers from 0 to 19, got {float(wrong)}"):
            evaluate(points)
    traced = jax.jit(lambda x: kernel.diagonal(x))(points)
    assert np.isfinite(traced[0]) and np.isnan(traced[1])
    with pytest.raises(ValueError, match="is not defined at all points|row numbers"):
        GPRegression(kernel, 0.1).fit(jax.random.key(0), points, [0.0, 1.0])


def test_points_have_one_column():
    with pytest.raises(ValueError, match=r"points `x` of shape \(n, 1\).* got 2 columns; `on` selects"):
        Precomputed(GRAM).gram(np.zeros((3, 2)))
    with pytest.raises(ValueError, match="`variance` must be at least 0"):
        Precomputed(GRAM, -1.0)


def test_values_have_gradients_in_the_variance_and_none_in_the_points():
    total = jax.jit(jax.grad(lambda variance, x: jnp.sum(Precomputed(GRAM, variance).gram(x)), (0, 1)))
    in_variance, in_points = total(1.0, jnp.arange(20.0)[:, None])
    np.testing.assert_allclose(in_variance, GRAM.sum())
    assert np.all(np.asarray(in_points) == 0.0)
