"""Do intervals of Shapley values contain the true values as often as they say? Simulation-based calibration.

Run it as `python examples/benchmarks/shapley_calibration.py [--quick]`. With `--ranks FOLDER` the ranks of each model
and inference are written to a file, and with `--figure FILE` all ranks of the folder are drawn. Hyperparameters are
drawn from their priors, a function from the Gaussian process, and noisy targets or labels at 20 points. The function is
drawn at all points that the game reads as well, so its Shapley values are known by their definition. A model is fitted
to the data, three points are explained, and the rank of each true value among the draws is counted. Ranks of a correct
posterior are uniform, and 90 % intervals contain 90 % of the true values. With `covariance=None` the draws are those of
the posterior mean.

The priors of "wide" models are like those that estimators choose: the logarithms have standard deviations of 1 in place
of .4, and each feature has a lengthscale. `kpp.MAP` and `kpp.NaturalGradient` fix the hyperparameters at one value.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import jax
import numpy as np
from numpyro import distributions as dist
from scipy import stats

import kpp
from kpp.games import Interventional, Observational, shapley_values_from_table
from kpp.kernels import RBF
from kpp_models import GPClassification, GPRegression

jax.config.update("jax_enable_x64", True)

RNG = np.random.default_rng(0)
X, ROWS, BACKGROUND = RNG.normal(size=(20, 3)), RNG.normal(size=(3, 3)), RNG.normal(size=(8, 3))
MASKS = np.array([[number >> j & 1 for j in range(3)] for number in range(8)], dtype=bool)
GAMES = {"interventional": Interventional(BACKGROUND), "observational": Observational(BACKGROUND, 0.01)}
# Medians of the logarithms of lengthscale, variance and noise variance.
LOGARITHMS = np.array([0.3, 0.0, -1.5])


def priors(spread: float, num_lengthscales: int | None) -> tuple[RBF, dist.Distribution]:
    """Return a kernel and the noise variance, with priors whose logarithms have the standard deviation `spread`."""
    lengthscale, variance, noise = (dist.LogNormal(loc, spread) for loc in LOGARITHMS)
    expanded = lengthscale if num_lengthscales is None else lengthscale.expand([num_lengthscales])
    return RBF(expanded, variance=variance), noise


KERNEL, NOISE = priors(0.4, None)
WIDE_KERNEL, WIDE_NOISE = priors(1.0, 3)
MODELS = {
    "GPRegression": GPRegression(KERNEL, noise_variance=NOISE),
    "GPRegression, wide": GPRegression(WIDE_KERNEL, noise_variance=WIDE_NOISE),
    "GPClassification": GPClassification(KERNEL),
    "GPClassification, inducing": GPClassification(KERNEL, latent="inducing", num_inducing=len(X)),
}
INFERENCES = {
    "NUTS": kpp.NUTS(num_warmup=150, num_samples=200, num_chains=1, progress=False),
    "Laplace": kpp.Laplace(num_samples=200, progress=False),
    "MAP": kpp.MAP(progress=False),
    "NaturalGradient": kpp.NaturalGradient(num_steps=300, num_samples=200, progress=False),
}
EXACT = [model for model in MODELS if "inducing" not in model]
CASES = [(model, name) for model in EXACT for name in ("NUTS", "Laplace", "MAP")]
CASES += [(model, "NaturalGradient") for model in MODELS if model not in EXACT]


def simulate(rng: np.random.Generator, model: str) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Draw a function and data; return the targets and the values of the coalitions of both games, (8, rows)."""
    wide = model.endswith("wide")
    variance, noise = np.exp(rng.normal(LOGARITHMS[1:], 1.0 if wide else 0.4))
    lengthscale = np.exp(rng.normal(LOGARITHMS[0], 1.0 if wide else 0.4, size=3 if wide else None))
    kernel = RBF(lengthscale, variance=variance)
    imputed = np.where(MASKS[:, None, None], ROWS[None, :, None], BACKGROUND[None, None]).reshape(-1, 3)
    points = np.concatenate([X, imputed])
    gram = np.asarray(kernel(points, points)) + 1e-8 * np.eye(len(points))
    latent = np.linalg.cholesky(gram) @ rng.normal(size=len(points))
    observed = latent[: len(X)]
    y = observed + np.sqrt(noise) * rng.normal(size=len(X))
    if model.startswith("GPClassification"):
        y = (rng.uniform(size=len(X)) < 1 / (1 + np.exp(-observed))).astype(float)
    function = kpp.RKHSFunction(kernel, X, np.zeros(len(X)))
    values = latent[len(X) :].reshape(8, len(ROWS), len(BACKGROUND))
    weights = {name: np.asarray(game.imputation_weights(function, ROWS, MASKS)) for name, game in GAMES.items()}
    return y, {name: np.einsum("cpm,cpm->cp", weight, values) for name, weight in weights.items()}


