"""Write `docs/reproducibility.md` from `experiments.toml` and the stored results, and from nothing else."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from experiments import FOLDER, RESULTS, read, read_list

PAGE = FOLDER.parents[1] / "docs" / "reproducibility.md"
HEAD = ("item", "claim of the paper", "ours", "published", "verdict")


def render() -> str:
    """Return the text of the page."""
    found = read_list()
    results = {name: read(name) for name in found["experiments"] if (RESULTS / f"{name}.json").exists()}
    parts = [found["intro"].strip()]
    for key, paper in found["papers"].items():
        items = [item for item in found["items"] if item["paper"] == key]
        rows = [item_row(item, results) for item in items]
        parts += [f"## {paper['title']}", paper["citation"].strip(), table(HEAD, rows)]
        parts += [
            section(name, experiment, results.get(name))
            for name, experiment in found["experiments"].items()
            if experiment["paper"] == key
        ]
    return "\n\n".join(parts) + "\n"


def item_row(item: dict[str, Any], results: dict[str, Any]) -> list[str]:
    """Return the row of a table or figure of a paper."""
    name = item.get("experiment")
    verdict = f"**{item['verdict']}**" + (f": {item['why']}" if "why" in item else "")
    if name is None:
        return [item["item"], item["claim"], "", item.get("published", ""), verdict]
    numbers = f"[numbers](#{name})" if name in results else f"no run is stored; see [the command](#{name})"
    ours, published = shown(item["shows"], results[name]) if "shows" in item and name in results else ("", "")
    theirs = item.get("published", published)
    return [item["item"], item["claim"], "<br>".join(filter(None, [ours, numbers])), theirs, verdict]


def shown(wanted: dict[str, Any], result: dict[str, Any]) -> tuple[str, str]:
    """Return the numbers of a result that an item names, ours and the published ones, one per line.

    Args:
        wanted: `table`, `values`, the `label` column, and `where`, the value of other columns or a list
            of values.
        result: A stored result.
    """
    tables = [found for found in result["tables"] if found["table"] == wanted["table"]]
    rows = [dict(zip(found["columns"], row, strict=True)) for found in tables for row in found["rows"]]
    where = {key: value if isinstance(value, list) else [value] for key, value in wanted.get("where", {}).items()}
    rows = [row for row in rows if all(row[key] in values for key, values in where.items())]
    ours, published = [], []
    for row in rows:
        for value in (name for name in wanted["values"] if row[name] is not None):
            label = ", ".join(labels(row, wanted, value))
            ours.append(f"{label} {number(row, value)}")
            theirs = row.get(f"{value}, published")
            published += [f"{label} {theirs}"] if theirs is not None else []
    return "<br>".join(ours), "<br>".join(published)


def labels(row: dict[str, Any], wanted: dict[str, Any], value: str) -> list[str]:
    """Return what a number is called: the row's label, with the name of its column if it is a number, and the value."""
    column = wanted.get("label")
    of_row = [] if column is None else [row[column] if isinstance(row[column], str) else f"{column} {row[column]:g}"]
    return of_row + [value] * (len(wanted["values"]) > 1)


def section(name: str, experiment: dict[str, Any], result: dict[str, Any] | None) -> str:
    """Return the section of an experiment: how it was run, why it differs, and all its numbers."""
    parts = [f"### {name}", experiment["about"].strip()]
    if result is None:
        return "\n\n".join([*parts, f"No full run is stored. Run it by `python -m examples.reproduce {name}`."])
    parts.append(provenance(result))
    for found in result["tables"]:
        parts += [found["title"] + ":", number_table(found)]
    return "\n\n".join(parts)


def provenance(result: dict[str, Any]) -> str:
    """Return by which command, when, with which versions, in what time and memory a result was made."""
    cost = []
    if result.get("seconds") is not None:
        cost = [f"{result['seconds']:.0f} s", f"peak memory {result['peak_mb'] / 1000:.1f} GB"]
    stack = ", ".join(f"{package} {number}" for package, number in result.get("stack", {}).items())
    words = [result["date"], *cost, stack]
    text = f"`{result['command']}`\n({'; '.join(word for word in words if word)})"
    return text + (f"\n\n{result['source']}" if "source" in result else "")


def number_table(found: dict[str, Any]) -> str:
    """Return all numbers of a table, with standard errors behind their values."""
    columns = found["columns"]
    kept = [column for column in columns if not (column.endswith(" se") and column[:-3] in columns)]
    rows = [dict(zip(columns, row, strict=True)) for row in found["rows"]]
    return table(kept, [[number(row, column) for column in kept] for row in rows])


def number(row: dict[str, Any], column: str) -> str:
    """Return a value with its standard error, rounded to one digit of the error, or two if it begins with 1 or 2."""
    value, error = row[column], row.get(f"{column} se")
    if value is None:
        return ""
    if not isinstance(value, float):
        return str(value)
    if not error:
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    magnitude = math.floor(math.log10(error))
    decimals = max(0, (error < 3 * 10.0**magnitude) - magnitude)
    return f"{value:.{decimals}f} ± {error:.{decimals}f}"


def table(head: Sequence[str], rows: Iterable[list[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def write(path: Path = PAGE) -> None:
    """Write the page."""
    path.write_text(render(), encoding="utf-8")
