"""Graphs from text, in Graphviz's DOT language or in dagitty's, and back to DOT.

A text in either language is a list of statements between braces. A statement is a node, a chain of nodes and arrows, or
a group of nodes in its own braces, and may be followed by attributes in brackets. The languages differ in the header,
in the arrows, and in the meaning of attributes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, NoReturn

from kpp.causal.errors import GraphSyntaxError
from kpp.causal.graph.nodes import MixedGraph
from kpp.foundation.wording import named

_TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/|\#[^\n]*)
    |(?P<arrow><->|->|<-|--|@-@|@->|<-@|@--|--@)
    |(?P<mark>[{}\[\];,=:])
    |(?P<quoted>"(?:[^"\\]|\\.)*")
    |(?P<word>[\w.]+|-[\d.]+)""",
    re.VERBOSE | re.DOTALL,
)
_COMMENTS = r"(?:\s+|//[^\n]*\n|\#[^\n]*\n|/\*.*?\*/)*"
_HTML = re.compile(r"(?P<word><(?:[^<>]|<[^<>]*>)*>)")
_TRUE, _FALSE = {"", "1", "true", "yes"}, {"0", "false", "no"}
#: The attributes of nodes that change a causal graph, with dagitty's short names. dagitty reads small letters only; its
#: older format has capitals. So capitals are read as small letters, in all names of attributes.
_LATENT, _SELECTED = {"latent", "l", "unobserved", "u"}, {"selected", "s"}
#: The attributes of dagitty that belong to a question, and those that its simulations read.
_SKIPPED = set("exposure source e outcome target o adjusted a beta eps bb".split())
#: The attributes of https://graphviz.org/doc/info/attrs.html that only change the drawing of a node or an edge. It has
#: no `dir`, which is read, and no `lhead` and `ltail`, which lead an edge to a cluster of nodes.
_DRAWING = set(
    """area arrowhead arrowsize arrowtail class color colorscheme comment constraint decorate distortion edgehref
    edgetarget edgetooltip edgeurl fillcolor fixedsize fontcolor fontname fontsize gradientangle group head_lp headclip
    headhref headlabel headport headtarget headtooltip headurl height href id image imagepos imagescale label labelangle
    labeldistance labelfloat labelfontcolor labelfontname labelfontsize labelhref labelloc labeltarget labeltooltip
    labelurl layer len lp margin minlen nojustify ordering orientation penwidth peripheries pin pos radius rects regular
    root samehead sametail samplepoints shape shapefile showboxes sides skew sortv style tail_lp tailclip
    tailhref taillabel tailport tailtarget tailtooltip tailurl target tooltip url vertices weight width xlabel xlp z
    """.split()
)
#: The attributes that are read: of nodes, and of edges.
_READ = {"node": _LATENT | _SELECTED | {"observed"}, "edge": {"dir"}}


@dataclass(frozen=True)
class Token:
    """A word, an arrow or a mark of the text, and the number of its line."""

    kind: str
    text: str
    line: int


@dataclass
class Statements:
    """The nodes and edges that the statements of a text declare, with their attributes."""

    nodes: dict[str, dict[str, str]] = field(default_factory=dict)
    edges: list[tuple[str, str, str, dict[str, str]]] = field(default_factory=list)


def from_text(text: str) -> dict[str, Any]:
    """Read a graph in DOT (its first word is `digraph`), in lavaan's syntax (no brace, and `~`), or in dagitty's."""
    if re.match(rf"{_COMMENTS}(?i:(strict\s+)?digraph\b)", text, re.DOTALL):
        return from_dot(text)
    return from_lavaan(text) if "~" in text and "{" not in text else from_dagitty(text)


def from_dot(text: str) -> dict[str, Any]:
    """Return the arguments of `CausalDAG` from a text in Graphviz's DOT language, such as ``digraph {x -> y; x -> z}``.

    An edge with `dir=both` is bidirected. A node with `latent=true` or `observed=no` is latent. Attributes of Graphviz
    that only change the drawing are skipped, HTML labels included. Raises GraphSyntaxError, which names the line, if
    the text is not a directed graph in this language, or has ports, selected nodes, invisible parts or an attribute
    that neither language defines.
    """
    return _arguments(_Reader(text, "DOT", header=r"(strict\s+)?digraph\b", arrows={"->"}).read())


