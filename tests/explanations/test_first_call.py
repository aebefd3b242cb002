"""The first explanation compiles few programs and none twice; the next ones of the same shape compile nothing."""

from __future__ import annotations

import collections

import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge

import kpp

# The game, the values at the point and the mean over the background, the checks of these numbers: a program each.
MAX_PROGRAMS = {"interventional": 8, "observational": 10}


def explain(seed, game, row):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(37, 7))  # a shape that no other test uses, so that all programs are compiled here
    model = KernelRidge(kernel="rbf", gamma=0.2 + 0.1 * seed).fit(x, rng.normal(size=37))
    return kpp.explain(model, x[row : row + 1], value_function=game, background=x)


@pytest.mark.slow_variants("observational")
@pytest.mark.parametrize("game", MAX_PROGRAMS)
def test_programs_of_the_first_call_are_few_and_made_once(game, compilations):
    explain(0, game, 0)
    first = collections.Counter(str(sorted(program.items())) for program in compilations)
    assert 0 < sum(first.values()) <= MAX_PROGRAMS[game]
    compilations.clear()
    explain(0, game, 1)  # another point
    explain(1, game, 0)  # another model and background
    assert compilations == []
