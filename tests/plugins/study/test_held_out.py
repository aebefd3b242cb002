"""Leave-one-out results of a study: the means are those of fits without the row, and the report shows their skill."""

from __future__ import annotations

import dataclasses
import math

import arviz as az
import numpy as np
import pytest

from kpp.storage import arviz_data
from kpp_study import load_fit, load_study
from kpp_study.study.reading.kinds import read_data
from kpp_study.study.reported import leave_one_out


@pytest.fixture(scope="module")
def study(finished):
    """The fit, the data and the groups in the units of the table."""
    groups = arviz_data.groups(az.from_netcdf(finished.folder / "posterior.nc"))
    return load_fit(finished.folder).fit, read_data(load_study(finished.study).data), groups


@pytest.fixture(scope="module")
def brute_force(study):
    """For each draw the means of the rows by fits to all others, (s, n), in standardized units."""
    fit, data, _ = study
    x, y = data.units.points(data.x), data.units.response(data.y)
    scales = np.asarray(fit.draws["kernel.kernels.0.kernel.lengthscale"]).reshape(-1, 2)
    noises = np.asarray(fit.draws["noise_variance"]).ravel()
    same_town = x[:, None, 2] == x[None, :, 2]  # different towns have the correlation 0
    means = np.empty((len(noises), len(y)))
    for s, (scale, noise) in enumerate(zip(scales, noises, strict=True)):
        distance = np.sum(((x[:, None, :2] - x[None, :, :2]) / scale) ** 2, axis=-1)
        gram = np.exp(-0.5 * distance) * same_town
        for i in range(len(y)):
            rest = np.arange(len(y)) != i
            weights = np.linalg.solve(gram[np.ix_(rest, rest)] + noise * np.eye(len(y) - 1), y[rest])
            means[s, i] = gram[i, rest] @ weights
    return means


@pytest.mark.nightly
def test_held_out_means_are_those_of_fits_without_the_row(study, brute_force):
    fit, data, _ = study
    held_out = fit.map_draws(lambda model, sample, data: model.held_out_mean(sample, data))
    found = np.asarray(held_out).reshape(-1, data.y.size)
    np.testing.assert_allclose(found, brute_force, rtol=1e-6, atol=1e-8)  # of matrices with conditions of up to 1e4


@pytest.mark.nightly
def test_the_skill_is_that_of_the_weighted_means(study, brute_force, finished):
    """Importance weights without smoothing differ little, as Pareto k is below 0.7 in nearly all rows."""
    fit, data, groups = study
    loo, _ = leave_one_out(fit, data, groups, of_labels=False)
    densities = groups["log_likelihood"]["y"].transpose("chain", "draw", "instance").values.reshape(brute_force.shape)
    weights = np.exp(densities.min(axis=0) - densities)
    means = data.y.mean() + data.y.std() * np.sum(weights / weights.sum(axis=0) * brute_force, axis=0)
    others = (data.y.sum() - data.y) / (data.y.size - 1)
    expected = 1 - np.sum((data.y - means) ** 2) / np.sum((data.y - others) ** 2)
    assert loo.r_squared == pytest.approx(expected, abs=2e-3)
    assert loo.baseline == pytest.approx(np.mean(-0.5 * (data.y - data.y.mean()) ** 2 / data.y.var()) - 0.5 * math.log(
        2 * math.pi * data.y.var()
    ))  # fmt: skip
    assert loo.log_score == pytest.approx(loo.pointwise.mean())
    report = (finished.folder / "report.html").read_text(encoding="utf-8")
    assert f"R² in rows left out</th><td>{loo.r_squared:.2f}" in report
    assert f"{loo.r_squared:.2f}<small>in rows left out in turn" in report


@pytest.mark.slow
def test_labels_are_scored_by_the_probability_of_what_was_observed(study):
    """The shares of the classes are the best prediction without features: their score is minus the entropy."""
    fit, data, groups = study
    labels = dataclasses.replace(data, y=(np.arange(30) < 12).astype(float))
    loo, _ = leave_one_out(fit, labels, groups, of_labels=True)
    assert loo.r_squared is None
    assert loo.baseline == pytest.approx(0.4 * math.log(0.4) + 0.6 * math.log(0.6))
    right = dataclasses.replace(loo, pointwise=np.log([0.9, 0.51, 0.2, 0.8]))
    assert right.share_right == 0.75


@pytest.mark.slow_variants("log_likelihood-no pointwise")
@pytest.mark.parametrize(
    ("groups_left_out", "message"), [("log_likelihood", "no pointwise"), ("draws", "at least 100 posterior draws")]
)
def test_a_missing_result_has_a_reason(study, groups_left_out, message):
    fit, data, groups = study
    fewer = {name: group for name, group in groups.items() if name != groups_left_out}
    if groups_left_out == "draws":
        fewer["posterior"] = groups["posterior"].isel(draw=slice(10))
    loo, reason = leave_one_out(fit, data, fewer, of_labels=False)
    assert loo is None and message in reason
