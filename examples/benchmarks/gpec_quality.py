"""Does GPEC's uncertainty predict the quality of KernelSHAP on real data? Rank correlations with stability and others.

    python examples/benchmarks/gpec_quality.py [--quick] [--seeds 3] [--output FOLDER]

The models are a forest, a support vector machine and a neural network of breast cancer and of wine (6 features each,
standardized, the first class against the others). KernelSHAP takes all 64 coalitions, so its values have no sampling
error. GPEC knows the explanations of 100 rows; its uncertainty, the square root of the summed variances, is that of
40 other rows. `kpp.explanations.compare` measures at each of them

* stability: the largest change of the contributions per standard deviation, to 5 points around the row, about .1
  standard deviations away in each feature;
* infidelity, and the mean of deletion minus insertion (small: good).

The table has Spearman's rank correlation of each with GPEC, with Naive-GP (an RBF kernel, no boundary), and with the
closeness of the probability to 1/2, which needs no GPEC: means over seeds with standard errors.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
from scipy.stats import spearmanr
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.svm import SVC

import kpp
from kpp.explanations import compare
from kpp_gpec import GPEC, BisectionSampler, NaiveGP

NUM_FEATURES, NUM_KNOWN, NUM_BACKGROUND, NUM_AROUND, SPREAD = 6, 100, 15, 5, 0.1
KEY = jax.random.key(0)
MEASURES = ("stability", "infidelity", "deletion - insertion")
DATA = {"breast cancer": load_breast_cancer, "wine": load_wine}
MODELS = {
    "forest": lambda seed: RandomForestClassifier(50, random_state=seed),
    "SVM": lambda seed: CalibratedClassifierCV(SVC(C=10.0), ensemble=False),
    "network": lambda seed: MLPClassifier((30, 30), max_iter=1000, alpha=1e-3, random_state=seed),
}


def load(name: str, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return rows and classes for training and for testing, standardized by the rows for training."""
    x, y = DATA[name](return_X_y=True)
    train, test, y_train, y_test = train_test_split(
        x[:, :NUM_FEATURES], y == 0, train_size=0.6, random_state=seed, stratify=y == 0
    )
    mean, spread = train.mean(axis=0), train.std(axis=0)
    return (train - mean) / spread, (test - mean) / spread, y_train, y_test


def qualities(predict: Any, x: np.ndarray, background: np.ndarray, rng: np.random.Generator) -> pd.DataFrame:
    """Return stability, infidelity and deletion minus insertion at each row."""
    found = []
    for row in x:
        rows = np.concatenate([row[None], row + SPREAD * rng.normal(size=(NUM_AROUND, len(row)))])
        explanation = kpp.explain(predict, rows, explainer="kernel-shap", background=background, rng_key=KEY)
        measured = compare({"kernel-shap": explanation}, predict, background).isel(instance=0)
        curves = measured.deletion.mean() - measured.insertion.mean()
        values = (measured.stability, measured.infidelity, curves)
        found.append(dict(zip(MEASURES, map(float, values), strict=True)))
    return pd.DataFrame(found)


def correlations(data: str, model: str, seed: int, num_rows: int) -> list[dict[str, Any]]:
    """Return one row per kind of uncertainty and measure."""
    train, test, y_train, _ = load(data, seed)
    estimator = MODELS[model](seed).fit(train, y_train)
    rng = np.random.default_rng(seed)

    def predict(x: np.ndarray) -> np.ndarray:
        return estimator.predict_proba(np.asarray(x))[:, 1]

    background = train[rng.choice(len(train), NUM_BACKGROUND, replace=False)]
    known = train[rng.choice(len(train), NUM_KNOWN, replace=False)]
    test = test[:num_rows]
    explained = kpp.explain(predict, known, explainer="kernel-shap", background=background, rng_key=KEY)
    uncertain = {"probability near 1/2": -np.abs(predict(test) - 0.5)}
    for name, explainer in (
        ("GPEC", GPEC("kernel-shap", known, boundary=BisectionSampler(max_points=200))),
        ("Naive-GP", NaiveGP("kernel-shap", known)),
    ):
        fitted = explainer.fit(predict, explanation=explained, rng_key=KEY)
        uncertain[name] = np.asarray(fitted.law(test).variance)[..., 0].sum(axis=1) ** 0.5
    measured = qualities(predict, test, background, rng)
    return [
        {"data": data, "model": model, "seed": seed, "uncertainty": name, "measure": measure}
        | {"correlation": spearmanr(uncertainty, measured[measure]).statistic}
        for name, uncertainty in uncertain.items()
        for measure in MEASURES
    ]


def summarize(table: pd.DataFrame) -> pd.DataFrame:
    """Return means and standard errors over seeds."""
    groups = table.groupby(["measure", "data", "model", "uncertainty"], sort=False)["correlation"]
    return groups.agg(["mean", "sem"]).unstack("uncertainty").swaplevel(axis=1).sort_index(axis=1)


def main(arguments: list[str] | None = None) -> pd.DataFrame:
    """Measure, print the table, and return the correlations of every seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one model, two seeds and 8 rows")
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    parser.add_argument("--output", type=Path, default=None, help="a folder for the table")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    pairs = [("wine", "SVM")] if options.quick else [(data, model) for data in DATA for model in MODELS]
    rows = []
    for data, model in pairs:
        for seed in range(2 if options.quick else options.seeds):
            rows += correlations(data, model, seed, 8 if options.quick else 40)
    table = pd.DataFrame(rows)
    print(summarize(table).round(2).to_string())
    if options.output is not None:
        options.output.mkdir(parents=True, exist_ok=True)
        table.to_csv(options.output / "gpec_quality.csv", index=False)
    return table


if __name__ == "__main__":
    main()
