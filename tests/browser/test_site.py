"""The site in a browser: pages open without faults and fit the window, and what needs JavaScript works."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.browser

PHONE, TABLET, DESKTOP = 360, 768, 1440
SHARE = 24  # the generated pages of the reference look alike, so only every 24th is opened
#: The text of formulas that MathJax left alone or could not read.
FIND_FORMULAS = """() => [...document.querySelectorAll(".math")]
    .filter(formula => !formula.querySelector("mjx-container") || formula.querySelector("mjx-merror, merror"))
    .map(formula => formula.textContent.trim())"""


class Visit(NamedTuple):
    """How a page was found: its faults, what makes it too wide, and formulas that are not set or not correct."""

    faults: list[str]
    wide: list[str]
    formulas: list[str]


def visit(tab, address: str, width: int) -> Visit:
    tab.open(address, width)
    return Visit(list(tab.faults), tab.wide(), tab.page.evaluate(FIND_FORMULAS))


def lines(found: Mapping[str, Sequence[str]]) -> str:
    """One line for each page that has faults; empty if none has."""
    return "\n".join(f"{address}: {'; '.join(faults)}" for address, faults in found.items() if faults)


@pytest.fixture(scope="module")
def visits(chromium_tab, site_root, site_files) -> dict[str, Visit]:
    """Most pages, each opened once in a window as wide as a phone; of the generated pages only some."""
    generated = [address for address in site_files if "/generated/" in address]
    chosen = sorted({*site_files} - {*generated} | {*generated[::SHARE]})
    with chromium_tab(site_root) as tab:
        return {address: visit(tab, address, PHONE) for address in chosen}


def test_every_page_opens_without_faults(visits):
    faults = lines({address: visit.faults for address, visit in visits.items()})
    assert not faults, faults


def test_every_page_fits_a_phone(visits):
    wide = lines({address: visit.wide for address, visit in visits.items()})
    assert not wide, wide


def test_every_formula_is_set(visits, site_files):
    assert any("math" in file.classes for file in site_files.values())
    wrong = lines({address: visit.formulas for address, visit in visits.items()})
    assert not wrong, wrong


@pytest.mark.parametrize("width", [TABLET, DESKTOP])
def test_a_page_of_each_kind_fits_a_larger_window(tab, kinds, width):
    visits = {address: visit(tab, address, width) for address in kinds.values()}
    faults = lines({address: [*visit.faults, *visit.wide] for address, visit in visits.items()})
    assert not faults, faults


@pytest.mark.parametrize("word", ["deconditional", "lengthscale", "Shapley", "2SLS", "quickstart"])
def test_the_search_finds_a_word(tab, site_files, word):
    tab.open(f"search.html?q={word}")
    links = tab.page.locator("#search-results ul.search li a")
    links.first.wait_for()
    targets = links.evaluate_all("links => links.map(link => new URL(link.href).pathname.slice(1))")
    assert targets and set(targets) <= set(site_files)
    assert not tab.faults


def test_the_search_finds_nothing_for_a_word_that_is_nowhere(tab):
    tab.open("search.html?q=zyxwvutsrq")
    tab.page.locator("#search-results p.search-summary", has_text="did not match").wait_for()
    assert tab.page.locator("#search-results ul.search li").count() == 0


def test_each_example_of_the_gallery_draws(site_files):
    examples = {
        address: file.classes for address, file in site_files.items() if "sphx-glr-example-title" in file.classes
    }
    assert len(examples) >= 24
    plain = [address for address, classes in examples.items() if "sphx-glr-single-img" not in classes]
    assert not plain, "\n".join(plain)


def test_code_is_colored(site_files):
    plain = [a for a, file in site_files.items() if {"cell_input", "highlight-none"} <= file.classes]
    assert not plain, "\n".join(plain)


def test_a_button_copies_the_code_beside_it(open_tab, site_root, kinds):
    tab = open_tab(site_root, permissions=["clipboard-read", "clipboard-write"])
    tab.open(kinds["guide"], DESKTOP)
    code = tab.page.locator(".cell_input .highlight").first
    code.hover()
    code.locator("button.copybtn").click()
    copied = tab.page.evaluate("() => navigator.clipboard.readText()")
    assert copied.strip() == code.locator("pre").inner_text().strip()
    assert not tab.faults


def choose_theme(tab, mode: str) -> str:
    """Choose a theme in the menu; return the color of the page."""
    tab.page.locator("button.theme-switch-button:visible").first.click()
    tab.page.locator(f".theme-change-button[data-mode={mode}]:visible").first.click()
    return background(tab)


def background(tab) -> str:
    return tab.page.evaluate("getComputedStyle(document.body).backgroundColor")


def test_the_theme_is_what_the_reader_chooses_and_is_remembered(tab, kinds):
    tab.open(kinds["start"], DESKTOP)
    light, dark = choose_theme(tab, "light"), choose_theme(tab, "dark")
    assert light != dark
    tab.open(kinds["guide"])
    assert background(tab) == dark
    assert not tab.faults


@pytest.mark.parametrize(
    ("kind", "picture"), [("tutorial", ".cell_output img"), ("example", "img.sphx-glr-single-img")]
)
def test_pictures_on_pages_are_dark_in_the_dark_theme(open_tab, site_root, kinds, kind, picture):
    filters = []
    for scheme in ("light", "dark"):
        tab = open_tab(site_root, color_scheme=scheme)
        tab.open(kinds[kind])
        filters.append(tab.page.locator(picture).first.evaluate("image => getComputedStyle(image).filter"))
    assert "invert" not in filters[0] and "invert" in filters[1]


def test_the_theme_follows_the_system_if_the_reader_chooses_none(open_tab, site_root, kinds):
    colors = set()
    for scheme in ("light", "dark"):
        tab = open_tab(site_root, color_scheme=scheme)
        tab.open(kinds["start"])
        colors.add(background(tab))
    assert len(colors) == 2
