"""The law of values of preferences, against a process that is spanned by all points that the game reads."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import kpp
from kpp.explanations import Law
from kpp.games import all_coalitions, as_players
from kpp.kernels import RBF, GeneralizedPreferential, Preferential
from kpp_models import PreferenceGP
from kpp_pref_shap import PreferentialItems, PrefShap
from kpp_pref_shap.law import num_steps, prior_covariance, whitened_draws

pytestmark = pytest.mark.slow  # a fit and its law take many seconds to compile

RNG = np.random.default_rng(0)
MATCHES, DUELS, BACKGROUND = (RNG.normal(size=shape) for shape in ((9, 2, 3), (3, 2, 3), (4, 3)))
BASE = RBF(lengthscale=np.array([0.8, 1.0, 1.5]))
KERNEL = GeneralizedPreferential(BASE + 0.7) + 0.5 * Preferential(BASE)
GAME = PreferentialItems(BACKGROUND, conditional="interventional")
PLAYERS = as_players(None, 3)


@pytest.fixture(scope="module")
def fit():
    model, data, schema = PreferenceGP(KERNEL).prepare(MATCHES, np.arange(9) % 2.0)
    return kpp.Fit(model, None, data, schema, {}, kpp.MAP(progress=False))  # explanations need no groups of ArviZ


@pytest.fixture(scope="module")
def posterior(fit):
    return fit.function_posterior(at="mean")


def prior_by_imputed_pairs(game):
    """The covariance of values of the process with kernel KERNEL, by its values at all imputed pairs.

    These values determine the game. With eigenvectors U and eigenvalues l of their Gram matrix, the process is a sum of
    independent functions k(., pairs) U l^(-1/2), and each function is explained.
    """
    imputed = [
        [np.where(mask, left, u), np.where(mask, right, v)]
        for left, right in DUELS
        for mask in all_coalitions(3)
        for u, v in product(BACKGROUND, BACKGROUND)
    ]
    pairs = np.array(imputed)
    eigenvalues, vectors = np.linalg.eigh(np.asarray(KERNEL.gram(pairs)))
    kept = eigenvalues > 1e-10 * eigenvalues.max()
    root = vectors[:, kept] / np.sqrt(eigenvalues[kept])
    spanned = kpp.GPPosterior(kpp.RKHSFunction(KERNEL, pairs, np.zeros(len(pairs))), root)
    values = explain(whitened_draws(spanned), game).values.values[0]
    return np.einsum("rpi,rqj->pqij", values, values)


def explain(predictor, game, **options):
    return PrefShap(game, progress=False, **options).explain(predictor, DUELS)


@pytest.mark.nightly_variants("raw", "observational")
@pytest.mark.parametrize(
    "game",
    [PreferentialItems(BACKGROUND, 0.02), GAME, PreferentialItems(BACKGROUND, 0.02, end_points="raw")],
    ids=["observational", "interventional", "raw"],
)
def test_the_prior_covariance_is_that_of_the_game(posterior, game):
    found = prior_covariance(game, posterior, DUELS, None, PLAYERS)
    # Directions with eigenvalues below 1e-10 of the largest are left out of the expected covariance.
    np.testing.assert_allclose(found, prior_by_imputed_pairs(game), rtol=0, atol=1e-8)


def test_draws_hold_the_uncertainty_of_the_function(fit, posterior):
    explanation = explain(fit, GAME)
    assert explanation.values.shape == (1, 200, 3, 3)
    assert explanation.attrs["uncertainty"] == "full"
    assert float(explanation.additivity_error().max()) < 1e-10
    # The values of a duel sum to g(a, b), whose posterior is known: 200 draws have standard errors of 5 % for standard
    # deviations and 7 % of them for means; four standard errors.
    total = explanation.predictions.values[0]
    deviation = np.sqrt(np.asarray(posterior.variance(DUELS)))
    np.testing.assert_allclose(total.std(axis=0), deviation, rtol=0.2)
    assert (np.abs(total.mean(axis=0) - posterior.mean(DUELS)) < 4 * deviation / np.sqrt(200)).all()


def test_what_is_too_expensive_keeps_the_label(fit, posterior, monkeypatch):
    assert num_steps(GAME, posterior, DUELS, PLAYERS) == (8 * 6 * 4) ** 2 * 3  # players, items, references, features
    assert num_steps(PreferentialItems(BACKGROUND, opponents=BACKGROUND), posterior, DUELS, PLAYERS) == np.inf
    monkeypatch.setattr(Law, "affordable_products", 10.0)
    assert explain(fit, GAME).attrs["uncertainty"] == "posterior mean only"
