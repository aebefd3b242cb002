"""Functions of known laws, and models whose priors they may come from.

Modules of rows share points and models, so that they share compiled programs.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import numpy as np
from numpyro import distributions as dist

import kpp
from kpp.gp import GaussianLikelihood, LinearMean
from kpp.kernels import RBF
from kpp_models import GeneralizedGP, GPClassification, GPRegression

jax.config.update("jax_enable_x64", True)

# Correlated normal features: the first 13 rows are new, the others are for training.
POINTS = np.random.default_rng(0).normal(size=(93, 3)) @ [[1.0, 0.6, 0.3], [0.0, 0.8, 0.3], [0.0, 0.0, 0.9]]
TRAINING = POINTS[13:]
# The medians of lengthscale, variance and noise variance are exponentials of these.
LOGARITHMS = np.array([0.3, 0.0, -1.5])
INFERENCES = {
    "nuts": kpp.NUTS(num_warmup=150, num_samples=200, num_chains=1, progress=False),
    "laplace": kpp.Laplace(num_samples=200, progress=False),
    "map": kpp.MAP(progress=False),
    "svi": kpp.SVI(num_steps=1500, num_samples=200, progress=False),
    "natural_gradient": kpp.NaturalGradient(num_steps=300, num_samples=200, progress=False),
}
# Their names on the page, and those without inducing points.
WORDS = {name: f"`kpp.{type(inference).__name__}`" for name, inference in INFERENCES.items()}
DENSE = ("nuts", "laplace", "map")
MAP_KNOWN = (
    "the hyperparameters are fixed at one value, so intervals are too narrow; `kpp.Laplace` and `kpp.NUTS` draw them."
)


@dataclasses.dataclass(frozen=True)
class Prior:
    """Log-normal priors of the hyperparameters of a Gaussian process with an RBF kernel.

    Args:
        spread: The standard deviation of all logarithms.
        num_lengthscales: The number of lengthscales; None for one that all features share.
    """

    spread: float
    num_lengthscales: int | None = None

    def sites(self) -> dict[str, Any]:
        """Return the priors of the kernel and of the noise variance."""
        lengthscale, variance, noise = (dist.LogNormal(location, self.spread) for location in LOGARITHMS)
        if self.num_lengthscales is not None:
            lengthscale = lengthscale.expand([self.num_lengthscales])
        return {"kernel": RBF(lengthscale, variance=variance), "noise_variance": noise}

    def draw(self, rng: np.random.Generator) -> tuple[RBF, float]:
        """Draw the kernel and the noise variance."""
        lengthscale = np.exp(rng.normal(LOGARITHMS[0], self.spread, size=self.num_lengthscales))
        variance, noise = np.exp(rng.normal(LOGARITHMS[1:], self.spread))
        return RBF(lengthscale, variance=variance), float(noise)


NARROW, WIDE = Prior(0.5), Prior(1.0, num_lengthscales=POINTS.shape[1])
KERNEL, NOISE_PRIOR = WIDE.sites().values()
SHARED, _ = NARROW.sites().values()
NARROW_GP, WIDE_GP = GPRegression(**NARROW.sites()), GPRegression(**WIDE.sites())
INDUCING = GeneralizedGP(KERNEL, GaussianLikelihood(noise_variance=NOISE_PRIOR), latent="inducing", num_inducing=30)
LABELS = GPClassification(SHARED)
WITH_LINE = GPRegression(**NARROW.sites(), mean=LinearMean(dist.Normal(0.0, 1.0).expand([3]), dist.Normal(0.0, 1.0)))


class Drawn(NamedTuple):
    """A function at points, the kernel that it or a model's prior has, and the variance of the noise."""

    kernel: RBF
    values: np.ndarray
    noise: float


def draw_function(rng: np.random.Generator, kernel: RBF, points: np.ndarray, size: tuple[int, ...] = ()) -> np.ndarray:
    """Draw functions from a Gaussian process, jointly at all points: (*size, points)."""
    gram = np.asarray(kernel(points, points)) + 1e-8 * np.eye(len(points))
    return rng.normal(size=(*size, len(points))) @ np.linalg.cholesky(gram).T


def sines(rng: np.random.Generator, points: np.ndarray) -> np.ndarray:
    """Return sines with random phases of the first two features, the second one's with a factor of the first."""
    first, second = points[:, 0] + rng.uniform(-3, 3), points[:, 1] + rng.uniform(-3, 3)
    return np.sin(2 * first) + 0.5 * np.sin(second) * (1 + np.cos(first))


def step(rng: np.random.Generator, points: np.ndarray) -> np.ndarray:
    """Return 1 and -1 on the sides of a line in the first two features."""
    angle, distance = rng.uniform(0, 2 * np.pi), rng.normal(0.0, 0.5)
    return np.where(points[:, :2] @ [np.cos(angle), np.sin(angle)] > distance, 1.0, -1.0)


OTHERS = {"sines": sines, "step": step}
LAWS = {
    "narrow": "a function from the Gaussian process and normal noise, with hyperparameters from the model's own priors",
    "wide": "a function from the Gaussian process and normal noise, with hyperparameters from wide priors of the "
    "model: logarithms have a standard deviation of 1 in place of .5, and each feature has a lengthscale",
    "sines": "sines of the first two features with random phases, and normal noise of variance .1; a model with "
    "priors has wide ones",
    "step": "a step from -1 to 1 at a random line in the first two features, and normal noise of variance .1; a "
    "model with priors has wide ones",
    "line": "the sum of a line and a function from the Gaussian process, and normal noise, with slopes and "
    "hyperparameters from the model's own priors",
    "labels": "labels whose log-odds come from the Gaussian process, with hyperparameters from the model's own priors",
}
LAWS = {name: f"three correlated normal features, {words}" for name, words in LAWS.items()}


def draw(rng: np.random.Generator, law: str, points: np.ndarray) -> Drawn:
    """Draw a function of one of the laws at points."""
    kernel, noise = (NARROW if law in ("narrow", "line", "labels") else WIDE).draw(rng)
    if law in OTHERS:
        return Drawn(kernel, OTHERS[law](rng, points), 0.1)
    line = points @ rng.normal(size=points.shape[1]) + rng.normal() if law == "line" else 0.0
    return Drawn(kernel, draw_function(rng, kernel, points) + line, noise)
