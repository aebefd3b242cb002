"""Links between the reference and the pages that use its names, both ways; examples on the pages of names.

The code of the guides, tutorials and examples is parsed, not run. The page of a name shows its example, unless its
docstring has one, and lists the pages that use it; each of these pages ends with links to the names that it uses.
"""

import ast
import functools
import importlib
import re
from collections import Counter
from pathlib import Path
from typing import Any

from docutils import nodes
from reference_examples import examples, in_docstrings
from reference_pages import OURS, places
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective

from kpp import registry

DOCS = Path(__file__).resolve().parent
FOLDERS = {"Guides": ("tutorials", "how_to", "explanation"), "Examples": ("gallery",)}
MOST = 8  # pages of each kind that the page of a name lists: those that use it most often
CELL = re.compile(r"^```\{code-cell\}[^\n]*\n(?::[^\n]*\n)*(.*?)^```$", re.DOTALL | re.MULTILINE)
# The arguments of `kpp.explain` that take a registered name.
NAMED = {"explainer": "explainers", "value_function": "value_functions"}
FOOTER = ".. _sphx_glr_download_"  # where the footer of an example of the gallery begins


def sources() -> dict[str, Path]:
    """Return the file with the code of each page that is read, by the name of the page."""
    pages = [page for folder in FOLDERS["Guides"] for page in (DOCS / folder).glob("*.md")]
    examples = DOCS.parent / "examples"
    found = {str(page.relative_to(DOCS).with_suffix("")): page for page in pages}
    scripts = (examples / "gallery").glob("*/*.py")
    return found | {str(script.relative_to(examples).with_suffix("")): script for script in scripts}


def code_of(path: Path) -> str:
    """Return the Python code of a script, or of the cells of a page, without the commands of IPython."""
    text = path.read_text(encoding="utf-8")
    cells = [text] if path.suffix == ".py" else [cell for cell in CELL.findall(text) if not cell.startswith("%%")]
    code = "\n".join(cells)
    return re.sub(r"^[%!].*$", "", code, flags=re.MULTILINE)


def full_name(dotted: str) -> str | None:
    """Return the name in the reference of what a dotted name means; None if the reference does not have it."""
    parts = dotted.split(".")
    value: Any = importlib.import_module(parts[0])
    for i, part in enumerate(parts[1:], 1):
        try:
            value = getattr(value, part)
        except AttributeError:
            try:
                value = importlib.import_module(".".join(parts[: i + 1]))
            except ImportError:
                return None
    return places().get(id(value))


def imported(tree: ast.AST) -> dict[str, str]:
    """Return what the names that code imports from our packages mean."""
    meanings = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            meanings |= {each.asname or each.name.partition(".")[0]: each.name for each in node.names if each.asname}
            meanings |= {root: root for each in node.names if not each.asname and (root := each.name.partition(".")[0])}
        elif isinstance(node, ast.ImportFrom):
            meanings |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
    return {name: meaning for name, meaning in meanings.items() if meaning.partition(".")[0] in OURS}


def registered_name(keyword: ast.keyword) -> str | None:
    """Return the name in the reference of the class that an argument such as ``explainer="lime"`` chooses."""
    kind, value = NAMED.get(keyword.arg or ""), getattr(keyword.value, "value", None)
    cls = getattr(registry, kind)().get(value) if kind and isinstance(value, str) else None
    return places().get(id(cls))


def names_in(code: str) -> Counter[str]:
    """Return how often code uses each name of the reference."""
    tree = ast.parse(code)
    meanings = imported(tree)
    found: Counter[str | None] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword):
            found[registered_name(node)] += 1
        elif isinstance(node, ast.Name | ast.Attribute):
            root, dot, rest = ast.unparse(node).partition(".")
            if root in meanings and re.fullmatch(r"[\w.]*", rest):
                found[full_name(meanings[root] + dot + rest)] += 1
    return Counter({name: count for name, count in found.items() if name})


@functools.cache
def uses() -> dict[str, Counter[str]]:
    """Return how often each page uses each name of the reference."""
    return {page: names_in(code_of(path)) for page, path in sorted(sources().items())}


def users(name: str) -> dict[str, list[str]]:
    """Return the pages of each kind that use a name, those that use it most often first."""
    pages = sorted((page for page, names in uses().items() if name in names), key=lambda page: -uses()[page][name])
    by_kind = {kind: [page for page in pages if page.startswith(folders)] for kind, folders in FOLDERS.items()}
    return {kind: found[:MOST] for kind, found in by_kind.items() if found}


class UsedIn(SphinxDirective):
    """The example of a name, and the list of pages that use it."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the nodes of the example and of the list."""
        code = examples().get(self.arguments[0])
        title = "Before the example" if self.arguments[0] in in_docstrings() else "Example"
        shown = [] if code is None else [nodes.rubric(text=title), nodes.literal_block(code, code, language="pycon")]
        lists = [
            f"   * {kind}: " + ", ".join(f":doc:`/{page}`" for page in pages)
            for kind, pages in users(self.arguments[0]).items()
        ]
        text = "\n".join([".. admonition:: Used in", "   :class: seealso", "", *lists])
        return [*shown, *(self.parse_text_to_nodes(text) if lists else [])]


def link_names(app: Sphinx, page: str, source: list[str]) -> None:
    """End a page with links to the names that it uses."""
    links = ", ".join(f"{{py:obj}}`{name}`" for name in sorted(uses().get(page, ())))
    if links and page.startswith(FOLDERS["Guides"]):
        source[0] += f"\n\n:::{{seealso}}\nIn the reference: {links}.\n:::\n"
    elif links:
        text, footer, rest = source[0].rpartition(FOOTER)
        links = links.replace("{py:obj}", "")
        source[0] = f"{text}\n.. seealso::\n\n   In the reference: {links}.\n\n{footer}{rest}"


def outdated(app: Sphinx, env: BuildEnvironment, added: set[str], changed: set[str], removed: set[str]) -> list[str]:
    """Return the pages of the names whose lists or examples have changed since the last build."""
    lists = {name: (users(name), examples().get(name)) for name in places().values()}
    before, env.kpp_users = getattr(env, "kpp_users", {}), lists
    return [page for page in env.found_docs if lists.get(name := page.rpartition("/")[2]) != before.get(name)]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.add_directive("used-in", UsedIn)
    app.connect("source-read", link_names)
    app.connect("env-get-outdated", outdated)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
