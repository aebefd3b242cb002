"""Links beside each page: to its source, to the list of problems, and to the page as a notebook.

All addresses follow from `[project.urls]` in pyproject.toml.
"""

import functools
import importlib
import inspect
import posixpath
import re
from pathlib import Path
from typing import Any

import nbformat
from myst_nb.core.read import read_myst_markdown_notebook
from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
PACKAGES = ("kpp", "models", "plugins")
ROLE = re.compile(r"\{[\w:]+\}`~?([^`<]+?)(?:\s*<[^`>]+>)?`")
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+?)(?:\.md)?(#[^)]*)?\)")


def source_of_page(page: str) -> str | None:
    """Return the file that a page is written in, relative to the repository; None if a program writes the page."""
    file = f"examples/{page}.py" if page.startswith("gallery/") else f"docs/{page}.md"
    return file if (ROOT / file).exists() and not page.startswith("reproducibility/") else None


def source_of_object(source: str, info: dict[str, str]) -> str | None:
    """Return the address of the lines that define a class, a function or a method; None for anything else."""
    try:
        module = importlib.import_module(info["module"])
        thing = inspect.unwrap(functools.reduce(getattr, info["fullname"].split("."), module))
        lines, first = inspect.getsourcelines(thing)
        file = Path(inspect.getsourcefile(thing) or "").resolve().relative_to(ROOT)
    except (AttributeError, ImportError, OSError, TypeError, ValueError):
        return None
    if file.parts[0] not in PACKAGES:  # of an environment inside of the repository
        return None
    return f"{source}/blob/main/{file}#L{first}-L{first + len(lines) - 1}"


def plain(text: str, page: str, site: str) -> str:
    """Return text of a page for a notebook: without roles of Sphinx, and with full addresses in its links."""

    def absolute(link: re.Match[str]) -> str:
        return f"]({site}{posixpath.normpath(posixpath.join(posixpath.dirname(page), link[1]))}.html{link[2] or ''})"

    return LINK.sub(absolute, ROLE.sub(r"*\1*", text))


def notebook(page: str, site: str, config: Any) -> nbformat.NotebookNode | None:
    """Return a page as a notebook; None if it has no code to run."""
    path = DOCS / f"{page}.md"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    if "\n```{code-cell}" not in text:
        return None
    found = read_myst_markdown_notebook(text, config, path=str(path))
    for cell in found.cells:
        if cell.cell_type == "markdown":
            cell.source = plain(cell.source, page, site)
    return found


def add_links(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Give the template of the side bar the addresses of a page, and write its notebook."""
    context["page_source"] = source_of_page(page)
    found = notebook(page, app.config.html_baseurl, app.env.myst_config)
    if found is not None:
        context["page_notebook"] = f"notebooks/{page}.ipynb"
        path = Path(app.outdir) / context["page_notebook"]
        path.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(found, path)


def name_the_distribution(app: Sphinx, page: str, source: list[str]) -> None:
    """Write the name under which kpp is installed, the `project` of the settings, into the commands of a page."""
    source[0] = source[0].replace("pip install 'kpp[", f"pip install '{app.config.project}[")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("html-page-context", add_links)
    app.connect("source-read", name_the_distribution)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
