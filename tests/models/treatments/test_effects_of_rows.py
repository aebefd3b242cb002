"""The effect in each row against dense posteriors, and rank-weighted effects against a loop over rows."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
import xarray as xr

import kpp
from kpp.causal import CausalDAG
from kpp.gp import BernoulliLikelihood
from kpp.kernels import RBF
from kpp_models import GeneralizedGP, GPRegression, causal_effect, rank_weighted_effect

KEY = jax.random.key(0)
GRAPH = CausalDAG([("z", "t"), ("z", "y"), ("t", "y")])
NAMES = {"treatment": "t", "outcome": "y"}
SCALES, NOISE, NUM_DRAWS = np.array([1.0, 1.5]), 0.09, 2000
RNG = np.random.default_rng(0)
Z = RNG.normal(size=40)
T = (RNG.uniform(size=40) < 0.5).astype(float)
TABLE = pd.DataFrame({"t": T, "z": Z, "y": T * (1 + Z) + 0.3 * RNG.normal(size=40)})
OLDER = Z > 0


@pytest.fixture(scope="module")
def fit():
    """A Gaussian process with known hyperparameters: the posterior is exact."""
    model = GPRegression(RBF(jnp.asarray(SCALES), 4.0), noise_variance=NOISE)
    return model.fit(KEY, TABLE[["t", "z"]], TABLE["y"], inference=kpp.MAP(progress=False), num_prior_samples=0)


@pytest.fixture(scope="module")
def effect(fit):
    with warnings.catch_warnings(action="ignore"):  # few rows
        return causal_effect(KEY, fit, GRAPH, **NAMES, rows=OLDER, by_row=True, num_draws=NUM_DRAWS)


def kernel(first, second):
    return 4.0 * np.exp(-0.5 * (((first[:, None] - second[None]) / SCALES) ** 2).sum(-1))


def contrast_law(z):
    """The mean and the covariance of f(1, z) - f(0, z) by dense matrices."""
    data = TABLE[["t", "z"]].to_numpy()
    one, zero = (np.column_stack([np.full(len(z), value), z]) for value in (1.0, 0.0))
    cross = kernel(one, data) - kernel(zero, data)
    prior = kernel(one, one) - kernel(one, zero) - kernel(zero, one) + kernel(zero, zero)
    gram = kernel(data, data) + NOISE * np.eye(len(data))
    return cross @ np.linalg.solve(gram, TABLE["y"]), prior - cross @ np.linalg.solve(gram, cross.T)


@pytest.mark.slow
def test_effects_of_rows_have_the_joint_law_of_the_posterior(effect):
    """2000 draws: means have standard errors of 2.2 % of the largest sd, and covariances of 3.2 % of its square."""
    mean, covariance = contrast_law(Z[OLDER])
    contrast = effect.contrast(1.0, 0.0, by_row=True)
    assert contrast.dims == ("chain", "draw", "row")
    assert contrast["row"].to_numpy().tolist() == np.flatnonzero(OLDER).tolist()
    draws = contrast.to_numpy()[0]
    np.testing.assert_allclose(draws.mean(0), mean, atol=4 * 0.022 * np.sqrt(covariance.max()))
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=4 * 0.032 * covariance.max())


@pytest.mark.slow
def test_the_contrast_as_a_function_has_the_law_of_the_posterior_at_new_rows(effect):
    """400 draws: means have standard errors of 5 % of the largest sd, and covariances of 7 % of its square."""
    function, rows = effect.contrast_function(KEY, 1.0, 0.0, num_draws=400)
    pd.testing.assert_frame_equal(rows, TABLE[["z"]])
    z = np.linspace(-1.5, 1.5, 6)
    draws = function(z[:, None])[0]
    mean, covariance = contrast_law(z)
    np.testing.assert_allclose(draws.mean(0), mean, atol=4 * 0.05 * np.sqrt(covariance.max()))
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=4 * 0.07 * covariance.max())
    again = kpp.DrawFunction(function, table=rows)(z[:, None])  # data frames, as explainers pass them
    np.testing.assert_array_equal(again[0], draws)


@pytest.mark.slow
def test_an_explanation_of_a_contrast_sums_to_it(effect):
    # With one covariate its Shapley value is the whole difference from the mean of the background.
    rows = TABLE[["z"]].iloc[:3]
    explanation = effect.explain(KEY, 1.0, 0.0, rows, progress=False)
    function = effect.contrast_function(KEY, 1.0, 0.0)[0]
    expected = function(rows.to_numpy()) - function(TABLE[["z"]].to_numpy()).mean(axis=2, keepdims=True)
    np.testing.assert_allclose(explanation.values[..., 0], expected, rtol=1e-6, atol=1e-8)


@pytest.mark.nightly
@pytest.mark.parametrize("is_label", [False, True])
def test_the_contrast_as_a_function_is_that_of_the_rows(is_label):
    """Both have the same means, with standard errors of their sd divided by the root of 250 (see the draws below)."""
    town = np.where(RNG.uniform(size=40) < 0.5, "north", "south")
    y = TABLE["y"] * 10 + 3 * (town == "north")
    table = TABLE.assign(town=town, y=y > y.median() if is_label else y)
    graph = CausalDAG([("z", "t"), ("z", "y"), ("town", "t"), ("town", "y"), ("t", "y")])
    with warnings.catch_warnings(action="ignore"):  # few rows
        inference = kpp.Laplace(num_samples=50, progress=False)
        effect = causal_effect(KEY, table, graph, **NAMES, by_row=True, inference=inference, num_draws=250)
    of_rows = effect.contrast(1.0, 0.0, by_row=True).stack(sample=("chain", "draw"))
    function, rows = effect.contrast_function(KEY, 1.0, 0.0, num_draws=250)
    explained = effect.explain(KEY, 1.0, 0.0, rows[:2], progress=False)
    assert rows["town"].tolist() == table["town"].tolist()
    found = function(function.schema.read(rows, "x")).reshape(-1, 40)
    assert len(found) == 250
    sd = of_rows.std("sample").to_numpy()
    np.testing.assert_allclose(found.mean(0), of_rows.mean("sample"), atol=5 * np.max(sd) * np.sqrt(2 / 250))
    np.testing.assert_allclose(found.std(0), sd, rtol=0.35)
    assert explained.values["feature"].values.tolist() == ["z", "town"]


@pytest.mark.slow
def test_what_is_no_function_of_covariates_is_refused(effect):
    with pytest.raises(ValueError, match="`value` must be a treatment of the curve, got 7.0"):
        effect.contrast_function(KEY, 7.0, 0.0)
    with pytest.raises(ValueError, match="`num_draws` must be"):
        effect.contrast_function(KEY, 1.0, 0.0, num_draws=0)
    shares = {"share_of_treatment": dist.Beta(2.0, 20.0), "share_of_outcome": dist.Beta(2.0, 20.0)}
    with pytest.raises(ValueError, match="`contrast_function` needs values of one treatment, .* no hidden confounder"):
        effect.with_hidden_confounder(KEY, **shares).explain(KEY, 1.0, 0.0)


@pytest.mark.slow
def test_shifts_and_units_of_the_outcome_hold_for_rows_too(effect):
    rows = effect.dataset["effect_of_rows"]
    np.testing.assert_allclose(effect.rescaled(3.0, 2.0).dataset["effect_of_rows"], 2 * rows + 3)
    shares = {"share_of_treatment": dist.Beta(2.0, 20.0), "share_of_outcome": dist.Beta(2.0, 20.0)}
    hidden = effect.with_hidden_confounder(KEY, **shares)
    moved = hidden.contrast(1.0, 0.0, by_row=True) - effect.contrast(1.0, 0.0, by_row=True)
    of_mean = hidden.contrast(1.0, 0.0) - effect.contrast(1.0, 0.0)
    np.testing.assert_allclose(moved, np.broadcast_to(of_mean.to_numpy()[..., None], moved.shape), atol=1e-12)


@pytest.mark.nightly
def test_effects_of_labels_are_differences_of_probabilities():
    """The mean probability of a row has a closed form; 2000 draws have standard errors of .5 / sqrt(2000) at most."""
    table = TABLE.assign(y=(TABLE["y"] > 0.5).astype(float))
    model = GeneralizedGP(RBF(jnp.asarray(SCALES), 4.0), BernoulliLikelihood())
    fit = model.fit(KEY, table[["t", "z"]], table["y"], inference=kpp.MAP(progress=False), num_prior_samples=0)
    effect = causal_effect(KEY, fit, GRAPH, **NAMES, by_row=True, num_draws=NUM_DRAWS)
    found = effect.contrast(1.0, 0.0, by_row=True).mean(("chain", "draw"))
    one, zero = (fit.predict(table[["t", "z"]].assign(t=value))["probability"] for value in (1.0, 0.0))
    np.testing.assert_allclose(found, (one - zero).mean(("chain", "draw")), atol=4 * 0.5 / np.sqrt(NUM_DRAWS))


@pytest.mark.parametrize("scores", [RNG.normal(size=40), np.round(RNG.normal(size=40)), np.zeros(40), OLDER])
def test_rank_weighted_effects_are_those_of_their_definition(scores):
    effects = xr.DataArray(RNG.normal(size=(2, 3, 40)) + Z, dims=("chain", "draw", "row"))
    found = rank_weighted_effect(KEY, effects, scores, bootstrap=False)
    order, scores = np.argsort(-np.asarray(scores, float), kind="stable"), np.asarray(scores, float)
    shares = (np.arange(40_000) + 0.5) / 40_000  # midpoints, 1000 for each row
    for place in np.ndindex(2, 3):
        draw = effects.to_numpy()[place]
        alike = np.array([draw[scores == score].mean() for score in scores])  # of the rows with an equal score
        steps = np.repeat(alike[order], 1000) / 40_000
        gains = (np.cumsum(steps) - steps / 2) / shares - draw.mean()
        np.testing.assert_allclose(found["autoc"].to_numpy()[place], gains.mean(), atol=1e-4)
        np.testing.assert_allclose(found["qini"].to_numpy()[place], (shares * gains).mean(), atol=1e-4)
        at_ends = np.cumsum(steps)[1999::2000] / np.linspace(0.05, 1.0, 20) - draw.mean()
        np.testing.assert_allclose(found["toc"].to_numpy()[place], at_ends, atol=1e-9)


@pytest.mark.slow
def test_rows_are_drawn_by_the_bayesian_bootstrap():
    """For groups with the effects 1 and 0, TOC(q) is min(p / q, 1) - p, where p ~ Beta(20, 20) is the first's share."""
    groups = np.tile([1.0, 0.0], 20)
    effects = xr.DataArray(np.broadcast_to(groups, (1, 4000, 40)), dims=("chain", "draw", "row"))
    found = rank_weighted_effect(KEY, effects, groups)["autoc"]
    p = np.asarray(dist.Beta(20.0, 20.0).sample(jax.random.key(1), (200_000,)))
    expected = -p * np.log(p)
    assert float(found.mean()) == pytest.approx(expected.mean(), abs=4 * expected.std() / np.sqrt(4000))
    assert float(found.std()) == pytest.approx(expected.std(), rel=0.2)  # 4 standard errors with a kurtosis of 10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policies": {"all": 1.0}}, "`policies` must be without 'observed', `at`, `by_row` and `doubly_robust`"),
        ({"treatment": ("t", "z"), "at": [(0, 0)]}, "without policies or `by_row`"),
    ],
)
def test_what_has_no_effects_of_rows_is_refused(fit, options, message):
    with pytest.raises(ValueError, match=message):
        causal_effect(KEY, fit, GRAPH, **{**NAMES, **options}, by_row=True)


