"""Intervals of effects without an adjustment set: identified expressions, instruments, proxies, structural models."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import numpyro.distributions as dist
import pandas as pd
from scipy.stats import norm

import kpp
from examples.coverage.simulations import Intervals, Simulation, ninety_percent
from kpp.causal import CausalDAG
from kpp.gp import GaussianLikelihood
from kpp.kernels import RBF
from kpp_models import GPMechanism, StructuralModel, causal_effect, instrumental_regression, proximal_regression

jax.config.update("jax_enable_x64", True)

TITLE = "Effects without an adjustment set"
LEVELS = norm.ppf([0.1, 0.3, 0.5, 0.7, 0.9])


class Law(NamedTuple):
    """A causal model with the mean outcome under interventions on x.

    Args:
        graph: Its graph.
        draw: From normal numbers, (k, n), to the columns.
        at: The values to which x is set.
        truth: The mean outcome at these values.
    """

    graph: CausalDAG
    draw: Callable[[np.ndarray], dict[str, np.ndarray]]
    at: np.ndarray
    truth: np.ndarray


def linear(x: Any) -> Any:
    return 0.9 * x


def bent(x: Any) -> Any:
    return 1.2 * np.sin(1.5 * x)


def front_door(bend: Callable[[Any], Any]) -> Law:
    """Return a front door m whose covariate z is a cause of all its variables."""

    def draw(normal: np.ndarray) -> dict[str, np.ndarray]:
        hidden, z, *noise = normal
        x = 0.6 * hidden + 0.6 * z + 0.6 * noise[0]
        m = bend(x) + 0.5 * z + 0.5 * noise[1]
        return {"z": z, "x": x, "m": m, "y": m + 0.5 * z + 0.8 * hidden + 0.4 * noise[2]}

    edges = [("x", "m"), ("m", "y"), ("z", "x"), ("z", "m"), ("z", "y")]
    at = 0.6 * 3**0.5 * LEVELS
    return Law(CausalDAG(edges, bidirected=[("x", "y")]), draw, at, bend(at))


def labels() -> Law:
    """Return a front door m with a treatment of two levels and an outcome of labels."""

    def draw(normal: np.ndarray) -> dict[str, np.ndarray]:
        hidden, *noise = normal
        x = hidden + noise[0] > 0
        m = 1.0 * x + 0.7 * noise[1]
        return {"x": x, "m": m, "y": m + 0.8 * hidden + 0.4 * noise[2] > 0.5}

    graph = CausalDAG([("x", "m"), ("m", "y")], bidirected=[("x", "y")])
    spread = np.sqrt(0.7**2 + 0.8**2 + 0.4**2)
    return Law(graph, draw, np.array([0.0, 1.0]), norm.cdf(np.array([-0.5, 0.5]) / spread))


def napkin(bend: Callable[[Any], Any]) -> Law:
    """Return the napkin: w has hidden causes in common with x and with y."""

    def draw(normal: np.ndarray) -> dict[str, np.ndarray]:
        hidden_x, hidden_y, *noise = normal
        w = 0.7 * hidden_x + 0.7 * hidden_y + 0.4 * noise[0]
        r = 0.7 * w + 0.7 * noise[1]
        x = 0.7 * r + 0.6 * hidden_x + 0.5 * noise[2]
        return {"w": w, "r": r, "x": x, "y": bend(x) + 0.8 * hidden_y + 0.4 * noise[3]}

    at = 1.24 * LEVELS
    return Law(CausalDAG([("w", "r"), ("r", "x"), ("x", "y")], bidirected=[("w", "x"), ("w", "y")]), draw, at, bend(at))


def chain() -> Law:
    """Return a chain x -> a -> b -> y with hidden causes of x and b, and of a and y."""

    def draw(normal: np.ndarray) -> dict[str, np.ndarray]:
        first, second, *noise = normal
        x = 0.8 * first + 0.6 * noise[0]
        a = x + 0.5 * second + 0.5 * noise[1]
        b = a + 0.6 * first + 0.4 * noise[2]
        return {"x": x, "a": a, "b": b, "y": b + 0.8 * second + 0.4 * noise[3]}

    graph = CausalDAG([("x", "a"), ("a", "b"), ("b", "y")], bidirected=[("x", "b"), ("a", "y")])
    return Law(graph, draw, LEVELS, LEVELS)


def measure_expression(seed: int, law: Law, rows: int) -> dict[str, Intervals]:
    """Estimate the effect of x on y from a table."""
    table = pd.DataFrame(law.draw(np.random.default_rng(seed).normal(size=(6, rows))))
    found = causal_effect(
        jax.random.key(seed), table, law.graph, treatment="x", outcome="y", at=[value.item() for value in law.at]
    )
    draws = found.draws.to_numpy()[0]
    contrast = found.contrast(law.at[-1].item(), law.at[0].item()).to_numpy().ravel()
    return {
        "mean outcome": ninety_percent(law.truth, draws),
        "contrast of the outermost values": ninety_percent(law.truth[-1] - law.truth[0], contrast),
    }


class InstrumentLaw(NamedTuple):
    """Treatments, outcome and instruments of a simulation, and its effect at values of the treatments."""

    x: np.ndarray
    y: np.ndarray
    instruments: np.ndarray
    at: np.ndarray
    truth: np.ndarray


def two_treatments(rng: np.random.Generator, rows: int, frequency: float = 1.0) -> InstrumentLaw:
    """Return a data set of two treatments, three instruments, and a hidden cause of each treatment and the outcome."""
    z, hidden = rng.uniform(-2, 2, size=(rows, 3)), rng.normal(size=(rows, 2))
    x = np.stack([z[:, 0] + 0.5 * z[:, 2], z[:, 1] - 0.5 * z[:, 2]], axis=1) + 0.7 * hidden

    def effect(x: np.ndarray) -> np.ndarray:
        return np.sin(frequency * x[:, 0]) + x[:, 0] * x[:, 1] / 2

    y = effect(x) + hidden.sum(axis=1) + 0.3 * rng.normal(size=rows)
    at = middle(rng, x)
    return InstrumentLaw(x, y, z, at, effect(at))


def sigmoid(rng: np.random.Generator, rows: int) -> InstrumentLaw:
    """Return a data set of Chen and Christensen (2018), section 5, as Singh et al. (2019) use it."""
    noise, hidden = rng.multivariate_normal([0, 0], [[1, 0.5], [0.5, 1]], rows).T
    source = rng.normal(size=rows)
    x, z = norm.cdf((source + hidden) / 2**0.5), norm.cdf(source)

    def effect(x: np.ndarray) -> np.ndarray:
        return np.log(np.abs(16 * x - 8) + 1) * np.sign(x - 0.5)

    at = middle(rng, x[:, None])
    return InstrumentLaw(x[:, None], effect(x) + noise, z[:, None], at, effect(at[:, 0]))


def middle(rng: np.random.Generator, x: np.ndarray, num: int = 20) -> np.ndarray:
    """Return some rows of the treatments whose values are all in the middle 90 %."""
    low, high = np.quantile(x, [0.05, 0.95], axis=0)
    inside = x[((x >= low) & (x <= high)).all(axis=1)]
    return inside[rng.choice(len(inside), num, replace=False)]


INSTRUMENT_ROWS = 300


def measure_instruments(seed: int, law: Callable[..., InstrumentLaw]) -> dict[str, Intervals]:
    """Estimate an effect by instruments."""
    data = law(np.random.default_rng([seed, INSTRUMENT_ROWS]), INSTRUMENT_ROWS)
    found = instrumental_regression(data.x, data.y, data.instruments).effect(data.at)
    half = norm.ppf(0.95) * np.sqrt(np.maximum(np.diag(found.covariance), 0))
    return {"mean outcome": Intervals(data.truth, found.mean - half, found.mean + half)}


PROXY_ROWS = 200


def noisy_proxies(rng: np.random.Generator, effect: Callable[[Any], Any]) -> tuple[pd.DataFrame, np.ndarray, Any]:
    """Return a table with two noisy copies of a hidden cause, values of the treatment, and the effect there."""
    hidden, *noise = rng.normal(size=(5, PROXY_ROWS))
    x = 0.7 * hidden + 0.7 * noise[0]
    y = effect(x) + hidden + 0.3 * noise[1]
    table = {"u": hidden, "x": x, "y": y, "z": hidden + 0.7 * noise[2], "w": hidden + 0.7 * noise[3]}
    return pd.DataFrame(table), LEVELS, effect(LEVELS)


def mastouri(rng: np.random.Generator) -> tuple[pd.DataFrame, np.ndarray, Any]:
    """Return the simulation of Mastouri et al. (2021), whose mean outcome is an average of cosines."""

    def hidden_causes(size: int) -> tuple[np.ndarray, np.ndarray]:
        second = rng.uniform(-1, 2, size)
        return rng.uniform(0, 1, size) - ((second > 0) & (second < 1)), second

    def outcome(x: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return second * np.cos(2 * (x + 0.3 * first + 0.2))

    first, second = hidden_causes(PROXY_ROWS)
    normal, uniform = rng.normal(size=(3, PROXY_ROWS)), rng.uniform(-1, 1, size=(2, PROXY_ROWS))
    x = second + 0.05**0.5 * normal[0]
    table = {"x": x, "y": outcome(x, first, second), "w1": first + uniform[0], "w2": second + 3**0.5 * normal[1]}
    table |= {"u1": first, "u2": second, "z1": first + 3**0.5 * normal[2], "z2": second + uniform[1]}
    at = np.quantile(x, [0.1, 0.3, 0.5, 0.7, 0.9])
    truth = outcome(at[:, None], *hidden_causes(100_000)).mean(axis=1)
    return pd.DataFrame(table), at, truth


def measure_proxies(seed: int, law: Callable[..., tuple[pd.DataFrame, np.ndarray, Any]]) -> dict[str, Intervals]:
    """Estimate an effect by proxies."""
    table, at, truth = law(np.random.default_rng(seed))
    w, z = ([name for name in table if name.startswith(letter)] for letter in "wz")
    found = proximal_regression(table, treatment="x", outcome="y", treatment_proxies=z, outcome_proxies=w)
    effect = found.effect(at[:, None])
    half = norm.ppf(0.95) * np.sqrt(np.maximum(np.diag(effect.covariance), 0))
    return {"mean outcome": Intervals(truth, effect.mean - half, effect.mean + half)}


STRUCTURAL_ROWS = 40
CONFOUNDED = StructuralModel(CausalDAG([("x", "m"), ("m", "y")], bidirected=[("x", "y")]))
SMOOTH = StructuralModel(
    CausalDAG([("age", "dose"), ("age", "response"), ("dose", "response")]),
    {
        "response": GPMechanism(
            RBF(dist.LogNormal(0.0, 0.5).expand([2]), variance=dist.LogNormal(0.0, 0.5)),
            GaussianLikelihood(noise_variance=dist.LogNormal(-2.0, 1.0)),
        )
    },
)
NUTS = kpp.NUTS(num_warmup=150, num_samples=200, num_chains=1, progress=False)


def measure_confounded(seed: int) -> dict[str, Intervals]:
    """Infer linear mechanisms and a hidden common cause, and draw the effect of x on y."""
    hidden, *noise = np.random.default_rng(seed).normal(size=(4, STRUCTURAL_ROWS))
    x = 0.7 * hidden + 0.7 * noise[0]
    m = 0.9 * x + 0.5 * noise[1]
    table = {"x": x, "m": m, "y": 0.8 * m + 0.6 * hidden + 0.4 * noise[2]}
    return {"effect": structural_effect(seed, CONFOUNDED, table, ("x", "y"), 2000, {}, 0.9 * 0.8 * 1.5)}


def measure_smooth(seed: int) -> dict[str, Intervals]:
    """Infer a Gaussian process of a response that is linear in the age and quadratic in the dose."""
    age, *noise = np.random.default_rng(seed).normal(size=(3, STRUCTURAL_ROWS))
    dose = 0.7 * age + 0.7 * noise[0]
    table = {"age": age, "dose": dose, "response": dose**2 - age + 0.3 * noise[1]}
    fixed = {"age": np.tile(age, 2)}
    return {"effect": structural_effect(seed, SMOOTH, table, ("dose", "response"), STRUCTURAL_ROWS, fixed, 1.5**2)}


def structural_effect(
    seed: int,
    model: StructuralModel,
    table: dict[str, np.ndarray],
    names: tuple[str, str],
    rows: int,
    fixed: dict[str, np.ndarray],
    truth: float,
) -> Intervals:
    """Return the interval of the effect of the treatment 1.5 against 0, from rows drawn under both."""
    posterior = NUTS.run(jax.random.key(seed), model, {"table": table}).samples
    do = fixed | {names[0]: np.repeat([0.0, 1.5], rows)}
    drawn = model.draw(jax.random.key(seed), posterior, table, num_rows=2 * rows, do=do)
    means = drawn[names[1]].to_numpy().reshape(-1, 2, rows).mean(axis=2)
    return ninety_percent(truth, means[:, 1] - means[:, 0])


CHAIN = StructuralModel(CausalDAG([("x", "m"), ("x", "y"), ("m", "y")]))


def measure_change(seed: int) -> dict[str, Intervals]:
    """Infer linear mechanisms of two periods, in which x moves by 0.8 and the effect of m on y grows by 0.5."""
    rng = np.random.default_rng(seed)
    periods = []
    for number, (location, slope) in enumerate([(0.5, 0.6), (1.3, 1.1)]):
        normal = rng.normal(size=(3, STRUCTURAL_ROWS))
        x = location + 0.7 * normal[0]
        m = 0.8 * x + 0.5 * normal[1]
        table = {"x": x, "m": m, "y": slope * m - 0.3 * x + 0.4 * normal[2]}
        posterior = NUTS.run(jax.random.key(2 * seed + number), CHAIN, {"table": table}).samples
        periods.append((posterior, table))
    found = CHAIN.attribute_change(jax.random.key(seed), *periods, outcome="y", num_rows=2000).values
    # The mean is (0.8 slope - 0.3) times the location: each of the two moves at the mean of the other.
    truth = {"x": 0.8 * (0.8 * 0.85 - 0.3), "m": 0.0, "y": 0.8 * 0.5 * 0.9}
    return {
        f"part of {name}": ninety_percent(part, found.sel(feature=name).to_numpy().ravel())
        for name, part in truth.items()
    }


FRACTION = (
    "the expression is a fraction. The correction of its bias makes intervals of a mean outcome a little too wide."
)
FEW = "too few data sets have been measured to tell."
LABELS = "intervals of the difference of two probabilities are a little too wide with 100 rows."
EXPRESSIONS = {
    "front_door": ("a front door with a covariate, linear", front_door(linear), (100, 300)),
    "front_door_bent": ("a front door with a covariate, whose treatment acts by a sine", front_door(bent), (100,)),
    "front_door_labels": ("a front door of a treatment of two levels and an outcome of labels", labels(), (100,)),
    "napkin": ("the napkin, linear", napkin(linear), (100,)),
    "napkin_bent": ("the napkin, whose treatment acts by a sine", napkin(bent), (100,)),
    "two_mediators": ("a chain of two mediators with two hidden causes, linear", chain(), (100,)),
}
WIDE = (
    "the prior variance of the effect may be up to ten times the variance of the outcome. With this bound intervals "
    "are a little too wide; with a bound of one time they are too narrow."
)
INSTRUMENTS = {
    "two_treatments": (two_treatments, "two treatments, three instruments and a smooth effect", WIDE),
    "sigmoid": (sigmoid, "the design of Chen and Christensen (2018)", WIDE),
    "fast": (
        functools.partial(two_treatments, frequency=2.0),
        "two treatments, three instruments, and an effect that oscillates faster than the noise of the treatments",
        "so fast an effect cannot be learned from so few rows, and the default kernel is too smooth for it.",
    ),
}
NO_OVERLAP = (
    "a hidden cause nearly determines the treatment, so that the table cannot separate their effects, and the prior "
    "takes the place of the data. The treatment must vary where the hidden causes are the same."
)
PROXIES = {
    "linear": (
        "a linear effect, and two noisy copies of the hidden cause",
        functools.partial(noisy_proxies, effect=linear),
        "",
    ),
    "bent": (
        "an effect that is a sine, and two noisy copies of the hidden cause",
        functools.partial(noisy_proxies, effect=bent),
        "",
    ),
    "mastouri": ("the simulation of Mastouri et al. (2021)", mastouri, NO_OVERLAP),
}
SIMULATIONS = {
    f"effect_{name}_{rows}": Simulation(
        f"`kpp_models.causal_effect`, {law}",
        f"{law}; the mean outcome at set values of the treatment.",
        rows,
        functools.partial(measure_expression, law=found, rows=rows),
        known=FRACTION if "napkin" in name else LABELS if "labels" in name else "",
    )
    for name, (law, found, sizes) in EXPRESSIONS.items()
    for rows in sizes
}
SIMULATIONS |= {
    f"instruments_{name}": Simulation(
        f"`kpp_models.instrumental_regression`, {words}",
        f"{words}; the mean outcome at 20 values of the treatments in their middle 90 %.",
        INSTRUMENT_ROWS,
        functools.partial(measure_instruments, law=law),
        known=known,
    )
    for name, (law, words, known) in INSTRUMENTS.items()
}
SIMULATIONS |= {
    f"proximal_{name}": Simulation(
        f"`kpp_models.proximal_regression`, {words}",
        f"{words}; the mean outcome at five values of the treatment.",
        PROXY_ROWS,
        functools.partial(measure_proxies, law=law),
        known=known,
        data_sets=100,
    )
    for name, (words, law, known) in PROXIES.items()
}
SIMULATIONS |= {
    "change_linear": Simulation(
        "`StructuralModel.attribute_change` by `kpp.NUTS`",
        "two tables of three linear mechanisms, x to m and both to y; the part of each in the change of the mean of y.",
        STRUCTURAL_ROWS,
        measure_change,
        data_sets=100,
    ),
    "structural_linear": Simulation(
        "`StructuralModel.draw` by `kpp.NUTS`",
        "a linear front door; the effect of the treatment 1.5 against 0 in new rows.",
        STRUCTURAL_ROWS,
        measure_confounded,
        known=FEW,
    ),
    "structural_gaussian_process": Simulation(
        "`StructuralModel.draw` by `kpp.NUTS`",
        "a response that is quadratic in the dose, with a confounder; the effect of the dose 1.5 against 0 in rows "
        "with the confounders of the table.",
        STRUCTURAL_ROWS,
        measure_smooth,
        known="doses near 1.5 are rare, and the prior pulls the parabola to its mean there.",
    ),
}
