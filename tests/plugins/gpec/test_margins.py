"""Margins against the predictions of scikit-learn's classifiers, and steepness against known gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression

from kpp_gpec import class_margin, level_margin, steep_margin

X = np.random.default_rng(0).normal(size=(300, 2)) * [1.0, 3.0]


def classifier(num_classes):
    labels = np.digitize(X[:, 0] + 0.2 * X[:, 1], np.linspace(-0.7, 0.7, num_classes - 1))
    return LinearDiscriminantAnalysis().fit(X, labels)


@pytest.mark.parametrize("num_classes", [2, 4])
def test_sign_is_the_predicted_class(num_classes):
    model = classifier(num_classes)
    for index in range(num_classes):
        margin = class_margin(model.predict_proba, index)(X)
        np.testing.assert_array_equal(margin > 0.0, model.predict(X) == index)
        np.testing.assert_array_equal(class_margin(model.predict, index)(X), 2.0 * (model.predict(X) == index) - 1.0)


@pytest.mark.parametrize("column", [np.s_[:, 1], np.s_[:, 1:]], ids=["(n,)", "(n, 1)"])
def test_one_output_is_the_probability_of_class_one(column):
    model = classifier(2)
    for index in (0, 1):
        margin = class_margin(lambda x: model.predict_proba(x)[column], index)(X)
        # p1 - 1/2 is half of p1 - p0
        np.testing.assert_allclose(margin, 0.5 * class_margin(model.predict_proba, index)(X), rtol=1e-12, atol=1e-15)


def test_takes_labels_that_are_words():
    model = LogisticRegression().fit(X, np.where(X[:, 0] > 0.0, "yes", "no"))
    np.testing.assert_array_equal(class_margin(model.predict, "yes")(X) > 0.0, model.predict(X) == "yes")


def test_a_model_in_jax_keeps_its_gradient():
    weights = jnp.array([[1.0, -1.0, 0.5], [0.0, 2.0, -0.3]])
    margin = class_margin(lambda x: x @ weights, 0)
    point = jnp.array([3.0, 0.1])  # class 2 is the second best here
    gradient = jax.jit(jax.grad(lambda p: margin(p[None])[0]))(point)
    np.testing.assert_allclose(gradient, weights[:, 0] - weights[:, 2], rtol=1e-12)


def test_level_is_subtracted():
    np.testing.assert_allclose(level_margin(lambda x: x[:, 0], 0.7)(X), X[:, 0] - 0.7, rtol=1e-15)
    np.testing.assert_allclose(level_margin(lambda x: x, -2.0, index=1)(X), X[:, 1] + 2.0, rtol=1e-15)


# The differences of a quadratic are exact, but for rounding of 1e-16 over the step.
@pytest.mark.parametrize(("step", "rtol"), [(None, 1e-12), (0.1, 1e-11)])
def test_steepness_is_the_standardized_gradient_above_its_quantile(step, rtol):
    margin = steep_margin(lambda x: 0.5 * x[:, 0] ** 2 + x[:, 0] * x[:, 1], X, quantile=0.8, step=step)
    gradients = np.stack([X[:, 0] + X[:, 1], X[:, 0]], axis=1) * X.std(axis=0)
    norms = np.linalg.norm(gradients, axis=1)
    np.testing.assert_allclose(margin(X), norms - np.quantile(norms, 0.8), rtol=rtol, atol=1e-10)
    assert (np.asarray(margin(X)) > 0.0).mean() == pytest.approx(0.2, abs=1 / len(X))


def test_a_constant_feature_counts_as_having_scale_one():
    x = np.column_stack([X[:, 0], np.full(len(X), 0.1)])
    margin = steep_margin(lambda z: z[:, 0] * z[:, 1], x, quantile=0.5)
    norms = np.hypot(0.1 * X[:, 0].std(), X[:, 0])
    np.testing.assert_allclose(margin(x), norms - np.quantile(norms, 0.5), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: class_margin(lambda x: x, 2)(X),
            "`index` must be one of the 2 outputs or classes, from 0 to 1, got 2",
        ),
        (lambda: class_margin(lambda x: x[:, 0], -1)(X), "`index` must be one of the 2"),
        (lambda: level_margin(lambda x: x, 0.0, index=5)(X), "`index` must be one of the 2"),
        (
            lambda: class_margin(lambda x: x[None], 0)(X),
            r"`function` must return one prediction per point.*\(1, 300, 2\)",
        ),
        (lambda: steep_margin(lambda x: x[:, 0], X, quantile=1.0), "`quantile` must be between 0 and 1, got 1.0"),
        (lambda: steep_margin(lambda x: x[:, 0], X, step=0.0), "`step` must be positive, got 0.0"),
    ],
)
def test_says_what_is_wrong(make, message):
    with pytest.raises(ValueError, match=message):
        make()
