"""Measure the layout and the text of the project: `.venv/bin/python .ci/house.py`.

Nothing of the project is imported: all measures are read from the syntax trees of `kpp/`, `models/*/` and `plugins/*/`.

What counts as an import: a name imported from the `__init__` of a package counts as an import of the file that defines
the name, also where the `__init__` loads it on first use and lists it in `__init__.pyi`. So an `__init__` is a door
without imports of its own. Names used as attributes of an imported package (`kpp.explain`) count in the same way. Only
the rooms are counted otherwise, as their definition says.

The measures, one line each:

rooms           files and folders directly below a folder, its `__init__` included
import arrows   pairs of rooms of which the first imports from the second, as the statement is written; imports inside
                functions, under TYPE_CHECKING and in the stub of the `__init__` included
floors          a room stands above all rooms that it imports: the number of rooms on the longest chain of arrows
longest chain   the number of files on the longest chain of imports at run time, imports inside functions included, over
                all packages; the files of a cycle count as one
cycles          groups of files that import each other: by imports at module level; with those inside functions; with
                those under TYPE_CHECKING as well
Any             parameters of functions and methods (without self and cls; with *args and **kwargs) whose annotation is
                exactly `Any`, `Any | None` or `Optional[Any]`, out of all parameters
abstract        the methods that a subclass has to write, for each base class of models
not exported    different names that models and plugins import from a module of the core below a package
                (`kpp.games.batching`), not from an `__init__`, from a module directly below `kpp`, from a module of a
                folder directly below `kpp` whose `__init__` hands out nothing, or from a module that an `__init__`
                hands out as a whole
exported names  different names that the `__init__`s of a group of packages hand out, modules and names with an
                underscore not counted; a name handed out twice counts once. A `toolkit.py` is a second door, for
                authors of models and plugins, with a line of its own
widest sheet    the largest number of rooms directly below one folder, other than `kpp` itself
class depth     the longest chain of base classes within the project
__all__         files with `__all__` that are no `__init__`
comments        lines with a comment that is not a directive (noqa, type:), out of all lines that are not blank
lines           lines that are not blank; code: without docstrings and comments; logic: code in the bodies of functions
text patterns   matches in docstrings, comments and messages (string literals) of the packages, and in the pages of
                docs/, README.md and CHANGELOG.md; a line break counts as a space. `--list` shows the places.

`--list NAME` (any, abstract, arrows, chain, cycles, exports, or the name of a text pattern) prints the places instead
of the table. `--pictures FOLDER` draws the house: `house.svg` shows its bands with their lines, `house_BAND.svg` the
rooms of one band, `house_all.svg` all rooms. `--check` says whether the pictures are the current ones. The bands stand
in the block
"import-order" of docs/explanation/architecture.md.
"""

from __future__ import annotations

import argparse
import ast
import functools
import io
import re
import sys
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeGuard, TypeVar

import networkx as nx
from house_picture import TITLES, draw

Row = tuple[str, str]  # a line of the table: the measure and its value
Node = TypeVar("Node", bound=str | tuple[str, str])

RUN_TIME = ("module", "function")
KINDS = {"at module level": RUN_TIME[:1], "at run time": RUN_TIME, "with TYPE_CHECKING": (*RUN_TIME, "type")}
MODEL_BASES = ("AbstractModel", "AbstractGPModel")
ANY = {"Any", "Any | None", "None | Any", "Optional[Any]", "typing.Any"}
DIRECTIVE = re.compile(r"#\s*(noqa|type:|pragma|fmt:|ruff:|mypy:|!)")

