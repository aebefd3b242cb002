"""Small data sets and slow, obvious implementations that the models are compared with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest


@pytest.fixture(scope="session")
def regression_data() -> tuple[np.ndarray, np.ndarray]:
    """20 points with 2 features, a constant third one, one row twice, and noisy targets."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(20, 2)), np.full((20, 1), 3.0)], axis=1)
    x[7] = x[3]
    return x, np.sin(2 * x[:, 0]) + 0.5 * x[:, 1] + 0.2 * rng.normal(size=20) + 1.0


@pytest.fixture(scope="session")
def classification_data() -> tuple[np.ndarray, np.ndarray]:
    """20 points with 2 features, one row twice with both labels, and labels that overlap."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(20, 2))
    y = (x[:, 0] + 0.8 * rng.normal(size=20) > 0).astype(float)
    x[7], y[3], y[7] = x[3], 0.0, 1.0
    return x, y


@pytest.fixture(scope="session")
def rbf() -> Callable[..., np.ndarray]:
    """The RBF kernel in plain NumPy."""

    def kernel(a: np.ndarray, b: np.ndarray, lengthscale: Any = 1.0, variance: float = 1.0) -> np.ndarray:
        difference = (a[:, None, :] - b[None, :, :]) / lengthscale
        return variance * np.exp(-0.5 * (difference**2).sum(-1))

    return kernel


@pytest.fixture(scope="session")
def derivative() -> Callable[..., float]:
    """The derivative of a function of one number by central differences of fourth order."""

    def differentiate(f: Callable[[float], float], at: float, step: float = 1e-4) -> float:
        outer = (float(f(at + 2 * step)) - float(f(at - 2 * step))) / (4 * step)
        inner = (float(f(at + step)) - float(f(at - step))) / (2 * step)
        return (4 * inner - outer) / 3

    return differentiate
