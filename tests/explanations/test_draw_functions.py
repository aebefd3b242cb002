"""Functions of other libraries that predict posterior draws, with the axes of draws named."""

from __future__ import annotations

import jax
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import kpp

RNG = np.random.default_rng(0)
SLOPES = RNG.normal(size=(2, 5, 3))
X, BACKGROUND = RNG.normal(size=(4, 3)), RNG.normal(size=(6, 3))


def by_chain_and_draw(x):
    return np.einsum("csk,nk->csn", SLOPES, x)


FORMS = [
    (by_chain_and_draw, ("chain", "draw"), 2),
    (lambda x: by_chain_and_draw(x).swapaxes(0, 1), ("draw", "chain"), 2),
    (lambda x: by_chain_and_draw(x)[1], "draw", 1),
    (
        lambda x: xr.DataArray(by_chain_and_draw(x), dims=("chain", "draw", "obs")).transpose("obs", ...),
        ("chain", "draw"),
        2,
    ),
]


@pytest.mark.slow_variants("by_chain_and_draw-axes0-2")
@pytest.mark.parametrize(("function", "axes", "chains"), FORMS)
def test_shapley_values_of_a_linear_function_are_exact_for_every_draw(function, axes, chains):
    wrapped = kpp.DrawFunction(function, draw_axes=axes)
    explanation = kpp.explain(wrapped, X, explainer="kernel-shap", background=BACKGROUND)
    assert explanation.values.sizes == {"chain": chains, "draw": 5, "instance": 4, "feature": 3}
    expected = SLOPES[-chains:, :, None, :] * (X - BACKGROUND.mean(axis=0))
    np.testing.assert_allclose(explanation.values, expected, atol=1e-12)


def test_chains_without_draws_and_outputs_with_names():
    wrapped = kpp.DrawFunction(
        lambda x: np.stack([x @ SLOPES[0, 0], x @ SLOPES[0, 1]], axis=-1)[None], "chain", output_names=["a", "b"]
    )
    explanation = kpp.explain(wrapped, X, explainer="kernel-shap", background=BACKGROUND)
    assert explanation.values.sizes == {"chain": 1, "draw": 1, "instance": 4, "feature": 3, "output": 2}
    assert explanation.output_names == ("a", "b")


@pytest.mark.slow
def test_a_function_of_data_frames_gets_text_and_booleans_again():
    table = pd.DataFrame({"age": [1.0, 2.0, 3.0], "region": ["south", "north", "south"], "old": [False, True, True]})

    def predict(frame):
        assert frame["region"].dtype == table["region"].dtype and frame["old"].dtype == bool
        mean = frame["age"] + 10.0 * (frame["region"] == "north") + 100.0 * frame["old"]
        return np.stack([mean, 2.0 * mean])

    wrapped = kpp.DrawFunction(predict, "draw", table=table)
    explanation = kpp.explain(wrapped, table[["region", "old", "age"]], explainer="kernel-shap", background=table)
    contributions = [
        table["age"] - 2.0,
        10.0 * (table["region"] == "north") - 10.0 / 3.0,
        100.0 * table["old"] - 200.0 / 3.0,
    ]
    np.testing.assert_allclose(explanation.values[0, 1], 2.0 * np.stack(contributions, axis=1), atol=1e-10)
    assert list(explanation.values["feature"].values) == ["age", "region", "old"]


@pytest.mark.slow
def test_instances_are_explained_in_blocks_if_there_are_many_draws(monkeypatch):
    module = pytest.importorskip("kpp_surrogates.shapley")
    wrapped = kpp.DrawFunction(by_chain_and_draw)
    expected = kpp.explain(wrapped, X, explainer="kernel-shap", background=BACKGROUND)
    monkeypatch.setattr(module, "_MAX_ENTRIES", 10 * 2048 * 2)  # two instances
    seen = []
    counted = kpp.DrawFunction(lambda x: (seen.append(len(x)), by_chain_and_draw(x))[1])
    found = kpp.explain(counted, X, explainer="kernel-shap", background=BACKGROUND)
    np.testing.assert_allclose(found.values, expected.values, atol=1e-12)
    assert max(seen) < 8 * 6 * 4  # all coalitions, background rows and instances


@pytest.mark.slow
def test_as_many_draws_as_coalitions_and_points_are_not_mixed_up():
    """Two features have four coalitions: with four chains and draws, only the number of axes tells them apart."""
    slopes = RNG.normal(size=(4, 4, 2))
    wrapped = kpp.DrawFunction(lambda x: np.einsum("csk,nk->csn", slopes, x))
    explanation = kpp.explain(wrapped, X[:, :2], explainer="kernel-shap", background=BACKGROUND[:, :2])
    expected = slopes[:, :, None, :] * (X[:, :2] - BACKGROUND[:, :2].mean(axis=0))
    np.testing.assert_allclose(explanation.values, expected, atol=1e-12)


def test_many_draws_are_sampled_with_standard_errors():
    wrapped = kpp.DrawFunction(by_chain_and_draw)
    explanation = kpp.explain(
        wrapped, X, explainer="kernel-shap", background=BACKGROUND, num_coalitions=8, rng_key=jax.random.key(0)
    )
    assert explanation.values.sizes["draw"] == 5


def test_bad_arguments_are_named():
    with pytest.raises(TypeError, match="`function` must be a function"):
        kpp.DrawFunction(3)
    for axes in ("sample", ("draw", "draw"), ()):
        with pytest.raises(ValueError, match="`draw_axes` must be 'draw', 'chain', or both"):
            kpp.DrawFunction(by_chain_and_draw, axes)
    with pytest.raises(ValueError, match=r"the axes \('draw', 'point'\).*got shape \(2, 5, 4\)"):
        kpp.DrawFunction(by_chain_and_draw, "draw")(X)
    with pytest.raises(ValueError, match="must return the dimensions"):
        kpp.DrawFunction(lambda x: xr.DataArray(x, dims=("a", "b")))(X)