# A space stands for any white space. The words left out after "one" and before "a" make ordinary sentences: "one or a
# draw", "one is a number".
_ORDINARY = r"(?!(?:and|as|at|but|by|from|for|has|have|in|is|of|on|or|per|that|to|was|with)\b)"
PATTERNS = {
    "is no": r"\b(is|are|was|were) no\b(?! (longer|more|doubt)\b)",
    "is no, not there is no": r"(?<!there\s)\b(is|are|was|were) no\b(?! (longer|more|less|doubt|one|\w+er than)\b)",
    "one a": rf"\bone {_ORDINARY}[\w-]+( {_ORDINARY}[\w-]+)? an? \w+",
    "whatever": r"\bwhatever\b",
    "can be had": r"\bcan(not)? be had\b",
    "takes off": r"\b(takes?|taking|took) off\b",
    "told from": r"\b(told|tells?|telling) from\b",
    "not as said": r"\bnot as said\b",
    "as it came": r"\bas (it|they) came\b",
    "unfit": r"\bunfit\b",
    "so many": r"\bso many\b",
    "shall": r"\bshall\b",
    "told by": r"\b(told|tells?|telling) by\b",
}
OPENINGS = {"What ...": r"\AWhat ", "Refuse/Be ...": r"\A(Refuse|Be) "}


@dataclass(frozen=True)
class Import:
    """One imported name: who imports it, from which module, and which file defines it."""

    importer: str
    module: str
    name: str
    target: str
    kind: str
    line: int


@dataclass(frozen=True)
class Passage:
    """A piece of text: where it begins, what it is (docstring, comment, message, page), and its words."""

    path: Path
    line: int
    kind: str
    text: str


