"""Hostile text in the names, levels and title of a study: the report shows it as text, in a real browser too."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from kpp.study import parse_study, run_study

pytestmark = pytest.mark.slow

MARKUP = "<img src=x onerror=\"document.title='hacked'\">"
SCRIPT = "<script>document.title = 'hacked'</script>"
NAMES = {
    "markup": MARKUP,
    "formula": r"$\frac{a}{0}$ & {{ 7 * 7 }}",
    "two lines": "first line\nsecond line",
    "right to left": "\u05e9\u05dc\u05d5\u05dd \u202e\u0627\u0644\u0639\u0631\u0628\u064a\u0629",
    "5000 characters": "long " * 999 + "name!",
}
LEVELS = (SCRIPT, "$x$", "a\tb")
STUDY = """
[study]
title = "{title}"
[data]
path = "table.csv"
target = "target"
[model]
name = "GPRegression"
noise_variance = 0.1
[model.kernel]
name = "Product"
[[model.kernel.kernels]]
name = "RBF"
on = [{features}]
lengthscale = 3.0
[[model.kernel.kernels]]
name = "Categorical"
on = ["level"]
[inference]
name = "MAP"
[explainer]
instances = [0, 1]
background = 4
[report]
waterfalls = 1
"""


class Text(HTMLParser):
    """The tags of a page, the names of their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.text: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data):
        self.text.append(data)

    def shows(self, name: str) -> bool:
        """Whether the text has a name; runs of white space count as one space, as in a browser."""
        return " ".join(name.split()) in " ".join("".join(self.text).split())


def toml(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({name: rng.normal(size=12) for name in NAMES.values()})
    frame["level"] = np.resize(LEVELS, 12)
    frame["target"] = rng.normal(size=12)
    frame.to_csv(folder / "table.csv", index=False)
    features = ", ".join(f'"{toml(name)}"' for name in NAMES.values())
    text = STUDY.format(title=toml(SCRIPT), features=features)
    return run_study(parse_study(text, folder=folder), folder / "results", progress=False) / "report.html"


@pytest.fixture(scope="module")
def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("there is no Chromium; on Debian: apt-get install chromium")
    return found


def open_in(chromium: str, page: Path, folder: Path) -> str:
    """Return the document of a page, after a browser has run what it can run."""
    quiet = ["--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
    command = [chromium, "--headless", "--no-sandbox", "--no-first-run", *quiet, f"--user-data-dir={folder}"]
    command += ["--window-size=1000,800", "--virtual-time-budget=2000", "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout


def check_page(page: str) -> None:
    read = Text(page)
    assert not {"iframe", "object"} & set(read.tags)
    assert read.tags.count("script") == 1  # our own
    assert not {name for name in read.attributes if name.startswith("on")}
    missing = [kind for kind, name in NAMES.items() if not read.shows(name)]
    assert not missing, f"the report does not show the names: {missing}"
    assert read.shows(SCRIPT)


def test_the_report_shows_hostile_names_as_text(report):
    check_page(report.read_text(encoding="utf-8"))


def test_a_browser_shows_them_and_runs_nothing(report, chromium, tmp_path):
    document = open_in(chromium, report, tmp_path / "profile")
    check_page(document)
    assert "hacked" not in re.search(r"<title>(.*?)</title>", document, re.S)[1].replace(
        "document.title = 'hacked'", ""
    )


def test_a_long_name_does_not_make_the_page_wider_than_the_window(report, chromium, tmp_path):
    measuring = "<script>document.title = `width ${document.documentElement.scrollWidth}`</script></body>"
    copy = tmp_path / "copy.html"
    page = re.sub(r"<meta http-equiv=\"Content-Security-Policy\"[^>]*>", "", report.read_text(encoding="utf-8"))
    copy.write_text(page.replace("</body>", measuring), encoding="utf-8")
    document = open_in(chromium, copy, tmp_path / "profile")
    width = int(re.search(r"<title>width (\d+)</title>", document)[1])
    assert width <= 1000
