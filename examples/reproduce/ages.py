"""Say whether a stored result is older than the code that made it.

A result keeps the commit and a digest of the code that its script used. This code is the script, the scripts that it
imports, and the files of kpp, kpp_models and the plugins that define the names which these import, and so on. A name
that an `__init__` passes on leads to the file that defines it. Docstrings, comments and layout do not change the
digest. What is found at run time, for example through an entry point, is not followed.
"""

from __future__ import annotations

import ast
import hashlib
import io
import subprocess
import tokenize
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PLACES = ("", "models", "plugins", "examples/reproduce", "examples/benchmarks")
_LAYOUT = (tokenize.COMMENT, tokenize.NL)
_BLOCKS = (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)  # their text is white space


def provenance(script: Path) -> dict[str, Any]:
    """Return what a result keeps of its code: the commit and the digest."""
    return {"commit": commit(used_files(script)), "code": digest(script)}


def commit(files: Iterable[Path]) -> str | None:
    """Return the short name of the commit, with "+" if a file was changed since, or None outside of git."""
    git = ["git", "-C", str(ROOT)]
    found = subprocess.run([*git, "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True)
    if found.returncode:
        return None
    changed = subprocess.run([*git, "status", "--porcelain", "--", *files], capture_output=True, text=True)
    return found.stdout.strip() + "+" * bool(changed.stdout)


def digest(script: Path, root: Path = ROOT) -> str:
    """Return the digest of a script and of all files whose names it uses.

    Args:
        script: The path of the script.
        root: The checkout.
    """
    texts = sorted(code(path) for path in used_files(script, root))
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def is_current(result: dict[str, Any], code: str) -> bool:
    """Return whether a result is from the code with this digest, or was confirmed for it."""
    return code in (result["code"], result.get("confirmed", {}).get("code"))


def used_files(script: Path, root: Path = ROOT) -> set[Path]:
    """Return the paths of a script and of all files of the checkout that define names which it imports, and so on."""
    found, ahead = {script}, [script]
    while ahead:
        new = imported(ahead.pop(), root) - found
        found |= new
        ahead += new
    return found


@cache
def imported(path: Path, root: Path) -> set[Path]:
    """Return the files that define the names which a file imports, or reads from `kpp`."""
    files = {locate(module, root) for module in modules(ast.parse(path.read_text(encoding="utf-8")), root)}
    return {file for file in files if file is not None}


def modules(tree: ast.Module, root: Path) -> Iterator[str]:
    """Yield the modules that define the names which a module imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name != "kpp")
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (defining(node.module, alias.name, root) for alias in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "kpp":
            yield defining("kpp", node.attr, root)


@cache
def defining(module: str, name: str, root: Path) -> str:
    """Return the module that defines a name which is imported from a module or a package."""
    if locate(f"{module}.{name}", root):
        return f"{module}.{name}"
    path = locate(module, root)
    passed_on = {} if path is None or path.name != "__init__.py" else exports(module, path)
    return defining(*passed_on[name], root) if name in passed_on else module


@cache
def exports(package: str, path: Path) -> dict[str, tuple[str, str]]:
    """Return, for each name that the `__init__` of a package or its stub imports, the module and the name there."""
    stub = path.with_suffix(".pyi")
    tree = ast.parse((stub if stub.exists() else path).read_text(encoding="utf-8"))
    nodes = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module]
    found = [(f"{package}." * node.level + str(node.module), alias) for node in nodes for alias in node.names]
    return {alias.asname or alias.name: (module, alias.name) for module, alias in found}


@cache
def locate(module: str, root: Path) -> Path | None:
    """Return the file of a module of the checkout, or None for other modules."""
    stems = [root / place / module.replace(".", "/") for place in PLACES]
    paths = [path for stem in stems for path in (stem.with_suffix(".py"), stem / "__init__.py")]
    return next((path for path in paths if path.exists()), None)


@cache
def code(path: Path) -> str:
    """Return the tokens of a file without docstrings, comments and layout."""
    text = path.read_text(encoding="utf-8")
    prose: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and ast.get_docstring(node) is not None:
                prose.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    found: list[str] = []
    for kind, word, (row, _), *_ in tokenize.generate_tokens(io.StringIO(text).readline):
        if kind in _LAYOUT or (row in prose and kind != tokenize.INDENT):
            continue
        if word in (")", "]", "}") and found and found[-1] == ",":
            found.pop()  # the comma after the last of several lines
        found.append(tokenize.tok_name[kind] if kind in _BLOCKS else word)
    return " ".join(found)
