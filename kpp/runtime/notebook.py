"""Parts of HTML representations in notebooks: escaped text in tables, lists and panels, without scripts or styles."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

_CELL = "padding:.15em .6em;text-align:left;vertical-align:top"
_HEAD = f"{_CELL};border-bottom:1px solid currentColor;font-weight:600"
_LONGEST = 300


class Html(str):
    """Text that is HTML already, and is not escaped again."""

    __slots__ = ()


def escaped(value: object) -> Html:
    """Return a value as escaped text, the middle of a long one left out; HTML unchanged."""
    if isinstance(value, Html):
        return value
    shown = str(value)
    if len(shown) > _LONGEST:
        shown = f"{shown[: _LONGEST - 60]} \u2026 {shown[-40:]}"
    return Html(html.escape(shown))


def table(rows: Iterable[Sequence[object]], header: Sequence[object] = ()) -> Html:
    """Return a table of escaped cells."""
    head = "".join(f'<th style="{_HEAD}">{escaped(cell)}</th>' for cell in header)
    lines = ["".join(f'<td style="{_CELL}">{escaped(cell)}</td>' for cell in row) for row in rows]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    top = f"<thead><tr>{head}</tr></thead>" if head else ""
    return Html(f'<table style="border-collapse:collapse;margin:.4em 0">{top}<tbody>{body}</tbody></table>')


def items(entries: Iterable[object]) -> Html:
    """Return a list of escaped entries, which may be lists themselves."""
    lines = "".join(f"<li>{escaped(entry)}</li>" for entry in entries)
    return Html(f'<ul style="margin:.1em 0;padding-left:1.4em">{lines}</ul>')


def details(summary: object, content: object) -> Html:
    """Return content that a click on the summary shows or hides."""
    return Html(f'<details><summary style="cursor:pointer">{escaped(summary)}</summary>{escaped(content)}</details>')


def bar(share: float) -> Html:
    """Return a horizontal bar, whose length is a share from 0 to 1."""
    width = f"{100 * min(1.0, max(0.0, share)):.1f}%"
    inner = f'<div style="width:{width};height:.7em;background:#33658a"></div>'
    return Html(f'<div style="width:10em;padding-top:.2em">{inner}</div>')


def panel(title: object, *parts: object) -> Html:
    """Return a title with parts below it."""
    body = "".join(f"<div>{escaped(part)}</div>" for part in parts)
    return Html(f'<div class="kpp" style="font-size:90%"><strong>{escaped(title)}</strong>{body}</div>')
