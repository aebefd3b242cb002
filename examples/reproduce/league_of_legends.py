"""The League of Legends experiment at its size (Chau's thesis, appendix C.3, figures C.9 and C.10).

    python examples/reproduce/league_of_legends.py [FILE] [--quick] [--output FOLDER]

FILE is a CSV or Parquet file with the outcome in the column "win" (0 or 1) and numbers in all other columns, such as
the 1.8 million players' matches with 71 features of Kaggle's "League of Legends Ranked Matches" after the steps of
shap's notebook on them. Without it, rows of the same shape are simulated: features in correlated groups, and an outcome
by a known smooth function of some features.

Kernel logistic regression with landmarks is fitted to all rows. Its log-odds are explained in the interventional game,
exactly, at 100,000 rows, and in the observational game, with sampled coalitions, at the first 1000 of them. Beside it,
TreeSHAP explains the log-odds of XGBoost, if it is installed. The script prints the seconds of each stage, the peak
memory, each feature's mean absolute Shapley value, and the rank correlations of these importances between the methods.
The output folder contains a beeswarm plot for each method and the table of importances.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import xarray as xr

import kpp
from kpp import plots
from kpp.features import landmarks
from kpp.games import AbstractValueFunction, Interventional, Observational
from kpp.kernels import RBF, median_heuristic
from kpp_models import LandmarkFit, LandmarkLogistic

TARGET, BLOCK = "win", 100_000
# The simulated groups: how many features each has. Those of a group have correlations of about 0.8.
GROUPS = {
    "kills": 9, "deaths": 6, "assists": 6, "damage": 14, "gold": 9, "towers": 7, "wards": 10, "other": 10,
}  # fmt: skip
SPREAD = 0.4  # the standard deviation of the logarithm of a simulated feature
FACTORS, REGULARIZATION = (0.5, 1.0, 2.0), (1e-5, 1e-6, 1e-7)  # of the median heuristic; of the logistic regression


@dataclass(frozen=True)
class Sizes:
    """The numbers of rows, landmarks, background rows, explained rows and coalitions."""

    simulated: int = 1_800_000
    landmarks: int = 800
    choosing: int = 20_000
    background: int = 20
    interventional: int = 100_000
    observational: int = 1000
    observational_background: int = 5000
    observational_landmarks: int = 400
    coalitions: int = 2000
    trees: int = 100


QUICK = Sizes(2000, 30, 600, 8, 40, 5, 60, 20, 200, 10)


@dataclass(frozen=True)
class Table:
    """The features, in memory or on disk, and the outcomes."""

    names: tuple[str, ...]
    x: np.ndarray
    y: np.ndarray

    def rows(self, chosen: np.ndarray) -> pd.DataFrame:
        """Return some rows of the features in memory, in double precision."""
        return pd.DataFrame(np.asarray(self.x[np.sort(chosen)], dtype=float), columns=list(self.names))


def read(path: Path) -> Table:
    """Read a CSV or Parquet file in single precision; rows with missing values are left out."""
    parts, outcomes, num_rows = [], [], 0
    for frame in _frames(path):
        if TARGET not in frame:
            raise SystemExit(f"{path} must have the outcome in the column {TARGET!r}, got the columns {list(frame)}")
        complete, num_rows = frame.dropna(), num_rows + len(frame)
        features = complete.drop(columns=TARGET)
        parts.append(features.to_numpy(dtype=np.float32))
        outcomes.append(complete[TARGET].to_numpy(dtype=np.float32))
    x, y = np.concatenate(parts), np.concatenate(outcomes)
    if len(x) < num_rows:
        print(f"{num_rows - len(x)} of {num_rows} rows have missing values and are left out")
    return Table(tuple(map(str, features.columns)), x, y)


def _frames(path: Path) -> Iterator[pd.DataFrame]:
    if path.suffix == ".csv":
        yield from pd.read_csv(path, chunksize=BLOCK)
        return
    from pyarrow import parquet

    for batch in parquet.ParquetFile(path).iter_batches(BLOCK):
        yield batch.to_pandas()


def simulate(folder: Path, num_rows: int) -> Table:
    """Write correlated features and outcomes as memory maps."""
    rng = np.random.default_rng(0)
    names = tuple(f"{group}_{number}" for group, size in GROUPS.items() for number in range(size))
    x = np.lib.format.open_memmap(folder / "x.npy", "w+", np.float32, (num_rows, len(names)))
    y = np.lib.format.open_memmap(folder / "y.npy", "w+", np.float32, (num_rows,))
    mixing = np.eye(len(GROUPS))
    mixing[list(GROUPS).index("gold"), [0, 3]] = 0.6, 0.5  # gold comes from kills and damage, too
    mixing /= np.linalg.norm(mixing, axis=1, keepdims=True)
    for start in range(0, num_rows, BLOCK):
        size = min(BLOCK, num_rows - start)
        factors = rng.normal(size=(size, len(GROUPS))) @ mixing.T
        shared = np.repeat(factors, list(GROUPS.values()), axis=1)
        log_features = np.sqrt(0.8) * shared + np.sqrt(0.2) * rng.normal(size=shared.shape)
        rows = np.exp(SPREAD * log_features).astype(np.float32)
        x[start : start + size] = rows
        y[start : start + size] = rng.uniform(size=size) < 1 / (1 + np.exp(-true_log_odds(rows, names)))
    return Table(names, x, y)


def true_log_odds(x: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """Return the log-odds of the simulation, which depend on the first feature of some groups."""
    deaths, assists, gold, kills, towers = (
        np.log(x[:, names.index(f"{group}_0")]) / SPREAD for group in ("deaths", "assists", "gold", "kills", "towers")
    )
    return -2.0 * np.tanh(deaths) + 1.5 * np.tanh(assists) + gold + 0.5 * towers + 0.4 * kills * np.tanh(assists)


def observational_game(background: np.ndarray, num_landmarks: int) -> AbstractValueFunction:
    """Return the observational game in low rank; all its options are here."""
    return Observational(background, regularization=1e-3, landmarks=num_landmarks)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Print the seconds of a stage, and the peak memory of the process so far."""
    start = time.perf_counter()
    yield
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"{name:<42} {time.perf_counter() - start:8.1f} s   peak memory {peak:5.2f} GB", flush=True)


