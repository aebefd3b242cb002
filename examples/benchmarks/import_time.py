"""The time of `import kpp` compared with `import numpyro`: `python examples/benchmarks/import_time.py [REPEATS]`.

Each import runs in a fresh interpreter; the statements take turns, so that a busy machine slows all of them equally.
The last row is what a script that fits a model needs. The bar for the first ratio is 1.5.
"""

from __future__ import annotations

import statistics
import subprocess
import sys

STATEMENTS = (
    "import numpyro",
    "import kpp",
    "import numpyro, kpp",
    "from kpp.kernels import RBF; from kpp_models import GPRegression; from kpp import NUTS",
)
CLOCK = "import time; start = time.perf_counter(); {}; print(time.perf_counter() - start)"


def seconds(statement: str) -> float:
    """Return how long the statement takes in a fresh interpreter."""
    command = [sys.executable, "-c", CLOCK.format(statement)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main(repeats: int) -> None:
    """Print the median of each statement and its ratio to numpyro's."""
    for statement in STATEMENTS:
        seconds(statement)  # fills the file system's cache and writes bytecode
    rounds = [[seconds(statement) for statement in STATEMENTS] for _ in range(repeats)]
    medians = [statistics.median(column) for column in zip(*rounds, strict=True)]
    print(f"{'seconds':>8} {'ratio':>6}  statement (median of {repeats})")
    for statement, median in zip(STATEMENTS, medians, strict=True):
        print(f"{median:8.3f} {median / medians[0]:6.2f}  {statement}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
