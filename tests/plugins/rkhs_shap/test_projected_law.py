"""The law under a projected posterior, against the covariance by all pairs of coalitions."""

from __future__ import annotations

import dataclasses
import sys

import numpy as np
import pytest

import kpp
from kpp.explanations import Law
from kpp.explanations.toolkit import LawOfDraws
from kpp.games import GaussianConditional, Interventional, Observational, as_players, shapley_covariance
from kpp.games.toolkit import shapley_root
from kpp.kernels import RBF, Matern12
from kpp_rkhs_shap import law as law_module
from kpp_rkhs_shap import projected_law
from kpp_rkhs_shap.law import affordable_method
from kpp_rkhs_shap.projected_law import Target, choose_landmarks, imputed_rows, projected_posterior, share_left_out

RNG = np.random.default_rng(5)
DATA, X, BACKGROUND = RNG.normal(size=(20, 4)), RNG.normal(size=(3, 4)), RNG.normal(size=(30, 4))
TARGET = np.sin(2 * DATA[:, 0]) + DATA[:, 1] * DATA[:, 2]
OPTIONS = {"instances_at_once": 4, "progress": False}
PLAYERS = as_players(None, 4)


def posterior_of(kernel):
    root = np.linalg.cholesky(np.linalg.inv(np.asarray(kernel.gram(DATA)) + 0.1 * np.eye(20)))
    return kpp.GPPosterior(kpp.RKHSFunction(kernel, DATA, root @ root.T @ TARGET, 0.3), root)


def project(game, posterior, players):
    rows = imputed_rows(game, posterior.mean, X, players)
    landmarks, left_out = choose_landmarks(posterior.mean.kernel, rows)
    # 1e-6: the pivots subtract their columns one after another, the other way solves with all landmarks at once.
    assert share_left_out(posterior.mean.kernel, rows, landmarks) == pytest.approx(left_out, abs=1e-6)
    return projected_posterior(posterior, landmarks), left_out


def law_of(game, posterior, players):
    method = affordable_method(game, posterior, X, Target(players), **OPTIONS)
    return None if method is None else method.law(posterior)


def of_all(law):
    return LawOfDraws((law,), np.zeros(1, int))


SMOOTH = posterior_of(RBF(lengthscale=np.array([1.5, 2.0, 2.5, 3.0]), variance=1.3))
# Not a product kernel: present features come from the background, too.
ROUGH = posterior_of(Matern12(lengthscale=1.5))

CASES = {
    "observational": (SMOOTH, Observational(BACKGROUND, 0.01), PLAYERS),
    "interventional": (SMOOTH, Interventional(BACKGROUND), PLAYERS),
    "embedded": (ROUGH, Observational(BACKGROUND, 0.01), PLAYERS),
    "conditional": (SMOOTH, GaussianConditional(BACKGROUND[:12]), PLAYERS),
    "groups": (SMOOTH, Observational(BACKGROUND, 0.01), as_players({"pair": [0, 2]}, 4)),
}


@pytest.mark.nightly_variants("conditional", "groups", "embedded")
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_projected_posterior_has_nearly_the_exact_covariance(name):
    posterior, game, players = CASES[name]
    projected, left_out = project(game, posterior, players)
    assert left_out < 1e-3
    found = shapley_covariance(game, projected, X, groups=players)
    exact = shapley_covariance(game, posterior, X, groups=players)
    spread = np.sqrt(np.einsum("pii->pi", exact))
    # What is left out is below a thousandth of the prior variance, and the posterior variance is some ten times smaller
    # than that of the prior: one per cent of it.
    scale = spread[:, :, None] * spread[:, None, :]
    np.testing.assert_allclose(np.asarray(found) / scale, np.asarray(exact) / scale, atol=0.02)


