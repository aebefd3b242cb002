"""Identification: whether, and how, the observed law determines a causal effect; a hedge proves that it does not."""

from __future__ import annotations

from dataclasses import dataclass

import networkx as nx

from kpp.causal.errors import LatentNodeError, NotIdentifiableError
from kpp.causal.graph.dag import CausalDAG
from kpp.causal.graph.nodes import Nodes, NodeSet, as_nodes, check_disjoint, check_question, reached
from kpp.causal.identification.algebra import Algebra
from kpp.causal.identification.estimand import Estimand, query_text
from kpp.causal.identification.expressions import Expression, Probability
from kpp.foundation.wording import brief


def identify(graph: CausalDAG, *, treatment: Nodes, outcome: Nodes, given: Nodes = ()) -> Estimand:
    r"""Express the effect :math:`P(y \mid do(x), z)` in the law of the observed nodes, if it is identified.

    The algorithm is complete: an estimand holds in every causal model with the graph and a positive law. If the effect
    is not identified, the error holds a hedge: two models with the same observed law and different effects exist. If
    the treatments have no effect, the estimand is a conditional law without them, such as P(y). The time is polynomial
    in the number of nodes; a sparse graph of 1000 nodes takes seconds.

    Args:
        graph: The graph; its latent nodes and bidirected edges stand for unobserved variables.
        treatment: x, one name or several.
        outcome: y, one name or several.
        given: z, the nodes to condition on, with their values after the intervention.

    Raises:
        NotIdentifiableError: If the effect is not identified; its `hedge` says why.
        UnknownNodeError: If a name is not a node of the graph.
        LatentNodeError: If one of the nodes is latent.
        NotDisjointError: If `given` shares a node with `outcome` or `treatment`.
        TreatmentIsOutcomeError: If `treatment` shares a node with `outcome`.

    Example:
        >>> graph = kpp.causal.CausalDAG([("age", "dose"), ("age", "pain"), ("dose", "pain")])
        >>> print(kpp.causal.identify(graph, treatment="dose", outcome="pain"))
        P(pain | do(dose)) = sum_age P(pain | age, dose) P(age)

    References:
        Shpitser & Pearl, Identification of joint interventional distributions in recursive semi-Markovian causal
        models, 2006, figure 3 (ID); Identification of conditional interventional distributions, 2006, figure 5 (IDC).
    """
    conditions = as_nodes(graph, given, "given")
    treatments, outcomes = check_question(graph, treatment, outcome)
    if conditions & graph.latent:
        raise LatentNodeError("given", conditions & graph.latent)
    check_disjoint(given=conditions, outcome=outcomes)
    check_disjoint(given=conditions, treatment=treatments)
    projection = graph.project()
    return _with_fewer_nodes(projection, _identified(projection, outcomes, treatments, conditions))


def _identified(graph: CausalDAG, outcome: NodeSet, treatment: NodeSet, given: NodeSet) -> Estimand:
    """Run the algorithm on a graph without latent nodes."""
    algebra = Algebra(graph)
    question = _Question(graph, algebra, query_text(outcome, treatment, given))
    expression = algebra.joined(question.conditional_effect(outcome, treatment, given))
    return Estimand(outcome, treatment, given, expression)


def _with_fewer_nodes(graph: CausalDAG, estimand: Estimand) -> Estimand:
    """Return an estimand without nodes whose values do not matter, if the effect is identified without them."""
    one_by_one = [frozenset([node]) for node in graph.sort(estimand.arbitrary)]
    for dropped in dict.fromkeys([estimand.arbitrary, *one_by_one] if one_by_one else []):
        hidden = CausalDAG(graph.edges, nodes=graph.nodes, latent=dropped, bidirected=graph.bidirected)
        try:
            shorter = _identified(hidden.project(), estimand.outcome, estimand.treatment, estimand.given)
        except NotIdentifiableError:
            continue
        return _with_fewer_nodes(hidden.project(), shorter)
    return estimand


class _Stopped(Exception):
    """Signals the two nested districts at which the algorithm stops."""

    def __init__(self, larger: NodeSet, smaller: NodeSet):
        self.districts = larger, smaller
        super().__init__(f"between {sorted(larger)} and {sorted(smaller)}")


