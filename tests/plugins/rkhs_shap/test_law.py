"""Draws of the values hold the whole posterior of a Gaussian process, against exact covariances and against its data.

The draws of `Law` are compared with `shapley_covariance` at all points together, whose own tests enumerate coalitions.
"""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import kpp
from kpp.explanations import Law
from kpp.explanations.toolkit import LawOfDraws, representatives
from kpp.games import Interventional, Observational, as_players, shapley_covariance, shapley_values_from_table
from kpp.kernels import RBF
from kpp_models import GPRegression
from kpp_rkhs_shap import law as law_module
from kpp_rkhs_shap.law import affordable_laws, affordable_method
from kpp_rkhs_shap.projected_law import Target

RNG = np.random.default_rng(3)
DATA, X, BACKGROUND = RNG.normal(size=(14, 3)), RNG.normal(size=(4, 3)), RNG.normal(size=(90, 3))
TARGET = np.sin(2 * DATA[:, 0]) + DATA[:, 1] * DATA[:, 2]
KERNEL = RBF(lengthscale=np.array([1.0, 1.5, 2.0]), variance=1.3)
OPTIONS = {"instances_at_once": 4, "progress": False}


@pytest.fixture(scope="module")
def posterior():
    root = np.linalg.cholesky(np.linalg.inv(np.asarray(KERNEL.gram(DATA)) + 0.1 * np.eye(14)))
    return kpp.GPPosterior(kpp.RKHSFunction(KERNEL, DATA, root @ root.T @ TARGET, 0.3), root)


@pytest.fixture(scope="module")
def fit():
    model = GPRegression(RBF(lengthscale=1.5), noise_variance=0.1)
    return model.fit(jax.random.key(0), DATA, TARGET, inference=kpp.MAP(progress=False), num_prior_samples=0)


def explain(predictor, game=None, **options):
    game = Interventional(BACKGROUND[:10]) if game is None else game
    return kpp.explain(predictor, X, value_function=game, progress=False, **options)


def law_of(game, posterior, players):
    method = affordable_method(game, posterior, X, Target(players), **OPTIONS)
    return None if method is None else method.law(posterior)


def of_all(law):
    return LawOfDraws((law,), np.zeros(1, int))


def in_rows(covariance):
    size = covariance.shape[0] * covariance.shape[-1]
    return np.moveaxis(np.asarray(covariance), 1, 2).reshape(size, size)


@pytest.mark.slow_variants("interventional")
@pytest.mark.parametrize(
    "game",
    [Interventional(BACKGROUND[:10]), pytest.param(Observational(BACKGROUND[:10], 0.01), marks=pytest.mark.slow)],
    ids=["interventional", "observational"],
)
def test_draws_have_the_exact_covariance_across_points(posterior, game):
    law = law_of(game, posterior, as_players(None, 3))
    assert law.is_joint and law.num_references == 10
    exact = in_rows(shapley_covariance(game, posterior, X, X))
    np.testing.assert_allclose(in_rows(law.covariance), exact, rtol=1e-8, atol=1e-10)
    arrays = {"values": np.zeros((1, 4000, 4, 3)), "predictions": np.zeros((1, 4000, 4)), "interactions": None}
    drawn = of_all(law).draw(arrays, (1, 4000), jax.random.key(2))
    found = np.cov(drawn["values"].reshape(4000, 12).T)
    # The standard error of an empirical covariance is at most sqrt(2 s_i s_j / 4000) with the variances s; 5 of them.
    spread = np.sqrt(np.diag(exact))
    assert (np.abs(found - exact) < 5 * np.sqrt(2 / 4000) * np.outer(spread, spread)).all()
    np.testing.assert_allclose(drawn["predictions"], drawn["values"].sum(axis=-1), atol=1e-12)


@pytest.mark.slow
def test_landmarks_change_correlations_little_and_no_variance(posterior, monkeypatch):
    game, players = Interventional(BACKGROUND), as_players(None, 3)
    law = law_of(game, posterior, players)
    assert law.num_references == 90  # more than the 64 landmarks of the correlation
    exact = np.asarray(shapley_covariance(game, posterior, X, X))
    positions = np.arange(4)
    own = exact[positions, positions]
    np.testing.assert_allclose(law.covariance[positions, positions], own, rtol=1e-8, atol=1e-10)
    assert np.linalg.eigvalsh(in_rows(law.covariance)).min() > -1e-10
    spread = np.sqrt(np.diag(in_rows(exact)))
    difference = (in_rows(law.covariance) - in_rows(exact)) / np.outer(spread, spread)
    assert np.abs(difference).max() < 0.05  # 64 landmarks of 90 points represent them to a few percent


