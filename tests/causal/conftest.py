"""Graphs to go through, and slow, obvious versions of what kpp.causal computes: by the definitions, path by path."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from types import SimpleNamespace

import jaxtyping
import networkx as nx
import numpy as np
import pytest

from kpp.causal import CausalDAG

NAMES = "abcdef"


def subsets(items) -> Iterator[frozenset]:
    items = list(items)
    return (frozenset(some) for size in range(len(items) + 1) for some in itertools.combinations(items, size))


@functools.cache
def all_dags(size: int) -> list[CausalDAG]:
    """Every DAG on the first `size` names: 1, 3, 25 and 543 of them."""
    names = list(NAMES[:size])
    graphs = {}
    for order in itertools.permutations(names):
        for edges in subsets(itertools.combinations(order, 2)):
            graphs[edges] = None
    return [CausalDAG(sorted(edges), nodes=names) for edges in graphs]


def random_graph(rng: np.random.Generator, size: int = 6, density=0.4, latent=0.2, bidirected=0.15) -> CausalDAG:
    """A graph on `size` nodes in a random order, each edge there with some probability."""
    names = list(NAMES[:size])
    order = [str(name) for name in rng.permutation(names)]
    pairs = list(itertools.combinations(order, 2))
    return CausalDAG(
        [pair for pair in pairs if rng.random() < density],
        nodes=names,
        latent=[name for name in names if rng.random() < latent],
        bidirected=[pair for pair in pairs if rng.random() < bidirected],
    )


def full_graph(graph: CausalDAG) -> nx.DiGraph:
    """Each bidirected edge as a node of its own, built from the edges alone."""
    full = nx.DiGraph(graph.edges)
    full.add_nodes_from(graph.nodes)
    full.add_edges_from((f"hidden {sorted(pair)}", end) for pair in graph.bidirected for end in pair)
    return full


class Paths:
    """All simple paths of a graph, and which of them a set leaves open."""

    def __init__(self, graph: CausalDAG):
        self.full = full_graph(graph)
        self.skeleton = self.full.to_undirected()
        self.below = {node: nx.descendants(self.full, node) | {node} for node in self.full}
        self.known: dict = {}

    def between(self, x: str, y: str) -> list[tuple[set, list[set]]]:
        """For each path: the nodes that close it, and for each collider the nodes of which one must be given."""
        if (x, y) not in self.known:
            self.known[x, y] = [self.parts(path) for path in nx.all_simple_paths(self.skeleton, x, y)]
        return self.known[x, y]

    def parts(self, path: list) -> tuple[set, list[set]]:
        inner = list(zip(path, path[1:], path[2:], strict=False))
        colliders = {b for a, b, c in inner if self.full.has_edge(a, b) and self.full.has_edge(c, b)}
        return set(path[1:-1]) - colliders, [self.below[node] for node in colliders]

    def connected(self, x, y, given) -> bool:
        return any(
            not closing & given and all(below & given for below in colliders)
            for a in x
            for b in y
            for closing, colliders in self.between(a, b)
        )


class Criteria:
    """The criteria for adjustment by their definitions: over all proper paths, hidden common causes included."""

    def __init__(self, graph: CausalDAG, treatments, outcomes):
        self.paths, self.known = Paths(graph), {}
        self.full, self.treatments, self.outcomes = self.paths.full, frozenset(treatments), frozenset(outcomes)
        self.observed = graph.observed - self.treatments - self.outcomes
        causal = [path for path in self.proper(self.treatments, self.outcomes) if self.is_causal(path)]
        self.forbidden = {below for path in causal for node in path[1:] for below in self.paths.below[node]}

    def simple(self, x: str, y: str) -> list[list]:
        if (x, y) not in self.known:
            self.known[x, y] = list(nx.all_simple_paths(self.paths.skeleton, x, y))
        return self.known[x, y]

    def proper(self, sources, targets) -> Iterator[list]:
        """The paths that visit the sources but once."""
        pairs = itertools.product(sources, targets)
        return (path for x, y in pairs for path in self.simple(x, y) if not sources & set(path[1:]))

    def is_causal(self, path: list) -> bool:
        return all(self.full.has_edge(a, b) for a, b in itertools.pairwise(path))

    def is_backdoor(self, path: list) -> bool:
        return self.full.has_edge(path[1], path[0])

    def is_open(self, path: list, given) -> bool:
        closing, colliders = self.paths.parts(path)
        return not closing & given and all(below & given for below in colliders)

    def adjusts(self, given) -> bool:
        paths = self.proper(self.treatments, self.outcomes)
        return not given & self.forbidden and not any(
            self.is_open(path, given) for path in paths if not self.is_causal(path)
        )

    def is_backdoor_set(self, given) -> bool:
        below = set().union(*(self.paths.below[node] for node in self.treatments))
        paths = self.proper(self.treatments, self.outcomes)
        return not given & below and not any(self.is_open(path, given) for path in paths if self.is_backdoor(path))

    def is_frontdoor_set(self, given) -> bool:
        pairs = itertools.product(self.treatments, self.outcomes)
        directed = (path for x, y in pairs for path in self.simple(x, y) if self.is_causal(path))
        confounding = (path for path in self.proper(self.treatments, given) if self.is_backdoor(path))
        behind = (path for path in self.proper(given, self.outcomes) if self.is_backdoor(path))
        return (
            all(set(path) & given for path in directed)
            and not any(self.is_open(path, frozenset()) for path in confounding)
            and not any(self.is_open(path, self.treatments) for path in behind)
        )


def effects(graphs) -> Iterator[tuple]:
    """Each graph with every latent set, up to a swap of c and d, for the effect of a on b where there is one."""
    swap = str.maketrans("cd", "dc")
    for graph in graphs:
        others = set(graph.nodes) - {"a", "b"}
        if sorted(graph.edges) <= sorted((a.translate(swap), b.translate(swap)) for a, b in graph.edges):
            if "b" in graph.descendants("a"):
                for latent in subsets(sorted(others)):
                    yield CausalDAG(graph.edges, nodes=graph.nodes, latent=latent), {"a"}, {"b"}


def random_effects(rng: np.random.Generator, number: int, there: bool = True, **density) -> Iterator[tuple]:
    """Random graphs on six nodes with one or two treatments and outcomes each, with or without a causal path."""
    while number:
        graph = random_graph(rng, **density)
        names = [str(name) for name in rng.permutation(sorted(graph.observed))]
        x, y = set(names[: rng.integers(1, 3)]), set(names[-rng.integers(1, 3) :])
        if len(names) >= 4 and bool(graph.descendants(x) & y) == there and not x & y:
            number -= 1
            yield graph, x, y


class LinearModel:
    """A linear Gaussian structural model with random coefficients, hidden common causes included."""

    def __init__(self, graph: CausalDAG, rng: np.random.Generator):
        full = full_graph(graph)
        self.names = list(full)
        self.at = {name: place for place, name in enumerate(self.names)}
        self.coefficients = np.zeros((len(full), len(full)))
        for cause, effect in full.edges:
            self.coefficients[self.at[effect], self.at[cause]] = rng.uniform(0.5, 1.5) * rng.choice([-1, 1])
        self.noise = np.diag(rng.uniform(0.5, 1.5, len(full)))

    def total(self, actions=()) -> np.ndarray:
        """The effect of each node's noise, or of the value it is set to, on every node."""
        kept = np.array([name not in actions for name in self.names])
        return np.linalg.inv(np.eye(len(self.names)) - self.coefficients * kept[:, None])

    def covariance(self, actions=()) -> np.ndarray:
        free = np.diag([name not in actions for name in self.names]).astype(float)
        total = self.total(actions)
        return total @ free @ self.noise @ total.T

    def law(self, y, actions, given) -> tuple[np.ndarray, np.ndarray]:
        """The law of y after an intervention, given others: coefficients on all nodes, and covariance."""
        rows, seen, done = ([self.at[name] for name in sorted(names)] for names in (y, given, actions))
        covariance, total = self.covariance(actions), self.total(actions)
        slopes = covariance[np.ix_(rows, seen)] @ np.linalg.inv(covariance[np.ix_(seen, seen)])
        mean = np.zeros((len(rows), len(self.names)))
        mean[:, seen] = slopes
        mean[:, done] = total[np.ix_(rows, done)] - slopes @ total[np.ix_(seen, done)]
        return mean, covariance[np.ix_(rows, rows)] - slopes @ covariance[np.ix_(seen, rows)]


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Leave out the checks of types at each call, which take most of the time where calls are many and small."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)


@pytest.fixture(scope="session")
def brute() -> SimpleNamespace:
    """What the tests of this folder share."""
    return SimpleNamespace(
        subsets=subsets,
        all_dags=all_dags,
        random_graph=random_graph,
        effects=effects,
        random_effects=random_effects,
        Paths=Paths,
        Criteria=Criteria,
        LinearModel=LinearModel,
    )