def test_bad_input_is_refused(fit, effect):
    with pytest.raises(ValueError, match=r"`by_row` needs kpp_models.causal_effect\(..., by_row=True\)"):
        causal_effect(KEY, fit, GRAPH, **NAMES, num_draws=NUM_DRAWS).contrast(1.0, 0.0, by_row=True)
    contrast = effect.contrast(1.0, 0.0, by_row=True)
    with pytest.raises(ValueError, match=r"`scores` must hold a number for each of \d+ rows, got \(40,\)"):
        rank_weighted_effect(KEY, contrast, Z)
    with pytest.raises(ValueError, match="`scores`.*NaN"):
        rank_weighted_effect(KEY, contrast, np.full(int(OLDER.sum()), np.nan))
    with pytest.raises(ValueError, match=r"`effects` must have dims \(chain, draw, row\)"):
        rank_weighted_effect(KEY, effect.contrast(1.0, 0.0), Z)
    many = pd.concat([TABLE] * 3, ignore_index=True)
    with pytest.raises(ValueError, match="`by_row`.*need an exact posterior"):
        causal_effect(KEY, many, GRAPH, **NAMES, by_row=True, num_inducing=20)
    hidden = CausalDAG([("t", "m"), ("m", "y"), ("u", "t"), ("u", "y")], latent=["u"])
    with pytest.raises(ValueError, match="`by_row` must be left out here"):
        causal_effect(KEY, TABLE.rename(columns={"z": "m"}), hidden, **NAMES, by_row=True)
