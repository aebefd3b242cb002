"""The script for a GPU runs on a CPU with its quick sizes, and its numbers are right."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.mark.nightly
def test_both_ways_to_the_evidence_agree_and_shapley_values_add_up(load_script):
    """The log determinant by 8 random vectors has an error of some hundredths per row of 200."""
    for name in ("iterative_gp", "svgp"):
        load_script(f"benchmarks/{name}.py")
    script = load_script("benchmarks/on_gpu.py")
    lines = {
        line.method: line
        for job in (script.exact(64, script.QUICK), script.explained(64, script.QUICK, 100.0))
        for line in job
    }
    assert lines["kpp, conjugate gradients"].score == pytest.approx(lines["kpp, Cholesky"].score, abs=0.1)
    assert lines[f"kpp, {script.QUICK.explained_rows} rows"].score < 1e-10  # rounding
    assert all(np.isfinite(line.seconds) for line in lines.values())
