"""Pages as one HTML file: templates, the style and the script, which is the only one that a page allows."""

from __future__ import annotations

import base64
import hashlib
import importlib.resources
from collections.abc import Mapping
from typing import Any

import jinja2
from markupsafe import Markup, escape

from kpp_study.report import numbers


def render(template: str, page: Mapping[str, Any]) -> str:
    """Fill a template of the folder `templates`; every value that is not `Markup` is escaped.

    The page has a content security policy with the digest of our script, so that a browser runs no other script.
    """
    script = _text("rows.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    own = {"style": Markup(_text("style.css")), "script": Markup(script), "script_digest": digest}
    return _environment().get_template(template).render({**page, **own})


def render_text(template: str, **values: Any) -> str:
    """Fill a template of plain text, and return it on one line."""
    return " ".join(_environment().get_template(template).render(values).split())


def _text(name: str) -> str:
    return importlib.resources.files("kpp_study.report").joinpath("templates", name).read_text(encoding="utf-8")


def template_environment(package: str, folder: str, **options: Any) -> jinja2.Environment:
    """Return an environment of the templates in a folder of a package; a name without a value is an error."""
    loader, strict = jinja2.PackageLoader(package, folder), jinja2.StrictUndefined
    return jinja2.Environment(loader=loader, undefined=strict, trim_blocks=True, lstrip_blocks=True, **options)


def _environment() -> jinja2.Environment:
    environment = template_environment("kpp_study.report", "templates", autoescape=True)
    names = ("number", "short", "fixed", "interval", "percent", "short_name")
    environment.filters |= {name: getattr(numbers, name) for name in names}
    # A name whose line may end after each underscore, and not only where the space ends.
    environment.filters["breakable"] = lambda name: escape(name).replace("_", Markup("_<wbr>"))
    return environment
