"""The benchmark of embeddings from bags runs, and its estimators agree as it says."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture(scope="module")
def script(load_script):
    return load_script("benchmarks/shrinkage_embedding.py")


@pytest.mark.slow
def test_estimators_agree_as_the_table_says(script):
    equal, unequal = (script.measure(script.make_problem(np.array(sizes)), 1) for sizes in ([3] * 9, [1, 2] * 9))
    replicated, shrinkage = "replicated minus naive", "shrinkage minus naive"
    assert max(equal[replicated], equal[shrinkage], unequal[replicated]) < 1e-12
    assert unequal[shrinkage] > 1e-4


@pytest.mark.nightly
def test_the_table_is_printed_and_returned_and_the_figures_are_drawn(script, capsys, tmp_path):
    found = script.main(["--scale", "0.01", "--repeats", "1", "--output", str(tmp_path)])["times"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["figure_a1.png", "figure_a2.png"]
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in printed[1:6]] == [
        [str(b), str(p)] for b, p in found[["bags", "points"]].values
    ]
