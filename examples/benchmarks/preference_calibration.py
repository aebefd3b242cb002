"""Do intervals of preferences contain the true values as often as they say? Simulation-based calibration.

Run it as `python examples/benchmarks/preference_calibration.py [--quick]`. Hyperparameters are drawn from their priors,
a preference function from the Gaussian process, and the winners of 80 matches between 40 pairs of 12 items. A model is
fitted to the matches, and the true preference of each of 26 other pairs is ranked in its posterior, which is a mixture
of normal distributions over the draws of the hyperparameters. Ranks of a correct posterior are uniform, and 90 %
intervals contain 90 % of the true values, those of P(a beats b) too, because it increases with the preference.
"""

from __future__ import annotations

import argparse
import itertools
import logging

import jax
import numpy as np
from numpyro import distributions as dist
from scipy import stats

import kpp
from kpp.kernels import RBF
from kpp_models import GPGP, PGP

jax.config.update("jax_enable_x64", True)
logging.getLogger("kpp").setLevel(logging.ERROR)  # MAP and Laplace warn at each of some hundred fits

RNG = np.random.default_rng(0)
ITEMS = RNG.normal(size=(12, 2))
PAIRS = RNG.permutation(list(itertools.combinations(range(len(ITEMS)), 2)))
MATCHED, OTHER = np.repeat(PAIRS[:40], 2, axis=0), PAIRS[40:]
LOCATIONS, SCALE = [0.0, 1.0], 0.5
LENGTHSCALE, VARIANCE = (dist.LogNormal(location, SCALE) for location in LOCATIONS)
MODELS = {"GPGP": GPGP, "PGP": PGP}
NUTS = kpp.NUTS(num_warmup=150, num_samples=200, num_chains=1, progress=False)
# How the latent preferences and the hyperparameters are inferred; "weighted" is the default of kpp.Laplace.
INFERENCES = {
    "sample, NUTS": ("sample", NUTS),
    "laplace, NUTS": ("laplace", NUTS),
    "laplace, Laplace": ("laplace", kpp.Laplace(num_samples=200, progress=False, importance=False)),
    "laplace, weighted": ("laplace", kpp.Laplace(num_samples=500, progress=False)),
    "laplace, MAP": ("laplace", kpp.MAP(progress=False)),
}


def simulate(rng: np.random.Generator, model: str) -> tuple[np.ndarray, np.ndarray]:
    """Draw a preference function and matches; return who won, and the preferences of the other pairs."""
    lengthscale, variance = np.exp(rng.normal(LOCATIONS, SCALE))
    kernel = MODELS[model](RBF(lengthscale, variance=variance)).pair_kernel
    gram = np.asarray(kernel.gram(ITEMS[np.concatenate([MATCHED, OTHER])]))
    eigenvalues, vectors = np.linalg.eigh(gram)
    preferences = vectors @ (np.sqrt(np.maximum(eigenvalues, 0.0)) * rng.normal(size=len(gram)))
    matched, other = np.split(preferences, [len(MATCHED)])
    return (rng.uniform(size=len(MATCHED)) < 1 / (1 + np.exp(-matched))).astype(float), other


def posterior_ranks(fit: kpp.Fit, truth: np.ndarray) -> np.ndarray:
    """Return the posterior probabilities of values below the true ones."""
    found = fit.predict(ITEMS[OTHER])
    deviation = np.sqrt(found["latent_variance"].values)
    return stats.norm.cdf((truth - found["mean"].values) / deviation).mean(axis=(0, 1))


def calibrate(model: str, inference: str, repeats: int) -> None:
    """Print the coverage of intervals and the p-value of uniform ranks."""
    rng = np.random.default_rng(1)
    ranks = []
    for repeat in range(repeats):
        winners, truth = simulate(rng, model)
        latent, method = INFERENCES[inference]
        untrained = MODELS[model](RBF(LENGTHSCALE, variance=VARIANCE), latent=latent)
        key = jax.random.key(repeat)
        fit = untrained.fit(key, ITEMS[MATCHED], winners, inference=method, num_prior_samples=0)
        ranks.append(posterior_ranks(fit, truth))
    covered = np.abs(np.stack(ranks) - 0.5) < 0.45
    # Preferences of one function are dependent: the standard error is that of the functions' own coverages.
    error = covered.mean(axis=1).std() / np.sqrt(repeats)
    # One pair of each function: the ranks of different functions are independent.
    bins = np.minimum(np.stack(ranks)[:, 0] * 10, 9).astype(int)
    uniform = stats.chisquare(np.bincount(bins, minlength=10)).pvalue
    print(f"{model:<6} {inference:<17} {repeats:>9} {covered.mean():>8.1%} ± {error:.1%} {uniform:>8.2g}", flush=True)


def main() -> None:
    """Print a line for each model and inference."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="2 functions of each kind")
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--only", nargs=2, metavar=("MODEL", "INFERENCE"))
    arguments = parser.parse_args()
    print("model  latent, inference functions  90 % intervals cover   p-value of the ranks")
    cases = [tuple(arguments.only)] if arguments.only else itertools.product(MODELS, INFERENCES)
    for model, inference in cases:
        calibrate(model, inference, 2 if arguments.quick else arguments.repeats)


if __name__ == "__main__":
    main()
