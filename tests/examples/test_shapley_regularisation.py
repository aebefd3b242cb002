"""The script of experiments 3 and 4 shows what the paper says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest


@pytest.mark.slow
def test_penalties_protect_and_make_fair(root: Path, tmp_path: Path):
    script = root / "examples" / "reproduce" / "shapley_regularisation.py"
    command = [sys.executable, str(script), "--quick", "--output", str(tmp_path)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout
    numbers = re.findall(r"^ +[\d.]+(?: +-?[\d.]+)+$", printed, re.MULTILINE)
    rows = [np.array(line.split(), dtype=float) for line in numbers]
    isv_errors, isv_spreads, _, osv_spreads = (np.stack(rows[i : i + 10]) for i in (0, 10, 20, 30))
    # The more the Shapley values of x5 are charged, the less its noise costs.
    assert (np.diff(isv_errors[:, -1]) < 0).all()
    # Columns: penalty, ISV of x4 and x5, OSV of x4 and x5. The interventional penalty shrinks x5 and lets x4 take over;
    # the observational one shrinks what either tells.
    assert (np.diff(isv_spreads[:, 2]) < 0).all() and (np.diff(isv_spreads[:, 1]) > 0).all()
    assert (np.diff(osv_spreads[:, 3]) < 0).all() and (np.diff(osv_spreads[:, 4]) < 0).all()
    assert isv_spreads[-1, 3] > isv_spreads[0, 3]
    assert {path.name for path in tmp_path.iterdir()} == {"covariate_shift.png", "fairness.png"}