@dataclass(frozen=True)
class _Question:
    """The data that the steps of the algorithms share: the graph, the algebra of expressions, and the question."""

    graph: CausalDAG
    algebra: Algebra
    asked: str

    def conditional_effect(self, outcome: NodeSet, treatment: NodeSet, given: NodeSet) -> Expression:
        """Return P(outcome | do(treatment), given) by the algorithm IDC."""
        for node in self.graph.sort(given):
            others = given - {node}
            if self.graph.do(treatment).without_outgoing(node).d_separated(outcome, node, treatment | others):
                return self.conditional_effect(outcome, treatment | {node}, others)
        law = self.algebra.probability(self.graph.observed)
        try:
            joint = self.effect(outcome | given, treatment, law, self.graph)
        except _Stopped as stop:
            hedge = hedge_between(self.graph, treatment, outcome | given, *stop.districts)
            raise NotIdentifiableError(
                f"{self.asked} is not identified: the graph holds the hedge {brief(hedge)}", hedge
            ) from None
        return self.algebra.ratio(joint, self.algebra.sum_out(outcome, joint)) if given else joint

    def effect(self, outcome: NodeSet, treatment: NodeSet, law: Expression, graph: CausalDAG) -> Expression:
        """Return P(outcome | do(treatment)) for a graph with a known law, line by line as algorithm ID is published."""
        nodes = graph.observed
        # Line 1: without a treatment, the effect is a marginal of the law.
        if not treatment:
            return self.algebra.sum_out(nodes - outcome, law)
        # Line 2: nodes that are not ancestors of an outcome do not matter.
        causes = graph.ancestors(outcome)
        if causes < nodes:
            margin = self.algebra.sum_out(nodes - causes, law)
            return self.effect(outcome, treatment & causes, margin, graph.subgraph(causes))
        # Line 3: an intervention on nodes that the treatments cut off from the outcomes changes nothing.
        idle = nodes - treatment - graph.do(treatment).ancestors(outcome)
        if idle:
            return self.effect(outcome, treatment | idle, law, graph)
        # Line 4: the effect is a product over districts, which are identified one by one.
        parts = graph.districts(nodes - treatment)
        if len(parts) > 1:
            factors = [self._district_effect(part, law, graph) for part in parts]
            return self.algebra.sum_out(nodes - outcome - treatment, self.algebra.product(factors))
        # Line 5: if the whole graph is a single district, there is a hedge.
        (part,) = parts
        district = next(whole for whole in graph.districts() if part <= whole)
        if district == nodes:
            raise _Stopped(district, part)
        # Lines 6 and 7: the law of a district is a product over its nodes, each given all nodes before it.
        kernel = self._district_law(district, law, graph)
        if district == part:
            return self.algebra.sum_out(part - outcome, kernel)
        return self.effect(outcome, treatment & district, kernel, graph.subgraph(district))

    def _district_effect(self, part: NodeSet, law: Expression, graph: CausalDAG) -> Expression:
        """Return P(part | do(all other nodes)) for a district of the nodes that are not treated.

        In large sparse graphs most of these districts are whole districts of the graph of their ancestors. Then the
        effect is a product of conditional probabilities, and no graph has to be built.
        """
        causes = graph.ancestors(part)
        if law != Probability(graph.observed) or self._district(graph, part, causes) != part:
            return self.effect(part, graph.observed - part, law, graph)
        return self.algebra.probability(part) if causes == part else self._markov_factors(part, causes, graph)

    def _district_law(self, district: NodeSet, law: Expression, graph: CausalDAG) -> Expression:
        """Return the product of P(v | all nodes before v) over a district."""
        if law == Probability(graph.observed):
            return self._markov_factors(district, graph.observed, graph)
        margins, before = [law], graph.topological_order()
        for node in reversed(before):
            margins.append(self.algebra.sum_out(frozenset([node]), margins[-1]))
        steps = zip(before, reversed(margins[:-1]), margins[:0:-1], strict=True)
        return self.algebra.product(
            self.algebra.ratio(upto, without) for node, upto, without in steps if node in district
        )

    def _markov_factors(self, district: NodeSet, within: NodeSet, graph: CausalDAG) -> Expression:
        """Return the product of P(v | all nodes before v) over a district, for the observed law of an ancestral set.

        Given the other nodes of its district among the nodes up to v, and the parents of all these, v is independent of
        the rest of the nodes before it (Tian and Pearl, 2002, equation 15).
        """
        order = [node for node in graph.topological_order() if node in within]
        place = {node: position for position, node in enumerate(order)}
        factors = []
        for node in sorted(district, key=place.__getitem__):
            known = frozenset(order[: place[node] + 1])
            linked = self._district(graph, frozenset([node]), known)
            factors.append(Probability(frozenset([node]), (linked | graph.parents(linked)) - {node}))
        return self.algebra.product(factors)

    @staticmethod
    def _district(graph: CausalDAG, nodes: NodeSet, within: NodeSet) -> NodeSet:
        """Return the nodes that bidirected edges among some nodes connect with given ones."""
        return reached(graph.spouses, nodes, graph.observed - within)


