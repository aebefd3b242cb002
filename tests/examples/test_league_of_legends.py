"""The League of Legends experiment runs on simulated rows and on files, and finds the features that matter."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest


@pytest.fixture(scope="module")
def script(load_script):
    return load_script("reproduce/league_of_legends.py")


def test_simulated_features_are_correlated_within_groups_and_the_outcome_follows_the_log_odds(script, tmp_path):
    table = script.simulate(tmp_path, 4000)
    assert table.x.shape == (4000, 71)
    correlation = np.corrcoef(np.log(table.x).T)
    first, second, other = (table.names.index(name) for name in ("kills_0", "kills_1", "wards_0"))
    # Standard errors are below 0.016.
    assert correlation[first, second] == pytest.approx(0.8, abs=0.05)
    assert correlation[first, other] == pytest.approx(0.0, abs=0.08)
    chance = 1 / (1 + np.exp(-script.true_log_odds(table.x, table.names)))
    for low in (0.0, 0.25, 0.5, 0.75):
        inside = (chance >= low) & (chance < low + 0.25)
        assert table.y[inside].mean() == pytest.approx(chance[inside].mean(), abs=0.06)  # 3 standard errors


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_files_are_read_without_incomplete_rows(script, kind, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(script, "BLOCK", 7)
    frame = pd.DataFrame({"kills": np.arange(20.0), "win": np.arange(20) % 2, "gold": np.arange(20.0) ** 2})
    frame.loc[11, "gold"] = np.nan
    path = tmp_path / f"matches.{kind}"
    getattr(frame, f"to_{kind}")(path, index=False)
    table = script.read(path)
    assert table.names == ("kills", "gold")
    np.testing.assert_array_equal(table.x, frame.dropna()[["kills", "gold"]].to_numpy(np.float32))
    np.testing.assert_array_equal(table.y, frame.dropna()["win"])
    assert "1 of 20 rows have missing values" in capsys.readouterr().out
    getattr(frame.drop(columns="win"), f"to_{kind}")(path, index=False)
    with pytest.raises(SystemExit, match="must have the outcome in the column 'win', got the columns .*'kills'"):
        script.read(path)


@pytest.mark.nightly
def test_the_experiment_runs_and_agrees_with_the_simulation(script, tmp_path, monkeypatch):
    monkeypatch.setattr(script, "QUICK", script.Sizes(20_000, 200, 4000, 15, 60, 10, 300, 60, 400, 20))
    table = script.main(["--quick", "--output", str(tmp_path)])
    # The features with the largest coefficients in the log-odds of the simulation.
    assert set(table["interventional"].nlargest(3).index) == {"deaths_0", "assists_0", "gold_0"}
    assert np.isfinite(table.to_numpy()).all()
    assert {"interventional.png", "observational.png", "importance.csv"} <= {path.name for path in tmp_path.iterdir()}
