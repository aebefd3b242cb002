"""The effect of a treatment under each of several causal graphs, in one table."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd

from kpp.causal import CPDAG, CausalDAG, CausalError, NotCoveredError
from kpp.causal.toolkit import as_causal_graph, check_question
from kpp.foundation.validation import as_finite_array
from kpp.foundation.validation import probability as check_probability
from kpp.typing import Numbers
from kpp_models.treatments.effect import CausalEffect

# A class with more graphs is represented by one graph for each set of parents of the treatment.
_MOST_GRAPHS = 500
_WORDS = {"+": "positive", "-": "negative", "0": "without effect", "?": "undecided", "": "not identified"}


@dataclasses.dataclass(frozen=True)
class EffectsByGraph:
    """The effect of a treatment under each of several graphs.

    Args:
        effects: The effect under each graph, or the error that says why the columns do not identify it there.
        graphs: The graphs. Of a `kpp.causal.CPDAG`, one for each set of parents of the treatment: the others have the
            same effects.
        counts: How many graphs each one stands for; None for a class of more than 500 graphs.
        treatment: The treatment.
    """

    effects: tuple[CausalEffect | NotCoveredError, ...]
    graphs: tuple[CausalDAG, ...]
    counts: tuple[int, ...] | None
    treatment: str

    def table(
        self,
        value: Any,
        reference: Any,
        *,
        measure: str = "difference",
        weights: Numbers | None = None,
        probability: float = 0.9,
    ) -> pd.DataFrame:
        r"""Return a contrast under each graph, and in the row "all" averaged over those that identify the effect.

        .. math:: p(\theta \mid \text{data}) \propto \sum_g \pi_g\, p(\theta \mid \text{data}, g)

        Args:
            value: The value of the treatment; see `CausalEffect.contrast`.
            reference: The value to compare with.
            measure: The measure of the contrast.
            weights: :math:`\pi`, such as prior probabilities in any scale; by default all graphs count equally.
            probability: The probability of the intervals.

        Returns:
            Parents of the treatment, mean, interval of equal tails, sign, weight, and expression of the effect. "+" or
            "-" means an interval on one side of no effect, "?" one that holds no effect, "0" a graph without an effect,
            and "" that it is not identified. The weight of "all" is that of the graphs that identify it.

        Raises:
            ValueError: If there is no weight of at least 0 for each graph, or as `CausalEffect.contrast`.
        """
        tail = (1 - check_probability(probability, "probability")) / 2
        names = ["parents", "mean", f"{100 * tail:g} %", f"{100 * (1 - tail):g} %", "sign", "weight", "expression"]
        null = 0.0 if measure == "difference" else 1.0
        rows: dict[Any, list[Any]] = {}
        mixture, shares = np.zeros(0), np.zeros(0)
        for place, weight in enumerate(self._weights(weights)):
            graph, effect = self.graphs[place], self.effects[place]
            draws, said = np.zeros(0), str(effect)
            if isinstance(effect, CausalEffect):
                draws = effect.contrast(value, reference, measure=measure).to_numpy().ravel()
                said = effect.dataset.attrs["estimand"]
            loads = np.full(len(draws), weight / max(len(draws), 1))
            mixture, shares = np.append(mixture, draws), np.append(shares, loads)
            parents = ", ".join(graph.sort(graph.parents(self.treatment)))
            rows[place] = [parents, *_described(draws, np.ones(len(draws)), tail, null), weight, said]
        rows["all"] = ["", *_described(mixture, shares, tail, null), shares.sum(), ""]
        return pd.DataFrame.from_dict(rows, orient="index", columns=names).rename_axis("graph")

    def agreement(self, value: Any, reference: Any, *, probability: float = 0.9) -> str:
        """Return in words in how many graphs a difference has which sign; see `table` for the arguments."""
        signs = self.table(value, reference, probability=probability)["sign"].to_numpy()[:-1]
        counts = np.array(self.counts or [1] * len(signs))
        parts = [f"{words} in {counts[signs == sign].sum()}" for sign, words in _WORDS.items() if sign in signs]
        return f"{', '.join(parts)} of {counts.sum()} {'graphs' if self.counts else 'sets of parents of the treatment'}"

    def _weights(self, weights: Numbers | None) -> np.ndarray:
        default = self.counts or [1] * len(self.graphs)
        given = np.asarray(as_finite_array(default if weights is None else weights, "weights"), float)
        if given.shape != (len(self.graphs),) or (given < 0).any() or not given.any():
            raise ValueError(f"`weights` must hold a number >= 0 for each of {len(default)} graphs, got {weights!r}")
        return given / given.sum()


def read_graphs(graph: Any, treatment: Any, outcome: str) -> tuple[list[CausalDAG], tuple[int, ...] | None] | None:
    """Return several graphs, and how many graphs each one stands for (see `EffectsByGraph`); None for one graph."""
    if not isinstance(graph, CPDAG):
        kinds = (CausalDAG, nx.DiGraph, str)
        if not isinstance(graph, list | tuple) or not graph or not all(isinstance(each, kinds) for each in graph):
            return None
        return [as_causal_graph(each) for each in graph], (1,) * len(graph)
    check_question(next(graph.graphs()), treatment, outcome)
    every = list(itertools.islice(graph.graphs(), _MOST_GRAPHS + 1))
    alike = {each.parents(treatment): each for each in every}
    if len(every) <= _MOST_GRAPHS:
        found = [each.parents(treatment) for each in every]
        return list(alike.values()), tuple(found.count(parents) for parents in alike)
    graphs = list(itertools.islice(graph.graphs(parents_of=treatment), _MOST_GRAPHS + 1))
    if len(graphs) > _MOST_GRAPHS:
        raise CausalError(f"`graph` must leave at most {_MOST_GRAPHS} sets of parents of {treatment!r} open")
    return graphs, None


def _described(draws: np.ndarray, loads: np.ndarray, tail: float, null: float) -> list[Any]:
    """Return the mean, the interval and the sign of draws with weights, of which there may be none."""
    if not loads.any():
        return [np.nan, np.nan, np.nan, ""]
    low, high = np.quantile(draws, [tail, 1 - tail], weights=loads, method="inverted_cdf")
    sign = "0" if low == high == null else "+" if low > null else "-" if high < null else "?"
    return [np.average(draws, weights=loads), low, high, sign]
