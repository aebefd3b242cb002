"""Intervals of the effect of a treatment from one table, by `kpp_models.causal_effect` with its defaults."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import pandas as pd

from examples.benchmarks.effect_simulations import SIMULATIONS as LAWS
from examples.benchmarks.effect_simulations import Simulation as Law
from examples.benchmarks.effect_simulations import logistic, mean_chance
from examples.coverage.simulations import Intervals, Simulation, ninety_percent
from kpp.causal import CPDAG, CausalDAG
from kpp.gp import BinomialLikelihood, OrdinalLikelihood
from kpp_models import causal_effect, mediation, rank_weighted_effect

jax.config.update("jax_enable_x64", True)

TITLE = "Effects of a treatment, by adjustment"
ROWS, TRIALS, MANY = 100, 5, 5000
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(64)
LOW_OR_HIGH = LAWS["linear, two levels"]


def three_drugs(rng: np.random.Generator, num_rows: int) -> pd.DataFrame:
    """Return three drugs whose log-odds are 0, z and -z, with the effects 0, 1 and 2 + z / 2, and noise of 0.5."""
    z = rng.normal(size=num_rows)
    drug = np.argmax(np.outer([0.0, 1.0, -1.0], z) + rng.gumbel(size=(3, num_rows)), axis=0)
    y = np.choose(drug, [0 * z, 1 + 0 * z, 2 + z / 2]) + z + 0.5 * rng.normal(size=num_rows)
    return pd.DataFrame({"z": z, "t": np.array(["a", "b", "c"])[drug], "y": y})


def latent(rng: np.random.Generator, num_rows: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Return a treatment of two levels with log-odds z, and 1.5 (t - 0.5) + z."""
    z = rng.normal(size=num_rows)
    t = (rng.uniform(size=num_rows) < logistic(z)).astype(float)
    return pd.DataFrame({"z": z, "t": t}), 1.5 * (t - 0.5) + z


def three_levels(rng: np.random.Generator, num_rows: int) -> pd.DataFrame:
    """Return levels 0, 1 and 2 with the cutpoints -1 and 1 of a logistic variable around the latent value."""
    table, values = latent(rng, num_rows)
    return table.assign(y=np.digitize(values + rng.logistic(size=num_rows), [-1.0, 1.0]).astype(float))


def successes(rng: np.random.Generator, num_rows: int) -> pd.DataFrame:
    """Return how many of five trials succeed."""
    table, values = latent(rng, num_rows)
    return table.assign(y=rng.binomial(TRIALS, logistic(values)).astype(float))


BY_DRUG = Law(
    "three drugs with log-odds 0, z and -z, and the effects 0, 1 and 2 + z / 2 on top of z, with noise of 0.5.",
    three_drugs,
    ("c", "b"),
    1.0,
)
ON_LEVELS = Law(
    "a treatment of two levels with log-odds z, and three levels with cutpoints -1 and 1 of the latent value "
    "1.5 (t - 0.5) + z.",
    three_levels,
    (1.0, 0.0),
    # The mean level is the sum of the chances to lie above a cutpoint.
    sum(mean_chance(0.75 - cut) - mean_chance(-0.75 - cut) for cut in (-1.0, 1.0)),
    likelihood=OrdinalLikelihood(first_cutpoint=-1.0, gaps=[2.0]),
)
ON_SHARES = Law(
    "a treatment of two levels with log-odds z, and successes in five trials with log-odds 1.5 (t - 0.5) + z.",
    successes,
    (1.0, 0.0),
    mean_chance(0.75) - mean_chance(-0.75),
    likelihood=BinomialLikelihood(exposure=float(TRIALS)),
)


