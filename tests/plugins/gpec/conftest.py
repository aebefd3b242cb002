"""Reference vectors, boundaries whose geodesic distances are known, and a neural classifier."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import make_moons

from kpp_gpec import FittedNeuralClassifier, MLPClassifier


@pytest.fixture(scope="session")
def vectors(root) -> dict[str, np.ndarray]:
    with np.load(root / "tests" / "data" / "gpec.npz") as file:
        return {name: file[name] for name in file.files}


@pytest.fixture(scope="session")
def boundaries() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Samples of boundaries with their geodesic distances, by name."""
    rng = np.random.default_rng(11)
    plane = np.column_stack([np.zeros(40), rng.normal(size=40), rng.normal(size=40)])
    angles = np.arange(40) * 2 * np.pi / 40
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    sphere = rng.normal(size=(40, 3))
    sphere /= np.linalg.norm(sphere, axis=1, keepdims=True)
    arcs = np.arccos(np.clip(sphere @ sphere.T, -1.0, 1.0))
    steps = _staircase(40)
    apart = np.concatenate([circle[::2] - [5.0, 0.0], circle[::2] + [5.0, 0.0]])
    around = np.abs(angles[:, None] - angles[None, :])
    around = np.minimum(around, 2 * np.pi - around)
    sides = np.repeat([0, 1], 20)
    return {
        "plane": (plane, _euclidean(plane)),
        "circle": (circle, around),
        "sphere": (sphere, np.where(np.eye(40, dtype=bool), 0.0, arcs)),
        "step": steps,
        "apart": (apart, np.where(sides[:, None] == sides[None, :], np.tile(around[::2, ::2], (2, 2)), np.inf)),
        "duplicates": (np.repeat(circle[::4], 4, axis=0), np.repeat(np.repeat(around[::4, ::4], 4, 0), 4, 1)),
    }


@pytest.fixture(scope="session")
def moons() -> tuple[np.ndarray, np.ndarray]:
    return make_moons(80, noise=0.1, random_state=0)


@pytest.fixture(scope="session")
def classifier(moons) -> FittedNeuralClassifier:
    """A smooth network that tells the left moon from the right one."""
    x, y = moons
    options = {"num_epochs": 150, "learning_rate": 0.02, "beta": 3.0, "progress": False, "random_state": 0}
    return MLPClassifier((16,), **options).fit(x, np.array(["left", "right"])[y]).function_


def _staircase(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return points on a staircase of unit steps, as a tree's boundary is, and distances along it."""
    along = np.linspace(-4.0, 4.0, count)
    whole, part = np.divmod(along, 1.0)
    across, up = np.minimum(2 * part, 1.0), np.maximum(2 * part - 1.0, 0.0)
    return np.stack([whole + across, whole + up], axis=1), 2 * np.abs(along[:, None] - along[None, :])


def _euclidean(points: np.ndarray) -> np.ndarray:
    return np.sqrt(((points[:, None] - points[None]) ** 2).sum(axis=-1))
