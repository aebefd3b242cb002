"""Parameters inside kernels, searches, precision, random states, and explanations of what a search has found."""

from __future__ import annotations

import pickle

import jax
import numpy as np
import pytest
from numpyro import distributions as dist
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import kpp
from kpp.data.estimators import as_rng_key, pad_rows
from kpp.kernels import RBF, Matern32
from kpp_models.estimators import GPRegressor, KernelLogisticClassifier, KernelRidgeRegressor, RandomFourierFeatures


def test_parameters_of_kernels_are_parameters():
    estimator = GPRegressor(RBF(dist.LogNormal(0.0, 1.0)) + 2.0, noise_variance=0.5, inference=kpp.MAP(num_restarts=0))
    names = estimator.get_params()
    assert {"kernel__kernels__0__lengthscale", "kernel__kernels__1__variance", "inference__num_restarts"} <= set(names)
    before = estimator.kernel
    estimator.set_params(kernel__kernels__0__lengthscale=3.0, inference__max_steps=9, noise_variance=0.1)
    assert str(estimator.kernel) == str(RBF(3.0) + 2.0)
    assert (estimator.inference.max_steps, estimator.inference.num_restarts, estimator.noise_variance) == (9, 0, 0.1)
    assert before.kernels[0].lengthscale.__class__ is dist.LogNormal
    copy = clone(estimator)
    assert str(copy.kernel) == str(estimator.kernel)
    assert "kernel=Sum(" in repr(copy)
    with pytest.raises(ValueError, match="`lengthscale` must be positive, got -1"):
        estimator.set_params(kernel__kernels__0__lengthscale=-1.0)
    with pytest.raises(ValueError, match="Invalid parameter 'kernel__width' for estimator GPRegressor"):
        estimator.set_params(kernel__width=1.0)


@pytest.mark.nightly
def test_searches_vary_kernels_and_their_parameters(table):
    frame, y = table
    ridge = KernelRidgeRegressor(RBF(1.0), regularization=0.01)
    search = GridSearchCV(ridge, {"kernel": [RBF(9.0) + 9.0, Matern32(9.0)], "regularization": [1.0, 1e-3]}, cv=2)
    search.fit(frame, y)
    assert len(search.cv_results_["params"]) == 4
    assert isinstance(search.best_params_["kernel"], type(RBF(1.0) + 9.0))  # the targets are around 20
    scales = {"kernelridgeregressor__kernel__lengthscale": [0.5, 4.0]}
    other = GridSearchCV(make_pipeline(StandardScaler(), ridge), scales, cv=2).fit(frame, y)
    assert [other.best_estimator_[-1].kernel.lengthscale] == list(other.best_params_.values())
    scores = cross_val_score(other.best_estimator_, frame, y, cv=2)
    np.testing.assert_allclose(scores.mean(), other.best_score_, rtol=1e-9)
    explanation = kpp.explain(other, frame[:2], background=frame)
    total = explanation.values.sum("feature") + explanation.base_values
    np.testing.assert_allclose(total.values[0, 0], other.predict(frame[:2]), rtol=1e-9)
    np.testing.assert_array_equal(explanation.values.feature, ["age", "dose"])


@pytest.mark.slow
def test_steps_that_cannot_be_absorbed_are_explained_as_a_function(table):
    frame, y = table
    frame = frame.assign(city=np.resize(["Rome", "Bern", "Oslo"], 16))
    columns = make_column_transformer((StandardScaler(), ["age", "dose"]), (OneHotEncoder(), ["city"]))
    pipeline = make_pipeline(columns, KernelRidgeRegressor(RBF(1.5) + 9.0, regularization=1e-3)).fit(frame, y)
    with pytest.raises(ValueError, match="can't be absorbed exactly"):
        kpp.explain(pipeline, frame[:2], background=frame)
    options = {"explainer": "kernel-shap", "background": frame[:6], "rng_key": jax.random.key(0)}
    explanation = kpp.explain(pipeline, frame[:2], **options)
    np.testing.assert_array_equal(explanation.values.feature, ["age", "dose", "city"])
    total = explanation.values.sum("feature") + explanation.base_values
    np.testing.assert_allclose(total, pipeline.predict(frame[:2]), rtol=1e-8)


@pytest.mark.slow
def test_probabilities_of_a_classifier_are_explained_with_its_columns(table, labels):
    frame, _ = table
    model = KernelLogisticClassifier(RBF(np.array([9.0, 0.8])), regularization=0.01).fit(frame, labels)
    options = {"explainer": "kernel-shap", "rng_key": jax.random.key(0)}
    explanation = kpp.explain(model, frame[:2], **options)
    assert explanation.attrs["background"] == "training data"
    assert explanation.output_names == ("no", "yes")
    np.testing.assert_allclose(explanation.predictions, model.predict_proba(frame[:2]), rtol=1e-9)
    odds = kpp.explain(model, frame[:2])
    np.testing.assert_allclose(odds.predictions.values[0, 0], model.decision_function(frame[:2]), rtol=1e-9)


@pytest.mark.slow
def test_double_precision_needs_no_setting(table):
    frame, y = table
    estimator = GPRegressor(RBF(4.0, 2.0), noise_variance=0.25, mean=20.0)
    expected = estimator.fit(frame, y).predict(frame, return_std=True)
    stored = pickle.dumps(estimator)
    with jax.enable_x64(False):
        single = GPRegressor(RBF(4.0, 2.0), noise_variance=0.25, mean=20.0).fit(frame, y)
        for found in (single, pickle.loads(stored), clone(estimator).fit(frame, y)):
            np.testing.assert_allclose(found.predict(frame, return_std=True), expected, rtol=1e-12)
        explanation = kpp.explain(single, frame[:2])
        assert not jax.config.jax_enable_x64
    assert explanation.values.dtype == np.float64
    np.testing.assert_allclose(explanation.values.mean(), kpp.explain(estimator, frame[:2]).values.mean(), rtol=1e-9)


def test_random_states_are_seeds_generators_or_keys():
    assert jax.random.key_data(as_rng_key(3)).tolist() == jax.random.key_data(jax.random.key(3)).tolist()
    assert as_rng_key(key := jax.random.key(5)) is key
    for seeded in (np.random.RandomState, np.random.default_rng):
        drawn = [jax.random.key_data(as_rng_key(seeded(0))).tolist() for _ in range(2)]
        assert drawn[0] == drawn[1]
    generator = np.random.default_rng(0)
    assert not np.array_equal(*(jax.random.key_data(as_rng_key(generator)) for _ in range(2)))
    with pytest.raises(ValueError, match="cannot be used to seed"):
        as_rng_key("text")


@pytest.mark.slow
def test_few_programs_serve_all_numbers_of_rows(table, compilations):
    x = table[0].to_numpy()
    features = RandomFourierFeatures(RBF(4.0), num_frequencies=3, random_state=0).fit(x)
    expected = features.transform(x)
    features.transform(x[:8])
    start = len(compilations)
    for rows in (1, 5, 8, 9, 15):
        np.testing.assert_allclose(features.transform(x[:rows]), expected[:rows], rtol=1e-12)
    assert len(compilations) == start
    assert pad_rows(x[:9]).shape == (16, 2)
