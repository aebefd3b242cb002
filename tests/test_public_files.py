"""The files of a public project agree with pyproject.toml and with the repository."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
YAML_FILES = [*sorted((ROOT / ".github").rglob("*.yml")), ROOT / "CITATION.cff", ROOT / "conda-recipe" / "recipe.yaml"]
# Packages that conda-forge has under another name than PyPI.
CONDA_NAMES = {"matplotlib": "matplotlib-base"}
# What a workflow makes before it names it.
MADE = (".venv/", ".jax_cache", "build/", "dist/")


def read_yaml(path: Path) -> dict[Any, Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def steps(workflow: Path) -> Iterator[dict[str, Any]]:
    for job in read_yaml(workflow)["jobs"].values():
        yield from job["steps"]


def commands(workflow: Path) -> str:
    return "\n".join(step.get("run", "") for step in steps(workflow))


def named_files(workflow: Path) -> set[str]:
    """Paths of the repository in the commands of a workflow and in the options of its actions."""
    texts = [commands(workflow)]
    texts += [str(value) for step in steps(workflow) for value in step.get("with", {}).values()]
    found = set(re.findall(r"(?<![\w/.$-])\.?\w[\w-]*(?:/[\w.*-]+)+|\b[\w-]+\.(?:toml|txt|py|md)\b", "\n".join(texts)))
    return {path for path in found if not path.startswith(MADE)}


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def recipe() -> dict[str, Any]:
    return read_yaml(ROOT / "conda-recipe" / "recipe.yaml")


@pytest.mark.parametrize("path", YAML_FILES, ids=lambda path: path.name)
def test_every_yaml_file_is_a_mapping(path: Path):
    assert isinstance(read_yaml(path), dict)


def test_the_citation_is_of_this_version(project):
    citation = read_yaml(ROOT / "CITATION.cff")
    assert citation["version"] == project["version"]
    assert citation["license"] == project["license"]
    assert citation["keywords"] == project["keywords"]
    assert [author["name"] for author in citation["authors"]] == [author["name"] for author in project["authors"]]


def test_the_citation_is_dated_as_the_changelog(project):
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    dates = dict(re.findall(r"^## (\S+) \((\d{4}-\d{2}-\d{2})\)$", changelog, re.MULTILINE))
    assert dates[project["version"]] == str(read_yaml(ROOT / "CITATION.cff")["date-released"])


def test_the_citation_lists_the_papers_of_the_readme():
    """In the same order; the README shortens some titles."""
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Papers")[2].partition("\n## ")[0]
    entries = [" ".join(entry.split()) for entry in section.split("\n* ")[1:]]
    for entry, reference in zip(entries, read_yaml(ROOT / "CITATION.cff")["references"], strict=True):
        short = re.search(r"\*([^*]+?)\.?\*", entry)[1]
        assert re.match(".*".join(map(re.escape, short.split("..."))), reference["title"])
        assert str(reference["year"]) in entry
        assert all(author["family-names"] in entry for author in reference["authors"])


def test_the_citation_has_the_titles_of_the_bibliography():
    text = (ROOT / "docs" / "references.bib").read_text(encoding="utf-8")
    bibliography = {re.sub("[{}]", "", title) for title in re.findall(r"^\s*title\s*=\s*(.*),$", text, re.MULTILINE)}
    assert {reference["title"] for reference in read_yaml(ROOT / "CITATION.cff")["references"]} <= bibliography


def test_the_paper_cites_what_the_bibliography_has():
    _, front, text = (ROOT / "paper" / "paper.md").read_text(encoding="utf-8").split("---\n", 2)
    bibliography = (ROOT / "paper" / yaml.safe_load(front)["bibliography"]).read_text(encoding="utf-8")
    cited = set(re.findall(r"@(\w+)", text))
    assert len(cited) > 5 and cited <= set(re.findall(r"^@\w+\{(\w+),", bibliography, re.MULTILINE))
    assert 500 <= len(text.split()) <= 1750  # what the Journal of Open Source Software asks for


def test_addresses_of_the_project_are_in_one_place(project):
    urls = project["urls"]
    assert all(url.startswith("https://") for url in urls.values())
    assert urls["Issues"] == f"{urls['Source']}/issues"
    files = [*ROOT.glob("*.*"), *ROOT.glob(".github/**/*.yml"), *ROOT.glob("docs/**/*.*"), *ROOT.glob("conda-recipe/*")]
    text = {
        path: path.read_text(encoding="utf-8")
        for path in files
        if path.suffix in {".md", ".py", ".toml", ".yml", ".yaml", ".cff"}
    }
    assert {path.name for path in text if urls["Source"] in text[path]} == {"pyproject.toml"}


def test_the_package_index_shows_a_readme_with_full_addresses(project):
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    metadata = {"urls": project["urls"]}
    module.ReadmeHook(str(ROOT), {}).update(metadata)
    text = metadata["readme"]["text"]
    source = project["urls"]["Source"]
    targets = re.findall(r"\]\(([^)]+)\)", text)
    assert all(target.startswith("https://") for target in targets)
    inside = [target.partition("/main/") for target in targets if target.startswith(source)]
    assert len(inside) > 5 and all((ROOT / path).exists() for _, _, path in inside)
    assert f"{source}/raw/main/docs/pictures/explanation.png" in targets


@pytest.mark.parametrize("name", ["tests.yml", "release.yml"])
def test_the_workflow_tests_every_python_of_the_classifiers(name: str, project):
    """The `matrix` of each workflow that tests, against `Programming Language :: Python :: 3.x`."""
    classifiers = [re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line) for line in project["classifiers"]]
    supported = [match[1] for match in classifiers if match]
    jobs = read_yaml(ROOT / ".github" / "workflows" / name)["jobs"].values()
    matrices = [job["strategy"]["matrix"]["python"] for job in jobs if "strategy" in job]
    assert matrices == [supported]
    assert project["requires-python"] == f">={supported[0]}"


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_every_make_target_of_a_workflow_exists(workflow: Path):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    wanted = set(re.findall(r"^make ([a-z-]+)", commands(workflow), re.MULTILINE))
    assert wanted <= set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_every_file_that_a_workflow_names_exists(workflow: Path):
    missing = [path for path in sorted(named_files(workflow)) if not list(ROOT.glob(path))]
    assert not missing


def test_the_files_that_workflows_name_are_found():
    """The search itself: what is known to be in the workflows."""
    found = {workflow.name: named_files(workflow) for workflow in WORKFLOWS}
    assert found["tests.yml"] == {"pyproject.toml", "constraints.txt"}
    assert found["docs.yml"] == set()
    assert found["release.yml"] == {
        "pyproject.toml",
        "constraints.txt",
        "tests/core",
        "tests/registry",
        "tests/plugins/study",
    }


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_have_few_rights(workflow: Path):
    """Everything may read; only the jobs that publish may ask for more, and no step keeps the token of the checkout."""
    content = read_yaml(workflow)
    assert content["permissions"] == {"contents": "read"}
    assert "concurrency" in content
    granted = {name: job["permissions"] for name, job in content["jobs"].items() if "permissions" in job}
    assert (
        granted.items()
        <= {
            "deploy": {"pages": "write", "id-token": "write"},
            "publish": {"id-token": "write"},
        }.items()
    )
    checkouts = [step for step in steps(workflow) if step.get("uses", "").startswith("actions/checkout@")]
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_the_digest_of_a_version(workflow: Path):
    """A tag can be moved to other code, a digest cannot; the comment behind it is for readers."""
    used = re.findall(r"^ *(?:- )?uses: *(.*)$", workflow.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(used) == sum("uses" in step for step in steps(workflow)) > 0
    assert all(re.fullmatch(r"[\w-]+/[\w/-]+@[0-9a-f]{40} # v\d+(\.\d+)+", action) for action in used)


def test_an_action_has_one_version_in_all_workflows():
    found = {step["uses"] for workflow in WORKFLOWS for step in steps(workflow) if "uses" in step}
    repositories = {action: "/".join(action.partition("@")[0].split("/")[:2]) for action in found}
    pinned = {(repositories[action], action.partition("@")[2]) for action in found}
    assert len(pinned) == len(set(repositories.values()))


def test_the_recipe_requires_what_pyproject_requires(project, recipe):
    expected = {"python": project["requires-python"]}
    for line in project["dependencies"]:
        requirement = Requirement(line)
        expected[CONDA_NAMES.get(requirement.name, requirement.name)] = str(requirement.specifier)
    oldest = recipe["context"]["python_min"]
    lines = [line.replace("${{ python_min }}", oldest) for line in recipe["requirements"]["run"]]
    assert dict(line.split(" ", 1) for line in lines) == expected


def test_the_recipe_builds_this_package(project, recipe):
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert recipe["package"]["name"] == project["name"]
    assert recipe["context"]["version"] == project["version"]
    assert recipe["about"]["summary"] == project["description"]
    assert recipe["about"]["license"] == project["license"]
    assert (ROOT / recipe["about"]["license_file"]).is_file()
    folders = pyproject["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    (imports,) = (test["python"]["imports"] for test in recipe["tests"] if "python" in test)
    assert sorted(imports) == sorted(Path(folder).name for folder in folders)
    scripts = [f"{name} = {target}" for name, target in project["scripts"].items()]
    assert recipe["build"]["python"]["entry_points"] == scripts
    host = [line for line in recipe["requirements"]["host"] if line.startswith("hatchling")]
    assert [line.replace(" ", "") for line in host] == pyproject["build-system"]["requires"]
