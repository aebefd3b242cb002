"""Explanations of a collider ridge with a parent of the target, whose function has points that are not an array."""

from __future__ import annotations

from itertools import combinations
from math import factorial

import jax
import numpy as np
import pytest

import kpp
from kpp.kernels import RBF
from kpp_models import ColliderRidge


@pytest.mark.nightly
def test_interventional_values_are_those_of_all_coalitions():
    points = np.random.default_rng(0).normal(size=(30, 3))
    model = ColliderRidge(
        RBF(1.5),
        RBF(1.0),
        0.01,
        0.01,
        children=(0,),
        spouses=(1,),
        parents=(2,),
        projection="function",
        baseline_kernel=RBF(1.5),
        baseline_regularization=0.01,
    )
    fit = model.fit(jax.random.key(0), points, points[:, 2] + points[:, 0], num_prior_samples=0)
    x, background = points[:2], points[:8]
    found = kpp.explain(fit, x, background=background, value_function="interventional").dataset["values"]

    def worth(row, coalition):
        rows = background.copy()
        rows[:, list(coalition)] = row[list(coalition)]
        return float(fit.predict(rows)["mean"].mean())

    for row, values in zip(x, found.values.reshape(2, 3), strict=True):
        for player in range(3):
            others = [other for other in range(3) if other != player]
            gains = (
                factorial(size) * factorial(2 - size) / 6 * (worth(row, (*chosen, player)) - worth(row, chosen))
                for size in range(3)
                for chosen in combinations(others, size)
            )
            np.testing.assert_allclose(values[player], sum(gains), rtol=1e-8, atol=1e-10)
