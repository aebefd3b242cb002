"""Baselines for preferences, against scikit-learn's own logistic regression."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.linear_model import LogisticRegression

from kpp.preferences import Matches
from kpp_models.estimators import BradleyTerry, PairwiseClassifier, PairwiseLogisticRegression, match_rows

RNG = np.random.default_rng(2)
ITEMS = RNG.normal(size=(8, 3))
FIRST = RNG.integers(0, 8, 60)
SECOND = (FIRST + RNG.integers(1, 8, 60)) % 8
Y = np.where(
    RNG.uniform(size=60) < 0.2, 0.5, RNG.uniform(size=60) < 1 / (1 + np.exp(ITEMS[SECOND, 0] - ITEMS[FIRST, 0]))
)
ROWS = match_rows(Matches.create(ITEMS, FIRST, SECOND, Y, tie=0.5))
SWAPPED = np.concatenate(np.split(ROWS.features, 2, axis=1)[::-1], axis=1)
EXACT = {"fit_intercept": False, "tol": 1e-12, "max_iter": 10_000, "solver": "newton-cg"}


def incidence():
    """1 for the first item and -1 for the second."""
    return np.eye(8)[ROWS.numbers[:, 0]] - np.eye(8)[ROWS.numbers[:, 1]]


def test_rows_count_every_match_once_and_ties_by_half():
    assert ROWS.sample_weight.sum() == 60
    wins = np.zeros((8, 8))
    np.add.at(wins, (FIRST, SECOND), Y)
    np.add.at(wins, (SECOND, FIRST), 1 - Y)
    winner, loser = np.where(ROWS.y == 1, ROWS.numbers.T, ROWS.numbers.T[::-1])
    found = np.zeros((8, 8))
    np.add.at(found, (winner, loser), ROWS.sample_weight)
    np.testing.assert_array_equal(found, wins)
    np.testing.assert_array_equal(ROWS.features, ITEMS[ROWS.numbers].reshape(-1, 6))


@pytest.mark.parametrize("penalty", [0.5, 0.0], ids=["ridge", "maximum likelihood"])
def test_bradley_terry_is_logistic_regression_on_indicators(penalty):
    oracle = LogisticRegression(C=1 / penalty if penalty else np.inf, **EXACT)
    design = incidence() if penalty else incidence()[:, 1:]  # without a penalty one strength is fixed
    oracle.fit(design, ROWS.y, sample_weight=ROWS.sample_weight)
    found = BradleyTerry(penalty=penalty).fit(ROWS.numbers, ROWS.y, ROWS.sample_weight)
    assert abs(found.strengths_.sum()) < 1e-10
    # The oracle ends where its gradient is near 1e-8 or less.
    np.testing.assert_allclose(found.predict_proba(ROWS.numbers), oracle.predict_proba(design), rtol=1e-6)


def test_pairwise_logistic_regression_is_logistic_regression_on_differences():
    first, second = np.split(ROWS.features, 2, axis=1)
    oracle = LogisticRegression(C=0.7, **EXACT).fit(first - second, ROWS.y, sample_weight=ROWS.sample_weight)
    found = PairwiseLogisticRegression(C=0.7).fit(ROWS.features, ROWS.y, ROWS.sample_weight)
    np.testing.assert_allclose(found.coef_, oracle.coef_[0], rtol=1e-6)
    augmented = PairwiseClassifier(LogisticRegression(C=0.7, **EXACT))
    augmented.fit(ROWS.features, ROWS.y, ROWS.sample_weight)
    expected = found.predict_proba(ROWS.features)
    np.testing.assert_allclose(augmented.predict_proba(ROWS.features), expected, rtol=1e-6)


@pytest.mark.parametrize(
    "model",
    [
        PairwiseLogisticRegression(),
        PairwiseClassifier(RandomForestClassifier(5, random_state=0)),
        PairwiseClassifier(GaussianProcessClassifier(optimizer=None)),
    ],
    ids=["logistic", "forest", "gaussian process"],
)
def test_probabilities_are_symmetric_to_the_last_bit(model):
    labels = np.where(ROWS.y == 1, "won", "lost")
    fitted = clone(model).fit(ROWS.features, labels)
    probabilities, mirrored = fitted.predict_proba(ROWS.features), fitted.predict_proba(SWAPPED)
    assert np.array_equal(probabilities, mirrored[:, ::-1])
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-15)
    assert list(fitted.classes_) == ["lost", "won"]
    decided = probabilities[:, 1] != 0.5
    expected = np.where(probabilities[:, 1] > 0.5, "won", "lost")
    assert np.array_equal(fitted.predict(ROWS.features)[decided], expected[decided])
    itself = fitted.predict_proba(np.tile(ITEMS, 2))
    np.testing.assert_array_equal(itself, 0.5)


def test_the_default_is_a_gaussian_process_that_learns_from_matches():
    items = RNG.normal(size=(20, 1))
    first, second = RNG.integers(0, 20, 30), RNG.integers(0, 20, 30)
    X, y = np.stack([items[first, 0], items[second, 0]], axis=1), items[first, 0] > items[second, 0]
    y[:3] = ~y[:3]  # upsets, without which the evidence has no maximum
    grid = RNG.normal(size=(100, 2))
    assert PairwiseClassifier().fit(X, y).score(grid, grid[:, 0] > grid[:, 1]) > 0.8


def test_what_cannot_be_fitted_is_refused():
    numbers, y = ROWS.numbers, ROWS.y
    with pytest.raises(ValueError, match="`penalty` must be above 0 .* 3 groups"):
        BradleyTerry(penalty=0).fit([[0, 1], [1, 2], [0, 2]], [1, 0, 0], [1, 0, 1])
    with pytest.raises(ValueError, match="`penalty` must be at least 0, got -1"):
        BradleyTerry(penalty=-1).fit(numbers, y)
    with pytest.raises(ValueError, match="`X` must hold different items, got item 4 with itself"):
        BradleyTerry().fit([[0, 1], [4, 4]], [0, 1])
    with pytest.raises(ValueError, match="`X` must hold the numbers of two items per row, from 0 to 7"):
        BradleyTerry().fit(numbers, y).predict([[0, 8]])
    with pytest.raises(ValueError, match="an even number of columns"):
        PairwiseClassifier().fit(ROWS.features[:, 1:], y)
    with pytest.raises(ValueError, match="`C` must be positive, got 0"):
        PairwiseLogisticRegression(C=0).fit(ROWS.features, y)
    with pytest.raises(ValueError, match="`y` must hold two classes"):
        PairwiseLogisticRegression().fit(ROWS.features, np.ones_like(y))
