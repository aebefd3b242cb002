"""Graphs from edges in Python and from NumPyro models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import networkx as nx

from kpp.causal.errors import CausalError
from kpp.foundation.wording import named


def as_edges(edges: Any) -> tuple[list[Any], list[Any]]:
    """Return the nodes (none for pairs) and the directed edges in any form of edges that `CausalDAG` takes.

    Raises CausalError if a `networkx.DiGraph` is not directed, has several edges between two nodes, or has attributes
    of nodes that say which are latent.
    """
    if isinstance(edges, nx.Graph):
        if not edges.is_directed() or edges.is_multigraph():
            raise CausalError(f"`edges` must be a networkx.DiGraph, got {type(edges).__name__}")
        marked = [node for node, said in edges.nodes(data=True) if {"latent", "unobserved", "observed"} & said.keys()]
        if marked:
            raise CausalError(
                f"`edges` must be plain, got attributes about what is observed at the nodes {named(marked)}: name the "
                "latent nodes in `latent`, and remove the attributes"
            )
        return list(edges), list(edges.edges)
    if isinstance(edges, Mapping):
        wrong = [cause for cause, effects in edges.items() if isinstance(effects, str)]
        if wrong:
            raise CausalError(
                f"`edges` must map each cause to a collection of effects, got a string for {named(wrong)}"
            )
        return list(edges), [(cause, effect) for cause, effects in edges.items() for effect in effects]
    return [], list(edges)


def as_pair(edge: Any, argument: str) -> tuple[Any, Any]:
    """Return the two different ends of an edge; otherwise raise CausalError with the name of the argument."""
    ends = () if isinstance(edge, str) or not isinstance(edge, Iterable) else tuple(edge)
    if len(ends) != 2 or (argument == "bidirected" and ends[0] == ends[1]):
        raise CausalError(f"`{argument}` must hold pairs of two nodes, got {edge!r}")
    return ends


def from_numpyro(
    model: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], plate: str | None
) -> dict[str, Any]:
    """Return the arguments of `CausalDAG`, as `numpyro.infer.inspect.get_model_relations` finds them in a model.

    Sample and deterministic sites become nodes; a site in a plate is one node for all units of the plate. Parameters
    (`numpyro.param`) are constants and do not become nodes. If the model gets data, the sites without data are latent,
    except sites that are computed from observed sites alone. If no site has data, all are observed. Of the sites
    outside a plate that is given, only the descendants of its sites are kept: any other site has one value for all
    units, so for a single unit it is a constant. Raises CausalError if the model does not have the plate, or has
    factors (`numpyro.factor`): a graph of the sites cannot describe their density.
    """
    import jax
    from numpyro.infer.inspect import get_model_relations

    with jax.numpy_rank_promotion("allow"):  # NumPyro draws initial values with a dimension in front of the batch
        relations = get_model_relations(model, tuple(args), dict(kwargs))
    parents, kinds = relations["sample_sample"], relations["sample_dist"]
    factors = [site for site, kind in kinds.items() if kind == "Unit"]
    if factors:
        raise CausalError(f"`model` must be a product of its sites' distributions, got the factors {named(factors)}")
    graph: nx.DiGraph = nx.DiGraph()
    graph.add_nodes_from(parents)
    graph.add_edges_from((cause, site) for site, causes in parents.items() for cause in causes)
    observed = set(relations["observed"]) or set(graph)
    for site in nx.topological_sort(graph):
        if kinds[site] == "Deterministic" and set(graph.pred[site]) <= observed:
            observed.add(site)
    kept = graph if plate is None else _of_plate(graph, relations["plate_sample"], plate)
    return {"edges": kept, "latent": set(kept) - observed}


def _of_plate(graph: nx.DiGraph, plates: Mapping[str, Sequence[str]], plate: str) -> nx.DiGraph:
    """Return the graph of the sites of a plate and of their descendants."""
    # NumPyro splits plates that overlap, and puts the parts of `N` under `N__CLONE` and so on.
    inside = {site for name, sites in plates.items() if name.replace("__CLONE", "") == plate for site in sites}
    if not inside:
        raise CausalError(
            f"`plate` must be a plate of the model with sites in it, one of {named(plates)}, got {plate!r}"
        )
    caused = inside.union(*(nx.descendants(graph, site) for site in inside))
    return nx.DiGraph(graph.subgraph(caused))
