"""The experiments on preferences: data as described, scores by hand, the shortcut of PAIR-GP, tables of small runs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from scipy.spatial.distance import cdist
from sklearn.metrics import log_loss, roc_auc_score

from kpp.preferences import Matches


@pytest.fixture(scope="module")
def methods(load_script):
    return load_script("reproduce/preference_methods.py")


@pytest.fixture(scope="module")
def simulation(load_script, methods):
    return load_script("reproduce/gpgp_simulation.py")


@pytest.fixture(scope="module")
def clusters(load_script, simulation):
    return load_script("reproduce/comparable_clusters.py")


@pytest.fixture(scope="module")
def real(load_script, methods):
    return load_script("reproduce/preferences_real.py")


@pytest.fixture(scope="module")
def shap(load_script):
    return load_script("reproduce/pref_shap_synthetic.py")


@pytest.fixture(scope="module")
def rankability(load_script, shap):
    return load_script("reproduce/rankability.py")


@pytest.fixture(scope="module")
def concatenation(load_script, shap):
    return load_script("reproduce/pref_shap_concatenation.py")


def count_circles(wins):
    n = len(wins)
    return sum(wins[i, j] and wins[j, k] and wins[k, i] for i in range(n) for j in range(n) for k in range(n)) / 3


@pytest.mark.parametrize("num_states", [1, 5])
def test_only_one_state_makes_a_ranking(simulation, num_states):
    game = simulation.simulate(np.random.default_rng(0), num_states)
    off = ~np.eye(30, dtype=bool)
    np.testing.assert_array_equal((game.wins + game.wins.T)[off], 1.0)  # a duel has one answer
    assert (count_circles(game.wins) == 0) == (num_states == 1)
    gap = game.x.mean(axis=1) - game.states - 1
    assert np.abs(gap).max() < 5 / np.sqrt(5)  # five standard deviations of a mean of five features


def test_pairs_are_seen_once_and_from_either_side(simulation):
    game = simulation.simulate(np.random.default_rng(0), 2)
    pairs, y = simulation.observe(np.random.default_rng(1), game, 0.4)
    assert pairs.shape == (174, 2) and len(np.unique(np.sort(pairs, axis=1), axis=0)) == 174
    np.testing.assert_array_equal(y, game.wins[pairs[:, 0], pairs[:, 1]])
    assert 0.3 < (pairs[:, 0] < pairs[:, 1]).mean() < 0.7


def test_matches_between_groups_are_fair_coins(clusters, simulation):
    wins = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        game = simulation.simulate(rng, 3)
        mixed = clusters.mix(rng, game)
        same = game.states[:, None] == game.states[None, :]
        np.testing.assert_array_equal(mixed.wins[same], game.wins[same])
        np.testing.assert_array_equal((mixed.wins + mixed.wins.T)[~same], 1.0)
        wins += mixed.wins[np.triu(~same)].tolist()
    assert abs(np.mean(wins) - 0.5) < 5 * 0.5 / np.sqrt(len(wins))


def test_both_orders_are_averaged(simulation):
    pairs = np.arange(12.0).reshape(2, 2, 3)
    rows = simulation.side_by_side(pairs)
    np.testing.assert_array_equal(rows[2:], np.roll(rows[:2], 3, axis=1))
    np.testing.assert_allclose(simulation.average([0.9, 0.2, 0.3, 0.6]), [0.8, 0.3], rtol=1e-12)


def test_scores_by_hand(methods):
    p, y = np.array([0.9, 0.2, 0.4, 0.7]), np.array([1, 0, 1, 1])
    found = methods.scores(p, y)
    assert found["accuracy"] == 0.75
    np.testing.assert_allclose(found["log loss"], log_loss(y, p), rtol=1e-12)
    swapped = methods.scores(np.array([0.9, 0.2, 0.6, 0.7]), np.array([1, 0, 0, 1]))
    np.testing.assert_allclose(list(found.values()), list(swapped.values()), rtol=1e-12)  # told from another side
    np.testing.assert_allclose(
        found["AUC"], roc_auc_score([1, 1, 1, 1, 0, 0, 0, 0], [0.9, 0.8, 0.4, 0.7, 0.1, 0.2, 0.6, 0.3])
    )


@pytest.mark.slow
def test_parts_keep_their_matches_on_all_pairs(methods, real):
    every = real.read(None, None)
    np.testing.assert_allclose(np.asarray(every.items).std(axis=0), 1.0, rtol=1e-12)
    parts = every.split(jax.random.key(0), 0.7)
    found = [methods.on_all_pairs(part, every) for part in parts]
    for part, whole in zip(parts, found, strict=True):
        np.testing.assert_array_equal(whole.adjacency(), part.adjacency())
        assert whole.num_pairs == every.num_pairs
    np.testing.assert_array_equal(found[0].adjacency() + found[1].adjacency(), every.adjacency())


def test_the_game_of_clusters_is_decided_as_described(shap):
    matches = shap.cluster_game(np.random.default_rng(0), 60, 500)
    numbers, pairs = shap.winners_first(matches)
    kinds = [shap.FEATURES[4 + int(index)] for index in pairs[:, :, 4:].argmax(axis=2).ravel()]
    for (winner, loser), (one, other) in zip(pairs, np.reshape(kinds, (-1, 2)), strict=True):
        decisive = "x0" if one == other else "x" + "".join(sorted((one, other)))
        column = shap.FEATURES.index(decisive)
        assert winner[column] > loser[column]
    wins = matches.adjacency()
    assert (wins[numbers[:, 0], numbers[:, 1]] > 0).all()


def test_draws_have_the_covariance_of_the_general_kernel(shap):
    x = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.5]])
    g = np.array([shap.draw_preferences(np.random.default_rng(seed), x) for seed in range(3000)])
    np.testing.assert_allclose(g, -np.swapaxes(g, 1, 2), atol=1e-12)
    k = np.exp(-cdist(x, x, "sqeuclidean") / 2)
    expected = np.einsum("ik,jl->ijkl", k, k) - np.einsum("il,jk->ijkl", k, k)
    found = np.einsum("sij,skl->ijkl", g, g) / 3000
    np.testing.assert_allclose(found, expected, atol=5 * np.sqrt(2 / 3000))  # five standard errors of a variance of 1


def test_a_ranking_is_told_from_a_cycle(rankability, tmp_path):
    """Three items: all pairs of a ranking, and a cycle of three, whose out-degrees are all 1 (spectrum by hand)."""
    pd.DataFrame({"ID": ["a", "b", "c"], "x": [0.0, 1.0, 2.0]}).to_csv(tmp_path / "items.csv", index=False)
    games = {"ranking.csv": ["aab", "bcc"], "cycle.csv": ["abc", "bca"]}
    options = ["--small"]
    for name, (winners, losers) in games.items():
        pd.DataFrame({"winner": list(winners), "loser": list(losers)}).to_csv(tmp_path / name, index=False)
        options += ["--game", str(tmp_path / "items.csv"), str(tmp_path / name)]
    table = rankability.main.main(options, standalone_mode=False)["graphs"]
    assert table["cycles"].tolist()[:2] == [0, 1] and table["C_avg"].tolist()[:2] == [1.0, 1.0]
    # eig(D - A) is 0 and 3/2 +- i sqrt(3)/2, at a distance of 1 from {0, 1, 2}; so are the degrees.
    np.testing.assert_allclose(table["SpecR"][:2], [1.0, 0.5], rtol=1e-9)


def test_explanations_are_summarised(shap):
    values, differences = np.array([[1.0, 0.5], [-3.0, 0.5]]), np.array([[2.0, 0.0], [-1.0, 1.0]])
    rows = shap.summarise(values, differences, {"seed": 0}, ("a", "b"))
    assert [row["size"] for row in rows] == [2.0, 0.5]
    assert rows[0]["correlation"] == pytest.approx(1.0) and np.isnan(rows[1]["correlation"])


@pytest.mark.nightly
def test_pair_gp_has_the_mode_of_gpgp(simulation):
    """Mirrored labels leave of k(x, u) k(x', u') only what is skew; Newton's method stops at 1e-8 or so."""
    from kpp.kernels import RBF
    from kpp_models import GPGP, GPClassification

    rng = np.random.default_rng(0)
    pairs, y, asked = rng.normal(size=(12, 2, 2)), rng.integers(2, size=12), jnp.asarray(rng.normal(size=(5, 2, 2)))
    general = GPGP(RBF(1.3, variance=2.0)).prepare(
        Matches.create(pairs.reshape(24, 2), np.arange(0, 24, 2), np.arange(1, 24, 2), y)
    )
    rows = simulation.side_by_side(pairs)
    mirrored = GPClassification(RBF(1.3, variance=4.0)).prepare(rows, np.concatenate([y, 1 - y]))
    expected = general[0].predictive({}, general[1], asked)["mean"]
    found = mirrored[0].predictive({}, mirrored[1], asked.reshape(5, 4))["mean"]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.nightly
