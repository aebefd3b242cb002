"""Which features decide matches: Pref-SHAP against SHAP of a utility on simulated games (Pref-SHAP, section 7.4).

    python examples/reproduce/pref_shap_synthetic.py [--games clusters,ten,context,sessions] [--seeds 5]
        [--explained 1000] [--background 200] [--small] [--output FOLDER]

(Chau, Towards trustworthy machine learning with kernels, 2023, chapter 7 and appendix E.2; Hu, Chau, Ferrando Huertas
and Sejdinovic, Explaining preferences with Shapley values, 2022.)

clusters   1000 items of three clusters A, B, C, with features x0, xAB, xAC, xBC, standard normal, and three that say
           the cluster. Of 40,000 matches those within a cluster are decided by x0, those between two by the feature
           that is named after them. The script explains matches of all kinds, and matches between two clusters.
ten        200 items with ten features, of which the first two vary, N(0, 1), and the others hardly, .15 N(0, 1). 5000
           matches follow a draw of the generalized preferential process with lengthscale 1.
context    60 items; a context, say a surface, decides whether strength or its opposite wins, another does not matter.
sessions   100 items, shown five at a time; the one clicked beats the others, by a quality and a price.

Each game is repeated with several seeds. The tables contain the mean of |phi| over matches, averaged over seeds, +- its
standard error over seeds, and the correlation of phi with the difference of the feature, winner minus loser, which is
also the color in the plots. UPM is SHAP of the utility of the preferential model: the values of the winner minus the
values of the loser.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from scipy.spatial.distance import cdist
from scipy.special import expit
from sklearn.metrics import roc_auc_score

import kpp
from kpp import Explanation, RKHSFunction
from kpp.games import Observational
from kpp.kernels import RBF, Contextual, GeneralizedPreferential, Preferential
from kpp.preferences import ItemFunction, Matches
from kpp.preferences.toolkit import row_sums
from kpp_models import PreferenceGP, PreferenceLogistic, spectral_rankability
from kpp_pref_shap import PreferentialContext, PreferentialItems, PrefShap
from kpp_rkhs_shap import RKHSShap

INTER = ("xAB", "xAC", "xBC")
FEATURES = ("x0", *INTER, "A", "B", "C")
CLUSTER_PAIRS = {"A-B": (0, 1), "A-C": (0, 2), "B-C": (1, 2)}
REGULARIZATION = 1e-5  # of logistic regression, multiplied by the number of matches
RIDGE = 1e-3  # of the conditional mean embeddings


def cluster_game(rng: np.random.Generator, num_items: int, num_matches: int) -> Matches:
    """Simulate the game of three clusters."""
    p, cluster = rng.normal(size=(num_items, 4)), rng.integers(3, size=num_items)
    first = rng.integers(num_items, size=num_matches)
    second = (first + rng.integers(1, num_items, size=num_matches)) % num_items
    decisive = np.where(cluster[first] == cluster[second], 0, cluster[first] + cluster[second])
    y = (p[first, decisive] > p[second, decisive]).astype(int)
    items = pd.DataFrame(np.concatenate([p, np.eye(3)[cluster]], axis=1), columns=list(FEATURES))
    return Matches.create(items, first, second, y)


def draw_preferences(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    """Draw g at all pairs of items, L E L' with L L' their Gram matrix and E a skew matrix of normal variables."""
    root = np.linalg.cholesky(np.exp(-cdist(x, x, "sqeuclidean") / 2) + 1e-10 * np.eye(len(x)))
    normal = rng.normal(size=(len(x), len(x)))
    return root @ ((normal - normal.T) / np.sqrt(2)) @ root.T


def ten_game(rng: np.random.Generator, num_items: int, num_matches: int) -> Matches:
    """Simulate matches by a draw of the general process."""
    x = rng.normal(size=(num_items, 10)) * np.where(np.arange(10) < 2, 1.0, 0.15)
    g = draw_preferences(rng, x)
    first = rng.integers(num_items, size=num_matches)
    second = (first + rng.integers(1, num_items, size=num_matches)) % num_items
    items = pd.DataFrame(x, columns=[f"x{j + 1}" for j in range(10)])
    return Matches.create(items, first, second, (rng.uniform(size=num_matches) < expit(g[first, second])).astype(int))


def context_game(rng: np.random.Generator, num_items: int, num_matches: int) -> Matches:
    """Simulate matches in which a context, between -1 and 1, multiplies the effect of the first feature."""
    items = pd.DataFrame(rng.normal(size=(num_items, 2)), columns=["strength", "form"])
    first = rng.integers(num_items, size=num_matches)
    second = (first + rng.integers(1, num_items, size=num_matches)) % num_items
    contexts = pd.DataFrame(rng.uniform(-1, 1, size=(num_matches, 2)), columns=["surface", "weather"])
    gap = items.to_numpy()[first] - items.to_numpy()[second]
    g = 4 * contexts["surface"].to_numpy() * gap[:, 0] + gap[:, 1]
    return Matches.create(items, first, second, (rng.uniform(size=num_matches) < expit(g)).astype(int), contexts)


def session_game(rng: np.random.Generator, num_items: int, num_sessions: int) -> Matches:
    """Simulate sessions with one click among five items, which quality attracts and price deters, color does not."""
    items = pd.DataFrame(rng.normal(size=(num_items, 3)), columns=["quality", "price", "colour"])
    utility = 2 * items["quality"].to_numpy() - items["price"].to_numpy()
    shown = np.array([rng.choice(num_items, 5, replace=False) for _ in range(num_sessions)])
    chosen = np.argmax(utility[shown] + rng.gumbel(size=shown.shape), axis=1)
    views = pd.DataFrame({"session": np.repeat(np.arange(num_sessions), 5), "ID": shown.ravel()})
    views["clicked"] = (np.tile(np.arange(5), num_sessions) == np.repeat(chosen, 5)).astype(int)
    return Matches.from_sessions(items.rename_axis("ID").reset_index(), views)


def fitted(model: PreferenceLogistic, matches: Matches) -> ItemFunction:
    """Return the function that a model fits to matches, without the groups of a fit."""
    prepared, data, _ = model.prepare(matches)
    return prepared.item_function(data)


def utility_of(function: ItemFunction) -> RKHSFunction:
    """Return the utility behind a function with the kernel `Preferential`, written on items."""
    coefficients = row_sums(function.pairs, function.coefficients, len(function.items))
    return RKHSFunction(function.kernel.kernel, function.items, coefficients)


def winners_first(matches: Matches) -> tuple[np.ndarray, np.ndarray]:
    """Return the item numbers and the features of each pair, the item first that won more often."""
    lost = np.asarray(matches.wins) < np.asarray(matches.losses)
    pairs = np.where(lost[:, None], np.asarray(matches.pairs)[:, ::-1], np.asarray(matches.pairs))
    return pairs, np.asarray(matches.items)[pairs]


def explain_both(
    general: ItemFunction, utility: ItemFunction, pairs: np.ndarray, background: np.ndarray
) -> dict[str, np.ndarray]:
    """Return the Shapley values of pairs (p, 2, d) by Pref-SHAP, and by SHAP of the utility, (p, d)."""
    found = PrefShap(PreferentialItems(background, RIDGE), progress=False).explain(general.function(), pairs)
    items, numbers = np.unique(pairs.reshape(-1, pairs.shape[-1]), axis=0, return_inverse=True)
    shap = RKHSShap(Observational(background, RIDGE), progress=False).explain(utility_of(utility), items)
    sides = shap.values.values[numbers.reshape(-1, 2)]
    return {"Pref-SHAP": found.values.values, "UPM": sides[:, 0] - sides[:, 1]}


def accuracy(function: Callable[..., Any], matches: Matches) -> float:
    """Return how often a function of pairs prefers the winner."""
    rows, y = matches.single_matches()
    return float(((np.asarray(function(matches.points))[rows] > 0) == (y == 1)).mean())


def area(function: Callable[..., Any], matches: Matches) -> float:
    """Return the area under the curve of a function of pairs, with every match seen from both sides."""
    rows, y = matches.single_matches()
    g = np.asarray(function(matches.points))[rows]
    return float(roc_auc_score(np.concatenate([y, 1 - y]), np.concatenate([g, -g])))


def summarise(values: np.ndarray, differences: np.ndarray, keys: dict[str, Any], names: Any) -> list[dict[str, Any]]:
    """Return mean |phi| and the correlation with the difference of winner and loser, one row per feature."""
    rows = []
    for j, name in enumerate(names):
        varies = np.ptp(differences[:, j]) > 0 and np.ptp(values[:, j]) > 0
        correlation = np.corrcoef(values[:, j], differences[:, j])[0, 1] if varies else np.nan
        rows.append({**keys, "feature": name, "size": np.abs(values[:, j]).mean(), "correlation": correlation})
    return rows


def explain_items(
    game: str, matches: Matches, lengthscale: Any, seed: int, explained: int, background: int
) -> list[dict[str, Any]]:
    """Fit both models to 90 % of the matches, and explain some of the remaining matches, in groups for the clusters."""
    rng = np.random.default_rng([seed, 1])
    train, test = matches.split(jax.random.key(seed), 0.9)
    kernel = RBF(jnp.asarray(lengthscale))
    general, utility = (
        fitted(PreferenceLogistic(pairwise(kernel), REGULARIZATION), train)
        for pairwise in (GeneralizedPreferential, Preferential)
    )
    numbers, pairs = winners_first(test)
    chosen = rng.permutation(len(pairs))[:explained]
    references = np.asarray(matches.items)[rng.permutation(matches.num_items)[:background]]
    start = time.perf_counter()
    found = explain_both(general, utility, pairs[chosen], references)
    click.echo(
        f"{game}, seed {seed}: held-out accuracy {accuracy(general, test):.3f} (general) and "
        f"{accuracy(utility, test):.3f} (utility), SpecR {spectral_rankability(matches.dominance()):.3f}; "
        f"{len(chosen)} matches explained in {time.perf_counter() - start:.0f} s"
    )
    differences = pairs[chosen, 0] - pairs[chosen, 1]
    areas = {"Pref-SHAP": area(general, test), "UPM": area(utility, test)}
    rows = []
    for group, inside in groups(game, pairs[chosen]).items():
        for method, values in found.items():
            keys = {"game": game, "group": group, "method": method, "seed": seed, "AUC": areas[method]}
            rows += summarise(values[inside], differences[inside], keys, matches.feature_names)
    return rows


def groups(game: str, pairs: np.ndarray) -> dict[str, np.ndarray]:
    """Return the groups of matches: all matches, and the matches between two clusters."""
    found = {"all": np.ones(len(pairs), bool)}
    if game == "clusters":
        cluster = np.sort(pairs[:, :, 4:].argmax(axis=2), axis=1)
        found |= {name: (cluster == ends).all(axis=1) for name, ends in CLUSTER_PAIRS.items()}
    return found


def explain_contexts(matches: Matches, seed: int, explained: int) -> list[dict[str, Any]]:
    """Explain the contributions of the context and of the items to matches, by one contextual model."""
    kernel = Contextual(5.0 * Preferential(RBF(2.0)), RBF(jnp.array([1.0, 1.0])))
    fit = PreferenceGP(kernel).fit(
        jax.random.key(seed), matches, inference=kpp.MAP(progress=False), num_prior_samples=0
    )
    pairs = winners_first(matches)[1][:explained]
    contexts = np.asarray(matches.contexts)[:explained]
    games = {
        "context": (PreferentialContext(np.asarray(matches.contexts), RIDGE), contexts, matches.context_names),
        "items": (
            PreferentialItems(np.asarray(matches.items), RIDGE),
            pairs[:, 0] - pairs[:, 1],
            matches.feature_names,
        ),
    }
    rows = []
    for group, (game, shown, names) in games.items():
        found: Explanation = PrefShap(game, progress=False).explain(fit.function(), (pairs, contexts))
        keys = {"game": "context", "group": group, "method": "Pref-SHAP", "seed": seed}
        rows += summarise(found.values.values.reshape(len(pairs), -1), shown, keys, names)
    return rows


def print_table(table: pd.DataFrame) -> None:
    """Print mean |phi| +- standard error over seeds and the mean correlation, for each group, feature and method."""
    for (game, group), part in table.groupby(["game", "group"], sort=False):
        methods = list(part["method"].unique())
        click.echo(f"\n{game}, {group}: mean |phi| +- standard error, and correlation with winner minus loser")
        click.echo(f"{'':>10}" + "".join(f"{name:>26}" for name in methods))
        for feature in part["feature"].unique():
            cells = []
            for method in methods:
                rows = part.loc[(part["feature"] == feature) & (part["method"] == method)]
                error = rows["size"].std(ddof=1) / np.sqrt(len(rows)) if len(rows) > 1 else np.nan
                cells.append(f"{rows['size'].mean():.3f} +- {error:.3f} ({rows['correlation'].mean():+.2f})")
            click.echo(f"{feature:>10}" + "".join(f"{cell:>26}" for cell in cells))


def print_claims(table: pd.DataFrame) -> None:
    """Print whether the deciding feature is ranked first, and the three features between clusters weigh the same."""
    part = table.loc[table["game"] == "clusters"]
    for method, rows in part.groupby("method", sort=False):
        click.echo(f"\n{method} on clusters:")
        for group in CLUSTER_PAIRS:
            wide = rows.loc[rows["group"] == group].pivot(index="seed", columns="feature", values="size")
            top = wide.idxmax(axis=1) == "x" + group.replace("-", "")
            click.echo(f"  {group}: the deciding feature is ranked first in {top.sum()} of {len(top)} seeds")
        wide = rows.loc[rows["group"] == "all"].pivot(index="seed", columns="feature", values="size")
        for left, right in (INTER[:2], INTER[::2], INTER[1:]):
            gap = wide[left] - wide[right]
            error = gap.std(ddof=1) / np.sqrt(len(gap)) if len(gap) > 1 else np.nan
            click.echo(f"  all: {left} minus {right} {gap.mean():+.4f} +- {error:.4f}")


def games(small: bool) -> dict[str, Any]:
    """Return for each game of items its matches by a generator, and the lengthscales fitted with."""
    counts = {"clusters": (1000, 40_000), "ten": (200, 5000), "sessions": (100, 1000)}
    if small:
        counts = {"clusters": (90, 1200), "ten": (40, 300), "sessions": (30, 100)}
    return {
        "clusters": (cluster_game, counts["clusters"], [3.0] * 4 + [0.7] * 3),
        "ten": (ten_game, counts["ten"], [1.0] * 10),
        "sessions": (session_game, counts["sessions"], [2.0] * 3),
    }


@click.command(help=__doc__)
@click.option("--games", "names", default="clusters,ten,context,sessions", show_default=True)
@click.option("--seeds", default=5, show_default=True)
@click.option("--explained", default=1000, show_default=True, help="Number of explained matches.")
@click.option("--background", default=200, show_default=True, help="Number of reference items.")
@click.option("--small", is_flag=True, help="Small games, one seed, 60 matches.")
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), help="Folder for the table.")
def main(
    names: str, seeds: int, explained: int, background: int, small: bool, output: Path | None
) -> dict[str, pd.DataFrame]:
    """Run the experiment."""
    jax.config.update("jax_enable_x64", True)
    start = time.perf_counter()
    if small:
        seeds, explained, background = 1, 60, 30
    rows = []
    for name in names.split(","):
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            if name == "context":
                rows += explain_contexts(context_game(rng, 60, 100 if small else 400), seed, min(explained, 100))
            else:
                simulate, counts, lengthscale = games(small)[name]
                rows += explain_items(name, simulate(rng, *counts), lengthscale, seed, explained, background)
    table = pd.DataFrame(rows)
    print_table(table)
    if "clusters" in names:
        print_claims(table)
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        table.to_csv(output / "pref_shap_synthetic.csv", index=False)
    click.echo(f"{time.perf_counter() - start:.0f} s")
    return {"importance": table}


if __name__ == "__main__":
    main()
