"""Five kinds of Shapley values for rented bikes, beside those that the R package shapr publishes.

    python examples/reproduce/bike_sharing.py [--data day.csv] [--split rows.txt] [--num-explained P]

`day.csv` holds the bike sharing data of the UCI repository (data set 275, CC BY 4.0). The model is XGBoost with 100
trees, or gradient boosting of scikit-learn if xgboost is not installed. `rows.txt` has the numbers of the training
rows from 1, one per line; shapr has them in `inst/extdata/train_index.rds`. By default 80 % of the rows are drawn at
random. Without `--data` days are simulated.

Heskes, Sijben, Bucur and Claassen, Causal Shapley values, 2020, explain 2012-10-09 and 2012-12-03, two days of one
temperature: marginal values are almost the same on both days, asymmetric ones give the credit to the season, and causal
ones lie between them. shapr's vignette "asymmetric_causal" repeats this for XGBoost and gives mean squared errors of
the values of coalitions, which are compared here.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor

from kpp.causal import CausalOrder
from kpp.games import (
    AbstractValueFunction,
    Causal,
    GaussianConditional,
    all_coalitions,
    asymmetric_shapley_values,
    shapley_values_from_table,
)

FEATURES = ["trend", "cosyear", "sinyear", "temp", "atemp", "windspeed", "hum"]
ORDER = CausalOrder([["trend"], ["cosyear", "sinyear"], ["temp", "atemp", "windspeed", "hum"]], (False, True, False))
SIMILAR_DAYS = ["2012-10-09", "2012-12-03"]
# shapr, vignette "asymmetric_causal": its data, split and model, 1000 samples per coalition.
PUBLISHED_ERRORS = {"causal": 1147280.0, "asymmetric conditional": 339521.0}
# Read off the figure "two_dates_1" of the vignette, to about 15 bikes: cosyear and temp on both days.
PUBLISHED_VALUES = {
    "marginal": [130, 140, 315, 435],
    "conditional": [70, -95, 85, 280],
    "causal": [200, -125, 35, 325],
    "asymmetric conditional": [570, -445, 8, 435],
    "asymmetric causal": [580, -455, 15, 440],
}


def read_days(path: Path) -> pd.DataFrame:
    """Return the features, in natural units, and the rented bikes of each day."""
    days = pd.read_csv(path, index_col="dteday", parse_dates=["dteday"])
    temperatures = {"temp": days["temp"] * 47 - 8, "atemp": days["atemp"] * 66 - 16}
    return with_season(days.assign(**temperatures, windspeed=67 * days["windspeed"], hum=100 * days["hum"]))


def simulate_days(rng: np.random.Generator, num_days: int = 731) -> pd.DataFrame:
    """Return days in which the season drives the weather, and the trend and the weather drive the rented bikes."""
    days = with_season(pd.DataFrame(index=pd.date_range("2011-01-01", periods=num_days, name="dteday")))
    temp = 14 - 11 * days["cosyear"] - 4 * days["sinyear"] + 3 * rng.normal(size=num_days)
    hum = 62 - 0.3 * temp + 12 * rng.normal(size=num_days)
    windspeed = 12 + 1.5 * days["cosyear"] + 4 * np.abs(rng.normal(size=num_days))
    bikes = 1500 + 5 * days["trend"] + 180 * temp - 3 * np.maximum(temp - 22, 0) ** 2 - 15 * hum - 20 * windspeed
    atemp = 1.1 * temp - 0.1 * windspeed + rng.normal(size=num_days)
    return days.assign(
        temp=temp, atemp=atemp, windspeed=windspeed, hum=hum, cnt=bikes + 500 * rng.normal(size=num_days)
    )


def with_season(days: pd.DataFrame) -> pd.DataFrame:
    """Add the days since the first one, and the position in the year."""
    trend = (days.index - days.index[0]).days.to_numpy()
    angle = 2 * np.pi * trend / 365
    return days.assign(trend=trend, cosyear=np.cos(angle), sinyear=np.sin(angle))


def fit_model(features: np.ndarray, bikes: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Fit 100 boosted trees."""
    try:
        import xgboost

        model = xgboost.XGBRegressor(n_estimators=100)
    except ImportError:
        model = HistGradientBoostingRegressor(max_iter=100)
    model.fit(features, bikes)
    return lambda rows: np.asarray(model.predict(np.asarray(rows)), dtype=float)


def choose(days: pd.DataFrame, num_days: int) -> pd.DataFrame:
    """Return some days at even steps, and the similar days if they are among them all."""
    evenly = np.linspace(0, len(days) - 1, min(num_days, len(days))).round().astype(int)
    similar = days.index.get_indexer(pd.to_datetime(SIMILAR_DAYS))
    return days.iloc[np.unique([*evenly, *similar[similar >= 0]])]


