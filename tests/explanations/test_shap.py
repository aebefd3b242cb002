"""Explanations of shap read and written: round trips, shapes, bounds, interactions, and what is refused."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

import kpp
from kpp.games import (
    Interventional,
    all_coalitions,
    interaction_values,
    interactions_from_table,
    shapley_values,
    shapley_values_from_table,
)

shap = pytest.importorskip("shap")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4))
Y = X[:, 0] * X[:, 1] + X[:, 2]


def smooth(x):
    x = np.asarray(x)
    return x[:, 0] * x[:, 1] * x[:, 2] + np.sin(x[:, 3]) * x[:, 0]


@pytest.mark.parametrize("outputs", [False, True])
@pytest.mark.parametrize("draws", [False, True])
def test_what_shap_got_comes_back(make, draws, outputs):
    explanation = make(draws, outputs)
    mean, back = explanation.mean(), kpp.Explanation.from_shap(explanation.to_shap())
    for name in ("values", "base_values", "predictions"):
        np.testing.assert_allclose(getattr(back, name), getattr(mean, name), rtol=1e-12)
    assert back.feature_names == explanation.feature_names
    assert back.output_names == explanation.output_names
    assert back.to_dataframe()["data"].tolist() == explanation.to_dataframe()["data"].tolist()


def test_standard_errors_are_shap_s_error_std():
    errors = np.array([[0.1, 0.2]])
    explanation = kpp.Explanation.create([[1.0, 2.0]], 0.5, [3.5], [[0.0, 1.0]], standard_errors=errors)
    converted = explanation.to_shap()
    np.testing.assert_array_equal(converted.error_std, errors)
    np.testing.assert_array_equal(kpp.Explanation.from_shap(converted).standard_errors, errors)
    np.testing.assert_array_equal(kpp.Explanation.from_shap(converted, error_scale=0.5).standard_errors, errors / 2)


def test_errors_of_permutations_are_scaled_by_their_number():
    k, rows = 40, np.array([[0.5, -1.0, 1.5, 0.7]])
    options = {"max_evals": k * 9, "error_bounds": True, "silent": True}
    runs = [shap.PermutationExplainer(smooth, X[:15], seed=seed)(rows, **options) for seed in range(30)]
    spread = np.std([run.values[0] for run in runs], axis=0, ddof=1)
    read = kpp.Explanation.from_shap(runs[0], error_scale=(2 * k) ** -0.5).standard_errors.values[0]
    # Forward and backward passes of an order are not independent: the scaled deviations are right up to a factor.
    assert (spread < 2 * read + 1e-12).all()
    assert (read < 10 * spread + 1e-12)[:3].all()


@pytest.mark.parametrize("outputs", [False, True])
@pytest.mark.parametrize("law", [None, "variance", "within"])
def test_bounds_are_those_of_the_interval(make, law, outputs):
    explanation = make(law is None, outputs, law=law)
    converted = explanation.to_shap(probability=0.8)
    bounds = explanation.interval(0.8)
    np.testing.assert_allclose(
        converted.lower_bounds, bounds.sel(bound="lower").transpose(*explanation.mean().values.dims)
    )
    np.testing.assert_allclose(
        converted.upper_bounds, bounds.sel(bound="upper").transpose(*explanation.mean().values.dims)
    )


def test_a_certain_explanation_has_no_bounds(make):
    converted = make().to_shap()
    assert converted.lower_bounds is None
    assert converted.error_std is None


def test_the_waterfall_of_shap_draws_the_bounds(make):
    explanation = make(True)
    converted = explanation.to_shap(probability=0.9)[1]
    shap.plots.waterfall(converted, show=False)
    # Each error bar is a line as long as the distance of the bounds.
    containers = [container for axis in plt.gcf().axes for container in axis.containers]
    bars = [container.lines[2][0].get_segments()[0][:, 0] for container in containers if hasattr(container, "has_xerr")]
    expected = converted.upper_bounds - converted.lower_bounds
    np.testing.assert_allclose(sorted(end - start for start, end in bars), sorted(expected), rtol=1e-9)
    plt.close("all")


def test_outputs_of_trees_are_read():
    forest = RandomForestClassifier(5, random_state=0).fit(X, (Y > 0).astype(int) + (Y > 1))
    tree = shap.TreeExplainer(forest)
    read = kpp.Explanation.from_shap(tree(X[:3]))
    assert read.values.dims == ("instance", "feature", "output")
    np.testing.assert_allclose(read.predictions, forest.predict_proba(X[:3]), atol=1e-12)
    one = kpp.Explanation.from_shap(tree(X[:3])[1])
    np.testing.assert_array_equal(one.values, read.values[1:2])
    single = kpp.Explanation.from_shap(tree(X[:3])[:, :, 2])
    np.testing.assert_array_equal(single.values, read.values[..., 2])
    assert single.output_names is None


def path_dependent_value(tree, x, coalition, node=0):
    """The value of a coalition by TreeSHAP's game: absent features go both ways, weighted by the rows there."""
    left, right, feature = tree.children_left[node], tree.children_right[node], tree.feature[node]
    if left < 0:
        return tree.value[node].item()
    if feature in coalition:
        return path_dependent_value(tree, x, coalition, left if x[feature] <= tree.threshold[node] else right)
    weights = tree.weighted_n_node_samples
    parts = [weights[child] * path_dependent_value(tree, x, coalition, child) for child in (left, right)]
    return sum(parts) / weights[node]