def test_naive_concatenation_has_two_values_per_feature(concatenation, tmp_path):
    table = concatenation.main.callback(1, 3, True, tmp_path)["sizes"]
    assert (table["distance"] > 0).all() and (table["distance"] <= table["left"] + table["right"] + 1e-12).all()
    assert (tmp_path / "pref_shap_concatenation.png").exists()


@pytest.mark.nightly_variants(
    "simulation-words0-gpgp_simulation.csv-30",
    "real-words2-preferences_real.csv-10",
    "shap-words3-pref_shap_synthetic.csv-86",
)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "words", "table", "rows"),
    [
        ("simulation", ("Accuracy with L = 1", "Accuracy with L = 5", "PAIR-LOGREG"), "gpgp_simulation.csv", 30),
        ("clusters", ("Right group with L = 2", "groups chosen"), "comparable_clusters.csv", 6),
        ("real", ("SpecR", "Held-out matches", "Reliability of GPGP, k + c"), "preferences_real.csv", 10),
        ("shap", ("clusters, A-B", "ten, all", "context, context", "sessions, all"), "pref_shap_synthetic.csv", 86),
    ],
)
def test_a_small_run_prints_its_tables(request, script, words, table, rows, tmp_path):
    module = request.getfixturevalue(script)
    options = ["--methods", ",".join((*module.METHODS, "GPGP+c"))] if script == "simulation" else []
    options += ["--small", "--output", str(tmp_path)]
    result = CliRunner().invoke(module.main, options, catch_exceptions=False)
    for word in words:
        assert word in result.output
    found = pd.read_csv(tmp_path / table)
    assert len(found) == rows
    if "accuracy" in found:
        assert found["accuracy"].between(0, 1).all() and found["accuracy"].mean() > 0.5
