"""Rules that shorten expressions in an observed law: separated conditions and sums equal to 1 are dropped."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from itertools import permutations

from kpp.causal.graph.dag import CausalDAG
from kpp.causal.graph.nodes import NodeSet
from kpp.causal.graph.separation import on_open_walks
from kpp.causal.identification.expressions import (
    Expression,
    Probability,
    ProbabilityProduct,
    ProbabilitySum,
    Ratio,
    as_factors,
)


class Algebra:
    """Builds short expressions in the law of a graph without latent nodes, which satisfies its separations."""

    def __init__(self, graph: CausalDAG):
        self._graph, self._order = graph, graph.topological_order()
        self._position = {node: place for place, node in enumerate(self._order)}
        self._d_separated = functools.cache(self._separated)  # the same questions return for each summed node

    def probability(self, outcome: NodeSet, given: NodeSet = frozenset()) -> Expression:
        """Return P(outcome | given) without the conditions that the other conditions separate from the outcome."""
        needed = given & on_open_walks(self._graph, outcome, given, self._before(outcome | given))
        return Probability(outcome, needed) if outcome else ProbabilityProduct(())

    def _separated(self, x: NodeSet, y: NodeSet, given: NodeSet) -> bool:
        """Return whether `given` separates two sets of nodes; the three are disjoint."""
        return not y or y.isdisjoint(on_open_walks(self._graph, x, given, self._before(x | y | given), y))

    def _before(self, nodes: NodeSet) -> NodeSet:
        """Return the nodes up to the last of some in the causal order; they hold all ancestors of these."""
        return frozenset(self._order[: 1 + max(map(self._position.__getitem__, nodes), default=-1)])

    def product(self, factors: Iterable[Expression]) -> Expression:
        """Return a product with its fractions combined into one, effects first and sums last."""
        flat = [part for factor in factors for part in as_factors(factor)]
        fractions = [part for part in flat if isinstance(part, Ratio)]
        plain = [part for part in flat if not isinstance(part, Ratio)]
        if not fractions:
            ordered = tuple(sorted(plain, key=self._rank))
            return ordered[0] if len(ordered) == 1 else ProbabilityProduct(ordered)
        above = [part for fraction in fractions for part in as_factors(fraction.above)]
        below = [part for fraction in fractions for part in as_factors(fraction.below)]
        return self.ratio(self.product([*plain, *above]), self.product(below))

    def ratio(self, above: Expression, below: Expression) -> Expression:
        """Return a fraction without common factors, and with P(a, b) / P(b) written as P(a | b)."""
        if isinstance(above, Ratio):
            return self.ratio(above.above, self.product([above.below, below]))
        if isinstance(below, Ratio):
            return self.ratio(self.product([above, below.below]), below.above)
        numerator, denominator, tried = list(as_factors(above)), list(as_factors(below)), 0
        while tried < len(denominator):
            left = self._divided(numerator, denominator[0])
            if left is None:
                denominator, tried = [*denominator[1:], denominator[0]], tried + 1
            else:
                numerator, denominator, tried = left, denominator[1:], 0
        top = self.product(numerator)
        return Ratio(top, self.product(denominator)) if denominator else top

    def sum_out(self, over: NodeSet, expression: Expression) -> Expression:
        """Return the sum over some nodes; factors that do not depend on them are moved in front of it."""
        if not over:
            return expression
        if isinstance(expression, ProbabilitySum):
            return self.sum_out(over | expression.over, expression.body)
        if isinstance(expression, Ratio) and not expression.below.free & over:
            return self.ratio(self.sum_out(over, expression.above), expression.below)
        if isinstance(expression, Probability) and over <= expression.outcome:
            return self.probability(expression.outcome - over, expression.given)
        outside: list[Expression] = []
        inside = list(as_factors(expression))
        while over:
            outside += [factor for factor in inside if not factor.free & over]
            inside, over = self._open_sums([factor for factor in inside if factor.free & over], over)
            inside, left = self._summed(inside, over)
            if left == over:
                return self.product([*outside, ProbabilitySum(over, self.product(inside))])
            over = left
            if any(isinstance(factor, Ratio) for factor in inside):
                return self.product([*outside, self.sum_out(over, self.product(inside))])
        return self.product([*outside, *inside])

    def _summed(self, factors: list[Expression], over: NodeSet) -> tuple[list[Expression], NodeSet]:
        """Sum a product over the nodes for which the sum has a closed form; return its factors and the other nodes.

        The last node in the causal order is summed first. A node without a closed form is tried again when its factors
        change. The sum stops at the first node if there are ratios, because it may simplify them.
        """
        single = any(isinstance(factor, Ratio) for factor in factors)
        holders = {node: [factor for factor in factors if node in factor.free] for node in over}
        waiting = sorted(over, key=self._position.__getitem__)
        while waiting:
            node = waiting.pop()
            merged = self._merged(holders[node])
            if merged is None or node not in merged.outcome:
                continue
            new = as_factors(self.probability(merged.outcome - {node}, merged.given))
            factors = [*(factor for factor in factors if node not in factor.free), *new]
            over -= {node}
            if single:
                break
            changed = merged.free & over
            for other in changed:
                holders[other] = [factor for factor in holders[other] if node not in factor.free]
                holders[other] += [factor for factor in new if other in factor.free]
            waiting = sorted(changed.union(waiting), key=self._position.__getitem__)
        return factors, over

    def joined(self, expression: Expression) -> Expression:
        """Return the form to display: P(a | b, c) P(b | c) becomes P(a, b | c), and divisors are moved into sums."""
        if isinstance(expression, Ratio):
            expression = self._with_divided_terms(expression)
        if isinstance(expression, ProbabilitySum):
            return ProbabilitySum(expression.over, self.joined(expression.body))
        if isinstance(expression, Ratio):
            return Ratio(self.joined(expression.above), self.joined(expression.below))
        factors = [self.joined(f) if isinstance(f, (ProbabilitySum, Ratio)) else f for f in as_factors(expression)]
        for effect, cause in permutations([f for f in factors if isinstance(f, Probability)], 2):
            if effect.given == cause.outcome | cause.given:
                both = Probability(effect.outcome | cause.outcome, cause.given)
                return self.joined(self.product([*_without(factors, [effect, cause]), both]))
        return self.product(factors)

    def _rank(self, factor: Expression) -> tuple[int, int, str]:
        kind = int(isinstance(factor, ProbabilitySum))
        named = factor.outcome if isinstance(factor, Probability) else factor.mentioned
        return kind, -max(self._position[node] for node in named), str(sorted(factor.mentioned))

    def _divided(self, numerator: list[Expression], factor: Expression) -> list[Expression] | None:
        """Return what is left of a numerator after a division by a factor, or None if it does not divide.

        It may divide a single factor, or a joint probability that is a product of factors: the factors of its outcome,
        the factors of the nodes that these are conditioned on, and so on.
        """
        groups: list[list[Expression]] = [[part] for part in numerator]
        probabilities = [part for part in numerator if isinstance(part, Probability)]
        wanted, grown = NodeSet(), factor.outcome if isinstance(factor, Probability) else frozenset()
        while wanted != grown:
            wanted = grown
            group = [part for part in probabilities if part.outcome & wanted]
            merged = self._merged(group)
            groups += [[merged, *group]] if merged is not None else []
            grown = wanted.union(*(part.given for part in group))
        for whole, *parts in groups:
            quotient = self._quotient(whole, factor)
            if quotient is not None:
                return [*_without(numerator, parts or [whole]), *as_factors(quotient)]
        return None

    def _with_divided_terms(self, ratio: Ratio) -> Expression:
        """Divide the terms of a sum, rather than the sum, by a divisor that is the same for all terms."""
        if not isinstance(ratio.above, ProbabilitySum) or ratio.above.over & ratio.below.free:
            return ratio
        terms = self.ratio(ratio.above.body, ratio.below)
        return ratio if isinstance(terms, Ratio) else self.sum_out(ratio.above.over, terms)

    def _quotient(self, part: Expression, factor: Expression) -> Expression | None:
        """Return 1 for a / a and P(a | b, c) for P(a, b | c) / P(b | c), else None.

        Conditions of the divisor may be missing if its other conditions separate them from its outcome.
        """
        if part == factor:
            return ProbabilityProduct(())
        if not (isinstance(part, Probability) and isinstance(factor, Probability) and factor.outcome <= part.outcome):
            return None
        rest = part.outcome - factor.outcome
        missing = part.given - factor.given
        if factor.given <= part.given and self._d_separated(factor.outcome, missing, factor.given):
            return self.probability(rest, part.given | factor.outcome)
        return None

    @staticmethod
    def _open_sums(factors: list[Expression], over: NodeSet) -> tuple[list[Expression], NodeSet]:
        """Split sums into factors and summed nodes, if these names are not used in the other factors."""
        opened: list[Expression] = []
        for place, factor in enumerate(factors):
            if isinstance(factor, ProbabilitySum):
                others = frozenset().union(over, *(other.free for other in [*opened, *factors[place + 1 :]]))
                if not factor.over & others:
                    opened += as_factors(factor.body)
                    over = over | factor.over
                    continue
            opened.append(factor)
        return opened, over

    def _merged(self, factors: Sequence[Expression]) -> Probability | None:
        """Return the single probability that equals a product, or None if there is none.

        Let A be the set of all a_i, and B the set of all b_i without A. The product of P(a_1 | b_1), P(a_2 | b_2), ...
        is P(A | B) if, given b_i, each a_i is independent of the other nodes of B and of the a_j before it.
        """
        waiting = [factor for factor in factors if isinstance(factor, Probability)]
        outcomes = [node for factor in waiting for node in factor.outcome]
        if len(waiting) < len(factors) or len(outcomes) > len(set(outcomes)):
            return None
        given = frozenset().union(*(factor.given for factor in waiting)) - set(outcomes)
        known = given
        while waiting:
            left = frozenset().union(*(factor.outcome for factor in waiting))
            first = next((factor for factor in waiting if not factor.given & left), None)
            if first is None or not self._d_separated(first.outcome, known - first.given, first.given):
                return None
            waiting.remove(first)
            known = known | first.outcome
        return Probability(frozenset(outcomes), given)


def _without(factors: Sequence[Expression], taken: Sequence[Expression]) -> list[Expression]:
    """Return factors without some of them. Each is removed once, because a product may hold a factor twice."""
    left = list(factors)
    for factor in taken:
        left.remove(factor)
    return left
