"""The rate at which the deconditional mean operator is learned, compared with the rate of theorem 3.4.2.

    python examples/reproduce/dmo_rate.py [--quick] [--speeds A ...] [--b B] [--c C] [--c-prime C] [--repeats R]
                                          [--seed SEED] [--figure FILE]

The deconditional operator D satisfies D E[k(X, .) | Y = y] = l(y, .). It is estimated in two stages: the conditional
mean operator from N pairs (x, y) with the penalty lambda, then D from M values of y with the penalty epsilon. With
lambda = N^(-1/(c'+1)) and N = M^(a(c'+1)/(iota(c'-1))) the theorem bounds the excess risk by

    M^(-ac/(c+1))    with epsilon = M^(-a/(c+1))     if a <= b(c+1)/(bc+1),
    M^(-bc/(bc+1))   with epsilon = M^(-b/(bc+1))    otherwise.

In this example all quantities are known. X and Y take values on 24 angles, Y uniform and P(x | y) proportional to (1 +
cos(x - y))^2, whose Fourier coefficients beyond the second vanish. l has the frequencies 0 to 2, so that its space has
five dimensions and holds all conditional means; k has all of them and is characteristic. The conditional mean operator
is then diagonal, E[cos(hx) | y] = rho_h cos(hy) with rho = (1, 2/3, 1/6), the population D is its inverse and has risk
zero, and the excess risk has the closed form tr[(I - DC) S (I - DC)'] with S the second moments of the features of y.
Because points lie on a grid, the counts describe a sample completely: N = 1e15 pairs cost no more than N = 100.

With l of finite dimension the covariance operator has finite rank: it decays faster than any n^(-b), which means that b
is infinite (the default), and the range assumption holds for every c and c' up to 2. At c = 2 the bound is attained:
the risk is epsilon squared times a constant. For smaller c the bound is not sharp in this example, and the slope is
steeper.

The thesis prints (c'+1)/(c-1) for the exponent of N in the remarks on the theorem, which is (c'+1)/(c'-1), and says
that a larger b undermines the optimal rate: bc/(bc+1) increases with b. What is smallest at the a where both cases
meet is N, not M. Coefficients of the range of T^((c-1)/2) decay with lambda^(-(c-1)), not lambda^(-(c+1)).
"""

from __future__ import annotations

import argparse
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from kpp.features import AbstractFeatureKernel

NUM_ANGLES = 24
RHO = (1.0, 2 / 3, 1 / 6)  # Fourier coefficients of P(x | y)
LARGEST = 1e15  # pairs; their number must be an integer in double precision


