"""Estimands: causal effects as expressions in the observed law, to print, to typeset and to evaluate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import xarray as xr

from kpp.causal.graph.nodes import MixedGraph, NodeSet, as_nodes
from kpp.causal.identification.expressions import LATEX, TEXT, Expression, Notation, Probability
from kpp.foundation.validation import count
from kpp.foundation.wording import named

#: The law of all nodes, hidden ones too, holds this many probabilities at most: 128 MiB.
_MOST_PROBABILITIES = 2**24


def query_text(outcome: NodeSet, treatment: NodeSet, given: NodeSet, notation: Notation = TEXT) -> str:
    """Return an effect as text: ``P(y | do(x), z)``."""
    written = {node: notation.name(node) for node in outcome | treatment | given}
    conditions = [notation.do(notation.names(treatment, written))]
    conditions += [notation.names(given, written)] if given else []
    return f"P({notation.names(outcome, written)}{notation.bar}{', '.join(conditions)})"


@dataclass(frozen=True)
class Estimand:
    """A causal effect P(outcome | do(treatment), given) as an expression in the law of the observed nodes.

    It prints as an equation, such as ``P(y | do(x)) = sum_z P(y | x, z) P(z)``, and is displayed as an equation in a
    notebook.

    Args:
        outcome: The outcomes.
        treatment: The treatments.
        given: The nodes conditioned on.
        expression: The expression.
    """

    outcome: NodeSet
    treatment: NodeSet
    given: NodeSet
    expression: Expression

    @property
    def variables(self) -> NodeSet:
        """The observed nodes that have to be measured to estimate the effect."""
        return self.expression.mentioned

    @property
    def arbitrary(self) -> NodeSet:
        """Nodes in the expression whose values do not change it, because of the constraints of the graph on the law."""
        return self.expression.free - self.outcome - self.treatment - self.given

    def query(self) -> str:
        """Return the effect as text: ``P(y | do(x), z)``."""
        return query_text(self.outcome, self.treatment, self.given)

    def text(self) -> str:
        """Return the expression as text: ``sum_z P(y | x, z) P(z)``; a primed name is summed over."""
        return self.expression.write(TEXT, self._names(TEXT))

    def latex(self) -> str:
        r"""Return the equation in LaTeX: ``P(y \mid \mathrm{do}(x)) = \sum_{z} P(y \mid x, z) \, P(z)``."""
        query = query_text(self.outcome, self.treatment, self.given, LATEX)
        return f"{query} = {self.expression.write(LATEX, self._names(LATEX))}"

    def evaluate(self, joint: xr.DataArray) -> xr.DataArray:
        """Return the effect for a discrete observed law.

        Args:
            joint: The probabilities of all joint values of the nodes, one dimension per node, named after it. Nodes
                that are not needed are summed out.

        Returns:
            The probabilities, with the dimensions of the outcomes, the treatments and the conditioning nodes, sorted by
            name within each. If the expression holds a node whose value does not matter, the result is the mean over
            its law: under a law that the graph allows, all its terms are equal.

        Raises:
            ValueError: If a node that the estimand needs is not a dimension, the probabilities are negative, not finite
                or do not sum to 1, or a conditional probability has a condition of probability 0.
        """
        law = _as_law(joint, self.variables | self.outcome | self.treatment | self.given)
        effect = self.expression.evaluate(law)
        if self.arbitrary:
            effect = xr.dot(effect, Probability(self.arbitrary).evaluate(law), dim=sorted(self.arbitrary))
        dims = [*sorted(self.outcome), *sorted(self.treatment), *sorted(self.given)]
        shape = xr.ones_like(law.isel({dim: 0 for dim in law.dims if dim not in dims}, drop=True))
        return (effect * shape).transpose(*dims).rename(self.query())

    def verify(self, graph: MixedGraph, num_models: int = 20, *, num_levels: int = 2, seed: int = 0) -> float:
        """Return the largest error of the expression over random discrete models of a graph.

        In each model the expression, evaluated in the observed law, is compared with the effect by its definition: the
        law of the model once the treatments are set. An expression that is right for the graph differs by rounding
        errors alone; one that is wrong, or right for another graph only, differs in nearly every model.

        Args:
            graph: The causal graph, a `kpp.causal.CausalDAG`.
            num_models: The number of models.
            num_levels: The number of values of each node, hidden ones included.
            seed: The seed of the models.

        Returns:
            The largest absolute difference between two probabilities.

        Raises:
            ValueError: If the graph lacks a node of the estimand, or is too large for its law to be held.
        """
        as_nodes(graph, self.variables | self.outcome | self.treatment | self.given, "graph")
        levels, rng, worst = count(num_levels, "num_levels", 2), np.random.default_rng(seed), 0.0
        for _ in range(count(num_models, "num_models")):
            observed, intervened = _random_laws(graph, self.treatment, levels, rng)
            law = self.evaluate(observed)
            truth = intervened.sum([dim for dim in intervened.dims if dim not in law.dims])
            worst = max(worst, float(abs(law - truth / truth.sum(sorted(self.outcome))).max()))
        return worst

    def __str__(self) -> str:
        return f"{self.query()} = {self.text()}"

    def _repr_latex_(self) -> str:
        return f"${self.latex()}$"

    def _names(self, notation: Notation) -> dict[str, str]:
        nodes = self.expression.free | self.outcome | self.treatment | self.given
        return {node: notation.name(node) for node in nodes}


def _as_law(joint: xr.DataArray, needed: NodeSet) -> xr.DataArray:
    """Check a joint law and sum out the nodes that are not needed."""
    missing = needed - set(map(str, joint.dims))
    if missing:
        raise ValueError(
            f"`joint` must have a dimension for each of {named(sorted(needed))}, it lacks {named(sorted(missing))}"
        )
    total = float(joint.sum())
    # The negated form is also true for NaN. The rounding errors of float64 sums are far below the tolerance.
    if not (bool((joint >= 0.0).all()) and np.isclose(total, 1.0, rtol=0.0, atol=1e-6)):
        raise ValueError(f"`joint` must hold probabilities, not negative, that sum to 1; their sum is {total}")
    return joint.sum([dim for dim in joint.dims if dim not in needed])


def _random_laws(
    graph: MixedGraph, treatment: NodeSet, num_levels: int, rng: np.random.Generator
) -> tuple[xr.DataArray, xr.DataArray]:
    """Return the observed law of a random discrete model, and its law once treatments are set.

    Each node has a random table P(node | parents), and each bidirected edge a hidden parent of both ends. The second
    law is the truncated product: the tables of the treatments are left out (Pearl, Causality, 2009, equation (3.10)).

    Raises ValueError if the law has more than 2^24 probabilities.
    """
    network = graph.canonical()
    if num_levels ** len(network) > _MOST_PROBABILITIES:
        raise ValueError(
            f"`graph` must have at most {int(np.log(_MOST_PROBABILITIES) / np.log(num_levels))} nodes and bidirected "
            f"edges with {num_levels} levels, got {len(network)}"
        )
    tables = {}
    for node in network:
        names = [*network.predecessors(node), node]
        # Away from 0, so that no condition of an expression has the probability 0.
        weights = rng.uniform(0.2, 1.0, [num_levels] * len(names))
        tables[node] = xr.DataArray(weights / weights.sum(-1, keepdims=True), dims=names)
    hidden = [node for node in network if node not in graph.observed]
    kept = [table for node, table in tables.items() if node not in treatment]
    return xr.dot(*tables.values(), dim=hidden, optimize=True), xr.dot(*kept, dim=hidden, optimize=True)