def games(background: np.ndarray, samples_per_point: int) -> dict[str, AbstractValueFunction]:
    """Return the value functions; all are means over samples of Gaussian laws."""
    options = {"feature_names": FEATURES, "samples_per_point": samples_per_point}
    return {
        "marginal": Causal(background, CausalOrder([FEATURES], True), **options),
        "conditional": GaussianConditional(background, samples_per_point=samples_per_point),
        "causal": Causal(background, ORDER, **options),
    }


def explain(
    model: Callable[[np.ndarray], np.ndarray], background: np.ndarray, x: np.ndarray, samples_per_point: int = 1
) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """Return the values of each kind, (p, d), and the mean squared errors of the values of coalitions."""
    coalitions = all_coalitions(len(FEATURES))
    inner = coalitions[1:-1]
    in_order = np.array([_respects_order(mask) for mask in inner])
    values, errors = {}, {}
    for kind, game in games(background, samples_per_point).items():
        table = np.asarray(game(model, x, coalitions))
        values[kind] = np.asarray(shapley_values_from_table(table)).T
        squares = np.mean((table[1:-1] - model(x)) ** 2, axis=1)
        errors[kind] = float(squares.mean())
        if kind != "marginal":
            found = asymmetric_shapley_values(game, model, x, ORDER, feature_names=FEATURES)
            values[f"asymmetric {kind}"] = np.asarray(found.values)
            errors[f"asymmetric {kind}"] = float(squares[in_order].mean())
    return values, errors


def _respects_order(mask: np.ndarray) -> bool:
    """Return whether a coalition holds all causes of its members."""
    present = {name for name, is_present in zip(FEATURES, mask, strict=True) if is_present}
    groups = enumerate(ORDER.groups)
    return all(set(ORDER.causes(position)) <= present for position, group in groups if present & set(group))


def similar_days(values: dict[str, np.ndarray], days: pd.DatetimeIndex) -> pd.DataFrame:
    """Return the values of the similar days that are explained, one row per kind and day."""
    rows = [pd.DataFrame(found, days, FEATURES).assign(kind=kind) for kind, found in values.items()]
    frame = pd.concat(rows).rename_axis("day").reset_index()
    frame["day"] = frame["day"].dt.strftime("%Y-%m-%d")
    return frame[frame["day"].isin(SIMILAR_DAYS)]


def main(arguments: list[str] | None = None) -> dict[str, pd.DataFrame]:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, help="day.csv; simulated days by default")
    parser.add_argument("--split", type=Path, help="the numbers of the training rows, from 1")
    parser.add_argument("--samples", type=int, default=1, help="samples per training day and coalition")
    parser.add_argument("--num-explained", type=int, default=144, help="how many days are explained")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    pd.set_option("display.width", 160, "display.max_columns", 20)
    rng = np.random.default_rng(0)
    days = simulate_days(rng) if options.data is None else read_days(options.data)
    rows = np.loadtxt(options.split, dtype=int) - 1 if options.split else rng.permutation(731)[:585]
    is_train = np.isin(np.arange(len(days)), rows)
    train, others = days[is_train], days[~is_train]
    model = fit_model(train[FEATURES].to_numpy(), (train["cnt"] - train["cnt"].mean()).to_numpy())
    residuals = model(others[FEATURES].to_numpy()) - (others["cnt"] - train["cnt"].mean())
    error = np.sqrt((residuals**2).mean())
    print(f"{len(train)} training days, {len(others)} others; root mean squared error {error:.1f}")

    some = choose(others, options.num_explained)
    values, errors = explain(model, train[FEATURES].to_numpy(), some[FEATURES].to_numpy(), options.samples)
    print("\nMean absolute values:")
    sizes = pd.DataFrame({kind: np.abs(found).mean(axis=0) for kind, found in values.items()}, FEATURES)
    print(sizes.round(0))
    print("\nMean squared errors of the values of coalitions, and the published ones:")
    print(pd.DataFrame({"ours": errors, "published": PUBLISHED_ERRORS}).reindex(errors).round(0))
    tables = {
        "sizes": sizes.rename_axis("feature"),
        "errors": pd.DataFrame({"kind": list(errors), "error": list(errors.values())}),
        "days": similar_days(values, some.index),
    }
    places = [some.index.get_loc(day) for day in SIMILAR_DAYS if day in some.index]
    if len(places) == 2:
        columns = pd.MultiIndex.from_product([["cosyear", "temp"], SIMILAR_DAYS])
        chosen = {kind: found[places][:, [1, 3]].T.ravel() for kind, found in values.items()}
        print("\nTwo days of one temperature:")
        print(pd.DataFrame.from_dict(chosen, orient="index", columns=columns).round(0))
        if options.data is not None and options.split is not None:
            print("\nThe published values:")
            print(pd.DataFrame.from_dict(PUBLISHED_VALUES, orient="index", columns=columns))
    return tables


if __name__ == "__main__":
    main()
