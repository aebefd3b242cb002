"""Every link of the site that stays in the site leads to a file, and to a place in it that exists."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytestmark = pytest.mark.browser


def fault(address: str, link: str, site: Path, files: Mapping) -> str:
    """What is wrong with a link of a page; empty if nothing is."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return "" if parts.scheme in ("http", "https", "mailto", "data") else "not an address of the web"
    if parts.path.startswith("/"):
        return "absolute, so it fails where the site is not at the root of its host"
    target = (
        posixpath.normpath(posixpath.join(posixpath.dirname(address), unquote(parts.path))) if parts.path else address
    )
    if (site / target).is_dir():
        target = posixpath.normpath(f"{target}/index.html")
    if not (site / target).is_file():
        return "no such file"
    place = unquote(parts.fragment)
    return f"no place {place!r} there" if place and target in files and place not in files[target].ids else ""


def test_every_link_within_the_site_leads_somewhere(site, site_files):
    links = [(address, link) for address, file in site_files.items() for link in sorted(file.links)]
    wrong = [(address, link, fault(address, link, site, site_files)) for address, link in links]
    faults = [f"{address} -> {link}: {text}" for address, link, text in wrong if text]
    assert len(links) > len(site_files)
    assert not faults, "\n".join(faults)