def test_interactions_of_trees_are_k_sii_of_their_game():
    forest = RandomForestRegressor(3, max_depth=4, random_state=0).fit(X.astype(np.float32), Y)
    explainer, rows = shap.TreeExplainer(forest), X[:2].astype(np.float32)
    read = kpp.Explanation.from_shap(explainer(rows, interactions=True))
    coalitions = [np.flatnonzero(row) for row in all_coalitions(4)]
    values = np.array(
        [[np.mean([path_dependent_value(t.tree_, x, s) for t in forest]) for x in rows] for s in coalitions]
    )
    pairs = np.moveaxis(np.asarray(interactions_from_table(values)), -1, 0)
    shapley = np.asarray(shapley_values_from_table(values)).T
    single = shapley - pairs.sum(axis=2) / 2
    # shap's own code of trees adds up in float64 with features in float32.
    np.testing.assert_allclose(read.values, shapley, atol=1e-6)
    np.testing.assert_allclose(read.interactions, pairs + single[:, :, None] * np.eye(4), atol=1e-6)
    np.testing.assert_allclose(read.predictions, forest.predict(rows), atol=1e-6)


@pytest.mark.slow
def test_exact_interactions_are_the_shapley_taylor_index():
    read = kpp.Explanation.from_shap(shap.ExactExplainer(smooth, X[:10])(X[:2], interactions=True))
    game = Interventional(X[:10])
    np.testing.assert_allclose(read.values, shapley_values(game, smooth, X[:2]), atol=1e-12)
    np.testing.assert_allclose(read.interactions, interaction_values(game, smooth, X[:2], index="STII"), atol=1e-12)


def test_text_becomes_categories():
    frame = pd.DataFrame({"age": [30.0, 40.0], "town": ["b", "a"]})
    given = shap.Explanation(np.ones((2, 2)), np.zeros(2), frame.to_numpy(), feature_names=list(frame))
    for read in (kpp.Explanation.from_shap(given), kpp.Explanation.from_shap(given, data=frame)):
        assert read.schema.levels == {"town": ("a", "b")}
        assert read.data.values.tolist() == [[30.0, 1.0], [40.0, 0.0]]


def test_missing_parts_are_named():
    values, rows = np.ones((2, 3)), np.zeros((2, 3))
    with pytest.raises(TypeError, match="`explanation` must be a shap.Explanation, got builtins.str"):
        kpp.Explanation.from_shap("no explanation")
    with pytest.raises(ValueError, match="no base_values; give `base_values`"):
        kpp.Explanation.from_shap(shap.Explanation(values, data=rows))
    with pytest.raises(ValueError, match="no data; give `data`"):
        kpp.Explanation.from_shap(shap.Explanation(values, np.zeros(2)))
    with pytest.raises(ValueError, match=r"must have values of its data, \(2, 2\), got shape \(2, 3\)"):
        kpp.Explanation.from_shap(shap.Explanation(values, np.zeros(2)), data=rows[:, :2])
    with pytest.raises(ValueError, match="`error_scale`"):
        kpp.Explanation.from_shap(shap.Explanation(values, np.zeros(2), rows), error_scale=0.0)
    with pytest.raises(ValueError, match=r"`base_values` must have shape \(2,\), got shape \(3,\)"):
        kpp.Explanation.from_shap(shap.Explanation(values, data=rows), base_values=np.zeros(3))
    read = kpp.Explanation.from_shap(shap.Explanation(values, data=rows), base_values=2.0)
    np.testing.assert_array_equal(read.predictions, [5.0, 5.0])


