"""What is fitted to which rows, and what is taken from what, against the same done by hand with scikit-learn."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures

from kpp.causal import CausalDAG, ColliderPartition, Independence
from kpp_models.estimators import ProjectedClassifier, ProjectedQuantileRegressor, ProjectedRegressor

SIMPLE, GENERAL = Independence("y", (1,)), Independence("y", (1,), (2,))
GRAPH = CausalDAG([("dose", "response"), ("response", "marker"), ("weight", "marker")])
QUIET = {"check": False, "gain_folds": None}
EXACT = {"rtol": 1e-12, "atol": 1e-12}  # the same operations on numbers of order 1


def draw(seed: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Columns marker, weight, dose, and the response, of the graph."""
    dose, weight, noise, response = np.random.default_rng(seed).normal(size=(4, n))
    response = response + dose
    return np.stack([response + weight + 0.5 * noise, weight, dose], axis=1), response


X, Y = draw(0, 60)
FURTHER, _ = draw(1, 200)
NEW, Y_NEW = draw(2, 5000)
CLASSES = np.array(["high", "low", "middle"])[np.digitize(Y, [-0.5, 0.5]) - 1]

PLAIN = {
    "regressor": (ProjectedRegressor(random_state=3), RandomForestRegressor(random_state=3), "predict", Y),
    "classifier": (
        ProjectedClassifier(random_state=3),
        RandomForestClassifier(random_state=3),
        "predict_proba",
        CLASSES,
    ),
    "latent": (
        ProjectedClassifier(scale="latent", random_state=3),
        RandomForestClassifier(random_state=3),
        "predict_proba",
        CLASSES,
    ),
}


@pytest.mark.slow_variants("latent", "regressor", "classifier")
@pytest.mark.parametrize("name", PLAIN)
def test_without_a_collider_all_is_the_plain_estimator(name):
    projected, plain, method, target = PLAIN[name]
    projected, plain = projected.fit(X, target, FURTHER), plain.fit(X, target)
    np.testing.assert_array_equal(getattr(projected, method)(FURTHER), getattr(plain, method)(FURTHER))
    np.testing.assert_array_equal(projected.predict(FURTHER), plain.predict(FURTHER))
    assert projected.statements_ == () and projected.projection_ is None and projected.independence_tests_ == ()


def test_a_graph_without_spouses_is_no_collider():
    graph = CausalDAG([("dose", "y"), ("y", "marker")])
    frame = pd.DataFrame(X, columns=["marker", "weight", "dose"])
    model = ProjectedRegressor(KNeighborsRegressor(), collider=graph, outcome="y").fit(frame, Y)
    np.testing.assert_array_equal(model.predict(frame), KNeighborsRegressor().fit(X, Y).predict(X))
    assert model.statements_ == () and model.gain_ is None


def test_algorithm_1_by_hand():
    model = ProjectedRegressor(KNeighborsRegressor(), collider=SIMPLE, **QUIET).fit(X, Y, FURTHER)
    plain, rows = KNeighborsRegressor().fit(X, Y), np.concatenate([X, FURTHER])
    expectation = LinearRegression().fit(rows[:, [1]], plain.predict(rows))
    expected = plain.predict(NEW) - expectation.predict(NEW[:, [1]]) + Y.mean()
    np.testing.assert_allclose(model.predict(NEW), expected, **EXACT)


def test_algorithm_4_by_hand():
    model = ProjectedRegressor(KNeighborsRegressor(), collider=GENERAL, **QUIET).fit(X, Y, FURTHER)
    start, rows = LinearRegression().fit(X[:, [2]], Y), np.concatenate([X, FURTHER])
    plain = KNeighborsRegressor().fit(X, Y - start.predict(X[:, [2]]))
    expectation = LinearRegression().fit(rows[:, [1, 2]], plain.predict(rows))
    expected = start.predict(NEW[:, [2]]) + plain.predict(NEW) - expectation.predict(NEW[:, [1, 2]])
    np.testing.assert_allclose(model.predict(NEW), expected, **EXACT)


@pytest.mark.parametrize("estimator", [ProjectedRegressor, ProjectedQuantileRegressor], ids=lambda each: each.__name__)
def test_rows_without_labels_serve_the_conditional_regression_only(estimator):
    options = {"collider": SIMPLE, "check": False}
    alone = estimator(KNeighborsRegressor(), **options).fit(X, Y)
    together = estimator(KNeighborsRegressor(), **options).fit(X, Y, FURTHER)
    np.testing.assert_array_equal(alone.estimator_.predict(NEW), together.estimator_.predict(NEW))
    np.testing.assert_array_equal(alone.baselines_[0](NEW), together.baselines_[0](NEW))
    assert not np.allclose(alone.projection_(NEW), together.projection_(NEW))


def test_names_of_columns_and_positions_mean_the_same():
    names = ["marker", "weight", "dose"]
    frame, further = pd.DataFrame(X, columns=names), pd.DataFrame(FURTHER, columns=names)
    expected = ProjectedRegressor(LinearRegression(), collider=GENERAL, **QUIET).fit(X, Y, FURTHER).predict(NEW)
    colliders = [
        GRAPH,
        GRAPH.collider_partition("response"),
        Independence("response", ("weight",), ("dose",)),
        [Independence("response", ("weight",), ("dose",))],
        ColliderPartition("response", (0,), (1,), (2,)),
    ]
    for collider in colliders:
        model = ProjectedRegressor(LinearRegression(), collider=collider, outcome="response", **QUIET)
        model.fit(frame, Y, further)
        np.testing.assert_allclose(model.predict(pd.DataFrame(NEW, columns=names)), expected, **EXACT)
    assert list(model.feature_names_in_) == names


