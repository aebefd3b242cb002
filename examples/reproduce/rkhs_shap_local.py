"""Explanations of two houses and of one patient, and of house prices with a Matern kernel (RKHS-SHAP, appendix C).

    python examples/reproduce/rkhs_shap_local.py [--quick] [--boston CSV] [--pima CSV] [--output FOLDER]

(Chau, Towards trustworthy machine learning with kernels, 2023, figures 5.1, C.2 to C.4; observational Shapley values.)
Kernel ridge regression of the Boston house prices, with an RBF kernel (figure C.3) and with a Matern-1/2 kernel of the
distance in all features (figure C.2), is explained in all rows. The paper explains two houses, which it does not name
(figure C.4): the low price of one is due to its crime rate, and the price of the other was raised by LSTAT. The script
counts in how many houses each feature is the largest reason for a lower and for a higher price, and prints the
explanations of the houses with the highest crime rate and with the highest and the lowest LSTAT. Kernel logistic
regression of the Pima Indians is explained for the first row that is predicted to be diabetic (figure 5.1).

Fits, backgrounds and lengthscales are those of `rkhs_shap_real_data.py`. Without tables, both are simulated: the price
falls with the crime rate and LSTAT, and diabetes is decided by glucose. The output folder contains the waterfalls.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from rkhs_shap_real_data import QUICK, Sizes, Task, choose_kernel, fit, read_task, report_fit
from sklearn.model_selection import train_test_split

import kpp
from kpp.features import landmarks
from kpp.games import Observational
from kpp.kernels import Matern12

LOWERS, RAISES = "CRIM", "LSTAT"
HOUSES = {"highest crime rate": (LOWERS, -1), "highest LSTAT": (RAISES, -1), "lowest LSTAT": (RAISES, 0)}


def simulate() -> tuple[Task, Task]:
    """Return houses and patients with known reasons."""
    rng = np.random.default_rng(0)
    houses = pd.DataFrame(rng.normal(size=(120, 3)), columns=[LOWERS, "ZN", RAISES])
    patients = pd.DataFrame(rng.normal(size=(120, 3)), columns=["Glucose", "BMI", "Insulin"])
    prices = -2 * houses[LOWERS] - houses[RAISES] + rng.normal(scale=0.1, size=120)
    ill = (patients["Glucose"] + rng.normal(scale=0.3, size=120) > 0).to_numpy(float)
    return Task("boston", houses, prices.to_numpy(), False), Task("pima", patients, ill, True)


def explain(task: Task, sizes: Sizes) -> kpp.Explanation:
    """Fit a task and explain all rows of a regression, and of a classification the first predicted to be of class 1."""
    x, x_test, y, y_test = train_test_split(task.x, task.y, test_size=0.2, random_state=0)
    kernel = choose_kernel(task, x)
    function = fit(task, x, y, kernel, sizes.landmarks)
    report_fit(task, function, x_test, y_test)
    positive = np.asarray(function(task.x.to_numpy())) > 0
    rows = task.x[positive].iloc[:1] if task.classification else task.x
    background = landmarks(x.to_numpy(), min(sizes.background, len(x)), kernel=kernel, rng_key=jax.random.key(1))
    game = Observational(background.points)
    return kpp.explain(function, rows, value_function=game, rng_key=jax.random.key(2))


def importance(explanation: kpp.Explanation) -> pd.Series:
    """Return the mean absolute Shapley values by feature."""
    return abs(explanation.values).mean("instance").to_series()


def count_reasons(values: pd.DataFrame) -> pd.DataFrame:
    """Return the share of rows in which each feature lowers, and raises, the prediction the most."""
    places = {"lowers": values.idxmin(axis=1), "raises": values.idxmax(axis=1)}
    shares = pd.DataFrame({name: which.value_counts() for name, which in places.items()})
    return (shares.reindex(values.columns).fillna(0.0) / len(values)).rename_axis("feature")


def choose_houses(x: pd.DataFrame) -> dict[str, int]:
    """Return the row of each house that is shown."""
    return {house: int(x[feature].to_numpy().argsort()[place]) for house, (feature, place) in HOUSES.items()}


def show_houses(x: pd.DataFrame, values: pd.DataFrame) -> pd.DataFrame:
    """Return the explanations of the chosen houses, with the place of each feature from the most negative value on."""
    tables = []
    for house, row in choose_houses(x).items():
        phi = values.iloc[row]
        table = pd.DataFrame({"house": house, "x": x.iloc[row], "value": phi, "place": phi.rank()})
        tables.append(table.rename_axis("feature").reset_index())
    return pd.concat(tables, ignore_index=True)


def as_frame(explanation: kpp.Explanation) -> pd.DataFrame:
    """Return the Shapley values with one column per feature."""
    return pd.DataFrame(np.asarray(explanation.values), columns=explanation.values.feature.values)


def draw(explanation: kpp.Explanation, row: int, path: Path) -> None:
    """Save the waterfall of a row."""
    axes = explanation.plot.waterfall(row)
    axes.figure.savefig(path, dpi=150, bbox_inches="tight")
    plt.close(axes.figure)


def main(arguments: list[str] | None = None) -> dict[str, pd.DataFrame]:
    """Explain, print the tables and return them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, for a quick trial run")
    parser.add_argument("--boston", type=Path, metavar="CSV", help="the house prices; simulated without it")
    parser.add_argument("--pima", type=Path, metavar="CSV", help="the patients; simulated without it")
    parser.add_argument("--output", type=Path, default=None, help="a folder for the figures")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    sizes, (houses, patients) = QUICK if options.quick else Sizes(), simulate()
    if options.boston is not None:
        houses = read_task("boston", options.boston)
    if options.pima is not None:
        patients = read_task("pima", options.pima)
    matern = Task("boston-matern12", houses.x, houses.y, False, kernel=Matern12, product=False)
    by_rbf, by_matern, patient = (explain(task, sizes) for task in (houses, matern, patients))
    values = as_frame(by_rbf)
    tables = {
        "kernels": pd.DataFrame({"RBF": importance(by_rbf), "Matern": importance(by_matern)}).rename_axis("feature"),
        "reasons": count_reasons(values),
        "houses": show_houses(houses.x, values),
        "patient": pd.DataFrame({"x": patient.data[0].to_series(), "value": as_frame(patient).iloc[0]}).rename_axis(
            "feature"
        ),
    }
    for name, table in tables.items():
        print(f"\n{name}\n{table.to_string(float_format='%.4f')}")
    print(f"\nlog-odds of the patient {float(patient.predictions[0]):.3f}, before {float(patient.base_values):.3f}")
    if options.output is not None:
        options.output.mkdir(parents=True, exist_ok=True)
        draw(patient, 0, options.output / "patient.png")
        for house, row in choose_houses(houses.x).items():
            draw(by_rbf, row, options.output / f"{house.replace(' ', '_')}.png")
    return tables


if __name__ == "__main__":
    main()
