"""Explanations of a medical classifier, divided by their uncertainty (GPEC, appendix F.2, figure 7).

    python examples/reproduce/gpec_case_study.py [--data nhanes.csv] [--features 3] [--small] [--output FOLDER]

(Hill, Masoomi, Torop, Ghimire and Dy, Boundary-aware uncertainty for feature attribution explainers, 2024.) Boosted
trees are trained on breast cancer, which comes with scikit-learn, or on the table given. The table of the paper is
NHANES 2013-2014 with the 27 features of Dinh, Miertschin, Young and Mohanty (2019): a CSV file with one row per
patient, a column `diabetes` of 0 and 1, and numeric columns with any names, for instance RIDAGEYR (age), BMXWAIST
(waist), LBXSNASI (sodium) and HUD080 (times in hospital overnight). Rows with missing values are left out.

BayesLIME explains the rows that were not used for training, and GPEC gives the uncertainty. All pairs of row and
feature are divided by the width of their interval, four standard deviations, into thirds of low, medium and high
uncertainty. For each third the script prints the widths, the size of the attributions, and the change of KernelSHAP's
exact value if the row is moved a little. GPEC does not use this change; it should be large where explanations are
unreliable. For the features with the largest attributions, the script prints how many rows fall into each third.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import click
import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from gpec_data import boosted_trees, breast_cancer, probability, read_table, split
from gpec_methods import FLOOR, SMALL, Case, Effort, widths
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score

from kpp_gpec import GPEC

LEVELS = ("low", "medium", "high")
COLORS = ("tab:green", "gold", "tab:red")
STEP = 0.1  # how far a row is moved, in standard deviations of the features


@dataclass(frozen=True)
class Sizes:
    """The numbers of training rows, of explained rows and of moves, and the effort of the methods."""

    train: int = 200
    test: int = 100
    moves: int = 5
    effort: Effort = Effort()


def thirds(values: np.ndarray) -> np.ndarray:
    """Return 0, 1 or 2 for low, medium and high values, one third each, in the shape of the values."""
    ranks = values.ravel().argsort(kind="stable").argsort(kind="stable")
    return (ranks * 3 // values.size).reshape(values.shape)


def changes(case: Case, num_moves: int) -> np.ndarray:
    """Return the root mean square by which KernelSHAP's values change when rows are moved a little, (p, d)."""
    explainer = case.kernel_shap()
    rng, scale = np.random.default_rng(case.seed), STEP * case.background.std(axis=0)

    def values(rows: np.ndarray) -> np.ndarray:
        # One key: the same coalitions for a row and its neighbors, whose errors cancel in the difference.
        return np.asarray(explainer.explain(case.predictor, rows, rng_key=case.key).values)

    start = values(case.x)
    gaps = [values(case.x + scale * rng.normal(size=case.x.shape)) - start for _ in range(num_moves)]
    return np.sqrt(np.mean(np.square(gaps), axis=0))


def explain(case: Case, num_moves: int) -> dict[str, np.ndarray]:
    """Return the rows, attributions by BayesLIME, widths of GPEC, and how KernelSHAP's values change, (p, d) each."""
    lime = case.bayes_lime()
    fitted = GPEC(lime, case.background, min_noise_variance=FLOOR).fit(
        case.predictor, boundary=case.boundary(), rng_key=case.key
    )
    given = lime.explain(case.predictor, case.x, rng_key=case.key)
    return {
        "x": case.x,
        "value": np.asarray(given.values),
        "width": widths(fitted.assess(given)),
        "change": changes(case, num_moves),
    }


