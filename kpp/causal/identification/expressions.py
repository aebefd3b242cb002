"""Expressions in an observed law: probabilities, products, ratios and sums, to print, to typeset and to evaluate."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import xarray as xr

#: The characters that a backslash does not escape in LaTeX's math mode.
_LATEX_SIGNS = {"\\": r"\backslash ", "^": r"\hat{\ }", "~": r"\sim "}


def _latex_name(name: str) -> str:
    r"""Return `x` as x, `w1` and `w_1` as w_{1}, and longer names upright."""
    stem, _, index = re.fullmatch(r"(.*?)(_?(\d+))?", name, re.DOTALL).group(1, 2, 3)  # type: ignore[union-attr]
    if not stem:
        stem, index = name, None
    escaped = re.sub(r"[\\{}$&#^~%_ ]", lambda found: _LATEX_SIGNS.get(found[0], f"\\{found[0]}"), stem)
    base = escaped if len(stem) == 1 else rf"\mathrm{{{escaped}}}"
    return base if index is None else f"{base}_{{{index}}}"


def _by_number(name: str) -> list[tuple[bool, int | str]]:
    """Return a sorting key that compares numbers in names as numbers."""
    return [(part.isdecimal(), int(part) if part.isdecimal() else part) for part in re.split(r"(\d+)", name)]


@dataclass(frozen=True)
class Notation:
    """A notation for expressions: text or LaTeX."""

    name: Callable[[str], str]  # of a node
    bar: str  # before the conditions of a probability
    do: Callable[[str], str]  # an intervention on names
    times: str  # between factors
    sum: Callable[[str], str]  # the sign of a sum over names
    ratio: Callable[[str, str], str]  # a fraction
    brackets: tuple[str, str]  # around a factor that is a sum

    def names(self, nodes: frozenset[str], written: Mapping[str, str]) -> str:
        """Write names in alphabetical order, w2 before w10."""
        return ", ".join(written[node] for node in sorted(nodes, key=_by_number))


TEXT = Notation(
    name=str,
    bar=" | ",
    do=lambda names: f"do({names})",
    times=" ",
    sum=lambda names: f"sum_{{{names}}}" if "," in names else f"sum_{names}",
    ratio=lambda above, below: f"[{above}] / [{below}]",
    brackets=("(", ")"),
)
LATEX = Notation(
    name=_latex_name,
    bar=r" \mid ",
    do=lambda names: rf"\mathrm{{do}}({names})",
    times=r" \, ",
    sum=lambda names: rf"\sum_{{{names}}}",
    ratio=lambda above, below: rf"\frac{{{above}}}{{{below}}}",
    brackets=(r"\left(", r"\right)"),
)


class Expression(ABC):
    """A function of the values of some nodes, made of the probabilities of an observed law."""

    @property
    @abstractmethod
    def free(self) -> frozenset[str]:
        """The nodes whose values it is a function of."""

    @property
    @abstractmethod
    def mentioned(self) -> frozenset[str]:
        """The nodes that stand anywhere in it, those summed over included."""

    @abstractmethod
    def write(self, notation: Notation, written: Mapping[str, str]) -> str:
        """Write the expression."""

    @abstractmethod
    def evaluate(self, law: xr.DataArray) -> xr.DataArray:
        """Return its values for an observed law, probabilities with one dimension per node, with one per free node."""


@dataclass(frozen=True)
class Probability(Expression):
    """The conditional probability P(outcome | given) in the observed law."""

    outcome: frozenset[str]
    given: frozenset[str] = frozenset()

    @cached_property
    def free(self) -> frozenset[str]:
        return self.outcome | self.given

    @property
    def mentioned(self) -> frozenset[str]:
        return self.free

    def write(self, notation: Notation, written: Mapping[str, str]) -> str:
        condition = notation.bar + notation.names(self.given, written) if self.given else ""
        return f"P({notation.names(self.outcome, written)}{condition})"

    def evaluate(self, law: xr.DataArray) -> xr.DataArray:
        joint = law.sum([node for node in law.dims if node not in self.free])
        return _divide(joint, joint.sum(sorted(self.outcome)), Probability(self.given)) if self.given else joint


@dataclass(frozen=True)
class ProbabilityProduct(Expression):
    """The product of factors; the empty product is 1."""

    factors: tuple[Expression, ...]

    @cached_property
    def free(self) -> frozenset[str]:
        return frozenset().union(*(factor.free for factor in self.factors))

    @cached_property
    def mentioned(self) -> frozenset[str]:
        return frozenset().union(*(factor.mentioned for factor in self.factors))

    def write(self, notation: Notation, written: Mapping[str, str]) -> str:
        parts = [factor.write(notation, written) for factor in self.factors]
        for position, factor in enumerate(self.factors):
            if isinstance(factor, ProbabilitySum) and position < len(parts) - 1:
                parts[position] = parts[position].join(notation.brackets)
        return notation.times.join(parts) or "1"

    def evaluate(self, law: xr.DataArray) -> xr.DataArray:
        return _contract(self, frozenset(), law)


@dataclass(frozen=True)
class Ratio(Expression):
    """A fraction."""

    above: Expression
    below: Expression

    @cached_property
    def free(self) -> frozenset[str]:
        return self.above.free | self.below.free

    @cached_property
    def mentioned(self) -> frozenset[str]:
        return self.above.mentioned | self.below.mentioned

    def write(self, notation: Notation, written: Mapping[str, str]) -> str:
        return notation.ratio(self.above.write(notation, written), self.below.write(notation, written))

    def evaluate(self, law: xr.DataArray) -> xr.DataArray:
        return _divide(self.above.evaluate(law), self.below.evaluate(law), self.below)


@dataclass(frozen=True)
class ProbabilitySum(Expression):
    """The sum over all values of some nodes. Inside the sum, their names are the summation variables.

    At least one node is summed over, and each summed node occurs in the body.
    """

    over: frozenset[str]
    body: Expression

    def __post_init__(self) -> None:
        if not self.over or not self.over <= self.body.free:
            depends = sorted(self.body.free)
            raise ValueError(f"`over` must be some of the nodes {depends} of the body, got {sorted(self.over)}")

    @cached_property
    def free(self) -> frozenset[str]:
        return self.body.free - self.over

    @property
    def mentioned(self) -> frozenset[str]:
        return self.body.mentioned

    def write(self, notation: Notation, written: Mapping[str, str]) -> str:
        inside = dict(written)
        for node in sorted(self.over):
            name = notation.name(node)
            while name in inside.values():
                name += "'"
            inside[node] = name
        return f"{notation.sum(notation.names(self.over, inside))} {self.body.write(notation, inside)}"

    def evaluate(self, law: xr.DataArray) -> xr.DataArray:
        return _contract(self.body, self.over, law)


def as_factors(expression: Expression) -> tuple[Expression, ...]:
    """Return the factors of a product, or the expression as its only factor."""
    return expression.factors if isinstance(expression, ProbabilityProduct) else (expression,)


def _contract(expression: Expression, over: frozenset[str], law: xr.DataArray) -> xr.DataArray:
    """Multiply factors and sum over some nodes in one step, so that no array over all nodes is built."""
    factors = [factor.evaluate(law) for factor in as_factors(expression)]
    return xr.dot(*factors, dim=sorted(over), optimize=True) if factors else xr.DataArray(1.0)


def _divide(above: xr.DataArray, below: xr.DataArray, meaning: Expression) -> xr.DataArray:
    """Divide; raise ValueError for a division by zero."""
    zeros = np.argwhere(~(below.values > 0.0))
    if len(zeros):
        event = {dim: below[dim].values[index].item() for dim, index in zip(below.dims, zeros[0], strict=True)}
        text = meaning.write(TEXT, {node: node for node in meaning.free})
        raise ValueError(f"`joint` must give {text} a positive value everywhere, at {event} it does not")
    return above / below
