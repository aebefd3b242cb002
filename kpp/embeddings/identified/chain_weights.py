r"""The weights of a sample's rows in the law of an outcome, from a chain of conditional laws.

Each conditional law is a conditional mean embedding: for a law of n rows with weights d, D = diag(d), the law given b
has the weights

.. math:: w(b) = (K + \lambda D^{-1})^{-1} k(b) = D^{1/2} (D^{1/2} K D^{1/2} + \lambda I)^{-1} D^{1/2} k(b).

For the observed law d are the weights of the sample. For the law of a chain they are computed, and may be negative;
such weights are replaced by 0.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.embeddings.identified.chain_wiring import (
    Tensor,
    Wiring,
    conditioning,
    contract,
    regressed_laws,
    regression_index,
    row_index,
    wire,
)
from kpp.kernels import AbstractKernel
from kpp.linalg.toolkit import DenseRidge
from kpp.typing import Leaf

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
