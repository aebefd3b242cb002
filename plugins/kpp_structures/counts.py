"""Tables of counts of substructures: pieces of strings, and neighborhoods of the nodes of graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd

from kpp.foundation.validation import count


def spectrum_features(
    strings: Sequence[str] | pd.Series, length: int, *, columns: Iterable[str] | None = None
) -> pd.DataFrame:
    r"""Count the pieces of a fixed length in strings, which may overlap: the features of the spectrum kernel.

    ``Linear`` on all columns is the spectrum kernel. The same counts also go to `RBF` or `Tanimoto`.

    Args:
        strings: n strings. One that is shorter than `length` has no piece, a row of zeros.
        length: The number of characters of a piece.
        columns: The pieces to count, in their order, to give new strings the columns of a table:
            ``columns=table.columns``. None for all pieces that occur, in alphabetical order.

    Returns:
        The counts, one row for each string and one column for each piece, which names it. ``attrs["left_out"]`` lists
        for each row how many pieces are counted in no column.

    Raises:
        ValueError: If `strings` has no string, no piece occurs and `columns` is None, or a column is not a piece of
            this length.
        TypeError: If `strings` is one string, or holds something else, such as a missing value.

    References:
        Leslie, Eskin and Noble, The spectrum kernel: a string kernel for SVM protein classification, 2002.
    """
    length = count(length, "length")
    columns = None if columns is None else list(columns)
    if wrong := [name for name in columns or [] if len(name) != length]:
        raise ValueError(f"`columns` must be pieces of {length} characters, as `length` says, got {wrong[0]!r}")
    if strange := [text for text in strings if not isinstance(text, str)]:
        raise TypeError(f"`strings` must be a list of strings, got {strange[0]!r} in it")
    pieces = [Counter(text[i : i + length] for i in range(len(text) - length + 1)) for text in strings]
    return _table(pieces, columns, "strings", strings)


def weisfeiler_lehman_features(
    graphs: Iterable[Any], depth: int, *, node_attr: str | None = None, columns: Iterable[str] | None = None
) -> pd.DataFrame:
    r"""Count the neighborhoods of nodes in graphs: the features of the Weisfeiler-Lehman subtree kernel.

    The neighborhood of depth 0 is the label of a node. That of depth h is its label with the neighborhoods of depth
    h - 1 of its neighbors, in alphabetical order: ``C(C,O)`` is a node C with neighbors C and O. Each node is counted
    once for each depth from 0 to `depth`. ``Linear`` on all columns is the Weisfeiler-Lehman subtree kernel.

    Args:
        graphs: n undirected graphs of networkx, without parallel edges. Labels of edges are not used.
        depth: The largest depth, at least 0. The names of columns grow quickly with it.
        node_attr: The attribute that holds the labels of nodes, compared as texts; they may not contain ``(``, ``)`` or
            a comma. None for nodes without labels, written ``*``.
        columns: The neighborhoods to count, in their order, to give new graphs the columns of a table:
            ``columns=table.columns``. None for all that occur, in alphabetical order.

    Returns:
        The counts, one row for each graph and one column for each neighborhood, which names it. ``attrs["left_out"]``
        lists for each row how many neighborhoods are counted in no column.

    Raises:
        ValueError: If `graphs` has no graph, no node occurs and `columns` is None, a node has no label or an invalid
            one, or a column is deeper than `depth`.
        TypeError: If `graphs` is not a list of such graphs.

    References:
        Shervashidze, Schweitzer, van Leeuwen, Mehlhorn and Borgwardt, Weisfeiler-Lehman graph kernels, 2011,
        section 3.2.
    """
    depth = count(depth, "depth", 0)
    columns = None if columns is None else list(columns)
    for name in columns or []:
        if max(accumulate((letter == "(") - (letter == ")") for letter in name), default=0) > depth:
            raise ValueError(f"`columns` must be neighborhoods up to the depth {depth}, as `depth` says, got {name!r}")
    counts = []
    for place, graph in enumerate(graphs):
        labels = own = _labels(graph, node_attr, place)
        found = Counter(own.values())
        for _ in range(depth):
            around = {node: sorted(labels[other] for other in graph.neighbors(node)) for node in graph}
            # A node without neighbors gets one more pair of brackets, so that depths have different names.
            labels = {
                node: f"{own[node] if around[node] else labels[node]}({','.join(around[node])})" for node in graph
            }
            found.update(labels.values())
        counts.append(found)
    return _table(counts, columns, "graphs", graphs)


def _labels(graph: object, node_attr: str | None, place: int) -> dict[Any, str]:
    """Return the label of each node of a graph."""
    if not isinstance(graph, nx.Graph) or graph.is_directed() or graph.is_multigraph():
        raise TypeError(
            f"`graphs` must be a list of undirected graphs `networkx.Graph`, got {type(graph).__name__} at {place}"
        )
    if node_attr is None:
        return dict.fromkeys(graph, "*")
    labels = {node: data[node_attr] for node, data in graph.nodes.items() if node_attr in data}
    if len(labels) < len(graph):
        node = next(node for node in graph if node not in labels)
        raise ValueError(f"`node_attr` is {node_attr!r}, but node {node!r} of the graph at {place} has no such label")
    texts = {node: str(label) for node, label in labels.items()}
    if wrong := [text for text in texts.values() if set(text) & set("(),")]:
        raise ValueError(f"labels of nodes may not contain brackets or commas, got {wrong[0]!r} as `node_attr`")
    return texts


def _table(counts: list[Counter], columns: list[str] | None, name: str, structures: Iterable[Any]) -> pd.DataFrame:
    """Return counts of substructures as a table."""
    names = sorted(set().union(*counts)) if columns is None else columns
    if not counts or not names:
        raise ValueError(f"`{name}` must hold at least one substructure to count, got none in {len(counts)} {name}")
    values = np.array([[found[column] for column in names] for found in counts])
    table = pd.DataFrame(values, structures.index if isinstance(structures, pd.Series) else None, names)
    table.attrs["left_out"] = [found.total() - int(row.sum()) for found, row in zip(counts, values, strict=True)]
    return table
