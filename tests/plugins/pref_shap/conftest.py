"""The problem of the reference vectors, and definitions written out with loops over references."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

import kpp
from kpp.games import all_coalitions
from kpp.kernels import RBF, Contextual, GeneralizedPreferential

DATA = Path(__file__).resolve().parents[2] / "data" / "pref_shap.npz"


@pytest.fixture(scope="session")
def problem():
    with np.load(DATA) as vectors:
        return dict(vectors)


@pytest.fixture(scope="session")
def matches(problem):
    return np.stack([problem["in_XL"], problem["in_XR"]], axis=1)


@pytest.fixture(scope="session")
def duel(problem):
    """The duel of the reference vectors, and an item against itself: all tests share the programs for two duels."""
    return np.stack([problem["in_xl"], problem["in_xr"], problem["in_xl"], problem["in_xl"]]).reshape(2, 2, -1)


@pytest.fixture(scope="session")
def function(problem, matches):
    return kpp.RKHSFunction(GeneralizedPreferential(RBF(problem["in_ls"])), matches, problem["in_alpha"])


@pytest.fixture(scope="session")
def contextual(problem, matches):
    kernel = Contextual(GeneralizedPreferential(RBF(problem["in_ls"])), RBF(problem["in_lsu"]))
    return kpp.RKHSFunction(kernel, (matches, problem["in_U"]), problem["in_alpha"])


def weights(background, row, mask, lengthscale, regularization):
    """The weights of the references by NumPy: w = (K_SS + n lam I)^-1 k_S(x), or 1/n without regularization."""
    n = len(background)
    if regularization is None or mask.all() or not mask.any():
        return np.full(n, 1 / n)

    def kernel(a, b):
        differences = (a[:, None] - b[None])[..., mask] / lengthscale[mask]
        return np.exp(-0.5 * (differences**2).sum(-1))

    system = kernel(background, background) + n * regularization * np.eye(n)
    return np.linalg.solve(system, kernel(background, row[None])[:, 0])


@pytest.fixture(scope="session")
def by_definition():
    """v(S) = sum_{u,u'} w_u(x) w_u'(x') g((x_S, z_u), (x'_S, z_u')) for all S, g being any function of pairs."""

    def values(preference, pair, background, lengthscale, regularization=None):
        table = []
        for mask in all_coalitions(pair.shape[1]):
            left, right = (weights(background, row, mask, lengthscale, regularization) for row in pair)
            imputed = [
                [np.where(mask, pair[0], u), np.where(mask, pair[1], v)] for u, v in product(background, background)
            ]
            table.append(np.outer(left, right).ravel() @ np.asarray(preference(np.array(imputed))))
        return np.array(table)

    return values