class House:
    """The files of the project and their syntax trees, by dotted name.

    Args:
        root: The root of the repository.
    """

    def __init__(self, root: Path):
        self.root = root
        doors = [
            root / "kpp",
            *(door.parent for group in ("models", "plugins") for door in (root / group).glob("*/__init__.py")),
        ]
        self.packages = {folder.name: folder for folder in sorted(doors)}
        self.files = {
            self._dotted(path): path for folder in self.packages.values() for path in sorted(folder.rglob("*.py"))
        }
        self.sources = {name: path.read_text(encoding="utf-8") for name, path in self.files.items()}
        self.trees = {name: ast.parse(source) for name, source in self.sources.items()}
        stubs = {name: path.with_suffix(".pyi") for name, path in self.files.items() if self.is_door(name)}
        self.stubs = {
            name: ast.parse(path.read_text(encoding="utf-8")) for name, path in stubs.items() if path.exists()
        }

    def _dotted(self, path: Path) -> str:
        top = next(folder for folder in self.packages.values() if path.is_relative_to(folder))
        parts = path.relative_to(top.parent).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def is_door(self, name: str) -> bool:
        """Return whether a dotted name is that of an `__init__` or of a toolkit."""
        return name in self.files and self.files[name].name in ("__init__.py", "toolkit.py")

    def hands_out(self, name: str) -> bool:
        """Return whether the `__init__` of a module's package hands out the module: `from a import b as b`."""
        package, _, own = name.rpartition(".")
        found = [node for node, _ in self._statements(package) if isinstance(node, ast.ImportFrom)]
        return any(
            alias.asname == own == alias.name and self._absolute(package, node) == package
            for node in found
            for alias in node.names
        )

    @functools.cached_property
    def bands(self) -> dict[str, str]:
        """Room of the core -> its band; the bands stand in the order of the page, lowest first."""
        page = (self.root / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
        block = re.search(r"```text import-order\n(.*?)```", page, re.DOTALL)
        parts = re.split(r"^\[(\w+)\]$", block[1] if block else "", flags=re.MULTILINE)
        return {room: band for band, rooms in zip(parts[1::2], parts[2::2], strict=True) for room in rooms.split()}

    def below(self, prefix: str) -> Iterator[str]:
        """Iterate over the dotted names of a package and all its files."""
        return (name for name in self.files if name == prefix or name.startswith(f"{prefix}."))

    def groups(self) -> dict[str, list[str]]:
        """Return the dotted names of the files, of all and by package."""
        return {"all": list(self.files)} | {top: list(self.below(top)) for top in self.packages}

    def place(self, name: str, line: int) -> str:
        """Return file and line, to be printed."""
        return f"{self.files[name].relative_to(self.root)}:{line}"

    @functools.cached_property
    def exports(self) -> dict[str, dict[str, tuple[str, str]]]:
        """Door -> exported name -> the module it is taken from and its name there."""
        return {name: self._exports(name) for name in self.files if self.is_door(name)}

    def _exports(self, door: str) -> dict[str, tuple[str, str]]:
        found: dict[str, tuple[str, str]] = {}
        for node, kind in self._statements(door):
            if isinstance(node, ast.ImportFrom) and kind != "function":
                source = self._absolute(door, node)
                names = [alias for alias in node.names if f"{source}.{alias.name}" not in self.files]
                found |= {alias.asname or alias.name: (source, alias.name) for alias in names}
        return found

    def _statements(self, name: str) -> Iterator[tuple[ast.Import | ast.ImportFrom, str]]:
        """Iterate over the import statements of a file and their kinds; a stub lists what a door loads on first use."""
        yield from import_nodes(self.trees[name])
        if name in self.stubs:
            yield from import_nodes(self.stubs[name], "stub")

    def _absolute(self, importer: str, node: ast.ImportFrom) -> str:
        """Return the module that an import statement names, a relative one made absolute."""
        if not node.level:
            return node.module or ""
        parts = importer.split(".")
        parts = parts[: len(parts) - node.level + self.is_door(importer)]
        return ".".join([*parts, *filter(None, [node.module])])

    def defining_file(self, module: str, name: str) -> str:
        """Return the file that defines a name imported from a module of the project."""
        seen = set()
        while (module, name) not in seen:
            seen.add((module, name))
            if name in self.exports.get(module, {}):
                module, name = self.exports[module][name]
            elif f"{module}.{name}" in self.files:
                return f"{module}.{name}"
        return module

    @functools.cached_property
    def imports(self) -> list[Import]:
        """All names that files of the project import from each other."""
        return [found for name in self.files for found in self._imports(name)]

    def _imports(self, importer: str) -> Iterator[Import]:
        for node, kind in self._statements(importer):
            for alias in node.names:
                found = self._import(importer, node, alias, kind)
                if found.target in self.files:
                    yield from self._uses(found, alias.asname or alias.name)

    def _import(self, importer: str, node: ast.Import | ast.ImportFrom, alias: ast.alias, kind: str) -> Import:
        if isinstance(node, ast.Import):
            return Import(importer, alias.name, "", alias.name, kind, node.lineno)
        module, name = self._absolute(importer, node), alias.name
        target = self.defining_file(module, name)
        exported = name in self.exports.get(module, {})  # perhaps a function with the name of its file
        if target == f"{module}.{name}" and not exported:
            module, name = target, ""
        return Import(importer, module, name, target, kind, node.lineno)

    def _uses(self, found: Import, bound: str) -> list[Import]:
        """Replace the import of a whole package by imports of the names that are used of it."""
        names = sorted(attributes(self.trees[found.importer]).get(bound, ())) if self.is_door(found.target) else []
        return [replace(found, name=name, target=self.defining_file(found.target, name)) for name in names] or [found]

    def graph(self, kinds: Iterable[str] = RUN_TIME) -> nx.DiGraph:
        """Return the graph of imports of the given kinds between files; a door has no arrows of its own."""
        kinds = set(kinds)
        found = [item for item in self.imports if item.kind in kinds and not self.is_door(item.importer)]
        return graph_of(self.files, ((item.importer, item.target) for item in found))

    def rooms(self, folder: str) -> nx.DiGraph:
        """Return the graph of imports of all kinds between the files and folders directly below a package."""
        depth = folder.count(".") + 1
        inside = {name: [*name.split("."), "__init__"][depth] for name in self.below(folder)}
        pairs = [(item.importer, item.module) for item in self.imports if {item.importer, item.module} <= inside.keys()]
        return graph_of(set(inside.values()), ((inside[above], inside[below]) for above, below in pairs))

    def package_of(self, folder: str) -> str:
        """Return the dotted name of a folder, given as a path from the root or as a dotted name."""
        path = (self.root / folder).resolve()
        tops = [top for top in self.packages.values() if path.is_relative_to(top.resolve())]
        name = ".".join(path.relative_to(tops[0].resolve().parent).parts) if tops else folder
        if name not in self.files:
            raise SystemExit(f"`--folder` must be a package of the project, got {folder!r}")
        return name

    @functools.cached_property
    def classes(self) -> dict[tuple[str, str], ast.ClassDef]:
        """The classes of the project by file and name."""
        return {
            (name, node.name): node
            for name, tree in self.trees.items()
            for node in tree.body
            if isinstance(node, ast.ClassDef)
        }

    def abstract_methods(self, module: str, name: str) -> list[str]:
        """Return the methods that a subclass of a class has to write, in the order of its bases."""
        node = self.classes[module, name]
        named = {found.name: found.target for found in self.imports if found.importer == module}
        inherited: list[str] = []
        for base in node.bases:
            base_name = ast.unparse(base).split("[")[0].split(".")[-1]
            key = (named.get(base_name, module), base_name)
            inherited += self.abstract_methods(*key) if key in self.classes else []
        methods = [item for item in node.body if isinstance(item, ast.FunctionDef)]
        written = {item.name for item in methods} | assigned(node)
        abstract = [
            item.name for item in methods if any("abstract" in ast.unparse(mark) for mark in item.decorator_list)
        ]
        return list(dict.fromkeys([method for method in inherited if method not in written] + abstract))

    def depth(self, module: str, name: str) -> int:
        """Return the number of classes of the project on the longest way from a class to its first base."""
        named = {found.name: found.target for found in self.imports if found.importer == module}
        keys = [
            (named.get(base, module), base)
            for base in (ast.unparse(node).split("[")[0].split(".")[-1] for node in self.classes[module, name].bases)
        ]
        return 1 + max((self.depth(*key) for key in keys if key in self.classes), default=0)

    @functools.cached_property
    def passages(self) -> list[Passage]:
        """All text of the packages and the pages."""
        return list(self._passages())

    def _passages(self) -> Iterator[Passage]:
        for name, tree in self.trees.items():
            yield from strings(self.files[name], tree)
            yield from comments(self.files[name], self.sources[name])
        for path in [*sorted((self.root / "docs").rglob("*.md")), self.root / "README.md", self.root / "CHANGELOG.md"]:
            if path.exists():
                yield Passage(path, 1, "page", path.read_text(encoding="utf-8"))

    def area(self, path: Path) -> str:
        """Return the column of the table that a file is counted in: a package, docs, or the file itself."""
        return next(
            (top for top, folder in self.packages.items() if path.is_relative_to(folder)),
            path.relative_to(self.root).parts[0],
        )


def is_type_checking(node: ast.AST) -> TypeGuard[ast.If]:
    """Return whether a node is `if TYPE_CHECKING:`."""
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def import_nodes(node: ast.AST, kind: str = "module") -> Iterator[tuple[ast.Import | ast.ImportFrom, str]]:
    """Iterate over import statements with their kind: at module level, inside a function, or for type checkers."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, kind
        elif is_type_checking(child):
            for part, part_kind in ((child.body, "type"), (child.orelse, kind)):
                yield from import_nodes(ast.Module(part, []), part_kind)
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from import_nodes(child, "function" if kind == "module" else kind)
        elif not isinstance(child, ast.expr):  # expressions are most of the tree and hold no statement
            yield from import_nodes(child, kind)


def graph_of(nodes: Iterable[Node], edges: Iterable[tuple[Node, Node]]) -> nx.DiGraph:
    """Return a graph whose nodes and edges are sorted, so that all that is made from it is the same in each run."""
    graph = nx.DiGraph()
    graph.add_nodes_from(sorted(nodes))
    graph.add_edges_from(sorted({(above, below) for above, below in edges if above != below}))
    return graph


@functools.cache
def attributes(tree: ast.AST) -> dict[str, set[str]]:
    """Return for each dotted name Y the names X of all `Y.X` in a file."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            found.setdefault(dotted_name(node.value), set()).add(node.attr)
    return found


def dotted_name(node: ast.AST) -> str:
    """Return `a.b` for the expression a.b, and an empty string for anything but names and dots."""
    if isinstance(node, ast.Attribute):
        owner = dotted_name(node.value)
        return f"{owner}.{node.attr}" if owner else ""
    return node.id if isinstance(node, ast.Name) else ""


def assigned(node: ast.ClassDef) -> set[str]:
    """Return the names that a class body assigns or declares, which stand in for abstract properties."""
    targets: list[ast.expr] = [item.target for item in node.body if isinstance(item, ast.AnnAssign)]
    targets += [target for item in node.body if isinstance(item, ast.Assign) for target in item.targets]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def parameters(tree: ast.AST) -> Iterator[tuple[str, ast.arg]]:
    """Iterate over all parameters but self and cls, with the name of their function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            a = node.args
            named = [*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, [a.vararg, a.kwarg])]
            yield from ((node.name, parameter) for parameter in named if parameter.arg not in ("self", "cls"))


def is_any(parameter: ast.arg) -> bool:
    """Return whether a parameter may be anything."""
    return parameter.annotation is not None and ast.unparse(parameter.annotation) in ANY


def documentation(tree: ast.AST) -> list[ast.Constant]:
    """Return the strings that stand alone as statements: docstrings of modules, classes, functions and fields."""
    alone = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]
    return [value for value in alone if isinstance(value, ast.Constant) and isinstance(value.value, str)]


def strings(path: Path, tree: ast.Module) -> Iterator[Passage]:
    """Iterate over docstrings and messages; the values in an f-string are written as `{}`."""
    docstrings = {id(value) for value in documentation(tree)}
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.JoinedStr):
            parts = [str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values]
            yield Passage(path, node.lineno, "message", "".join(parts))
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield Passage(path, node.lineno, "docstring" if id(node) in docstrings else "message", node.value)
        stack.extend(ast.iter_child_nodes(node))


def tokens(source: str) -> list[tokenize.TokenInfo]:
    """Return the tokens of a file."""
    return list(tokenize.generate_tokens(io.StringIO(source).readline))


def is_comment(token: tokenize.TokenInfo) -> bool:
    """Return whether a token is a comment for people."""
    return token.type == tokenize.COMMENT and not DIRECTIVE.match(token.string)


def comments(path: Path, source: str) -> Iterator[Passage]:
    """Iterate over comments; those of neighboring lines are one passage."""
    found = {token.start[0]: token.string.lstrip("# ") for token in tokens(source) if is_comment(token)}
    for first in (line for line in found if line - 1 not in found):
        after = next(line for line in range(first, first + len(found) + 1) if line not in found)
        yield Passage(path, first, "comment", "\n".join(found[line] for line in range(first, after)))


@dataclass(frozen=True)
class Lines:
    """Numbers of lines: not blank, with code, with code of a function's body, with a comment."""

    full: int
    code: int
    logic: int
    commented: int


def lines_of(nodes: Iterable[ast.stmt | ast.expr]) -> set[int]:
    """Return the numbers of the lines that some nodes stand on."""
    return {line for node in nodes for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}


@functools.cache  # each picture asks for all files
def count_lines(source: str) -> Lines:
    """Count the lines of one file."""
    silent = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    tree, found = ast.parse(source), tokens(source)
    spoken = [range(token.start[0], token.end[0] + 1) for token in found if token.type not in silent]
    code = {line for lines in spoken for line in lines} - lines_of(documentation(tree))
    bodies = [node.body for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    logic = code & lines_of(statement for body in bodies for statement in body)
    commented = {token.start[0] for token in found if is_comment(token)}
    return Lines(sum(1 for line in source.splitlines() if line.strip()), len(code), len(logic), len(commented))


def cycles(graph: nx.DiGraph) -> list[list[str]]:
    """Return the groups of nodes that reach each other."""
    return sorted(sorted(group) for group in nx.strongly_connected_components(graph) if len(group) > 1)


def longest_chain(graph: nx.DiGraph) -> list[str]:
    """Return the longest chain, highest first; the nodes of a cycle stand as one."""
    condensed = nx.condensation(graph)
    return [" = ".join(sorted(condensed.nodes[node]["members"])) for node in nx.dag_longest_path(condensed)]


def matches(house: House, name: str) -> Iterator[tuple[Path, int, str]]:
    """Iterate over the places of a text pattern: file, line, and the words around."""
    opening = name in OPENINGS
    flags = re.NOFLAG if opening else re.IGNORECASE
    pattern = re.compile((OPENINGS | PATTERNS)[name].replace(" ", r"\s+"), flags)
    for passage in house.passages:
        for match in pattern.finditer(passage.text) if not opening or passage.kind == "docstring" else ():
            line = passage.line + passage.text.count("\n", 0, match.start())
            around = passage.text[max(0, match.start() - 30) : match.end() + 40]
            yield passage.path, line, " ".join(around.split())


def share(part: int, whole: int) -> str:
    """Return a share in words: `26.4 % (1652 of 6265)`."""
    return f"{100 * part / max(whole, 1):.1f} % ({part} of {whole})"


def by_area(counts: Mapping[str, int]) -> str:
    """Return a total and its parts: `12: kpp 10, docs 2`."""
    parts = ", ".join(f"{area} {count}" for area, count in counts.items() if count)
    return f"{sum(counts.values())}" + (f": {parts}" if parts else "")


def layout_rows(house: House, folders: Iterable[str]) -> Iterator[Row]:
    """Rooms, arrows, floors, chain and cycles."""
    for folder in folders:
        package = house.package_of(folder)
        rooms = house.rooms(package)
        yield f"rooms in {package}", f"{len(rooms)}"
        yield f"import arrows in {package}", f"{rooms.number_of_edges()}"
        yield f"floors in {package}", f"{len(longest_chain(rooms))}"
    yield "longest chain of imports", f"{len(longest_chain(house.graph()))}"
    for title, kinds in KINDS.items():
        yield f"import cycles {title}", f"{len(cycles(house.graph(kinds)))}"


def export_rows(house: House) -> Iterator[Row]:
    """Exported names, widest sheet, class depth, and `__all__` outside of an `__init__`."""
    toolkits = {door for door in house.exports if door.endswith(".toolkit")}
    for top in ("all", "kpp", "kpp.gp"):
        yield f"exported names, {top}", f"{len(handed_out(house, house.exports.keys() - toolkits, top))}"
    yield "names of toolkits", f"{len(handed_out(house, toolkits, 'all'))}"
    yield "rooms in kpp", f"{len(house.rooms('kpp'))}"
    widest = max(house.exports.keys() - toolkits - {"kpp"}, key=lambda door: (len(house.rooms(door)), door))
    yield "widest sheet", f"{len(house.rooms(widest))} ({widest})"
    deepest = max(house.classes, key=lambda key: house.depth(*key))
    yield "class depth", f"{house.depth(*deepest)} ({'.'.join(deepest)})"
    listed = [
        name for name, tree in house.trees.items() if not house.is_door(name) and "__all__" in names_assigned(tree)
    ]
    yield "files with __all__, not an __init__", f"{len(listed)}"


def handed_out(house: House, doors: Iterable[str], top: str) -> set[tuple[str, str]]:
    """Return what some doors within a package hand out, as pairs of the defining file and the name."""
    found = [(door, name) for door in doors if top == "all" or within(door, top) for name in house.exports[door]]
    ours = [(house.defining_file(door, name), name) for door, name in found if not name.startswith("_")]
    return {(file, name) for file, name in ours if file in house.files}


def within(name: str, package: str) -> bool:
    """Return whether a dotted name is that of a package or of something below it."""
    return name == package or name.startswith(f"{package}.")


def names_assigned(tree: ast.Module) -> set[str]:
    """Return the names that a module assigns."""
    return {target.id for node in tree.body for target in targets(node) if isinstance(target, ast.Name)}


def targets(node: ast.stmt) -> list[ast.expr]:
    """Return the targets of an assignment."""
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, ast.AnnAssign) else []


def contract_rows(house: House) -> Iterator[Row]:
    """Annotations, abstract methods, and imports of names that are not exported."""
    of_file = {name: [is_any(parameter) for _, parameter in parameters(tree)] for name, tree in house.trees.items()}
    for top, names in house.groups().items():
        found = [item for name in names for item in of_file[name]]
        yield f"parameters annotated Any, {top}", share(sum(found), len(found))
    for base, methods in model_bases(house):
        yield f"abstract methods of {base}", f"{len(methods)}"
    hidden = not_exported(house)
    different = {(found.module, found.name) for found in hidden}
    yield "names of the core imported but not exported", f"{len(different)} (in {len(hidden)} places)"


def line_rows(house: House) -> Iterator[Row]:
    """Lines and comments."""
    counts = {top: [count_lines(house.sources[name]) for name in names] for top, names in house.groups().items()}
    for top, found in counts.items():
        full, code, logic = (sum(getattr(lines, kind) for lines in found) for kind in ("full", "code", "logic"))
        yield f"lines, {top}", f"{full} ({code} code, {logic} logic)"
    for top, found in counts.items():
        commented, full = sum(lines.commented for lines in found), sum(lines.full for lines in found)
        yield f"lines with a comment, {top}", share(commented, full)


def text_rows(house: House) -> Iterator[Row]:
    """Text patterns."""
    areas = [*house.packages, "docs", "README.md", "CHANGELOG.md"]
    for name in PATTERNS | OPENINGS:
        found = [house.area(path) for path, _, _ in matches(house, name)]
        yield f'text "{name}"', by_area({area: found.count(area) for area in areas})


def model_bases(house: House) -> Iterator[tuple[str, list[str]]]:
    """Iterate over the base classes of models and their abstract methods."""
    for module, name in house.classes:
        if name in MODEL_BASES:
            yield name, house.abstract_methods(module, name)


def not_exported(house: House) -> list[Import]:
    """Return the imports by models and plugins that bypass the exports of the core."""

    def bypasses(found: Import) -> bool:
        parts = found.module.split(".")
        open_room = len(parts) == 3 and not house.exports[".".join(parts[:2])]
        hidden = len(parts) > 2 and not (house.is_door(found.module) or house.hands_out(found.module) or open_room)
        return parts[0] == "kpp" and (hidden or any(part.startswith("_") for part in parts))

    return [found for found in house.imports if found.importer.split(".")[0] != "kpp" and bypasses(found)]


def places(house: House, name: str, folders: Iterable[str]) -> Iterator[str]:
    """Iterate over the places of a measure."""
    if name == "any":
        for file, tree in house.trees.items():
            found = [(function, parameter) for function, parameter in parameters(tree) if is_any(parameter)]
            yield from (f"{house.place(file, item.lineno)} {function}({item.arg})" for function, item in found)
    elif name == "abstract":
        yield from (f"{base}: {', '.join(methods)}" for base, methods in model_bases(house))
    elif name == "arrows":
        graphs = [house.rooms(house.package_of(folder)) for folder in folders]
        yield from (f"{above} -> {below}" for graph in graphs for above, below in graph.edges)
    elif name == "chain":
        yield from longest_chain(house.graph())
    elif name == "cycles":
        for title, kinds in KINDS.items():
            yield from (f"{title}: {', '.join(group)}" for group in cycles(house.graph(kinds)))
    elif name == "exports":
        yield from (
            f"{house.place(found.importer, found.line)} {found.module}: {found.name}" for found in not_exported(house)
        )
    else:
        yield from (f"{path.relative_to(house.root)}:{line} {words}" for path, line, words in matches(house, name))


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ["any", "abstract", "arrows", "chain", "cycles", "exports", *PATTERNS, *OPENINGS]
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1], help="the repository")
    parser.add_argument("--folder", action="append", help="a package whose rooms to count; may be repeated")
    parser.add_argument("--list", choices=names, metavar="NAME", help=f"print places: {', '.join(names)}")
    parser.add_argument("--pictures", type=Path, metavar="FOLDER", help="draw the house as SVG pictures")
    parser.add_argument(
        "--check", action="store_true", help="compare the pictures (in docs/pictures) instead of drawing them"
    )
    return parser.parse_args()


