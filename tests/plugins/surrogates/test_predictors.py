"""What can be explained: estimators of scikit-learn and XGBoost, tables with text, functions with draws."""

from __future__ import annotations

import jax
import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.svm import SVC

import kpp
from kpp.explanations import EstimatorFunction
from kpp.functions import RKHSFunction
from kpp.kernels import RBF, Categorical, ProductKernel
from kpp_models import KernelRidge
from kpp_surrogates import LIME, BayesLIME, BayesSHAP, KernelSHAP, ShapleySampling

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(40, 4))
LABELS = np.array(["low", "high", "odd"])[(ROWS[:, 0] > 0) + (ROWS[:, 1] > 1.0).astype(int)]
FRAME = pd.DataFrame({"age": ROWS[:, 0], "region": RNG.choice(["north", "south", "west"], 40), "income": ROWS[:, 1]})
WORTH = {"north": 0.0, "south": 1.0, "west": 4.0}
KEY = jax.random.key(0)
EXPLAINERS = {
    "kernel-shap": {},
    "shapley-sampling": {},
    "lime": {"num_perturbations": 50},
    "bayes-lime": {"num_perturbations": 50},
    "bayes-shap": {"num_perturbations": 50},
}
CLASSES = (KernelSHAP, ShapleySampling, LIME, BayesLIME, BayesSHAP)
each_explainer = pytest.mark.parametrize("name", EXPLAINERS)


def explain(predictor, x, name, background=ROWS[:10], **options):
    options = {"explainer": name, "background": background, "progress": False, **EXPLAINERS[name], **options}
    return kpp.explain(predictor, x, rng_key=KEY, **options)


@pytest.mark.slow_variants("bayes-lime", "lime", "bayes-shap")
@each_explainer
def test_the_classes_of_a_classifier_are_the_outputs(name):
    forest = RandomForestClassifier(5, random_state=0).fit(ROWS, LABELS)
    explanation = explain(forest, ROWS[:2], name)
    assert explanation.output_names == ("high", "low", "odd")
    np.testing.assert_allclose(explanation.predictions, forest.predict_proba(ROWS[:2]), rtol=1e-12)
    np.testing.assert_allclose(explanation.values.sum("output"), 0.0, atol=1e-10)  # as probabilities sum to 1


