"""Shapley regularization: protection against covariate shift, and fairness (RKHS-SHAP paper, experiments 3 and 4).

    python examples/reproduce/shapley_regularisation.py [--quick] [--size N] [--seeds SEED ...] [--output FOLDER]

Five standard normal features, the last two with correlation .9, and y = x1 + 2 x2 + 3 x3 + 4 x4 + 10 x5. Kernel ridge
regression is penalized for the interventional (ISV-REG) or observational (OSV-REG) Shapley values of x5. The script
prints the test error when noise is added to x5 of the test points, and the spread of the Shapley values of x4 and x5.
The largest penalty in the paper's grid is 2.5; with the factor 1/n of its formula, such penalties have almost no
effect. This script adds larger penalties.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from sklearn.metrics import root_mean_squared_error

import kpp
from kpp.games import AbstractValueFunction, Interventional, Observational, shapley_values
from kpp.kernels import RBF, median_heuristic
from kpp_models import KernelRidge, RestrictedShapleyRegularized

BETA = np.array([1.0, 2.0, 3.0, 4.0, 10.0])
SENSITIVE = 4  # x5
NOISE = (0.0, 0.1, 0.5, 1.0, 1.5)
PAPER_PENALTIES = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5)
PENALTIES = (*PAPER_PENALTIES, 10.0, 50.0, 250.0, 1000.0)


@dataclass(frozen=True)
class Data:
    """Training and test points with their targets."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


def simulate(n: int, seed: int = 0) -> Data:
    """Draw n points, 70 % of them for training."""
    rng = np.random.default_rng(seed)
    covariance = np.eye(5)
    covariance[3, 4] = covariance[4, 3] = 0.9
    x = rng.multivariate_normal(np.zeros(5), covariance, size=n, method="cholesky")
    y, cut = x @ BETA, int(0.7 * n)
    return Data(x[:cut], y[:cut], x[cut:], y[cut:])


def fit_all(data: Data, base: KernelRidge, game: AbstractValueFunction) -> kpp.RKHSFunction:
    """Fit with every penalty; the fits are the outputs of one function."""
    lambda_f = len(data.x) * float(base.regularization)
    kernel = RestrictedShapleyRegularized(base.kernel, game, data.x, SENSITIVE, penalty=0.0).precompute()
    coefficients = []
    for lambda_s in PENALTIES:
        charged = RestrictedShapleyRegularized(
            base.kernel, game, data.x, SENSITIVE, lambda_s / lambda_f, kernel.section_products
        )
        model = KernelRidge(charged, base.regularization)
        function = model.function_draw({}, {"x": jnp.asarray(data.x), "y": jnp.asarray(data.y)})
        coefficients.append(np.asarray(function.unfold().coefficients))
    return kpp.RKHSFunction(base.kernel, data.x, np.stack(coefficients, axis=1))


def test_errors(function: kpp.RKHSFunction, data: Data, repeats: int = 10, seed: int = 1) -> np.ndarray:
    """Return the RMSE for each penalty (rows) and level of noise in x5 (columns), the mean over draws of the noise."""
    rng = np.random.default_rng(seed)
    errors = np.zeros((len(PENALTIES), len(NOISE)))
    for column, level in enumerate(NOISE):
        for _ in range(repeats):
            shifted = data.x_test.copy()
            shifted[:, SENSITIVE] += level * rng.standard_normal(len(shifted))
            predictions = np.asarray(function(shifted))
            errors[:, column] += [root_mean_squared_error(data.y_test, fit) / repeats for fit in predictions.T]
    return errors


def print_errors(name: str, errors: np.ndarray) -> None:
    print(f"\n{name}: test RMSE when x5 of the test points has noise of this standard deviation")
    print(f"{'lambda_S':>9}" + "".join(f"{level:>9.1f}" for level in NOISE) + f"{'1.5 less 0':>12}")
    for penalty, row in zip(PENALTIES, errors, strict=True):
        print(f"{penalty:>9g}" + "".join(f"{error:>9.3f}" for error in row) + f"{row[-1] - row[0]:>12.3f}")


def print_spreads(name: str, values: dict[str, np.ndarray]) -> None:
    print(f"\n{name}: standard deviation over the test points of the Shapley values of x4 and x5, and mean |phi_5|")
    print(f"{'lambda_S':>9}" + "".join(f"{kind + ' x' + f:>8}" for kind in values for f in "45") + f"{'|ISV 5|':>9}")
    for output, penalty in enumerate(PENALTIES):
        spreads = [phi[:, feature, output].std() for phi in values.values() for feature in (3, 4)]
        size = np.abs(values["ISV"][:, SENSITIVE, output]).mean()
        print(f"{penalty:>9g}" + "".join(f"{spread:>8.3f}" for spread in spreads) + f"{size:>9.3f}")


