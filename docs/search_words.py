"""Words by which the search of the site finds pages that use other words for the same thing."""

import tomllib
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx

WORDS = tomllib.loads((Path(__file__).parent / "search_words.toml").read_text(encoding="utf-8"))


def add_words(app: Sphinx, doctree: nodes.document) -> None:
    """Add the words of a page to its keywords, one by one, because the search compares single words."""
    phrases = WORDS.get(app.env.current_document.docname, [])
    if phrases:
        app.env.note_dependency(str(Path(app.srcdir) / "search_words.toml"))
        words = sorted({word.lower() for phrase in phrases for word in phrase.split()})
        doctree.insert(0, nodes.meta(name="keywords", content=", ".join(words)))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("doctree-read", add_words)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
