r"""Instruments: nodes that affect the outcome through the treatment alone.

A node I is an instrument for the effect of X on Y given W under three conditions: W holds no node on a causal path from
X to Y and no descendant of one; W closes every path from I to Y after the first edges of the causal paths are removed;
and W leaves open a path from I to X (Pearl, 2009, definition 7.4.1, and Brito and Pearl, 2002, for the total effect).
In a linear model

$$\frac{\mathrm{Cov}(I, Y \mid W)}{\mathrm{Cov}(I, X \mid W)}$$

is the effect of X on Y, for any hidden common causes of X and Y. Several instruments together identify the joint effect
of several treatments if each meets the first two conditions, and if the covariance of instruments and treatments given
W has as many independent columns as there are treatments.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import networkx as nx

from kpp.causal.criteria.adjustment_sets import allowed_nodes, proper_backdoor_graph
from kpp.causal.criteria.causal_paths import forbidden_nodes, path_to_forbidden
from kpp.causal.criteria.checks import CriterionCheck, as_observed, closed
from kpp.causal.errors import CausalError
from kpp.causal.graph.dag import CausalDAG
from kpp.causal.graph.nodes import Nodes, NodeSet, check_disjoint, check_question
from kpp.causal.graph.separation import d_separated, nearest_separators
from kpp.foundation.wording import named

_SOURCE, _SINK = "source", "sink"

#: A node on the way back from the first set, or forth to the second, as it is entered or left.
_Stop = tuple[str, str, str]


@dataclasses.dataclass(frozen=True)
class Instrument:
    """An instrument and the nodes to condition on.

    Args:
        node: The instrument.
        given: The nodes to condition on; may be empty.
    """

    node: str
    given: NodeSet


def is_instrument(
    graph: CausalDAG, instrument: Nodes, *, treatment: Nodes, outcome: Nodes, given: Nodes = ()
) -> CriterionCheck:
    r"""Check whether nodes are instruments for the effect of treatments on an outcome given others.

    For one instrument of one treatment this is the definition above. Several instruments are checked as a set:
    :math:`\mathrm{Cov}(I, X \mid W)` must have the rank of the number of treatments in almost every linear model of the
    graph, so that their joint effect is identified there.

    Args:
        graph: The graph.
        instrument: The instrument, or several.
        treatment: The treatment, or several whose joint effect is asked for.
        outcome: The outcome, one node.
        given: The nodes conditioned on.

    Returns:
        The check, true if the nodes are instruments; otherwise it says which part of the definition fails and shows a
        path, if a path is the reason.

    Raises:
        CausalError: See `check_question`; also if there are several outcomes, if an instrument or a conditioning node
            is latent, or if one node has two roles.

    Example:
        >>> trial = CausalDAG([("offer", "dose"), ("dose", "pain")], bidirected=[("dose", "pain")])
        >>> causal.is_instrument(trial, "offer", **effect)
        CriterionCheck(holds=True, criterion='', witness=None)

    References:
        Brito and Pearl, Generalized instrumental variables, 2002; Sullivant, Talaska and Draisma, Trek separation for
        Gaussian graphical models, 2010, theorem 2.8, for the rank.
    """
    x, y = check_question(graph, treatment, outcome)
    _check_single(graph, "outcome", y)
    nodes = as_observed(graph, instrument, "instrument", x | y)
    conditions = as_observed(graph, given, "given", x | y)
    check_disjoint(instrument=nodes, given=conditions)
    if not nodes:
        raise CausalError("`instrument` must name at least one node, got none")
    forbidden = forbidden_nodes(graph, treatment=x, outcome=y) & conditions
    if forbidden:
        criterion = "the nodes given are none on a causal path and none below one"
        return CriterionCheck(False, criterion, path_to_forbidden(graph, x, y, forbidden))
    if d_separated(graph, nodes, x, conditions):
        return CriterionCheck(False, "the nodes given leave a path from the instrument to the treatment open")
    # A path open given W makes the rank of one treatment 1 in almost every model, so that only sets need the count.
    if len(x) > 1 and _covariance_rank(graph, nodes | conditions, x | conditions) < len(x | conditions):
        return CriterionCheck(False, "the instruments move all treatments independently of each other")
    criterion = "the nodes given close every path from the instrument to the outcome but for the treatment's effect"
    return closed(proper_backdoor_graph(graph, treatment=x, outcome=y), nodes, y, conditions, criterion)


def instruments(graph: CausalDAG, *, treatment: Nodes, outcome: Nodes) -> tuple[Instrument, ...]:
    """Return the nodes that can be instruments, each with the nodes to condition on.

    The conditioning set of an instrument is the set nearest to the outcome that separates the two in the graph without
    the treatment's effect (van der Zander, Textor and Liskiewicz, 2015). If any instrument exists, for any conditioning
    set, at least one is found. An instrument is not found if it needs conditioning on a node that is an ancestor
    neither of the instrument nor of the outcome: to find all instruments is NP-hard, to check one (`is_instrument`) is
    not.

    Args:
        graph: The graph.
        treatment: The treatment, one node.
        outcome: The outcome, one node.

    Returns:
        The instruments, in the graph's order; empty if there are none.

    Raises:
        CausalError: See `check_question`; also if there are several treatments or outcomes.

    Example:
        >>> trial = CausalDAG([("offer", "dose"), ("dose", "pain")], bidirected=[("dose", "pain")])
        >>> causal.instruments(trial, **effect)
        (Instrument(node='offer', given=frozenset()),)
    """
    x, y = check_question(graph, treatment, outcome)
    _check_single(graph, "treatment", x)
    _check_single(graph, "outcome", y)
    backdoor, allowed = proper_backdoor_graph(graph, treatment=x, outcome=y), allowed_nodes(graph, x, y, None)
    found = []
    for node in graph.sort(graph.observed - x - y):
        candidates = nearest_separators(backdoor, y, frozenset({node}), frozenset(), allowed - {node})
        # The smaller set first: the larger one may open paths to the treatment through more colliders.
        for given in reversed(candidates or ()):
            if not d_separated(graph, node, x, given):
                found.append(Instrument(node, given))
                break
    return tuple(found)


def _check_single(graph: CausalDAG, argument: str, nodes: NodeSet) -> None:
    if len(nodes) != 1:
        raise CausalError(f"`{argument}` must be one node, got {named(graph.sort(nodes))}")


def _covariance_rank(graph: CausalDAG, first: NodeSet, second: NodeSet) -> int:
    r"""Return the rank of the covariance of two sets in almost every linear model of a graph.

    A trek is a directed path backwards from one node to a common cause, and one forwards from there to the other node.
    The rank is the largest number of treks from the first set to the second of which no two share a node on their ways
    back, nor on their ways forth: a maximum flow through two copies of the graph in which each node has the capacity 1.
    """
    network: nx.DiGraph = nx.DiGraph()
    network.add_nodes_from([_SOURCE, _SINK])
    network.add_edges_from(_trek_edges(graph.canonical()), capacity=1)
    network.add_edges_from(((_SOURCE, ("back", node, "in")) for node in first), capacity=1)
    network.add_edges_from(((("forth", node, "out"), _SINK) for node in second), capacity=1)
    return int(nx.maximum_flow_value(network, _SOURCE, _SINK))


def _trek_edges(graph: nx.DiGraph) -> Iterator[tuple[_Stop, _Stop]]:
    for node in graph:
        for way in ("back", "forth"):
            yield (way, node, "in"), (way, node, "out")
        yield ("back", node, "out"), ("forth", node, "in")
    for cause, effect in graph.edges:
        yield ("back", effect, "out"), ("back", cause, "in")
        yield ("forth", cause, "out"), ("forth", effect, "in")
