r"""The weights of a sample's rows in the law of an outcome, from a chain of conditional laws.

Each conditional law is a conditional mean embedding: for a law of n rows with weights d, D = diag(d), the law given b
has the weights

.. math:: w(b) = (K + \lambda D^{-1})^{-1} k(b) = D^{1/2} (D^{1/2} K D^{1/2} + \lambda I)^{-1} D^{1/2} k(b).

For the observed law d are the weights of the sample. For the law of a chain they are computed, and may be negative;
such weights are replaced by 0.

The sums are planned before any number is known. A conditional law given b weighs the rows of the sample, :math:`w_i(b)
= \sum_l S_{il} \prod_j k_j(b_j^{(l)}, b_j)`. So each factor of a chain has an index i of its rows, which hold the
values of its outcome, and an index l of its regression. A condition takes its values from the rows of another factor,
or is fixed. The law of some variables is the sum over all other indices of a product of vectors and matrices, and
variables are summed out one by one.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.kernels import AbstractKernel
from kpp.linalg.toolkit import DenseRidge
from kpp.typing import Leaf

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


if TYPE_CHECKING:
    from kpp.causal.toolkit import Chain, ConditionalLaw, Variable


class Regression(eqx.Module):
    """How a conditional law is estimated."""

    kernels: tuple[AbstractKernel, ...]  # of each condition, as in `ConditionalLaw.given`; they are multiplied
    regularization: Leaf  # for weights of rows that sum to 1
    num_iterations: int = eqx.field(static=True, default=1)  # see `_IteratedRidge`


class ChainSample(eqx.Module):
    """A weighted sample of the observed law."""

    columns: dict[str, Float[Array, " n"]]  # the values of each node, (n,)
    row_weights: Float[Array, " n"]  # (n,), which sum to 1
    regressions: tuple[Regression, ...]  # in the order of `regressed_laws`


@eqx.filter_jit
def chain_weights(
    chain: Chain, outcome: frozenset[Variable], sample: ChainSample, query: Mapping[Variable, Float[Array, " p"]]
) -> Float[Array, "n p"]:
    """Return the weights of the rows in the law of an outcome, for each query."""
    solver = _Solver(chain, sample)
    num_queries = len(next(iter(query.values())))
    used = {variable: values for variable, values in query.items() if variable in chain.free}
    if not used:
        return jnp.tile(solver.weights(chain, outcome, {})[:, None], num_queries)
    # Not vmap: it would hold the systems of all queries.
    return jax.lax.map(lambda fixed: solver.weights(chain, outcome, fixed), used).T


#: The values of variables that are the same for all rows.
_Fixed = Mapping["Variable", Array]


class _IteratedRidge(NamedTuple):
    r"""A system with iterated Tikhonov regularization, which has less bias and more variance with more iterations.

    .. math:: \sum_{j < q} \lambda^j (A + \lambda I)^{-(j + 1)}

    With one iteration it is ridge regression.
    """

    ridge: DenseRidge
    num_iterations: int

    def solve(self, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return the solution: each iteration solves for b plus the ridge times the solution so far."""
        first = found = self.ridge.solve(b)
        for _ in range(self.num_iterations - 1):
            found = first + self.ridge.ridge * self.ridge.solve(found)
        return found

    def inverse(self) -> Float[Array, "n n"]:
        """Return the matrix that maps b to the solution."""
        first = found = self.ridge.inverse()
        for _ in range(self.num_iterations - 1):
            found = first + self.ridge.ridge * jnp.matmul(first, found, precision="highest")
        return found


