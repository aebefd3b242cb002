"""Explanations known in closed form: a linear function has contributions w_j (x_j - mean of the background)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import matplotlib.pyplot as plt
import numpy as np
import pytest

from kpp.data.tables import Schema
from kpp.explanations import AbstractExplainer, Explanation, resolve
from kpp.explanations.toolkit import Requirement

NAMES = ("age", "bmi", "region")
LEVELS = {"region": ("north", "south", "west")}
INSTANCES, CHAINS, DRAWS, OUTPUTS = 5, 2, 30, 2


class LinearShap(AbstractExplainer):
    """Contributions to a function that is linear in each feature, from one evaluation a feature."""

    requires: ClassVar[Requirement] = "callable"
    additive: ClassVar[bool] = True
    background: Any

    def explain(self, predictor: Any, x: Any, *, rng_key: Any = None) -> Explanation:
        function, points, schema = resolve(predictor, x, self.requires)
        points = np.asarray(points)
        base = np.asarray(function(np.asarray(self.background))).mean(axis=-1)
        moved = []
        for j in range(points.shape[1]):
            replaced = np.tile(np.asarray(self.background).mean(axis=0), (len(points), 1))
            replaced[:, j] = points[:, j]
            moved.append(np.asarray(function(replaced)) - base[..., None])
        predictions = np.asarray(function(points))
        return Explanation.create(
            np.stack(moved, axis=-1),
            base,
            predictions,
            points,
            schema=schema,
            draws=predictions.ndim == 3,
            attrs={"explainer": "linear-shap", "exact": True, "seed": None},
        )


@pytest.fixture(scope="session")
def linear_shap() -> type[LinearShap]:
    return LinearShap


@pytest.fixture(scope="session")
def schema() -> Schema:
    return Schema(NAMES, LEVELS)


@pytest.fixture(scope="session")
def points() -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.column_stack([rng.normal(size=(INSTANCES, 2)), [0.0, 1.0, 2.0, 1.0, 0.0]])


@pytest.fixture(scope="session")
def make(points: np.ndarray, schema: Schema) -> Callable[..., Explanation]:
    """Build an explanation: with draws or not, one output or several, a law (None, "variance", "within", "across")."""

    def build(draws: bool = False, outputs: bool = False, law: str | None = None) -> Explanation:
        rng = np.random.default_rng(1)
        sample = (CHAINS, DRAWS) if draws else ()
        tail = (OUTPUTS,) if outputs else ()
        weights = rng.normal(size=(*sample, 1, len(NAMES), *tail))
        values = weights * points.reshape(points.shape + (1,) * len(tail))
        base = rng.normal(size=(*sample, *tail))
        predictions = values.sum(axis=len(sample) + 1) + np.expand_dims(base, len(sample))
        return Explanation.create(
            values,
            base,
            predictions,
            points,
            schema=schema,
            draws=draws,
            output_names=["no", "yes"] if outputs else None,
            attrs={"explainer": "linear", "exact": True, "seed": None, "options": {"nodes": 3, "names": ["a"]}},
            **_law(law, values, sample, tail, points),
        )

    return build


@pytest.fixture(scope="session")
def make_groups() -> Callable[..., Explanation]:
    """Build an explanation of the features age, body (two columns) and dose, with all else there is."""

    def build(draws: bool = False) -> Explanation:
        rng = np.random.default_rng(2)
        sample = (CHAINS, DRAWS) if draws else ()
        values = rng.normal(size=(*sample, INSTANCES, 3))
        pairs = rng.normal(size=(*sample, INSTANCES, 3, 3))
        data = rng.normal(size=(INSTANCES, 3))
        data[:, 1] = np.nan
        return Explanation.create(
            values,
            0.5,
            values.sum(axis=-1) + 0.5,
            data,
            feature_names=["age", "body", "dose"],
            groups={"body": ["bmi", "bp"]},
            draws=draws,
            interactions=pairs + np.swapaxes(pairs, -1, -2),
            standard_errors=np.abs(rng.normal(size=values.shape)),
            attrs={"explainer": "linear"},
        )

    return build


def _law(law: str | None, values: np.ndarray, sample: tuple, tail: tuple, points: np.ndarray) -> dict[str, np.ndarray]:
    """The law of a linear function whose weights have a Gaussian law with a known covariance, the same in each draw."""
    if law is None:
        return {}
    if law == "variance":
        return {"variance": np.full(values.shape, 0.25)}
    root = np.array([[1.0, 0.0, 0.0], [0.5, 0.3, 0.0], [0.2, -0.4, 0.1]])
    weights = root @ root.T
    across = np.einsum("pi,qj,ij->pqij", points, points, weights)
    within = np.einsum("ppij->pij", across)
    chosen = {"within": within, "across": across}[law]
    chosen = chosen.reshape(chosen.shape + (1,) * len(tail))
    return {"covariance": np.broadcast_to(chosen, (*sample, *chosen.shape[: chosen.ndim - len(tail)], *tail))}


@pytest.fixture
def ax() -> Iterator[Any]:
    """An axis of a figure that is closed afterwards, with everything else that a plot opened."""
    _, axis = plt.subplots()
    yield axis
    plt.close("all")
