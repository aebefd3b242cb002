"""Differences of covariates between two levels of a treatment, against pandas and the true probabilities."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from kpp_models import covariate_balance

RNG = np.random.default_rng(0)
N = 4000
Z, GROUP, FLAG = RNG.normal(size=N), RNG.choice(["a", "b", "c"], size=N), RNG.uniform(size=N) < 0.4
CHANCE = 1 / (1 + np.exp(-(Z - 0.5 + (GROUP == "b"))))
TABLE = pd.DataFrame(
    {"drug": np.where(RNG.uniform(size=N) < CHANCE, "new", "old"), "z": 5 + 2 * Z, "group": GROUP, "flag": FLAG}
)
NAMES = ["z", "group", "flag"]
FOUND = covariate_balance(TABLE, "drug", NAMES, at=("new", "old"))


def test_differences_are_those_of_pandas():
    numbers = pd.DataFrame({"z": TABLE["z"], **{f"group = {level}": GROUP == level for level in "bc"}, "flag": FLAG})
    groups = numbers.astype(float).groupby(TABLE["drug"])
    means, spread = groups.mean(), np.sqrt(groups.var().mean())
    expected = (means.loc["new"] - means.loc["old"]) / spread
    pd.testing.assert_series_equal(FOUND["difference"], expected, check_names=False)
    turned = covariate_balance(TABLE, "drug", NAMES, at=("old", "new"))
    pd.testing.assert_frame_equal(turned, -FOUND)


def test_weights_balance_the_covariates():
    """With the true probabilities differences have standard errors near 2 / sqrt(n) times the weights' spread: .05."""
    assert FOUND.loc["z", "difference"] > 0.7 and FOUND.loc["group = b", "difference"] > 0.2
    for column, name in ((Z, "z"), (GROUP == "b", "group = b"), (FLAG, "flag")):
        means = [
            np.average(column, weights=(TABLE["drug"] == level) / chance)
            for level, chance in (("new", CHANCE), ("old", 1 - CHANCE))
        ]
        assert FOUND.loc[name, "weighted difference"] == pytest.approx((means[0] - means[1]) / column.std(), abs=0.15)
        assert abs(FOUND.loc[name, "weighted difference"]) < 0.1


@pytest.mark.parametrize(
    ("treatment", "covariates", "at", "message"),
    [
        ("drug", ["z"], ("new", "other"), "`at` must hold levels of 'drug'"),
        ("drug", ["z"], ("new",), "`at` must hold two of the levels of 'drug'"),
        ("z", ["flag"], (0.0, 1.0), "`at` must hold two of the levels of 'z'"),
        ("drug", ["y"], ("new", "old"), r"`data` lacks the columns \['y'\]|`data` lacks the columns 'y'"),
    ],
)
def test_bad_input_is_refused(treatment, covariates, at, message):
    with pytest.raises(ValueError, match=message):
        covariate_balance(TABLE, treatment, covariates, at=at)
