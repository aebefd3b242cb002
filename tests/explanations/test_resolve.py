"""Predictors and points as an explainer gets them."""

from __future__ import annotations

import warnings

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
import xarray as xr
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.svm import SVC, SVR

import kpp
from kpp.data.tables import Schema
from kpp.explanations import EstimatorFunction, output_names, predictors, resolve
from kpp.explanations.toolkit import describe_uncertainty
from kpp.functionals import GPPosterior
from kpp.functions import RKHSFunction
from kpp.kernels import RBF
from kpp_models import GPClassification, GPRegression

SUPPORT = np.random.default_rng(0).normal(size=(6, 3))
FUNCTION = RKHSFunction(RBF(lengthscale=1.0), SUPPORT, np.ones(6))


class ToyFit:
    """What of a Fit counts here; its x is a table with a category."""

    schema = Schema(("age", "bmi", "region"), {"region": ("north", "south", "west")})

    def function(self) -> RKHSFunction:
        return FUNCTION

    def predict(self, x):
        probability = xr.DataArray(np.full((2, 3, len(x)), 0.25), dims=("chain", "draw", "instance"))
        return xr.Dataset({"probability": probability})


class ToyRegression(ToyFit):
    def predict(self, x):
        return xr.Dataset({"mean": ("instance", np.zeros(len(x)))})


FRAME = pd.DataFrame({"region": ["south", "west"], "bmi": [0.5, 1.5], "age": [40, 50]})
CODED = np.array([[40.0, 0.5, 1.0], [50.0, 1.5, 2.0]])


@pytest.mark.parametrize("requires", ["rkhs_function", "callable"])
def test_a_fit_gives_its_function_and_reads_tables_by_its_schema(requires):
    function, x, schema = resolve(ToyFit(), FRAME, requires)
    assert function is FUNCTION
    np.testing.assert_array_equal(x, CODED)
    assert schema is ToyFit.schema
    np.testing.assert_array_equal(resolve(ToyFit(), CODED, requires).x, CODED)


def test_a_classifier_gives_its_posterior_probability():
    function, x, _ = resolve(ToyFit(), FRAME, "probabilities")
    np.testing.assert_array_equal(function(x), [0.25, 0.25])
    with pytest.raises(TypeError, match=r"predicts \['mean'\]"):
        resolve(ToyRegression(), FRAME, "probabilities").function(CODED)


def test_a_data_frame_names_the_features_of_a_bare_function():
    frame = pd.DataFrame(CODED, columns=["a", "b", "c"])
    function, x, schema = resolve(FUNCTION, frame, "rkhs_function")
    assert function is FUNCTION
    assert schema.feature_names == ("a", "b", "c")
    np.testing.assert_array_equal(x, CODED)
    assert resolve(FUNCTION, CODED, "rkhs_function").schema.feature_names == ("x0", "x1", "x2")


@pytest.mark.parametrize("requires", ["rkhs_function", "callable"])
def test_a_posterior_gives_its_mean(requires):
    assert resolve(GPPosterior(FUNCTION, np.zeros((6, 1))), CODED, requires).function is FUNCTION


def plain(x):
    return jnp.sum(x, axis=1)


def test_a_function_of_unknown_form_is_handed_on():
    for requires in ("callable", "probabilities"):
        assert resolve(plain, CODED, requires).function is plain


LABELS = np.array(["no", "yes", "no", "maybe", "yes", "no"])


def test_an_estimator_gives_probabilities_of_its_classes_or_predictions():
    classifier = LogisticRegression().fit(SUPPORT, LABELS)
    function, x, schema = resolve(classifier, CODED, "callable")
    np.testing.assert_array_equal(function(x), classifier.predict_proba(CODED))
    assert output_names(function) == ("maybe", "no", "yes")
    assert schema.feature_names == ("x0", "x1", "x2")
    regression = LinearRegression().fit(SUPPORT, SUPPORT[:, 0])
    function = resolve(regression, CODED, "callable").function
    np.testing.assert_array_equal(function(CODED), regression.predict(CODED))
    assert output_names(function) is None
    labels = resolve(SVC().fit(SUPPORT, LABELS), SUPPORT, "callable").function
    assert output_names(labels) is None
    np.testing.assert_array_equal(labels(SUPPORT), SVC().fit(SUPPORT, LABELS).predict(SUPPORT))
    assert output_names(plain) is None


def test_whatever_has_the_methods_of_an_estimator_is_one():
    class Foreign:
        def get_params(self):
            return {}

        def predict(self, x):
            return x[:, 0]

    np.testing.assert_array_equal(resolve(Foreign(), CODED, "callable").function(CODED), CODED[:, 0])


def test_an_estimator_fitted_on_a_data_frame_reads_and_gets_its_columns():
    frame = pd.DataFrame(SUPPORT, columns=["a", "b", "c"])
    regression = LinearRegression().fit(frame, frame["a"])
    function, x, schema = resolve(regression, frame[["c", "b", "a"]], "callable")
    assert schema.feature_names == ("a", "b", "c")
    np.testing.assert_array_equal(x, SUPPORT)
    with warnings.catch_warnings(action="error"):  # of lost names
        np.testing.assert_allclose(function(x), SUPPORT[:, 0], atol=1e-12)


def test_an_estimator_of_a_table_with_text_reads_levels_from_the_table():
    frame = pd.DataFrame({"age": np.arange(6.0), "sex": ["f", "m", "m", "f", "m", "f"]})
    for kind in ("str", "category"):
        table = frame.astype({"sex": kind})
        encoder = make_column_transformer((OneHotEncoder(), ["sex"]), remainder="passthrough")
        model = make_pipeline(encoder, LinearRegression()).fit(table, table["age"] + 2 * (table["sex"] == "m"))
        function, x, schema = resolve(EstimatorFunction.create(model, table), table[:3], "callable")
        assert schema.levels == {"sex": ("f", "m")}
        np.testing.assert_array_equal(x, [[0, 0], [1, 1], [2, 1]])
        np.testing.assert_allclose(function(x), [0, 3, 4], atol=1e-12)
    with pytest.raises(ValueError, match=r"`background` lacks the columns \['sex'\]"):
        EstimatorFunction.create(model, frame[["age"]])


