"""Shared code of the experiments on GPEC: the methods, widths of intervals, and heat maps of two features."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import equinox as eqx
import jax
import matplotlib.pyplot as plt
import numpy as np
from gpec_data import Predictor

from kpp import AbstractExplainer, Explanation
from kpp_gpec import GPEC, BisectionSampler, BoundarySample, FittedGPEC, NaiveGP, class_margin
from kpp_surrogates import BayesLIME, BayesSHAP, CXPlain, KernelSHAP, ShapleySampling

# The interval is the mean plus and minus this number of standard deviations.
INTERVAL = 4.0
FINE = 150  # points along an axis from which a boundary is drawn
# Parameters that distinguish neighboring parts of a boundary.
SHARP: dict[str, Any] = {"standardize": True, "decay": 5.0, "concentration": 25.0}
# The smallest variance of explanations, as published: KernelSHAP has no error if all coalitions are evaluated, and
# duplicate rows then make the kernel matrix singular.
FLOOR = 1e-4
# Changes of the published settings; without "standardize" lambda and rho are in the units of the data.
SETTINGS: dict[str, dict[str, Any]] = {
    "lambda = rho = .5": {"decay": 0.5, "concentration": 0.5},
    "lambda = rho = 1": {"decay": 1.0, "concentration": 1.0},
    "lambda = rho = 2, RBF 20": {"decay": 2.0, "concentration": 2.0, "rbf": True, "lengthscale": 20.0},
    "published, standardized": {"standardize": True},
    "5 and 25, standardized": SHARP,
}


@dataclass(frozen=True)
class Plane:
    """A classifier of two features, its training rows, and the points of a grid over their range.

    Args:
        name: The name of the data.
        features: Names of the two features.
        predictor: The probability of class 1.
        x: The training rows, (n, 2).
        first: Values of the first feature along the grid, (a,).
        second: Values of the second feature along the grid, (b,).
    """

    name: str
    features: tuple[str, str]
    predictor: Predictor
    x: np.ndarray
    first: np.ndarray
    second: np.ndarray

    @property
    def points(self) -> np.ndarray:
        """The points of the grid, the second feature varying fastest, (a b, 2)."""
        return np.stack(np.meshgrid(self.first, self.second, indexing="ij"), axis=-1).reshape(-1, 2)

    def on_grid(self, values: np.ndarray) -> np.ndarray:
        """Return values at the points as a matrix whose rows are values of the second feature, (b, a)."""
        return values.reshape(len(self.first), len(self.second)).T


def centers(low: float, high: float, count: int) -> np.ndarray:
    """Return the middles of equal pieces of an interval, (count,)."""
    return low + (high - low) * (np.arange(count) + 0.5) / count


def plane(name: str, features: tuple[str, str], predictor: Predictor, x: np.ndarray, count: int) -> Plane:
    """Lay a grid of `count` times `count` points over the range of training rows."""
    low, high = x.min(axis=0), x.max(axis=0)
    return Plane(name, features, predictor, x, *(centers(*ends, count) for ends in zip(low, high, strict=True)))


@dataclass(frozen=True)
class Effort:
    """The numbers of boundary samples, of perturbations per point, and of coalitions of KernelSHAP."""

    boundary: int = 500
    perturbations: int = 200
    coalitions: int = 256


SMALL = Effort(60, 20, 100)


@dataclass(frozen=True)
class Case:
    """A classifier, the rows that methods learn from, and the rows to explain.

    Args:
        predictor: The probability of class 1.
        background: Rows to learn from, (n, d).
        x: Rows to explain, (p, d).
        effort: The effort of the methods.
        seed: The seed of all random numbers.
        training: Rows from which the boundary is searched, (m, d); the background by default.
    """

    predictor: Predictor
    background: np.ndarray
    x: np.ndarray
    effort: Effort
    seed: int = 0
    training: np.ndarray | None = None

    @property
    def key(self) -> Any:
        """The random key."""
        return jax.random.key(self.seed)

    def kernel_shap(self) -> KernelSHAP:
        """Return the default explainer of GPEC and Naive-GP."""
        return KernelSHAP(self.background[:20], num_coalitions=self.effort.coalitions, progress=False)

    def boundary(self) -> BoundarySample:
        """Sample the boundary of the classifier."""
        rows = self.background if self.training is None else self.training
        sampler = BisectionSampler(max_points=self.effort.boundary)
        return sampler.sample(self.key, class_margin(self.predictor), rows)

    def bayes_shap(self) -> BayesSHAP:
        """Return BayesSHAP."""
        return BayesSHAP(self.background, self.effort.perturbations, progress=False)

    def bayes_lime(self) -> BayesLIME:
        """Return BayesLIME."""
        return BayesLIME(self.background, self.effort.perturbations, progress=False)

    def cxplain(self) -> CXPlain:
        """Return CXPlain."""
        return CXPlain(self.background, progress=False)


class SampledBackground(AbstractExplainer):
    """Shapley sampling values against a few background rows, drawn again for each key.

    With two features both orders are evaluated, so only the rows that replace absent features are sampled.

    Args:
        background: All rows, (m, d).
        num_rows: The number of rows that are drawn.
    """

    background: np.ndarray
    num_rows: int = eqx.field(static=True)

    requires: ClassVar = "callable"
    additive: ClassVar = True

    def explain(self, predictor: Any, x: Any, *, rng_key: Any = None) -> Explanation:
        """Explain by `ShapleySampling` against the rows drawn."""
        chosen = jax.random.choice(rng_key, len(self.background), (self.num_rows,))
        sampling = ShapleySampling(self.background[np.asarray(chosen)], progress=False)
        return sampling.explain(predictor, x, rng_key=rng_key)


def settings(names: Iterable[str] = ()) -> dict[str, Callable[..., GPEC]]:
    """Return ways to make a GPEC: by default, by evidence, as published, and others of `SETTINGS` by name."""
    default = functools.partial(GPEC, min_noise_variance=FLOOR)
    by_evidence = functools.partial(default, selection="evidence")
    ways: dict[str, Callable[..., GPEC]] = {
        "GPEC": default,
        "GPEC by evidence": by_evidence,
        "GPEC as published": GPEC.published,
    }
    return ways | {name: functools.partial(GPEC.published, **SETTINGS[name]) for name in names}


def fit_processes(case: Case, ways: Mapping[str, Callable[..., GPEC]]) -> dict[str, FittedGPEC]:
    """Fit GPECs to one boundary sample, and Naive-GP, all to one explanation of the background."""
    shap, sample = case.kernel_shap(), case.boundary()
    explanation = shap.explain(case.predictor, case.background, rng_key=case.key)
    seen = {"explanation": explanation, "rng_key": case.key}
    with warnings.catch_warnings():
        # A model that predicts one class has no boundary, which the scripts report.
        warnings.filterwarnings("ignore", message="no boundary found")
        found = {
            name: way(shap, case.background).fit(case.predictor, boundary=sample, **seen) for name, way in ways.items()
        }
    naive = NaiveGP(shap, case.background, min_noise_variance=FLOOR)
    return found | {"Naive-GP": naive.fit(case.predictor, **seen)}


def compare(case: Case, names: Iterable[str] = ()) -> dict[str, np.ndarray]:
    """Return the widths by each method, (p, d) each; GPEC's are 0 where there is no boundary.

    Args:
        case: The classifier and its rows.
        names: Further settings of GPEC, of `SETTINGS`.
    """
    found = {}
    for name, fitted in fit_processes(case, settings(names)).items():
        unknown = fitted.boundary is not None and not fitted.boundary.found
        found[name] = np.zeros(case.x.shape) if unknown else widths(fitted.explain(case.x))
    for name, explainer in (("BayesSHAP", case.bayes_shap()), ("BayesLIME", case.bayes_lime())):
        found[name] = widths(explainer.explain(case.predictor, case.x, rng_key=case.key))
    found["CXPlain"] = widths(case.cxplain().fit(case.predictor, rng_key=case.key).explain(case.x))
    return found


def widths(explanation: Explanation) -> np.ndarray:
    """Return widths of intervals, four standard deviations, (p, d)."""
    return INTERVAL * np.sqrt(np.asarray(explanation.variance))


def draw_heat_maps(panels: list[list[tuple[str, Plane, np.ndarray]]], path: Path) -> None:
    """Draw widths over grids, one row per list of panels, with the boundary and the training rows.

    Args:
        panels: For each panel its title, the plane, and the widths at the points of its grid.
        path: Where to save the figure.
    """
    columns = max(map(len, panels))
    figure, grid = plt.subplots(
        len(panels), columns, figsize=(2.9 * columns, 2.7 * len(panels)), squeeze=False, layout="constrained"
    )
    for axes, row in zip(grid, panels, strict=True):
        for ax in axes[len(row) :]:
            ax.axis("off")
        for ax, (title, on, values) in zip(axes, row, strict=False):
            draw_heat_map(ax, on, values)
            ax.set_title(title, fontsize=8)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def draw_heat_map(ax: Any, on: Plane, values: np.ndarray) -> None:
    """Draw one panel of `draw_heat_maps`."""
    image = ax.pcolormesh(on.first, on.second, on.on_grid(values), cmap="Greys", vmin=min(0.0, values.min()))
    ax.figure.colorbar(image, ax=ax)
    fine = plane(on.name, on.features, on.predictor, on.points, FINE)
    sides = fine.on_grid(on.predictor(fine.points) > 0.5)
    if sides.any() and not sides.all():
        ax.contour(fine.first, fine.second, sides, levels=[0.5], colors="black", linewidths=0.8)
    ax.plot(*on.x.T, ".", color="tab:red", markersize=2)
    ax.set_xlabel(on.features[0], fontsize=7)
    ax.set_ylabel(on.features[1], fontsize=7)
    ax.tick_params(labelsize=6)
