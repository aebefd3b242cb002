"""The rules of docs/explanation/architecture.md, read off the syntax trees: nothing is imported here."""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES = [ROOT / folder for folder in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]]
ADD_ONS = [package for package in PACKAGES if package.name != "kpp"]
EXAMPLES = [ROOT / "examples"]


@functools.cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def trees(folder: Path) -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(folder.rglob("*.py")):
        yield path, parse(path)


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def run_time_statements(node: ast.AST) -> Iterator[ast.AST]:
    """Every statement below, except what only a type checker sees."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr) and not is_type_checking(child):
            yield child
            yield from run_time_statements(child)


@functools.cache  # many tests ask for the same file
def imports(path: Path, tree: ast.Module) -> list[str]:
    """The dotted names a file imports, `from a import b` as `a.b`, relative imports made absolute."""
    return list(read_imports(path, tree))


def read_imports(path: Path, tree: ast.Module) -> Iterator[str]:
    top = next((package for package in PACKAGES if path.is_relative_to(package)), path.parent)
    package = [top.name, *path.relative_to(top).parent.parts]
    for node in run_time_statements(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = [*package[: len(package) + 1 - node.level]] if node.level else []
            yield from (".".join([*base, *filter(None, [node.module]), alias.name]) for alias in node.names)


def imports_of_any(folder: Path, tops: set[str]) -> list[str]:
    """The places below a folder that import one of some top-level packages."""
    return [
        f"{path.relative_to(ROOT)} imports {name}"
        for path, tree in trees(folder)
        for name in imports(path, tree)
        if name.split(".")[0] in tops
    ]


def lazy_exports() -> dict[str, str]:
    """The names in kpp/__init__.pyi that are no modules: public name -> module."""
    tree = ast.parse((ROOT / "kpp" / "__init__.pyi").read_text(encoding="utf-8"))
    statements = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module]
    return {alias.name: f"kpp.{node.module}" for node in statements for alias in node.names}


def declared_layers() -> list[list[str]]:
    """The fenced block "import order" of docs/explanation/architecture.md, lowest layer first."""
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    block = re.search(r"```text import-order\n(.*?)```", page, re.DOTALL)
    assert block, "docs/explanation/architecture.md must hold a fenced block `text import-order`"
    return [line.split() for line in block[1].splitlines() if not line.startswith("[")]


def area(path: Path) -> str:
    """The part of the core a file belongs to: `kernels` for kpp/kernels/points/stationary.py."""
    return path.relative_to(ROOT / "kpp").parts[0].removesuffix(".py")


def core_dependencies() -> dict[str, dict[str, list[str]]]:
    """Area -> area it imports -> the places where it does."""
    known = {area(path) for path, _ in trees(ROOT / "kpp")}
    exports = lazy_exports()
    found: dict[str, dict[str, list[str]]] = {name: {} for name in known}
    for path, tree in trees(ROOT / "kpp"):
        for name in imports(path, tree):
            parts = name.split(".")
            if parts[0] != "kpp" or len(parts) == 1:
                continue
            target = exports[parts[1]].split(".")[1] if parts[1] in exports else parts[1]
            if target in known and target != area(path):
                found[area(path)].setdefault(target, []).append(f"{path.relative_to(ROOT)} imports {name}")
    return found


def test_every_part_of_the_core_has_a_place_in_the_order():
    listed = [name for layer in declared_layers() for name in layer]
    assert len(listed) == len(set(listed))
    on_disk = {area(path) for path, _ in trees(ROOT / "kpp")} - {"__init__"}
    assert on_disk == set(listed)


def test_no_part_of_the_core_imports_a_higher_one():
    level = {name: height for height, layer in enumerate(declared_layers()) for name in layer}
    wrong = [
        place
        for name, targets in core_dependencies().items()
        for target, places in targets.items()
        for place in places
        if name != "__init__" and level[target] > level[name]
    ]
    assert not wrong


def test_the_parts_of_the_core_form_no_cycle():
    try:
        TopologicalSorter({name: targets.keys() for name, targets in core_dependencies().items()}).prepare()
    except CycleError as error:
        pytest.fail(f"{error.args[1]}")


def test_games_build_on_players_values_estimators_and_covariance_in_this_order():
    order = ("players", "values", "estimators", "covariance")
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for level, layer in enumerate(order)
        for path, tree in trees(ROOT / "kpp" / "games" / layer)
        for name in imports(path, tree)
        if name.startswith("kpp.games") and name.split(".")[2] not in order[: level + 1]
    ]
    assert not wrong


def test_nobody_imports_builtin():
    assert not [name for name, targets in core_dependencies().items() if "builtin" in targets]


def test_the_core_does_not_import_its_own_lazy_package():
    whole = [path for path, tree in trees(ROOT / "kpp") if "kpp" in imports(path, tree) and path.stem != "builtin"]
    assert not whole, "name the module: `import kpp` hides which part is used"


def test_public_methods_are_documented_or_override_documented_ones():
    classes: dict[str, list[tuple[Path, ast.ClassDef]]] = {}
    for path, tree in (pair for package in PACKAGES for pair in trees(package)):
        for node in (node for node in tree.body if isinstance(node, ast.ClassDef)):
            classes.setdefault(node.name, []).append((path, node))

    def methods(node: ast.ClassDef) -> list[ast.FunctionDef]:
        return [part for part in node.body if isinstance(part, ast.FunctionDef) and not part.name.startswith("_")]

    @functools.cache
    def documented(name: str) -> set[str]:
        nodes = [node for _, node in classes.get(name, [])]
        own = {method.name for node in nodes for method in methods(node) if ast.get_docstring(method)}
        bases = {re.sub(r"\[.*|.*\.", "", ast.unparse(base)) for node in nodes for base in node.bases} - {name}
        return own.union(*map(documented, bases))

    # `examples` is explained by `kpp.testing`, and the members of a protocol by the classes that have them.
    known = {"examples", *(part.name for _, node in classes["MixedGraph"] for part in methods(node))}
    missing = [
        f"{path.relative_to(ROOT)}:{method.lineno} {name}.{method.name}"
        for name, nodes in classes.items()
        for path, node in nodes
        for method in methods(node)
        if not name.startswith("_") and method.name not in documented(name) | known
    ]
    assert not missing


def test_the_core_imports_no_model_and_no_plugin():
    others = {package.name for package in ADD_ONS}
    wrong = [
        (path, name)
        for path, tree in trees(ROOT / "kpp")
        for name in imports(path, tree)
        if name.split(".")[0] in others
    ]
    assert not wrong


@pytest.mark.parametrize("package", ADD_ONS, ids=lambda package: package.name)
def test_models_and_plugins_import_no_sibling(package: Path):
    siblings = {other.name for other in ADD_ONS} - {package.name}
    wrong = [
        (path, name) for path, tree in trees(package) for name in imports(path, tree) if name.split(".")[0] in siblings
    ]
    assert not wrong, "what two of them share belongs in the core"


@pytest.mark.parametrize("folder", [*ADD_ONS, *EXAMPLES], ids=lambda folder: folder.name)
def test_models_plugins_and_examples_use_public_names_of_kpp_only(folder: Path):
    ours = {package.name for package in PACKAGES} - {folder.name}
    for path, tree in trees(folder):
        for name in imports(path, tree):
            parts = name.split(".")
            private = [part for part in parts if part.startswith("_") and not part.startswith("__")]
            assert parts[0] not in ours or not private, f"{path.relative_to(ROOT)} imports {name}"
        used = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr.startswith("_")]
        hidden = [ast.unparse(node) for node in used if re.fullmatch(r"kpp(\.\w+)*\._[a-z]\w*", ast.unparse(node))]
        assert not hidden, f"{path.relative_to(ROOT)} uses {hidden}"


@pytest.mark.parametrize("folder", [*PACKAGES, *EXAMPLES, ROOT / "tests"], ids=lambda folder: folder.name)
def test_nothing_imports_the_folders_or_private_jax(folder: Path):
    assert not imports_of_any(folder, {"plugins", "models", "tests", "docs"})
    private = [(path, name) for path, tree in trees(folder) for name in imports(path, tree) if name.startswith("jax._")]
    assert not private


@pytest.mark.parametrize(
    ("room", "higher"), [("graph", ("criteria", "identification")), ("criteria", ("identification",))]
)
def test_causal_graphs_know_no_criteria_and_criteria_no_identification(room: str, higher: list[str]):
    names = [name for path, tree in trees(ROOT / "kpp" / "causal" / room) for name in imports(path, tree)]
    assert names
    assert not [name for name in names if name.startswith(tuple(f"kpp.causal.{one}" for one in higher))]


@pytest.mark.parametrize(("room", "other"), [("boundary", "process"), ("process", "boundary")])
def test_boundaries_and_processes_of_gpec_never_import_each_other(room: str, other: str):
    folder = ROOT / "plugins" / "kpp_gpec" / room
    names = [name for path, tree in trees(folder) for name in imports(path, tree)]
    assert names
    assert not [name for name in names if name.startswith(f"kpp_gpec.{other}.")]


FAMILIES = ("aggregates", "colliders", "fusion", "mechanisms", "preferences", "tables", "treatments")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_of_models_imports_no_family_but_tables(family: str):
    allowed = {family, "tables"}
    others = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path, tree in trees(ROOT / "models" / "kpp_models" / family)
        for name in imports(path, tree)
        if name.split(".")[0] == "kpp_models" and (name + ".").split(".")[1] not in allowed
    ]
    assert not others


def test_every_package_on_disk_is_listed_for_the_wheel():
    on_disk = {ROOT / "kpp"} | {
        path.parent for group in ("models", "plugins") for path in (ROOT / group).glob("*/__init__.py")
    }
    assert set(PACKAGES) == on_disk


def test_every_package_is_an_entry_point_named_after_it():
    expected = {package.name.removeprefix("kpp_"): package.name for package in ADD_ONS} | {"core": "kpp.builtin"}
    assert PROJECT["project"]["entry-points"]["kpp"] == expected


def test_the_tools_know_every_package():
    tool, folders = PROJECT["tool"], {str(package.relative_to(ROOT)) for package in PACKAGES}
    names = {package.name for package in PACKAGES}
    assert folders < set(tool["hatch"]["build"]["targets"]["sdist"]["only-include"])
    assert folders == set(tool["mypy"]["files"])
    assert names | {"oracles"} == set(tool["ruff"]["lint"]["isort"]["known-first-party"])
    checked = next(line for line in (ROOT / "Makefile").read_text().splitlines() if "--jaxtyping-packages=" in line)
    assert names == set(checked.partition("--jaxtyping-packages=")[2].split(",")[:-1])
    roots = {str(package.parent.relative_to(ROOT)) for package in PACKAGES}
    assert roots == set(tool["hatch"]["build"]["dev-mode-dirs"])
    assert roots - {"."} == set(tool["mypy"]["mypy_path"])


def test_no_tests_folder_is_a_package():
    assert not list((ROOT / "tests").rglob("__init__.py"))


@pytest.mark.parametrize("folder", [*PACKAGES, *EXAMPLES, ROOT / "tests"], ids=lambda folder: folder.name)
def test_no_file_hides_abstract_fields_from_equinox(folder: Path):
    """Equinox takes an `AbstractVar` in a string for an ordinary field, which becomes the first parameter."""
    wrong = [
        str(path.relative_to(ROOT))
        for path, tree in trees(folder)
        if "__future__.annotations" in imports(path, tree)
        and any(
            getattr(node, "id", getattr(node, "attr", "")) in ("AbstractVar", "AbstractClassVar")
            for node in ast.walk(tree)
        )
    ]
    assert not wrong, "remove `from __future__ import annotations` from these files"


def test_the_spine_is_short_and_its_page_has_a_paragraph_for_each_file():
    page = (ROOT / "docs" / "explanation" / "the_spine.md").read_text(encoding="utf-8")
    block = re.search(r"```text spine\n(.*?)```", page, re.DOTALL)
    assert block
    names = block[1].split()
    paragraphs = re.findall(r"^\*\*`(.+?)`\.\*\*", page, re.MULTILINE)
    assert paragraphs == names
    files = [(ROOT / "kpp" / f"{name}.py").read_text(encoding="utf-8") for name in names]
    assert sum(bool(line.strip()) for text in files for line in text.splitlines()) <= 4000
