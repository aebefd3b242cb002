"""How long each method takes to learn and to explain (GPEC, section 5.5 and appendix F.1, tables 2 to 4).

    python examples/reproduce/gpec_time.py [--data german.csv --data adult.csv] [--rows 100] [--small] [--output FOLDER]

(Hill, Masoomi, Torop, Ghimire and Dy, Boundary-aware uncertainty for feature attribution explainers, 2024.) Boosted
trees are explained, on breast cancer, which comes with scikit-learn, and on the tables given. The script prints two
times in seconds. The first is the time to learn once per model; for GPEC this includes sampling the boundary, computing
its geodesic distances, and explaining the training rows. The second is the time for the uncertainty of 100 further
rows, in the first call, in which JAX compiles, and in a second call. The numbers of the paper, from other code on other
machines, are printed for comparison, converted to seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import jax
import numpy as np
import pandas as pd
from gpec_data import Table, boosted_trees, probability, split, tables
from gpec_methods import FLOOR, SETTINGS, SMALL, Case, Effort, widths

from kpp import Explanation
from kpp_gpec import GPEC, NaiveGP, geodesic_distances

# Seconds on the credit data: to learn (table 4), and for 100 rows (table 2).
PUBLISHED = {
    "GPEC": (22.4 * 60, 0.07),
    "Naive-GP": (0.02 * 60, 0.02),
    "CXPlain": (1.71 * 60, 0.04),
    "BayesSHAP": (0.0, 4.86),
    "BayesLIME": (0.0, 4.83),
}


@dataclass(frozen=True)
class Sizes:
    """The numbers of explained rows and of training rows, and the effort of the methods."""

    rows: int = 100
    train: int = 100
    effort: Effort = Effort()


def clock(function: Callable[[], Any]) -> tuple[Any, float]:
    """Return the completed result of a function and its seconds."""
    start = time.perf_counter()
    result = jax.block_until_ready(function())
    return result, time.perf_counter() - start


def steps(case: Case) -> dict[str, float]:
    """Return the seconds of the steps of GPEC's learning that do not depend on its parameters."""
    sample, sampling = clock(case.boundary)
    seconds = {"sampling the boundary": sampling}
    if sample.found:
        deviations = case.background.std(axis=0)
        points = np.asarray(sample.points) / np.where(deviations > 0, deviations, 1.0)
        seconds["its geodesics"] = clock(lambda: geodesic_distances(points))[1]
    shap = case.kernel_shap()
    seconds["explaining the training rows"] = clock(lambda: explained(shap, case, case.background))[1]
    return seconds


def explained(explainer: Any, case: Case, rows: np.ndarray) -> Explanation:
    """Explain rows with an explainer that needs no fit."""
    return explainer.explain(case.predictor, rows, rng_key=case.key)


def learners(case: Case) -> dict[str, Any]:
    """Return the methods that learn before they explain; GPEC by the evidence, and with given parameters."""
    shap, background = case.kernel_shap(), case.background
    return {
        "GPEC": GPEC(shap, background, min_noise_variance=FLOOR),
        "GPEC, given": GPEC.published(shap, background, **SETTINGS["published, standardized"]),
        "Naive-GP": NaiveGP(shap, background, min_noise_variance=FLOOR),
        "CXPlain": case.cxplain(),
    }


def measure(table: Table, sizes: Sizes) -> pd.DataFrame:
    """Return the seconds of every method on one table."""
    parts = split(table, 0)
    predictor = probability(boosted_trees(parts.x, parts.y))
    case = Case(predictor, parts.x[: sizes.train], parts.x_test[: sizes.rows], sizes.effort)
    rows = []
    for name, learner in learners(case).items():
        fitted, learn = clock(lambda learner=learner: learner.fit(predictor, rng_key=case.key))
        first, again = (clock(lambda fitted=fitted: widths(fitted.explain(case.x)))[1] for _ in range(2))
        rows.append({"method": name, "learn": learn, "first": first, "again": again})
    for name, explainer in (("BayesSHAP", case.bayes_shap()), ("BayesLIME", case.bayes_lime())):
        first, again = (clock(lambda one=explainer: widths(explained(one, case, case.x)))[1] for _ in range(2))
        rows.append({"method": name, "learn": np.nan, "first": first, "again": again})
    shares = [{"method": f"  of it {name}", "learn": seconds} for name, seconds in steps(case).items()]
    return pd.DataFrame([rows[0], *shares, *rows[1:]]).assign(data=table.name, features=table.x.shape[1])


def print_seconds(found: pd.DataFrame, num_rows: int) -> None:
    """Print the seconds of one table."""
    click.echo(
        f"\n{found['data'].iloc[0]}, {found['features'].iloc[0]} features: seconds to learn, and for {num_rows} rows"
    )
    click.echo(f"{'':>38}{'learn':>10}{'rows, first':>13}{'rows, again':>13}")
    for row in found.itertuples():
        cells = (f"{'' if np.isnan(value) else f'{value:.3f}':>12}" for value in (row.learn, row.first, row.again))
        click.echo(f"{row.method:>38}" + " ".join(cells))


@click.command(help=__doc__)
@click.option("--data", type=click.Path(path_type=Path, exists=True), multiple=True, help="A table; repeatable.")
@click.option("--rows", default=100, show_default=True, help="Number of explained rows.")
@click.option("--small", is_flag=True, help="20 training rows, 8 explained ones.")
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), help="Folder for the seconds.")
def main(data: tuple[Path, ...], rows: int, small: bool, output: Path | None) -> dict[str, pd.DataFrame]:
    """Measure."""
    jax.config.update("jax_enable_x64", True)
    sizes = Sizes(8, 20, SMALL) if small else Sizes(rows)
    found = []
    for table in tables(data):
        found.append(measure(table, sizes))
        print_seconds(found[-1], sizes.rows)
    click.echo(
        "\nPublished, German credit, seconds to learn and for 100 rows: "
        + "; ".join(f"{name} {learn:g}, {explain:g}" for name, (learn, explain) in PUBLISHED.items())
    )
    every = pd.concat(found)
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        every.to_csv(output / "gpec_time.csv", index=False)
    return {"seconds": every.assign(method=every["method"].str.strip())}


if __name__ == "__main__":
    main()
