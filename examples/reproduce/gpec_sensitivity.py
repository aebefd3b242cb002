"""The effect of GPEC's parameters and of the explainer's sample size (GPEC, appendices F.4 and F.5, figures 9 to 13).

    python examples/reproduce/gpec_sensitivity.py [--points 200] [--grid 40] [--small] [--output FOLDER]
        [--data german.csv --features LoanDuration LoanAmount]

(Hill, Masoomi, Torop, Ghimire and Dy, Boundary-aware uncertainty for feature attribution explainers, 2024.) The script
prints:

1. How large the ball {x': k(x, x') >= .9} of the normalized WEG kernel is, as a share of the square, around a point
   near a simple part of a boundary and around a point near a complex part, for several boundaries and values of rho,
   in the units of the figures (figure 9).
2. The mean width of GPEC's intervals for a grid of lambda and rho in standard units, without the RBF factor, on the
   synthetic classifier, breast cancer, and the tables given (figures 10 to 12).
3. How much wider they are if BayesSHAP and Shapley sampling use 5 samples instead of 200, and at which share
   of the points they widen or narrow (figure 13).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from gpec_data import HALF_WIDTH, synthetic_points, wave
from gpec_methods import SHARP, SMALL, Plane, SampledBackground, centers, draw_heat_maps, widths
from gpec_synthetic import CANCER, Sizes, case_of, synthetic, trained

from kpp_gpec import GPEC, BisectionSampler, WeightedExponentialGeodesic, geodesic_distances
from kpp_surrogates import BayesSHAP

BALL = 0.9
RHOS = (0.1, 0.3, 1.0)
GRID = (0.2, 1.0, 5.0), (1.0, 5.0, 25.0)  # lambda and rho in standard units
MANY, FEW = 200, 5
FINE = 200  # points along an axis from which a boundary is drawn


@dataclass(frozen=True)
class Boundary:
    """A boundary in the square, and two points: one near a simple part, one near a complex part."""

    margin: Callable[[np.ndarray], np.ndarray]
    plain: tuple[float, float]
    intricate: tuple[float, float]


BOUNDARIES = {
    "straight": Boundary(lambda x: x[:, 1] - 0.3 * x[:, 0], (-6.0, -1.0), (6.0, 2.6)),
    "2 cos(10 / x)": Boundary(lambda x: x[:, 1] - wave(x[:, 0]), (7.0, 1.0), (0.8, 1.0)),
    "chirp": Boundary(lambda x: x[:, 1] - 3 * np.sin((x[:, 0] + HALF_WIDTH) ** 2 / 16), (-8.0, 1.0), (8.0, 1.0)),
    "circle": Boundary(lambda x: 5 - np.hypot(x[:, 0], x[:, 1]), (0.0, 8.0), (0.0, 2.0)),
}


def ball(kernel: WeightedExponentialGeodesic, center: tuple[float, float], points: np.ndarray) -> np.ndarray:
    """Return which points have a similarity to a center of `BALL` or more, (p,)."""
    return np.asarray(kernel(np.array([center]), points))[0] >= BALL


def balls(boundary: Boundary, sizes: Sizes) -> list[tuple[float, np.ndarray, np.ndarray]]:
    """Return for each rho the balls around the simple and the complex point, on the grid of the square."""
    sampler = BisectionSampler(max_points=sizes.effort.boundary)
    samples = sampler.sample(jax.random.key(0), boundary.margin, synthetic_points(0, 500)).points
    distances = geodesic_distances(samples).distances
    points = square(sizes.grid)
    found = []
    rooted = WeightedExponentialGeodesic(samples, distances, 1.0, RHOS[0]).precompute()
    for rho in RHOS:
        kernel = eqx.tree_at(lambda part: part.concentration, rooted, jnp.asarray(rho))
        found.append((rho, ball(kernel, boundary.plain, points), ball(kernel, boundary.intricate, points)))
    return found


def square(count: int) -> np.ndarray:
    """Return a grid over the square, the second feature varying fastest, (count^2, 2)."""
    axis = centers(-HALF_WIDTH, HALF_WIDTH, count)
    return np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)


def measure_balls(sizes: Sizes) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return the shares of the square that the balls take, and the balls themselves."""
    found = {name: balls(boundary, sizes) for name, boundary in BOUNDARIES.items()}
    rows = [
        {"boundary": name, "rho": rho, "plain": plain.mean(), "intricate": intricate.mean()}
        for name, part in found.items()
        for rho, plain, intricate in part
    ]
    return pd.DataFrame(rows), found