def test_the_order_of_columns_plays_no_part():
    names, shuffled = ["marker", "weight", "dose"], ["dose", "marker", "weight"]
    model = ProjectedRegressor(LinearRegression(), collider=GRAPH, outcome="response", **QUIET)
    found = [
        clone(model).fit(pd.DataFrame(X, columns=names)[order], Y).predict(pd.DataFrame(NEW, columns=names)[order])
        for order in (names, shuffled)
    ]
    np.testing.assert_allclose(found[1], found[0], **EXACT)


def test_whatever_predicts_can_be_projected():
    options = {"prefit": True, "collider": SIMPLE, **QUIET}
    fitted = KNeighborsRegressor().fit(FURTHER, FURTHER[:, 0])
    for prefit in (fitted, fitted.predict, ProjectedRegressor(fitted, prefit=True)):
        if isinstance(prefit, ProjectedRegressor):
            prefit = prefit.fit(X, Y)
        model = ProjectedRegressor(prefit, **options).fit(X, Y)
        assert model.estimator_ is prefit
        np.testing.assert_array_equal(model.predict(NEW), ProjectedRegressor(fitted, **options).fit(X, Y).predict(NEW))


def test_the_projection_lowers_the_error_and_says_by_how_much():
    # A line with a bend that does not belong: the marker's regression must not depend on the weight alone.
    def wrong(rows):
        return rows[:, 0] / 2 + np.where(rows[:, 1] > 0, rows[:, 1], 0.0)

    rows, y = draw(5, 150)
    model = ProjectedRegressor(wrong, prefit=True, collider=SIMPLE, check=False, random_state=0).fit(rows, y, FURTHER)
    errors = [np.mean((Y_NEW - found) ** 2) for found in (wrong(NEW), model.predict(NEW))]
    assert errors[1] < errors[0]
    # The standard error of what 5000 rows say is far below that of 350; four times the latter leaves room.
    assert abs(model.gain_.gain - (errors[0] - errors[1])) < 4 * model.gain_.standard_error


def test_kernel_ridge_and_forests_find_a_curve():
    rows, _ = draw(6, 400)
    for conditional, tolerance in (("kernel-ridge", 0.05), ("forest", 0.25)):
        model = ProjectedRegressor(
            lambda x: x[:, 0] * 0 + np.sin(3 * x[:, 1]),
            prefit=True,
            collider=SIMPLE,
            conditional=conditional,
            random_state=0,
            **QUIET,
        ).fit(rows, rows[:, 2])
        inner = np.abs(NEW[:, 1]) < 2
        # Nothing but the mean of the target is left of a function of the condition, where there are rows.
        assert np.sqrt(np.mean((model.predict(NEW) - rows[:, 2].mean())[inner] ** 2)) < tolerance


def test_several_conditions_by_one_additive_regression_of_kernels():
    rows, y = draw(6, 60)
    statements = (Independence("y", (1,)), Independence("y", (2,)))

    def plain(x):
        return np.sin(2 * x[:, 1]) + np.cos(2 * x[:, 2])

    found = [
        ProjectedRegressor(
            plain,
            prefit=True,
            collider=statements,
            conditional="kernel-ridge",
            several=several,
            random_state=0,
            tol=1e-2,
            **QUIET,
        )
        .fit(rows, y)
        .predict(rows)
        for several in ("in-turn", "jointly")
    ]
    for values in found:  # of a function that is a sum, all but the mean goes, up to what the ridge leaves
        assert np.sqrt(np.mean((values - y.mean()) ** 2)) < 0.05


def test_a_pipeline_that_ends_in_a_linear_model_is_additive():
    curve = make_pipeline(PolynomialFeatures(2), LinearRegression())
    statements = (Independence("y", (1,)), Independence("y", (2,)))

    def plain(x):
        return x[:, 1] ** 2 - 2 * x[:, 2] ** 2 + x[:, 1] * x[:, 2]

    model = ProjectedRegressor(
        plain, prefit=True, collider=statements, conditional=curve, several="jointly", **QUIET
    ).fit(X, Y)
    design = np.stack([np.ones(60), X[:, 1], X[:, 1] ** 2, X[:, 2], X[:, 2] ** 2], axis=1)
    values = plain(X) - Y.mean()
    expected = plain(X) - design @ np.linalg.lstsq(design, values, rcond=None)[0]
    np.testing.assert_allclose(model.predict(X), expected, rtol=1e-9, atol=1e-9)


def test_a_regression_of_one_target_serves_for_several():
    from sklearn.linear_model import HuberRegressor  # which takes one target only

    model = ProjectedQuantileRegressor(
        KNeighborsRegressor(10), collider=SIMPLE, num_thresholds=4, conditional=HuberRegressor(), check=False
    ).fit(X, Y)
    assert model.predict(NEW[:5]).shape == (5,)
    assert model.projection_(NEW[:5]).shape == (5, 4)


def test_fits_can_be_copied_kept_and_searched():
    model = ProjectedRegressor(KNeighborsRegressor(), collider=GENERAL, **QUIET).fit(X, Y)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(NEW), model.predict(NEW))
    assert clone(model).get_params()["collider"] == GENERAL
    search = GridSearchCV(clone(model), {"estimator__n_neighbors": [3, 5]}, cv=3).fit(X, Y)
    assert search.best_params_["estimator__n_neighbors"] in (3, 5)
