"""Read the pages that run code at even distances among the others.

`make docs` reads blocks of neighboring pages in two processes. In alphabetical order one block has nearly all guides,
and the other process waits for it.
"""

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment


def spread(app: Sphinx, env: BuildEnvironment, docnames: list[str]) -> None:
    """Order the pages to read, in place: those with code cells at even distances."""
    runs = {name: "{code-cell}" in env.doc2path(name).read_text(encoding="utf-8") for name in docnames}
    groups = [[name for name in docnames if runs[name] is run] for run in (True, False)]
    places = {name: (i + 0.5) / len(group) for group in groups for i, name in enumerate(group)}
    docnames.sort(key=places.__getitem__)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("env-before-read-docs", spread)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