def interactions(table, index, order, *, estimated=False, baseline=0.5):
    """A stand-in for shapiq's InteractionValues with the attributes that are read."""
    return SimpleNamespace(
        interaction_lookup={members: number for number, members in enumerate(table)},
        values=np.array(list(table.values())),
        index=index,
        max_order=order,
        min_order=0,
        n_players=2,
        baseline_value=baseline,
        estimated=estimated,
        estimation_budget=64 if estimated else None,
    )


TABLE = {(): 0.5, (0,): 1.0, (1,): -2.0, (0, 1): 3.0}


def test_interactions_that_add_up_are_shared():
    read = kpp.Explanation.from_shapiq(interactions(TABLE, "k-SII", 2), [1.0, 2.0], feature_names=["a", "b"])
    np.testing.assert_array_equal(read.values, [[2.5, -0.5]])
    np.testing.assert_array_equal(read.predictions, [2.5])
    np.testing.assert_array_equal(read.interactions, [[[1.0, 3.0], [3.0, -2.0]]])
    assert read.feature_names == ("a", "b")
    assert (read.attrs["index"], read.attrs["order"], read.attrs["exact"]) == ("k-SII", 2, True)


def test_shapley_values_are_not_changed():
    several = [interactions(TABLE, "SII", 2, estimated=True), interactions(TABLE, "SII", 2, baseline=1.5)]
    read = kpp.Explanation.from_shapiq(several, np.eye(2))
    np.testing.assert_array_equal(read.values, [[1.0, -2.0]] * 2)
    np.testing.assert_array_equal(read.base_values, [0.5, 1.5])
    np.testing.assert_array_equal(read.interactions, [[[0.0, 3.0], [3.0, 0.0]]] * 2)
    assert (read.attrs["exact"], read.attrs["coalitions"]) == (False, 64)


def test_other_indices_need_the_predictions():
    values = interactions(TABLE, "BV", 1)
    with pytest.raises(ValueError, match="`predictions` must be given, since values of the index 'BV' do not add up"):
        kpp.Explanation.from_shapiq(values, np.zeros((1, 2)))
    read = kpp.Explanation.from_shapiq(values, np.zeros((1, 2)), predictions=[4.0])
    assert float(read.additivity_error()[0]) == 4.5


def test_values_of_shapiq_that_do_not_fit_are_refused():
    one = interactions(TABLE, "SV", 1)
    with pytest.raises(TypeError, match="`values` must be a shapiq.InteractionValues, got builtins.int"):
        kpp.Explanation.from_shapiq([3], np.zeros((1, 2)))
    with pytest.raises(ValueError, match="one per player"):
        kpp.Explanation.from_shapiq(one, np.zeros((1, 3)))
    with pytest.raises(ValueError, match="`values` must have one `index`, got"):
        kpp.Explanation.from_shapiq([one, interactions(TABLE, "SII", 1)], np.zeros((2, 2)))
    with pytest.raises(ValueError, match="same number of rows|rows"):
        kpp.Explanation.from_shapiq([one, one], np.zeros((1, 2)))
    one.min_order = 2
    with pytest.raises(ValueError, match="`min_order`"):
        kpp.Explanation.from_shapiq(one, np.zeros((1, 2)))


@pytest.mark.slow
def test_a_fit_s_posterior_goes_to_shap_with_its_bounds():
    function = kpp.RKHSFunction.over_draws(
        kpp.kernels.RBF(1.0), X[:10], RNG.normal(size=(2, 25, 10)), batch_shape=(2, 25)
    )
    explanation = kpp.explain(function, X[:2], explainer="kernel-shap", background=X[:5], rng_key=jax.random.key(0))
    converted = explanation.to_shap()
    assert (converted.lower_bounds <= converted.values).all()
    assert (converted.values <= converted.upper_bounds).all()


def test_numbers_that_the_data_hold_as_text_are_categories():
    """The values are known, so that it does not matter how a model would read the data."""
    shown = shap.Explanation(np.ones((3, 2)), np.zeros(3), data=np.array([["1", 0.5], ["2", 1.5], ["1", 2.5]], object))
    read = kpp.Explanation.from_shap(shown)
    assert read.schema.levels == {"x0": ("1", "2")}
    np.testing.assert_array_equal(read.data.values, [[0, 0.5], [1, 1.5], [0, 2.5]])
