"""Probabilities of classes."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from kpp.causal import Independence
from kpp_models.estimators import ProjectedClassifier

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 3))
FURTHER = RNG.normal(size=(120, 3))
SCORES = X[:, 2] + RNG.logistic(size=80)
X[:, 0] += 2 * SCORES + X[:, 1]
TWO = np.where(SCORES > 0, "yes", "no")
THREE = np.digitize(SCORES, [-0.5, 0.5])
SIMPLE, GENERAL = Independence("y", (1,)), Independence("y", (1,), (2,))


@pytest.mark.parametrize("scale", ["probability", "latent"])
@pytest.mark.parametrize("independence", [SIMPLE, GENERAL], ids=str)
@pytest.mark.parametrize("y", [TWO, THREE], ids=["two", "three"])
def test_probabilities_are_probabilities(y, independence, scale):
    model = ProjectedClassifier(GaussianNB(), collider=independence, scale=scale, check=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of what is cut off
        model.fit(X, y, FURTHER)
    found = model.predict_proba(FURTHER)
    assert found.shape == (120, len(np.unique(y))) and (found >= 0).all()
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_array_equal(model.predict(FURTHER), np.unique(y)[found.argmax(axis=1)])


def test_the_probability_scale_by_hand():
    model = ProjectedClassifier(GaussianNB(), collider=GENERAL, check=False, conditional="linear")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model.fit(X, TWO, FURTHER)
    plain, rows = GaussianNB().fit(X, TWO), np.concatenate([X, FURTHER])
    start = make_pipeline(StandardScaler(), LogisticRegression()).fit(X[:, [2]], TWO)
    excess = plain.predict_proba(rows) - start.predict_proba(rows[:, [2]])
    projected = plain.predict_proba(rows) - LinearRegression().fit(rows[:, 1:], excess).predict(rows[:, 1:])
    np.testing.assert_allclose(model.projected_values(rows), projected, rtol=1e-10, atol=1e-10)
    clipped = np.maximum(projected, 0)
    expected = clipped / clipped.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.predict_proba(rows), expected, rtol=1e-10, atol=1e-10)
    assert model.clipped_share_ == np.mean((projected < 0).any(axis=1)) > 0


def test_the_latent_scale_by_hand():
    model = ProjectedClassifier(GaussianNB(), collider=SIMPLE, scale="latent", check=False).fit(X, TWO, FURTHER)
    plain, rows = GaussianNB().fit(X, TWO), np.concatenate([X, FURTHER])
    logs = np.log(np.maximum(plain.predict_proba(rows), 0.5 / 80))
    odds = logs[:, 1] - logs[:, 0]
    projected = odds - LinearRegression().fit(rows[:, [1]], odds).predict(rows[:, [1]]) + odds.mean()
    expected = 1 / (1 + np.exp(-projected))
    np.testing.assert_allclose(model.predict_proba(rows)[:, 1], expected, rtol=1e-10, atol=1e-10)
    assert model.clipped_share_ == 0


def test_much_clipping_gives_a_warning():
    with pytest.warns(UserWarning, match="% of the rows have projected probabilities below 0"):
        ProjectedClassifier(GaussianNB(), collider=SIMPLE, check=False).fit(X, TWO)


def test_one_probability_stands_for_two_classes():
    def second(rows):
        return 1 / (1 + np.exp(-rows[:, 0]))

    def both(rows):
        return np.stack([1 - second(rows), second(rows)], axis=1)

    found = [ProjectedClassifier(each, prefit=True).fit(X, TWO).predict_proba(X) for each in (second, both)]
    np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.parametrize("baseline", ["linear", "kernel-ridge", GaussianNB()], ids=str)
def test_baselines_may_be_regressions_or_classifiers(baseline):
    model = ProjectedClassifier(GaussianNB(), collider=GENERAL, baseline=baseline, scale="probability", check=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model.fit(X, THREE)
    np.testing.assert_allclose(model.baselines_[0](X).sum(axis=1), 1.0, rtol=1e-9)


REFUSED = {
    "scale": ({"scale": "logit"}, TWO, ValueError, "`scale` must be one of"),
    "one class": ({}, np.repeat("yes", 80), ValueError, "`y` must hold at least two classes, got only the class"),
    "numbers": ({}, SCORES, ValueError, "continuous"),
    "no probabilities": ({"estimator": LinearSVC()}, TWO, TypeError, "`estimator` must have `predict_proba`"),
    "other classes": (
        {"estimator": GaussianNB().fit(X, THREE), "prefit": True},
        TWO,
        ValueError,
        "`y` must hold the classes of the estimator",
    ),
    "shape": (
        {"estimator": lambda rows: np.ones((len(rows), 3)), "prefit": True},
        TWO,
        ValueError,
        r"`estimator` must predict the shape \(80, 2\), got \(80, 3\)",
    ),
    "baseline": ({"baseline": "tree"}, TWO, ValueError, "`baseline` must be one of .'logistic', 'linear'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_arguments_are_refused(name):
    options, y, error, message = REFUSED[name]
    with pytest.raises(error, match=message):
        ProjectedClassifier(**{"estimator": GaussianNB(), "collider": SIMPLE, "check": False, **options}).fit(X, y)
