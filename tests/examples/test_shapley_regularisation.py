"""The script of experiments 3 and 4 shows what the paper says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest


@pytest.mark.nightly
def test_penalties_protect_and_make_fair(load_script, tmp_path: Path, capsys):
    tables = load_script("reproduce/shapley_regularisation.py").main(["--quick", "--output", str(tmp_path)])
    assert capsys.readouterr().out.count("OSV-REG") == 2  # errors and spreads
    errors, spreads = (tables[name].set_index(["method", "penalty"]) for name in ("errors", "spreads"))
    isv_errors, isv_spreads, osv_spreads = errors.loc["ISV-REG"], spreads.loc["ISV-REG"], spreads.loc["OSV-REG"]
    # The more the Shapley values of x5 are charged, the less its noise costs.
    assert (np.diff(isv_errors["noise 1.5"]) < 0).all()
    # The interventional penalty shrinks x5 and lets x4 take over; the observational one shrinks what either tells.
    assert (np.diff(isv_spreads["ISV of x5"]) < 0).all() and (np.diff(isv_spreads["ISV of x4"]) > 0).all()
    assert (np.diff(osv_spreads["OSV of x4"]) < 0).all() and (np.diff(osv_spreads["OSV of x5"]) < 0).all()
    assert isv_spreads["OSV of x4"].iloc[-1] > isv_spreads["OSV of x4"].iloc[0]
    assert {path.name for path in tmp_path.iterdir()} == {"covariate_shift.png", "fairness.png"}
