"""The list of experiments, `experiments.toml`: read it, run one of them, summarize and store what it returns."""

from __future__ import annotations

import contextlib
import importlib
import io
import itertools
import json
import re
import resource
import time
import tomllib
import traceback
from datetime import date
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import Any

import ages
import pandas as pd
from scipy.stats import wilcoxon

FOLDER = Path(__file__).resolve().parent
RESULTS = FOLDER / "results"
STACK = ("kpp", "jax", "numpyro", "numpy", "scikit-learn")


def read_list() -> dict[str, Any]:
    """Return the papers, the experiments and the items (tables and figures) of `experiments.toml`."""
    return tomllib.loads((FOLDER / "experiments.toml").read_text(encoding="utf-8"))


def run(name: str, data: Path | None = None, *, quick: bool = False) -> dict[str, Any]:
    """Run an experiment in this process, and return the result that is stored.

    Args:
        name: The name in the list.
        data: The folder of the files that the experiment needs; without it they are in the working directory.
        quick: Whether to run the quick version, which needs no files.
    """
    experiment = read_list()["experiments"][name]
    words = arguments(experiment, data, quick)
    origin, start = ages.provenance(script(experiment)), time.perf_counter()
    found = call(experiment["script"], words)
    return {
        "name": name,
        "command": command(experiment, arguments(experiment, None, quick)),
        "quick": quick,
        "date": date.today().isoformat(),
        **origin,
        "seconds": round(time.perf_counter() - start, 1),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),  # kB on Linux
        "stack": {"python": python_version(), **{package: version(package) for package in STACK}},
        "tables": summaries(experiment["tables"], found),
    }


def run_quickly(name: str, data: Path | None, folder: Path) -> str | None:
    """Run the quick version of an experiment in this process and store its result; return what a failed one printed."""
    with io.StringIO() as printed, contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            store(run(name, data, quick=True), folder)
        except BaseException:  # also one that a script raises to stop with a message
            traceback.print_exc()
            return printed.getvalue()
    return None


def script(experiment: dict[str, Any]) -> Path:
    """Return the path of the script of an experiment."""
    return FOLDER.parent / experiment.get("folder", "reproduce") / f"{experiment['script']}.py"


def arguments(experiment: dict[str, Any], data: Path | None, quick: bool) -> list[str]:
    """Return the arguments of a script; names of files are preceded by the folder of the data."""
    if quick:
        return experiment["quick"]
    files = {name: name if data is None else str(data / name) for name in experiment.get("data", [])}
    return [files.get(word, word) for word in experiment["full"]]


def command(experiment: dict[str, Any], words: list[str]) -> str:
    """Return the command line of a script."""
    quoted = [word if re.fullmatch(r"[\w.,=/-]+", word) else f'"{word}"' for word in words]
    return " ".join([f"python {script(experiment).relative_to(ages.ROOT)}", *quoted])


def call(script: str, words: list[str]) -> dict[str, pd.DataFrame]:
    """Call the `main` of a script, a command of click or a function of its arguments, and return its tables."""
    main = importlib.import_module(script).main
    return as_tables(main.main(words, standalone_mode=False) if hasattr(main, "main") else main(words))


def as_tables(found: dict[str, pd.DataFrame] | pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the tables that a script returns, by name; a single one is called "table"."""
    return found if isinstance(found, dict) else {"table": found}


def summaries(wanted: list[dict[str, Any]], found: dict[str, pd.DataFrame]) -> list[dict[str, Any]]:
    """Return the tables of a result: means with standard errors over runs, and p-values where they are asked for.

    Args:
        wanted: The tables of an experiment in the list.
        found: The tables that the script returns, by name.
    """
    tables = []
    for spec in wanted:
        frame, name = found[spec["table"]].reset_index(), spec.get("name", spec["table"])
        tables.append({"table": name, "title": spec["title"], **_cells(summarize(frame, spec))})
        if "compared" in spec:
            title = f"The same, p-values of Wilcoxon's signed-rank test, two-sided and paired by {spec['runs']}"
            tables.append({"table": f"{name}, p-values", "title": title, **_cells(compare(frame, spec))})
    return tables


def summarize(frame: pd.DataFrame, spec: dict[str, Any]) -> pd.DataFrame:
    """Return the mean of each value by the keys, with its standard error over runs, and the published values.

    Args:
        frame: One row per run and setting; a column "VALUE se" is a standard error that the script computes itself.
        spec: The names of the columns: `keys`, `values` and, if there are several runs, `runs`. `published` has a list
            for each value: the keys of a row and the published number.
    """
    keys, values, runs = spec["keys"], spec["values"], spec.get("runs")
    given = [f"{value} se" for value in values if f"{value} se" in frame]
    of_runs = frame.groupby([*keys, *([runs] if runs else [])], sort=False)[[*values, *given]].mean()
    grouped = of_runs.groupby(keys, sort=False)
    table = grouped.mean()
    if runs:
        table = table.join(grouped[values].sem().add_suffix(" se")).assign(runs=grouped.size())
    for value, rows in spec.get("published", {}).items():
        published = {tuple(row[:-1]) if len(keys) > 1 else row[0]: row[-1] for row in rows}
        table[f"{value}, published"] = [published.get(key) for key in table.index]
    return table.reset_index()


def compare(frame: pd.DataFrame, spec: dict[str, Any]) -> pd.DataFrame:
    """Return the p-value of each pair of methods, paired by runs; the methods are a key, or the values.

    `scores` names the values to compare; by default all are.
    """
    method, runs, values = spec["compared"], spec["runs"], spec.get("scores", spec["values"])
    if method not in spec["keys"]:
        frame = frame.melt([*spec["keys"], runs], values, method, "error")
        values = ["error"]
    others = [key for key in spec["keys"] if key != method]
    rows = []
    for group, part in frame.groupby(others, sort=False) if others else [((), frame)]:
        for value in values:
            wide = part.pivot(index=runs, columns=method, values=value)[list(part[method].unique())]
            for one, other in itertools.combinations(wide, 2):
                p_value = wilcoxon(wide[one], wide[other]).pvalue
                labels = dict(zip(others, group, strict=True))
                rows.append({**labels, "score": value, method: one, "other": other, "p": p_value})
    return pd.DataFrame(rows)


def _cells(table: pd.DataFrame) -> dict[str, list[Any]]:
    """Return the columns and rows of a table for JSON: four digits, and None where there is nothing."""
    rows = table.astype(object).to_numpy().tolist()
    return {"columns": [str(column) for column in table], "rows": [[_cell(value) for value in row] for row in rows]}


def _cell(value: Any) -> Any:
    if pd.isna(value):
        return None
    return float(f"{value:.4g}") if isinstance(value, float) else value


def read(name: str, folder: Path = RESULTS) -> dict[str, Any]:
    """Return a stored result."""
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


def store(result: dict[str, Any], folder: Path) -> Path:
    """Write a result as JSON, with each row of a table on one line, and return its path."""
    text = json.dumps(result, indent=1, ensure_ascii=False)
    text = re.sub(r"\[[^][{}]*\]", lambda found: re.sub(r"\n\s*", " ", found[0]), text)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result['name']}.json"
    path.write_text(text + "\n", encoding="utf-8")
    return path
