"""Tables are read whole, and how they were scaled can be undone."""

from __future__ import annotations

import decimal

import numpy as np
import pandas as pd
import pytest

from kpp.kernels import RBF
from kpp_models import GPClassification
from kpp_study.study.errors import StudyError
from kpp_study.study.plan import choose_rows
from kpp_study.study.reading.kinds import read_data
from kpp_study.study.sections.data_config import DataConfig


@pytest.fixture
def read(tmp_path):
    def read_frame(frame, name="table.csv", **options):
        path = tmp_path / name
        frame.to_parquet(path) if name.endswith("parquet") else frame.to_csv(path, index=False)
        return read_data(DataConfig(path, "y", **options))

    return read_frame


@pytest.fixture
def table():
    return pd.DataFrame(
        {"a": [1.0, 2.0, 6.0, 3.0], "code": [7, 3, 7, 3], "same": [2] * 4, "town": list("xyxy"), "y": [10, 20, 40, 90]}
    )


@pytest.mark.parametrize("name", ["table.csv", "table.csv.gz", "table.parquet"])
def test_numbers_are_standardized_and_categories_are_not(read, table, name):
    data = read(table, name, categorical=("code",))
    assert data.units.schema.levels == {"code": (3, 7), "town": ("x", "y")}
    np.testing.assert_array_equal(data.x, [[1, 1, 2, 0], [2, 0, 2, 1], [6, 1, 2, 0], [3, 0, 2, 1]])
    frame = data.features
    np.testing.assert_allclose([frame["a"].mean(), frame["a"].std(ddof=0)], [0, 1], atol=1e-14)
    np.testing.assert_array_equal(frame["same"], 0.0)
    np.testing.assert_array_equal(data.units.schema.read(frame)[:, [1, 3]], data.x[:, [1, 3]])
    scaling = data.units
    np.testing.assert_allclose(scaling.center + scaling.scale * data.units.schema.read(frame), data.x, rtol=1e-15)
    np.testing.assert_allclose(scaling.target_center + scaling.target_scale * data.training[1], table["y"])


def test_standardizing_can_be_turned_off(read, table):
    data = read(table, standardize=False, features=("a",))
    assert data.units.is_identity
    np.testing.assert_array_equal(data.features["a"], table["a"])
    np.testing.assert_array_equal(data.training[1], table["y"])


@pytest.mark.parametrize("labels", [[0, 1, 1, 0], [True, False, False, True]])
def test_labels_are_not_scaled(read, table, labels):
    data = read(table.assign(y=labels))
    assert data.is_label
    np.testing.assert_array_equal(data.training[1], np.asarray(labels, float))


def test_two_classes_go_to_the_model_as_in_the_file(read, table):
    data = read(table.assign(y=["yes", "no", "no", "yes"]))
    assert data.classes == ("no", "yes")
    assert data.units.target == "y = yes"
    np.testing.assert_array_equal(data.y, [1.0, 0.0, 0.0, 1.0])
    assert data.training[1].tolist() == ["yes", "no", "no", "yes"]
    sizes = pd.Categorical(["small", "large", "large", "small"], categories=["small", "large"])
    ordered = read(table.assign(y=sizes), "table.parquet")
    assert ordered.classes == ("small", "large")
    np.testing.assert_array_equal(GPClassification(RBF(1.0)).prepare(*parts(ordered))[1]["y"], [0, 1, 1, 0])


def parts(data):
    """Return what a model is fitted to."""
    return data.features[["a"]], data.training[1]


def test_a_target_of_three_levels_is_refused(read, table):
    with pytest.raises(
        StudyError,
        match=r"data.target: the column 'y' must hold numbers or two classes: .* got 3: 'high', 'low', 'middle'",
    ):
        read(table.assign(y=["low", "high", "middle", "low"]))


def test_decimals_of_parquet_are_numbers(read, table):
    numbers = table["a"].map(decimal.Decimal)
    data = read(table.assign(a=numbers, y=numbers * 2), "table.parquet", features=("a",))
    np.testing.assert_array_equal(data.x[:, 0], table["a"])
    np.testing.assert_array_equal(data.y, 2 * table["a"])


@pytest.mark.parametrize("column", ["a", "y"])
def test_numbers_with_other_entries_are_not_taken_for_categories(read, table, column):
    with pytest.raises(
        StudyError, match=rf"column '{column}' are numbers: all but '\?' \(1 times\); list .* `missing_values`"
    ):
        read(table.assign(**{column: ["1.5", "?", "6", "3"]}))


def test_a_date_is_neither_number_nor_text(read, table):
    dated = table.assign(day=pd.date_range("2026-01-01", periods=4))
    with pytest.raises(StudyError, match="'day' must hold numbers or text"):
        read(dated, "table.parquet")


def test_rows_are_chosen_by_number_list_or_all():
    first, second = (choose_rows(4, 30, np.random.default_rng(1), "rows") for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert len(set(first)) == 4
    assert (np.diff(first) > 0).all()
    np.testing.assert_array_equal(choose_rows((9, 2), 30, np.random.default_rng(1), "rows"), [9, 2])
    assert choose_rows("all", 30, np.random.default_rng(1), "rows").size == 30
    assert choose_rows(99, 30, np.random.default_rng(1), "rows").size == 30
