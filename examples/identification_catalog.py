"""Write every causal effect on every small graph, identified or not, so that other libraries can test against it.

    python examples/identification_catalog.py [--nodes 4] [--output build/identification.jsonl]

Each line is a question about P(y | do(x)) on a graph with directed and bidirected edges: `edges`, `bidirected`,
`treatment`, `outcome`, whether the effect is `identified`, the `expression` (text and LaTeX), the largest `error` of
the expression in random discrete models of the graph, all `adjustment_sets` and all `frontdoor_sets`. If the effect is
not identified, the line has the edges of the `hedge` that proves it. Graphs that differ only by the names of their
nodes are written once.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from kpp.causal import CausalDAG, NotIdentifiableError, adjustment_sets, frontdoor_sets, identify

MODELS = 3


def graphs(num_nodes: int) -> Iterator[CausalDAG]:
    """One graph of each class of graphs that differ by names; the nodes are sorted topologically."""
    nodes, seen = list("abcdefgh"[:num_nodes]), set()
    pairs = list(itertools.combinations(range(num_nodes), 2))
    orders = list(itertools.permutations(range(num_nodes)))
    for kinds in itertools.product(range(4), repeat=len(pairs)):
        chosen = [(pair, kind) for pair, kind in zip(pairs, kinds, strict=True) if kind]
        forms = (
            (
                tuple(sorted((order[i], order[j]) for (i, j), kind in chosen if kind & 1)),
                tuple(sorted(tuple(sorted((order[i], order[j]))) for (i, j), kind in chosen if kind & 2)),
            )
            for order in orders
        )
        form = min(forms)
        if form not in seen:
            seen.add(form)
            yield CausalDAG(
                [(nodes[i], nodes[j]) for (i, j), kind in chosen if kind & 1],
                nodes=nodes,
                bidirected=[(nodes[i], nodes[j]) for (i, j), kind in chosen if kind & 2],
            )


def entry(graph: CausalDAG, treatment: str, outcome: str) -> dict[str, Any]:
    """The answers to one question."""
    asked = {"treatment": treatment, "outcome": outcome}
    line: dict[str, Any] = {
        "nodes": list(graph.nodes),
        "edges": [list(edge) for edge in graph.edges],
        "bidirected": sorted(graph.sort(pair) for pair in graph.bidirected),
        **asked,
    }
    try:
        estimand = identify(graph, **asked)
    except NotIdentifiableError as error:
        larger = error.hedge.forest
        hedge = {"edges": [list(edge) for edge in larger.edges], "bidirected": sorted(map(sorted, larger.bidirected))}
        return line | {"identified": False, "hedge": hedge}
    return line | {
        "identified": True,
        "expression": estimand.text(),
        "latex": estimand.latex(),
        "error": estimand.verify(graph, MODELS),
        "adjustment_sets": [graph.sort(found) for found in adjustment_sets(graph, **asked)],
        "frontdoor_sets": [graph.sort(found) for found in frontdoor_sets(graph, **asked)],
    }


def catalog(num_nodes: int) -> Iterator[dict[str, Any]]:
    """All questions about a treatment and an outcome that it may cause, on all graphs of a size."""
    for graph in graphs(num_nodes):
        for treatment, outcome in itertools.permutations(graph.nodes, 2):
            if outcome in graph.descendants(treatment):
                yield entry(graph, treatment, outcome)


@click.command()
@click.option("--nodes", type=click.IntRange(2, 5), default=4, show_default=True, help="The most nodes of a graph.")
@click.option(
    "--output", type=click.Path(path_type=Path), default=Path("build/identification.jsonl"), show_default=True
)
def main(nodes: int, output: Path) -> None:
    """Write the catalog."""
    output.parent.mkdir(parents=True, exist_ok=True)
    counts, worst = [0, 0], 0.0
    with output.open("w", encoding="utf-8") as file:
        for line in itertools.chain.from_iterable(map(catalog, range(2, nodes + 1))):
            counts[line["identified"]] += 1
            worst = max(worst, line.get("error", 0.0))
            file.write(json.dumps(line) + "\n")
    print(
        f"{counts[1]} effects are identified, {counts[0]} are not; the largest error of an expression is {worst:.0e}."
    )
    print(f"Written to {output}.")


if __name__ == "__main__":
    main()
