"""Time and memory of ridge regression with landmarks in both precisions, beside scikit-learn's Nystroem and Ridge.

    python examples/benchmarks/landmark_ridge.py [--rows 1000000 10000000] [--peer-rows 250000] [--precision 64 32]

The rows, with twenty features, are written to memory maps in a temporary folder. Both libraries get the same kernel and
regularization and as many random landmarks. Each runs in a process of its own, whose peak memory is shown; pages of the
memory maps count only while they are read. scikit-learn holds the features of all rows, so it gets fewer rows. The
error is the root mean squared error of the predictions of 10,000 new rows of the function without noise.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

NUM_FEATURES, NOISE, LENGTHSCALE, REGULARIZATION, TEST_ROWS, BLOCK = 20, 0.5, 4.0, 1e-7, 10_000, 100_000
Predictor = Callable[[np.ndarray], np.ndarray]


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--peer-rows", type=int, nargs="*", default=[250_000])
    parser.add_argument("--precision", type=int, nargs="+", default=[64, 32], choices=[64, 32], help="of kpp, in bits")
    parser.add_argument("--landmarks", type=int, default=2000)
    parser.add_argument("--run", nargs=2, metavar=("LIBRARY", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        run(options.run[0], Path(options.run[1]), options.landmarks)
        return
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; {options.landmarks} landmarks")
    print(f"{'rows':>10} {'library':<13} {'seconds':>8} {'us a row':>9} {'memory, GB':>11} {'error':>8}", flush=True)
    for rows in sorted({*options.rows, *options.peer_rows}):
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder), rows)
            for library in (*(f"kpp float{bits}" for bits in options.precision), "scikit-learn"):
                if library != "scikit-learn" or rows in options.peer_rows:
                    command = [sys.executable, __file__, "--landmarks", str(options.landmarks), "--run", library]
                    found = subprocess.run([*command, folder], check=True, capture_output=True, text=True).stdout
                    seconds, memory, error = map(float, found.split()[-3:])
                    line = f"{rows:>10} {library:<13} {seconds:>8.1f} {1e6 * seconds / rows:>9.1f}"
                    print(f"{line} {memory:>11.2f} {error:>8.4f}", flush=True)


def write(folder: Path, rows: int) -> None:
    """Write points and targets as memory maps."""
    rng = np.random.default_rng(0)
    x = np.lib.format.open_memmap(folder / "x.npy", "w+", shape=(rows, NUM_FEATURES))
    y = np.lib.format.open_memmap(folder / "y.npy", "w+", shape=(rows,))
    for start in range(0, rows, BLOCK):
        points = rng.normal(size=(min(BLOCK, rows - start), NUM_FEATURES))
        x[start : start + BLOCK] = points
        y[start : start + BLOCK] = truth(points) + NOISE * rng.normal(size=len(points))


def truth(x: np.ndarray) -> np.ndarray:
    """Return the function without noise."""
    return np.sin(x[:, 0]) + x[:, 1] * x[:, 2] / 2 + np.cos(x[:, 3:6].sum(axis=1) / 2)


def run(library: str, folder: Path, landmarks: int) -> None:
    """Fit and print seconds, peak memory in GB, and the error."""
    x, y = (np.load(folder / name, mmap_mode="r") for name in ("x.npy", "y.npy"))
    start = time.perf_counter()
    precision = library.removeprefix("kpp ")
    predict = of_sklearn(x, y, landmarks) if library == "scikit-learn" else of_kpp(x, y, landmarks, precision)
    seconds = time.perf_counter() - start
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    new = np.random.default_rng(1).normal(size=(TEST_ROWS, NUM_FEATURES))
    print(seconds, memory, np.sqrt(np.mean((predict(new) - truth(new)) ** 2)))


def of_kpp(x: np.ndarray, y: np.ndarray, landmarks: int, precision: str) -> Predictor:
    import jax

    from kpp.kernels import RBF
    from kpp_models import LandmarkRidge

    jax.config.update("jax_enable_x64", True)
    model = LandmarkRidge(
        RBF(LENGTHSCALE), REGULARIZATION, landmarks, num_held_out=0, precision=precision, progress=False
    )
    return model.fit(jax.random.key(0), x, y).function


def of_sklearn(x: np.ndarray, y: np.ndarray, landmarks: int) -> Predictor:
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline

    features = Nystroem(gamma=0.5 / LENGTHSCALE**2, n_components=landmarks, random_state=0)
    return make_pipeline(features, Ridge(alpha=REGULARIZATION * len(x), solver="cholesky")).fit(x, y).predict


if __name__ == "__main__":
    main()
