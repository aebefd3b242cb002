"""The experiments of the papers: one list, one command, and pages that hold nothing but the stored results."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from scipy.stats import wilcoxon


@pytest.fixture(scope="module")
def experiments(load_script):
    return load_script("reproduce/experiments.py")


@pytest.fixture(scope="module")
def ages(experiments):
    return experiments.ages


@pytest.fixture(scope="module")
def page(load_script, experiments):
    return load_script("reproduce/page.py")


@pytest.fixture(scope="module")
def rendered(page):
    return page.render()


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


def test_the_pages_are_those_of_the_stored_results(page, rendered):
    """After a change of a result, of the list, or of the code of a result: `python -m examples.reproduce --page`."""
    assert {path.name: path.read_text(encoding="utf-8") for path in page.PAGES.glob("*.md")} == rendered


def test_a_page_is_short_and_its_numbers_have_names(page, rendered, listed, experiments):
    assert all(len(text.split()) <= 2500 for text in rendered.values())
    for item in listed["items"]:
        if "shows" in item and item["verdict"] != "not run":
            ours, _ = page.shown(item["shows"], experiments.read(item["experiment"]))
            names = [re.sub(r" \S+( ± \S+)?$", "", line) for line in ours.split("<br>")]
            assert len(set(names)) == len(names), item["item"]


def test_links_to_a_part_of_a_page_find_it(page, rendered, root):
    headings = {name: re.findall(r"^## (.*)$", text, re.MULTILINE) for name, text in rendered.items()}
    anchors = {f"{name}#{heading}".lower() for name, found in headings.items() for heading in found}
    texts = [text.replace("](#", f"]({name}#") for name, text in rendered.items()]
    found = {link for text in texts for link in re.findall(r"\]\((\w+\.md#[^)]+)\)", text)}
    for path in (root / "docs").rglob("*.md"):
        found |= set(re.findall(r"\]\((?:\.\./)*reproducibility/([^)]+#[^)]+)\)", path.read_text(encoding="utf-8")))
    assert found and found <= anchors


def test_a_result_is_older_than_its_code_if_what_it_imports_has_changed(ages, tmp_path):
    """The mark is right for a package whose names are passed on by an `__init__`, here a lazy one with a stub."""
    files = {
        "script.py": "import kpp\nfrom helper import f\n\nf(kpp.fit)\n",
        "examples/reproduce/helper.py": "f = print\n",
        "kpp/__init__.py": "",
        "kpp/__init__.pyi": "from .parts import other as other\nfrom .parts.one import fit as fit\n",
        "kpp/parts/__init__.py": "from kpp.parts.other import other as other\n",
        "kpp/parts/one.py": "def fit():\n    from kpp.parts import (inner)\n",
        "kpp/parts/inner.py": "inner = 1\n",
        "kpp/parts/other.py": "other = 2\n",
    }

    def digest(number, **changed):
        root = tmp_path / str(number)
        for name, text in (files | changed).items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        return ages.digest(root / "script.py", root)

    before = digest(0)
    assert len(before) == 16
    for number, name in enumerate(("script.py", "examples/reproduce/helper.py", "kpp/parts/inner.py"), start=1):
        assert digest(number, **{name: files[name] + "more = 1\n"}) != before
    assert digest(4, **{"kpp/parts/other.py": "other = 3\n"}) == before  # is not used
    words = '"""Words."""\n\n# More.\ndef fit():\n    """Words.\n\n    More."""\n'
    words += "    from kpp.parts import (\n        inner,\n    )\n"
    assert digest(5, **{"kpp/parts/one.py": words}) == before


def test_a_result_of_the_code_as_it_is_has_no_mark(ages, experiments, page, listed):
    experiment = listed["experiments"]["dmo-rate"]
    result = experiments.read("dmo-rate") | ages.provenance(experiments.script(experiment))
    assert not page.is_old(experiment, result) and page.is_old(experiment, result | {"code": "0", "confirmed": {}})
    assert "Older than its code" not in page.provenance(result, False) and "Older" in page.provenance(result, True)
    assert any(path.name == "base.py" for path in ages.used_files(experiments.script(experiment)))


def test_every_item_of_the_list_leads_somewhere(experiments, page, listed):
    for item in listed["items"]:
        assert item["paper"] in listed["papers"] and item["verdict"] in page.VERDICTS
        assert item["verdict"] in ("done", "no result") or "why" in item
        if "shows" in item:
            tables = listed["experiments"][item["experiment"]]["tables"]
            assert item["shows"]["table"] in {table.get("name", table["table"]) for table in tables}
        if item["verdict"] in ("done", "done, and better", "differs"):
            assert (experiments.RESULTS / f"{item['experiment']}.json").exists()
    used = {item.get("experiment") for item in listed["items"]}
    for name, experiment in listed["experiments"].items():
        assert name in used
        assert experiments.script(experiment).exists()


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
    wanted |= {"where": {"case": ["a", "b"], "method": "one"}, "label": ["case", "method"]}
    assert page.shown(wanted, result) == ("a, one 1.00 ± 0.10<br>b, one 3.00 ± 0.10", "a, one 1.1")


def test_the_command_lists_runs_and_stores(root, tmp_path):
    command = [sys.executable, "-m", "examples.reproduce", "dmo-rate", "--quick", "--list", "--results", str(tmp_path)]
    done = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True, timeout=120)
    assert "swiss-roll" in done.stdout and "Theorem 3.4.2" in done.stdout
    text = (tmp_path / "dmo-rate.json").read_text()
    assert '"quick": true' in text and '"command": "python examples/reproduce/dmo_rate.py --quick --speeds 1.0"' in text


@pytest.fixture
def confirm(load_script, experiments, tmp_path, monkeypatch):
    """The module, with one stored result of the code "a", while the code is "c"."""
    module = load_script("reproduce/confirm.py")
    listed = {"experiments": {"one": {"script": "one", "quick": ["--small"]}}}
    monkeypatch.setattr(module, "read_list", lambda: listed)
    monkeypatch.setattr(module, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(module, "read", lambda name: experiments.read(name, tmp_path / "results"))
    monkeypatch.setattr(module.ages, "digest", lambda path: "c")
    monkeypatch.setattr(module.ages, "used_files", lambda path: [])
    monkeypatch.setattr(module.ages, "commit", lambda files: "1234")
    experiments.store({"name": "one", "code": "a", "commit": "12", "tables": []}, tmp_path / "results")
    return module


def quick_result(code, error, columns=("method", "error", "seconds")):
    rows = [["mine", error, 3.0 if code == "a" else 1.0], ["theirs", None, 2.0]]
    rows = [row[: len(columns)] for row in rows]
    return {"name": "one", "code": code, "tables": [{"table": "t", "columns": list(columns), "rows": rows}]}


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (quick_result("a", 0.1234), quick_result("c", 0.1235), None),
        (quick_result("a", 0.1234), quick_result("c", 0.1236), "t 0 error: 1.6e-03"),
        (quick_result("a", 0.1234), quick_result("c", None), "t 0 error: inf"),
        (quick_result("b", 0.1234), quick_result("c", 0.1234), "it is older than the code before"),
        (quick_result("b", 0.1234) | {"commit": "12"}, quick_result("c", 0.1234), None),
        (quick_result("b", 0.1234) | {"commit": "12+"}, quick_result("c", 0.1234), "it is older than the code before"),
        (quick_result("a", 0.1234), quick_result("b", 0.1234), "the quick result is older than the code"),
        (quick_result("a", 0.1234), quick_result("c", 0.1234, ("method", "error rate")), "its tables have other rows"),
        (None, quick_result("c", 0.1234), "a quick result is missing"),
    ],
)
def test_a_result_is_confirmed_if_its_quick_version_gives_the_same_numbers(
    confirm, experiments, tmp_path, before, after, reason
):
    for folder, result in (("before", before), ("after", after)):
        (tmp_path / folder).mkdir()
        if result is not None:
            experiments.store(result, tmp_path / folder)
    confirmed, refused = confirm.confirm(tmp_path / "before", tmp_path / "after")
    stored = experiments.read("one", tmp_path / "results")
    if reason is None:
        assert (confirmed, refused) == (["one"], {})
        assert stored["confirmed"] == {"code": "c", "commit": "1234"} and confirm.ages.is_current(stored, "c")
        assert confirm.confirm(tmp_path / "before", tmp_path / "after") == ([], {})
    else:
        assert (confirmed, refused) == ([], {"one": reason})
        assert "confirmed" not in stored and not confirm.ages.is_current(stored, "c")