def test_pairs_of_points_keep_their_axis():
    pairs = np.stack([CODED, CODED + 1.0], axis=1)
    function, x, schema = resolve(FUNCTION, pairs, "pairs")
    assert x.shape == (2, 2, 3)
    assert schema.num_features == 3
    for wrong in (CODED, np.zeros((2, 3, 3))):
        with pytest.raises(ValueError, match=r"pairs of points, shape \(p, 2, d\), got shape"):
            resolve(FUNCTION, wrong, "pairs")


MISMATCHES = [
    (plain, "rkhs_function", "needs an RKHS function: .*; `predictor` is a .*function, a function of unknown form"),
    (plain, "pairs", "needs an RKHS function on pairs"),
    (FUNCTION, "probabilities", "needs probabilities: .*; `predictor` is a kpp.functions.RKHSFunction"),
    (SVR(), "rkhs_function", "kpp.as_rkhs_function"),
    (SVR(), "callable", "`predictor` sklearn.svm._classes.SVR is not fitted yet; call its `fit` first"),
    (SVR(), "probabilities", "hand over its `predict`"),
    (SUPPORT, "rkhs_function", "the first argument is the predictor"),
    ("svr", "callable", "`predictor` is a builtins.str"),
    (None, "rkhs_function", "`predictor` is a builtins.NoneType"),
]


@pytest.mark.parametrize(("predictor", "requires", "message"), MISMATCHES)
def test_the_wrong_predictor_is_a_type_error_that_names_both_sides(predictor, requires, message):
    with pytest.raises(TypeError, match=message):
        resolve(predictor, CODED, requires)


BAD_POINTS = [
    (FUNCTION, np.zeros((2, 4)), r"`x` must have 3 columns \(features\), as the predictor, got shape \(2, 4\)"),
    (FUNCTION, np.zeros(3), r"one-dimensional shape \(3,\)"),
    (FUNCTION, np.zeros((0, 3)), "at least one row"),
    (FUNCTION, np.array([[0.0, np.nan, np.inf]]), "`x` must be finite, got 1 NaN and 1 infinite"),
    (FUNCTION, pd.DataFrame({"a": ["u"], "b": [1.0], "c": [1.0]}), r"`x` holds text in \['a'\]"),
    (FUNCTION, pd.DataFrame({"a": [np.nan], "b": [1.0], "c": [1.0]}), "`x` has missing values .'a': 1"),
    (ToyFit(), FRAME.drop(columns="bmi"), r"`x` lacks the columns \['bmi'\]"),
    (ToyFit(), FRAME.assign(region="east"), r"unknown levels \['east'\] in column 'region'"),
    (ToyFit(), CODED[:, :2], "`x` must have 3 columns"),
]


@pytest.mark.parametrize(("predictor", "x", "message"), BAD_POINTS)
def test_bad_points_are_refused(predictor, x, message):
    with pytest.raises(ValueError, match=message):
        resolve(predictor, x, "rkhs_function")


LENGTHSCALE, WHITENED = "kernel.lengthscale", "inducing_whitened"
PRIOR = RBF(lengthscale=dist.LogNormal(0.0, 1.0))
INDUCING = GPClassification(PRIOR, latent="inducing", num_inducing=4)


def fit_of_draws(model, **draws):
    """A fit with the draws of an inference that need not run: `describe_uncertainty` reads nothing else."""
    model, data, schema = model.prepare(SUPPORT, np.arange(6) % 2.0)
    return kpp.Fit(model, None, data, schema, {name: jnp.asarray(value) for name, value in draws.items()}, kpp.MAP())


@pytest.mark.parametrize(
    ("predictor", "with_law", "without_law"),
    [
        (fit_of_draws(GPRegression(PRIOR, 0.1), **{LENGTHSCALE: [[1.0, 2.0]]}), "full", "hyperparameters only"),
        (fit_of_draws(GPRegression(PRIOR, 0.1), **{LENGTHSCALE: [[1.0]]}), "function only", "posterior mean only"),
        (fit_of_draws(GPRegression(RBF(1.0), 0.1)), "full", "posterior mean only"),
        (
            fit_of_draws(INDUCING, **{LENGTHSCALE: [[1.0, 1.0]], WHITENED: [[[0.0] * 4, [1.0] * 4]]}),
            "function only",
            "part of the function only",
        ),
        (GPPosterior(FUNCTION, np.zeros((6, 0))), "function only", "posterior mean only"),
        (FUNCTION, None, None),
    ],
    ids=["draws", "mode", "given", "natural gradient", "foreign process", "other function"],
)
def test_the_label_says_what_intervals_hold(predictor, with_law, without_law):
    num_draws = predictor.num_draws if isinstance(predictor, kpp.Fit) else 1
    found = [describe_uncertainty(predictor, has_law=law, num_draws=num_draws) for law in (True, False)]
    assert [label.get("uncertainty") for label in found] == [with_law, without_law]


def test_narrow_intervals_are_warned_of_once(caplog):
    predictors._warn_of_narrow_intervals.cache_clear()
    for _ in range(2):
        describe_uncertainty(GPPosterior(FUNCTION, np.zeros((6, 0))), has_law=True)
    assert len(caplog.messages) == 1 and "kpp.Laplace() or kpp.NUTS()" in caplog.text