def from_dagitty(text: str) -> dict[str, Any]:
    """Return the arguments of `CausalDAG` from a text of dagitty, such as ``dag {x -> y <- u; u [latent]}``.

    Nodes marked `latent`, `unobserved`, `l` or `u` are latent. Attributes of a question rather than of the graph
    (`exposure` or `e`, `outcome` or `o`, `adjusted` or `a`) are skipped, and so are positions and labels. Raises
    GraphSyntaxError, which names the line, if the text is not a graph in this language, has edges without a direction,
    selected nodes, or an attribute that neither language defines.
    """
    return _arguments(_Reader(text, "dagitty", header=r"dag\b", arrows={"->", "<-", "<->"}).read())


def from_pdag(text: str) -> dict[str, Any]:
    """Return the arguments of `CPDAG` from a text of dagitty, such as ``pdag {x -> y; y -- z}``; see `from_dagitty`."""
    said = _Reader(text, "dagitty", header=r"pdag\b", arrows={"->", "<-", "--"}).read()
    undirected = [(a, b) for a, arrow, b, _ in said.edges if arrow == "--"]
    said.edges = [edge for edge in said.edges if edge[1] != "--"]
    found = _arguments(said)
    if latent := found["latent"]:
        raise GraphSyntaxError(f"a pdag has no latent nodes, got {named(latent)}")
    return {"directed": found["edges"], "undirected": undirected, "nodes": found["nodes"]}


def to_dot(graph: MixedGraph) -> str:
    """Return a graph in Graphviz's DOT language, as `from_dot` reads it; what is latent or bidirected is dashed."""
    lines = [f"  {_quote(node)}{' [latent=true, style=dashed]' * (node in graph.latent)};" for node in graph.nodes]
    lines += [f"  {_quote(cause)} -> {_quote(effect)};" for cause, effect in graph.edges]
    pairs = sorted(graph.sort(pair) for pair in graph.bidirected)
    lines += [f"  {_quote(a)} -> {_quote(b)} [dir=both, style=dashed];" for a, b in pairs]
    return "\n".join(["digraph {", *lines, "}"]) + "\n"


