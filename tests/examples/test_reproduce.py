"""The experiments of the papers: one list, one command, and a page that holds nothing but the stored results."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from scipy.stats import wilcoxon

VERDICTS = {"done", "differs", "not run", "not to be had", "no result"}


@pytest.fixture(scope="module")
def experiments(load_script):
    return load_script("reproduce/experiments.py")


@pytest.fixture(scope="module")
def page(load_script, experiments):
    return load_script("reproduce/page.py")


@pytest.fixture(scope="module")
def listed(experiments):
    return experiments.read_list()


@pytest.fixture
def frame():
    """Two methods in two cases, with four runs of different sizes."""
    rng = np.random.default_rng(0)
    rows = [
        {"case": case, "method": method, "seed": seed, "error": rng.normal()}
        for case, method, seed in itertools.product("ab", ("mine", "theirs"), range(4))
        for _ in range(1 + seed)
    ]
    return pd.DataFrame(rows)


def test_the_page_is_that_of_the_stored_results(page):
    """After a change of a result or of the list: `python -m examples.reproduce --page`."""
    assert page.PAGE.read_text(encoding="utf-8") == page.render()


def test_links_to_a_part_of_the_page_find_it(page, root):
    headings = re.findall(r"^##+ (.*)$", page.render(), re.MULTILINE)
    anchors = {heading.lower().replace(" ", "-") for heading in headings}
    texts = [
        page.render().replace("](#", "](reproducibility.md#"),
        *(path.read_text(encoding="utf-8") for path in (root / "docs").rglob("*.md")),
    ]
    found = {anchor for text in texts for anchor in re.findall(r"\]\((?:\.\./)*reproducibility\.md#([^)]+)\)", text)}
    assert found and found <= anchors


def test_every_item_of_the_list_leads_somewhere(experiments, listed, root):
    for item in listed["items"]:
        assert item["paper"] in listed["papers"] and item["verdict"] in VERDICTS
        assert item["verdict"] in ("done", "no result") or "why" in item
        if "shows" in item:
            tables = listed["experiments"][item["experiment"]]["tables"]
            assert item["shows"]["table"] in {table.get("name", table["table"]) for table in tables}
        if item["verdict"] in ("done", "differs"):
            assert (experiments.RESULTS / f"{item['experiment']}.json").exists()
    used = {item.get("experiment") for item in listed["items"]}
    for name, experiment in listed["experiments"].items():
        assert name in used
        assert (root / "examples" / experiment.get("folder", "reproduce") / f"{experiment['script']}.py").exists()


def test_stored_results_are_full_runs_of_listed_experiments(experiments, listed):
    for path in experiments.RESULTS.glob("*.json"):
        result, experiment = experiments.read(path.stem), listed["experiments"][path.stem]
        assert result["name"] == path.stem and not result["quick"]
        assert "source" in result or result["command"] == experiments.command(experiment, experiment["full"])
        for table in result["tables"]:
            assert all(len(row) == len(table["columns"]) for row in table["rows"])


def test_means_have_standard_errors_over_runs(experiments, frame):
    spec = {"keys": ["case", "method"], "values": ["error"], "runs": "seed"}
    spec["published"] = {"error": [["b", "mine", "0.5"]]}
    found = experiments.summarize(frame, spec).set_index(["case", "method"])
    by_run = frame[(frame["case"] == "b") & (frame["method"] == "mine")].groupby("seed")["error"].mean()
    row = found.loc[("b", "mine")]
    np.testing.assert_allclose([row["error"], row["error se"]], [by_run.mean(), by_run.std(ddof=1) / 2], rtol=1e-12)
    assert row["runs"] == 4 and row["error, published"] == "0.5"
    assert pd.isna(found.loc[("a", "mine"), "error, published"])


def test_standard_errors_of_a_script_are_kept(experiments):
    table = pd.DataFrame({"method": ["one", "other"], "error": [1.0, 2.0], "error se": [0.1, 0.2]})
    found = experiments.summarize(table, {"keys": ["method"], "values": ["error"]})
    assert found["error se"].tolist() == [0.1, 0.2] and "runs" not in found


@pytest.mark.parametrize("wide", [False, True])
def test_methods_are_compared_in_pairs(experiments, frame, wide):
    once = frame.drop_duplicates(["case", "method", "seed"])
    methods = [once[(once["case"] == "a") & (once["method"] == name)]["error"] for name in ("mine", "theirs")]
    spec = {"keys": ["case", "method"], "values": ["error"], "runs": "seed", "compared": "method"}
    if wide:
        once = once.pivot(index=["case", "seed"], columns="method", values="error").reset_index()
        spec |= {"keys": ["case"], "values": ["mine", "theirs"]}
    row = experiments.compare(once, spec).iloc[0]
    assert row[["case", "method", "other"]].tolist() == ["a", "mine", "theirs"]
    assert row["p"] == wilcoxon(*(values.to_numpy() for values in methods)).pvalue


def test_results_come_back_from_their_files(experiments, tmp_path):
    frame = pd.DataFrame({"method": ["a [b]"], "error": [np.pi], "count": [3], "none": [np.nan]})
    spec = {"table": "t", "title": "T", "keys": ["method"], "values": ["error", "count", "none"]}
    result = {"name": "x", "quick": True, "tables": experiments.summaries([spec], {"t": frame})}
    path = experiments.store(result, tmp_path)
    assert experiments.read("x", tmp_path) == result
    assert result["tables"][0]["rows"] == [["a [b]", 3.142, 3.0, None]]
    assert '"columns": [ "method", "error", "count", "none" ]' in path.read_text()  # on one line


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (0.18527, 0.00412, "0.185 ± 0.004"),
        (0.18527, 0.0021, "0.1853 ± 0.0021"),
        (1234.5, 31.0, "1234 ± 31"),
        (0.5, None, "0.5"),
        (0.5, 0.0, "0.5"),
        (None, None, ""),
        ("x", None, "x"),
    ],
)
def test_numbers_are_rounded_by_their_errors(page, value, error, text):
    assert page.number({"v": value, "v se": error}, "v") == text


def test_the_row_of_an_item_shows_the_numbers_it_asks_for(page):
    rows = [["a", "one", 1.0, 0.1, "1.1"], ["a", "other", 2.0, 0.4, None], ["b", "one", 3.0, 0.1, None]]
    columns = ["case", "method", "error", "error se", "error, published"]
    result = {"tables": [{"table": "t", "columns": columns, "rows": rows}]}
    wanted = {"table": "t", "values": ["error"], "label": "method", "where": {"case": "a"}}
    assert page.shown(wanted, result) == ("one 1.00 ± 0.10<br>other 2.0 ± 0.4", "one 1.1")
    wanted["where"] = {"case": ["a", "b"], "method": "one"}
    assert page.shown(wanted, result) == ("one 1.00 ± 0.10<br>one 3.00 ± 0.10", "one 1.1")


def test_the_command_lists_runs_and_stores(root, tmp_path):
    command = [sys.executable, "-m", "examples.reproduce", "dmo-rate", "--quick", "--list", "--results", str(tmp_path)]
    done = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True, timeout=120)
    assert "swiss-roll" in done.stdout and "Theorem 3.4.2" in done.stdout
    text = (tmp_path / "dmo-rate.json").read_text()
    assert '"quick": true' in text and '"command": "python examples/reproduce/dmo_rate.py --quick --speeds 1.0"' in text
