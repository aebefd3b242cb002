"""Confirm stored results after a change of the code that should change no number.

A full run may take hours. Its quick version takes seconds, and runs the same code on small problems. If the quick
version gives the same numbers before and after a change, the result is not marked as older than its code: it keeps the
digest of the new code as confirmed, and its page says how. Times are left out of the comparison.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import ages
from experiments import RESULTS, read, read_list, script, store

#: Results have four digits. One unit of the last digit may differ, as sums in another order are rounded elsewhere.
TOLERANCE = 1.001e-3
_TIMES = ("second", "time", "speed", "ms", "mb")


def confirm(before: Path, after: Path) -> tuple[list[str], dict[str, str]]:
    """Confirm every result whose quick version agrees, and return the names, and the reasons for the others.

    Args:
        before: The folder of the quick results of the code that a stored result is from, or was confirmed for. The code
            is known by its digest or by the commit that the results name.
        after: The folder of those of the code as it is.
    """
    confirmed, refused = [], {}
    experiments = read_list()["experiments"]
    quick = [_stored(folder) for folder in (before, after)]
    for name, experiment in experiments.items():
        if not (RESULTS / f"{name}.json").exists():
            continue
        result, now = read(name), ages.digest(script(experiment))
        if ages.is_current(result, now):
            continue
        # Experiments may share a quick version, which is then run for one of them.
        both = all(name in found for found in quick)
        old, new = (found.get(name if both else version_of(experiment)) for found in quick)
        reason = _difference(result, now, old, new)
        if reason:
            refused[name] = reason
            continue
        result["confirmed"] = {"code": now, "commit": ages.commit(ages.used_files(script(experiment)))}
        store(result, RESULTS)
        confirmed.append(name)
    return confirmed, refused


def version_of(experiment: dict[str, Any]) -> tuple[str, ...]:
    """Return what tells quick versions apart."""
    return (experiment["script"], *experiment["quick"])


def _stored(folder: Path) -> dict[Any, dict[str, Any]]:
    """Return quick results by the name of the experiment, and by what tells quick versions apart."""
    experiments = read_list()["experiments"]
    found: dict[Any, dict[str, Any]] = {}
    for path in sorted(folder.glob("*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        if result["name"] in experiments:
            found |= {result["name"]: result, version_of(experiments[result["name"]]): result}
    return found


def _difference(result: dict[str, Any], code: str, old: dict[str, Any] | None, new: dict[str, Any] | None) -> str:
    """Return why a result cannot be confirmed, or nothing."""
    if old is None or new is None:
        return "a quick result is missing"
    at_its_commit = old.get("commit") == result.get("commit", "none")  # digests of the first results follow other rules
    if not (at_its_commit or ages.is_current(result, old.get("code", ""))):
        return "it is older than the code before"
    if new["code"] != code:
        return "the quick result is older than the code"
    numbers = [_numbers(quick) for quick in (old, new)]
    if not numbers[0]:
        return "its numbers are times"
    if numbers[0].keys() != numbers[1].keys():
        return "its tables have other rows"
    differences = {place: _distance(value, numbers[1][place]) for place, value in numbers[0].items()}
    worst = max(differences, key=differences.__getitem__)
    return "" if differences[worst] <= TOLERANCE else f"{' '.join(map(str, worst))}: {differences[worst]:.1e}"


def _numbers(result: dict[str, Any]) -> dict[tuple[Any, ...], Any]:
    """Return all entries of the tables of a quick result by place, without times."""
    return {
        (table["table"], row, column): value
        for table in result["tables"]
        for row, values in enumerate(table["rows"])
        for column, value in zip(table["columns"], values, strict=True)
        if not any(word in column.lower().split() or f"{word}s" in column.lower().split() for word in _TIMES)
    }


def _distance(old: Any, new: Any) -> float:
    """Return the relative difference of two numbers; other values are the same or not."""
    if old == new or (isinstance(old, float) and isinstance(new, float) and math.isnan(old) and math.isnan(new)):
        return 0.0
    if not (isinstance(old, int | float) and isinstance(new, int | float)):
        return math.inf
    return abs(old - new) / max(abs(old), abs(new), 1e-12)
