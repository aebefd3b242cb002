"""The measures of .ci/house.py on a small project whose numbers are known by hand."""

from __future__ import annotations

import functools
import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

FILES = {
    "kpp/__init__.py": '"""The core."""\nimport lazy_loader\n',
    "kpp/__init__.pyi": "from .top import explain as explain\n",
    "kpp/base.py": '"""What is at the bottom."""\n# a reason\n# on two lines\nX = 1  # noqa: E501\n',
    "kpp/kernels/__init__.py": "from kpp.kernels.points.stationary import RBF as RBF\n",
    "kpp/kernels/points/stationary.py": "import kpp.base\nclass RBF: ...\n",
    "kpp/kernels/hidden.py": "def helper(): ...\n",
    "kpp/top.py": "from kpp.kernels import RBF\ndef explain(x: Any, *args: int, key: Any | None = None) -> Any: ...\n",
    "models/kpp_models/__init__.py": "",
    "models/kpp_models/__init__.pyi": "from .model import GP as GP\n",
    "models/kpp_models/model.py": (
        "import abc\nfrom kpp import explain\nfrom kpp_models.tables import mean\n"
        "from kpp.kernels.hidden import helper\n"
        "class AbstractModel:\n"
        "    @abc.abstractmethod\n    def a(self, x): ...\n"
        "    @abc.abstractmethod\n    def b(self): ...\n"
        "class AbstractGPModel(AbstractModel):\n"
        "    def a(self, x): return x\n"
        "    @abc.abstractmethod\n    def c(self): ...\n"
    ),
    "models/kpp_models/tables.py": "def mean(x):\n    from kpp_models import model\n    return model\n",
    "plugins/kpp_plugin/__init__.py": "",
    "plugins/kpp_plugin/rule.py": (
        "from typing import TYPE_CHECKING\nimport kpp\nif TYPE_CHECKING:\n    from kpp_plugin.other import Other\n"
        'def run(x: "Any", y: Any):\n    """Refuse what is no number."""\n'
        '    raise ValueError(f"`x` is no\\nnumber, got {x}, whatever")\n    kpp.explain(x)\n'
    ),
    "plugins/kpp_plugin/other.py": "from kpp_plugin.rule import run\nclass Other: ...\n",
    "docs/explanation/architecture.md": "```text import-order\n[low]\nbase kernels\n[high]\ntop\n```\n",
    "docs/page.md": "There is no end. One target\na bag, and one or a draw.\n",
}


Run = Callable[..., str]