def main() -> int:
    """Run the command line; return its exit status."""
    arguments = parse_arguments()
    house = House(arguments.root.resolve())
    folders = arguments.folder or ["models/kpp_models"]
    if arguments.pictures or arguments.check:
        folder = arguments.pictures or house.root / "docs" / "pictures"
        return check_pictures(house, folder) if arguments.check else write_pictures(house, folder)
    if arguments.list:
        print(*places(house, arguments.list, folders), sep="\n")
        return 0
    rows = [
        *layout_rows(house, folders),
        *export_rows(house),
        *contract_rows(house),
        *line_rows(house),
        *text_rows(house),
    ]
    print("\n".join(f"{name:<46} {value}" for name, value in rows))
    print("\nthe longest chain of imports:", *longest_chain(house.graph()), sep="\n    ")
    return 0


def parts(house: House, part: Callable[[str, str], tuple[str, str] | None]) -> nx.DiGraph:
    """Return a graph of imports between parts.

    Args:
        house: The house.
        part: Gives the ground and the name of the part of a file, by its package and the room in it; None for a file
            that is not shown.
    """

    def place(name: str) -> tuple[str, str] | None:
        top, *below = name.split(".")
        return part(top, below[0]) if below else None

    known = {name: found for name in house.files if (found := place(name))}
    used = [found for found in house.imports if found.kind != "type" and {found.importer, found.target} <= known.keys()]
    graph = graph_of(set(known.values()), [(known[found.importer], known[found.target]) for found in used])
    if cycles(graph):
        raise SystemExit(f"a house with import cycles between its parts cannot be drawn: {cycles(graph)}")
    return graph


