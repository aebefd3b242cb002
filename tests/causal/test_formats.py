"""Graphs from text and from NumPyro models, and back to text."""

from __future__ import annotations

import jax.numpy as jnp
import networkx as nx
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from kpp.causal import CausalDAG, CausalError, GraphSyntaxError, as_graph, find_adjustment
from kpp.plots import causal_graph

CONFOUNDED = CausalDAG([("x", "y"), ("u", "x"), ("u", "y")], bidirected=[("x", "z")], latent="u")

DOT = """
// a comment
strict digraph "my graph" {
    rankdir = LR; node [shape=circle, color="#aabbcc"]
    u [observed=no, label="U, hidden"]
    u -> { x y }   /* two at once */
    subgraph cluster_1 { label=inner; x -> y; }
    x -> z [dir=both, penwidth=2.5];
}
"""

# As dagitty.net writes it: positions, roles, and a bounding box.
DAGITTY = """dag {
bb="-2.3,-2,1.9,1"
u [latent,pos="-0.5,-1.2"]
x [exposure,pos="-2.1,0.4"]
y [outcome,pos="1.3,0.4"]
z [adjusted,pos="0.1,0.9"]
u -> x [beta=-0.3]
u -> y
y <- x <-> z
}"""


def test_dot_and_dagitty_are_read():
    assert CausalDAG.from_dot(DOT) == CONFOUNDED
    assert CausalDAG.from_dagitty(DAGITTY) == CONFOUNDED


@pytest.mark.parametrize(
    "mark", ["u", "l", "U", "latent", "unobserved", "Latent", "u=1", 'observed="no"', "u, observed"]
)
def test_each_mark_of_a_hidden_node_hides_it(mark):
    """dagitty's parser has the four names in small letters; its older format has capitals."""
    for read, header in ((CausalDAG.from_dagitty, "dag"), (CausalDAG.from_dot, "digraph")):
        assert read(f'{header} {{ c [{mark}, pos="1,2"] c -> x; c -> y; x -> y }}').latent == {"c"}
    with pytest.raises(CausalError):
        find_adjustment(as_graph(f"dag {{ c [{mark}] c -> x c -> y x -> y }}"), treatment="x", outcome="y")


@pytest.mark.parametrize(
    "mark", ["e", "o", "a", "exposure", "outcome", "adjusted", "source", "target", 'label="U"', "Shape=box"]
)
def test_roles_and_drawing_leave_a_graph_unchanged(mark):
    assert CausalDAG.from_dagitty(f"dag {{ x [{mark}] x -> y [beta=.3, Label=u] }}") == CausalDAG([("x", "y")])


def test_html_labels_are_skipped():
    table = '<<TABLE><TR><TD PORT="p">a &lt; b</TD></TR>\n</TABLE>>'
    text = f'DiGraph {{ label=<<b>G</b>>; "25" [label= <(a)<SUB>4</SUB>>]; "25" -> x [label={table}] }}'
    assert as_graph(text) == CausalDAG([("25", "x")])


@pytest.mark.parametrize("before", ["", "// of a digraph\n", "/* dag */ ", "# digraph\n", "\n\t"])
def test_the_first_word_names_the_language(before):
    for header in ("dag", "DAG g", "digraph", "Strict DiGraph dag"):
        assert as_graph(f"{before}{header} {{ a -> b }}") == CausalDAG([("a", "b")])


def test_a_dagitty_edge_with_both_directions_is_bidirected():
    assert CausalDAG.from_dagitty("dag { a <- b [dir=both] }") == CausalDAG(bidirected=[("a", "b")])


def test_attributes_of_a_networkx_graph_are_not_lost():
    graph = nx.DiGraph([("u", "x")])
    graph.add_node("u", observed="no")
    with pytest.raises(CausalError, match=r"at the nodes \['u'\]: name the latent nodes in `latent`"):
        CausalDAG(graph)


