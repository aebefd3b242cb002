r"""Expressions read as chains of conditional laws, which an estimator evaluates factor by factor.

An identified effect is a marginal of a product of conditional laws, such as the front door,

.. math:: P(y \mid do(x)) = \sum_{m, x'} P(y \mid m, x')\, P(m \mid x)\, P(x').

A fraction is the conditional law of another such chain: the numerator is a law Q of some variables, the denominator is
a marginal of Q, and their quotient conditions on the variables of the denominator.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from kpp.causal.errors import NotCoveredError
from kpp.causal.identification.estimand import Estimand
from kpp.causal.identification.expressions import (
    TEXT,
    Expression,
    Probability,
    ProbabilityProduct,
    ProbabilitySum,
    Ratio,
    as_factors,
)


class Variable(NamedTuple):
    """A node in one of its roles: 0 for the value that the effect is a function of, else a summation variable.

    Attributes:
        node: The name of the node.
        role: The number of the role.
    """

    node: str
    role: int = 0


@dataclasses.dataclass(frozen=True)
class ConditionalLaw:
    """The law of some variables given others, in the observed law or in the law of a chain.

    Args:
        outcome: The variables.
        given: The conditions, variables outside the chain.
        chain: The chain whose law it is; None for the observed law.
        known: The variables of the chain that take the values of the first conditions, `given`, in their order.
    """

    outcome: frozenset[Variable]
    given: tuple[Variable, ...] = ()
    chain: Chain | None = None
    known: tuple[Variable, ...] = ()

    @property
    def free(self) -> frozenset[Variable]:
        """The variables outside that it depends on."""
        return frozenset(self.given).union(self.chain.free if self.chain else ())

    def renamed(self, names: Mapping[Variable, Variable]) -> ConditionalLaw:
        """Return the law with some variables replaced by others."""

        def new(variables: Iterable[Variable]) -> Iterator[Variable]:
            return (names.get(variable, variable) for variable in variables)

        chain = self.chain and Chain(tuple(factor.renamed(names) for factor in self.chain.factors))
        return ConditionalLaw(frozenset(new(self.outcome)), tuple(new(self.given)), chain, tuple(new(self.known)))


@dataclasses.dataclass(frozen=True)
class Chain:
    """A product of conditional laws, each given variables of those before it or variables outside the chain.

    Args:
        factors: The laws in this order.
    """

    factors: tuple[ConditionalLaw, ...]

    @property
    def outcome(self) -> frozenset[Variable]:
        """The variables whose law it is."""
        return frozenset().union(*(factor.outcome for factor in self.factors))

    @property
    def free(self) -> frozenset[Variable]:
        """The variables outside that it depends on."""
        return frozenset().union(*(factor.free for factor in self.factors)) - self.outcome

    def conditionals(self) -> Iterator[ConditionalLaw]:
        """Go through the conditional laws, those of inner chains before the law of the chain."""
        for factor in self.factors:
            if factor.chain:
                yield from factor.chain.conditionals()
            yield factor


def read_chain(estimand: Estimand) -> Chain:
    """Read an estimand as a chain of conditional laws whose marginal over the outcomes it is.

    The law Q of a fraction may depend on variables outside of it. They get their observed law, which makes Q a law of
    them too, and are conditioned on. A node whose value does not matter (`Estimand.arbitrary`) gets the observed law.
    In a fraction that is the whole estimand it is summed over in numerator and denominator, without a condition on it.

    Returns:
        The chain. Its free variables are treatments and conditions of the estimand, in role 0.

    Raises:
        NotCoveredError: If a part of the expression is not a marginal of a product of conditional laws, nor a
            conditional law of one. The message names the part.
    """
    reader = _Reader(estimand)
    names = {node: Variable(node) for node in estimand.expression.free | estimand.outcome}
    factors = reader.read(estimand.expression, names)
    if estimand.arbitrary:
        factors = _averaged(factors, frozenset(names[node] for node in estimand.arbitrary))
    chain = reader.chain(factors, estimand.expression, frozenset(map(Variable, estimand.outcome)))
    unbound = chain.free - frozenset(map(Variable, estimand.treatment | estimand.given))
    if unbound:
        raise reader.refusal(
            estimand.expression, f"it sums over {_listed(unbound)}, whose law is not among its factors"
        )
    return chain


def _averaged(factors: Sequence[ConditionalLaw], arbitrary: frozenset[Variable]) -> list[ConditionalLaw]:
    law = ConditionalLaw(arbitrary)
    if len(factors) > 1 or factors[0].chain is None or arbitrary & frozenset(factors[0].given):
        return [*factors, law]
    return [dataclasses.replace(factors[0], chain=Chain((law, *factors[0].chain.factors)))]


class _Reader:
    """Reads the parts of one estimand, with a new role for each summation variable."""

    def __init__(self, estimand: Estimand):
        self._estimand = estimand
        self._roles = itertools.count(1)

    def read(self, expression: Expression, names: Mapping[str, Variable]) -> list[ConditionalLaw]:
        """Return the factors of an expression whose free nodes are given variables."""
        if isinstance(expression, Probability):
            given = tuple(names[node] for node in sorted(expression.given))
            return [ConditionalLaw(frozenset(names[node] for node in expression.outcome), given)]
        if isinstance(expression, ProbabilityProduct):
            return [law for factor in expression.factors for law in self.read(factor, names)]
        if isinstance(expression, ProbabilitySum):
            return self.read(expression.body, {**names, **{node: self._new(node) for node in sorted(expression.over)}})
        if isinstance(expression, Ratio):
            return self._read_ratio(expression, names)
        raise TypeError(f"`expression` must be a probability, product, ratio or sum, got {type(expression).__name__}")

    def chain(self, factors: Sequence[ConditionalLaw], expression: Expression, outcome: frozenset[Variable]) -> Chain:
        """Return the factors in order, without those that the outcome does not need."""
        waiting, ordered = list(factors), list[ConditionalLaw]()
        if len(frozenset().union(*(law.outcome for law in waiting))) < sum(len(law.outcome) for law in waiting):
            raise self.refusal(expression, "two of its factors are laws of the same variable")
        while waiting:
            left = frozenset().union(*(law.outcome for law in waiting))
            first = next((law for law in waiting if not law.free & left), None)
            if first is None:
                raise self.refusal(
                    expression, f"its factors are conditioned on each other in a circle, {_listed(left)}"
                )
            waiting.remove(first)
            ordered.append(first)
        return _for_outcome(ordered, outcome)

    def refusal(self, expression: Expression, reason: str) -> NotCoveredError:
        """Return the error for a part of the estimand."""
        part = expression.write(TEXT, {node: node for node in expression.free})
        return NotCoveredError(
            f"no embedding covers {self._estimand}: {reason} in the part {part}", str(self._estimand)
        )

    def _read_ratio(self, ratio: Ratio, names: Mapping[str, Variable]) -> list[ConditionalLaw]:
        """Divide each factor of the denominator into the smallest group of factors of which it is a marginal."""
        groups = [self.read(factor, names) for factor in as_factors(ratio.above)]
        for divisor in as_factors(ratio.below):
            laws = self.read(divisor, names)
            known = Chain(tuple(laws)).outcome & frozenset(names.values())
            if not known:  # a law that is summed over all its variables is 1
                continue
            tail = _for_outcome(laws, known).free
            chosen = next(self._groups_with_marginal(groups, known, tail, names), None)
            if chosen is None:
                raise self.refusal(ratio, f"{divisor.write(TEXT, {n: n for n in divisor.free})} does not divide a law")
            law = self._conditioned([law for group in chosen for law in group], known, ratio, names)
            groups = [*(group for group in groups if not any(group is other for other in chosen)), [law]]
        return [law for group in groups for law in group]

    def _groups_with_marginal(
        self,
        groups: Sequence[list[ConditionalLaw]],
        known: frozenset[Variable],
        tail: frozenset[Variable],
        names: Mapping[str, Variable],
    ) -> Iterator[tuple[list[ConditionalLaw], ...]]:
        """Go through sets of groups whose product has a marginal law of known variables given a tail, small ones first.

        The graph may separate the known variables from some conditions, which the divisor then lacks. Such conditions
        are variables outside of all groups: others are summed over in the divisor.
        """
        every = frozenset().union(*(law.outcome for group in groups for law in group))
        for size in range(1, len(groups) + 1):
            for some in itertools.combinations(groups, size):
                laws = [law for group in some for law in group]
                outcomes = [variable for law in laws for variable in law.outcome]
                if len(set(outcomes)) == len(outcomes) and known < frozenset(outcomes) & frozenset(names.values()):
                    conditions = _for_outcome(laws, known).free
                    if tail <= conditions and not (conditions - tail) & every:
                        yield some

    def _conditioned(
        self, laws: Sequence[ConditionalLaw], known: frozenset[Variable], ratio: Ratio, names: Mapping[str, Variable]
    ) -> ConditionalLaw:
        """Return the law of the other outcomes given some."""
        arbitrary = frozenset(map(Variable, self._estimand.arbitrary))
        needed = Chain(tuple(laws)).outcome & frozenset(names.values())
        tail = _for_outcome(laws, needed).free - arbitrary
        given = tuple(sorted(known | tail))
        inner = {variable: self._new(variable.node) for variable in given}
        renamed = [law.renamed(inner) for law in laws]
        renamed += _observed_laws(inner[variable] for variable in sorted(tail))
        outcome = needed - known
        chain = self.chain(renamed, ratio, outcome | frozenset(inner.values()))
        return ConditionalLaw(outcome, given, chain, tuple(inner[variable] for variable in given))

    def _new(self, node: str) -> Variable:
        return Variable(node, next(self._roles))


def _observed_laws(variables: Iterable[Variable]) -> list[ConditionalLaw]:
    """Return the observed law of variables; those of one node are independent of each other."""
    groups: list[set[Variable]] = []
    for variable in variables:
        free = [group for group in groups if all(other.node != variable.node for other in group)]
        groups += [] if free else [set()]
        (free or groups)[-1].add(variable)
    return [ConditionalLaw(frozenset(group)) for group in groups]


def _for_outcome(laws: Sequence[ConditionalLaw], outcome: frozenset[Variable]) -> Chain:
    """Return the factors that a marginal needs; the others sum to 1."""
    kept = list(laws)
    while True:
        needed = outcome.union(*(law.free for law in kept))
        idle = [law for law in kept if not law.outcome & needed]
        if not idle:
            return Chain(tuple(kept))
        kept = [law for law in kept if law not in idle]


def _listed(variables: Iterable[Variable]) -> str:
    return ", ".join(sorted({variable.node for variable in variables}))
