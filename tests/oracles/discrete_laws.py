"""Random causal models with finitely many values, hidden variables included: the truth to compare effects with."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import combinations, product
from typing import Any

import networkx as nx
import numpy as np
import xarray as xr

#: Directed edges, bidirected edges and latent nodes of a graph whose nodes are sorted topologically.
Spec = tuple[tuple[str, ...], list[tuple[str, str]], list[tuple[str, str]], list[str]]


class DiscreteModel:
    """A table P(node | parents) for each node, with a hidden parent of both ends for each bidirected edge.

    `sizes` and `hidden_size` are how many values an observed and a hidden variable has, drawn from what is given.
    """

    def __init__(self, rng: np.random.Generator, spec: Spec, sizes: Sequence[int] = (2, 3), hidden_size: int = 2):
        nodes, edges, bidirected, latent = spec
        hidden = {f"U_{a}_{b}": (a, b) for a, b in bidirected}
        self.observed = [node for node in nodes if node not in latent]
        self.sizes = {node: int(rng.choice(sizes)) for node in self.observed}
        self.sizes |= dict.fromkeys([*latent, *hidden], hidden_size)
        arrows = [*edges, *((u, end) for u, pair in hidden.items() for end in pair)]
        self.names = {node: [*(a for a, b in arrows if b == node), node] for node in self.sizes}
        self.tables = {}
        for node, names in self.names.items():
            table = rng.uniform(0.2, 1.0, [self.sizes[name] for name in names])
            self.tables[node] = table / table.sum(-1, keepdims=True)

    def _joint(self, fixed: Collection[str], tables: dict[str, np.ndarray], batch: str | None = None) -> np.ndarray:
        """The product of the tables but those of the fixed nodes, summed over hidden ones; `batch` is the node whose
        table is a stack of tables."""
        label = {node: place for place, node in enumerate(self.sizes, start=1)}
        operands: list[object] = []
        for node, table in tables.items():
            names = [label[name] for name in self.names[node]]
            if node in fixed:
                operands += [np.ones(self.sizes[node]), [label[node]]]
            else:
                operands += [table, [0, *names] if node == batch else names]
        kept = [label[node] for node in self.observed]
        return np.einsum(*operands, kept if batch is None else [0, *kept], optimize=True)

    def joint(self, fixed: Collection[str] = ()) -> xr.DataArray:
        """P(all observed but the fixed ones | do(fixed)), as a function of the fixed ones too."""
        coords = {node: np.arange(self.sizes[node]) for node in self.observed}
        return xr.DataArray(self._joint(fixed, self.tables), coords=coords)

    def effect(self, outcome: Collection[str], treatment: Collection[str], given: Collection[str] = ()) -> xr.DataArray:
        """P(outcome | do(treatment), given) by the definition."""
        kept = {*outcome, *treatment, *given}
        joint = self.joint(fixed=treatment).sum([node for node in self.observed if node not in kept])
        return joint / joint.sum(list(outcome))

    def determines(self, outcome: Collection[str], treatment: Collection[str], given: Collection[str] = ()) -> bool:
        """Whether the effect stays, to first order, where the tables change but the observed law does not."""
        kept = {*outcome, *treatment, *given}
        summed = tuple(1 + i for i, node in enumerate(self.observed) if node not in kept)
        outcomes = tuple(1 + i for i, node in enumerate(self.observed) if node in outcome)
        joint = self._joint(treatment, self.tables)[None].sum(summed, keepdims=True)
        total = joint.sum(outcomes, keepdims=True)
        laws, effects = [], []
        for node, table in self.tables.items():
            steps = np.eye(table.size).reshape(-1, *table.shape)
            steps = (steps - np.roll(steps, 1, axis=-1))[np.arange(table.size) % table.shape[-1] > 0]
            tables = {**self.tables, node: steps}
            laws.append(self._joint((), tables, batch=node).reshape(len(steps), -1))
            change = np.zeros_like(joint).repeat(len(steps), axis=0)
            if node not in treatment:
                change = self._joint(treatment, tables, batch=node).sum(summed, keepdims=True)
            change = change / total - joint * change.sum(outcomes, keepdims=True) / total**2
            effects.append(change.reshape(len(steps), -1))
        left, values, _ = np.linalg.svd(np.concatenate(laws))
        null = left[:, np.count_nonzero(values > 1e-10 * values[0]) :]
        return bool(np.abs(null.T @ np.concatenate(effects)).max(initial=0.0) < 1e-8)


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


def is_hedge(graph: Any, outcome: Collection[str], treatment: Collection[str], larger: Any, smaller: Any) -> bool:
    """The definition of a hedge, on graphs without latent nodes that have `nodes`, `edges` and `bidirected`."""

    def roots(forest: Any) -> set[str]:
        return set(forest.nodes) - {cause for cause, _ in forest.edges}

    def is_c_forest(forest: Any) -> bool:
        links = nx.Graph([tuple(pair) for pair in forest.bidirected])
        links.add_nodes_from(forest.nodes)
        causes = [cause for cause, _ in forest.edges]
        return nx.is_connected(links) and len(causes) == len(set(causes))

    def is_part(part: Any, whole: Any) -> bool:
        return all(set(getattr(part, name)) <= set(getattr(whole, name)) for name in ("nodes", "edges", "bidirected"))

    cut = nx.DiGraph([edge for edge in graph.edges if edge[1] not in treatment])
    cut.add_nodes_from(graph.nodes)
    causes = set(outcome).union(*(nx.ancestors(cut, node) for node in outcome))
    return (
        is_part(smaller, larger)
        and is_part(larger, graph)
        and is_c_forest(larger)
        and is_c_forest(smaller)
        and roots(larger) == roots(smaller)
        and roots(larger) <= causes
        and bool(set(larger.nodes) & set(treatment))
        and not set(smaller.nodes) & set(treatment)
    )
