"""The structural models of the experiments on interventions: their data, and the true effects of their treatments.

(Chau, Ton, Gonzalez, Teh and Sejdinovic, BayesIMP: uncertainty quantification for causal data fusion, 2021; the thesis'
appendix B.4.) Each problem has two data sets. D1 holds the treatment, the adjustment variables and the mediator y. D2
holds y and the target t, from another study. The true effect is E[T | do(X = x)].

Settings. Ablation: x ~ N(0, 2.5^2), y = x cos(pi x), t = y cos(y) / 2, all noise sds .1, D2's y ~ U[-2, 6]. Simple
graph: noise sd .1; in the multimodal version y is, with probability 1/2, (u - 1) + exp(-z) - 3 instead of u + exp(-z).
Two peaks is not in the paper.
Harder graph: E = cos(A) + C/10 + noise, all noise N(0, 1) as printed. In this graph the true effect is almost constant,
because U1 + U2 has variance 2 and blurs sin(3 y), which has period 2 pi / 3. `harder` therefore has an option for
another noise sd. Healthcare: as printed, statin is a function of age and bmi, so its effect cannot be distinguished
from their effects; here it gets noise N(0, 1). D2 is in levels, not logarithms: y = PSA, t = cancer volume.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import pandas as pd
from numpyro import distributions as dist

import kpp
from kpp.kernels import RBF
from kpp_models import GPRegression, InterventionData

#: From a generator, a number of rows and a treatment (None: no intervention) to treatment, adjusting and mediator.
Structure = Callable[[np.random.Generator, int, "float | None"], tuple[np.ndarray, "np.ndarray | None", np.ndarray]]


@dataclasses.dataclass(frozen=True)
class Problem:
    """A structural model, its adjustment, and the true effects.

    Args:
        name: For tables.
        adjustment: "none", "backdoor" or "frontdoor".
        treatments: The range of treatments that is searched.
        mediators: The range that D2's y is uniform on.
        structure: D1's model.
        response: E[T | y].
        noise: The standard deviation of t around this mean.
        effect: E[T | do(X = x)] at treatments (p,).
    """

    name: str
    adjustment: str
    treatments: tuple[float, float]
    mediators: tuple[float, float]
    structure: Structure
    response: Callable[[np.ndarray], np.ndarray]
    noise: float
    effect: Callable[[np.ndarray], np.ndarray]

    def first(self, rng: np.random.Generator, count: int) -> InterventionData:
        """Draw D1."""
        x, adjusting, y = self.structure(rng, count, None)
        return InterventionData.create(x[:, None], y[:, None], adjusting)

    def second(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw D2: mediators (M, 1) and targets (M,)."""
        y = rng.uniform(*self.mediators, count)
        return y[:, None], self.response(y) + self.noise * rng.normal(size=count)

    def simulate_effect(self, rng: np.random.Generator, treatment: float, count: int) -> tuple[float, float]:
        """Estimate the effect of one treatment by surgery on the model; mean and its standard error."""
        values = self.response(self.structure(rng, count, treatment)[2])
        return float(values.mean()), float(values.std() / np.sqrt(count))


def ablation() -> Problem:
    r"""Return X -> Y -> T of appendix B.4.1; with y ~ N(m, s^2), E[y cos y] = exp(-s^2/2) (m cos m - s^2 sin m)."""
    noise = 0.1

    def structure(rng, count, treatment):
        x = rng.normal(0.0, 2.5, count) if treatment is None else np.full(count, treatment)
        return x, None, x * np.cos(np.pi * x) + noise * rng.normal(size=count)

    def effect(x):
        mean = x * np.cos(np.pi * x)
        return 0.5 * np.exp(-(noise**2) / 2) * (mean * np.cos(mean) - noise**2 * np.sin(mean))

    return Problem(
        "ablation", "none", (-6.0, 6.0), (-2.0, 6.0), structure, lambda y: 0.5 * y * np.cos(y), noise, effect
    )