@pytest.mark.slow
def test_a_large_background_is_represented_by_landmarks(posterior, monkeypatch):
    players = as_players(None, 3)
    monkeypatch.setattr(law_module, "_REFERENCES", 50)
    # Just enough for 50 references at 4 points: 2 nodes a side, half of their pairs.
    monkeypatch.setattr(Law, "affordable_products", 4 * 2 * (50 * 3) ** 2)
    law = law_of(Interventional(BACKGROUND), posterior, players)
    assert law.num_references == 50
    exact = np.asarray(shapley_covariance(Interventional(BACKGROUND), posterior, X))
    own = law.covariance[np.arange(4), np.arange(4)] if law.is_joint else law.covariance
    spread = np.sqrt([np.diag(matrix) for matrix in own]) / np.sqrt([np.diag(matrix) for matrix in exact])
    assert np.abs(spread - 1).max() < 0.1


@pytest.mark.slow
def test_what_is_too_expensive_is_not_computed(fit, posterior, monkeypatch):
    monkeypatch.setattr(Law, "affordable_products", 10.0)
    assert law_of(Interventional(BACKGROUND), posterior, as_players(None, 3)) is None
    explanation = explain(fit)
    assert explanation.attrs["uncertainty"] == "posterior mean only"
    assert explanation.plot.bar().get_xlabel().endswith("posterior mean only")
    assert explanation.values.shape == (1, 1, 4, 3)


@pytest.mark.slow
def test_a_fit_of_one_draw_has_200_draws_that_vary_with_the_function(fit):
    explanation = explain(fit)
    assert explanation.values.shape == (1, 200, 4, 3)
    assert explanation.attrs["uncertainty"] == "full"
    assert explanation.attrs["instances_drawn"] == "together"
    assert "uncertainty='full'" in repr(explanation)
    assert float(explanation.additivity_error().max()) < 1e-10
    posterior, game = fit.function_posterior(at="mean"), Interventional(BACKGROUND[:10])
    spread = np.sqrt([np.diag(matrix) for matrix in np.asarray(shapley_covariance(game, posterior, X))])
    means = explain(fit, covariance=None).mean().values
    # 200 draws: standard errors of 1 / sqrt(200) = 7 % for means and 5 % for standard deviations; 4 of them.
    np.testing.assert_array_less(np.abs(explanation.mean().values - means), 4 * spread / np.sqrt(200))
    np.testing.assert_allclose(explanation.values.std(("chain", "draw")), spread, rtol=0.2)


@pytest.mark.slow
def test_draws_of_hyperparameters_keep_their_number_and_get_wider(draws, toy_fit):
    roots = np.broadcast_to(0.1 * np.eye(8), (2, 3, 8, 8))
    predictor = toy_fit(draws, posteriors={"draws": kpp.GPPosterior(draws, roots)})
    x = np.random.default_rng(0).normal(size=(3, 4))
    options = {"value_function": Interventional(x), "progress": False}
    narrow, wide = (kpp.explain(predictor, x, covariance=c, **options) for c in (None, "auto"))
    assert narrow.attrs["uncertainty"] == "hyperparameters only"
    assert narrow.values.shape == wide.values.shape == (2, 3, 3, 4)
    np.testing.assert_allclose(wide.base_values, narrow.base_values)
    deviations = wide.values - narrow.values
    np.testing.assert_allclose(wide.predictions, narrow.predictions + deviations.sum("feature"), rtol=1e-10)
    assert float(abs(deviations).min()) > 0.0