def draw_balls(found: dict[str, Any], count: int, path: Path) -> None:
    """Draw figure 9: one row per boundary, one column per rho."""
    figure, grid = plt.subplots(
        len(found), len(RHOS), figsize=(2.6 * len(RHOS), 2.5 * len(found)), squeeze=False, layout="constrained"
    )
    points, axis = square(count), centers(-HALF_WIDTH, HALF_WIDTH, FINE)
    for axes, (name, part) in zip(grid, found.items(), strict=True):
        boundary = BOUNDARIES[name]
        sides = (boundary.margin(square(FINE)) > 0).reshape(FINE, FINE).T
        for ax, (rho, *members) in zip(axes, part, strict=True):
            for member, color in zip(members, ("tab:blue", "tab:green"), strict=True):
                ax.plot(*points[member].T, "s", color=color, markersize=1.5, alpha=0.5)
            ax.contour(axis, axis, sides, levels=[0.5], colors="black", linewidths=0.8)
            ax.plot(*np.transpose([boundary.plain, boundary.intricate]), "o", color="tab:red", markersize=4)
            ax.set_title(f"{name}, rho {rho:g}", fontsize=8)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def vary(on: Plane, sizes: Sizes) -> dict[tuple[float, float], np.ndarray]:
    """Return the widths of GPEC for every lambda and rho."""
    case = case_of(on, sizes)
    model = GPEC.published(case.kernel_shap(), on.x, standardize=True)
    fitted = model.fit(on.predictor, boundary=case.boundary(), rng_key=case.key)
    found = {}
    for decay in GRID[0]:
        for concentration in GRID[1]:
            varied = fitted.with_hyperparameters(decay=decay, concentration=concentration)
            found[decay, concentration] = widths(varied.explain(on.points))
    return found


def print_variation(found: dict[tuple[float, float], np.ndarray], name: str) -> None:
    """Print the mean widths, one row per lambda."""
    click.echo(f"\n{name}: mean width of GPEC, lambda down, rho across, in standard units")
    click.echo(f"{'':>8}" + "".join(f"{rho:>9g}" for rho in GRID[1]))
    for decay in GRID[0]:
        click.echo(f"{decay:>8g}" + "".join(f"{found[decay, rho].mean():>9.4f}" for rho in GRID[1]))


def thrift(on: Plane, sizes: Sizes) -> dict[str, dict[int, np.ndarray]]:
    """Return the widths of GPEC with explainers of many and of few samples."""
    case = case_of(on, sizes)
    boundary = case.boundary()

    def width(explainer: Any, noise: str) -> np.ndarray:
        model = GPEC.published(explainer, on.x, noise=noise, **SHARP)
        return widths(model.fit(on.predictor, boundary=boundary, rng_key=case.key).explain(on.points))

    return {
        "BayesSHAP": {count: width(BayesSHAP(on.x, count, progress=False), "explainer") for count in (MANY, FEW)},
        "Shapley sampling": {count: width(SampledBackground(on.x, count), "repeats") for count in (MANY, FEW)},
    }


def thrift_row(part: dict[int, np.ndarray]) -> dict[str, float]:
    """Return mean widths with many and with few samples, and the shares of points where they increase and decrease."""
    gap = part[FEW] - part[MANY]
    means = {f"{count} samples": float(part[count].mean()) for count in (MANY, FEW)}
    return {**means, "wider": float((gap > 0).mean()), "narrower": float((gap < 0).mean())}