@pytest.fixture(scope="module")
def script(root: Path) -> ModuleType:
    """The script, which reads each project once however often it is run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(root / ".ci"))
        module = importlib.import_module("house")
        patch.setattr(module, "House", functools.cache(module.House))
        yield module


@pytest.fixture
def run(script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """`run(root, *options)` returns what the script prints."""

    def call(root: Path, *options: str, status: int = 0) -> str:
        monkeypatch.setattr(sys, "argv", ["house.py", "--root", str(root), *options])
        assert script.main() == status
        return capsys.readouterr().out

    return call


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("project"))


def write(folder: Path) -> Path:
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def table(printed: str) -> dict[str, str]:
    lines = printed.split("\n\n")[0].splitlines()
    return dict(re.split(r"\s{2,}", line, maxsplit=1) for line in lines)


def test_layout(project: Path, run: Run):
    values = table(run(project, "--folder", "kpp", "--folder", "models/kpp_models"))
    assert [values[f"{what} in kpp"] for what in ("rooms", "import arrows", "floors")] == ["4", "3", "4"]
    assert [values[f"{what} in kpp_models"] for what in ("rooms", "import arrows", "floors")] == ["3", "3", "2"]


def test_the_longest_chain_ends_where_names_are_defined(project: Path, run: Run):
    chain = run(project, "--list", "chain").split()
    assert chain == ["kpp_plugin.other", "kpp_plugin.rule", "kpp.top", "kpp.kernels.points.stationary", "kpp.base"]
    assert table(run(project))["longest chain of imports"] == "5"


def test_cycles_by_kind_of_import(project: Path, run: Run):
    assert run(project, "--list", "cycles").splitlines() == [
        "at run time: kpp_models.model, kpp_models.tables",
        "with TYPE_CHECKING: kpp_models.model, kpp_models.tables",
        "with TYPE_CHECKING: kpp_plugin.other, kpp_plugin.rule",
    ]


def test_share_of_any(project: Path, run: Run):
    values = table(run(project))
    assert values["parameters annotated Any, kpp"] == "66.7 % (2 of 3)"
    assert values["parameters annotated Any, all"] == "37.5 % (3 of 8)"
    assert run(project, "--list", "any").split("\n")[0] == "kpp/top.py:2 explain(x)"


def test_abstract_methods_are_those_left_to_write(project: Path, run: Run):
    assert run(project, "--list", "abstract").splitlines() == ["AbstractModel: a, b", "AbstractGPModel: b, c"]


def test_names_that_the_core_does_not_export(project: Path, run: Run):
    assert run(project, "--list", "exports").strip() == "models/kpp_models/model.py:4 kpp.kernels.hidden: helper"


def test_lines_and_comments(project: Path, run: Run):
    values = table(run(project))
    assert values["lines, kpp"] == "12 (8 code, 2 logic)"
    assert values["lines with a comment, kpp"] == "16.7 % (2 of 12)"


def test_text_patterns(project: Path, run: Run):
    values = table(run(project))
    assert values['text "is no"'] == "3: kpp_plugin 2, docs 1"
    assert values['text "is no, not there is no"'] == "2: kpp_plugin 2"
    assert values['text "one a"'] == "1: docs 1"
    assert values['text "whatever"'] == "1: kpp_plugin 1"
    assert values['text "What ..."'] == "1: kpp 1"
    assert values['text "Refuse/Be ..."'] == "1: kpp_plugin 1"
    assert run(project, "--list", "one a").startswith("docs/page.md:1 ")


@pytest.mark.parametrize("words", ["so many", "shall", "told by", "told from", "unfit"])
def test_readers_of_a_second_language_do_not_meet_these_words(root: Path, run: Run, words: str):
    assert run(root, "--list", words).strip() == ""


def test_the_pictures_show_each_part_and_are_checked(tmp_path: Path, run: Run):
    project = write(tmp_path)
    (project / "models/kpp_models/tables.py").write_text("def mean(x): ...\n")
    folder = project / "docs" / "pictures"
    run(project, "--check", status=1)
    run(project, "--pictures", str(folder))
    first = {path.name: path.read_text() for path in folder.iterdir()}
    labels = {name: sorted(re.findall(r'text-anchor="middle">([^<]*)<', text)) for name, text in first.items()}
    assert labels == {
        "house.svg": ["high 0.0k", "kpp_models 0.0k", "kpp_plugin 0.0k", "low 0.0k"],
        "house_all.svg": ["base", "kernels/", "model", "plugin", "tables", "top"],
        "house_high.svg": ["top 0.0k"],
        "house_low.svg": ["base 0.0k", "kernels/ 0.0k"],
        "house_kpp_models.svg": ["model 0.0k", "tables 0.0k"],
    }
    assert first["house_all.svg"].count("marker-end") == 5
    run(project, "--check")
    (folder / "house_low.svg").unlink()
    run(project, "--check", status=1)
    run(project, "--pictures", str(folder))
    assert first == {path.name: path.read_text() for path in folder.iterdir()}


# The layout of this project itself; the numbers are the bars of the redesign.


@pytest.fixture(scope="module")
def measures(script: ModuleType, root: Path) -> dict[str, str]:
    house = script.House(root)
    rows = [script.layout_rows(house, ["models/kpp_models"]), script.export_rows(house), script.contract_rows(house)]
    return dict(row for group in rows for row in group)


@pytest.mark.parametrize(
    ("measure", "most"),
    [
        ("rooms in kpp_models", 9),
        ("import arrows in kpp_models", 20),
        ("floors in kpp_models", 5),
        ("longest chain of imports", 11),
        ("class depth", 5),
        ("files with __all__, not an __init__", 0),
        ("exported names, kpp", 300),
        ("exported names, kpp.gp", 40),
        ("rooms in kpp", 32),
        ("widest sheet", 14),
        ("import cycles with TYPE_CHECKING", 0),
        ("names of the core imported but not exported", 0),
        ("abstract methods of AbstractGPModel", 3),
        ("parameters annotated Any, all", 8),
    ],
)
def test_the_house_stays_as_it_was_built(measures: dict[str, str], measure: str, most: int):
    assert float(measures[measure].split()[0]) <= most


def test_the_pictures_of_the_house_are_the_current_ones(root: Path, run: Run):
    run(root, "--check")