def describe(name: str, columns: list[str], arrays: dict[str, np.ndarray], num_features: int) -> pd.DataFrame:
    """Print statistics of the thirds and of the largest features; return one row per data row and feature."""
    level = thirds(arrays["width"])
    click.echo(f"\n{name}: {arrays['width'].shape[0]} rows, {len(columns)} features; in each third of uncertainty the")
    click.echo("mean width, mean |attribution|, and mean change of KernelSHAP's values when rows move a little")
    for number, word in enumerate(LEVELS):
        part = level == number
        means = [arrays["width"][part].mean(), np.abs(arrays["value"][part]).mean(), arrays["change"][part].mean()]
        click.echo(f"{word:>10}" + "".join(f"{mean:>12.5f}" for mean in means))
    rank = spearmanr(arrays["width"].mean(axis=1), arrays["change"].mean(axis=1)).statistic
    click.echo(f"rank correlation over rows of the width and the change: {rank:.3f}")
    click.echo(f"\n{'':>26}{'|attribution|':>15}" + "".join(f"{word:>8}" for word in LEVELS))
    for j in largest(arrays["value"], num_features):
        counts = np.bincount(level[:, j], minlength=3)
        size = np.abs(arrays["value"][:, j]).mean()
        click.echo(f"{columns[j]:>26}{size:>15.4f}" + "".join(f"{count:>8d}" for count in counts))
    rows, features = np.indices(level.shape)
    flat = {key: values.ravel() for key, values in arrays.items()}
    named = {"row": rows.ravel(), "feature": np.array(columns)[features.ravel()]}
    return pd.DataFrame({**named, **flat, "uncertainty": np.array(LEVELS)[level.ravel()]})


def largest(values: np.ndarray, count: int) -> np.ndarray:
    """Return the features of largest mean absolute attributions, largest first."""
    return np.argsort(-np.abs(values).mean(axis=0), kind="stable")[:count]


def draw(columns: list[str], arrays: dict[str, np.ndarray], num_features: int, path: Path) -> None:
    """Draw figure 7: how uncertainty is distributed, then attributions against values of the largest features."""
    level, chosen = thirds(arrays["width"]), largest(arrays["value"], num_features)
    figure, axes = plt.subplots(1, 2 + len(chosen), figsize=(3.2 * (2 + len(chosen)), 3), layout="constrained")
    bins = np.histogram_bin_edges(arrays["width"], 40)
    for number, color in enumerate(COLORS):
        part = level == number
        axes[0].hist(arrays["width"][part], bins=bins, color=color, label=LEVELS[number])
        places = np.random.default_rng(0).uniform(-0.3, 0.3, size=level.shape)
        for place, j in enumerate(chosen):
            mine = part[:, j]
            axes[1].plot(arrays["value"][mine, j], place + places[mine, j], ".", color=color, markersize=3)
            axes[2 + place].plot(arrays["x"][mine, j], arrays["value"][mine, j], ".", color=color)
            axes[2 + place].set(xlabel=columns[j], ylabel="attribution by BayesLIME")
    axes[0].set(xlabel="width of the interval", ylabel="rows and features")
    axes[0].legend()
    axes[1].set(xlabel="attribution by BayesLIME", yticks=range(len(chosen)), yticklabels=[columns[j] for j in chosen])
    figure.savefig(path, dpi=130)
    plt.close(figure)


@click.command(help=__doc__)
@click.option("--data", type=click.Path(path_type=Path, exists=True), help="A table, such as NHANES.")
@click.option("--features", default=3, show_default=True, help="Number of features to print one by one.")
@click.option("--small", is_flag=True, help="30 training rows, 10 explained ones.")
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), help="Folder for the figure and table.")
def main(data: Path | None, features: int, small: bool, output: Path | None) -> dict[str, pd.DataFrame]:
    """Run the case study."""
    jax.config.update("jax_enable_x64", True)
    start = time.perf_counter()
    sizes = Sizes(30, 10, 2, SMALL) if small else Sizes()
    table = breast_cancer() if data is None else read_table(data)
    parts = split(table, 0)
    predictor = probability(boosted_trees(parts.x, parts.y))
    auc = roc_auc_score(parts.y_test, predictor(parts.x_test))
    click.echo(
        f"{table.name}: {len(parts.x)} training and {len(parts.x_test)} test rows, area under the curve {auc:.3f}"
    )
    case = Case(predictor, parts.x[: sizes.train], parts.x_test[: sizes.test], sizes.effort, 0, parts.x)
    arrays = explain(case, sizes.moves)
    columns = list(table.x)
    found = describe(table.name, columns, arrays, features)
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        found.to_csv(output / "gpec_case_study.csv", index=False)
        draw(columns, arrays, features, output / "case_study.png")
    click.echo(f"{time.perf_counter() - start:.0f} s")
    return {"pairs": found.assign(size=found["value"].abs()).sort_values("width")}


if __name__ == "__main__":
    main()
