"""Explanations of real data by RKHS-SHAP (RKHS-SHAP paper, appendix E): figures and tables of importance.

    python examples/reproduce/rkhs_shap_real_data.py [--quick] [--output FOLDER]
        [--given] [--census CSV] [--boston CSV] [--pima CSV] [--league CSV]

Diabetes (with an RBF kernel, with one Matern-1/2 kernel per feature, and with a Matern-1/2 kernel of the distance in
all features, which is no product) and breast cancer come with scikit-learn. The other data are explained if their
tables are given, each as a CSV file with a header; `DATA` lists the names of the target columns. Codes of a category
are numbers, as in the paper. With `--given`, only these are explained. Kernel ridge or logistic regression is fitted on
Nystrom features, which are exact up to 600 rows. For each data set the script prints the quality of the fit on held-out
rows, and each feature's mean absolute Shapley value in the interventional and in the observational game. The output
folder contains a beeswarm plot and a bar plot of both.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import GridSearchCV, train_test_split

import kpp
from kpp.features import Nystrom, landmarks
from kpp.games import Interventional, Observational
from kpp.kernels import RBF, AbstractKernel, Categorical, Matern12, ProductKernel, median_heuristic

# Name of the option -> column of the target -> value of the positive class, or None for regression.
DATA = {
    "census": {"income": ">50K", "Target": 1},
    "boston": {"MEDV": None},
    "pima": {"Outcome": 1},
    "league": {"win": 1},
}


@dataclass(frozen=True)
class Task:
    """A table to learn from, with text as codes, the names of these columns, and a kernel.

    The kernel is a product of one per feature, or else one of the distance in all features.
    """

    name: str
    x: pd.DataFrame
    y: np.ndarray
    classification: bool
    categories: frozenset[str] = frozenset()
    kernel: type = RBF
    product: bool = True


@dataclass(frozen=True)
class Sizes:
    """The numbers of rows read, of landmarks, of background rows, and of explained rows."""

    rows: int = 50_000
    landmarks: int = 600
    background: int = 100
    instances: int = 200


QUICK = Sizes(rows=300, landmarks=40, background=15, instances=10)


def bundled_tasks() -> list[Task]:
    """Return the tasks whose data come with scikit-learn."""
    diabetes, cancer = load_diabetes(as_frame=True), load_breast_cancer(as_frame=True)
    return [
        Task("diabetes-rbf", diabetes.data, diabetes.target.to_numpy(float), False),
        Task("diabetes-matern12", diabetes.data, diabetes.target.to_numpy(float), False, kernel=Matern12),
        Task(
            "diabetes-isotropic", diabetes.data, diabetes.target.to_numpy(float), False, kernel=Matern12, product=False
        ),
        Task("breast-cancer", cancer.data, cancer.target.to_numpy(float), True),
    ]


def read_task(name: str, path: Path) -> Task:
    """Read a table; rows with missing values are left out."""
    table = pd.read_csv(path, skipinitialspace=True, na_values="?")
    target = next((column for column in DATA[name] if column in table), None)
    if target is None:
        targets = " or ".join(map(repr, DATA[name]))
        raise SystemExit(f"{path} must have the target in the column {targets}, got the columns {list(table)}")
    positive = DATA[name][target]
    complete = table.dropna()
    if len(complete) < len(table):
        print(f"{name}: {len(table) - len(complete)} of {len(table)} rows have missing values and are left out")
    y, x = complete[target], complete.drop(columns=target)
    text = frozenset(column for column in x if not pd.api.types.is_numeric_dtype(x[column]))
    coded = x.apply(lambda column: pd.factorize(column, sort=True)[0] if column.name in text else column)
    values = y if positive is None else y == positive
    return Task(name, coded.astype(float), values.to_numpy(float), positive is not None, text)


def choose_kernel(task: Task, x: pd.DataFrame) -> AbstractKernel:
    """Return the kernel of a task, with one lengthscale per feature by the median heuristic."""
    lengthscales = median_heuristic(x.to_numpy()) * x.shape[1] ** 0.5
    if not task.product or (task.kernel is RBF and not task.categories):
        return task.kernel(lengthscales)
    columns = zip(x.columns, lengthscales, strict=True)
    return ProductKernel(
        tuple(Categorical(0.5) if c in task.categories else task.kernel(scale) for c, scale in columns)
    )


def fit(task: Task, x: pd.DataFrame, y: np.ndarray, kernel: AbstractKernel, num_landmarks: int) -> kpp.RKHSFunction:
    """Fit kernel ridge or kernel logistic regression on landmarks; the penalty is chosen by cross-validation."""
    points = x.to_numpy()
    if len(points) > num_landmarks:
        points = landmarks(points, num_landmarks, kernel=kernel, rng_key=jax.random.key(0)).points
    nystrom = Nystrom(kernel, points)
    features = np.asarray(nystrom.feature_map(x.to_numpy()))
    if not task.classification:
        ridge = RidgeCV(alphas=np.logspace(-3, 2, 11)).fit(features, y)
        return nystrom.function(ridge.coef_, ridge.intercept_)
    search = GridSearchCV(LogisticRegression(max_iter=2000), {"C": np.logspace(-1, 3, 5)}, scoring="neg_log_loss", cv=3)
    logistic = search.fit(features, y).best_estimator_
    return nystrom.function(logistic.coef_[0], logistic.intercept_[0])


def report_fit(task: Task, function: kpp.RKHSFunction, x: pd.DataFrame, y: np.ndarray) -> None:
    """Print the quality of the predictions for held-out rows."""
    predictions = np.asarray(function(x.to_numpy()))
    score = accuracy_score(y, predictions > 0) if task.classification else r2_score(y, predictions)
    measure = "accuracy" if task.classification else "R^2"
    print(f"\n{task.name}: {x.shape[1]} features, {function.num_points} landmarks, held-out {measure} {score:.3f}")


def explain(task: Task, sizes: Sizes, output: Path) -> pd.DataFrame:
    """Fit, explain in both games, draw the figures, and return the mean absolute Shapley values."""
    frame, target = task.x, task.y
    if len(frame) > sizes.rows:
        rows = np.random.default_rng(0).choice(len(frame), sizes.rows, replace=False)
        frame, target = frame.iloc[rows], target[rows]
    x, x_test, y, y_test = train_test_split(frame, target, test_size=0.2, random_state=0)
    kernel = choose_kernel(task, x)
    function = fit(task, x, y, kernel, sizes.landmarks)
    report_fit(task, function, x_test, y_test)
    background = landmarks(x.to_numpy(), min(sizes.background, len(x)), kernel=kernel, rng_key=jax.random.key(1))
    print(f"background of {len(background.points)} rows by kernel herding, discrepancy {background.error:.4f}")
    importance = {}
    for game, value_function in {"interventional": Interventional, "observational": Observational}.items():
        start = time.perf_counter()
        explanation = kpp.explain(
            function,
            frame.iloc[: sizes.instances],
            value_function=value_function(background.points),
            rng_key=jax.random.key(2),
        )
        print(f"{game}: {len(explanation.values)} rows explained in {time.perf_counter() - start:.1f} s")
        importance[game] = abs(explanation.values).mean("instance").to_series()
        draw(explanation, output / f"{task.name}-{game}")
    return pd.DataFrame(importance)


def draw(explanation: kpp.Explanation, stem: Path) -> None:
    """Save a beeswarm and a bar figure."""
    for kind in ("beeswarm", "bar"):
        axes = getattr(explanation.plot, kind)(max_features=15)
        axes.figure.savefig(f"{stem}-{kind}.png", dpi=150, bbox_inches="tight")
        plt.close(axes.figure)


def main(arguments: list[str] | None = None) -> dict[str, pd.DataFrame]:
    """Run the tasks and return their tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, for a quick trial run")
    parser.add_argument("--given", action="store_true", help="explain only the tables that are given")
    parser.add_argument("--output", type=Path, default=Path("build/reproduce/rkhs_shap_real_data"), help="the folder")
    for name, targets in DATA.items():
        parser.add_argument(
            f"--{name}", type=Path, metavar="CSV", help=f"a table with the target {' or '.join(targets)}"
        )
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    options.output.mkdir(parents=True, exist_ok=True)
    given = [read_task(name, path) for name in DATA if (path := getattr(options, name)) is not None]
    tables = {}
    for task in [*([] if options.given else bundled_tasks()), *given]:
        tables[task.name] = explain(task, QUICK if options.quick else Sizes(), options.output)
        print(tables[task.name].sort_values("interventional", ascending=False).head(10).to_string(float_format="%.4f"))
    print(f"\nfigures in {options.output}")
    return tables


if __name__ == "__main__":
    main()