def fit(table: Table, sizes: Sizes) -> LandmarkFit:
    """Fit kernel logistic regression to all rows, with hyperparameters chosen on some of them."""
    sample = table.rows(np.random.default_rng(1).choice(len(table.x), sizes.choosing, replace=False))
    base = np.asarray(median_heuristic(sample)) * len(table.names) ** 0.5
    machine = LandmarkLogistic(
        RBF(base), REGULARIZATION, landmarks=sizes.landmarks, num_held_out=sizes.choosing // 4, precision="float32"
    )
    with stage("choice of the lengthscales"):
        grid = {"kernel.lengthscale": np.outer(FACTORS, base)}
        found = machine.select(jax.random.key(0), table.x, table.y, grid=grid, num_rows=sizes.choosing)
    factor = FACTORS[int(np.argmin(found.scores.values))]
    print(f"lengthscales: {factor:g} times the median heuristic and the root of the number of features")
    with stage(f"logistic regression on {len(table.x):,} rows"):
        fitted = found.model.fit(jax.random.key(1), table.x, table.y)
    best = fitted.regularization
    print(f"regularization {best:g}; log loss of {sizes.choosing // 4} rows held out: {fitted.scores[best]:.4f}")
    return fitted


def explain(table: Table, function: kpp.RKHSFunction, sizes: Sizes, output: Path) -> dict[str, pd.Series]:
    """Explain the log-odds in both games; draw the figures; return the mean absolute Shapley values."""
    rng = np.random.default_rng(2)
    rows = table.rows(rng.choice(len(table.x), min(sizes.interventional, len(table.x)), replace=False))
    sample = table.rows(rng.choice(len(table.x), sizes.choosing, replace=False)).to_numpy()
    background = landmarks(sample, sizes.background, kernel=function.kernel, rng_key=jax.random.key(3)).points
    importance = {}
    with stage(f"interventional: {len(rows):,} rows"):
        explanation = kpp.explain(function, rows, value_function=Interventional(background))
    importance["interventional"] = draw(explanation.values, rows, output / "interventional.png")
    few = rows.iloc[: sizes.observational]
    with stage(f"observational: {len(few):,} rows"):
        every = sample[:: sizes.choosing // sizes.observational_background]
        game = observational_game(every, sizes.observational_landmarks)
        options = {"method": "least-squares", "num_coalitions": sizes.coalitions, "rng_key": jax.random.key(4)}
        explanation = kpp.explain(function, few, value_function=game, **options)
    print(f"relative error of the game by its landmarks: {explanation.attrs['landmark_error']:.3f}")
    importance["observational"] = draw(explanation.values, few, output / "observational.png")
    trees = tree_shap(table, rows, sizes)
    if trees is not None:
        importance["TreeSHAP"] = draw(trees, rows, output / "tree_shap.png")
    return importance


def tree_shap(table: Table, rows: pd.DataFrame, sizes: Sizes) -> xr.DataArray | None:
    """Return the path-dependent TreeSHAP values of boosted trees; None without XGBoost."""
    try:
        import xgboost
    except ImportError:
        print("TreeSHAP is left out; it needs XGBoost: pip install xgboost")
        return None
    with stage("XGBoost"):
        data = xgboost.QuantileDMatrix(table.x, table.y, feature_names=list(table.names))
        booster = xgboost.train(
            {"objective": "binary:logistic", "eta": 0.2, "max_depth": 6}, data, num_boost_round=sizes.trees
        )
    with stage(f"TreeSHAP: {len(rows):,} rows"):
        found = booster.predict(xgboost.DMatrix(rows), pred_contribs=True)[:, :-1]  # the last column is the base
    return xr.DataArray(found, dims=("instance", "feature"), coords={"feature": list(table.names)})


def draw(values: xr.DataArray, rows: pd.DataFrame, path: Path, most: int = 1000) -> pd.Series:
    """Save a beeswarm plot of at most 1000 rows, and return the mean absolute values of all rows."""
    data = xr.DataArray(rows.to_numpy(), dims=("instance", "feature"), coords={"feature": list(rows.columns)})
    axes = plots.beeswarm(values[:most], data[:most], max_features=20)
    axes.figure.savefig(path, dpi=150, bbox_inches="tight")
    plt.close(axes.figure)
    return abs(values).mean("instance").to_series()


def main(arguments: list[str] | None = None) -> pd.DataFrame:
    """Run the experiment and return the table of importances."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="?", metavar="FILE", help="the table; simulated without it")
    parser.add_argument("--quick", action="store_true", help="small sizes, for a quick trial run")
    parser.add_argument("--output", type=Path, default=Path("build/reproduce/league_of_legends"), help="the folder")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    options.output.mkdir(parents=True, exist_ok=True)
    sizes = QUICK if options.quick else Sizes()
    with tempfile.TemporaryDirectory() as folder:
        with stage("simulation" if options.file is None else "reading"):
            table = simulate(Path(folder), sizes.simulated) if options.file is None else read(options.file)
        print(f"{len(table.x):,} rows, {len(table.names)} features, {table.y.mean():.3f} of them won")
        importance = pd.DataFrame(explain(table, fit(table, sizes).function, sizes, options.output))
        del table
    report(importance, options.output)
    return importance


def report(importance: pd.DataFrame, output: Path) -> None:
    """Print and save the importances, and print their rank correlations."""
    importance.to_csv(output / "importance.csv")
    print("\nmean absolute Shapley values, the 15 largest")
    print(importance.sort_values("interventional", ascending=False).head(15).to_string(float_format="%.4f"))
    print("\nrank correlations of these importances between the methods, over all features")
    print(importance.corr(method="spearman").to_string(float_format="%.3f"))
    print(f"\nfigures and table in {output}")


if __name__ == "__main__":
    main()