def as_tables(errors: dict[str, np.ndarray], values: dict[str, dict[str, np.ndarray]]) -> dict[str, pd.DataFrame]:
    """Return test errors by noise, and the spreads of Shapley values, one row per penalty."""
    keys = [{"method": name, "penalty": penalty} for name in errors for penalty in PENALTIES]
    noise = [
        {f"noise {level:g}": error for level, error in zip(NOISE, row, strict=True)}
        for row in np.vstack([*errors.values()])
    ]
    spreads = [
        {
            f"{kind} of x{feature + 1}": phi[:, feature, output].std()
            for kind, phi in kinds.items()
            for feature in (3, 4)
        }
        for kinds in values.values()
        for output in range(len(PENALTIES))
    ]
    return {
        name: pd.DataFrame([{**key, **row} for key, row in zip(keys, rows, strict=True)])
        for name, rows in (("errors", noise), ("spreads", spreads))
    }


def draw(folder: Path, errors: dict[str, np.ndarray], values: dict[str, dict[str, np.ndarray]]) -> None:
    """Draw the paper's figures: error against noise, and the distributions of Shapley values, one curve per penalty."""
    import matplotlib.pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    colors = plt.get_cmap("viridis")(np.linspace(0.0, 0.9, len(PENALTIES)))
    figure, axes = plt.subplots(1, len(errors), figsize=(10, 4), sharey=True, layout="constrained")
    for ax, (name, table) in zip(axes, errors.items(), strict=True):
        for penalty, color, row in zip(PENALTIES, colors, table, strict=True):
            ax.plot(NOISE, row, color=color, marker="o", label=f"{penalty:g}")
        ax.set(title=name, xlabel="standard deviation of the noise in x5", ylabel="test RMSE")
    axes[0].legend(title="penalty")
    figure.savefig(folder / "covariate_shift.png", dpi=150)
    figure, grid = plt.subplots(len(values), 4, figsize=(14, 6), layout="constrained")
    for axes, (name, kinds) in zip(grid, values.items(), strict=True):
        panels = [(kind, feature) for kind in kinds for feature in (3, 4)]
        for ax, (kind, feature) in zip(axes, panels, strict=True):
            for output, color in enumerate(colors):
                ax.hist(kinds[kind][:, feature, output], bins=40, density=True, histtype="step", color=color)
            ax.set(title=f"{name}: {kind} of x{feature + 1}", xlabel="Shapley value", yticks=[])
    figure.savefig(folder / "fairness.png", dpi=150)
    plt.close("all")


def run(data: Data) -> tuple[dict[str, np.ndarray], dict[str, dict[str, np.ndarray]]]:
    """Return the test errors of both methods, and the Shapley values of the test points by method and kind."""
    base = KernelRidge(RBF(np.sqrt(5) * np.asarray(median_heuristic(data.x))), 1e-3)  # |x - x'|^2 grows with d
    base = base.select(data.x, data.y, grid={"regularization": np.geomspace(1e-4, 1e-1, 4)}).model
    print(f"{len(data.x)} training and {len(data.x_test)} test points; lambda_f = n * {float(base.regularization):g}")
    games = {"ISV": Interventional(data.x), "OSV": Observational(data.x)}
    errors, values = {}, {}
    for name, game in games.items():
        function = fit_all(data, base, game)
        errors[f"{name}-REG"] = test_errors(function, data)
        values[f"{name}-REG"] = {
            kind: np.asarray(shapley_values(other, function, data.x_test)) for kind, other in games.items()
        }
    return errors, values


def main(arguments: list[str] | None = None) -> dict[str, pd.DataFrame]:
    """Run both experiments, and print and return their tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="200 points and one seed")
    parser.add_argument("--size", type=int, default=3000, help="the number of points; the paper has 3000")
    parser.add_argument("--seeds", type=int, nargs="+", default=(0,), help="seeds of the points")
    parser.add_argument(
        "--output", type=Path, help="a folder for the figures of the last seed; without it none are drawn"
    )
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    if options.quick:
        options.size, options.seeds = 200, (0,)
    found: dict[str, list[pd.DataFrame]] = {"errors": [], "spreads": []}
    for seed in options.seeds:
        start = time.perf_counter()
        errors, values = run(simulate(options.size, seed))
        for name in errors:
            print_errors(name, errors[name])
            print_spreads(name, values[name])
        for name, table in as_tables(errors, values).items():
            found[name].append(table.assign(seed=seed))
        print(f"\nSeed {seed} took {time.perf_counter() - start:.0f} s", flush=True)
    if options.output:
        draw(options.output, errors, values)
        print(f"\nFigures in {options.output}")
    return {name: pd.concat(tables, ignore_index=True) for name, tables in found.items()}


if __name__ == "__main__":
    main()