def sized(house: House, graph: nx.DiGraph, names: Mapping[tuple[str, str], Iterable[str]]) -> nx.DiGraph:
    """Return a graph whose parts tell their lines that are not blank: `kernels/ 3.1k`."""
    lines = {node: sum(count_lines(house.sources[file]).full for file in files) for node, files in names.items()}
    return nx.relabel_nodes(graph, {node: (node[0], f"{node[1]} {lines[node] / 1000:.1f}k") for node in graph})


def pictures(house: House) -> dict[str, str]:
    """Return the pictures of the house by their file names."""

    def ground(top: str) -> str:
        return "plugins" if house.packages[top].parent.name == "plugins" else "models"

    def room_of(top: str, room: str) -> str:
        return f"{room}/" if house.is_door(f"{top}.{room}") else room

    def everywhere(top: str, room: str) -> tuple[str, str]:
        if top == "kpp":
            return "core", room_of(top, room)
        return (ground(top), top.removeprefix("kpp_") if ground(top) == "plugins" else room_of(top, room))

    def band(top: str, room: str) -> tuple[str, str]:
        return ("core", house.bands[room]) if top == "kpp" else (ground(top), top)

    def within_band(name: str) -> Callable[[str, str], tuple[str, str] | None]:
        def part(top: str, room: str) -> tuple[str, str] | None:
            shown = house.bands[room] == name if top == "kpp" else top == name
            return ("core", room_of(top, room)) if shown else None

        return part

    def sheet(part: Callable[[str, str], tuple[str, str] | None], titles: Mapping[str, str] = TITLES) -> str:
        names: dict[tuple[str, str], list[str]] = {}
        for name in house.files:
            top, *below = name.split(".")
            if below and (node := part(top, below[0])):
                names.setdefault(node, []).append(name)
        return draw(sized(house, parts(house, part), names), titles)

    bands = {name: f"{name} (kpp)" for name in dict.fromkeys(house.bands.values())} | {
        "kpp_models": "models (kpp_models)"
    }
    return {
        "house.svg": sheet(band),
        "house_all.svg": draw(parts(house, everywhere)),
        **{f"house_{name}.svg": sheet(within_band(name), {"core": title}) for name, title in bands.items()},
    }


def write_pictures(house: House, folder: Path) -> int:
    """Draw the house into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pictures(house).items():
        (folder / name).write_text(text, encoding="utf-8")
    return 0


def without_sizes(picture: str) -> str:
    """Return a picture without the sizes, which change with nearly every line of code."""
    return re.sub(r" \d+\.\dk<", "<", picture)


def check_pictures(house: House, folder: Path) -> int:
    """Return 1, with a message, if a picture is not the current one but for the sizes."""
    old = [
        name
        for name, text in pictures(house).items()
        if not (folder / name).exists() or without_sizes((folder / name).read_text("utf-8")) != without_sizes(text)
    ]
    if old:
        print(
            f"not the current pictures: {', '.join(old)}; run `.venv/bin/python .ci/house.py --pictures {folder}`",
            file=sys.stderr,
        )
    return int(bool(old))


if __name__ == "__main__":
    raise SystemExit(main())