@dataclass(frozen=True)
class Hedge:
    r"""Two nested C-forests with the same roots, of which only the larger one holds treatments.

    A C-forest is a graph whose nodes are connected by bidirected edges and in which each node has at most one child;
    its roots are the nodes without a child. The forests F and :math:`F' \subseteq F` are a hedge for :math:`P(y \mid
    do(x))` if both have the roots R, F holds nodes of x, F' holds none, and R are ancestors of y in the graph without
    the edges into x. Then two causal models exist that have the same observed law and different effects.

    Args:
        graph: The graph of the question, without latent nodes.
        treatment: x. For a conditional effect these are the treatments and the conditioning nodes that can be exchanged
            for treatments by the second rule of do-calculus.
        outcome: y. For a conditional effect these are the outcomes and the other conditioning nodes.
        forest: F.
        subforest: F'.

    Raises:
        ValueError: If the forests are not a hedge; the message says which conditions fail.

    References:
        Shpitser & Pearl, Identification of joint interventional distributions in recursive semi-Markovian causal
        models, 2006, definitions 3 to 6 and theorem 4; Shpitser & Pearl, Identification of conditional interventional
        distributions, 2006, for conditional effects.
    """

    graph: CausalDAG
    treatment: NodeSet
    outcome: NodeSet
    forest: CausalDAG
    subforest: CausalDAG

    def __post_init__(self) -> None:
        causes = self.graph.do(self.treatment).ancestors(self.outcome)
        conditions = {
            "F is part of the graph": _is_part(self.forest, self.graph),
            "F' is part of F": _is_part(self.subforest, self.forest),
            "F is a C-forest": _is_c_forest(self.forest),
            "F' is a C-forest": _is_c_forest(self.subforest),
            "F and F' have the same roots": _roots(self.forest) == _roots(self.subforest),
            "F holds a treatment": bool(self.forest.observed & self.treatment),
            "F' holds no treatment": not self.subforest.observed & self.treatment,
            "the roots are causes of the outcomes that no treatment cuts off": self.roots <= causes,
        }
        broken = [condition for condition, holds in conditions.items() if not holds]
        if broken:
            raise ValueError(f"`forest` and `subforest` must be a hedge, but this fails: {'; '.join(broken)}")

    @property
    def roots(self) -> NodeSet:
        """R, the nodes of F without a child in F."""
        return _roots(self.forest)

    def __str__(self) -> str:
        query = query_text(self.outcome, self.treatment, frozenset())
        return f"F = {self.forest}, F' = {self.subforest} for {query}"


def hedge_between(graph: CausalDAG, treatment: NodeSet, outcome: NodeSet, larger: NodeSet, smaller: NodeSet) -> Hedge:
    """Return the hedge on two nested districts at which the identification algorithm stops.

    The bidirected edges are reduced to a spanning tree of the larger set that contains a spanning tree of the smaller
    one. A node of the smaller set keeps one child in it; another node keeps the next node on a shortest path to the
    smaller set. The graph has no latent nodes. Within the larger set, which is connected by bidirected edges, all nodes
    are ancestors of the smaller set, its part that remains without the treatments, which is connected too.
    """
    links: nx.Graph = nx.Graph()
    for first, second in (graph.sort(pair) for pair in graph.bidirected if pair <= larger):
        links.add_edge(first, second, weight=int(not {first, second} <= smaller))
    tree = sorted(graph.sort(pair) for pair in nx.minimum_spanning_edges(links, data=False))

    part = graph.subgraph(larger).digraph.reverse()
    ways = nx.multi_source_dijkstra_path(part, smaller)
    arrows = [(node, ways[node][-2]) for node in graph.sort(larger - smaller)]
    for node in graph.sort(smaller):
        arrows += [(node, child) for child in graph.sort(graph.children(node) & smaller)[:1]]

    forest = CausalDAG(arrows, nodes=graph.sort(larger), bidirected=tree)
    return Hedge(graph, treatment, outcome, forest, forest.subgraph(smaller))


def _roots(graph: CausalDAG) -> NodeSet:
    return frozenset(node for node in graph.nodes if not graph.children(node))


def _is_c_forest(graph: CausalDAG) -> bool:
    return len(graph.districts()) == 1 and all(len(graph.children(node)) < 2 for node in graph.nodes)


def _is_part(part: CausalDAG, whole: CausalDAG) -> bool:
    return (
        set(part.nodes) <= set(whole.nodes)
        and set(part.edges) <= set(whole.edges)
        and part.bidirected <= whole.bidirected
        and not part.latent
    )
