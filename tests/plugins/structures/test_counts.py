"""Counts of substructures against brute force, networkx, scikit-learn and naive definitions of the kernels."""

from __future__ import annotations

from collections import Counter

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from sklearn.feature_extraction.text import CountVectorizer

from kpp.kernels import Linear
from kpp_structures import spectrum_features, weisfeiler_lehman_features

RNG = np.random.default_rng(0)
STRINGS = ["".join(np.random.default_rng(seed).choice(list("ACGT"), size=5 + 2 * seed)) for seed in range(8)]


def graphs(num: int, seed: int = 0) -> list[nx.Graph]:
    """Random labeled graphs, each with a node without neighbors and a loop."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(num):
        graph = nx.gnp_random_graph(8, 0.3, seed=int(rng.integers(2**31)))
        graph.add_node("alone")
        graph.add_edge(0, 0)
        nx.set_node_attributes(graph, {node: str(rng.choice(["C", "N", "O"])) for node in graph}, "atom")
        found.append(graph)
    return found


@pytest.mark.parametrize("length", [1, 2, 3])
def test_pieces_are_counted_at_every_place(length):
    table = spectrum_features(STRINGS, length)
    assert list(table.columns) == sorted({s[i : i + length] for s in STRINGS for i in range(len(s) - length + 1)})
    for place, text in enumerate(STRINGS):
        for piece in table.columns:
            assert table.loc[place, piece] == sum(text.startswith(piece, i) for i in range(len(text)))
    vectorizer = CountVectorizer(analyzer="char", ngram_range=(length, length), lowercase=False)
    np.testing.assert_array_equal(table, vectorizer.fit_transform(STRINGS).toarray())


def test_linear_on_pieces_is_the_spectrum_kernel():
    naive = [
        [sum(a[i : i + 2] == b[j : j + 2] for i in range(len(a) - 1) for j in range(len(b) - 1)) for b in STRINGS]
        for a in STRINGS
    ]
    np.testing.assert_allclose(Linear().gram(spectrum_features(STRINGS, 2).to_numpy()), naive)


def test_new_strings_get_the_columns_of_a_table():
    train = spectrum_features(pd.Series(["ACGA", "GAC"], index=["first", "second"]), 2)
    assert list(train.index) == ["first", "second"] and train.attrs["left_out"] == [0, 0]
    new = spectrum_features(["ACTTAC", "A", "TTT"], 2, columns=train.columns)
    assert list(new.columns) == list(train.columns) == ["AC", "CG", "GA"]
    assert new.to_numpy().tolist() == [[2, 0, 0], [0, 0, 0], [0, 0, 0]]
    assert new.attrs["left_out"] == [3, 0, 2]


def naive_labels(graph: nx.Graph, depth: int) -> dict:
    """The nested tuples that the method of Weisfeiler and Lehman abbreviates."""
    own = labels = dict(graph.nodes(data="atom"))
    for _ in range(depth):
        labels = {node: (labels[node], tuple(sorted(map(repr, (labels[o] for o in graph[node]))))) for node in own}
    return labels


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_linear_on_neighborhoods_is_the_weisfeiler_lehman_kernel(depth):
    some = graphs(5)
    found = Linear().gram(weisfeiler_lehman_features(some, depth, node_attr="atom").to_numpy())
    counts = [[Counter(naive_labels(graph, h).values()) for h in range(depth + 1)] for graph in some]
    naive = [
        [sum(c[label] * d[label] for c, d in zip(a, b, strict=True) for label in c) for b in counts] for a in counts
    ]
    np.testing.assert_allclose(found, naive)


def test_neighborhoods_divide_the_nodes_as_the_hashes_of_networkx_do():
    some = graphs(6, seed=1)
    hashes = [
        nx.weisfeiler_lehman_subgraph_hashes(graph, node_attr="atom", iterations=2, include_initial_labels=True)
        for graph in some
    ]
    table = weisfeiler_lehman_features(some, 2, node_attr="atom")
    counts = [
        Counter((depth, label) for node in found.values() for depth, label in enumerate(node)) for found in hashes
    ]
    names = sorted(set().union(*counts))
    theirs = np.array([[found[name] for name in names] for found in counts])
    assert sorted(map(tuple, theirs.T)) == sorted(map(tuple, table.to_numpy().T.tolist()))


def test_names_of_neighborhoods_can_be_read():
    ethanol = nx.Graph([(0, 1), (1, 2)])
    nx.set_node_attributes(ethanol, {0: "C", 1: "C", 2: "O"}, "atom")
    table = weisfeiler_lehman_features([ethanol], 2, node_attr="atom")
    expected = ["C", "C(C(C),O(C))", "C(C(C,O))", "C(C)", "C(C,O)", "O", "O(C(C,O))", "O(C)"]
    assert list(table.columns) == expected and table.loc[0, "C"] == 2 and table.loc[0, "C(C,O)"] == 1
    single = nx.Graph()
    single.add_node("alone")
    assert list(weisfeiler_lehman_features([single], 2).columns) == ["*", "*()", "*()()"]
    new = weisfeiler_lehman_features([single, nx.Graph([(0, 1)])], 1, columns=["*", "*(*,*)"])
    assert new.to_numpy().tolist() == [[1, 0], [2, 0]] and new.attrs["left_out"] == [1, 2]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: spectrum_features("ACGT", 2), "`strings` must be a list"),
        (lambda: spectrum_features(["A", None], 2), "`strings` must be a list"),
        (lambda: spectrum_features(pd.Series(["AC", np.nan]), 2), "`strings` must be a list of strings, got nan in it"),
        (lambda: spectrum_features([], 2), "`strings` must hold at least one substructure .* none in 0 strings"),
        (lambda: spectrum_features(["A"], 2), "`strings` must hold at least one substructure .* none in 1 strings"),
        (lambda: spectrum_features(["ACGT"], 0), "`length` must be at least 1, got 0"),
        (lambda: spectrum_features(["ACGT"], 2, columns=["AC", "ACG"]), "pieces of 2 characters.* got 'ACG'"),
        (lambda: spectrum_features(["ACGT"], 2, columns="AC"), "`columns` must be a list of names"),
        (lambda: weisfeiler_lehman_features([], 1), "`graphs` must hold at least one .* none in 0 graphs"),
        (lambda: weisfeiler_lehman_features([nx.Graph()], 1), "`graphs` must hold at least one .* none in 1 graphs"),
        (lambda: weisfeiler_lehman_features(graphs(1), -1), "`depth` must be at least 0, got -1"),
        (lambda: weisfeiler_lehman_features(graphs(1), 1, node_attr="atm"), "`node_attr` is 'atm', but node 0 of the"),
        (lambda: weisfeiler_lehman_features(graphs(1), 1, columns=["*(*(*))"]), r"up to the depth 1.*\*\(\*\(\*\)\)"),
    ],
)
def test_bad_input_of_tables(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()


def test_labels_of_nodes_have_no_brackets():
    graph = nx.Graph()
    graph.add_node(0, atom="C(C")
    with pytest.raises(ValueError, match=r"may not contain brackets or commas, got 'C\(C' as `node_attr`"):
        weisfeiler_lehman_features([graph], 1, node_attr="atom")


@pytest.mark.parametrize("wrong", [[nx.DiGraph([(0, 1)])], [nx.MultiGraph()], [3], nx.Graph([(0, 1)])])
def test_graphs_are_undirected_graphs_of_networkx(wrong):
    with pytest.raises(TypeError, match="`graphs` must be a list of undirected graphs `networkx.Graph`, got "):
        weisfeiler_lehman_features(wrong, 1)
