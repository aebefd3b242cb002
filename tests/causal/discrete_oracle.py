"""Random causal models with finitely many values, hidden variables included: the truth to compare effects with."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import combinations, product

import networkx as nx
import numpy as np
import xarray as xr

#: Directed edges, bidirected edges and latent nodes of a graph whose nodes are sorted topologically.
Spec = tuple[tuple[str, ...], list[tuple[str, str]], list[tuple[str, str]], list[str]]


class DiscreteModel:
    """A table P(node | parents) for each node, with a hidden parent of both ends for each bidirected edge."""

    def __init__(self, rng: np.random.Generator, spec: Spec):
        nodes, edges, bidirected, latent = spec
        hidden = [f"U_{a}_{b}" for a, b in bidirected]
        self.observed = [node for node in nodes if node not in latent]
        self.sizes = {node: int(rng.integers(2, 4)) for node in [*nodes, *hidden]}
        arrows = [*edges, *((u, end) for u, pair in zip(hidden, bidirected, strict=True) for end in pair)]
        self.tables = {}
        for node in self.sizes:
            parents = [a for a, b in arrows if b == node]
            table = rng.uniform(0.2, 1.0, [self.sizes[name] for name in [*parents, node]])
            self.tables[node] = [*parents, node], table / table.sum(-1, keepdims=True)

    def joint(self, fixed: Collection[str] = ()) -> xr.DataArray:
        """P(all observed but the fixed ones | do(fixed)), as a function of the fixed ones too: their tables are left out."""
        label = {node: place for place, node in enumerate(self.sizes)}
        operands: list[object] = []
        for node, (names, table) in self.tables.items():
            if node not in fixed:
                operands += [table, [label[name] for name in names]]
        for node in fixed:
            operands += [np.ones(self.sizes[node]), [label[node]]]
        values = np.einsum(*operands, [label[node] for node in self.observed], optimize=True)
        return xr.DataArray(values, coords={node: np.arange(self.sizes[node]) for node in self.observed})

    def effect(
        self, outcome: Collection[str], treatment: Collection[str], given: Collection[str] = ()
    ) -> xr.DataArray:
        """P(outcome | do(treatment), given) by the definition."""
        kept = {*outcome, *treatment, *given}
        joint = self.joint(fixed=treatment).sum([node for node in self.observed if node not in kept])
        return joint / joint.sum(list(outcome))


def all_graphs(nodes: Sequence[str]) -> Iterator[Spec]:
    """All graphs with bidirected edges over some nodes, up to names: the order of the nodes is a topological one."""
    pairs = list(combinations(nodes, 2))
    for directed, hidden in product(product((False, True), repeat=len(pairs)), repeat=2):
        edges = [pair for pair, present in zip(pairs, directed, strict=True) if present]
        bidirected = [pair for pair, present in zip(pairs, hidden, strict=True) if present]
        yield tuple(nodes), edges, bidirected, []


def random_graph(rng: np.random.Generator, nodes: Sequence[str], num_latent: int = 0) -> Spec:
    """A random graph with bidirected edges, some of its nodes latent."""
    order = list(rng.permutation(list(nodes)))
    edges = [(str(a), str(b)) for a, b in combinations(order, 2) if rng.random() < 0.45]
    bidirected = [(str(a), str(b)) for a, b in combinations(order, 2) if rng.random() < 0.2]
    return tuple(nodes), edges, bidirected, sorted(map(str, rng.choice(list(nodes), num_latent, replace=False)))


def is_hedge(
    spec: Spec, outcome: Collection[str], treatment: Collection[str], larger: nx.MultiGraph, smaller: nx.MultiGraph
) -> bool:
    raise NotImplementedError
