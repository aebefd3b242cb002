"""Which features decide real matches: Pref-SHAP, SHAP of a utility, naive concatenation (Pref-SHAP, 7.4 and E.2).

    python examples/reproduce/pref_shap_real_data.py [--games chameleon,pokemon,tennis,djokovic,website] [--seeds 5]
        [--items items.csv --matches matches.csv | --items items.csv --views views.csv | --simulated 60 1000] [--small]
        [--output FOLDER]

(Chau, Towards trustworthy machine learning with kernels, 2023, figures 7.4 to 7.8 and E.4, E.7, tables 7.3 and E.1; Hu,
Chau, Ferrando Huertas and Sejdinovic, Explaining preferences with Shapley values, 2022.)

Paths are those of one game, whose name is given by --games. The items have a column ID and their features. The matches
have columns winner, loser and the contexts of the game (surface and conditions in tennis); views have columns session,
ID, clicked (1 or 0) and the contexts. In the game djokovic the first item is the champion, whose losses are explained.
Without paths the games are simulated, see `preference_games.py`, and the script also says whether the features that
decide were found. The chameleons of Stuart-Fox et al. (2006), 35 items and 106 matches, are available in the R package
BradleyTerry2; without paths, this game is left out.

Each seed splits the matches 80 to 20. A match is one row, whichever item is named first, so that no mirror image of a
test match is in the training part. The numbers in the kernels of a general model (GPM) and of a utility (UPM) maximize
the evidence of at most 250 training matches times weak priors; kernel logistic regression then uses all training
matches. Held-out matches are explained, the winner first. "Pref-SHAP" explains the general model; with k + c this
model includes a utility. "UPM" is SHAP of the utility of the winner minus SHAP of the utility of the loser. "left" and
"right" are the values of naive concatenation, which gives each feature of each of the two items a value of its own.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click
import jax
import numpy as np
import pandas as pd
import xarray as xr
from numpyro import distributions as dist
from preference_games import GAMES, Game
from preference_methods import METRICS, scores
from preference_tables import Duels, Table, prepare, read
from scipy.special import expit

import kpp
from kpp import RKHSFunction
from kpp.games import Interventional, Observational
from kpp.kernels import RBF, AbstractKernel, Contextual, GeneralizedPreferential, Preferential
from kpp.preferences import Matches
from kpp.priors import substitute
from kpp_models import PreferenceGP, PreferenceLogistic, spectral_rankability
from kpp_pref_shap import PreferentialContext, PreferentialItems, PrefShap, as_concatenated, as_utility
from kpp_rkhs_shap import RKHSShap

RIDGE = 1e-3  # of the conditional mean embeddings
MODELS = ("Pref-SHAP", "Pref-SHAP, k + c", "UPM")
FOUR_TYPES = ("Fire", "Water", "Psychic", "Normal")  # of which only the first two are unequal
PUBLISHED = """
published AUC, GPM and UPM, and SpecR: chameleon .92 +- .07, .80 +- .07, .24; pokemon .86 +- .00, .82 +- .00, .20;
tennis .58 +- .02, .52 +- .02, .13 +- .07; website .66 +- .01, .65 +- .01, .53 +- .10
"""


def kernel_of(model: str, num_features: int, num_contexts: int) -> AbstractKernel:
    """Return the kernel of a model, with priors; a utility has no contexts, which it could not use."""
    kernel = RBF(lengthscales(num_features), variance=dist.LogNormal(1.0, 1.0))
    if model == "UPM":
        return Preferential(kernel)
    general = GeneralizedPreferential(kernel + dist.HalfNormal(10.0) if model.endswith("c") else kernel)
    return Contextual(general, RBF(lengthscales(num_contexts))) if num_contexts else general


def lengthscales(num_features: int) -> dist.Distribution:
    """Return a prior of one lengthscale for each feature, about the typical distance of standard normal points."""
    return dist.LogNormal(0.5 * np.log(2 * num_features), 1.0).expand([num_features]).to_event(1)


def fit(model: str, matches: Matches, rng_key: jax.Array, chosen_by: int) -> RKHSFunction:
    """Choose the numbers in the kernel by the evidence of some of the matches, and fit the model to all of them."""
    num_contexts = 0 if matches.contexts is None else matches.contexts.shape[1]
    few = matches.num_matches <= chosen_by
    part = matches if few else matches.split(rng_key, chosen_by / matches.num_matches)[0]
    process = PreferenceGP(kernel_of(model, matches.items.shape[1], num_contexts))
    inference = kpp.MAP(num_restarts=0, max_steps=200, tolerance=1e-2, progress=False)
    draws = process.fit(rng_key, part, inference=inference).draws
    kernel = substitute("kernel", process.kernel, {site: values[0, 0] for site, values in draws.items()})
    # With this regularization the fit is the mode of the process.
    machine, data, _ = PreferenceLogistic(kernel, 1 / matches.num_matches).prepare(matches)
    return machine.function_draw({}, data)


def without_contexts(duels: Duels) -> Duels:
    """Return the same matches without contexts."""
    return Duels(duels.numbers, None, duels.log_odds)


def score(function: RKHSFunction, items: Table, duels: Duels) -> dict[str, float]:
    """Return scores of a function at matches, and the area under the curve of the true probabilities if known."""
    won = np.ones(len(duels.numbers))  # the winner is the first item; `scores` counts a match from both sides
    found = scores(expit(np.asarray(function(duels.points(items.values.to_numpy())))), won)
    if duels.log_odds is not None:
        found["AUC of the truth"] = scores(expit(duels.log_odds), won)["AUC"]
    return found


def explain(
    model: str, function: RKHSFunction, items: Table, duels: Duels, background: np.ndarray
) -> dict[str, xr.DataArray]:
    """Return the Shapley values of features of items, (instance, feature), by method.

    Args:
        model: One of the models; naive concatenation is added to the general one.
        function: Its fit.
        items: The items.
        duels: The matches to explain.
        background: The numbers of the reference items.
    """
    x, groups = items.values.to_numpy(), items.groups
    if model == "UPM":
        numbers, rows = np.unique(duels.numbers, return_inverse=True)
        explainer = RKHSShap(Observational(x[background], RIDGE), groups=groups, covariance=None, progress=False)
        sides = explainer.explain(as_utility(function), x[numbers]).values.values[rows.reshape(-1, 2)]
        return {model: named(sides[:, 0] - sides[:, 1], groups)}
    game = PreferentialItems(x[background], RIDGE)
    explainer = PrefShap(game, groups=groups, covariance=None, progress=False)
    found = {model: named(explainer.explain(function, duels.points(x)).values.values, groups)}
    if model == "Pref-SHAP":
        found |= explain_concatenated(function, items, duels, background)
    return found


def named(values: np.ndarray, names: Any) -> xr.DataArray:
    """Return values (p, d) with names."""
    return xr.DataArray(values, dims=("instance", "feature"), coords={"feature": list(names)})


def explain_concatenated(
    function: RKHSFunction, items: Table, duels: Duels, background: np.ndarray
) -> dict[str, xr.DataArray]:
    """Return the values of the features of the left item and of the right item, the winner being on the left."""
    x, width = items.values.to_numpy(), items.values.shape[1]
    groups = {
        f"{side} {name}": [start + column for column in columns]
        for side, start in (("left", 0), ("right", width))
        for name, columns in items.groups.items()
    }
    rows, others = x[duels.numbers], x[np.stack([background, np.roll(background, 1)], axis=1)]
    rows, references = rows.reshape(len(rows), -1), others.reshape(len(others), -1)
    if duels.contexts is not None:
        rows = np.concatenate([rows, duels.contexts], axis=1)
        repeated = np.resize(duels.contexts, (len(references), duels.contexts.shape[1]))
        references = np.concatenate([references, repeated], axis=1)
        groups["context"] = list(range(2 * width, rows.shape[1]))
    explainer = RKHSShap(Interventional(references), groups=groups, covariance=None, progress=False)
    values = explainer.explain(as_concatenated(function), rows).values.values
    count = len(items.groups)
    return {
        "left": named(values[:, :count], items.groups),
        "right": named(values[:, count : 2 * count], items.groups),
    }


def explain_contexts(function: RKHSFunction, items: Table, contexts: Table, duels: Duels) -> xr.DataArray:
    """Return the Shapley values of features of contexts, (instance, feature)."""
    game = PreferentialContext(np.unique(contexts.values.to_numpy(), axis=0), RIDGE)
    explainer = PrefShap(game, groups=contexts.groups, covariance=None, progress=False)
    return named(explainer.explain(function, duels.points(items.values.to_numpy())).values.values, contexts.groups)


def differences(table: Table, duels: Duels) -> xr.DataArray:
    """Return winner minus loser for the features of one column, and NaN for the others, (instance, feature)."""
    x = table.values.to_numpy()
    gap = x[duels.numbers[:, 0]] - x[duels.numbers[:, 1]]
    columns = [
        gap[:, columns[0]] if len(columns) == 1 else np.full(len(gap), np.nan) for columns in table.groups.values()
    ]
    return named(np.stack(columns, axis=1), table.groups)


def summarize(
    values: xr.DataArray, shown: xr.DataArray | None, deciding: tuple[str, ...], keys: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return one row per feature: mean |phi|, its rank, the correlation with winner minus loser, and the truth."""
    sizes = np.abs(values.values).mean(axis=0)
    ranks = len(sizes) - sizes.argsort().argsort()
    rows = []
    for j, name in enumerate(values.feature.values.tolist()):
        column = np.full(len(values), np.nan) if shown is None else shown.values[:, j]
        varies = np.std(column) > 0 and np.std(values.values[:, j]) > 0  # not true for NaN
        correlation = np.corrcoef(values.values[:, j], column)[0, 1] if varies else np.nan
        row = {**keys, "feature": name, "size": sizes[j], "rank": ranks[j], "correlation": correlation}
        rows.append(row | {"decides": float(name in deciding) if deciding else np.nan})
    return rows


