"""Write `docs/reference/measured_intervals.md` from the list of simulations and the stored results."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from examples.coverage.simulations import FOLDER, KINDS, RESULTS, Simulation

PAGE = FOLDER.parents[1] / "docs" / "reference" / "measured_intervals.md"
HEAD = ("interval", "held", "of", "width", "error", "data sets", "name, date and commit")
INTRO = """\
# Measured intervals

How often does an interval that kpp prints hold the truth? For each kind of interval, data were simulated from a law
whose truth is known, and the intervals were counted that hold it. This page is made from these results, and a test
fails if it is not.

* **held** is the share of the intervals that hold the truth, with its standard error. **of** is what it should be.
* **width** is the mean width of the intervals. **error** is the root mean squared distance between the truth and the
  middle of an interval. A 90 % interval of a normal distribution is 3.3 errors wide.
* **ranks: p** is the p value of simulation-based calibration (`kpp.calibration`), the smallest of all numbers of a law
  times their count. If the ranks of truths among 99 draws are uniform, at most 5 % of such rows have one below .05.
* Each row is measured again by `python -m examples.coverage NAME`, and all by `--all`. A row names the date and the
  commit of its run.
* Where a share differs from the nominal one by more than 3 points and two standard errors, a sentence below the table
  says why, and what to do. With few data sets the standard error is large: read such a row as a first look.

A simulation answers for its own law only. `kpp.certify` measures the intervals of your own fit."""


def render() -> str:
    """Return the text of the page."""
    parts = [INTRO]
    for kind in KINDS:
        module = importlib.import_module(f"examples.coverage.{kind}")
        found = {name: read(name) for name in module.SIMULATIONS if (RESULTS / f"{name}.json").exists()}
        rows = [row for name, stored in found.items() for row in rows_of(module.SIMULATIONS[name], stored)]
        parts += [f"## {module.TITLE}", table(HEAD, rows), laws(module.SIMULATIONS), known(module.SIMULATIONS)]
    return "\n\n".join(part for part in parts if part) + "\n"


def read(name: str, folder: Path = RESULTS) -> dict[str, Any]:
    """Return a stored result."""
    found: dict[str, Any] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return found


def rows_of(simulation: Simulation, stored: dict[str, Any]) -> list[list[str]]:
    """Return the rows of a result, one for each quantity."""
    provenance = f"`{stored['name']}`, {stored['date']}, {stored['commit']}"
    return [
        [
            ": ".join(filter(None, [simulation.about, row["quantity"]])) + uniformity(row),
            f"{100 * row['held']:.1f} % ± {100 * row['standard_error']:.1f}",
            f"{100 * row.get('nominal', stored['nominal']):.0f} %",
            f"{row['width']:.3g}",
            f"{row['error']:.3g}",
            str(row["data_sets"]),
            provenance,
        ]
        for row in stored["quantities"]
    ]


def uniformity(row: dict[str, Any]) -> str:
    """Return the p value of the test of the ranks, if truths were ranked."""
    return f" (ranks: p {row['uniform']:.2g})" if "uniform" in row else ""


def laws(simulations: dict[str, Simulation]) -> str:
    """Return what was simulated, one line for each law and number of rows."""
    by_law: dict[tuple[str, int], list[str]] = {}
    for name, simulation in simulations.items():
        by_law.setdefault((simulation.law, simulation.rows), []).append(f"`{name}`")
    lines = [f"* {', '.join(names)}: {law} Rows: {rows}." for (law, rows), names in by_law.items()]
    return "\n".join(["Simulated data:", "", *lines])


def known(simulations: dict[str, Simulation]) -> str:
    """Return why intervals hold less or more than they should."""
    lines = [f"* `{name}`: {simulation.known}" for name, simulation in simulations.items() if simulation.known]
    return "\n".join(["Where the share differs:", "", *lines]) if lines else ""


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def write(path: Path = PAGE) -> None:
    """Write the page."""
    path.write_text(render(), encoding="utf-8")
