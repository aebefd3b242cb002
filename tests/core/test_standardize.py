"""Tables are standardized by the means and scales of the training rows; names and other columns stay as they are."""

from __future__ import annotations

import jax
import numpy as np
import pandas as pd
import pytest
from sklearn.preprocessing import StandardScaler

import kpp
from kpp.data import tables
from kpp.foundation import validation
from kpp.kernels import default_kernel
from kpp.preferences import Matches

TRAIN = pd.DataFrame(
    {
        "age": [20.0, 35.0, 50.0, 41.0],
        "city": ["Rome", "Bern", "Rome", "Oslo"],
        "smoker": [True, False, True, False],
        "visits": [1, 4, 2, 9],
        "constant": [3.0, 3.0, 3.0, 3.0],
    },
    index=[7, 3, 5, 1],
)
TEST = pd.DataFrame(
    {"visits": [3], "city": ["Paris"], "age": [30.0], "constant": [4.0], "smoker": [True], "note": ["-"]}
)
NUMBERS = ["age", "visits"]


def test_the_numbers_of_a_data_frame_agree_with_scikit_learn():
    train, scales = tables.standardize(TRAIN)
    scaler = StandardScaler().fit(TRAIN[NUMBERS])
    np.testing.assert_allclose(train[NUMBERS], scaler.transform(TRAIN[NUMBERS]), rtol=1e-13)
    test = scales.apply(TEST)
    np.testing.assert_allclose(test[NUMBERS], scaler.transform(TEST[NUMBERS]), rtol=1e-13)
    np.testing.assert_array_equal(train["constant"], 0.0)
    np.testing.assert_array_equal(test["constant"], 1.0)


def test_names_rows_and_other_columns_are_kept():
    train, scales = tables.standardize(TRAIN)
    assert list(train.columns) == list(TRAIN.columns)
    pd.testing.assert_frame_equal(train[["city", "smoker"]], TRAIN[["city", "smoker"]])
    pd.testing.assert_frame_equal(scales.apply(TEST)[["city", "smoker", "note"]], TEST[["city", "smoker", "note"]])
    assert TRAIN["age"].iloc[0] == 20.0


def test_columns_of_numbers_can_be_categories():
    train, scales = tables.standardize(TRAIN[NUMBERS], categorical=["visits"])
    np.testing.assert_array_equal(train["visits"], TRAIN["visits"])
    array, of_array = tables.standardize(TRAIN[NUMBERS].to_numpy(float), categorical=["x1"])
    np.testing.assert_allclose(array, train, rtol=1e-13)
    np.testing.assert_allclose(of_array.apply(np.array([[20.0, 5.0]])), [[array[0, 0], 5.0]], rtol=1e-13)


def test_polars_data_frames_keep_their_type():
    polars = pytest.importorskip("polars")
    train, scales = tables.standardize(polars.from_pandas(TRAIN))
    expected = tables.standardize(TRAIN)[0]
    assert isinstance(train, polars.DataFrame)
    assert train.columns == list(TRAIN.columns)
    np.testing.assert_allclose(train.select(NUMBERS).to_numpy(), expected[NUMBERS])
    assert train["smoker"].to_list() == TRAIN["smoker"].tolist()
    np.testing.assert_allclose(scales.apply(polars.from_pandas(TEST))["age"].to_numpy(), scales.apply(TEST)["age"])


def test_booleans_of_matches_are_categories_for_the_default_kernel():
    items = pd.DataFrame({"ID": ["a", "b", "c"], "size": [1.0, 2.0, 4.0], "wild": [True, False, True]})
    games = pd.DataFrame({"winner": ["a", "b"], "loser": ["b", "c"], "home": [True, False]})
    matches = Matches.from_tables(items, games, contexts=["home"])
    assert matches.schema.booleans == ("wild",)
    assert matches.context_schema.booleans == ("home",)
    kernel = default_kernel(matches.schema, priors=False)
    assert kernel.features_as_numbers(matches.schema.feature_names) == {"size"}
    sessions = pd.DataFrame({"session": [1, 1], "ID": ["a", "b"], "clicked": [1, 0], "home": [True, True]})
    assert Matches.from_sessions(items, sessions, contexts=["home"]).context_schema.booleans == ("home",)
    copy = matches.split(jax.random.key(0), 0.5)[0]
    assert copy.schema == matches.schema


@pytest.mark.slow
def test_an_offset_that_float32_loses_gives_a_warning(caplog):
    far, near = np.array([[0.5, 1e8], [0.7, 1e8 + 5.0]]), np.array([[0.5, 1e3], [0.7, 1e3 + 5.0]])
    with jax.enable_x64(False):
        for read in (lambda x: validation.as_points(x), lambda x: kpp.kernels.RBF().gram(x)):
            caplog.clear()
            read(near)
            read(far.astype(np.float32))
            assert not caplog.records
            read(far)
            assert "`x` loses its differences in float32: column 1" in caplog.text
    caplog.clear()
    validation.as_points(far)
    assert not caplog.records
