"""Every link of the site that stays in the site leads to a file, and to a place in it that exists."""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytestmark = pytest.mark.browser


def fault(folder: str, link: str, site: Path, files: Mapping) -> str:
    """What is wrong with a link to another page, on the pages of a folder; empty if nothing is."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return "" if parts.scheme in ("http", "https", "mailto", "data") else "not an address of the web"
    if parts.path.startswith("/"):
        return "absolute, so it fails where the site is not at the root of its host"
    target = posixpath.normpath(posixpath.join(folder, unquote(parts.path)))
    if (site / target).is_dir():
        target = posixpath.normpath(f"{target}/index.html")
    if not (site / target).is_file():
        return "no such file"
    place = unquote(parts.fragment)
    return f"no place {place!r} there" if place and target in files and place not in files[target].ids else ""


def test_every_link_to_another_page_leads_somewhere(site, site_files):
    pages = defaultdict(list)  # the pages of a folder have most of their links in common
    for address, file in site_files.items():
        for link in file.links:
            if not link.startswith(("#", "?")):
                pages[posixpath.dirname(address), link].append(address)
    assert len(pages) > len(site_files)
    wrong = {where: fault(*where, site, site_files) for where in pages}
    faults = [f"{pages[where][0]} -> {where[1]}: {text}" for where, text in wrong.items() if text]
    assert not faults, "\n".join(faults)


def test_every_link_within_a_page_leads_to_a_place(site_files):
    faults = [
        f"{address} -> {link}"
        for address, file in site_files.items()
        for link in sorted(file.links)
        if link.startswith("#") and link != "#" and unquote(link[1:]) not in file.ids
    ]
    assert not faults, "\n".join(faults)