@pytest.mark.nightly_variants("few rows")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("cheap", "entries", "label", "num"),
    [(2e9, 2**24, "draws", 4), (0, 2**24, "2 draws", 2), (0, 0, "2 draws", 2)],
    ids=["few rows", "representatives", "representatives of many rows"],
)
def test_each_draw_has_its_covariance_or_that_of_a_draw_like_it(monkeypatch, cheap, entries, label, num):
    """Two draws have lengthscales of about 1, and two of about 3; so two of them stand for all, one of each kind."""
    monkeypatch.setattr(law_module, "_CHEAP", cheap)
    monkeypatch.setattr(law_module, "_NEGLIGIBLE", -1.0)  # no projection: covariances by pairs are exact
    module = sys.modules["kpp.explanations.representatives"]
    for name, value in {"_MAX_ENTRIES": entries, "_DRAWS_OF_A_LAW": 2}.items():
        monkeypatch.setattr(module, name, value)
    model, data, schema = GPRegression(RBF(dist.LogNormal(0.0, 1.0)), 0.1).prepare(DATA, TARGET)
    draws = {"kernel.lengthscale": jnp.array([[1.0, 1.01, 3.0, 3.02]])}
    fit = kpp.Fit(model, None, data, schema, draws, kpp.MAP(progress=False))
    game, target = Interventional(BACKGROUND[:10]), Target(as_players(None, 3))
    laws = affordable_laws(game, representatives(fit, fit.function()), X, target, **OPTIONS)
    assert laws.record(fit)["covariance_at"] == label and laws.record(fit)["uncertainty"] == "full"
    exact = np.asarray(shapley_covariance(game, fit.function_posterior(), X, X))[0]
    distances = [[np.abs(laws.laws[i].covariance - one).max() for one in exact] for i in laws.of_draw]
    nearest = np.argmin(distances, axis=1)
    assert np.min(distances, axis=1).max() < 1e-8  # each is the exact covariance of one of the draws,
    assert (nearest // 2).tolist() == [0, 0, 1, 1]  # of its own kind
    assert len(set(nearest)) == num


@pytest.mark.slow
def test_the_key_determines_the_draws(fit):
    first, again, other = (explain(fit, rng_key=jax.random.key(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.values, again.values)
    assert float(abs(first.values - other.values).min()) > 0.0
    assert first.attrs["rng_key"] == [0, 1]


@pytest.mark.slow
def test_interactions_stay_with_the_draws(fit):
    explanation = explain(fit, interactions="SII")
    assert explanation.interactions.shape == (1, 200, 4, 3, 3)
    assert np.ptp(explanation.interactions.values, axis=1).max() == 0.0  # those of the posterior mean


@pytest.mark.slow
def test_plots_say_when_the_draws_hold_only_the_hyperparameters(draws, toy_fit, x):
    explanation = kpp.explain(toy_fit(draws, posteriors={}), x, value_function=Interventional(x), covariance=None)
    for axis in (explanation.plot.bar(), explanation.plot.waterfall(), explanation.plot.forest()):
        assert axis.get_xlabel().endswith("hyperparameters only")


@pytest.mark.slow
def test_independent_draws_of_instances_are_not_averaged(fit, monkeypatch):
    monkeypatch.setattr(law_module, "_MAX_ROWS", 5)
    monkeypatch.setattr(law_module, "_NEGLIGIBLE", -1.0)  # a projection would draw them together
    explanation = explain(fit)
    assert explanation.attrs["instances_drawn"] == "independently"
    assert explanation.probability_greater("x0", "x1").shape == (4,)
    with pytest.raises(ValueError, match="`dim` 'instance' needs draws of all instances together"):
        explanation.probability_greater("x0", "x1", dim="instance")


@pytest.mark.slow
def test_importances_are_compared_over_all_instances_together(fit):
    explanation = explain(fit)
    values = abs(explanation.values).mean("instance")
    expected = float((values.sel(feature="x0") > values.sel(feature="x1")).mean())
    assert float(explanation.probability_greater("x0", "x1", dim="instance")) == pytest.approx(expected)


def test_singular_covariances_are_matched():
    rng = np.random.default_rng(1)
    factor = rng.normal(size=(2, 3, 2))  # two points whose three values vary in two directions
    joint = np.einsum("pir,qjr->pqij", factor, factor)
    target = np.stack([4.0 * joint[0, 0], joint[1, 1]])
    matched = law_module._match_points(joint, target)
    np.testing.assert_allclose(matched[0, 1], 2.0 * joint[0, 1], rtol=1e-8, atol=1e-10)
    assert np.linalg.eigvalsh(in_rows(matched)).min() > -1e-10


def test_a_law_without_correlation_draws_points_independently():
    covariance = np.array([[[1.0, 0.5], [0.5, 1.0]], [[0.0, 0.0], [0.0, 4.0]]])
    arrays = {"values": np.zeros((1, 5000, 2, 2)), "predictions": np.zeros((1, 5000, 2))}
    values = of_all(Law.of_covariance(covariance, 7)).draw(arrays, (1, 5000), jax.random.key(0))["values"]
    values = values.reshape(5000, 4)
    expected = np.zeros((4, 4))
    expected[:2, :2], expected[2:, 2:] = covariance
    np.testing.assert_allclose(np.cov(values.T), expected, atol=0.3)  # 4 standard errors of a variance of 4 are 0.32
    assert np.ptp(values[:, 2]) == 0.0


@pytest.mark.nightly_variants("observational")
@pytest.mark.nightly
@pytest.mark.parametrize("game", ["interventional", "observational"])
def test_intervals_contain_the_values_of_the_true_function(game):
    """Functions drawn from the prior, data from them: ranks of the true values are uniform, intervals cover."""
    ranks, inside = simulate(game, num_functions=300, num_draws=200)
    # A binomial count of 300 independent functions; points and features of one function are dependent.
    for feature in range(3):
        counts = np.bincount(ranks[:, 0, feature] * 10 // 201, minlength=10)
        assert stats.chisquare(counts).pvalue > 1e-4
    assert 0.88 <= inside.mean() <= 0.92


GAMES = {"interventional": Interventional(BACKGROUND[:8]), "observational": Observational(BACKGROUND[:8])}
MASKS = np.array([[row >> j & 1 for j in range(3)] for row in range(8)], dtype=bool)


def simulate(game, num_functions, num_draws):
    """Return ranks of true values among draws, and whether 90 % intervals contain them, (functions, p, g)."""
    rng = np.random.default_rng(0)
    targets, truth = functions_of_the_prior(GAMES[game], num_functions, rng)
    gram = np.asarray(KERNEL.gram(DATA)) + 0.1 * np.eye(14)
    zero = kpp.GPPosterior(kpp.RKHSFunction(KERNEL, DATA, np.zeros(14)), np.linalg.cholesky(np.linalg.inv(gram)))
    law = law_of(GAMES[game], zero, as_players(None, 3))
    coefficients = np.linalg.solve(gram, targets.T).T[None]
    posterior_means = kpp.RKHSFunction.over_draws(KERNEL, DATA, coefficients, 0.0, batch_shape=coefficients.shape[:2])
    means = kpp.explain(posterior_means, X, value_function=GAMES[game], progress=False, method="enumeration").values[0]
    empty = {"values": np.zeros((1, num_draws, 4, 3)), "predictions": np.zeros((1, num_draws, 4))}
    ranks, inside = [], []
    for mean, values, key in zip(means.values, truth, jax.random.split(jax.random.key(0), num_functions), strict=True):
        drawn = mean + of_all(law).draw(empty, (1, num_draws), key)["values"][0]
        ranks.append((drawn < values).sum(axis=0))
        lower, upper = np.quantile(drawn, [0.05, 0.95], axis=0)
        inside.append((lower < values) & (values < upper))
    return np.stack(ranks), np.stack(inside)


def functions_of_the_prior(game, num_functions, rng):
    """Return noisy data of functions drawn from the prior, and their true values by the definition.

    A function is drawn at all points that the game reads.
    """
    imputed = np.where(MASKS[:, None, None], X[None, :, None], game.background[None, None]).reshape(-1, 3)
    points = np.concatenate([DATA, imputed])
    factor = np.linalg.cholesky(np.asarray(KERNEL.gram(points)) + 1e-8 * np.eye(len(points)))
    latents = (factor @ rng.normal(size=(len(points), num_functions))).T
    targets = latents[:, :14] + np.sqrt(0.1) * rng.normal(size=(num_functions, 14))
    function = kpp.RKHSFunction(KERNEL, DATA, np.zeros(14))
    weights = np.asarray(game.imputation_weights(function, X, MASKS))  # (8, p, m)
    tables = np.einsum("cpm,ncpm->ncp", weights, latents[:, 14:].reshape(num_functions, 8, 4, 8))
    return targets, np.stack([np.asarray(shapley_values_from_table(table)).T for table in tables])


def test_an_explanation_of_another_fit_compiles_nothing(fit, compilations):
    explain(fit)
    model = GPRegression(RBF(lengthscale=1.1), noise_variance=0.2)
    other = model.fit(jax.random.key(1), DATA, TARGET + 1, inference=kpp.MAP(progress=False), num_prior_samples=0)
    compilations.clear()
    explain(other)
    assert not compilations