def simple(adjustment: str, *, multimodal: bool) -> Problem:
    """Return the simple graph of appendix B.4.2.1: Z -> X -> U -> Y <- Z, adjusted by {Z}, or {U} with Z hidden."""
    noise, shift = 0.1, -4.0 if multimodal else 0.0

    def structure(rng, count, treatment):
        z = rng.uniform(-4.0, 4.0, count)
        x = 3.0 * np.cos(z) + noise * rng.normal(size=count) if treatment is None else np.full(count, treatment)
        u = 2.0 * x + noise * rng.normal(size=count)
        y = u + np.exp(-z) + noise * rng.normal(size=count) + shift * rng.integers(0, 2, count)
        return x, {"backdoor": z, "frontdoor": u}[adjustment][:, None], y

    def effect(x):
        # y = 2 x + exp(-z) + N(0, 2 noise^2), shifted or not; z by Gauss and Legendre, since exp(4) is 9 periods of cos
        nodes, weights = np.polynomial.legendre.leggauss(200)
        z, variance = 4.0 * nodes, 2.0 * noise**2
        places = 2.0 * x[:, None] + np.exp(-z)
        modes = [
            np.exp(-variance / 2) * np.cos(places + s) - np.exp(-(places + s) / 20 + variance / 800)
            for s in (0.0, shift)
        ]
        return np.mean(modes, axis=0) @ weights / 2.0

    name = f"simple, {adjustment}, {'multi' if multimodal else 'uni'}modal"
    ranges = (-3.0, 3.0), (-10.0, 10.0)
    return Problem(name, adjustment, *ranges, structure, lambda y: np.cos(y) - np.exp(-y / 20.0), noise, effect)


def two_peaks() -> Problem:
    r"""Return X -> Y -> T with x ~ U[-3, 3], y = x + 2 or x - 2, alike, plus N(0, .1^2), and t = cos(y) plus noise.

    E[T | do(x)] = exp(-.1^2 / 2) cos(2) cos(x). With a normal y of the same moments it would be exp(-2) cos(x) instead
    of cos(2) cos(x) = -.42 cos(x): the best treatment would be the worst. D2 has y ~ U[-5, 5].
    """
    noise, peak = 0.1, 2.0

    def structure(rng, count, treatment):
        x = rng.uniform(-3.0, 3.0, count) if treatment is None else np.full(count, treatment)
        return x, None, x + peak * rng.choice([-1.0, 1.0], size=count) + noise * rng.normal(size=count)

    def effect(x):
        return np.exp(-(noise**2) / 2) * np.cos(peak) * np.cos(x)

    return Problem("two peaks", "none", (-3.0, 3.0), (-5.0, 5.0), structure, np.cos, noise, effect)


def harder(treated: str, *, noise: float = 1.0) -> Problem:
    """Return the harder graph of appendix B.4.2.2, treating D (adjusted by {C}) or E (adjusted by {A, C}).

    y is shifted by 2 pi with probability 1/2, which does not change t = 6 sin(3 y). With w the part of y that does not
    depend on the treatment, E[T | do] = 6 Im(exp(3 i h(x)) E exp(3 i w)), h = cos for D and sin for E: one number by
    Monte Carlo.
    """
    treats_d = {"D": True, "E": False}[treated]

    def draw(rng, count, treatment):
        u1, u2, f, *eps = noise * rng.normal(size=(8, count))
        a = f**2 + u1 + eps[0]
        c = np.exp(-(u2 + eps[1])) + eps[2]
        natural = {"D": np.exp(-c) / 10.0 + eps[3], "E": np.cos(a) + c / 10.0 + eps[4]}
        if treatment is not None:
            natural[treated] = np.full(count, treatment)
        return natural, u1 + u2, a, c

    def structure(rng, count, treatment):
        values, hidden, a, c = draw(rng, count, treatment)
        y = np.cos(values["D"]) + np.sin(values["E"]) + hidden + 2.0 * np.pi * rng.integers(0, 2, count)
        return values[treated], c[:, None] if treats_d else np.column_stack([a, c]), y

    @functools.cache
    def factor():
        total, rounds, rng = 0.0, 20, np.random.default_rng(0)
        for _ in range(rounds):
            values, hidden, *_ = draw(rng, 200_000, None)
            other = np.sin(values["E"]) if treats_d else np.cos(values["D"])
            total += np.exp(3j * (other + hidden)).mean() / rounds
        return total

    def effect(x):
        return 6.0 * np.imag(np.exp(3j * (np.cos(x) if treats_d else np.sin(x))) * factor())

    name = f"harder, do({treated})" + ("" if noise == 1.0 else f", noise {noise:g}")
    ranges = (-3.0, 3.0), (-2.0, 9.0)
    return Problem(name, "backdoor", *ranges, structure, lambda y: 6.0 * np.sin(3.0 * y), noise, effect)


