"""Hostile text in the names, levels and title of a study: the report shows it as text.

`tests/browser/test_report.py` opens the same report in a browser: nothing runs, and it fits into the window.
"""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

pytestmark = pytest.mark.nightly  # tests/browser makes the same report, and finds nothing of this in its page


class Text(HTMLParser):
    """The tags of a page, the names of their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.text: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data):
        self.text.append(data)

    def shows(self, name: str) -> bool:
        """Whether the text has a name; runs of white space count as one space, as in a browser."""
        return " ".join(name.split()) in " ".join("".join(self.text).split())


@pytest.fixture(scope="module")
def page(hostile_results) -> Text:
    return Text((hostile_results / "report.html").read_text(encoding="utf-8"))


def test_hostile_text_makes_no_elements_and_no_handlers(page):
    assert not {"iframe", "object"} & set(page.tags)
    assert page.tags.count("script") == 1  # our own
    assert not {name for name in page.attributes if name.startswith("on")}


def test_the_report_shows_hostile_text(page, hostile_study):
    hostile = (*hostile_study.names, *hostile_study.levels, hostile_study.title)
    assert [text for text in hostile if not page.shows(text)] == []