@pytest.mark.slow
def test_roots_give_the_covariances_across_points():
    game = Interventional(BACKGROUND)
    projected, _ = project(game, SMOOTH, PLAYERS)
    root = shapley_root(game, projected, X)
    expected = shapley_covariance(game, projected, X, X)
    # The root of a matrix whose smallest eigenvalues are rounding errors, 1e-16, has errors of their root.
    np.testing.assert_allclose(np.einsum("pgr,qhr->pqgh", root, root), expected, atol=1e-8)
    with pytest.raises(TypeError, match="whose kernel is a kpp.features.Nystrom"):
        shapley_root(game, SMOOTH, X)


@pytest.mark.slow
def test_what_is_too_expensive_by_pairs_of_coalitions_is_projected(monkeypatch):
    game = Observational(BACKGROUND, 0.01)
    exact = np.asarray(shapley_covariance(game, SMOOTH, X, X))
    assert law_of(game, SMOOTH, PLAYERS).left_out is None
    monkeypatch.setattr(law_module, "_CHEAP", 5e6)  # by 6 pairs of points it takes 6 * (16 * 30)^2 * 4 = 5.5e6
    law = law_of(game, SMOOTH, PLAYERS)
    assert law.is_joint and of_all(law).record(None)["variance_left_out"] == law.left_out < 0.001
    spread = np.sqrt(np.einsum("ppii->pi", exact)).ravel()
    difference = np.moveaxis(law.covariance - exact, 1, 2).reshape(12, 12) / np.outer(spread, spread)
    assert np.abs(difference).max() < 0.05  # a hundredth of the prior variance, as above


def test_a_projection_that_lacks_too_much_is_not_used(monkeypatch):
    game = Observational(BACKGROUND, 0.01)
    monkeypatch.setattr(Law, "affordable_products", 2e6)  # 3 points take 3 * (16 * 30)^2 * 4 = 2.8e6
    monkeypatch.setattr(projected_law, "_MAX_LANDMARKS", 3)
    assert law_of(game, SMOOTH, PLAYERS) is None


@pytest.mark.slow
def test_memory_of_the_features_is_bounded(monkeypatch):
    """Points are explained in blocks if the table of all coalitions would be too large."""
    game = Interventional(BACKGROUND)
    projected, _ = project(game, SMOOTH, PLAYERS)
    whole = shapley_covariance(game, projected, X, X)
    module = sys.modules["kpp.games.covariance.shapley_covariance"]
    monkeypatch.setattr(module, "_MAX_ENTRIES", 2**4 * projected.mean.kernel.landmarks.shape[0])  # one point
    np.testing.assert_allclose(shapley_covariance(game, projected, X, X), whole, rtol=1e-9, atol=1e-12)


@pytest.mark.nightly
def test_the_law_of_a_game_in_low_rank(monkeypatch):
    """The projection takes the weights in low rank, and fewer rows of a background that is too large."""
    game = Observational(BACKGROUND, 0.01, landmarks=10)
    exact = np.asarray(shapley_covariance(game, SMOOTH, X, X))
    monkeypatch.setattr(law_module, "_CHEAP", 0)
    law = law_of(game, SMOOTH, PLAYERS)
    assert of_all(law).record(None)["covariance_background_size"] == 30
    spread = np.sqrt(np.einsum("ppii->pi", exact)).ravel()
    difference = np.moveaxis(law.covariance - exact, 1, 2).reshape(12, 12) / np.outer(spread, spread)
    assert np.abs(difference).max() < 0.05  # a hundredth of the prior variance, as above
    monkeypatch.setattr(law_module, "_ROWS", (20, 12))
    monkeypatch.setattr(
        Law, "affordable_products", projected_law.projected_steps(game, SMOOTH.mean, 3, Target(PLAYERS)) - 1
    )
    fewer = law_of(game, SMOOTH, PLAYERS)
    assert of_all(fewer).record(None)["covariance_background_size"] == 20
    part = dataclasses.replace(game, background=BACKGROUND[[i * 30 // 20 for i in range(20)]])
    expected = np.asarray(shapley_covariance(part, SMOOTH, X, X))
    difference = np.moveaxis(fewer.covariance - expected, 1, 2).reshape(12, 12) / np.outer(spread, spread)
    assert np.abs(difference).max() < 0.05