def estimate(table: pd.DataFrame, seed: int, law: Law, **options: Any) -> Any:
    """Estimate the effect of the law's levels."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return causal_effect(
            jax.random.key(seed),
            table,
            law.graph,
            treatment="t",
            outcome="y",
            at=sorted(law.levels),
            likelihood=law.likelihood,
            **options,
        )


def measure_effect(seed: int, law: Law) -> Mapping[str, Intervals]:
    """Return the intervals of the effect and of the average derivative, if there is one."""
    table = law.table(np.random.default_rng(seed), ROWS)
    effect = estimate(table, seed, law, derivative=law.derivative is not None)
    found = {"effect": ninety_percent(law.truth, effect.contrast(*law.levels).to_numpy().ravel())}
    if law.derivative is not None:
        found["average derivative"] = ninety_percent(law.derivative, effect.average_derivative.to_numpy().ravel())
    return found


def measure_subgroups(seed: int) -> dict[str, Intervals]:
    """Return the intervals of the effect 2 + z / 2 in subgroups of the population, and on the rows themselves."""
    law = LOW_OR_HIGH
    table = law.table(np.random.default_rng(seed), ROWS)
    z, treated = table["z"].to_numpy(), table["t"].to_numpy() == 1
    chances = WEIGHTS * logistic(NODES)
    asked: dict[str, tuple[float, dict[str, Any]]] = {
        "on the treated": (2 + chances @ NODES / chances.sum() / 2, {"rows": treated}),
        "where z > 0": (2 + np.sqrt(2 / np.pi) / 2, {"rows": z > 0}),
        "on these rows, without bootstrap": (2 + z.mean() / 2, {"bootstrap": False}),
    }
    return {
        name: ninety_percent(truth, estimate(table, seed, law, **options).contrast(*law.levels).to_numpy().ravel())
        for name, (truth, options) in asked.items()
    }


def measure_untreated(seed: int) -> dict[str, Intervals]:
    """Return the interval of the effect 2 + z / 2 on the untreated."""
    table = LOW_OR_HIGH.table(np.random.default_rng(seed), ROWS)
    chances = WEIGHTS * logistic(-NODES)
    contrast = estimate(table, seed, LOW_OR_HIGH, rows="untreated").contrast(*LOW_OR_HIGH.levels)
    return {"on the untreated": ninety_percent(2 + chances @ NODES / chances.sum() / 2, contrast.to_numpy().ravel())}


def measure_by_graph(seed: int) -> dict[str, Intervals]:
    """Return the interval of the mixture over a class of two graphs; a coin decides which one made the table."""
    rng = np.random.default_rng(seed)
    z_is_cause = rng.uniform() < 0.5
    z, *noise = rng.normal(size=(3, ROWS))
    t = 0.6 * z + 0.8 * noise[0]  # of unit variance, so that t -> z has this law, too
    table = pd.DataFrame({"z": z, "t": t, "y": t + z + 0.5 * noise[1]})
    graphs = CPDAG([("t", "y"), ("z", "y")], [("z", "t")])
    with warnings.catch_warnings(action="ignore"):
        found = causal_effect(jax.random.key(seed), table, graphs, treatment="t", outcome="y", at=[-0.5, 0.5])
    low, high = found.table(0.5, -0.5).loc["all", ["5 %", "95 %"]]
    return {"mixture over the graphs": Intervals(1.0 if z_is_cause else 1.6, low, high)}


def measure_doubly_robust(seed: int, law: Law) -> dict[str, Intervals]:
    """Return the interval of the effect with the doubly robust correction, on data that it was not chosen on."""
    table = law.table(np.random.default_rng([1, seed]), ROWS)
    effect = estimate(table, seed, law, doubly_robust=True)
    return {"effect, doubly_robust=True": ninety_percent(law.truth, effect.contrast(*law.levels).to_numpy().ravel())}


def measure_many_rows(seed: int) -> dict[str, Intervals]:
    """Return the interval of the effect with more rows than are exact, by inducing points."""
    law = LAWS["nonlinear, two levels"]
    effect = estimate(law.table(np.random.default_rng(seed), MANY), seed, law)
    return {"effect": ninety_percent(law.truth, effect.contrast(*law.levels).to_numpy().ravel())}


def measure_policies(seed: int) -> dict[str, Intervals]:
    """Return the intervals of policies against the observed treatments; E sin(T + c) is sin(c) exp(-1.49 / 2)."""
    rng = np.random.default_rng(seed)
    z, *noise = rng.normal(size=(3, ROWS))
    t = 0.7 * z + noise[0]
    doses = pd.DataFrame({"z": z, "t": t, "y": np.sin(t) + t * z / 2 + 0.5 * noise[1]})
    levels = LOW_OR_HIGH.table(rng, ROWS)
    chances = WEIGHTS * logistic(NODES) / WEIGHTS.sum()
    observed = 2 * chances.sum() + chances @ NODES / 2  # of the part with the treatment
    names: dict[str, Any] = {"graph": LOW_OR_HIGH.graph, "treatment": "t", "outcome": "y"}
    with warnings.catch_warnings(action="ignore"):
        of_doses = causal_effect(
            jax.random.key(seed), doses, **names, shift=-0.5, policies={"half": lambda rows: rows["t"] / 2}
        )
        of_levels = causal_effect(
            jax.random.key(seed),
            levels,
            **names,
            policies={"z > 0": lambda rows: (rows["z"] > 0).astype(float), "by chance": {1.0: 0.3, 0.0: 0.7}},
        )
    asked = {
        "a dose shifted by -0.5": (of_doses, "shift", -np.sin(0.5) * np.exp(-0.745)),
        "half of the dose": (of_doses, "half", -0.175),  # E T Z is 0.7
        "treat where z > 0": (of_levels, "z > 0", 1 + 0.5 / np.sqrt(2 * np.pi) - observed),
        "treat three of ten by chance": (of_levels, "by chance", 0.6 - observed),
    }
    return {
        name: ninety_percent(truth, effect.contrast(policy, "observed").to_numpy().ravel())
        for name, (effect, policy, truth) in asked.items()
    }


def measure_rows(seed: int) -> dict[str, Intervals]:
    """Return the intervals of the effects 2 + z / 2 in five rows, and of the gain by the scores z and noise.

    The AUTOC of z is half the mean over q of the mean of a standard normal above its quantile 1 - q.
    """
    rng = np.random.default_rng(seed)
    table = LOW_OR_HIGH.table(rng, ROWS)
    contrast = estimate(table, seed, LOW_OR_HIGH, by_row=True).contrast(*LOW_OR_HIGH.levels, by_row=True)
    z = table["z"].to_numpy()
    scores = {"AUTOC of z": (0.45186, z), "AUTOC of a score of noise": (0.0, rng.normal(size=ROWS))}
    gains = {
        name: ninety_percent(
            truth, rank_weighted_effect(jax.random.key(seed), contrast, score)["autoc"].to_numpy().ravel()
        )
        for name, (truth, score) in scores.items()
    }
    return gains | {"effects in five rows": ninety_percent(2 + z[:5] / 2, contrast.to_numpy().reshape(-1, ROWS)[:, :5])}


def measure_two_treatments(seed: int) -> dict[str, Intervals]:
    """Return the interval of setting two treatments, of which the second depends on the first."""
    rng = np.random.default_rng(seed)
    z, *noise = rng.normal(size=(3, ROWS))
    t = (rng.uniform(size=ROWS) < logistic(z)).astype(float)
    s = 0.5 * z + t / 2 + noise[0]
    table = pd.DataFrame({"z": z, "t": t, "s": s, "y": t + np.sin(s) + t * s / 2 + z + 0.5 * noise[1]})
    graph = CausalDAG([("z", "t"), ("z", "s"), ("t", "s"), *((cause, "y") for cause in "zts")])
    settings = [(1.0, 1.0), (0.0, 0.0)]
    with warnings.catch_warnings(action="ignore"):
        effect = causal_effect(jax.random.key(seed), table, graph, treatment=("t", "s"), outcome="y", at=settings)
    draws = effect.contrast(*settings).to_numpy().ravel()
    return {"both at 1 instead of 0": ninety_percent(1.5 + np.sin(1.0), draws)}


def measure_mediation(seed: int) -> dict[str, Intervals]:
    """Return the intervals of the parts of an effect through a mediator, which acts more under the treatment."""
    rng = np.random.default_rng(seed)
    z, *noise = rng.normal(size=(3, ROWS))
    t = (rng.uniform(size=ROWS) < logistic(z)).astype(float)
    m = z / 2 + 0.8 * t + 0.6 * noise[0]
    table = pd.DataFrame({"z": z, "t": t, "m": m, "y": 0.4 * t + m * (1 + t / 2) - 0.3 * z + 0.5 * noise[1]})
    graph = CausalDAG([("z", "t"), ("z", "m"), ("t", "m"), *((cause, "y") for cause in "ztm")])
    with warnings.catch_warnings(action="ignore"):
        found = mediation(
            jax.random.key(seed), table, graph, treatment="t", mediators="m", outcome="y", controlled={"m": 0.0}
        ).dataset
    truth = {"natural_direct": 0.4, "natural_indirect": 0.8, "total_indirect": 1.2, "controlled_direct": 0.4}
    return {f"`{name}`": ninety_percent(value, found[name].to_numpy().ravel()) for name, value in truth.items()}


GROWING = (
    "the effect is largest where few rows have one of the levels. There the estimate tends to the effect that all rows "
    "share, and the interval is too narrow. Look at the effect in subgroups and at their `effective_rows`."
)
WIDE = "these intervals are wider than needed; the cause was not looked for."
COLLINEAR = (
    "the prior also allows effects that are not linear, so the intervals are wider than those of least squares, which "
    "takes the effect to be linear; the error is as small."
)
ABOUT = {
    "effect_linear": ("two levels, linear", LAWS["linear, two levels"], ""),
    "effect_nonlinear": ("two levels, nonlinear", LAWS["nonlinear, two levels"], ""),
    "effect_growing": ("two levels, growing", LAWS["growing, two levels"], GROWING),
    "effect_few_treated": ("two levels, few treated", LAWS["few treated"], WIDE),
    "effect_category": ("two of three categories", BY_DRUG, ""),
    "effect_dose_linear": ("a dose, linear", LAWS["linear, number"], WIDE),
    "effect_dose_nonlinear": ("a dose, nonlinear", LAWS["nonlinear, number"], ""),
    "effect_dose_collinear": ("a dose among collinear covariates", LAWS["collinear, number"], COLLINEAR),
    "effect_labels": ("on the probability of a label", LAWS["labels, two levels"], ""),
    "effect_counts": ("of a dose on a rate", LAWS["counts, number"], WIDE),
    "effect_levels": ("on a mean level", ON_LEVELS, ""),
    "effect_shares": ("on a share", ON_SHARES, ""),
}
SIMULATIONS = {
    # Joint draws of latent values at all rows cost most.
    name: Simulation(
        about, law.law, ROWS, functools.partial(measure_effect, law=law), 80 if law.likelihood else 200, known=known
    )
    for name, (about, law, known) in ABOUT.items()
}
SIMULATIONS |= {
    f"{name}_doubly_robust": Simulation(
        about,
        law.law,
        ROWS,
        functools.partial(measure_doubly_robust, law=law),
        data_sets=100,
        known="" if name == "effect_growing" else "the correction is not needed here, and its intervals are wide.",
    )
    for name, (about, law, _) in ABOUT.items()
    if name in ("effect_linear", "effect_nonlinear", "effect_growing", "effect_few_treated")
}
SIMULATIONS["mediation"] = Simulation(
    "`kpp_models.mediation`",
    "a treatment t with log-odds z, a mediator m = z / 2 + 0.8 t with noise of 0.6, and an outcome 0.4 t + m + t m / 2 "
    "- 0.3 z with noise of 0.5.",
    ROWS,
    measure_mediation,
    data_sets=100,
)
SIMULATIONS["effect_by_graph"] = Simulation(
    "a dose, under a CPDAG of two graphs",
    "z and t are normal with the correlation 0.6, y is t + z with noise of 0.5, and z causes t or t causes z, each "
    "with probability 1 / 2.",
    ROWS,
    measure_by_graph,
    data_sets=100,
)
SIMULATIONS["effect_subgroups"] = Simulation("two levels", LOW_OR_HIGH.law, ROWS, measure_subgroups, data_sets=100)
SIMULATIONS["effect_untreated"] = Simulation("two levels", LOW_OR_HIGH.law, ROWS, measure_untreated, data_sets=100)
SIMULATIONS["effect_policies"] = Simulation(
    "policies against the observed treatments",
    "z is standard normal. A dose 0.7 z + N(0, 1), and sin t + t z / 2 with noise of 0.5; and " + LOW_OR_HIGH.law,
    ROWS,
    measure_policies,
    data_sets=50,
    known="the interval of a small shift is too wide. Those of the other policies are not; compare the widths.",
)
SIMULATIONS["effect_two_treatments"] = Simulation(
    "two treatments at once",
    "t has two levels with log-odds z, s is (z + t) / 2 + N(0, 1), and y is t + sin s + t s / 2 + z with noise of 0.5.",
    ROWS,
    measure_two_treatments,
    data_sets=50,
)
SIMULATIONS["effect_rows"] = Simulation("two levels", LOW_OR_HIGH.law, ROWS, measure_rows, data_sets=100)
SIMULATIONS["effect_many_rows"] = Simulation(
    "two levels, nonlinear, by inducing points",
    LAWS["nonlinear, two levels"].law,
    MANY,
    measure_many_rows,
    data_sets=40,
)