def test_what_is_written_as_dot_is_read_as_it_was(brute):
    rng = np.random.default_rng(7)
    for graph in [CONFOUNDED, *(brute.random_graph(rng, latent=0.3) for _ in range(20))]:
        again = CausalDAG.from_dot(graph.to_dot())
        assert again == graph and again.nodes == graph.nodes
    odd = CausalDAG([('a "quoted" -> name', "back\\slash"), ("bmi at 40 {", "température")])
    assert CausalDAG.from_dot(odd.to_dot()) == odd


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("graph { a -- b }", "must be a directed graph in DOT, got 'graph"),
        ("digraph { a -> b", "line 1 of `text`: a name is needed, got 'the end'"),
        ("digraph {\n a ->\n}", "line 3 of `text`: a name is needed, got '}'"),
        ("digraph { a -- b }", "the arrow must be ->, got --"),
        ("digraph { a:port -> b }", "ports are not supported, got one of 'a'"),
        ("digraph { a -> b [dir=back] }", "the edge a -> b must have `dir` forward or both, got 'back'"),
        ("digraph { edge [dir=both]; a -> b }", r"write \['dir'\] on each edge"),
        ("digraph { a [latent=perhaps] }", "the attribute `latent` of a must be true or false, got 'perhaps'"),
        ("digraph { a } b", "nothing may follow the graph, got 'b'"),
        ("digraph {\n a & b }", "line 2 of `text`: no DOT at '& b }'"),
        ("digraph { a [label=<b<i>c</i>] }", "no DOT at '<b<i>c</i>"),
        ("digraph { node [u]; a -> b }", r"write \['u'\] on each node"),
        ("digraph { a -> b [lhead=cluster_1] }", r"the edge's attributes \['lhead'\] are unknown"),
        ("digraph { a -> b [style=invis] }", "leave out each edge that is invisible or has no arrowhead"),
        ("digraph { a [selected=true]; a -> b }", "selected nodes are not supported"),
    ],
)
def test_text_that_is_no_dot_is_refused_with_its_line(text, message):
    with pytest.raises(GraphSyntaxError, match=message):
        CausalDAG.from_dot(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pdag { a -- b }", "must be a directed graph in dagitty"),
        ("dag { a -- b }", "the arrow must be -> or <- or <->, got --"),
        ("dag { a -> b; b [selected] }", r"selected nodes are not supported, got \['b'\]"),
        ("dag { b [s] a -> b }", r"selected nodes are not supported, got \['b'\]"),
        ("dag {\n a -> b\n c [hidden] }", r"line 3 of `text`: the node's attributes \['hidden'\] are unknown"),
        ("dag { a -> b [latent] }", r"the edge's attributes \['latent'\] are unknown: write dir, or leave them out"),
    ],
)
def test_dagitty_that_is_no_causal_graph_is_refused(text, message):
    with pytest.raises(GraphSyntaxError, match=message):
        CausalDAG.from_dagitty(text)


def test_lavaan_is_read():
    """The example of lavaan's own tutorial on syntax, with fixed parameters, definitions and odd line breaks."""
    text = """
    # regressions
    y1 + y2 ~ a*f1 + f2 +
       x1   # goes on
    f1 ~ start(0.5)*f2 + 0*x2
    ! latent variables
    f1 =~ 1*i1 + NA*i2 ; f2 =~ i3
    y1 ~~ y1; y1 ~~ y2; x1 ~~ 0*x2; i1 ~~ i3
    y1 ~ 1
    total := a*b
    a == 2; b > 0
    """
    expected = CausalDAG(
        [
            *(("f1", y) for y in ("y1", "y2")),
            *(("f2", y) for y in ("y1", "y2", "f1", "i3")),
            *(("x1", y) for y in ("y1", "y2")),
            *(("f1", y) for y in ("i1", "i2")),
        ],
        nodes=["x2"],
        latent=["f1", "f2"],
        bidirected=[("y1", "y2"), ("i1", "i3")],
    )
    assert CausalDAG.from_lavaan(text) == expected == as_graph(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("y = x", "must hold statements with ~, ~~ or =~, got 'y = x'"),
        ("y ~ x; u | t1", r"must hold statements with ~, ~~ or =~, got 'u \| t1'"),
        ("f <~ x", "must hold statements with ~, ~~ or =~, got 'f <~ x'"),
        ("y ~ x:z", "must hold sums of names, got 'x:z' in 'y ~ x:z'"),
        ("y ~ x +", "must hold sums of names, got '' in"),
    ],
)
def test_lavaan_that_is_no_graph_is_refused(text, message):
    with pytest.raises(GraphSyntaxError, match=message):
        CausalDAG.from_lavaan(text)


def model(x=None, y=None, size=3):
    """A hidden cause in each unit, a slope for all units, and the mean as a deterministic site."""
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    scale = numpyro.param("scale", 1.0)
    with numpyro.plate("units", size):
        u = numpyro.sample("u", dist.Normal(0.0, 1.0))
        x = numpyro.sample("x", dist.Normal(u, 1.0), obs=x)
        twice = numpyro.deterministic("twice", 2.0 * x)
        mean = numpyro.deterministic("mean", slope * x + u)
        y = numpyro.sample("y", dist.Normal(mean, scale), obs=y)
    numpyro.sample("total", dist.Normal(y.sum() + twice.sum(), 1.0))


