"""Collider regression on climate data: aerosol forcing from temperature (the collider) and CO2 forcing.

    python examples/reproduce/aerosol.py [--small] [--data FILE] [--seeds N] [--trees N] [--output FOLDER]
        [--cache FOLDER]

(Bouabid, Fawkes and Sejdinovic, Returning the favour: when regression benefits from probabilistic causal knowledge,
2023, section 6.2, table 1, figures 7 to 9.) The forcing of aerosols (Y) and the forcing of CO2 (X2) are independent
causes of the global temperature (X1), all in the year 2020, simulated by the climate emulator FaIR with white noise.

By default the script reads `data/fair_aerosol.csv` with 500 simulations: each seed draws 50 labeled and 200 unlabeled
rows and tests on the other 250. `--data` reads more simulations from a NumPy file with arrays `train` and `test`, both
with the columns temperature, CO2 forcing and aerosol forcing. Each seed then draws from `train` and tests on all rows
of `test`.

The settings are the published ones. Features and target are centered by the means of the labeled rows and not scaled.
RBF lengthscales are .5 on X1 and 2 on X2. The ridge is .001 n, and the ridge of the conditional mean embedding is .1 in
total. Forests have 200 trees of depth 5 with 10 rows per leaf.

The script prints the error, which is the mean squared error divided by the mean square of the centered target; the
signal-to-noise ratio, 10 log10(sum y^2 / sum residual^2), in decibels; and the correlation of target and prediction.
The published table uses different simulations of the same kind, and 100 seeds.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import jax
import numpy as np
import pandas as pd
from collider_methods import (
    METHODS,
    Sample,
    Settings,
    draw_boxes,
    fit_all,
    print_scores,
    print_wilcoxon,
    save_figure,
)
from tqdm import tqdm

import kpp

BUNDLED = Path(__file__).parent / "data" / "fair_aerosol.csv"
FOREST = {"n_estimators": 200, "max_depth": 5, "min_samples_leaf": 10}
LABELED, UNLABELED = 50, 200
METRICS = {"error": "MSE / mean y^2", "snr": "SNR (dB)", "correlation": "correlation"}
PUBLISHED = {
    "error": "RF .90 (sd .04), P-RF .89 (.03), KRR .88 (.04), P-KRR .86 (.03), H_P-KRR .86 (.03)",
    "snr": "RF .44 (sd .19), P-RF .49 (.15), KRR .58 (.17), P-KRR .65 (.13), H_P-KRR .65 (.14)",
    "correlation": "RF .32 (sd .08), P-RF .34 (.07), KRR .37 (.05), P-KRR .40 (.01), H_P-KRR .40 (.01)",
}


def read(path: Path | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Return rows to draw from, (n, 3), and test rows; None if the rows that were not drawn are tested."""
    if path is None:
        return np.loadtxt(BUNDLED, delimiter=","), None
    with np.load(path) as found:
        return found["train"], found["test"]


def split(pool: np.ndarray, test: np.ndarray | None, seed: int) -> tuple[Sample, np.ndarray, np.ndarray]:
    """Draw labeled and unlabeled rows; return them with the test rows, all centered by the labeled rows."""
    order = np.random.default_rng(seed).permutation(len(pool))
    labeled, unlabeled, rest = np.split(pool[order], [LABELED, LABELED + UNLABELED])
    mean = labeled.mean(axis=0)
    labeled, unlabeled, test = (rows - mean for rows in (labeled, unlabeled, rest if test is None else test))
    return Sample(labeled[:, :2], labeled[:, 2], unlabeled[:, :2], 1), test[:, :2], test[:, 2]


def metrics(y: np.ndarray, prediction: np.ndarray) -> dict[str, float]:
    """Return the error, the signal-to-noise ratio and the correlation."""
    error = float(np.mean((y - prediction) ** 2) / np.mean(y**2))
    return {"error": error, "snr": -10 * np.log10(error), "correlation": float(np.corrcoef(y, prediction)[0, 1])}


def scores(settings: Settings, pool: np.ndarray, test: np.ndarray | None, seed: int) -> Iterator[dict]:
    """Yield the metrics of every method on one split."""
    sample, x, y = split(pool, test, seed)
    for name, function in fit_all(settings, sample, settings.fit_forest(sample, seed)).items():
        yield {"seed": seed, "method": name, **metrics(y, function(x))}


def draw_figure(table: pd.DataFrame, path: Path) -> None:
    """Draw the metrics of each method over seeds."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(METRICS), figsize=(4 * len(METRICS), 3.4), layout="constrained")
    for axis, (metric, label) in zip(axes, METRICS.items(), strict=True):
        draw_boxes(axis, by_method(table, metric), label)
    save_figure(figure, path)


def by_method(table: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return a metric with one row per seed and one column per method."""
    return table.pivot(index="seed", columns="method", values=metric)[list(METHODS)]


@click.command(help=__doc__.partition("\n")[0])
@click.option("--small", is_flag=True, help="Two seeds and ten trees, for a quick trial run.")
@click.option("--data", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Simulations, an npz file.")
@click.option("--seeds", type=int, default=100, show_default=True, help="Number of splits.")
@click.option("--trees", type=int, default=FOREST["n_estimators"], show_default=True, help="Trees per forest.")
@click.option("--output", type=click.Path(file_okay=False, path_type=Path), help="A folder for the figure and table.")
@click.option("--cache", type=click.Path(file_okay=False), help="A folder that keeps compiled programs.")
def main(small, data, seeds, trees, output, cache) -> dict[str, pd.DataFrame]:
    jax.config.update("jax_enable_x64", True)
    if cache is not None:
        kpp.enable_compile_cache(cache)
    if small:
        seeds, trees = 2, 10
    settings = Settings((0.5, 2.0), 0.1, FOREST | {"n_estimators": trees})
    pool, test = read(data)
    rows = [row for seed in tqdm(range(seeds), unit="seed") for row in scores(settings, pool, test, seed)]
    table = pd.DataFrame(rows)
    for metric, label in METRICS.items():
        print_scores(by_method(table, metric), label, lower_is_better=metric == "error")
        click.echo(f"published: {PUBLISHED[metric]}")
        print_wilcoxon(by_method(table, metric), label)
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        table.to_csv(output / "aerosol.csv", index=False)
        draw_figure(table, output / "aerosol.png")
    return {"scores": table}


if __name__ == "__main__":
    main()
