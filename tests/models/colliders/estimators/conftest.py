"""A finite population with exact conditional expectations."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin, TransformerMixin


class CellMeans(RegressorMixin, BaseEstimator):
    """The mean over the rows of equal features: on a finite population, the conditional expectation itself."""

    def fit(self, X, y):
        self.cells_, cell = np.unique(X, axis=0, return_inverse=True)
        sums = np.zeros((len(self.cells_), *y.shape[1:]))
        np.add.at(sums, cell.ravel(), y)
        counts = np.bincount(cell.ravel()).reshape(-1, *[1] * (y.ndim - 1))
        self.means_ = sums / counts
        return self

    def predict(self, X):
        cell = np.argmax((np.asarray(X)[:, None] == self.cells_).all(axis=2), axis=1)
        return self.means_[cell]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class Cells(TransformerMixin, BaseEstimator):
    """One indicator for each cell of equal features."""

    def fit(self, X, y=None):
        self.cells_ = np.unique(X, axis=0)
        return self

    def transform(self, X):
        return (np.asarray(X)[:, None] == self.cells_).all(axis=2).astype(float)


@pytest.fixture(scope="session")
def cell_means() -> CellMeans:
    """An exact conditional expectation."""
    return CellMeans()


@pytest.fixture(scope="session")
def cells() -> Cells:
    """Features in which every function of a cell is linear."""
    return Cells()


@pytest.fixture(scope="session")
def population() -> tuple[np.ndarray, np.ndarray]:
    """Equally likely rows (n, 4) of few values, which come together more or less often, and a function of them."""
    rng = np.random.default_rng(7)
    grid = np.stack(np.meshgrid(*[np.arange(3.0)] * 3, np.arange(2.0), indexing="ij"), axis=-1).reshape(-1, 4)
    x = np.repeat(grid, rng.integers(1, 4, len(grid)), axis=0)
    weights = rng.normal(size=4)
    return x, np.cos(x @ weights) + x[:, 0] * x[:, 1] - 0.3 * x[:, 2] ** 2 + x[:, 3]
