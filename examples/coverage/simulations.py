"""What a simulation of intervals is, how it is run, and how its result is stored.

A simulation draws a truth and data from a known law, lets kpp print intervals, and looks whether they hold the truth.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import Any, NamedTuple

import numpy as np

from kpp import calibration

FOLDER = Path(__file__).resolve().parent
RESULTS = FOLDER / "results"
# A module for each kind of interval, in the order of the page. It has a title, `TITLE`, and a table, `SIMULATIONS`.
KINDS = (
    "predictions",
    "shapley",
    "outputs",
    "curves",
    "sensitivity",
    "importance",
    "effects",
    "identified",
    "counterfactuals",
    "fusion",
    "aggregates",
    "areas",
    "preferences",
    "sampling",
    "explainers",
    "independence",
    "certificate",
)
# The draws of a posterior among which a truth is ranked.
NUM_RANKS = 99
STACK = ("kpp", "jax", "numpyro", "numpy")


class Intervals(NamedTuple):
    """Intervals of one data set and what they should hold: arrays of one shape, or numbers.

    Attributes:
        truth: What they should hold.
        low: The lower bounds.
        high: The upper bounds.
        draws: `NUM_RANKS` draws of the law of the intervals, (NUM_RANKS, *shape), if the truth was drawn from the prior
            and is to be ranked among them.
    """

    truth: Any
    low: Any
    high: Any
    draws: Any = None


def ninety_percent(truth: Any, draws: Any) -> Intervals:
    """Return the central 90 % intervals of draws, (draws, *shape), with their truths, shape."""
    low, high = np.quantile(np.asarray(draws), [0.05, 0.95], axis=0)
    return Intervals(truth, low, high)


@dataclasses.dataclass(frozen=True)
class Simulation:
    """A law of data sets with a known truth, and the intervals that kpp prints for them.

    Args:
        about: What the intervals are of, and by which model and inference.
        law: What is simulated, in one sentence.
        rows: How many rows the data have.
        measure: A function of a seed. It simulates a data set and returns its intervals by the names of quantities.
        data_sets: How many data sets a full run has.
        nominal: The share that the intervals should hold.
        known: Why intervals hold another share, for a row where they do; what a user should do.
        levels: The nominal shares of quantities that have another one.
    """

    about: str
    law: str
    rows: int
    measure: Callable[[int], Mapping[str, Intervals]]
    data_sets: int = 200
    nominal: float = 0.9
    known: str = ""
    levels: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The name of the function that measures."""
        return getattr(self.measure, "func", self.measure).__qualname__


def simulations() -> dict[str, Simulation]:
    """Return all simulations by name, in the order of the page."""
    return {
        name: found
        for kind in KINDS
        for name, found in importlib.import_module(f"examples.coverage.{kind}").SIMULATIONS.items()
    }


def ranks(intervals: Intervals) -> list[int]:
    """Return the ranks of the truths among the draws, one after another; none if there are no draws."""
    if intervals.draws is None:
        return []
    truth, draws = np.atleast_1d(intervals.truth), np.asarray(intervals.draws)
    return calibration.rank_statistics(truth[None], draws.reshape(1, NUM_RANKS, *truth.shape)).ravel().tolist()


def summarize(intervals: Intervals) -> tuple[float, float, float]:
    """Return of one data set the share of truths held, the mean width, and the mean squared error of the middles."""
    truth, low, high = np.broadcast_arrays(*(np.asarray(part, dtype=float) for part in intervals[:3]))
    if not (np.isfinite(truth).all() and np.isfinite(low).all() and np.isfinite(high).all()):
        raise ValueError("an interval or a truth is not finite")
    held = (low <= truth) & (truth <= high)
    return float(held.mean()), float((high - low).mean()), float(np.mean((truth - (low + high) / 2) ** 2))


def measure(simulation: Simulation, seeds: Iterable[int], deadline: float = np.inf) -> dict[str, list[list[float]]]:
    """Return what `summarize` and `ranks` find in each data set, by quantity; begin none after a deadline."""
    found: dict[str, list[list[float]]] = {}
    for seed in seeds:
        if time.time() > deadline:
            break
        for quantity, intervals in simulation.measure(seed).items():
            found.setdefault(quantity, []).append([*summarize(intervals), *ranks(intervals)])
    return found


def result(name: str, found: Mapping[str, list[list[float]]], seconds: float, commit: str) -> dict[str, Any]:
    """Return the result that is stored: for each quantity the share held, with its standard error, width and error.

    Intervals of one data set are dependent, so the standard error is that of the data sets' own shares. If no interval
    or every interval holds its truth, it is that of one more data set with the other outcome. Ranks are tested for
    uniformity, coordinate by coordinate, and the smallest p value is multiplied by the number of coordinates.
    """
    simulation, rows = simulations()[name], []
    for quantity, numbers in found.items():
        held, width, squared, *ranked = np.array(numbers).T
        spread = held if 0 < held.mean() < 1 else np.append(held, 1 - held[0])
        rows.append(
            {
                "quantity": quantity,
                "nominal": simulation.levels.get(quantity, simulation.nominal),
                "held": round(float(held.mean()), 4),
                "standard_error": round(float(spread.std() / np.sqrt(len(held))), 4),
                "width": float(f"{width.mean():.4g}"),
                "error": float(f"{np.sqrt(squared.mean()):.4g}"),
                "data_sets": len(held),
            }
        )
        if ranked:
            found_ranks = calibration.CalibrationResult({quantity: np.stack(ranked, axis=1)}, NUM_RANKS, {})
            rows[-1]["uniform"] = float(f"{found_ranks.p_value():.3g}")
    return {
        "name": name,
        "command": f"python -m examples.coverage {name}",
        "nominal": simulation.nominal,
        "rows": simulation.rows,
        "law": simulation.law,
        "date": date.today().isoformat(),
        "commit": commit,
        "seconds": round(seconds, 1),
        "stack": {"python": python_version(), **{package: version(package) for package in STACK}},
        "quantities": rows,
    }


def store(found: Mapping[str, Any], folder: Path) -> Path:
    """Write a result to a file in a folder, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{found['name']}.json"
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def this_commit() -> str:
    """Return the short name of the commit of this checkout, with a plus sign if files differ from it."""
    names = subprocess.run(
        ["git", "describe", "--always", "--exclude", "*", "--dirty=+"], cwd=FOLDER, capture_output=True, text=True
    )
    return names.stdout.strip() or "unknown"