def _quote(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _arguments(said: Statements) -> dict[str, Any]:
    selected = [node for node, attributes in said.nodes.items() if _flag(node, attributes, _SELECTED)]
    if selected:
        raise GraphSyntaxError(f"selected nodes are not supported, got {named(selected)}")
    pairs: dict[str, list[tuple[str, str]]] = {"forward": [], "both": []}
    for a, arrow, b, attributes in said.edges:
        direction = "both" if arrow == "<->" else attributes.get("dir", "forward").lower()
        if direction not in pairs:
            raise GraphSyntaxError(f"the edge {a} {arrow} {b} must have `dir` forward or both, got {direction!r}")
        pairs[direction].append((b, a) if arrow == "<-" else (a, b))
    latent = [
        node
        for node, attributes in said.nodes.items()
        if _flag(node, attributes, _LATENT) or not _flag(node, {"observed": "yes"} | attributes, {"observed"})
    ]
    return {"edges": pairs["forward"], "nodes": list(said.nodes), "latent": latent, "bidirected": pairs["both"]}


def _flag(node: str, attributes: dict[str, str], keys: set[str]) -> bool:
    """Return whether one of some attributes of a node is true; all of them are checked."""
    found = {key: attributes[key] for key in sorted(keys & attributes.keys())}
    for key, value in found.items():
        if value.lower() not in _TRUE | _FALSE:
            raise GraphSyntaxError(f"the attribute `{key}` of {node} must be true or false, got {value!r}")
    return any(value.lower() in _TRUE for value in found.values())


class _Reader:
    """Reads the statements of one text by recursive descent; `header`, a pattern, starts it."""

    def __init__(self, text: str, language: str, header: str, arrows: set[str]):
        self.language, self.arrows = language, arrows
        start = re.match(rf"{_COMMENTS}(?i:{header})", text, re.DOTALL)
        if start is None:
            raise GraphSyntaxError(f"`text` must be a directed graph in {language}, got {text.strip()[:40]!r}")
        self.tokens = self.split(text, start.end())
        self.position = 0
        self.said = Statements()

    def split(self, text: str, position: int) -> list[Token]:
        """Return the tokens from a position on."""
        tokens: list[Token] = []
        line = text.count("\n", 0, position) + 1
        while position < len(text):
            # `<` is the start of an arrow, except behind `=`, where it is that of an HTML label.
            html = text[position] == "<" and bool(tokens) and tokens[-1] == Token("mark", "=", tokens[-1].line)
            match = (_HTML if html else _TOKEN).match(text, position)
            if match is None:
                self.fail(f"no {self.language} at {text[position : position + 20]!r}", line)
            position, kind, word = match.end(), str(match.lastgroup), match[0]
            if kind == "quoted":
                kind, word = "word", re.sub(r"\\(.)", r"\1", word[1:-1])
            if kind != "skip":
                tokens.append(Token(kind, word, line))
            line += match[0].count("\n")
        return [*tokens, Token("end", "the end", line)]

    def fail(self, message: str, line: int) -> NoReturn:
        """Raise GraphSyntaxError with the number of the line."""
        raise GraphSyntaxError(f"line {line} of `text`: {message}")

    @property
    def next(self) -> Token:
        """The next token."""
        return self.tokens[self.position]

    def take(self, *texts: str, kind: str = "mark") -> Token | None:
        """Return the next token and advance, if it is of this kind and one of these texts."""
        token = self.next
        if token.kind != kind or (texts and token.text not in texts):
            return None
        self.position += 1
        return token

    def need(self, *texts: str, kind: str = "mark") -> Token:
        """Return the next token and advance, or fail."""
        token = self.take(*texts, kind=kind)
        if token is None:
            wanted = " or ".join(map(repr, texts)) or "a name"
            self.fail(f"{wanted} is needed, got {self.next.text!r}", self.next.line)
        return token

    def read(self) -> Statements:
        """Read the whole text."""
        self.take(kind="word")  # the graph's name
        self.need("{")
        self.block()
        if self.next.kind != "end":
            self.fail(f"nothing may follow the graph, got {self.next.text!r}", self.next.line)
        return self.said

    def block(self) -> list[str]:
        """Read statements up to the closing brace and return the nodes they name."""
        named: list[str] = []
        while not self.take("}"):
            if not self.take(";", ","):
                named += self.statement()
        return named

    def statement(self) -> list[str]:
        """Read a node, a chain of edges, a group, or a setting; return the nodes it names."""
        word, following = self.next, self.tokens[self.position + 1] if self.next.kind != "end" else self.next
        if word.kind == "word" and following.text == "=" and following.kind == "mark":
            self.position += 2
            self.need(kind="word")
            return []
        if word.kind == "word" and word.text in ("graph", "node", "edge") and following.text == "[":
            self.position += 1
            self.defaults(word)
            return []
        return self.chain()

    def defaults(self, word: Token) -> None:
        """Read default attributes of later nodes or edges; defaults that would change the causal graph are an error."""
        attributes = self.attributes()
        if word.text == "graph":
            return
        self.check(attributes, word.text, word)
        meaningful = sorted(_READ[word.text] & attributes.keys())
        if meaningful:
            self.fail(f"write {meaningful} on each {word.text}, not on all of them", word.line)

    def check(self, attributes: dict[str, str], kind: str, at: Token) -> None:
        """Fail if nodes or edges (`kind`) have an attribute that may say more than how to draw them."""
        unknown = sorted(attributes.keys() - _READ[kind] - _SKIPPED - _DRAWING)
        if unknown:
            read = "latent or observed" if kind == "node" else "dir"
            self.fail(f"the {kind}'s attributes {unknown} are unknown: write {read}, or leave them out", at.line)
        if "invis" in attributes.get("style", "") or attributes.get("arrowhead") == "none":
            self.fail(f"leave out each {kind} that is invisible or has no arrowhead", at.line)

    def chain(self) -> list[str]:
        """Read groups of nodes joined by arrows, with the attributes behind them; return the nodes."""
        first, groups, arrows = self.next, [self.group()], []
        while arrow := self.take(kind="arrow"):
            if arrow.text not in self.arrows:
                self.fail(f"the arrow must be {' or '.join(sorted(self.arrows))}, got {arrow.text}", arrow.line)
            arrows.append(arrow.text)
            groups.append(self.group())
        attributes = self.attributes()
        self.check(attributes, "edge" if arrows else "node", first)
        named = [node for group in groups for node in group]
        for node in named:
            self.said.nodes.setdefault(node, {}).update({} if arrows else attributes)
        for left, sign, right in zip(groups, arrows, groups[1:], strict=False):
            self.said.edges += [(a, sign, b, attributes) for a in left for b in right]
        return named

    def group(self) -> list[str]:
        """Read a node, or several in braces."""
        if self.take("subgraph", kind="word"):
            self.take(kind="word")
            self.need("{")
            return self.block()
        if self.take("{"):
            return self.block()
        node = self.need(kind="word")
        if self.next.text == ":" and self.next.kind == "mark":
            self.fail(f"ports are not supported, got one of {node.text!r}", node.line)
        return [node.text]

    def attributes(self) -> dict[str, str]:
        """Read lists of attributes in brackets, if there are any."""
        found: dict[str, str] = {}
        while self.take("["):
            while not self.take("]"):
                key = self.need(kind="word").text.lower()
                found[key] = self.need(kind="word").text if self.take("=") else ""
                self.take(",", ";")
        return found


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
