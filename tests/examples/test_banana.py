"""The banana experiment: its truth is the reference's, and its table has the columns it says."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture(scope="module")
def script(load_script):
    return load_script("reproduce/banana.py")


def test_the_truth_is_the_reference(script, root):
    """For b = 20, v = 10 at (1.5, -0.7): both Shapley values and E[f | X2]."""
    with np.load(root / "tests" / "data" / "rkhs_shap.npz") as vectors:
        expected = vectors["out_banana_b20_v10_x1.5_xm0.7_phi1_phi2_h"]
    x = np.array([[1.5, -0.7]])
    found = np.append(script.truth(x, 20.0)[1][0], x[0, 1] + script.conditional_mean(x[:, 1], 20.0))
    np.testing.assert_allclose(found, expected, rtol=1e-7)


@pytest.mark.nightly
def test_the_table_is_printed(script, capsys):
    script.main(["--quick"])
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[:2] for row in rows[1:]] == [["60", "1"], ["60", "20"]]
    assert all(float(row[5]) > 0.9 for row in rows[1:])