def print_thrift(found: dict[str, dict[int, np.ndarray]], name: str) -> None:
    """Print mean widths with many and with few samples, and the shares of points where they increase and decrease."""
    click.echo(f"\n{name}, GPEC: mean width with {MANY} and with {FEW} samples; share of points wider and narrower")
    for explainer, part in found.items():
        many, few, wider, narrower = thrift_row(part).values()
        click.echo(f"{explainer:>20}{many:>9.4f}{few:>9.4f}{wider:>9.1%}{narrower:>9.1%}")


def write(on: Plane, varied: Any, thrifty: Any, output: Path) -> None:
    """Draw figures 10 to 12 and 13 for one plane."""
    name = on.name.replace(" ", "_")
    for j, feature in enumerate(on.features):
        rows = [
            [(f"{feature}: lambda {decay:g}, rho {rho:g}", on, varied[decay, rho][:, j]) for rho in GRID[1]]
            for decay in GRID[0]
        ]
        draw_heat_maps(rows, output / f"parameters_{name}_{j}.png")
    parts = [
        [(f"{explainer}, {count} samples", on, part[count][:, 0]) for explainer, part in thrifty.items()]
        for count in (MANY, FEW)
    ]
    gaps = [(f"{explainer}, change", on, part[FEW][:, 0] - part[MANY][:, 0]) for explainer, part in thrifty.items()]
    draw_heat_maps([*parts, gaps], output / f"samples_{name}.png")


@click.command(help=__doc__)
@click.option("--points", default=200, show_default=True, help="Training rows.")
@click.option("--grid", default=40, show_default=True, help="Points of the grid along an axis.")
@click.option("--data", type=click.Path(path_type=Path, exists=True), multiple=True, help="A table; repeatable.")
@click.option("--features", nargs=2, multiple=True, help="Two features of the table, once per --data.")
@click.option("--small", is_flag=True, help="30 training rows, a grid of 10.")
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), help="Folder for figures and tables.")
def main(
    points: int,
    grid: int,
    data: tuple[Path, ...],
    features: tuple[tuple[str, str], ...],
    small: bool,
    output: Path | None,
) -> dict[str, pd.DataFrame]:
    """Run the experiment."""
    jax.config.update("jax_enable_x64", True)
    if len(data) != len(features):
        raise click.UsageError(f"give --features once for every --data, got {len(features)} for {len(data)}")
    start = time.perf_counter()
    sizes = Sizes(30, 10, SMALL) if small else Sizes(points, grid)
    shares, members = measure_balls(sizes)
    click.echo(f"Share of the square with a similarity to a point of at least {BALL}")
    click.echo(shares.to_string(index=False, float_format="{:.4f}".format))
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        shares.to_csv(output / "gpec_balls.csv", index=False)
        draw_balls(members, sizes.grid, output / "balls.png")
    planes = [synthetic(0, sizes), trained(None, CANCER, sizes)]
    planes += [trained(path, names, sizes) for path, names in zip(data, features, strict=True)]
    parameters, samples = [], []
    for on in planes:
        varied, thrifty = vary(on, sizes), thrift(on, sizes)
        parameters += [{"data": on.name, "lambda": a, "rho": b, "width": w.mean()} for (a, b), w in varied.items()]
        samples += [{"data": on.name, "explainer": name, **thrift_row(part)} for name, part in thrifty.items()]
        print_variation(varied, on.name)
        print_thrift(thrifty, on.name)
        if output is not None:
            write(on, varied, thrifty, output)
    click.echo(f"{time.perf_counter() - start:.0f} s")
    return {"balls": shares, "parameters": pd.DataFrame(parameters), "samples": pd.DataFrame(samples)}


if __name__ == "__main__":
    main()
