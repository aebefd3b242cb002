"""Slow, obvious computations to compare with, and small functions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from kpp.functions import RKHSFunction
from kpp.kernels import (
    RBF,
    AbstractKernel,
    Categorical,
    Linear,
    Periodic,
    Polynomial,
    ProductKernel,
    Scaled,
)


@pytest.fixture(scope="session")
def vectors(root: Path) -> Callable[[str], dict[str, np.ndarray]]:
    """Reference inputs and outputs by the name of their file."""

    def load(name: str) -> dict[str, np.ndarray]:
        with np.load(root / "tests" / "data" / f"{name}.npz") as file:
            return dict(file)

    return load


@pytest.fixture(scope="session")
def brute_force() -> Callable[..., np.ndarray]:
    """Shapley values of any function by the definition: every coalition, every background point, one at a time."""

    def values(f: Callable[[Any], Any], x: np.ndarray, background: np.ndarray) -> np.ndarray:
        d = len(x)
        coalitions = [s for k in range(d + 1) for s in itertools.combinations(range(d), k)]
        imputed = np.stack([background] * len(coalitions))
        for rows, coalition in zip(imputed, coalitions, strict=True):
            rows[:, list(coalition)] = x[list(coalition)]
        predictions = np.asarray(f(imputed.reshape(-1, d)))
        means = predictions.reshape(len(coalitions), len(background), *predictions.shape[1:]).mean(axis=1)
        worths = dict(zip(coalitions, means, strict=True))
        phi = []
        for j in range(d):
            total = 0.0
            for s in (s for s in coalitions if j not in s):
                weight = math.factorial(len(s)) * math.factorial(d - 1 - len(s)) / math.factorial(d)
                total = total + weight * (worths[tuple(sorted((*s, j)))] - worths[s])
            phi.append(total)
        return np.stack(phi)

    return values


KERNELS: dict[str, AbstractKernel] = {
    "RBF": RBF(lengthscale=jnp.array([0.7, 1.0, 1.6, 2.0]), variance=1.7),
    "sum of products": Scaled(RBF(lengthscale=0.9) * Periodic(lengthscale=1.5, period=3.0), 2.0)
    + RBF(lengthscale=2.0)
    + 0.8,
    "factors of both signs": ProductKernel((Linear(), RBF(), Polynomial(degree=3), Linear())),
    "a categorical feature": ProductKernel((Categorical(), RBF(), RBF(lengthscale=0.5), Periodic())),
}


@pytest.fixture(params=list(KERNELS), scope="session")
def kernel(request: pytest.FixtureRequest) -> AbstractKernel:
    """Every way to be a sum of product kernels, on four features."""
    return KERNELS[request.param]


@pytest.fixture(scope="session")
def data() -> dict[str, np.ndarray]:
    """Points of the function, background and points to explain; the first feature holds codes."""
    rng = np.random.default_rng(3)
    points = rng.normal(size=(15, 4))
    points[:, 0] = rng.integers(0, 3, size=15)
    return {"X": points[:7], "Z": points[7:12], "x": points[12:], "alpha": rng.normal(size=7)}


@pytest.fixture
def function(kernel: AbstractKernel, data: dict[str, np.ndarray]) -> RKHSFunction:
    """A function of each kernel."""
    return RKHSFunction(kernel, data["X"], data["alpha"], 0.3)