class _System(NamedTuple):
    """A regularized system, whose solutions are the weights of rows for conditions."""

    ridge: _IteratedRidge
    root: Array
    left: Array  # (n,) or (n, n): what solutions are multiplied with

    def weights(self, sections: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return the weights for one condition."""
        solution = self.ridge.solve(self.root * sections)
        return self.left * solution if self.left.ndim == 1 else self.left @ solution

    def operator(self) -> Float[Array, "n n"]:
        """Return the matrix that maps sections of the kernel at the rows to weights."""
        inverse = self.ridge.inverse()
        return (self.left[:, None] * inverse if self.left.ndim == 1 else self.left @ inverse) * self.root[None, :]


class _Solver:
    """Evaluates a chain and its inner chains. What does not depend on a query is computed once."""

    def __init__(self, chain: Chain, sample: ChainSample):
        self._sample = sample
        self._num_rows = len(sample.row_weights)
        self._regressions = dict(zip(regressed_laws(chain), sample.regressions, strict=True))
        self._operators: dict[ConditionalLaw, Array] = {}
        for law in self._regressions:
            if law.chain is None or not (law.chain.free or len(conditioning(law).steps) > 1):
                self._operators[law] = self._system(law, {}).operator()

    def weights(self, chain: Chain, outcome: frozenset[Variable], fixed: _Fixed) -> Float[Array, " n"]:
        """Return the weights of the rows in the law of an outcome."""
        wiring, (holder,) = wire(chain, [outcome])
        return contract(self._tensors(chain, wiring, fixed), (row_index(holder),))

    def _tensors(self, chain: Chain, wiring: Wiring, fixed: _Fixed) -> list[Tensor]:
        """Return the arrays whose product is the law of all variables of a chain."""
        tensors: list[Tensor] = []
        for k, law in enumerate(chain.factors):
            tensors.append(self._factor(k, law, wiring, fixed))
            for source, some in wiring.matrices(k, law).items():
                matrix = self._sections(law, self._rows(law), some)
                tensors.append((matrix, (regression_index(k), row_index(source))))
        return tensors

    def _factor(self, k: int, law: ConditionalLaw, wiring: Wiring, fixed: _Fixed) -> Tensor:
        """Return the weights of a factor's rows, or the matrix that maps sections to them if conditions are not fixed.

        There is one for each row of the factors that are gone through.
        """
        if not law.given:
            return self._sample.row_weights, (row_index(k),)
        looped, missing = wiring.looped[k], {j for some in wiring.matrices(k, law).values() for j in some}
        ready = [j for j in range(len(law.given)) if j not in missing]

        def at(*rows: Array) -> Array:
            row_of = dict(zip(looped, rows, strict=True))
            sources = {v: source for v, source in wiring.sources[k].items() if source in row_of}
            values = {v: self._sample.columns[v.node][row_of[source]] for v, source in sources.items()}
            return self._given_fixed(law, {**fixed, **values}, ready)

        indices = (*map(row_index, looped), row_index(k), *([regression_index(k)] if missing else []))
        return self._for_each_row(at, len(looped)), indices

    def _for_each_row(self, function: Callable[..., Array], depth: int) -> Array:
        """Return the values of a function of several positions of rows, one axis per position."""
        if depth == 0:
            return function()
        rows = jnp.arange(self._num_rows)
        return jax.lax.map(lambda row: self._for_each_row(functools.partial(function, row), depth - 1), rows)

    def _given_fixed(self, law: ConditionalLaw, fixed: _Fixed, ready: Sequence[int]) -> Array:
        """Return the weights of the rows, or the matrix that maps sections to them if not all conditions are ready."""
        known = self._operators.get(law)
        if len(ready) == len(law.given):
            if known is not None:
                return known @ self._sections_at(law, fixed, ready)
            return self._system(law, fixed).weights(self._sections_at(law, fixed, _last_step(law)))
        matrix = self._system(law, fixed).operator() if known is None else known
        return matrix * self._sections_at(law, fixed, ready)[None, :] if ready else matrix

    def _system(self, law: ConditionalLaw, fixed: _Fixed) -> _System:
        """Return the system of a law for fixed values of its chain's free variables."""
        if law.chain is None:
            return self._weighted_system(law, self._sample.row_weights, _last_step(law))
        found = conditioning(law)
        tensors = self._tensors(law.chain, found.wiring, fixed)
        for factor, some in found.steps[:-1]:
            system = self._weighted_system(law, contract(tensors, (row_index(factor),)), some)
            solution = system.ridge.solve(system.root * self._sections_at(law, fixed, some))
            tensors.append((_divided(solution, system.root), (row_index(factor),)))
        factor, some = found.steps[-1]
        if factor == found.outcome:
            return self._weighted_system(law, contract(tensors, (row_index(factor),)), some)
        joint = contract(tensors, (row_index(found.outcome), row_index(factor)))
        system = self._weighted_system(law, jnp.sum(joint, axis=0), some)
        return system._replace(left=_divided(joint, system.root[None, :]))

    def _weighted_system(self, law: ConditionalLaw, weights: Array, some: Sequence[int]) -> _System:
        """Return the system for some conditions in a law with weights of the rows."""
        root = jnp.sqrt(jnp.maximum(weights, 0.0))  # estimated weights may be negative
        matrix = self._sections(law, self._rows(law), some) * root[:, None] * root[None, :]
        regression = self._regressions[law]
        ridge = DenseRidge.create(matrix, regression.regularization)
        return _System(_IteratedRidge(ridge, regression.num_iterations), root, root)

    def _rows(self, law: ConditionalLaw) -> dict[int, Array]:
        return {j: self._sample.columns[variable.node] for j, variable in enumerate(law.given)}

    def _sections(self, law: ConditionalLaw, points: Mapping[int, Array], some: Sequence[int]) -> Float[Array, "n m"]:
        """Return the kernel of some conditions between the rows and points."""
        kernels, rows = self._regressions[law].kernels, self._rows(law)
        return functools.reduce(operator.mul, [kernels[j](rows[j][:, None], points[j][:, None]) for j in some])

    def _sections_at(self, law: ConditionalLaw, fixed: _Fixed, some: Sequence[int]) -> Float[Array, " n"]:
        points = {j: fixed[law.given[j]][None] for j in some}
        return self._sections(law, points, some)[:, 0]


def _last_step(law: ConditionalLaw) -> tuple[int, ...]:
    """Return the positions of the conditions for which a law is conditioned on last."""
    return conditioning(law).steps[-1][1] if law.chain else tuple(range(len(law.given)))


def _divided(values: Array, divisor: Array) -> Array:
    """Return quotients, 0 where the divisor is 0."""
    safe = jnp.where(divisor > 0.0, divisor, 1.0)  # the branch that is not taken has a gradient, too
    return jnp.where(divisor > 0.0, values / safe, 0.0)
