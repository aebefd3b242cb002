"""A fitted model explained from end to end: names, categories, draws, files."""

from __future__ import annotations

import jax
import numpy as np
import pandas as pd
import pytest

import kpp
from kpp.kernels import RBF, Categorical, ProductKernel
from kpp_models import GPRegression

RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {"age": RNG.normal(size=12), "region": RNG.permutation(["north", "south", "west"] * 4), "bmi": RNG.normal(size=12)}
)
Y = TABLE["age"].to_numpy() * (TABLE["region"] == "west") + TABLE["bmi"].to_numpy()


@pytest.fixture(scope="module")
def explanation():
    kernel = ProductKernel((RBF(1.0), Categorical(), RBF(2.0)))
    model, inference = GPRegression(kernel, noise_variance=0.1), kpp.MAP(progress=False)
    fit = model.fit(jax.random.key(0), TABLE, Y, inference=inference, num_prior_samples=0)
    columns = ["region", "bmi", "age"]
    options = {"value_function": "interventional", "background": TABLE[columns], "covariance": None}
    return fit, kpp.explain(fit, TABLE[columns].iloc[:3], **options)


@pytest.mark.slow
def test_the_explanation_is_a_posterior_with_the_names_of_the_table(explanation):
    _, explanation = explanation
    assert explanation.values.dims == ("chain", "draw", "instance", "feature")
    assert explanation.values.shape == (1, 1, 3, 3)
    assert explanation.feature_names == ("age", "region", "bmi")
    assert explanation.schema.levels["region"] == ("north", "south", "west")
    shown = explanation.to_dataframe()
    assert shown[shown["feature"] == "region"]["data"].tolist() == TABLE["region"].iloc[:3].tolist()


@pytest.mark.slow
def test_every_draw_adds_up_to_the_prediction_of_the_fit(explanation):
    fit, explanation = explanation
    assert float(explanation.additivity_error().max()) < 1e-8
    predicted = fit.predict(TABLE.iloc[:3])["mean"]
    np.testing.assert_allclose(explanation.predictions, predicted, rtol=1e-8)


@pytest.mark.slow
def test_the_background_is_read_by_the_schema_too(explanation):
    fit, explanation = explanation
    base = fit.predict(TABLE)["mean"].mean("instance")
    np.testing.assert_allclose(explanation.base_values, base, rtol=1e-8)


def test_fit_and_rows_are_enough(explanation, monkeypatch):
    fit, explanation = explanation
    default = kpp.explain(fit, TABLE.iloc[:3], covariance=None)
    np.testing.assert_allclose(default.values, explanation.values, rtol=1e-10)
    assert default.attrs["value_function"] == "interventional"
    assert default.attrs["background"] == "training data"
    assert default.attrs["background_size"] == len(TABLE)
    monkeypatch.setattr("kpp.api._MAX_BACKGROUND", len(TABLE) - 1)
    monkeypatch.setattr("kpp.api._LANDMARKS", 4)
    fewer = kpp.explain(fit, TABLE.iloc[:3], covariance=None)
    assert fewer.attrs["background"] == "4 landmarks of the training data"
    assert fewer.attrs["background_size"] == 4


def test_it_comes_back_from_a_file(explanation, tmp_path):
    _, explanation = explanation
    explanation.save(tmp_path / "explanation.nc")
    read = kpp.Explanation.load(tmp_path / "explanation.nc")
    np.testing.assert_array_equal(read.values, explanation.values)
    assert read.attrs == explanation.attrs
    assert read.attrs["background_size"] == 12


def test_unknown_levels_are_refused(explanation):
    fit, _ = explanation
    with pytest.raises(ValueError, match=r"unknown levels \['east'\] in column 'region'"):
        kpp.explain(fit, TABLE.assign(region="east"), value_function="interventional", background=TABLE)
