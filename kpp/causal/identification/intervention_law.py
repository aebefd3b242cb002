r"""The law of all other variables after an intervention on some of them, as a product over parts of the graph.

For a graph with hidden common causes,

.. math:: P(v \setminus s \mid do(s)) = \prod_D Q_D(D \setminus s), \qquad
    Q_D(A) = P(A \mid do(\text{all other variables})),

where D are the districts: sets of variables that hidden common causes connect. Each factor depends on the intervened
members of its own district only. A causal order has one factor for each of its groups.

References:
    Tian and Pearl, A general identification condition for causal effects, 2002, lemma 1; Heskes, Sijben, Bucur and
    Claassen, Causal Shapley values, 2020, theorem 1.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools

from kpp.causal.errors import CausalError, UnknownNodeError
from kpp.causal.graph.causal_order import CausalOrder
from kpp.causal.graph.dag import CausalDAG
from kpp.causal.graph.nodes import NodeSet
from kpp.causal.identification.expressions import Expression
from kpp.causal.identification.identify import identify
from kpp.foundation.wording import named

#: The largest district with effects between its members; each of its subsets is identified on its own.
_MAX_DISTRICT = 6


@dataclasses.dataclass(frozen=True)
class LawFactor:
    r"""The law of the members of one part of a graph that are not intervened on, A.

    Without `expressions` it is :math:`P(A \mid \text{parents})`, or if `given_members`,
    :math:`P(A \mid \text{parents}, \text{members} \setminus A)`.

    Args:
        members: The members.
        parents: The other variables that cause them.
        given_members: Whether the law depends on the values of the intervened members.
        expressions: The identified laws of all subsets A that are not empty, if there are effects between the members.
    """

    members: tuple[str, ...]
    parents: tuple[str, ...]
    given_members: bool = False
    expressions: tuple[tuple[NodeSet, Expression], ...] = ()


def intervention_law(graph: CausalDAG | CausalOrder) -> tuple[LawFactor, ...]:
    """Return the factors of the law after interventions, one for each district of a graph or group of an order.

    Raises NotIdentifiableError if the law after an intervention is not identified, and CausalError if a district has
    effects between its members and more than 6 members.
    """
    if isinstance(graph, CausalOrder):
        parts = zip(graph.groups, graph.confounded, strict=True)
        return tuple(
            LawFactor(group, graph.causes(position), given_members=not confounded)
            for position, (group, confounded) in enumerate(parts)
        )
    projection = graph.project()
    return tuple(_of_district(projection, district) for district in projection.districts())


@functools.lru_cache(maxsize=64)
def factors_of_features(graph: CausalDAG | CausalOrder, feature_names: tuple[str, ...]) -> tuple[LawFactor, ...]:
    """Return the factors of the law of some observed variables, the features, after an intervention on some of them.

    Nodes of a graph that are not features, such as the outcome, are treated as latent.

    Raises:
        UnknownNodeError: If a feature is not a node of the graph, or a name in a causal order is not a feature.
        NotIdentifiableError: If the law is not identified for some coalition.
    """
    unknown = [name for name in feature_names if name not in graph.nodes]
    if unknown:
        raise UnknownNodeError("feature_names", unknown, graph.nodes)
    others = [name for name in graph.nodes if name not in feature_names]
    if isinstance(graph, CausalOrder):
        if others:
            raise UnknownNodeError("graph", others, feature_names)
        return intervention_law(graph)
    return intervention_law(graph.hide(others).project())


def _of_district(graph: CausalDAG, district: NodeSet) -> LawFactor:
    members = tuple(graph.sort(district))
    outside = graph.parents(district) - district
    parents = tuple(graph.sort(outside))
    among_members = any(graph.parents(member) & district for member in members)
    if not among_members and not outside & graph.descendants(district):
        return LawFactor(members, parents)
    if len(members) > _MAX_DISTRICT:
        raise CausalError(
            f"`graph` connects the {len(members)} nodes {named(members)} by hidden common causes, and has effects "
            f"between them; at most {_MAX_DISTRICT} such nodes are supported"
        )
    sizes = range(1, len(members) + 1)
    subsets = [frozenset(subset) for size in sizes for subset in itertools.combinations(members, size)]
    found = (identify(graph, treatment=graph.observed - absent, outcome=absent).expression for absent in subsets)
    return LawFactor(members, parents, expressions=tuple(zip(subsets, found, strict=True)))