def calibrate(model: str, inference: str, repeats: int) -> dict[str, np.ndarray]:
    """Print coverage and p-values of uniform ranks of both games, by the whole posterior and by posterior means.

    Returns:
        The ranks of both games by the whole posterior, in [0, 1], (functions, points, features).
    """
    rng = np.random.default_rng(1)
    cases = [(name, covariance) for covariance in ("auto", None) for name in GAMES]
    ranks: dict[tuple[str, str | None], list[np.ndarray]] = {case: [] for case in cases}
    inside: dict[tuple[str, str | None], list[np.ndarray]] = {case: [] for case in cases}
    for repeat in range(repeats):
        y, tables = simulate(rng, model)
        if len(set(y)) == 1:
            continue  # a classifier needs both labels
        key = jax.random.key(repeat)
        fit = MODELS[model].fit(key, X, y, inference=INFERENCES[inference], num_prior_samples=0)
        for name, covariance in cases:
            truth = np.asarray(shapley_values_from_table(tables[name])).T
            options = {"covariance": covariance, "method": "enumeration", "progress": False}
            explanation = kpp.explain(fit, ROWS, value_function=GAMES[name], rng_key=key, **options)
            drawn = explanation.values.values.reshape(-1, *truth.shape)
            ranks[name, covariance].append((drawn < truth).mean(axis=0))
            lower, upper = np.quantile(drawn, [0.05, 0.95], axis=0)
            inside[name, covariance].append((lower < truth) & (truth < upper))
    for name, covariance in cases:
        bins = np.minimum(np.stack(ranks[name, covariance])[:, 0] * 10, 9).astype(int)
        pvalues = [stats.chisquare(np.bincount(bins[:, j], minlength=10)).pvalue for j in range(3)]
        covered = np.stack(inside[name, covariance])
        # Values of one function are dependent: the standard error is that of the functions' own coverages.
        error = covered.mean(axis=(1, 2)).std() / np.sqrt(len(covered))
        shown = ", ".join(f"{p:.2g}" for p in pvalues)
        what = f"{model:<26} {inference:<15} {name:<15} {'full' if covariance else 'hyperparameters':<16}"
        print(f"{what} {len(covered):>4} {covered.mean():7.1%} ± {error:.1%}   {shown}", flush=True)
    return {name: np.stack(ranks[name, "auto"]) for name in GAMES}


def draw_ranks(folder: Path, file: Path) -> None:
    """Draw one histogram of the ranks of all features for each model, inference and game: at the first point."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    saved = [(path.stem.split("_"), np.load(path)) for path in sorted(folder.glob("*.npz"), reverse=True)]
    figure = Figure(figsize=(2.2 * len(saved), 4.0), layout="constrained")
    panels = figure.subplots(len(GAMES), len(saved), sharey="row", squeeze=False)
    for column, (title, ranks) in zip(panels.T, saved, strict=True):
        for panel, name in zip(column, GAMES, strict=True):
            first = ranks[name][:, 0]
            counts = np.bincount(np.minimum(first.ravel() * 10, 9).astype(int), minlength=10) / first.size
            # Features of one function are dependent, so the band of uniform ranks is that of functions alone.
            error = 2 * np.sqrt(0.1 * 0.9 / len(first))
            panel.bar(np.arange(10) / 10 + 0.05, counts, 0.09, color="tab:blue")
            panel.axhspan(0.1 - error, 0.1 + error, color="0.5", alpha=0.3, linewidth=0)
            panel.set(title=f"{title[0]}\n{title[1]}, {len(first)} functions" if name == "interventional" else "")
    for row, name in zip(panels, GAMES, strict=True):
        row[0].set_ylabel(f"{name}\nshare of the ranks")
    for panel in panels[-1]:
        panel.set_xlabel("rank / number of draws")
    with mpl.rc_context({"svg.hashsalt": "kpp", "svg.fonttype": "none"}):
        figure.savefig(file, metadata={"Date": None})


def main() -> None:
    """Print a table for each model and inference."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="2 functions of each kind")
    parser.add_argument("--repeats", type=int, default=300)
    parser.add_argument("--only", nargs=2, metavar=("MODEL", "INFERENCE"))
    parser.add_argument("--ranks", type=Path, metavar="FOLDER", help="write the ranks to this folder")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="draw the ranks of the folder, and compute nothing")
    arguments = parser.parse_args()
    if arguments.figure is not None:
        draw_ranks(arguments.ranks, arguments.figure)
        return
    repeats = 2 if arguments.quick else arguments.repeats
    cases = [tuple(arguments.only)] if arguments.only else CASES
    print("model                      inference       game            draws            functions  covered  p-values")
    for model, inference in cases:
        ranks = calibrate(model, inference, repeats)
        if arguments.ranks is not None:
            arguments.ranks.mkdir(exist_ok=True)
            np.savez(arguments.ranks / f"{model}_{inference}.npz", **ranks)


if __name__ == "__main__":
    main()
