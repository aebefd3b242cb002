"""Regularized systems agree with SciPy on the dense matrix, and leaving a row out with a refit to the other rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from kpp import linalg
from kpp.linalg.toolkit import DenseRidge, FeatureRidge

N, Q, RIDGE = 7, 3, 0.3
RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(N, Q))
GRAM = FEATURES @ FEATURES.T
COUNTS = np.array([1.0, 2.0, 1.0, 3.0, 1.0, 1.0, 4.0])
VALUES = RNG.normal(size=(N, 2))
ELEMENTS = RNG.normal(size=(N, 5))
# Rounding of systems of 7 rows with condition numbers below 100.
RTOL, ATOL = 1e-11, 1e-12


class Elements:
    """Rows of a matrix as elements of a Hilbert space."""

    def gram(self):
        return jnp.asarray(ELEMENTS @ ELEMENTS.T)

    def moments(self, v):
        return jnp.asarray(np.sum(ELEMENTS**2, axis=1)), self.gram() @ v


@pytest.fixture(params=["once", "often"])
def multiplicity(request):
    return None if request.param == "once" else COUNTS


@pytest.fixture(params=["dense", "features"])
def system(request, multiplicity):
    if request.param == "dense":
        return DenseRidge.create(GRAM, RIDGE, multiplicity)
    return FeatureRidge.create(FEATURES, RIDGE, multiplicity)


@pytest.fixture
def matrix(multiplicity):
    return GRAM + RIDGE * np.diag(1 / (np.ones(N) if multiplicity is None else multiplicity))


def refit(matrix, values):
    """Predict each row by the ridge regression on the other rows, one fit per row."""
    predictions = []
    for row in range(N):
        others = np.delete(np.arange(N), row)
        weights = scipy.linalg.solve(matrix[np.ix_(others, others)], values[others], assume_a="pos")
        predictions.append(GRAM[row, others] @ weights)
    return np.array(predictions)


@pytest.mark.slow_variants("dense-once")
def test_solutions_are_those_of_scipy(system, matrix):
    for b in (VALUES, VALUES[:, 0]):
        expected = scipy.linalg.solve(matrix, b, assume_a="pos")
        np.testing.assert_allclose(system.solve(jnp.asarray(b)), expected, rtol=RTOL, atol=ATOL)


@pytest.mark.slow_variants("features-once")
def test_evidence_terms_are_those_of_scipy(system, matrix):
    np.testing.assert_allclose(system.log_determinant(), np.linalg.slogdet(matrix)[1], rtol=RTOL)
    expected = np.trace(scipy.linalg.solve(matrix, ELEMENTS @ ELEMENTS.T, assume_a="pos"))
    np.testing.assert_allclose(system.trace(Elements()), expected, rtol=RTOL)


def test_leaving_a_row_out_is_a_refit_to_the_others(system, matrix):
    for values in (VALUES, VALUES[:, 0]):
        residuals = values - refit(matrix, values)
        np.testing.assert_allclose(system.leave_one_out(jnp.asarray(values)), residuals, rtol=RTOL, atol=ATOL)


def test_norms_of_residuals_are_those_of_a_refit(system, matrix):
    residuals = ELEMENTS - refit(matrix, ELEMENTS)
    np.testing.assert_allclose(system.leave_one_out_norms(Elements()), np.sum(residuals**2, axis=1), rtol=RTOL)


def test_weights_of_features_solve_with_sections(multiplicity, matrix):
    system = FeatureRidge.create(FEATURES, RIDGE, multiplicity)
    points = jnp.asarray(RNG.normal(size=(4, Q)))
    expected = scipy.linalg.solve(matrix, FEATURES @ points.T, assume_a="pos")
    np.testing.assert_allclose(system.weights(points), expected, rtol=RTOL, atol=ATOL)


def test_leverages_are_the_diagonal_of_the_smoother(multiplicity):
    dense = DenseRidge.create(GRAM, RIDGE, multiplicity)
    expected = scipy.linalg.solve(GRAM + np.diag(np.broadcast_to(dense.ridge, N)), GRAM, assume_a="pos")
    np.testing.assert_allclose(dense.smoother(), expected, rtol=RTOL, atol=ATOL)
    leverages = FeatureRidge.create(FEATURES, RIDGE, multiplicity).leverages()
    np.testing.assert_allclose(leverages, np.diagonal(expected), rtol=RTOL)


def test_systems_go_through_jit_and_have_derivatives():
    def evidence(ridge):
        return FeatureRidge.create(FEATURES, ridge).log_determinant()

    expected = np.trace(np.linalg.inv(GRAM + RIDGE * np.eye(N)))
    np.testing.assert_allclose(jax.jit(jax.grad(evidence))(RIDGE), expected, rtol=RTOL)
    solved = jax.jit(lambda ridge: DenseRidge.create(GRAM, ridge).solve(jnp.asarray(VALUES)))(RIDGE)
    np.testing.assert_allclose(solved, np.linalg.solve(GRAM + RIDGE * np.eye(N), VALUES), rtol=RTOL, atol=ATOL)


def test_a_singular_system_is_refused_by_name():
    with pytest.raises(linalg.FactorizationError, match="the matrix of the conditions.*not positive definite"):
        DenseRidge.create(-GRAM, 0.0, what="the matrix of the conditions")
    with pytest.raises(linalg.FactorizationError, match="the matrix of the features.*NaN"):
        FeatureRidge.create(FEATURES * np.nan, 0.1, what="the matrix of the features")
