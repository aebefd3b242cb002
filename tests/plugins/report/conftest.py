"""Explanations of several kinds, and a reader of pages."""

from __future__ import annotations

from html.parser import HTMLParser

import numpy as np
import pytest

import kpp
from kpp.data.tables import Schema

NAMES = ("age", "bmi", "town")


class Page(HTMLParser):
    """The elements of a page in their order, as (tag, attributes, text directly inside)."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict, list[str]]] = []
        self._open: list[tuple[str, dict, list[str]]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        element = (tag, dict(attrs), [])
        self.elements.append(element)
        if tag not in ("meta", "img", "input", "link", "br", "wbr"):
            self._open.append(element)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), []))

    def handle_endtag(self, tag):
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data):
        for _, _, text in self._open:
            text.append(data)

    def find(self, tag: str, **wanted: str) -> list[tuple[dict, str]]:
        """The attributes and the text of the elements of a tag with all given attributes; "class_" is one class."""
        found = []
        for name, attrs, text in self.elements:
            fits = all(
                value in attrs.get("class", "").split() if key == "class_" else attrs.get(key) == value
                for key, value in wanted.items()
            )
            if name == tag and fits:
                found.append((attrs, " ".join("".join(text).split())))
        return found


@pytest.fixture(scope="session")
def read_page():
    return Page


@pytest.fixture(scope="session")
def make_explanation():
    """Build an additive explanation of random numbers: with draws, with a covariance, with outputs."""

    def make(num_rows=5, *, names=NAMES, levels=("Bern", "Rome"), draws=False, covariance=False, outputs=None, **more):
        rng = np.random.default_rng(0)
        lead, last = ((2, 30) if draws else ()), ((len(outputs),) if outputs else ())
        values = rng.normal(size=(*lead, num_rows, len(names), *last))
        base = 5.0 + rng.normal(size=(*lead, *last))
        axis = -2 if outputs else -1
        predictions = values.sum(axis=axis) + np.expand_dims(base, axis)
        if covariance:
            factors = rng.normal(size=(*lead, num_rows, len(names), len(names)))
            more["covariance"] = factors @ np.swapaxes(factors, -1, -2)
        data = 10.0 * rng.normal(size=(num_rows, len(names)))
        data[:, -1] = np.arange(num_rows) % len(levels)
        schema = Schema.from_json({"feature_names": list(names), "levels": {names[-1]: list(levels)}})
        return kpp.Explanation.create(
            values, base, predictions, data, schema=schema, draws=draws, output_names=outputs, **more
        )

    return make
