"""Measured intervals: one list of simulations, one command, and a page that holds nothing but the stored results."""

from __future__ import annotations

import numpy as np
import pytest

from examples.coverage import page, simulations
from examples.coverage.simulations import Intervals

FOUND = simulations.simulations()
# A share may differ from the nominal one by this much, and by two standard errors, before the page must say why.
ALLOWED = 0.03


def test_the_page_is_that_of_the_stored_results():
    """After a change of a result or of the list: `python -m examples.coverage --page`."""
    assert page.PAGE.read_text(encoding="utf-8") == page.render()


def test_every_simulation_has_a_stored_result_and_no_result_is_of_another():
    assert {path.stem for path in simulations.RESULTS.glob("*.json")} == set(FOUND)


@pytest.mark.parametrize("name", FOUND)
def test_a_share_that_differs_is_explained(name):
    stored, simulation = page.read(name), FOUND[name]
    assert (stored["law"], stored["rows"], stored["nominal"]) == (simulation.law, simulation.rows, simulation.nominal)
    far = [
        row["quantity"]
        for row in stored["quantities"]
        if abs(row["held"] - row.get("nominal", stored["nominal"])) > ALLOWED + 2 * row["standard_error"]
    ]
    far += [row["quantity"] for row in stored["quantities"] if row.get("uniform", 1.0) < 0.01]
    assert bool(far) <= bool(simulation.known), f"{far} need the sentence `known`"


def test_the_share_held_and_its_standard_error():
    data_sets = [Intervals([0.0, 1.0], [-1.0, 2.0], [1.0, 4.0]), Intervals([0.0, 1.0], [-1.0, 0.0], [1.0, 3.0])]
    name = next(iter(FOUND))
    found = {"mean": [list(simulations.summarize(intervals)) for intervals in data_sets]}
    row = simulations.result(name, found, 1.0, "abc")["quantities"][0]
    expected = {"held": 0.75, "width": (2 + 2 + 2 + 3) / 4, "error": np.sqrt((0 + 4 + 0 + 0.25) / 4), "data_sets": 2}
    assert {key: row[key] for key in expected} == pytest.approx(expected, rel=1e-3)
    assert row["standard_error"] == pytest.approx(np.std([0.5, 1.0]) / np.sqrt(2), abs=1e-4)


def test_ranks_of_truths_among_draws_are_tested():
    """60 truths below all draws of their posteriors, and 60 at every place among them."""
    draws = np.tile(np.arange(99.0)[:, None], 2)
    for truths, is_uniform in ((np.full(60, -1.0), False), (np.linspace(-0.5, 98.5, 60), True)):
        data_sets = [Intervals(np.full(2, truth), 4.0, 94.0, draws) for truth in truths]
        found = [[*simulations.summarize(one), *simulations.ranks(one)] for one in data_sets]
        assert found[0][3:] == [0, 0]
        row = simulations.result(next(iter(FOUND)), {"mean": found}, 1.0, "abc")["quantities"][0]
        assert (row["uniform"] > 0.5) == is_uniform and (row["uniform"] < 1e-6) != is_uniform
        assert "ranks: p" in page.uniformity(row)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_interval_that_is_not_finite_is_an_error(value):
    with pytest.raises(ValueError, match="not finite"):
        simulations.summarize(Intervals(0.0, value, 1.0))


def seconds(name):
    """What a data set took when the stored result was made."""
    stored = page.read(name)
    return stored["seconds"] / stored["quantities"][0]["data_sets"]


# The cheapest simulation of each kind of interval; the nightly workflow runs two data sets of every simulation.
# Certificates take 40 s each; tests/calibration/test_certificate.py asserts more of them, with fewer draws.
KINDS = {
    FOUND[name].kind: name for name in sorted(FOUND, key=seconds, reverse=True) if not name.startswith("certificate")
}
# These compile for more than 2.5 seconds; their models have tests of their own.
LONG = (
    "measure_aggregates measure_amortized measure_by_graph measure_chain measure_change measure_collider "
    "measure_confounded measure_counts measure_curve measure_cxplain measure_drawn measure_duels measure_effect "
    "measure_fit measure_fusion measure_gpec measure_indices measure_many_rows measure_map measure_mediation "
    "measure_observed measure_policies measure_rankings measure_ranks measure_rows measure_smooth measure_subgroups "
    "measure_two_treatments measure_untreated measure_values"
).split()


@pytest.mark.slow
@pytest.mark.nightly_variants(*LONG)
@pytest.mark.parametrize("kind", KINDS)
def test_a_data_set_of_each_kind(kind):
    name = KINDS[kind]
    found = FOUND[name].measure(0)
    stored = {row["quantity"] for row in page.read(name)["quantities"]}
    assert found.keys() == stored
    for intervals in found.values():
        assert np.all(np.asarray(intervals.low) <= np.asarray(intervals.high))
        simulations.summarize(intervals)