FORMS = {
    "text": FRAME,
    "categories": FRAME.assign(region=FRAME["region"].astype("category")),
    "intervals": FRAME.assign(region=pd.cut(FRAME["age"], 3)),
    "numbers as text": FRAME.assign(region=FRAME["region"].map({"north": "1", "south": "2", "west": "3"})),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_level_that_the_background_lacks_is_explained_if_the_estimator_knows_it(form):
    """The values of the one column of categories are the effects of its levels, as the model is additive."""
    frame = FORMS[form]
    encoder = make_column_transformer((OneHotEncoder(), ["region"]), remainder="passthrough")
    model = make_pipeline(encoder, LinearRegression()).fit(frame, frame["region"].astype("category").cat.codes)
    known = frame["region"] == frame["region"].iloc[0]
    background, x = frame[known][:3], frame[~known][:2]
    if form == "categories":
        background = background.assign(region=background["region"].cat.remove_unused_categories())
    explanation = explain(model, x, "kernel-shap", background=background)
    np.testing.assert_allclose(explanation.predictions, model.predict(x), rtol=1e-9)
    codes = frame["region"].astype("category").cat.codes
    difference = codes.loc[x.index] - codes.iloc[0]
    np.testing.assert_allclose(explanation.values.sel(feature="region"), difference, atol=1e-8)


@each_explainer
def test_xgboost_is_explained_as_its_probabilities_or_predictions(name):
    xgboost = pytest.importorskip("xgboost")
    classifier = xgboost.XGBClassifier(n_estimators=3, max_depth=2).fit(ROWS, (ROWS[:, 0] > 0).astype(int))
    explanation = explain(classifier, ROWS[:2], name)
    assert explanation.output_names == ("0", "1")
    np.testing.assert_allclose(explanation.predictions, classifier.predict_proba(ROWS[:2]), rtol=1e-6)
    regression = xgboost.XGBRegressor(n_estimators=3, max_depth=2).fit(ROWS, ROWS[:, 0])
    explanation = explain(regression, ROWS[:2], name)
    assert explanation.output_names is None
    np.testing.assert_allclose(explanation.predictions, regression.predict(ROWS[:2]), rtol=1e-6)
    if name in ("kernel-shap", "shapley-sampling"):  # although trees predict in single precision
        assert float(explanation.additivity_error().max()) < 1e-10


@pytest.fixture(scope="module")
def pipeline():
    """A linear model of a table: 2 age + income + what the region is worth."""
    encoder = make_column_transformer((OneHotEncoder(), ["region"]), remainder="passthrough")
    target = 2 * FRAME["age"] + FRAME["income"] + FRAME["region"].map(WORTH).astype(float)
    return make_pipeline(encoder, LinearRegression()).fit(FRAME, target)


@pytest.mark.slow_variants("bayes-lime", "kernel-shap", "bayes-shap", "lime")
@each_explainer
def test_a_table_with_text_is_explained_through_its_background(pipeline, name):
    explanation = explain(pipeline, FRAME[:2], name, background=FRAME)
    assert explanation.feature_names == ("age", "region", "income")
    assert explanation.schema.levels == {"region": ("north", "south", "west")}
    np.testing.assert_allclose(explanation.predictions, pipeline.predict(FRAME[:2]), rtol=1e-9)
    if name in ("kernel-shap", "shapley-sampling"):
        worth = FRAME["region"].map(WORTH)
        np.testing.assert_allclose(explanation.values.sel(feature="region"), (worth - worth.mean())[:2], atol=1e-8)
        np.testing.assert_allclose(
            explanation.values.sel(feature="age"), 2 * (ROWS[:2, 0] - ROWS[:, 0].mean()), atol=1e-8
        )


def test_blocks_of_rows_have_the_levels_of_the_background(pipeline):
    dask = pytest.importorskip("dask.dataframe")
    rows = FRAME.sort_values("region", ascending=False)
    with pytest.raises(ValueError, match=r"`x` has unknown levels \['south', 'west'\] in column 'region'; known are"):
        explain(pipeline, dask.from_pandas(rows, sort=False, npartitions=2), "kernel-shap", background=rows[-9:])


def test_a_ready_made_explainer_takes_the_function_of_a_table(pipeline):
    function = EstimatorFunction.create(pipeline, FRAME)
    ready = LIME(function.schema.read(FRAME), num_perturbations=50, progress=False)
    explanation = kpp.explain(function, FRAME[:2], explainer=ready, rng_key=KEY)
    by_name = explain(pipeline, FRAME[:2], "lime", background=FRAME)
    np.testing.assert_array_equal(explanation.values, by_name.values)
    with pytest.raises(ValueError, match=r"`x` must hold numbers in column 'region'"):
        kpp.explain(pipeline, FRAME[:2], explainer=ready, rng_key=KEY)


@pytest.fixture(scope="module")
def fit():
    kernel = ProductKernel((RBF(1.0), Categorical(), RBF(2.0)))
    return KernelRidge(kernel, regularization=0.1).fit(KEY, FRAME, FRAME["income"].to_numpy())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bayes-lime", "kernel-shap"])
def test_a_fit_reads_tables_and_knows_its_categories(fit, name):
    explanation = explain(fit, FRAME[["income", "age", "region"]][:2], name, background=FRAME[:10])
    assert explanation.feature_names == ("age", "region", "income")
    assert explanation.schema.levels["region"] == ("north", "south", "west")
    assert explanation.values.dims == ("chain", "draw", "instance", "feature")
    np.testing.assert_allclose(explanation.predictions, fit.predict(FRAME[:2])["mean"], rtol=1e-8)


@pytest.mark.slow_variants("bayes-lime", "bayes-shap", "lime", "kernel-shap", "shapley-sampling")
@each_explainer
def test_draws_of_a_function_are_explained_one_by_one(name):
    coefficients = RNG.normal(size=(1, 3, 10))
    draws = RKHSFunction.over_draws(RBF(lengthscale=1.0), ROWS[:10], coefficients, batch_shape=(1, 3))
    single = RKHSFunction(RBF(lengthscale=1.0), ROWS[:10], coefficients[0, 1])
    explanation, expected = (explain(function, ROWS[10:12], name) for function in (draws, single))
    assert explanation.values.dims == ("chain", "draw", "instance", "feature")
    np.testing.assert_allclose(explanation.values[0, 1], expected.values, rtol=1e-8, atol=1e-10)
    assert (expected.variance is not None) == name.startswith("bayes")
    if expected.variance is not None:
        np.testing.assert_allclose(explanation.variance[0, 1], expected.variance, rtol=1e-8, atol=1e-12)


@each_explainer
def test_labels_without_probabilities_and_wrong_backgrounds_are_refused(name):
    labels = SVC().fit(ROWS, LABELS)
    with pytest.raises(ValueError, match="`function` must return real numbers, got dtype <U4"):
        explain(labels, ROWS[:2], name)
    with pytest.raises(ValueError, match="`background` must have 4 columns"):
        explain(lambda x: x[:, 0], ROWS[:2], name, background=ROWS[:, :3])


@pytest.mark.slow_variants("BayesLIME", "LIME")
@pytest.mark.parametrize("cls", CLASSES)
def test_constant_features_and_repeated_rows_are_legal(cls):
    background = np.repeat(ROWS[:1], 6, axis=0)
    options = {} if cls in (KernelSHAP, ShapleySampling) else {"num_perturbations": 50}
    explanation = cls(background, progress=False, **options).explain(
        lambda x: x[:, 0] * x[:, 1], np.concatenate([background[:1], 1e6 * background[:1]]), rng_key=KEY
    )
    assert np.isfinite(explanation.values).all()
    if explanation.variance is not None:
        assert (explanation.variance >= 0).all()
