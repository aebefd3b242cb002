r"""The sums of an estimator of a chain of conditional laws, before any number is known.

A conditional law given b weighs the rows of the sample, :math:`w_i(b) = \sum_l S_{il} \prod_j k_j(b_j^{(l)}, b_j)`. So
each factor of a chain has an index i of its rows, which hold the values of its outcome, and an index l of its
regression. A condition takes its values from the rows of another factor, or is fixed. The law of some variables is the
sum over all other indices of a product of vectors and matrices, and variables are summed out one by one.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import jax.numpy as jnp
from jaxtyping import Array, Float

if TYPE_CHECKING:
    from kpp.causal.toolkit import Chain, ConditionalLaw, Variable

#: An array and the index of each of its axes.
Tensor = tuple[Array, tuple[int, ...]]


def row_index(factor: int) -> int:
    """Return the index of the rows of a factor."""
    return 2 * factor


def regression_index(factor: int) -> int:
    """Return the index over which the regression of a factor is summed."""
    return 2 * factor + 1


class ScatteredError(ValueError):
    """Variables that no conditional law of a chain holds together, in its outcome and conditions."""

    def __init__(self, variables: Iterable[Variable]):
        self.nodes = sorted({variable.node for variable in variables})
        super().__init__(f"no single conditional law holds all of {self.nodes} in its outcome and conditions")


@dataclasses.dataclass(frozen=True)
class Wiring:
    """Which factor's rows hold the value of each variable of a chain."""

    rows: tuple[frozenset[Variable], ...]  # the variables whose values the rows of each factor hold
    sources: tuple[dict[Variable, int], ...]  # by factor: its variables that are not fixed, with their factor
    looped: tuple[tuple[int, ...], ...]  # by factor: the factors whose rows it takes one by one
    rank: int = 0  # the number of axes of the largest array

    def holder(self, variables: Iterable[Variable]) -> int:
        """Return the last factor whose rows hold all of some variables; raise ScatteredError if there is none."""
        wanted = frozenset(variables)
        found = [k for k, held in enumerate(self.rows) if wanted <= held]
        if not found:
            raise ScatteredError(wanted)
        return found[-1]

    def matrices(self, k: int, law: ConditionalLaw) -> dict[int, tuple[int, ...]]:
        """Return the factors whose rows hold conditions of factor k, with the positions of these conditions."""
        outside = [self.sources[k].get(variable) for variable in law.given]
        found = sorted({source for source in outside if source is not None and source not in self.looped[k]})
        return {source: tuple(j for j, other in enumerate(outside) if other == source) for source in found}

    def shapes(self, chain: Chain) -> Iterator[frozenset[int]]:
        """Go through the indices of the arrays of all factors."""
        for k, law in enumerate(chain.factors):
            matrices = self.matrices(k, law)
            regression = [regression_index(k)] if matrices else []
            yield frozenset([row_index(k), *map(row_index, self.looped[k]), *regression])
            yield from (frozenset([regression_index(k), row_index(source)]) for source in matrices)


@dataclasses.dataclass(frozen=True)
class Conditioning:
    """Where the law of a chain, given some of its variables, finds their values."""

    wiring: Wiring
    outcome: int  # the factor whose rows hold the outcome
    steps: tuple[tuple[int, tuple[int, ...]], ...]  # in order: factors with the positions of conditions


def wire(chain: Chain, kept: Sequence[Iterable[Variable]]) -> tuple[Wiring, list[int]]:
    """Return the wiring with the smallest arrays for the law of groups of variables, each held by one factor's rows.

    Given a condition b, the rows that have weight in a regression on b also hold values near b. So a later factor may
    take b from the rows of the first factor that has it, or from those of the last one, which needs fewer indices at
    the cost of more smoothing. The first is preferred. The factor of each group is also returned; ScatteredError is
    raised if no factor's rows hold all its variables.
    """
    found = []
    for carried in (False, True):
        wiring = _wire(chain, carried)
        holders = [wiring.holder(group) for group in kept]
        _, rank = _elimination(list(wiring.shapes(chain)), frozenset(map(row_index, holders)))
        found.append((dataclasses.replace(wiring, rank=rank), holders))
    return min(found, key=lambda wired: wired[0].rank)


