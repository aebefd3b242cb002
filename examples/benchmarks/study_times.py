"""Seconds of `kpp run` for the studies that `kpp new study` writes, by rows, features, task and inference.

    python examples/benchmarks/study_times.py [--quick]

Each run is a process of its own that begins with an empty cache of compiled programs, as the first run of a study does.
`kpp new study` says times that are read off this table. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

CASES = [
    *((rows, features, "regression", "quick") for rows, features in ((100, 5), (400, 10), (1000, 10), (5000, 10))),
    *((rows, 5, "classification", "quick") for rows in (100, 400, 1000)),
    *((rows, features, "regression", "full") for rows, features in ((100, 5), (400, 10))),
    (100, 5, "classification", "full"),
]


def main(arguments: list[str] | None = None) -> list[tuple[int, int, str, str, float]]:
    """Measure, print and return the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="only the first case")
    cases = CASES[:1] if parser.parse_args(arguments).quick else CASES
    print(f"load {os.getloadavg()[0]:.1f}")
    print(f"{'rows':>6} {'features':>8} {'task':<14} {'inference':<9} {'seconds':>8}")
    lines = []
    for rows, features, task, inference in cases:
        with tempfile.TemporaryDirectory() as folder:
            table(rows, features, task).to_csv(Path(folder) / "table.csv", index=False)
            answers = ["--target", "y", "--task", task, "--inference", inference, "--yes"]
            command(folder, "new", "study", "table.csv", *answers)
            seconds = command(folder, "run", "study.toml", "--output", "results")
        lines.append((rows, features, task, inference, seconds))
        print(f"{rows:>6} {features:>8} {task:<14} {inference:<9} {seconds:>8.0f}", flush=True)
    return lines


def table(rows: int, features: int, task: str) -> pd.DataFrame:
    """Return columns of numbers and a target that depends on three of them."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, features))
    y = np.sin(x[:, 0]) + x[:, 1] * x[:, 2] / 2 + 0.5 * rng.normal(size=rows)
    columns = {f"x{i}": x[:, i] for i in range(features)}
    return pd.DataFrame(columns | {"y": np.where(y > 0, "yes", "no") if task == "classification" else y})


def command(folder: str, *words: str) -> float:
    """Run `kpp` in a folder, which also holds the cache of compiled programs, and return the seconds."""
    cache = {
        "JAX_COMPILATION_CACHE_DIR": str(Path(folder) / "cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    start = time.perf_counter()
    program = [sys.executable, "-m", "kpp", *words]
    done = subprocess.run(program, cwd=folder, env=os.environ | cache, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
