"""The benchmarks of the surrogates run, and what they are there to show holds."""

from __future__ import annotations

import logging

import numpy as np
import pytest


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_kernel_shap_errs_no_more_than_shap_at_equal_budget(load_script):
    """The ratio of the mean errors of twenty seeds is .98 and .94."""
    pytest.importorskip("shap")
    logging.getLogger("shap").setLevel(logging.ERROR)
    script = load_script("benchmarks/kernel_shap.py")
    problem = script.make_problem(4, 20)
    for budget in (256, 1024):
        results = script.measure(problem, budget, 20)
        ours, theirs, default = (script.mean_error(results[name]) for name in ("kpp", "shap", "default"))
        assert ours <= theirs < default
        stated = np.mean([result.stated for result in results["kpp"]])
        assert 0.8 < stated / ours < 1.25
        assert max(result.gap for result in results["kpp"]) < 1e-12
        assert results["kpp"][0].rows <= results["shap"][0].rows * 1.02
    assert f"{budget:>10}" in script.describe(problem, budget, results)
