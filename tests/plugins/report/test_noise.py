"""Noise levels: what a feature without effect stays below, and what a report says of the features that do."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

import kpp
from kpp_study import render_explanation
from kpp_study.report.explained import importance


def linear(effects, spread, num_rows=8, num_draws=400, **attrs):
    """The contributions of a linear model with a flat prior, of the coefficients of independent features.

    An estimate has the error of the posterior, so a feature without effect has posterior means of this spread.
    """
    rng = np.random.default_rng(1)
    x = rng.normal(size=(num_rows, len(effects)))
    estimates = effects + spread * rng.normal(size=len(effects))
    slopes = estimates + spread * rng.normal(size=(2, num_draws // 2, 1, len(effects)))
    values = slopes * x
    names = [f"x{j}" for j in range(len(effects))]
    return kpp.Explanation.create(values, 0.0, values.sum(-1), x, feature_names=names, draws=True, attrs=attrs)


@pytest.mark.parametrize(
    ("attrs", "least", "most"), [({}, 0.917, 0.983), ({"instances_drawn": "independently"}, 0.9, 1)]
)
def test_a_feature_without_effect_stays_below_its_level_in_95_of_100_data_sets(attrs, least, most):
    """400 features without effect are 400 data sets: the share has a standard error of 0.011, so 0.95 within 0.033."""
    found = importance(linear(np.zeros(400), 0.3, **attrs))
    assert least < np.mean([each.mean < each.noise for each in found]) < most
    assert min(each.bounds[0] for each in found) > 0  # as ever, the interval excludes 0


def test_the_level_of_one_row_is_a_folded_normal_mean():
    """With one row the deviation at the level is 1.96 standard deviations, and the rest is a folded normal number."""
    (found,) = importance(linear(np.zeros(1), 0.5, num_rows=1, num_draws=40_000))
    spread = 0.5 * abs(float(np.random.default_rng(1).normal()))
    expected = spread * scipy.stats.foldnorm.mean(scipy.stats.norm.ppf(0.975))
    assert found.noise == pytest.approx(expected, rel=0.02)  # a quantile of 40,000 draws


def test_the_report_names_the_features_below_their_level(read_page):
    explanation = linear(np.array([2.0, 0.0]), 0.2)
    strong, weak = importance(explanation)
    assert (strong.certain, weak.certain) == (1.0, 0.0)  # all rows have the sign of their slope
    words = read_page(render_explanation(explanation)).find("main")[0][1]
    assert "Not above their noise level, so that the data do not show that they matter: x1." in words
    assert "noise level" in words and "sign certain in 100%" in words


@pytest.mark.parametrize("options", [{"num_draws": 10}, {"uncertainty": "hyperparameters only"}])
def test_too_little_uncertainty_gives_no_level(options, read_page):
    explanation = linear(np.array([2.0, 0.0]), 0.2, **options)
    assert all(each.noise is None for each in importance(explanation))
    words = read_page(render_explanation(explanation)).find("main")[0][1]
    assert "noise level" not in words and "not even for a feature that is pure noise" in words
