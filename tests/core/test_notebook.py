"""Representations in notebooks are well-formed HTML, escape every text, and show what they promise."""

from __future__ import annotations

import dataclasses
import functools
import html.parser
import xml.etree.ElementTree as ET
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
import xarray as xr

import kpp
from kpp.causal import CausalDAG
from kpp.kernels import RBF, Categorical
from kpp.preferences import Matches
from kpp.registry import get
from kpp.runtime.notebook import Html, bar, details, escaped, items, panel, table
from kpp.storage import arviz_data

EVIL = '<b onclick="x">&amp;</b>'
KEY = jax.random.key(0)
NUTS = kpp.NUTS()


class Elements(html.parser.HTMLParser):
    """All elements of a text, with an error if they are not nested properly."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open, self._open

    def handle_starttag(self, tag, attrs):
        self.found.append(tag)
        self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.found.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


@functools.cache
def fit():
    rng = np.random.default_rng(0)
    x = pd.DataFrame(rng.normal(size=(12, 2)), columns=[EVIL, "b"])
    model = get("models", "GPRegression")(RBF(dist.LogNormal(0.0, 1.0)), noise_variance=dist.HalfNormal(1.0))
    return model.fit(KEY, x, rng.normal(size=12), inference=kpp.MAP(progress=False), num_prior_samples=0)


def fit_with_draws(inference=NUTS):
    """The fit with other draws, and a site of many numbers."""
    rng = np.random.default_rng(2)
    draws = {name: rng.normal(size=(2, 50)) for name in fit().draws} | {"latent": rng.normal(size=(2, 50, 30))}
    dims = {"latent": ("chain", "draw", "instance")}
    posterior = xr.Dataset({name: (dims.get(name, ("chain", "draw")), value) for name, value in draws.items()})
    posterior = posterior.assign_coords(chain=range(2), draw=range(50))
    idata = arviz_data.from_groups({"posterior": posterior}, {"divergences": 3})
    draws = {name: jnp.asarray(value) for name, value in draws.items()}
    return dataclasses.replace(fit(), draws=draws, arviz=idata, inference=inference)


def explanation(draws=False):
    rng = np.random.default_rng(1)
    values = rng.normal(size=(2, 30, 4, 3) if draws else (4, 3))
    return kpp.Explanation.create(
        values,
        0.0,
        values.sum(-1),
        rng.normal(size=(4, 3)),
        feature_names=[EVIL, "b", "c"],
        draws=draws,
        attrs={"explainer": EVIL},
    )


def matches():
    items_ = pd.DataFrame({EVIL: [1.0, 2.0, 3.0], "b": [0.0, 1.0, 0.5]})
    found = Matches.from_counts(items_, [0, 0, 1], [1, 2, 2], [3, 1, 0], [1, 0, 2], [0, 1, 0])
    return Matches(**{**vars(found), "item_names": (EVIL, "two", "three")})


def graph():
    edges = [(EVIL, "dose"), ("dose", "y"), (EVIL, "y"), ("hidden", "y")]
    return CausalDAG(edges, nodes=["alone"], latent=["hidden"], bidirected=[("dose", "y")])


OBJECTS: dict[str, Callable] = {
    "fit, one draw": fit,
    "fit, draws": fit_with_draws,
    "explanation": explanation,
    "explanation, draws": lambda: explanation(draws=True),
    "kernel": lambda: 2.0 * RBF(dist.LogNormal(0.0, 1.0)).on([EVIL]) + Categorical(0.3).on(["c"]),
    "matches": matches,
    "graph": graph,
}


@pytest.fixture(scope="module", params=OBJECTS)
def shown(request) -> str:
    return OBJECTS[request.param]()._repr_html_()


@pytest.mark.slow_variants("fit, one draw", "fit, draws")
def test_elements_are_closed_and_no_text_becomes_an_element(shown):
    elements = Elements(shown)
    assert "b" not in elements.found and "script" not in elements.found and EVIL not in shown
    joined = "".join(elements.texts)
    assert EVIL in joined or EVIL not in shown.replace("&lt;", "<")


def test_a_hostile_name_is_shown_as_text():
    for name in ("explanation", "kernel", "matches", "graph"):
        assert EVIL in "".join(Elements(OBJECTS[name]()._repr_html_()).texts), name


@pytest.mark.slow
def test_a_fit_shows_its_posterior_with_diagnostics():
    shown = fit_with_draws()._repr_html_()
    mean = float(fit_with_draws().draws["kernel.lengthscale"].mean())
    assert "GPRegression by NUTS" in shown and "R-hat" in shown and f"{mean:.4g}" in shown
    assert "2 chains of 50 draws, 3 divergent" in shown and "Not shown: latent (30 numbers)" in shown
    assert "LogNormal" in shown and "noise_variance" in shown
    assert "R-hat" not in fit_with_draws(kpp.Laplace())._repr_html_()  # its draws are no chains


def test_an_explanation_lists_the_most_important_features_first():
    found = explanation()
    importance = abs(found.values).mean("instance").values
    texts = Elements(found._repr_html_()).texts
    order = [found.feature_names[j] for j in np.argsort(-importance)]
    assert [text for text in texts if text in order][:3] == order
    assert f"{importance.max():.3g}" in texts


def test_a_lazy_explanation_is_not_computed():
    pytest.importorskip("dask")
    lazy = kpp.Explanation(explanation().dataset.chunk(instance=2))
    assert "computed when they are needed" in lazy._repr_html_()


def test_matches_show_the_records_of_their_items():
    rows = Elements(matches()._repr_html_()).texts
    position = rows.index("two")
    # It won 1 and lost 3 of its matches with the first item, and lost 2 to the third.
    assert rows[position + 1 : position + 5] == ["6", "1", "5", "0"]


def test_traced_matches_are_shown_as_text():
    assert "<table" not in jax.eval_shape(lambda value: value, matches())._repr_html_()


def test_the_drawing_of_a_graph_has_its_nodes_and_edges():
    """It is XML; each edge begins and ends on the border of its nodes, and nothing lies outside of the view box."""
    root = ET.fromstring(graph()._repr_html_())
    space = "{http://www.w3.org/2000/svg}"
    ellipses = root.findall(f"{space}ellipse")
    assert [text.text for text in root.findall(f"{space}text")] == list(graph().nodes)
    assert sum("stroke-dasharray" in ellipse.attrib for ellipse in ellipses) == 1  # the latent node
    paths = root.findall(f"{space}path")
    assert len(paths) == 5 and sum("stroke-dasharray" in path.attrib for path in paths) == 1
    assert len(root.findall(f"{space}polygon")) == 6  # two tips of the bidirected edge
    places = {node: ellipse.attrib for node, ellipse in zip(graph().nodes, ellipses, strict=True)}
    for (cause, effect), path in zip(graph().edges, paths, strict=False):
        numbers = [float(word) for word in path.attrib["d"].replace("M", " ").replace("Q", " ").split()]
        for node, x, y in ((cause, *numbers[:2]), (effect, *numbers[-2:])):
            cx, cy, rx, ry = (float(places[node][key]) for key in ("cx", "cy", "rx", "ry"))
            assert ((x - cx) / rx) ** 2 + ((y - cy) / ry) ** 2 == pytest.approx(1.0, abs=0.02)
    left, top, width, height = map(float, root.attrib["viewBox"].split())
    for ellipse in ellipses:
        cx, cy, rx, ry = (float(ellipse.attrib[key]) for key in ("cx", "cy", "rx", "ry"))
        assert left <= cx - rx and cx + rx <= left + width and top <= cy - ry and cy + ry <= top + height


def test_a_graph_without_nodes_is_shown_as_text():
    assert CausalDAG()._repr_html_() == "CausalDAG()"


def test_parts_escape_everything_but_html():
    assert table([(EVIL, 1)], [EVIL]).count("&lt;b onclick=&quot;x&quot;&gt;&amp;amp;&lt;/b&gt;") == 2
    assert items([EVIL, Html("<i>x</i>")]).count("<i>") == 1
    assert "<b" not in details(EVIL, EVIL) + panel(EVIL, EVIL)
    assert "width:100.0%" in bar(1.5) and "width:0.0%" in bar(-1.0)
    assert len(escaped("x" * 1000)) < 400