def regressed_laws(chain: Chain) -> list[ConditionalLaw]:
    """Return the laws of a chain and of its inner chains that have conditions, each once, inner ones first."""
    return [law for law in dict.fromkeys(chain.conditionals()) if law.given]


def chain_rank(chain: Chain, outcome: frozenset[Variable]) -> int:
    """Return the number of axes of the largest array for the law of an outcome, or raise ScatteredError as `wire`."""
    inner = [conditioning(law).wiring.rank for law in regressed_laws(chain) if law.chain]
    return max([wire(chain, [outcome])[0].rank, *inner])


@functools.cache
def conditioning(law: ConditionalLaw) -> Conditioning:
    """Return where a law of a chain finds outcome and conditions.

    If no factor's rows hold all conditions, they are conditioned on one after another. Raises ScatteredError if none
    hold the outcome.
    """
    if law.chain is None:
        raise ValueError("`law` must be the law of a chain, got one of the observed law")
    every = tuple(range(len(law.known)))
    for groups in ([[*law.outcome, *law.known]], [law.outcome, law.known], [law.outcome, *([v] for v in law.known)]):
        try:
            wiring, (outcome, *known) = wire(law.chain, groups)
        except ScatteredError:
            continue
        if len(known) < 2:
            return Conditioning(wiring, outcome, (((outcome, *known)[-1], every),))
        steps = ((factor, tuple(j for j in every if known[j] == factor)) for factor in dict.fromkeys(known))
        return Conditioning(wiring, outcome, tuple(steps))
    raise ScatteredError(law.outcome)


@functools.cache
def _wire(chain: Chain, carried: bool) -> Wiring:
    holders: dict[Variable, int] = {}
    rows, sources, looped = [], [], []
    for k, law in enumerate(chain.factors):
        sources.append({v: holders[v] for v in sorted(law.free) if v in holders})
        one_by_one: frozenset[Variable] = frozenset()
        holds_conditions = True
        if law.chain is not None:
            found = conditioning(law)
            one_by_one = law.chain.free.union(law.given if len(found.steps) > 1 else ())
            holds_conditions = [factor for factor, _ in found.steps] == [found.outcome]
        looped.append(tuple(sorted({holders[v] for v in one_by_one if v in holders})))
        held = {v for v in law.given if v in holders} if not looped[-1] and holds_conditions else set()
        rows.append(law.outcome | held)
        holders |= dict.fromkeys(law.outcome | (held if carried else set()), k)
    return Wiring(tuple(rows), tuple(sources), tuple(looped))


def contract(tensors: Sequence[Tensor], kept: tuple[int, ...]) -> Float[Array, "..."]:
    """Multiply arrays and sum over all indices but some, one index after another, so that results stay small."""
    left = list(tensors)
    order, _ = _elimination([frozenset(indices) for _, indices in tensors], frozenset(kept))
    for index in order:
        some = [tensor for tensor in left if index in tensor[1]]
        left = [tensor for tensor in left if index not in tensor[1]]
        result = tuple(sorted({other for _, indices in some for other in indices} - {index}))
        left.append((_product(some, result), result))
    return _product(left, kept)


def _elimination(shapes: Sequence[frozenset[int]], kept: frozenset[int]) -> tuple[list[int], int]:
    """Return the order in which indices are summed out, smallest result first, and the largest rank."""
    left, order = list(shapes), []
    largest = max(map(len, left), default=0)
    while waiting := sorted(frozenset().union(*left) - kept):
        results = {index: frozenset().union(*(s for s in left if index in s)) - {index} for index in waiting}
        best = min(waiting, key=lambda index: len(results[index]))
        left = [*(shape for shape in left if best not in shape), results[best]]
        largest = max(largest, len(results[best]))
        order.append(best)
    return order, max(largest, len(kept))


def _product(tensors: Sequence[Tensor], result: tuple[int, ...]) -> Float[Array, "..."]:
    operands = itertools.chain.from_iterable((array, list(indices)) for array, indices in tensors)
    return jnp.einsum(*operands, list(result), precision="highest")
