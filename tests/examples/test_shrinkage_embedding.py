"""The benchmark of embeddings from bags runs, and its estimators agree as it says."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.mark.slow
def test_estimators_agree_as_the_table_says(load_script):
    script = load_script("benchmarks/shrinkage_embedding.py")
    equal, unequal = (
        script.measure(script.make_problem(np.array(sizes)), 1).split() for sizes in ([3] * 9, [1, 2] * 9)
    )
    replicated, shrinkage = -5, -4
    assert max(float(equal[replicated]), float(equal[shrinkage]), float(unequal[replicated])) < 1e-12
    assert float(unequal[shrinkage]) > 1e-4
