"""Which columns of a table a new study takes, and the reason for each that it leaves out."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import pytest

from kpp_study import StudyError
from kpp_study.scaffold.columns import Column, Unusable, describe, possible_task

RNG = np.random.default_rng(0)
NUMBERS = RNG.normal(size=40)
DAYS = pd.date_range("2024-01-30", periods=40)
USABLE = {
    "numbers": (NUMBERS, False, f"numbers from {NUMBERS.min():.4g} to {NUMBERS.max():.4g}"),
    "whole numbers": (np.arange(40) // 2 * 3, False, "numbers from 0 to 57"),
    "identifiers": (
        np.arange(1980, 2020)[::-1],
        False,
        "numbers from 1980 to 2019, different in every row: leave it out if it is an identifier",
    ),
    "booleans": ([True, False] * 20, False, "true or false, as the numbers 1 and 0"),
    "text": (['a "b"', "c\nd"] * 20, True, '2 categories: "a \\"b\\"", "c\\nd"'),
    "text with many levels": ([f"a{i % 10}" for i in range(40)], True, '10 categories: "a0", "a1", "a2", "a3", ...'),
    "fractions": (["1/2", "1/3"] * 20, True, '2 categories: "1/2", "1/3"'),
    "categories": (pd.Categorical([3, 1] * 20), True, '2 categories: "1", "3"'),
}
UNUSABLE = {
    "numbers as text": ([f"{i % 10}" for i in range(40)], "holds numbers, all of them, as text"),
    "numbers with gaps": (["?", "1", "2", "3"] * 10, "holds numbers, all but '?' (10 times): name texts for missing"),
    "constant": ([2.5] * 40, "has the same value in every row"),
    "constant text": (["a"] * 40, "has the same value in every row"),
    "missing": ([1.0, 2.0, np.nan, 4.0] * 10, "lacks 10 of 40 values"),
    "infinite": ([1.0, np.inf] * 20, "holds infinite values"),
    "row numbers": (np.arange(40), "counts the rows"),
    "row numbers from 1": (np.arange(1, 41), "counts the rows"),
    "names": ([f"name {i}" for i in range(40)], "is text that differs in every row"),
    "codes": ([f"code {i // 2}" for i in range(40)], "is text with 20 values in 40 rows"),
    "times": (DAYS, "holds dates or times"),
    "days": ([day.date() for day in DAYS], "holds dates or times"),
    "dates as text": (DAYS.astype(str), "holds dates or times"),
    "dates as German text": (DAYS.strftime("%d.%m.%y"), "holds dates or times"),
    "few dates with times": (["2024-01-05T10:00", "2024-01-06 11:30"] * 20, "holds dates or times"),
    "durations": (pd.to_timedelta(range(40), unit="h"), "holds dates or times"),
    "lists": ([[1, 2]] * 40, "holds neither numbers nor text"),
    "complex numbers": (NUMBERS + 1j, "holds neither numbers nor text"),
    "text and numbers": ([1, "a"] * 20, "holds neither numbers nor text"),
}


@pytest.mark.parametrize("name", USABLE)
def test_a_usable_column_is_described(name: str):
    values, is_category, contents = USABLE[name]
    found = describe(pd.Series(values, name=name))
    assert found == Column(name, is_category, contents, name == "whole numbers")


@pytest.mark.parametrize("name", UNUSABLE)
def test_an_unusable_column_has_a_reason(name: str):
    values, reason = UNUSABLE[name]
    found = describe(pd.Series(values, name=name))
    assert isinstance(found, Unusable)
    assert reason in found.reason


@pytest.mark.parametrize(
    ("values", "task"),
    [
        (NUMBERS, "regression"),
        (np.arange(1, 41), "regression"),
        ([1, 2] * 20, "classification"),
        ([-1, 1] * 20, "classification"),
        ([0.5, 1.5] * 20, "regression"),
        ([1, 2, 3, 4] * 10, "regression"),
        ([0, 1] * 20, "classification"),
        ([0.0, 1.0] * 20, "classification"),
        ([True, False] * 20, "classification"),
        (["no", "yes"] * 20, "classification"),
        (pd.Categorical(["no", "yes"] * 20), "classification"),
    ],
)
def test_the_target_suggests_the_task(values, task: str):
    assert possible_task(pd.Series(values, name="y")) == task


def test_numbers_0_and_1_may_be_regressed():
    assert possible_task(pd.Series([0, 1] * 20, name="y"), "regression") == "regression"


@pytest.mark.parametrize(
    ("values", "task", "message"),
    [
        ([1.0, np.nan] * 20, None, "--target: the column 'y' lacks 20 of 40 values"),
        ([3.0] * 40, None, "--target: the column 'y' has the same value"),
        ([datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)] * 20, None, "--target: the column 'y' holds dates"),
        (["a", "b", "c", "d"] * 10, None, "the column 'y' must hold numbers or two classes: .* got 4: 'a', 'b'"),
        (
            [1, 2, 3, 4] * 10,
            "classification",
            '--task classification needs .* text or two whole numbers; .* holds "1", "2"',
        ),
        (["no", "yes"] * 20, "regression", '--task regression needs a target of numbers; .* holds "no", "yes"'),
    ],
)
def test_a_target_that_cannot_be_predicted_is_an_error(values, task, message: str):
    with pytest.raises(StudyError, match=message):
        possible_task(pd.Series(values, name="y"), task)
