"""The report of a study in a browser: hostile names run nothing, and the reader finds, sorts and opens rows."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

import numpy as np
import pandas as pd
import PIL.Image
import pytest

import kpp

pytestmark = pytest.mark.browser

#: Scripts and attributes that names and levels could have smuggled in.
FIND_FOREIGN = """() => ({
    scripts: document.scripts.length,
    handlers: [...document.querySelectorAll("*")].flatMap(element =>
        element.getAttributeNames().filter(name => name.startsWith("on"))),
    hacked: typeof window.hacked,
})"""


@pytest.fixture(scope="module")
def table(hostile_study) -> pd.DataFrame:
    return hostile_study.table


@pytest.fixture(scope="module")
def explanation(report_folder) -> kpp.Explanation:
    return kpp.Explanation.load(report_folder / "explanation.nc").mean()


@pytest.fixture
def report(open_tab, report_root):
    """A tab that shows the report in a large window."""
    tab = open_tab(report_root)
    tab.open("report.html", 1440)
    return tab


@pytest.fixture
def report_without_scripts(open_tab, report_root):
    tab = open_tab(report_root, java_script_enabled=False)
    tab.page.goto(f"{report_root}/report.html")
    return tab


def number(text: str) -> float:
    """The first number of a text, as the report writes numbers."""
    return float(re.match(r"\s*([+-]?[\d,.]+(?:e[+-]?\d+)?)", text.replace("\N{MINUS SIGN}", "-"))[1].replace(",", ""))


def one_line(text: str) -> str:
    """Text with single spaces, as a browser shows it."""
    return " ".join(text.split())


def cells(tab) -> list[list[str]]:
    """The texts of the table of rows that the reader sees now, from top to bottom."""
    texts = "rows => rows.map(row => [...row.cells].map(cell => cell.textContent.trim()))"
    return tab.page.locator("table.rows tbody tr:visible").evaluate_all(texts)


def names(tab) -> list[str]:
    return [row[0] for row in cells(tab)]


def columns(tab, kind: str) -> Iterator[tuple[int, object]]:
    """The place of each column of a kind, number or text, and the button in its header."""
    for header in tab.page.locator(f"table.rows th.sort.{kind}").all():
        yield int(header.get_attribute("data-column")), header.get_by_role("button")


@pytest.mark.parametrize("width", [360, 768, 1440])
def test_the_report_opens_without_faults_and_fits_the_window(open_tab, report_root, width):
    tab = open_tab(report_root)
    tab.open("report.html", width)
    assert not [*tab.faults, *tab.wide()]


def test_the_report_opens_from_the_disk_too(open_tab, report_folder):
    tab = open_tab(report_folder.as_uri())
    tab.open("report.html")
    assert not tab.faults
    assert tab.page.locator("input.search").is_visible()


def test_hostile_names_and_levels_are_text_and_run_nothing(report, hostile_study):
    shown = one_line(report.page.locator("body").text_content())
    hostile = (*hostile_study.names, *hostile_study.levels)
    assert [text for text in hostile if one_line(text) not in shown] == []
    assert report.page.title() == hostile_study.title
    assert report.page.locator("iframe, object").count() == 0
    for _, button in [*columns(report, "number"), *columns(report, "text")]:
        button.click()  # the script writes the name of the column
    report.page.locator("input.search").fill(hostile_study.names[0])
    assert report.page.evaluate(FIND_FOREIGN) == {"scripts": 1, "handlers": [], "hacked": "undefined"}
    assert not report.faults


@pytest.mark.parametrize(("scheme", "page"), [("light", (255, 255, 255)), ("dark", (20, 24, 31))])
def test_pictures_have_the_color_of_the_page(open_tab, report_root, scheme, page):
    tab = open_tab(report_root, color_scheme=scheme)
    tab.open("report.html", 768)
    for image in tab.page.locator("figure img").all():
        with PIL.Image.open(io.BytesIO(image.screenshot())) as picture:
            assert picture.convert("RGB").getpixel((2, 2)) == page


def test_a_click_on_a_header_sorts_by_its_numbers(report):
    places = []
    for place, button in columns(report, "number"):
        button.click()
        shown = [number(row[place]) for row in cells(report)]
        assert shown == sorted(shown)
        button.click()
        assert [number(row[place]) for row in cells(report)] == sorted(shown, reverse=True)
        places.append(place)
    # prediction, interval of a new observation, observed; the values of 7 features; the contributions of 8
    assert len(places) == 3 + 7 + 8


def test_a_click_on_a_header_sorts_by_its_texts(report, table):
    for place, button in columns(report, "text"):
        button.click()
        ascending = [row[place] for row in cells(report)]
        button.click()
        assert [row[place] for row in cells(report)] == ascending[::-1]
        if place:  # equal levels are neighbors
            changes = sum(left != right for left, right in zip(ascending, ascending[1:], strict=False))
            assert changes == table["level"].nunique() - 1
        else:
            assert ascending == [f"Row {row}" for row in range(len(table))]


def test_the_keyboard_reaches_a_header_and_sorts(report, explanation):
    report.page.locator("input.search").focus()
    header = report.page.locator("table.rows th.sort.number").first
    for _ in range(4):
        report.page.keyboard.press("Tab")
        if header.get_by_role("button").evaluate("button => button === document.activeElement"):
            break
    report.page.keyboard.press("Enter")
    assert header.get_attribute("aria-sort") == "ascending"
    assert names(report) == [f"Row {row}" for row in np.argsort(explanation.predictions.values)]
    report.page.keyboard.press("Space")
    assert header.get_attribute("aria-sort") == "descending"
    assert names(report) == [f"Row {row}" for row in np.argsort(-explanation.predictions.values)]


def test_the_search_shows_the_rows_with_all_words(report, table):
    search = report.page.locator("input.search")
    search.fill("onclick")
    assert names(report) == [f"Row {row}" for row in np.flatnonzero(table["level"].str.contains("onclick"))]
    search.fill("onclick no-such-word")
    assert names(report) == []
    search.fill("")
    assert len(names(report)) == len(table)
    assert not report.faults


@pytest.mark.parametrize("way", ["click", "keyboard"])
def test_a_row_leads_to_its_waterfall(report, way):
    from playwright.sync_api import expect

    row = report.page.locator(".waterfall:not([open]) > summary").last.inner_text().partition(":")[0]
    waterfall = report.page.locator(".waterfall", has=report.page.locator("summary", has_text=re.compile(rf"^{row}:")))
    assert not waterfall.locator("table").is_visible()
    link = report.page.locator("table.rows").get_by_role("link", name=row, exact=True)
    if way == "click":
        link.click()
    else:
        link.press("Enter")
    assert waterfall.locator("table").is_visible()
    assert waterfall.locator("summary").evaluate("summary => summary === document.activeElement")
    expect(waterfall.locator("summary")).to_be_in_viewport()  # waits while the page scrolls
    assert not report.faults


def test_without_scripts_the_table_has_all_numbers(report_without_scripts, explanation, table):
    tab = report_without_scripts
    assert not tab.page.locator("input.search").is_visible()  # it would do nothing
    shown = cells(tab)
    features = tab.page.locator("table.rows thead th[colspan]").all_text_contents()
    known = {one_line(name): name for name in explanation.feature_names}
    features = [known.get(one_line(name), name) for name in features]
    assert sorted(features) == sorted(explanation.feature_names)
    assert [row[0] for row in shown] == [f"Row {row}" for row in range(len(table))]
    np.testing.assert_allclose([number(row[1]) for row in shown], explanation.predictions, rtol=1e-3)
    np.testing.assert_allclose([number(row[3]) for row in shown], table.iloc[:, -1], rtol=1e-3)
    for place, name in enumerate(features):
        values, contributions = [row[4 + 2 * place] for row in shown], [row[5 + 2 * place] for row in shown]
        if name == "level":
            assert values == table[name].tolist()
        else:
            np.testing.assert_allclose([number(value) for value in values], table[name], rtol=1e-3)
        expected = explanation.values.sel(feature=name)
        np.testing.assert_allclose([number(value) for value in contributions], expected, rtol=1e-2)  # 3 digits


def test_without_scripts_each_waterfall_leads_from_the_base_value_to_the_prediction(report_without_scripts, table):
    waterfalls = report_without_scripts.page.locator(".waterfall").all()
    assert len(waterfalls) == len(table)
    for waterfall in waterfalls:
        texts = waterfall.locator("tbody tr td:nth-child(2)").all_text_contents()
        base, *contributions, prediction = [number(text) for text in texts]
        assert len(contributions) == 8
        rounding = 0.005 * (abs(base) * 0.1 + np.abs(contributions).sum() + abs(prediction) * 0.1)
        assert abs(base + sum(contributions) - prediction) < rounding
