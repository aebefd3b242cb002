"""Write the pages of `docs/reproducibility/` from `experiments.toml` and the stored results, and from nothing else."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import ages
from experiments import FOLDER, RESULTS, read, read_list, script

PAGES = FOLDER.parents[1] / "docs" / "reproducibility"
HEAD = ("item", "claim of the paper", "ours", "published", "verdict")
VERDICTS = ("done", "done, and better", "differs", "not run", "not in this repository", "no result")
# In cells. A longer table is in the file of the result: the row of an item has the numbers that the claim is about.
LONGEST = 16


def render() -> dict[str, str]:
    """Return the text of each page by the name of its file: the index, and one page per paper."""
    found = read_list()
    results = {name: read(name) for name in found["experiments"] if (RESULTS / f"{name}.json").exists()}
    old = [name for name, result in results.items() if is_old(found["experiments"][name], result)]
    pages = {"index.md": index(found, results, old)}
    return pages | {file_name(key): paper_page(key, found, results, old) for key in found["papers"]}


def is_old(experiment: dict[str, Any], result: dict[str, Any]) -> bool:
    """Return whether the code of an experiment has changed since its result was made or confirmed."""
    return not ages.is_current(result, ages.digest(script(experiment)))


def file_name(paper: str) -> str:
    """Return the name of the page of a paper."""
    return f"{paper.replace('-', '_')}.md"


def index(found: dict[str, Any], results: dict[str, Any], old: list[str]) -> str:
    """Return the page of all papers: the verdicts, and which results are older than their code."""
    used = [verdict for verdict in VERDICTS if any(item["verdict"] == verdict for item in found["items"])]
    rows = [verdict_row(key, paper, used, found["items"]) for key, paper in found["papers"].items()]
    rows.append(["all", *(str(sum(item["verdict"] == verdict for item in found["items"])) for verdict in used)])
    papers = {name: experiment["paper"] for name, experiment in found["experiments"].items()}
    links = ", ".join(f"[{name}]({file_name(papers[name])}#{name})" for name in old)
    age = f"{len(old) or 'None'} of {len(results)} results {'is' if len(old) < 2 else 'are'} older than the code"
    age += f": {links}." if old else "."
    confirmed = sum("confirmed" in result for name, result in results.items() if name not in old)
    if confirmed:
        age += (
            f" The code of {confirmed} has changed since they were run, and these are confirmed: their quick "
            "versions, which run it on small problems, give the same numbers as before, up to one unit of the fourth "
            "digit."
        )
    toctree = "\n".join(["```{toctree}", ":hidden:", "", *map(file_name, found["papers"]), "```"])
    parts = [
        found["intro"].strip(),
        "## Verdicts",
        table(["paper", *used], rows),
        "## Age of the results",
        age,
        toctree,
    ]
    return "\n\n".join(parts) + "\n"


def verdict_row(key: str, paper: dict[str, Any], verdicts: list[str], items: list[dict[str, Any]]) -> list[str]:
    """Return the items of a paper by their verdicts."""
    named = [(item["verdict"], item["item"]) for item in items if item["paper"] == key]
    cells = ["<br>".join(name for verdict, name in named if verdict == wanted) for wanted in verdicts]
    return [f"[{paper['title']}]({file_name(key)})", *cells]


def paper_page(key: str, found: dict[str, Any], results: dict[str, Any], old: list[str]) -> str:
    """Return the page of a paper: a row for each of its items, and a section for each experiment."""
    paper = found["papers"][key]
    rows = [item_row(item, found["experiments"], results) for item in found["items"] if item["paper"] == key]
    parts = [f"# {paper['title']}", paper["citation"].strip(), table(HEAD, rows)]
    for name, experiment in found["experiments"].items():
        if experiment["paper"] == key:
            parts.append(section(name, experiment, results.get(name), name in old))
    return "\n\n".join(parts) + "\n"


def item_row(item: dict[str, Any], experiments: dict[str, Any], results: dict[str, Any]) -> list[str]:
    """Return the row of a table or figure of a paper."""
    name = item.get("experiment")
    verdict = f"**{item['verdict']}**" + (f": {item['why']}" if "why" in item else "")
    if name is None:
        return [item["item"], item["claim"], "", item.get("published", ""), verdict]
    place = experiments[name]["paper"]
    link = ("" if place == item["paper"] else file_name(place)) + f"#{name}"
    numbers = f"[numbers]({link})" if name in results else f"no run is stored; see [the command]({link})"
    ours, published = shown(item["shows"], results[name]) if "shows" in item and name in results else ("", "")
    theirs = item.get("published", published)
    return [item["item"], item["claim"], "<br>".join(filter(None, [ours, numbers])), theirs, verdict]


def shown(wanted: dict[str, Any], result: dict[str, Any]) -> tuple[str, str]:
    """Return the numbers of a result that an item names, ours and the published ones, one per line.

    Args:
        wanted: `table`, `values`, `label`, a column or a list of them, and `where`, the value of other columns or a
            list of values.
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
    """Return what a number is called: the labels of its row, numbers with the name of their column, and the value."""
    columns = wanted.get("label", [])
    columns = [columns] if isinstance(columns, str) else columns
    of_row = [row[column] if isinstance(row[column], str) else f"{column} {row[column]:g}" for column in columns]
    return of_row + [value] * (len(wanted["values"]) > 1)


def section(name: str, experiment: dict[str, Any], result: dict[str, Any] | None, old: bool) -> str:
    """Return the section of an experiment: how it was run, why it differs, and its numbers."""
    parts = [f"## {name}", experiment["about"].strip()]
    if result is None:
        return "\n\n".join([*parts, f"No full run is stored. Run it by `python -m examples.reproduce {name}`."])
    parts.append(provenance(result, old))
    file = f"[{name}.json](../../examples/reproduce/results/{name}.json)"
    for found in result["tables"]:
        shown_columns = [column for column in found["columns"] if not column.endswith(" se")]
        if len(found["rows"]) * len(shown_columns) <= LONGEST:
            parts += [found["title"] + ":", number_table(found)]
        else:
            parts.append(f"{found['title']}: {len(found['rows'])} rows in {file}.")
    return "\n\n".join(parts)


def provenance(result: dict[str, Any], old: bool) -> str:
    """Return the command, date, commit, time and memory of a result, and whether its code has changed."""
    cost = []
    if result.get("seconds") is not None:
        cost = [f"{result['seconds']:.0f} s", f"peak memory {result['peak_mb'] / 1000:.1f} GB"]
    words = [result["date"], f"commit {result['commit']}" if result["commit"] else "", *cost]
    text = f"`{result['command']}`\n({'; '.join(word for word in words if word)})"
    text += "\n\n**Older than its code**, which has changed since this run." * old
    if "confirmed" in result and not old:
        text += f"\n\nConfirmed for commit {result['confirmed']['commit']}."
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


def write(folder: Path = PAGES) -> None:
    """Write the pages."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in render().items():
        (folder / name).write_text(text, encoding="utf-8")
