"""The Swiss roll experiment: its data are as described, and its tables have the rows and figures it says."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner


@pytest.fixture(scope="module")
def script(load_script):
    return load_script("reproduce/swiss_roll.py")


@pytest.mark.slow
def test_rolls_are_cut_as_published(script):
    """5000 points in 50 slices of equal width: 12 to 366 points each, standardised; averages differ by noise of .05."""
    roll = script.make_roll(0, 5000, 50)
    bags, sizes = roll.bags, np.asarray(roll.bags.sizes)
    assert bags.num_bags == 50 and 10 <= sizes.min() < 30 and 300 < sizes.max() < 400
    np.testing.assert_allclose(np.std(bags.points, axis=0), 1.0, rtol=1e-12)
    np.testing.assert_allclose(np.std(roll.position), 1.0, rtol=1e-12)
    middles = np.asarray(bags.covariates)[:, 0]
    width = np.diff(middles)
    np.testing.assert_allclose(width, width[0], rtol=1e-9)
    distance = np.abs(np.asarray(bags.points)[:, 2] - middles[np.asarray(bags.index)])
    assert distance.max() <= width[0] / 2 * (1 + 1e-9)
    noise = roll.aggregates - np.asarray(bags.means(roll.position))
    assert 0.03 < noise.std() < 0.07  # four standard errors of 50 draws
    # The position determines the first and the last coordinate, t cos t and t sin t.
    order = np.argsort(roll.position)
    assert np.abs(np.diff(np.asarray(bags.points)[order, 0])).max() < 0.1


@pytest.mark.slow
def test_settings_share_no_slice(script):
    roll = script.make_roll(1, 400, 10)
    bags, y, covariates = roll.training("indirect")
    assert bags.num_bags == len(y) == len(covariates) == 5
    assert not set(np.ravel(bags.covariates).tolist()) & set(np.ravel(covariates).tolist())
    assert len(roll.training("direct")[1]) == 10


@pytest.mark.slow
def test_priors_have_their_mode_where_they_say(script):
    prior = script.about(0.3, 1.5)
    grid = np.geomspace(0.01, 10.0, 2001)
    assert abs(np.log(grid[np.argmax(prior.log_prob(grid))] / 0.3)) < 0.004  # the grid's spacing


def test_maxima_are_found(script):
    assert script.local_maxima(np.array([1.0, 3.0, 2.0, 0.0, 5.0])) == [1, 4]


@pytest.mark.nightly
def test_tables_and_figures(script, tmp_path):
    options = "--seeds 1 --first-seed 0 --points 150 --slices 6 --inducing 8 --draws 20"
    options += " --models VarCMP,GPR --settings indirect"
    result = CliRunner().invoke(script.main, [*options.split(), "--output", str(tmp_path)], catch_exceptions=False)
    rows = [line.split() for line in result.output.splitlines()]
    errors = {(row[1], row[2]): float(row[3]) for row in rows if row and row[0] == "0"}
    assert set(errors) == {("indirect", "VarCMP"), ("indirect", "GPR")}
    assert all(0.0 < error < 2.0 for error in errors.values())
    assert sum(row[:2] == ["indirect", "GPR"] for row in rows) == 2  # one row of errors, one of times
    assert any(row[:1] == ["quantiles"] for row in rows)
    assert {path.name for path in tmp_path.iterdir()} == {"predictions.png", "bag_lengthscale.png"}
