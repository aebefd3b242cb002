"""The page: complete without a script, one script that a policy names, headings, names and labels, escaped text."""

from __future__ import annotations

import base64
import hashlib
import re

import numpy as np
import pytest
import scipy.special

from kpp.plots.toolkit import mean_absolute
from kpp_study import render_explanation

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</script><script>document.title = 'hacked'</script>",
    "</title></style><style>body{display:none}</style>",
    "{{ 7 * 7 }} {% raw %} &lt;",
)


@pytest.fixture(scope="module")
def text(make_explanation):
    return render_explanation(make_explanation(6, draws=True), title="A title")


@pytest.fixture(scope="module")
def page(text, read_page):
    return read_page(text)


@pytest.mark.slow
def test_the_document_says_its_language_and_fits_a_phone(page):
    assert page.find("html")[0][0]["lang"] == "en"
    assert page.find("meta", name="viewport")[0][0]["content"] == "width=device-width, initial-scale=1"
    assert page.find("title")[0][1] == page.find("h1")[0][1] == "A title"


def test_headings_are_in_order_and_landmarks_have_their_own_names(page):
    levels = [int(tag[1]) for tag, _, _ in page.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert max(np.diff(levels)) <= 1
    regions = [attrs["aria-label"] for _, attrs, _ in page.elements if attrs.get("role") == "region"]
    assert len(regions) == len(set(regions))
    for tag in ("header", "nav", "main", "footer"):
        assert len(page.find(tag)) == 1


def test_identifiers_are_unique_and_every_link_leads_to_one(page):
    identifiers = [attrs["id"] for _, attrs, _ in page.elements if "id" in attrs]
    assert len(identifiers) == len(set(identifiers))
    links = [attrs["href"] for attrs, _ in page.find("a")]
    assert links
    assert {link.removeprefix("#") for link in links} <= set(identifiers)
    assert {attrs["for"] for attrs, _ in page.find("label")} <= set(identifiers)
    assert page.find("a", class_="skip")[0][0]["href"] == "#content"


def test_boxes_that_scroll_can_be_reached_by_the_keyboard(page):
    boxes = [attrs for _, attrs, _ in page.elements if {"scroll", "pre"} & set(attrs.get("class", "").split())]
    assert len(boxes) >= 3
    assert all(box["tabindex"] == "0" and box["aria-label"] for box in boxes)


def test_everything_is_there_without_a_script(page):
    """The search needs the script and is hidden without it; tables and waterfalls are not."""
    assert "hidden" in page.find("div", class_="finder")[0][0]
    assert page.find("input", class_="search")[0][0]["type"] == "search"
    assert len(page.find("table", class_="rows")) == 1
    waterfalls = page.find("details", class_="waterfall")
    assert len(waterfalls) == 6
    assert ["open" in attrs for attrs, _ in waterfalls] == [True, True, False, False, False, False]
    assert all("base value" in words and "prediction" in words for _, words in waterfalls)
    assert not page.find("button")  # the script makes them, so that none is without a function


def test_the_headers_that_sort_name_the_columns_of_their_cells(page):
    headers = page.find("th", class_="sort")
    assert [int(attrs["data-column"]) for attrs, _ in headers] == list(range(2 + 2 * 3))
    words = [words for _, words in headers]
    assert words[:2] == ["row", "prediction"]
    assert {"value of town", "contribution of town"} < set(words)
    assert len(set(words)) == len(words)
    kinds = {words: "number" in attrs["class"].split() for attrs, words in headers}
    assert not kinds["value of town"]
    assert kinds["value of age"]


def test_the_policy_allows_our_script_alone(text, page):
    policy = page.find("meta", **{"http-equiv": "Content-Security-Policy"})[0][0]["content"]
    scripts = re.findall(r"<script[^>]*>(.*?)</script>", text, re.DOTALL)
    assert len(scripts) == 1
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert not re.search(r"https?:", text)
    assert "url(" not in text


def test_every_image_has_a_text_with_numbers(page, make_explanation):
    explanation = make_explanation(6, draws=True)
    images = page.find("img")
    assert len(images) == 1
    mean = explanation.mean().values.sel(feature="age")
    low, high = (f"{float(bound):.3g}".replace("-", "\u2212") for bound in (mean.min(), mean.max()))
    assert f"age from {low} to {high}" in images[0][0]["alt"]


def test_the_importance_is_a_table_of_numbers(page, make_explanation):
    table = page.find("table", class_="importance")[0][1]
    assert table.startswith("Mean absolute contribution")
    importance = mean_absolute(make_explanation(6, draws=True).values).sel(feature="bmi")
    low, high = importance.quantile([0.05, 0.95]).values
    assert f"bmi{float(importance.mean()):.4g} {low:.3g} to {high:.3g}" in table
    assert "%" in table


@pytest.mark.slow_variants("outputs1")
@pytest.mark.parametrize("outputs", [None, HOSTILE[:2]])
def test_text_of_the_data_is_escaped(make_explanation, read_page, outputs):
    explanation = make_explanation(
        3,
        names=HOSTILE,
        levels=HOSTILE[:3],
        outputs=None if outputs is None else list(outputs),
        instance_names=[f"{HOSTILE[1]}{index}" for index in range(3)],
        attrs={"target": HOSTILE[2], "study": "</code></pre>" + HOSTILE[0], HOSTILE[3]: HOSTILE[1]},
    )
    text = render_explanation(explanation)
    page = read_page(text)
    assert len(page.find("script")) == len(page.find("style")) == len(page.find("title")) == 1
    assert all(attrs["src"].startswith("data:image/") for attrs, _ in page.find("img"))
    assert not any(name.startswith("on") for _, attrs, _ in page.elements for name in attrs)
    words = page.find("body")[0][1]
    assert all(name in words for name in HOSTILE)
    assert page.find("h1")[0][1] == f"Explanation of {HOSTILE[2]}"


@pytest.mark.slow
def test_the_rows_of_a_label_have_its_probability(make_explanation, read_page):
    """It is the mean over draws of the inverse link; draws of the hyperparameters alone would be too certain."""
    explanation = make_explanation(2, draws=True)
    explanation.attrs.update(scale="latent", link="logit", uncertainty="full", target="dear")
    words = " ".join(text for _, text in read_page(render_explanation(explanation)).find("main"))
    expected = scipy.special.expit(explanation.predictions).mean(("chain", "draw")).sel(instance=1).item()
    assert f"probability {expected:.3f}" in words and "log-odds of dear" in words
    explanation.attrs["uncertainty"] = "hyperparameters only"
    words = " ".join(text for _, text in read_page(render_explanation(explanation)).find("main"))
    assert "probability 0." not in words and "log-odds of dear" in words


@pytest.mark.slow
def test_a_cut_table_says_so(make_explanation, read_page):
    page = read_page(render_explanation(make_explanation(201, names=tuple(f"f{j}" for j in range(17)))))
    words = page.find("main")[0][1]
    assert "The table is cut: it shows 200 of 201 explained rows" in words
    assert "the 15 most important of 17 features" in words
    assert len(page.find("a", class_="show")) == 200


def test_a_whole_table_says_so(page):
    assert "The table shows all 6 explained rows." in page.find("main")[0][1]


def test_an_explanation_of_nothing_is_refused(make_explanation):
    with pytest.raises(ValueError, match="`explanation` must have at least one instance, got none"):
        render_explanation(make_explanation(2)[:0])
