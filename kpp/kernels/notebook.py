"""Kernels in notebooks: the parameters and priors of a kernel, with the kernels that it consists of below it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import equinox as eqx

from kpp.kernels.parameters import show
from kpp.notebook import Html, escaped, items, panel
from kpp.priors import is_prior

__all__ = ["fields_html", "kernel_html"]


def kernel_html(kernel: eqx.Module) -> Html:
    """Return the tree of a kernel as HTML."""
    return panel(type(kernel).__name__, fields_html(kernel))


def fields_html(module: eqx.Module) -> Html:
    """Return the fields of a module as an HTML list; a kernel in a field has a list of its own."""
    return items(_fields(module))


def _fields(kernel: Any) -> Iterator[Html]:
    for field in dataclasses.fields(kernel):
        value = getattr(kernel, field.name)
        parts = value if isinstance(value, tuple) else (value,)
        if parts and all(_is_kernel(part) for part in parts):
            for part in parts:
                yield Html(f"{escaped(field.name)}: {escaped(type(part).__name__)}{items(_fields(part))}")
        else:
            yield Html(f"{escaped(field.name)} {'~' if is_prior(value) else '='} <code>{escaped(show(value))}</code>")


def _is_kernel(value: object) -> bool:
    return isinstance(value, eqx.Module) and hasattr(value, "gram")
