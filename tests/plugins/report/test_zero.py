"""What a report says of features whose importance may be zero."""

from __future__ import annotations

import numpy as np
import pytest

import kpp
from kpp_study import render_explanation
from kpp_study.report.explained import importance


def linear(effects, spread, num_rows=8, num_draws=400, **attrs):
    """The contributions of a linear model with a flat prior, of the coefficients of independent features."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(num_rows, len(effects)))
    estimates = effects + spread * rng.normal(size=len(effects))
    slopes = estimates + spread * rng.normal(size=(2, num_draws // 2, 1, len(effects)))
    values = slopes * x
    names = [f"x{j}" for j in range(len(effects))]
    return kpp.Explanation.create(values, 0.0, values.sum(-1), x, feature_names=names, draws=True, attrs=attrs)


@pytest.mark.slow
def test_the_report_names_the_features_whose_interval_reaches_zero(read_page):
    explanation = linear(np.array([2.0, 0.0]), 0.2)
    strong, weak = importance(explanation)
    assert strong.certain == 1.0 and weak.certain == 0.0  # all rows have the sign of their slope
    assert strong.bounds[0] > 0 and weak.bounds[0] == 0
    words = read_page(render_explanation(explanation)).find("main")[0][1]
    assert "the data do not show that the feature matters, for x1." in words
    assert "sign certain in 100%" in words


def test_independent_draws_of_rows_give_wider_intervals():
    bounds = [importance(linear(np.array([2.0]), 0.5, **attrs))[0].bounds for attrs in DRAWN]
    assert np.diff(bounds, axis=1) == pytest.approx(np.diff(bounds[:1]).repeat(2, 0).reshape(2, 1), rel=0.01)


DRAWN = [{}, {"instances_drawn": "independently"}]


@pytest.mark.slow_variants("options0", "options1")
@pytest.mark.parametrize("options", [{"num_draws": 10}, {"uncertainty": "hyperparameters only"}])
def test_too_little_uncertainty_is_said(options, read_page):
    words = read_page(render_explanation(linear(np.array([2.0, 0.0]), 0.2, **options))).find("main")[0][1]
    assert "too little of the uncertainty to reach 0, even for a feature that is pure noise" in words