def main(arguments: list[str] | None = None) -> dict[str, pd.DataFrame]:
    """Print the risks and the slopes, draw them, and return the slopes."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="four sizes and two repeats, for a quick trial run")
    parser.add_argument("--speeds", type=float, nargs="+", default=(0.5, 1.0, 1.5, 2.0), help="values of a")
    parser.add_argument("--b", type=float, default=math.inf, help="decay of the spectrum")
    parser.add_argument("--c", type=float, default=2.0, help="smoothness in the second stage, in (1, 2]")
    parser.add_argument("--c-prime", type=float, default=2.0, help="smoothness in the first stage, in (1, 2]")
    parser.add_argument("--repeats", type=int, default=50, help="data sets of each size")
    parser.add_argument("--seed", type=int, default=0, help="seed of the data")
    parser.add_argument("--figure", help="file to draw the risks into")
    options = parser.parse_args(arguments)
    if not (1 < options.c <= 2 and 1 < options.c_prime <= 2 and options.b > 1):
        parser.error("c and c' must lie in (1, 2], b above 1")
    jax.config.update("jax_enable_x64", True)
    number, repeats = (4, 2) if options.quick else (8, options.repeats)
    problem, rng, lines = make_problem(), np.random.default_rng(options.seed), []
    for speed in options.speeds:
        schedule = Schedule(speed, options.b, options.c, options.c_prime)
        sizes = schedule.sizes(number)
        risks = np.array([mean_risk(rng, problem, schedule, size, repeats) for size in sizes])
        lines.append((schedule, sizes, risks))
        report(schedule, sizes, risks)
    if options.figure:
        draw(lines, options.figure)
    rows = [{"a": s.a, "slope": slope(sizes, risks), "theorem": s.rate} for s, sizes, risks in lines]
    return {"slopes": pd.DataFrame(rows)}


class Trigonometric(AbstractFeatureKernel):
    """The kernel sum_h w_h cos(h (x - x')) of angles (n, 1), by its features."""

    weights: jax.Array

    def feature_map(self, x: Any) -> jax.Array:
        frequencies = jnp.arange(self.weights.shape[0], dtype=x.dtype)
        angles = x * frequencies[None, :]
        scale = jnp.sqrt(self.weights)[None, :]
        return jnp.concatenate([scale * jnp.cos(angles), scale[:, 1:] * jnp.sin(angles[:, 1:])], axis=1)


class Problem(NamedTuple):
    """The population, which is known.

    Attributes:
        kernel: k.
        condition_kernel: l.
        features: The features of k at the angles, (24, r).
        condition_features: The features of l, (24, q).
        joint: P(y, x), (24, 24).
        operator: C, which takes the features of y to the mean features of x, (r, q).
        moments: S, the second moments of the features of y, (q, q).
    """

    kernel: Trigonometric
    condition_kernel: Trigonometric
    features: np.ndarray
    condition_features: np.ndarray
    joint: np.ndarray
    operator: np.ndarray
    moments: np.ndarray


class Schedule(NamedTuple):
    """The exponents of the theorem, with iota = 1."""

    a: float
    b: float
    c: float
    c_prime: float

    @property
    def inverse_b(self) -> float:
        return 1 / self.b

    @property
    def turning_point(self) -> float:
        """The a beyond which more pairs do not help, b(c+1)/(bc+1)."""
        return (self.c + 1) / (self.c + self.inverse_b)

    @property
    def rate(self) -> float:
        """The exponent of M in the bound, negative."""
        return -self.c * self.penalty_decay

    @property
    def penalty_decay(self) -> float:
        """How fast epsilon decreases with M."""
        return min(self.a / (self.c + 1), 1 / (self.c + self.inverse_b))

    @property
    def pairs_growth(self) -> float:
        """How fast N grows with M."""
        return self.a * (self.c_prime + 1) / (self.c_prime - 1)

    def pairs(self, size: float) -> int:
        """Return N."""
        return max(1, round(size**self.pairs_growth))

    def penalties(self, size: float) -> tuple[float, float]:
        """Return lambda and epsilon."""
        return self.pairs(size) ** (-1 / (self.c_prime + 1)), size**-self.penalty_decay

    def sizes(self, number: int) -> np.ndarray:
        """Return values of M from 30 on, over four decades at most, for which N is not too large."""
        top = min(30e4, LARGEST ** (1 / self.pairs_growth))
        return np.unique(np.geomspace(30, top, number).round())


def make_problem() -> Problem:
    """Build the population: weights of k such that it represents all frequencies of l equally well."""
    angles = 2 * np.pi * np.arange(NUM_ANGLES) / NUM_ANGLES
    given = (1 + np.cos(angles)) ** 2
    joint = np.array([np.roll(given / given.sum(), shift) for shift in range(NUM_ANGLES)]) / NUM_ANGLES
    further = 0.5 ** np.arange(len(RHO), NUM_ANGLES // 2 + 1)
    kernel = Trigonometric(jnp.asarray(3.0 * np.concatenate([1 / np.array(RHO) ** 2, further])))
    condition_kernel = Trigonometric(jnp.full(len(RHO), 10.0))
    x = jnp.asarray(angles)[:, None]
    features, conditions = (np.asarray(part.feature_map(x)) for part in (kernel, condition_kernel))
    moments = conditions.T @ conditions / NUM_ANGLES
    operator = np.linalg.solve(moments, conditions.T @ joint @ features).T
    return Problem(kernel, condition_kernel, features, conditions, joint, operator, moments)


def estimate(problem: Problem, pairs: np.ndarray, values: np.ndarray, first: float, second: float) -> np.ndarray:
    """Return the estimated deconditional operator, (q, r).

    Args:
        problem: The population, for its features.
        pairs: How often each pair (y, x) is in D1, (24, 24).
        values: How often each y is in D2, (24,).
        first: lambda.
        second: epsilon.
    """
    psi, phi = problem.condition_features, problem.features
    pairs, values = pairs / pairs.sum(), values / values.sum()
    regularized = psi.T @ (pairs.sum(axis=1)[:, None] * psi) + first * np.eye(psi.shape[1])
    operator = np.linalg.solve(regularized, psi.T @ pairs @ phi).T
    moments = psi.T @ (values[:, None] * psi)
    seen = operator @ moments @ operator.T + second * np.eye(phi.shape[1])
    return np.linalg.solve(seen, operator @ moments).T


def excess_risk(problem: Problem, deconditional: np.ndarray) -> float:
    """Return E |l(Y, .) - D E[k(X, .) | Y]|^2; it is zero for the best operator."""
    error = np.eye(problem.moments.shape[0]) - deconditional @ problem.operator
    return float(np.trace(error @ problem.moments @ error.T))


def mean_risk(rng: np.random.Generator, problem: Problem, schedule: Schedule, size: float, repeats: int) -> float:
    """Return the excess risk, the mean over data sets of one size."""
    risks = []
    for _ in range(repeats):
        pairs = rng.multinomial(schedule.pairs(size), problem.joint.ravel()).reshape(problem.joint.shape)
        values = rng.multinomial(int(size), np.full(NUM_ANGLES, 1 / NUM_ANGLES))
        risks.append(excess_risk(problem, estimate(problem, pairs, values, *schedule.penalties(size))))
    return float(np.mean(risks))


def slope(sizes: np.ndarray, risks: np.ndarray) -> float:
    """Return the slope of the risks on a log-log plot over the larger half of the sizes, by least squares."""
    half = len(sizes) // 2
    return float(np.polyfit(np.log(sizes[half:]), np.log(risks[half:]), 1)[0])


def report(schedule: Schedule, sizes: np.ndarray, risks: np.ndarray) -> None:
    """Print the risks for one a, then the slope and the exponent of the theorem."""
    side = "<=" if schedule.a <= schedule.turning_point else ">"
    print(f"a = {schedule.a:g} {side} {schedule.turning_point:g}, N = M^{schedule.pairs_growth:g}")
    print(f"{'M':>10} {'N':>10} {'lambda':>10} {'epsilon':>10} {'risk':>12}")
    for size, risk in zip(sizes, risks, strict=True):
        first, second = schedule.penalties(size)
        print(f"{size:>10.0f} {schedule.pairs(size):>10.2g} {first:>10.2g} {second:>10.2g} {risk:>12.4g}")
    print(f"slope over the larger half {slope(sizes, risks):.3f}, theorem {schedule.rate:.3f}\n", flush=True)


def draw(lines: list[tuple[Schedule, np.ndarray, np.ndarray]], path: str) -> None:
    """Draw the risks against M, with the theorem's slopes through the last of them."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4))
    for schedule, sizes, risks in lines:
        (line,) = axes.loglog(sizes, risks, "o-", label=f"a = {schedule.a:g}: slope {slope(sizes, risks):.2f}")
        bound = risks[-1] * (sizes / sizes[-1]) ** schedule.rate
        axes.loglog(sizes, bound, "--", color=line.get_color(), label=f"theorem: {schedule.rate:.2f}")
    axes.set(xlabel="M, values of y in the second stage", ylabel="excess risk of the deconditional operator")
    axes.legend(fontsize="small", ncols=2)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


if __name__ == "__main__":
    main()
