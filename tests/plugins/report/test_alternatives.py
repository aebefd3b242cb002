"""Text alternatives: their numbers are those of the figures."""

from __future__ import annotations

import numpy as np
import xarray as xr

import kpp
from kpp.foundation.wording import listed
from kpp_study.report.drawings import alternatives
from kpp_study.report.numbers import fixed, number, short_name, signed


def test_the_target_is_described_by_its_quartiles():
    text = alternatives.target(np.arange(101.0), "y")
    assert "101 values from 0 to 100, mean 50, median 50, the middle half from 25 to 75" in text


def test_hyperparameters_have_medians_intervals_and_priors():
    """Quantiles of 0, 1, ..., 100 are the numbers themselves."""
    draws = np.arange(101.0)[None]
    prior = xr.Dataset({"scale": (("prior_chain", "prior_draw"), 10 * draws), "other": ((), 1.0)})
    posterior = xr.Dataset({"scale": (("chain", "draw"), draws)})
    assert "scale 50 (5 to 95; prior 50 to 950)" in alternatives.priors_and_posteriors(prior, posterior)


def test_the_predictive_check_compares_means_and_spreads():
    observed = np.array([1.0, 2.0, 3.0])
    text = alternatives.predictive_check(observed, np.stack([observed, observed]), "y", 1.0)
    assert "mean 2 and standard deviation 0.8165" in text
    assert "means from 2 to 2 and standard deviations from 0.816 to 0.816" in text
    assert "correlation 1; 100% of the 90% intervals" in text


def test_curves_have_numbers_at_their_ends():
    curve = kpp.curve(lambda x: 3.0 * x[:, 0], np.array([[0.0, 1.0], [2.0, 5.0]]), "x0")
    assert "x0 from 0 (0 to 0) at 0 to 6 (6 to 6) at 2." in alternatives.curves([curve])


def test_calibration_is_told_by_groups():
    text = alternatives.calibration(np.array([0, 1, 1]), np.array([0.11, 0.19, 1.0]), "won")
    assert "predicted 0.15, observed 0.50 (2 rows); predicted 1.00, observed 1.00 (1 row)" in text


def test_pareto_k_is_told_by_its_largest_value():
    assert "Pareto k of 3 rows: median 0.2, largest 0.8; 1 above 0.7" in alternatives.leave_one_out(
        np.array([0.1, 0.2, 0.8])
    )


def test_numbers_as_text():
    assert [number(value) for value in (0.0, -1234.5, 12345.6, 1e-7, np.nan)] == [
        "0", "\u22121234", "12,346", "1.000e\u221207", "\u2013",
    ]  # fmt: skip
    assert [signed(value) for value in (0.25, 0.0, -3.0)] == ["+0.25", "0", "\u22123"]
    assert fixed(-2393.64, 1) == "\u22122,393.6"


def test_long_names_and_lists_are_shortened():
    assert len(short_name("x" * 500)) == 60
    assert listed(["a", "b", "c"], 2) == "a, b and 1 more"
