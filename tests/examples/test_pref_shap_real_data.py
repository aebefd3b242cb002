"""The stand-ins for real matches: their rules by hand, the tables made of them, and small runs of the experiments."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from scipy.special import expit


@pytest.fixture(scope="module")
def games(load_script):
    return load_script("reproduce/preference_games.py")


@pytest.fixture(scope="module")
def tables(load_script, games):
    return load_script("reproduce/preference_tables.py")


@pytest.fixture(scope="module")
def methods(load_script):
    return load_script("reproduce/preference_methods.py")


@pytest.fixture(scope="module")
def shap(load_script, tables, methods):
    return load_script("reproduce/pref_shap_real_data.py")


@pytest.fixture(scope="module")
def by_season(load_script, games, methods):
    load_script("reproduce/preferences_real.py")
    return load_script("reproduce/preferences_by_season.py")


@pytest.mark.parametrize("name", ["pokemon", "tennis", "djokovic", "website"])
def test_winners_win_as_often_as_their_log_odds_say(games, name):
    game = games.GAMES[name](np.random.default_rng(0), 50, 2000)
    chance = expit(np.abs(game.log_odds))
    won = (np.sign(game.log_odds) + 1) / 2  # half a win if both are as good
    # Four standard errors; the three matches of a session may have the same outcome.
    assert abs(won.mean() - chance.mean()) < 4 * np.sqrt(3 * np.sum(chance * (1 - chance))) / len(chance)
    assert (game.matches["winner"] != game.matches["loser"]).all() and len(game.matches) == len(game.log_odds)
    known = {*game.items.columns, *game.contexts, "Type"}
    assert set(game.deciding) | set(game.irrelevant) <= known


@pytest.mark.slow
def test_battles_follow_their_rule(games):
    game = games.pokemon_game(np.random.default_rng(0), 40, 200)
    items = game.items.set_index("ID")

    def strong(one, other):
        kinds = [[kind for kind in row[["Type 1", "Type 2"]] if kind != "none"] for row in (one, other)]
        return sum(loser in games.STRONG_AGAINST[winner] for winner in kinds[0] for loser in kinds[1])

    for match, log_odds in zip(game.matches.itertuples(), game.log_odds, strict=True):
        one, other = items.loc[match.winner], items.loc[match.loser]
        expected = 0.3 * (one["Speed"] - other["Speed"]) + 2.5 * (strong(one, other) - strong(other, one))
        expected += 0.02 * (one["Attack"] - other["Attack"] + one["Sp. Atk"] - other["Sp. Atk"])
        assert log_odds == pytest.approx(expected, abs=1e-9)  # both round sums of at most 200


def test_the_faster_wins_as_often_as_in_the_real_battles(games):
    game = games.pokemon_game(np.random.default_rng(0))
    speed = game.items.set_index("ID")["Speed"]
    gap = speed.loc[game.matches["winner"]].to_numpy() - speed.loc[game.matches["loser"]].to_numpy()
    assert ((gap > 0) + 0.5 * (gap == 0)).mean() == pytest.approx(0.926, abs=0.01)


def test_a_click_beats_what_was_only_shown(games):
    views = pd.DataFrame({"session": [0, 0, 0, 1, 1], "ID": [5, 6, 7, 6, 5], "clicked": [0, 1, 0, 1, 0], "age": 3})
    found = games.matches_of_sessions(views)
    assert found.to_dict("list") == {"winner": [6, 6, 6], "loser": [5, 5, 7], "age": [3, 3, 3]}


def test_levels_become_columns_and_types_are_one_feature(tables):
    frame = pd.DataFrame({"speed": [1.0, 3.0], "Type 1": ["Fire", "Ice"], "Type 2": ["Ice", "none"]})
    table = tables.Table.create(frame)
    assert table.values.columns.tolist() == ["Fire", "Ice", "none", "speed"]
    assert table.groups == {"Type": [0, 1, 2], "speed": [3]}
    np.testing.assert_allclose(table.values.to_numpy(), [[1, 0, -1, -1], [-1, 0, 1, 1]], rtol=1e-12)


def test_tables_are_read_from_files(tables, games, tmp_path):
    game = games.tennis_game(np.random.default_rng(0), 20, 60)
    game.items.to_csv(tmp_path / "items.csv", index=False)
    game.matches.to_csv(tmp_path / "matches.csv", index=False)
    found = tables.read("tennis", tmp_path / "items.csv", tmp_path / "matches.csv", None)
    items, contexts, duels = tables.prepare(found)
    expected = tables.prepare(game)
    np.testing.assert_array_equal(duels.numbers, expected[2].numbers)
    np.testing.assert_allclose(duels.contexts, expected[2].contexts, rtol=1e-12)
    np.testing.assert_allclose(items.values, expected[0].values, rtol=1e-12)
    assert contexts.groups == {"surface": [0, 1, 2, 3], "conditions": [4, 5]} and duels.log_odds is None


@pytest.mark.nightly
def test_a_small_run_explains_battles_and_a_champion(shap, tmp_path):
    options = ["--small", "--games", "pokemon,djokovic", "--output", str(tmp_path)]
    result = CliRunner().invoke(shap.main, options, catch_exceptions=False)
    assert "Deciding features larger than irrelevant ones" in result.output
    prediction = pd.read_csv(tmp_path / "pref_shap_real_prediction.csv")
    assert len(prediction) == 2 * 3 and prediction["AUC"].between(0, 1).all()
    importance = pd.read_csv(tmp_path / "pref_shap_real_importance.csv")
    assert {"left", "right", "UPM", "Pref-SHAP, k + c"} <= set(importance["method"])
    assert {"all", "four types", "losses of the champion", "contexts of all"} <= set(importance["group"])
    assert importance["size"].notna().all()
    assert (tmp_path / "pokemon_all_Pref-SHAP.png").exists()


@pytest.mark.nightly
def test_a_small_run_selects_features_in_every_season(by_season):
    table = CliRunner().invoke(by_season.main, ["--small"], standalone_mode=False, catch_exceptions=False).return_value
    assert table["season"].nunique() == 2 and {"GPGP, RBF", "PGP, RBF", "PAIR-GP"} <= set(table["method"])
    assert table["accuracy"].mean() > 0.5 and (table["features"].str.split().str.len() == 5).all()