def healthcare(prostate: Path | None = None) -> Problem:
    """Return the effect of statin on cancer volume by PSA (appendix B.4.3), adjusted by {age, bmi}.

    Args:
        prostate: A table with columns lpsa and lcavol (Stamey et al., 1989); a Gaussian process is fitted to their
            exponentials, whose posterior mean makes t of y. Without it, a smooth increasing function does.
    """
    response, noise = (volume, 1.0) if prostate is None else fitted_volume(prostate)

    def structure(rng, count, treatment):
        age = rng.uniform(15.0, 75.0, count)
        bmi = rng.normal(27.0 - 0.01 * age, 0.7)
        aspirin = sigmoid(-8.0 + 0.1 * age + 0.03 * bmi)
        statin = -13.0 + 0.1 * age + 0.2 * bmi + rng.normal(size=count)
        if treatment is not None:
            statin = np.full(count, treatment)
        cancer = sigmoid(2.2 - 0.05 * age + 0.01 * bmi - 0.04 * statin + 0.02 * aspirin)
        psa = rng.normal(6.8 + 0.04 * age - 0.15 * bmi - 0.6 * statin + 0.55 * aspirin + cancer, 0.4)
        return statin, np.column_stack([age, bmi]), psa

    def effect(x):
        # The same 2e5 people for every treatment, so that the Monte Carlo error hardly depends on the treatment.
        return np.asarray([response(structure(np.random.default_rng(0), 200_000, at)[2]).mean() for at in x])

    ranges = (-7.0, 1.0), (1.0, 16.0)
    return Problem("healthcare", "backdoor", *ranges, structure, response, noise, effect)


def sigmoid(value: np.ndarray) -> np.ndarray:
    """Return the logistic function."""
    return 1.0 / (1.0 + np.exp(-value))


def volume(psa: np.ndarray) -> np.ndarray:
    """Return a stand-in for cancer volume [cm^3] by PSA [ng/ml]: increasing, flatter above."""
    return 14.0 * sigmoid((psa - 9.0) / 3.0)


def fitted_volume(path: Path) -> tuple[Callable[[np.ndarray], np.ndarray], float]:
    """Fit a Gaussian process to patients with a PSA below 40; return its mean, tabulated, and the noise sd."""
    table = pd.read_csv(path, sep="\t")
    psa, cancer = np.exp(table["lpsa"].to_numpy()), np.exp(table["lcavol"].to_numpy())
    kept = psa < 40.0
    priors = dist.LogNormal(np.log(10.0), 0.5), dist.LogNormal(np.log(50.0), 1.0), dist.LogNormal(np.log(25.0), 1.0)
    model = GPRegression(RBF(priors[0], priors[1]), priors[2], mean=float(cancer[kept].mean()))
    inference = kpp.MAP(num_restarts=0, progress=False)
    fit = model.fit(jax.random.key(0), psa[kept][:, None], cancer[kept], inference=inference, num_prior_samples=0)
    grid = np.linspace(-5.0, 45.0, 1001)
    mean = fit.predict(grid[:, None])["mean"].values[0, 0]
    return lambda y: np.interp(y, grid, mean), float(np.sqrt(fit.draws["noise_variance"][0, 0]))
