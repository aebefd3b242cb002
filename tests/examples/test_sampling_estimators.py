"""The benchmark of sampling estimators runs, and what it is there to show holds."""

from __future__ import annotations

import logging

import numpy as np
import pytest

pytest.importorskip("shap")


@pytest.fixture(scope="module")
def script(load_script):
    return load_script("benchmarks/sampling_estimators.py")


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_errors_fall_as_they_should_and_are_no_worse_than_those_of_shap(script):
    """Few seeds and a small background: the ratio of mean errors is known to about 7 percent, and is .8 with more."""
    logging.getLogger("shap").setLevel(logging.ERROR)
    problem = script.load(4, 5)
    truth = np.asarray(problem.estimate("quadrature").values)
    few, many = (script.measure(problem, truth, budget, 6) for budget in (256, 1024))
    for errors in (few, many):
        assert errors["least squares"] < errors["shap"] < errors["default"]
        assert 0.7 < errors["stated"] / errors["least squares"] < 1.4
    assert 1.7 < few["least squares"] / many["least squares"] < 3.0  # 2 by the root, more where budgets are small
    assert "0." in script.describe(256, few)