EDGES = [("u", "x"), ("x", "twice"), ("x", "mean"), ("u", "mean"), ("mean", "y"), ("y", "total"), ("twice", "total")]


def test_sites_of_a_numpyro_model_become_nodes():
    assert CausalDAG.from_numpyro(model) == CausalDAG([*EDGES, ("slope", "mean")])


def test_a_plate_leaves_out_what_is_the_same_for_all_its_units():
    assert CausalDAG.from_numpyro(model, plate="units") == CausalDAG(EDGES)


def test_sites_without_data_are_latent_unless_observed_sites_determine_them():
    data = jnp.zeros(4)
    graph = CausalDAG.from_numpyro(model, data, y=data, size=4)
    assert graph.latent == {"slope", "u", "mean", "total"}
    assert graph.observed == {"x", "twice", "y"}
    assert CausalDAG.from_numpyro(model, data, y=data, size=4, plate="units").latent == {"u", "mean", "total"}


def test_a_plate_that_numpyro_splits_keeps_all_its_sites():
    """Plates that overlap: NumPyro puts what only the second holds under a name of its own."""

    def crossed():
        rows, columns = numpyro.plate("rows", 2, dim=-1), numpyro.plate("columns", 3, dim=-2)
        with rows:
            a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        with columns:
            b = numpyro.sample("b", dist.Normal(0.0, 1.0))
        with rows, columns:
            numpyro.sample("c", dist.Normal(a + b, 1.0))

    assert CausalDAG.from_numpyro(crossed, plate="rows") == CausalDAG([("a", "c")])
    assert CausalDAG.from_numpyro(crossed, plate="columns") == CausalDAG([("b", "c")])


def test_models_that_no_graph_describes_are_refused():
    def factored():
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))
        numpyro.factor("penalty", -(x**2))

    with pytest.raises(
        CausalError, match=r"must be a product of its sites' distributions, got the factors \['penalty'\]"
    ):
        CausalDAG.from_numpyro(factored)
    with pytest.raises(CausalError, match=r"`plate` must be a plate of the model .* one of \['units'\], got 'rows'"):
        CausalDAG.from_numpyro(model, plate="rows")


def test_a_plot_shows_every_node_and_every_edge():
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.patches import FancyArrowPatch

    graph = CausalDAG([("x", "m"), ("m", "y"), ("x", "y"), ("u", "y")], bidirected=[("x", "y")], latent="u")
    ax = causal_graph(graph, highlight={"x": "red"}, labels={"y": "Y"})
    ax.figure.canvas.draw()
    assert sorted(text.get_text() for text in ax.texts) == ["Y", "m", "u", "x"]
    arrows = [patch for patch in ax.patches if isinstance(patch, FancyArrowPatch)]
    assert len(arrows) == len(graph.edges) + len(graph.bidirected)
    assert sum(arrow.get_linestyle() in ("--", "dashed") for arrow in arrows) == 1
    assert causal_graph(CausalDAG(nodes=["a"])) is not ax
    with pytest.raises(CausalError, match="`highlight` names no node"):
        causal_graph(graph, highlight={"q": "red"})
    with pytest.raises(ValueError, match="`graph` must have at least one node"):
        causal_graph(CausalDAG(nx.DiGraph()))
    matplotlib.pyplot.close("all")


def test_a_large_graph_is_drawn_in_few_calls_and_in_a_figure_that_can_be_saved(monkeypatch):
    """One call for each bend of an edge; an image of more than 2^16 pixels per side cannot be drawn."""
    import matplotlib

    matplotlib.use("Agg")
    calls, draw = [], nx.draw_networkx_edges
    monkeypatch.setattr(nx, "draw_networkx_edges", lambda *args, **kwargs: calls.append(1) or draw(*args, **kwargs))
    names = [f"v{place}" for place in range(60)]
    steps = [(a, b) for gap in (1, 2) for a, b in zip(names, names[gap:], strict=False)]
    ax = causal_graph(CausalDAG(steps))
    assert len(calls) <= 4 and max(ax.figure.get_size_inches()) <= 50.0
    assert len([patch for patch in ax.patches if isinstance(patch, matplotlib.patches.FancyArrowPatch)]) == len(steps)
    matplotlib.pyplot.close("all")
