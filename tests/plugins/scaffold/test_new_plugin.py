"""`kpp new plugin`: the template with names of its own. `tests/registry/test_third_party_plugin.py` installs one."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kpp.__main__ import main
from kpp_study.scaffold.plugin import check_plugin_name, write_plugin


def new_plugin(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["new", "plugin", *arguments])


def files(folder: Path) -> dict[str, str]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def test_it_has_its_own_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    result = new_plugin("my-waves")
    assert result.exit_code == 0, result.output
    assert result.output.endswith("Next: cd kpp-my-waves && pip install -e '.[test]' && pytest\n")
    found = files(tmp_path / "kpp-my-waves")
    assert {path for path in found if "/" not in path} == {"README.md", "pyproject.toml"}
    modules = {"__init__", "command", "converter", "explainer", "inference", "kernel"}
    assert {Path(path).stem for path in found if path.startswith("kpp_my_waves/")} == modules
    project = tomllib.loads(found["pyproject.toml"])
    assert project["project"]["name"] == "kpp-my-waves"
    assert project["project"]["entry-points"]["kpp"] == {"my_waves": "kpp_my_waves"}
    assert project["project"]["optional-dependencies"]["test"] == ["kpp-my-waves[blackjax]", "pytest"]
    for path, text in found.items():
        assert not re.search(r"\bexample\b|kpp_example|\.template", path + text), path
        if path.endswith(".py"):
            compile(text, path, "exec")
    assert "def examples(" in found["kpp_my_waves/kernel.py"]


@pytest.mark.skipif(find_spec("ruff") is None, reason="ruff is not installed")
def test_it_is_formatted_and_has_no_faults(tmp_path: Path, root: Path):
    folder = write_plugin("example", tmp_path / "plugin")
    for command in (["check", "--ignore", "D"], ["format", "--check"]):
        options = ["--no-cache", "--config", str(root / "pyproject.toml"), str(folder)]
        done = subprocess.run([sys.executable, "-m", "ruff", *command, *options], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_it_uses_public_names_only(tmp_path: Path):
    for path, text in files(write_plugin("example", tmp_path / "plugin")).items():
        assert not re.search(r"(from|import) kpp\S*\._|import .*\b_|\bkpp(\.\w+)*\._", text), path


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("My Waves", "`name` must consist of lower-case letters .* got 'My Waves', try 'my-waves'"),
        ("2waves", "try 'waves'"),
        ("waves-", "try 'waves'"),
        ("a--b", "try 'a-b'"),
        ("../waves", "try 'waves'"),
        ("wéves", "try 'w-ves'"),
        ("42", "begin with a letter; got '42'$"),
        ("", "got ''$"),
        ("kpp-waves", "`name` must not begin with 'kpp', which is added: write 'waves'"),
        ("kpp_waves", "write 'waves'"),
        ("models", "`name` must not be that of a plugin of kpp .* got 'models'"),
        ("rkhs-shap", "must not be that of a plugin of kpp"),
    ],
)
def test_other_names_are_refused_with_a_suggestion(tmp_path: Path, name: str, message: str):
    with pytest.raises(ValueError, match=message):
        write_plugin(name, tmp_path / "plugin")
    assert not (tmp_path / "plugin").exists()


@pytest.mark.parametrize("name", ["waves", "w", "my_waves", "waves2", "example"])
def test_names_that_are_possible(name: str):
    check_plugin_name(name)


def test_a_folder_with_entries_is_never_changed(tmp_path: Path):
    (tmp_path / "thesis.tex").write_text("years of work")
    result = new_plugin("waves", "--output", str(tmp_path))
    assert result.exit_code == 2
    assert result.stderr == f"kpp new plugin: `output` must be a new or empty folder, but {str(tmp_path)!r} exists\n"
    assert list(files(tmp_path)) == ["thesis.tex"]
    (tmp_path / "empty").mkdir()
    assert new_plugin("waves", "--output", str(tmp_path / "empty")).exit_code == 0
