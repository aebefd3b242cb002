"""The table of explained rows and the waterfalls hold the numbers of the explanation."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
import xarray as xr

import kpp
from kpp_study.report.rows import MAX_ROWS, Predicted, row_table


def numbers(text: str) -> list[float]:
    return [float(part.replace("\u2212", "-").replace(",", "")) for part in text.split(" to ")]


def table_of(explanation, waterfalls=None, observed=None, max_features=15):
    waterfalls = range(len(explanation)) if waterfalls is None else waterfalls
    return row_table(explanation, waterfalls, observed, max_features=max_features)


@pytest.mark.slow_variants("options3")
@pytest.mark.parametrize("options", [{}, {"draws": True}, {"covariance": True}, {"draws": True, "covariance": True}])
def test_cells_are_means_with_the_intervals_of_the_explanation(make_explanation, options):
    explanation = make_explanation(**options)
    mean, table = explanation.mean(), table_of(explanation)
    assert table.has_intervals == bool(options)
    for index, row in enumerate(table.rows):
        assert row.name == f"Row {index}"
        assert numbers(row.prediction)[0] == pytest.approx(float(mean.predictions[index]), rel=1e-3)
        for (name, is_number), cell in zip(table.features, row.cells, strict=True):
            assert numbers(cell.size)[0] == pytest.approx(float(mean.values.sel(feature=name)[index]), rel=1e-2)
            if options:
                bounds = explanation.interval(0.9).sel(feature=name)[index]
                np.testing.assert_allclose(numbers(cell.interval), bounds, rtol=1e-2)
            if is_number:
                assert numbers(cell.value)[0] == pytest.approx(float(mean.data.sel(feature=name)[index]), rel=1e-3)
            else:
                assert cell.value == ("Bern", "Rome")[index % 2]


def test_features_are_ordered_by_their_mean_absolute_contribution(make_explanation):
    explanation = make_explanation(20)
    importance = abs(explanation.values).mean("instance")
    expected = sorted(explanation.feature_names, key=lambda name: -float(importance.sel(feature=name)))
    assert [name for name, _ in table_of(explanation).features] == expected
    assert [name for name, _ in table_of(explanation, max_features=2).features] == expected[:2]


def test_the_interval_of_a_prediction_is_that_of_the_sum_of_its_contributions(make_explanation):
    """The variance of a sum is the sum of all covariances; draws alone give the quantiles of the predictions."""
    gaussian = make_explanation(covariance=True)
    scale = np.sqrt(gaussian.covariance.sum(("feature", "feature_other")))
    drawn = make_explanation(draws=True)
    low, high = drawn.predictions.quantile([0.05, 0.95], ("chain", "draw"))
    for index, (one, other) in enumerate(zip(table_of(gaussian).rows, table_of(drawn).rows, strict=True)):
        center = float(gaussian.predictions[index])
        expected = scipy.stats.norm.interval(0.9, center, float(scale[index]))
        np.testing.assert_allclose(numbers(one.interval), expected, rtol=1e-2)
        np.testing.assert_allclose(numbers(other.interval), [low[index], high[index]], rtol=1e-2)


def test_a_covariance_across_instances_gives_the_same_intervals(make_explanation):
    """The covariance of one instance is the block on the diagonal."""
    own = make_explanation(4, covariance=True)
    dataset, blocks = own.dataset.drop_vars("covariance"), own.covariance.values
    across = np.zeros((4, 4, 3, 3))
    across[np.arange(4), np.arange(4)] = blocks
    dims = ("instance", "instance_other", "feature", "feature_other")
    joint = kpp.Explanation(dataset.assign(covariance=xr.DataArray(across, dims=dims)))
    assert [row.interval for row in table_of(joint).rows] == [row.interval for row in table_of(own).rows]


def test_variances_alone_give_no_interval_of_a_prediction(make_explanation):
    explanation = make_explanation(variance=np.ones((5, 3)))
    table = table_of(explanation)
    assert table.has_intervals
    assert {row.interval for row in table.rows} == {""}


def test_a_waterfall_goes_from_the_base_value_to_the_prediction(make_explanation):
    explanation = make_explanation(3)
    for index, row in enumerate(table_of(explanation).rows):
        sizes = [numbers(step.size)[0] for step in row.waterfall.steps]
        assert np.abs(sizes).tolist() == sorted(np.abs(sizes), reverse=True)
        base = numbers(row.waterfall.base)[0]
        assert base + sum(sizes) == pytest.approx(float(explanation.predictions[index]), abs=0.03)  # rounded numbers
        assert all(("up" in step.picture) == step.size.startswith("+") for step in row.waterfall.steps)
        assert row.waterfall.steps[0].label.split(" = ")[0] in row.waterfall.strongest


def test_the_small_contributions_are_one_step(make_explanation):
    explanation = make_explanation(2, names=tuple("abcdef"))
    steps = table_of(explanation, max_features=3).rows[0].waterfall.steps
    values = np.sort(np.abs(explanation.values.values[0]))
    assert [step.label for step in steps][2] == "4 other features"
    order = np.argsort(-np.abs(explanation.values.values[0]))
    assert numbers(steps[2].size)[0] == pytest.approx(explanation.values.values[0][order[2:]].sum(), rel=1e-2)
    assert values.size == 6


def test_what_an_explainer_leaves_unexplained_is_a_step(make_explanation):
    explanation = make_explanation(2)
    explanation = kpp.Explanation(explanation.dataset.assign(predictions=explanation.predictions + 3.0))
    last = table_of(explanation).rows[1].waterfall.steps[-1]
    assert (last.label, last.size) == ("not attributed to features", "+3")


def test_at_most_200_predictions_are_shown_from_the_lowest_to_the_highest(make_explanation):
    explanation = make_explanation(3 * MAX_ROWS)
    wanted = [7, 8, 9]
    table = table_of(explanation, wanted)
    assert (table.shown, table.total, len(table.rows)) == (MAX_ROWS, 3 * MAX_ROWS, MAX_ROWS)
    assert sorted(row.name for row in table.waterfalls) == ["Row 7", "Row 8", "Row 9"]
    order = np.argsort(explanation.predictions.values)
    shown = {row.name for row in table.rows}
    assert {f"Row {order[0]}", f"Row {order[-1]}"} <= shown
    positions = np.flatnonzero([f"Row {position}" in shown for position in order])
    assert np.diff(positions).max() <= 4  # every third of 600 rows


def test_waterfalls_are_in_the_order_of_predictions(make_explanation):
    explanation = make_explanation(9)
    table = table_of(explanation)
    predictions = [numbers(row.prediction)[0] for row in table.waterfalls]
    assert predictions == sorted(predictions)
    assert len({row.key for row in table.rows}) == 9


def test_each_output_has_its_row(make_explanation):
    explanation = make_explanation(150, outputs=["no", "yes"])
    table = table_of(explanation)
    assert (table.shown, len(table.rows)) == (100, 200)
    assert [row.output for row in table.rows[:4]] == ["no", "yes", "no", "yes"]
    number = int(table.rows[1].name.removeprefix("Row "))
    expected = float(explanation.predictions.sel(output="yes")[number])
    assert numbers(table.rows[1].prediction)[0] == pytest.approx(expected, rel=1e-3)
    assert len({row.key for row in table.rows}) == 200


@pytest.mark.parametrize(
    ("observed", "kind"), [(["1", "2.5", "-3e+05"], "number"), (["3 to 1", "2", "1"], "text"), (None, "")]
)
def test_observed_values_are_sorted_as_numbers_only_if_all_are(make_explanation, observed, kind):
    assert table_of(make_explanation(3), observed=observed).observed == kind


def test_what_else_is_predicted_has_its_column(make_explanation):
    """The quantiles of the draws 0, 1, ..., 100 are these numbers."""
    explanation = make_explanation(2)
    draws = np.stack([np.arange(101.0), 10 * np.arange(101.0)], axis=1)
    observation = Predicted.observation(draws)
    table = row_table(explanation, [0], None, max_features=3, predicted=observation)
    assert (table.prediction, table.further) == ("mean prediction", "90% interval of a new observation")
    assert [row.further for row in table.rows] == ["5 to 95", "50 to 950"]
    label = Predicted.probability(np.array([0.25, 0.9]), "log-odds")
    table = row_table(explanation, [0], None, max_features=3, predicted=label)
    assert (table.prediction, table.further, table.rows[1].further) == ("log-odds", "probability", "0.900")


def test_a_group_of_columns_has_no_value(make_explanation):
    dataset = make_explanation(2).dataset.copy(deep=True)
    dataset["data"].loc[{"feature": "age"}] = np.nan
    dataset.attrs["groups"] = {"age": ["year", "month"]}
    row = table_of(kpp.Explanation(dataset)).rows[0]
    assert "age" in [step.label for step in row.waterfall.steps]
    assert "\u2013" in [cell.value for cell in row.cells]
