"""The search: query the point of largest expected improvement, learn, and stop when no improvement is expected."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy.typing import ArrayLike

from kpp.data.tables import read_points
from kpp.foundation.validation import at_least, count, one_of
from kpp.typing import RngKey
from kpp_optimization.belief import Belief, MixtureBelief
from kpp_optimization.objective_priors import AbstractObjectivePrior

_LOGGER = logging.getLogger("kpp")
_FEW = 2.0  # effective draws of hyperparameters, below which the search says so

RESERVED = frozenset(
    "query candidate value mean standard_deviation expected_improvement cost total_cost incumbent "
    "effective_draws".split()
)


@dataclasses.dataclass(frozen=True)
class Search:
    """The result of a search.

    Attributes:
        queries: One row per query: ``query`` (from 1), ``candidate`` (its row), the coordinates by name, ``value``,
            ``mean``, ``standard_deviation`` and ``expected_improvement`` before the query, ``cost``, ``total_cost``,
            and after the query ``incumbent``, the best candidate, and ``effective_draws``, the effective number of
            draws of hyperparameters (1 if they have one value).
        candidates: The candidates, (p, d).
        belief: The belief at the candidates at the end.
        direction: "minimize" or "maximize".
        stopped: Why it ended: "queries", "budget", "improvement" (the expected improvement is too small) or
            "candidates" (all are known).
    """

    queries: pd.DataFrame
    candidates: Float[np.ndarray, "p d"]
    belief: Belief | MixtureBelief
    direction: str
    stopped: str

    @property
    def best(self) -> Float[np.ndarray, " d"]:
        """The queried point that is best: by its value, or by its posterior mean if queries are noisy."""
        return self.candidates[self.queries["incumbent"].iloc[-1]]

    @property
    def best_value(self) -> float:
        """The posterior mean at `best`, which is its value if queries have no noise."""
        return float(self.belief.mean[self.queries["incumbent"].iloc[-1]])


def optimize(
    rng_key: RngKey,
    objective: Callable[[Float[np.ndarray, " d"]], Any],
    candidates: ArrayLike,
    prior: AbstractObjectivePrior,
    *,
    direction: str = "minimize",
    num_queries: int = 20,
    num_initial: int = 0,
    noise_variance: float = 0.0,
    cost: Callable[[Float[np.ndarray, " d"]], float] | None = None,
    budget: float = np.inf,
    min_improvement: float = 0.0,
) -> Search:
    r"""Search for the best of finitely many candidates by expected improvement.

    Each query goes where :math:`EI(x) / cost(x)` is largest; ties are broken at random. The value to improve on is the
    best posterior mean among the points queried (their best value, if there is no noise), and before the first query
    the best prior mean. Without noise no candidate is queried twice.

    Args:
        rng_key: A JAX random key; it decides the initial queries and ties.
        objective: A function from one point (d,) to a value of the objective, possibly with noise.
        candidates: The points to choose from, an array (p, d) or a data frame.
        prior: The prior on the objective before any query.
        direction: "minimize" or "maximize".
        num_queries: Stop after this number of queries, which includes the initial ones.
        num_initial: How many queries are made at random before the search, each of another candidate.
        noise_variance: The variance of the queries' noise, in squared units of the objective.
        cost: A function from one point (d,) to the positive cost of a query there; 1 by default.
        budget: Stop when the remaining budget does not cover the cost of any query.
        min_improvement: Stop when the expected improvement of every candidate is at most this, in units of the
            objective.

    Returns:
        The search: its log, its best point, and the belief at the end.

    Raises:
        TypeError: If `rng_key` is not a JAX random key.
        ValueError: If an argument is out of range, a cost is not positive, the prior's moments do not fit the
            candidates, or the objective does not return a finite number.
    """
    points, schema = read_points(candidates, name="candidates")
    one_of(direction, "direction", ("minimize", "maximize"))
    count(num_queries, "num_queries")
    count(num_initial, "num_initial", 0, most=len(points), most_is="the number of candidates")
    _refuse_bad(schema.feature_names, noise_variance=noise_variance, budget=budget, min_improvement=min_improvement)
    priority = np.asarray(jax.random.permutation(rng_key, len(points)))
    state = _State(points, prior, 1.0 if direction == "minimize" else -1.0, noise_variance)
    costs = _costs(cost, points)
    rows: list[dict[str, Any]] = []
    spent, stopped = 0.0, "queries"
    while len(rows) < num_queries:
        improvement = state.improvement()
        allowed = spent + costs <= budget
        starting = len(rows) < num_initial
        fresh = np.ones(len(points), bool)
        if starting or noise_variance == 0.0:
            fresh[state.index] = False
        chosen = _choose(priority, -priority if starting else improvement / costs, allowed & fresh)
        if chosen is None or not (starting or improvement[allowed & fresh].max() > min_improvement):
            stopped = "candidates" if not fresh.any() else "budget" if chosen is None else "improvement"
            break
        before = state.belief
        value = state.query(chosen, objective)
        spent += costs[chosen]
        rows.append(
            {"query": len(rows) + 1, "candidate": chosen}
            | dict(zip(schema.feature_names, points[chosen].tolist(), strict=True))
            | {"value": value, "mean": before.mean[chosen], "standard_deviation": before.standard_deviation[chosen]}
            | {"expected_improvement": improvement[chosen], "cost": costs[chosen], "total_cost": spent}
            | {"incumbent": state.incumbent, "effective_draws": state.belief.effective_draws}
        )
    if not rows:
        raise ValueError(
            f"no query was made: stopped by {stopped!r} (`budget` {budget}, `min_improvement` {min_improvement})"
        )
    return Search(pd.DataFrame(rows), points, state.belief, direction, stopped)


class _State:
    """The queries so far and the belief they lead to."""

    def __init__(self, points: np.ndarray, prior: AbstractObjectivePrior, sign: float, noise_variance: float) -> None:
        self._points, self._table, self._prior = points, jnp.asarray(points), prior
        self._sign, self._noise_variance = sign, noise_variance
        self.index: list[int] = []
        self._values: list[float] = []
        self.belief = prior.believe(self._table)

    def improvement(self) -> Float[np.ndarray, " p"]:
        """Return the expected improvement at every candidate."""
        means = self._sign * self.belief.mean
        best = means[self.index].min() if self.index else means.min()
        return self.belief.improvement(float(best), self._sign)

    @property
    def incumbent(self) -> int:
        """The best candidate among those queried."""
        return min(self.index, key=lambda i: self._sign * self.belief.mean[i])

    def query(self, chosen: int, objective: Callable[..., Any]) -> float:
        """Query the objective, and update the belief by the result."""
        value = float(np.asarray(objective(self._points[chosen]), dtype=float).reshape(()))
        if not np.isfinite(value):
            raise ValueError(f"`objective` must return a finite number, got {value} at {self._points[chosen]}")
        self.index.append(chosen)
        self._values.append(value)
        index, values, before = np.asarray(self.index), np.asarray(self._values), self.belief.effective_draws
        prior = self._prior.given(self._table, index, values, self._noise_variance)
        if prior is self._prior:
            self.belief = self.belief.observe(chosen, value, self._noise_variance)
        else:  # new hyperparameters require conditioning on all queries again
            self._prior, self.belief = prior, prior.believe(self._table)
            for i, seen in zip(index, values, strict=True):
                self.belief = self.belief.observe(int(i), float(seen), self._noise_variance)
        if before >= _FEW > self.belief.effective_draws:
            _LOGGER.info(
                "query %d leaves %.2f effective draws of the hyperparameters; further queries update the discrepancy "
                "only, so fit with more draws if its scale is then large",
                len(index),
                self.belief.effective_draws,
            )
        return value


def _choose(priority: np.ndarray, score: np.ndarray, possible: np.ndarray) -> int | None:
    """Return the possible candidate with the highest score; ties are broken at random."""
    if not possible.any():
        return None
    highest = np.flatnonzero(possible & (score >= score[possible].max()))
    return int(highest[np.argmin(priority[highest])])


def _costs(cost: Callable[..., float] | None, points: np.ndarray) -> np.ndarray:
    costs = np.ones(len(points)) if cost is None else np.asarray([float(cost(point)) for point in points])
    if not (np.isfinite(costs) & (costs > 0.0)).all():
        raise ValueError(f"`cost` must return finite positive numbers, got {costs[~(costs > 0.0)][:3]}")
    return costs


def _refuse_bad(names: tuple[str, ...], **bounds: float) -> None:
    """Raise ValueError for names of columns that the log has of its own, and for negative numbers."""
    for name, value in bounds.items():
        at_least(value, name, 0.0)
    taken = sorted(RESERVED.intersection(names))
    if taken:
        raise ValueError(f"`candidates` must not have columns of the log's own names, got {taken}; rename them")
