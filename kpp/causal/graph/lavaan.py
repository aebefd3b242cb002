"""Graphs from the model syntax of the R package lavaan."""

from __future__ import annotations

import re
from typing import Any

from kpp.causal.errors import GraphSyntaxError

_NAME = r"[A-Za-z.][\w.]*"
_OPERATOR = re.compile(r"=~|~~|:=|==|<~|~\*~|[|<>~]")
#: A variable of the right side, behind a number, a label or a call that says something of its parameter.
_TERM = re.compile(rf"(?:(?P<modifier>[-\w.]+|[\w.]+\([^()]*\))\s*\*\s*)?(?P<name>{_NAME}|[01])")
#: Statements about parameters, which say nothing of the graph.
_OF_PARAMETERS = {":=", "==", "<", ">"}


def from_lavaan(text: str) -> dict[str, Any]:
    """Read a graph in the model syntax of lavaan.

    ``y ~ x + z`` is the edges x -> y and z -> y; ``f =~ a + b`` makes f latent, with the edges f -> a and f -> b; ``a
    ~~ b`` is a <-> b. A parameter that is fixed at 0 (``y ~ 0*x``) is no edge. Intercepts, variances, definitions
    (``:=``) and constraints are skipped. The graph has the covariances that are written, and no others: some functions
    of lavaan add covariances of exogenous variables, or of outcomes. Statements are on lines of their own or divided by
    semicolons. Returns the arguments of `CausalDAG`. Raises GraphSyntaxError, which names the statement, if one is not
    in this syntax, or has thresholds, composites, interactions or blocks of levels or groups.
    """
    found: dict[str, Any] = {"edges": [], "nodes": [], "latent": [], "bidirected": []}
    for statement in _statements(text):
        operator = _OPERATOR.search(statement)
        if operator is None or operator[0] not in {"~", "~~", "=~"} | _OF_PARAMETERS:
            raise GraphSyntaxError(f"`text` must hold statements with ~, ~~ or =~, got {statement!r}")
        if operator[0] not in _OF_PARAMETERS:
            sides = _terms(statement[: operator.start()], statement), _terms(statement[operator.end() :], statement)
            _add(found, operator[0], [name for name, _ in sides[0]], sides[1])
    return found


def _statements(text: str) -> list[str]:
    """Return the statements without comments; a line without an operator continues the one before it."""
    found: list[str] = []
    for line in re.split(r"[\n;]", re.sub(r"[#!][^\n]*", "", text)):
        if found and line.strip() and not _OPERATOR.search(line):
            found[-1] += f" {line.strip()}"
        elif line.strip():
            found.append(line.strip())
    return found


def _terms(side: str, statement: str) -> list[tuple[str, bool]]:
    """Return the variables of a side, and whether the parameter of each is free or not 0."""
    found = []
    for term in side.split("+"):
        match = _TERM.fullmatch(term.strip())
        if match is None:
            raise GraphSyntaxError(f"`text` must hold sums of names, got {term.strip()!r} in {statement!r}")
        found.append((match["name"], re.fullmatch(r"[-+]?0*\.?0*", match["modifier"] or "free") is None))
    return found


def _add(found: dict[str, Any], operator: str, left: list[str], right: list[tuple[str, bool]]) -> None:
    """Add the edges of a statement to the graph."""
    found["latent"] += left if operator == "=~" else []
    for first in left:
        for second, present in right:
            if second in ("0", "1"):
                continue  # an intercept
            found["nodes"] += [node for node in (first, second) if node not in found["nodes"]]
            if present and operator == "~~" and first != second:
                found["bidirected"].append((first, second))
            elif present and operator != "~~":
                found["edges"].append((first, second) if operator == "=~" else (second, first))