def local_groups(name: str, game: Game, items: Table, duels: Duels) -> dict[str, tuple[Table, Duels, tuple[str, ...]]]:
    """Return matches that are explained apart: their items, themselves, and the features that decide them."""
    if name == "djokovic":
        losses = duels.numbers[:, 1] == 0
        return {"losses of the champion": (items, duels.take(losses), game.deciding)}
    if name != "pokemon":
        return {}
    inside = game.items[["Type 1", "Type 2"]].isin([*FOUR_TYPES, "none"]).all(axis=1).to_numpy()
    columns = list(items.values.columns)
    types = {kind: [columns.index(kind)] for kind in FOUR_TYPES}
    rest = [column for column in items.groups["Type"] if columns[column] not in FOUR_TYPES]
    statistics = [column for column in range(len(columns)) if column not in items.groups["Type"]]
    table = Table(items.values, types | {"other types": rest, "statistics": statistics})
    return {"four types": (table, duels.take(inside[duels.numbers].all(axis=1)), (*FOUR_TYPES[:2], "statistics"))}


def run_seed(
    name: str, game: Game, seed: int, *, explained: int, background: int, chosen_by: int, figures: Path | None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Split the matches, fit every model, score and explain it: rows of the tables of prediction and importance."""
    items, contexts, duels = prepare(game)
    rng, rng_key = np.random.default_rng([seed, 1]), jax.random.key(seed)
    order = rng.permutation(len(duels.numbers))
    size = round(0.8 * len(order))
    train, test = duels.take(order[:size]), duels.take(order[size:])
    references = rng.permutation(len(items.values))[:background]
    rankability = spectral_rankability(duels.matches(items.values).dominance())
    predictions, importance = [], []
    for model in MODELS:
        seen, asked, every = (without_contexts(part) if model == "UPM" else part for part in (train, test, duels))
        function = fit(model, seen.matches(items.values), rng_key, chosen_by)
        keys = {"game": name, "seed": seed}
        found = score(function, items, asked)
        predictions.append({**keys, "method": model, **found, "SpecR": rankability})
        parts = {"all": (items, asked, game.deciding), **local_groups(name, game, items, every)}
        for group, (table, part, deciding) in parts.items():
            part = part.take(np.arange(min(explained, len(part.numbers))))
            shown = differences(table, part)
            for method, values in explain(model, function, table, part, references).items():
                importance += summarize(values, shown, deciding, {**keys, "group": group, "method": method})
                if figures is not None:
                    draw(values, shown, figures / f"{name}_{group}_{method}".replace(",", "").replace(" ", "_"))
            if contexts is not None and part.contexts is not None:
                values = explain_contexts(function, table, contexts, part)
                importance += summarize(
                    values, None, deciding, {**keys, "group": f"contexts of {group}", "method": model}
                )
    return predictions, importance


def draw(values: xr.DataArray, shown: xr.DataArray, path: Path) -> None:
    """Draw the bar and the beeswarm of the values side by side."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11, 4))
    kpp.plots.bar(values, ax=axes[0])
    kpp.plots.beeswarm(values, shown, ax=axes[1])
    figure.tight_layout()
    figure.savefig(path.with_suffix(".png"), dpi=120)
    plt.close(figure)


def recovery(importance: pd.DataFrame) -> pd.DataFrame:
    """Return how well the sizes separate the features that decide from the others, by seed, group and method.

    The column separation is the share of pairs of a deciding and an irrelevant feature in which the first is larger.
    """
    rows = []
    known = importance.dropna(subset=["decides"])
    for keys, part in known.groupby(["game", "seed", "group", "method"], sort=False):
        decides = part["decides"].to_numpy() == 1
        if decides.all() or not decides.any():
            continue
        sizes = part["size"].to_numpy()
        separation = (sizes[decides][:, None] > sizes[~decides]).mean()
        rows.append({**dict(zip(("game", "seed", "group", "method"), keys, strict=True)), "separation": separation})
    return pd.DataFrame(rows, columns=["game", "seed", "group", "method", "separation"])


def run(
    games: dict[str, Game], seeds: int, *, explained: int, background: int, chosen_by: int, figures: Path | None = None
) -> dict[str, pd.DataFrame]:
    """Run the experiment.

    Args:
        games: The games by name.
        seeds: The number of splits.
        explained: The number of explained matches.
        background: The number of reference items.
        chosen_by: The number of matches whose evidence chooses the numbers in the kernels.
        figures: A folder for figures of the first split, or None.

    Returns:
        The tables "prediction", "importance" and, for simulated games, "recovery", with one row per split and method.
    """
    predictions, importance = [], []
    sizes = {"explained": explained, "background": background, "chosen_by": chosen_by}
    for name, game in games.items():
        for seed in range(seeds):
            start = time.perf_counter()
            found = run_seed(name, game, seed, figures=figures if seed == 0 else None, **sizes)
            predictions += found[0]
            importance += found[1]
            areas = ", ".join(f"{row['AUC']:.3f}" for row in found[0])
            click.echo(f"{name}, seed {seed}: AUC {areas}; {time.perf_counter() - start:.0f} s", err=True)
    table = pd.DataFrame(importance)
    return {"prediction": pd.DataFrame(predictions), "importance": table, "recovery": recovery(table)}


def print_tables(tables: dict[str, pd.DataFrame]) -> None:
    """Print means over splits with standard errors."""
    keys = ["game", "method"]
    columns = [name for name in (*METRICS, "AUC of the truth", "SpecR") if name in tables["prediction"]]
    print_means(tables["prediction"], keys, columns, "Held-out matches")
    click.echo(PUBLISHED)
    columns = ["size", "rank", "correlation"]
    keys = ["game", "group", "method", "feature"]
    print_means(tables["importance"], keys, columns, "Mean |phi|, rank, correlation with winner minus loser")
    if len(tables["recovery"]):
        print_means(tables["recovery"], keys[:3], ["separation"], "Deciding features larger than irrelevant ones")


def print_means(table: pd.DataFrame, keys: list[str], columns: list[str], title: str) -> None:
    """Print mean +- standard error of columns over seeds."""
    groups = table.groupby(keys, sort=False)[columns]
    means, errors = groups.mean(), groups.sem()
    cells = pd.DataFrame(
        {name: [f"{a:.3f} +- {b:.3f}" for a, b in zip(means[name], errors[name], strict=True)] for name in columns},
        index=means.index,
    )
    click.echo(f"\n{title}: mean +- standard error over {table['seed'].nunique()} splits\n{cells.to_string()}")


@click.command(help=__doc__)
@click.option("--games", "names", default="pokemon,tennis,djokovic,website", show_default=True)
@click.option("--items", type=click.Path(path_type=Path, exists=True), help="A CSV table with ID and features.")
@click.option("--matches", type=click.Path(path_type=Path, exists=True), help="A CSV table with winner and loser.")
@click.option("--views", type=click.Path(path_type=Path, exists=True), help="A CSV table with session, ID and clicked.")
@click.option("--seeds", default=5, show_default=True)
@click.option("--explained", default=500, show_default=True, help="Number of explained matches.")
@click.option("--background", default=100, show_default=True, help="Number of reference items.")
@click.option("--simulated", type=(int, int), help="Numbers of simulated items, and of matches or sessions.")
@click.option("--small", is_flag=True, help="Small games, one split.")
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), help="Folder for tables and figures.")
def main(
    names: str,
    items: Path | None,
    matches: Path | None,
    views: Path | None,
    seeds: int,
    explained: int,
    background: int,
    simulated: tuple[int, int] | None,
    small: bool,
    output: Path | None,
) -> dict[str, pd.DataFrame]:
    """Run the experiment."""
    jax.config.update("jax_enable_x64", True)
    chosen = names.split(",")
    if items is not None:
        if simulated is not None:
            raise click.UsageError("`--simulated` goes with simulated games, without `--items`")
        if len(chosen) > 1 or (matches is None) == (views is None):
            raise click.UsageError("`--items` needs one name in `--games`, and either `--matches` or `--views`")
        games = {chosen[0]: read(chosen[0], items, matches, views)}
    else:
        games = {name: simulate(name, (40, 200) if small else simulated or ()) for name in chosen}
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
    sizes = {"explained": explained, "background": background, "chosen_by": 250}
    if small:
        seeds, sizes = 1, {"explained": 20, "background": 15, "chosen_by": 60}
    tables = run(games, seeds, figures=output, **sizes)
    print_tables(tables)
    if output is not None:
        for name, table in tables.items():
            table.to_csv(output / f"pref_shap_real_{name}.csv", index=False)
    return tables


def simulate(name: str, size: tuple[int, ...]) -> Game:
    """Simulate a game of the given numbers of items and of matches, by default those of its generator."""
    if name not in GAMES:
        raise click.UsageError(f"there is no stand-in for {name!r}, only for {', '.join(GAMES)}; give `--items`")
    return GAMES[name](np.random.default_rng(0), *size)


if __name__ == "__main__":
    main()
