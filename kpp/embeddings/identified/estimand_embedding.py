"""The embedding of any identified effect, estimated from its expression in the observed law."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, Int

from kpp.data.tables import as_names
from kpp.embeddings.identified.chain_weights import (
    ChainSample,
    Regression,
    ScatteredError,
    chain_rank,
    chain_weights,
    regressed_laws,
)
from kpp.embeddings.identified.from_graph import kernel_or_default, read_columns, read_frame
from kpp.embeddings.means.conditional import ConditionalMeanEmbedding, select_regularization
from kpp.embeddings.means.embedding import AbstractEmpiricalEmbedding
from kpp.foundation.validation import as_targets, check_same_rows, count, finite_arrays, is_concrete
from kpp.foundation.wording import named
from kpp.kernels import RBF, AbstractKernel, ProductKernel, check_non_negative, median_heuristic, parameter
from kpp.linalg import FactorizationError
from kpp.runtime.memory import check_count, check_memory
from kpp.typing import Leaf, Numbers, Points, RngKey

if TYPE_CHECKING:
    import pandas as pd

    from kpp.causal import CausalDAG, Estimand
    from kpp.causal.toolkit import Chain, Variable


_SINGULAR = "a regularized kernel matrix of the embedding"
_INNER = 20  # halves of a half


class EstimandEmbedding(AbstractEmpiricalEmbedding):
    r"""The embedding of an identified effect :math:`P(y \mid do(x), z)`, for any graph with hidden variables.

    .. math:: \hat\mu_{Y|do(x), z} = \sum_i w_i(x, z)\, k(y_i, \cdot)

    `kpp.causal.identify` expresses the effect by conditional laws of the observed variables. Each of them is estimated
    by a conditional mean embedding, sums are sums over the rows of the sample, and a fraction is a conditional mean
    embedding in a law that has weights on the rows, of which negative ones are replaced by 0. For a back door or front
    door this is `InterventionalMeanEmbedding`. With the kernel :math:`1\{b = b'\}` and small regularization, it is the
    expression in the empirical law. Create it by `from_graph`.

    Args:
        kernel: The kernel k of the outcome.
        points: Y, the n outcomes, (n, d').
        estimand: The effect with its expression.
        chain: The expression as a chain of conditional laws.
        outcome: The names of the outcomes, in the order of the columns of `points`.
        conditions: The names of the treatments and of the variables conditioned on, in the order of the columns of
            queries.
        sample: The sample, the weights of its rows, and how each conditional law is estimated.

    The time is :math:`O(n^3)` for each conditional law. If no single conditional law holds all conditions of a
    fraction, it is conditioned on one after another, with a factorization for each query. Memory is :math:`O(n^2)` for
    most expressions; others are refused if they do not fit.

    References:
        Chau, Ton, Gonzalez, Teh and Sejdinovic, BayesIMP, 2021, proposition 2, for a product of a mean embedding and a
        conditional one; Song, Fukumizu and Gretton, Kernel embeddings of conditional distributions, 2013, for chains;
        Xu, Chen, Doucet and Gretton, Importance weighted kernel Bayes' rule, 2022, for weights without negative ones.
    """

    kernel: AbstractKernel
    points: Float[Array, "n d2"]
    estimand: Estimand = eqx.field(static=True)
    chain: Chain = eqx.field(static=True)
    outcome: tuple[str, ...] = eqx.field(static=True)
    conditions: tuple[str, ...] = eqx.field(static=True)
    sample: ChainSample

    @classmethod
    def from_graph(
        cls,
        graph: CausalDAG,
        frame: pd.DataFrame,
        treatment: str | Sequence[str],
        outcome: str | Sequence[str],
        *,
        given: str | Sequence[str] = (),
        regularization: Leaf | None = None,
        kernel: AbstractKernel | None = None,
        kernels: Mapping[str, AbstractKernel] | None = None,
    ) -> EstimandEmbedding:
        r"""Identify an effect in a causal graph from the columns of a data frame, and estimate it.

        Args:
            graph: The causal graph.
            frame: A data frame of numbers, one row per sample. Its columns are observed nodes of the graph. Nodes that
                are missing are taken as hidden, and other columns are ignored.
            treatment: The column of the treatment, or several columns.
            outcome: The column of the outcome, or several columns.
            given: The columns that the effect is conditioned on, with their values after the intervention.
            regularization: :math:`\lambda` of each conditional law, multiplied by n. By default the value with the
                smallest leave-one-out error is taken for each law.
            kernel: The kernel of the outcome; by default an RBF with the lengthscales of the median heuristic times the
                square root of the number of columns.
            kernels: The kernels of nodes in conditions, each for one column. By default they are RBFs with the median
                heuristic times the square root of the number of conditions.

        Returns:
            The embedding. Queries have the columns of `treatment`, and then those of `given`.

        Raises:
            NotIdentifiableError: If the effect is not identified from these columns, with the hedge.
            NotCoveredError: If a part of the expression is not a conditional law; the message names the part.
            CausalError: If a node is unknown.
            ValueError: If columns are missing or do not hold numbers, or the sums do not fit into memory.
        """
        from kpp.causal import identify  # loads networkx, which only this method needs

        names = {"treatment": as_names(treatment), "outcome": as_names(outcome), "given": as_names(given)}
        frame, columns = read_frame(frame, names)
        hidden = graph.hide(graph.observed - frozenset(columns))
        estimand = identify(hidden, treatment=names["treatment"], outcome=names["outcome"], given=names["given"])
        conditions = (*names["treatment"], *names["given"])
        return cls.from_estimand(
            estimand, frame, names["outcome"], conditions, regularization=regularization, kernel=kernel, kernels=kernels
        )

    @classmethod
    def from_estimand(
        cls,
        estimand: Estimand,
        frame: pd.DataFrame,
        outcome: Sequence[str],
        conditions: Sequence[str],
        *,
        regularization: Leaf | None = None,
        kernel: AbstractKernel | None = None,
        kernels: Mapping[str, AbstractKernel] | None = None,
    ) -> EstimandEmbedding:
        """Estimate an effect that `kpp.causal.identify` has identified, from the columns of a data frame.

        Args:
            estimand: The effect with its expression.
            frame: A data frame of numbers with the columns ``estimand.variables``.
            outcome: The outcomes of the effect, in the order of the columns of the embedding's points.
            conditions: Its treatments and the variables it is conditioned on, in the order of the columns of queries.
            regularization: As for `from_graph`, like the other arguments.
            kernel: The kernel of the outcome.
            kernels: The kernels of nodes in conditions.

        Raises:
            NotCoveredError: If a part of the expression is not a conditional law; the message names the part.
            ValueError: If columns are missing or do not hold numbers, the names are not those of the effect, or the
                sums do not fit into memory.
        """
        from kpp.causal.toolkit import Variable, read_chain

        _check_names(estimand, outcome, conditions)
        chain, points = read_chain(estimand), read_columns(frame, outcome)
        _check_size(estimand, chain, frozenset(map(Variable, outcome)), len(points))
        columns = {node: read_columns(frame, [node])[:, 0] for node in sorted(estimand.variables)}
        weights = jnp.full(len(points), 1 / len(points))
        sample = ChainSample(columns, weights, chain_regressions(chain, columns, regularization, dict(kernels or {})))
        kernel = kernel_or_default(kernel, points)
        return cls(kernel, points, estimand, chain, tuple(outcome), tuple(conditions), sample)

    def weights(self, query: Points | None = None) -> Float[Array, "n p"]:
        """Return the weights of the outcomes, (n, p), for p queries, values of `conditions`.

        Raises:
            ValueError: If `query` is None or has another number of columns.
            kpp.linalg.FactorizationError: If a regularized kernel matrix is singular.
        """
        weights = chain_weights(self.chain, self._outcome(), self.sample, self._fixed(query))
        if is_concrete(weights) and not np.isfinite(np.asarray(weights)).all():
            raise FactorizationError(f"{_SINGULAR} of {self.estimand.query()}; increase `regularization`")
        return weights

    def with_row_weights(self, row_weights: Numbers) -> EstimandEmbedding:
        """Return the embedding of the effect in the law with other weights of the rows.

        Args:
            row_weights: The weights, (n,), at least 0; they are divided by their sum.

        Raises:
            ValueError: If they are negative or all 0, or not one per row.
        """
        weights = as_targets(row_weights, name="row_weights")
        check_same_rows(len(self.points), len(weights), "points", "row_weights")
        if is_concrete(weights) and not bool((weights >= 0).all() and weights.sum() > 0):
            raise ValueError(f"`row_weights` must be at least 0, and not all 0, got {float(weights.min())} among them")
        return eqx.tree_at(lambda tree: tree.sample.row_weights, self, weights / jnp.sum(weights))

    def with_iterations(self, num_iterations: int) -> EstimandEmbedding:
        r"""Return the embedding with iterated Tikhonov regularization, of less bias and more variance.

        .. math:: w(b) = \sum_{j < q} \lambda^j (K + \lambda I)^{-(j + 1)}\, k(b)

        Args:
            num_iterations: q, at least 1 in every conditional law; 1 is ridge regression.
        """
        number = count(num_iterations, "num_iterations")
        regressions = tuple(dataclasses.replace(part, num_iterations=number) for part in self.sample.regressions)
        return dataclasses.replace(self, sample=dataclasses.replace(self.sample, regressions=regressions))

    def bootstrap(
        self,
        rng_key: RngKey,
        values: Numbers,
        query: Points,
        *,
        num_draws: int = 200,
        num_iterations: int = 3,
        extrapolate: bool = False,
    ) -> xr.DataArray:
        r"""Draw the expectation of a function of the outcome, :math:`E[g(Y) | do(x), z]`, from halves of the rows.

        Each draw estimates the effect from a random half of the rows (the half-sample bootstrap). Averages over halves
        vary as averages over n rows drawn with replacement do, but no row occurs twice: an estimate that almost
        interpolates, or rests on a few rows, varies too little with rows that occur twice. Kernels and regularization
        stay as they are. The bias of the regularization is not in the draws, so it is made smaller by iterations: the
        draws lie around the estimate of `with_iterations`, and not around that of this embedding.

        A fraction has a bias of another kind, which falls as 1 / n. The generalized jackknife removes it: its estimate
        is twice that of all rows minus the average over the halves, and its draws are this estimate from each half,
        with 20 halves of that half.

        Args:
            rng_key: A JAX random key.
            values: g at the n outcomes, (n,).
            query: The p queries, (p, d).
            num_draws: The number of draws.
            num_iterations: The number of iterations of the regularization; 1 gives draws around this embedding.
            extrapolate: Whether to use the generalized jackknife, which takes about three times as long.

        Returns:
            The draws, (chain, draw, query), with the values of the conditions as coordinates of the queries.

        Raises:
            ValueError: If `values` or `query` have another shape.
            kpp.linalg.FactorizationError: If a regularized kernel matrix is singular.

        References:
            Saigo, Shao and Sitter, A repeated half-sample bootstrap and balanced repeated replications, 2001; Shao and
            Wu, A general theory for jackknife variance estimation, 1989, for estimates that are not smooth; Schucany,
            Gray and Owen, On bias reduction in estimation, 1971, for the generalized jackknife.
        """
        values = as_targets(values, len(self.points), "values")
        check_count(count(num_draws, "num_draws"), "num_draws", 2 * len(values))
        fixed, keys = self._fixed(query), jax.random.split(rng_key, num_draws)
        sample, every = self.with_iterations(num_iterations).sample, jnp.arange(len(values))

        def estimates(rows: Array) -> Array:
            return _estimates(self.chain, self._outcome(), sample, fixed, rows, values)

        halves = jax.vmap(_half, (0, None))(keys, every)
        draws = estimates(halves)
        if extrapolate:
            inner = jax.vmap(lambda key: jax.random.split(key, _INNER))(keys)
            quarters = jax.vmap(jax.vmap(_half, (0, None)))(inner, halves)
            from_quarters = estimates(quarters.reshape(num_draws * _INNER, -1)).reshape(num_draws, _INNER, -1)
            jackknives = 2.0 * draws - jnp.mean(from_quarters, axis=1)
            center = 2.0 * estimates(every[None]) - jnp.mean(draws, axis=0, keepdims=True)
            draws = jackknives + center - jnp.mean(jackknives, axis=0, keepdims=True)
        if not bool(jnp.isfinite(draws).all()):
            raise FactorizationError(f"{_SINGULAR} of {self.estimand.query()}; increase `regularization`")
        coordinates = {variable.node: ("query", np.asarray(column)) for variable, column in fixed.items()}
        return xr.DataArray(np.asarray(draws)[None], coords=coordinates, dims=("chain", "draw", "query"))

    def _outcome(self) -> frozenset[Variable]:
        return frozenset(v for v in self.chain.outcome if v.node in self.outcome and v.role == 0)

    def _fixed(self, query: Points | None) -> dict[Variable, Float[Array, " p"]]:
        """Return the columns of queries."""
        from kpp.causal.toolkit import Variable

        if query is None:
            raise ValueError(f"`query` must hold values of {list(self.conditions)}, one row each, got None")
        query = finite_arrays(query, "query")
        if query.ndim != 2 or query.shape[1] != len(self.conditions):
            raise ValueError(
                f"`query` must have one column for each of {list(self.conditions)}, got shape {query.shape}"
            )
        return {Variable(node): query[:, j] for j, node in enumerate(self.conditions)}

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[EstimandEmbedding, Any]]:
        from kpp.causal import CausalDAG

        nodes = ["u", "v", "x", "y"]
        frame = dict(zip(nodes, np.asarray(jax.random.normal(rng_key, (4, 7))), strict=True))
        napkin = CausalDAG([("u", "v"), ("v", "x"), ("x", "y")], bidirected=[("u", "x"), ("u", "y")])
        table = xr.Dataset({node: ("row", values) for node, values in frame.items()})
        embedding = cls.from_graph(napkin, table, "x", "y", regularization=0.01)
        yield embedding, jnp.array([[-0.3], [0.4], [1.0]])


def _check_names(estimand: Estimand, outcome: Sequence[str], conditions: Sequence[str]) -> None:
    """Raise ValueError if the outcomes and conditions are not those of the effect."""
    known = {"outcome": estimand.outcome, "conditions": estimand.treatment | estimand.given}
    for (argument, wanted), names in zip(known.items(), (outcome, conditions), strict=True):
        if sorted(names) != sorted(wanted):
            raise ValueError(f"`{argument}` must be those of {estimand.query()}, {sorted(wanted)}, got {list(names)}")


def _check_size(estimand: Estimand, chain: Chain, outcome: frozenset[Variable], num_rows: int) -> None:
    """Raise an error if the rows of no factor hold the outcomes, or an array of the sums does not fit into memory."""
    from kpp.causal import NotCoveredError

    text = str(estimand)
    try:
        rank = chain_rank(chain, outcome)
    except ScatteredError as error:
        raise NotCoveredError(f"no embedding covers {text}: {error}; ask for one outcome", text) from None
    what = f"{text} with n = {num_rows} rows, whose sums take arrays of n^{rank} numbers,"
    check_memory(8 * num_rows**rank, what, "use fewer rows")


def _half(rng_key: RngKey, rows: Int[Array, " m"]) -> Int[Array, " h"]:
    return jax.random.permutation(rng_key, rows)[: max(1, len(rows) // 2)]


@eqx.filter_jit
def _estimates(
    chain: Chain,
    outcome: frozenset[Variable],
    sample: ChainSample,
    fixed: Mapping[Variable, Array],
    rows: Int[Array, "s m"],
    values: Float[Array, " n"],
) -> Float[Array, "s p"]:
    """Return the expectations of a function of the outcome from each set of rows."""

    def estimate(some: Array) -> Array:
        columns = {node: column[some] for node, column in sample.columns.items()}
        part = ChainSample(columns, jnp.full(len(some), 1 / len(some)), sample.regressions)
        return values[some] @ chain_weights(chain, outcome, part, fixed)

    return jax.lax.map(estimate, rows)


def chain_regressions(
    chain: Chain,
    columns: Mapping[str, Float[Array, " n"]],
    regularization: Leaf | None,
    kernels: Mapping[str, AbstractKernel],
) -> tuple[Regression, ...]:
    """Return how each conditional law of a chain is estimated, in the order of `regressed_laws`.

    Without a regularization it is chosen for each law by leave-one-out; the law of a chain gets the value that is
    chosen for the same nodes in the observed law. Nodes without a kernel get RBFs of the median heuristic.
    """
    unknown = sorted(set(kernels) - set(columns))
    if unknown:
        raise ValueError(f"`kernels` must be for nodes of the estimand, {named(sorted(columns))}, got {named(unknown)}")
    if regularization is not None:
        regularization = parameter("regularization")(regularization)
        check_non_negative(regularization, "regularization")
    chosen: dict[tuple[tuple[str, ...], tuple[str, ...]], Leaf] = {}
    found = []
    for law in regressed_laws(chain):
        outcome, given = tuple(sorted({v.node for v in law.outcome})), tuple(v.node for v in law.given)
        own = _kernels(given, columns, kernels)
        if regularization is None and (outcome, given) not in chosen:
            chosen[outcome, given] = _chosen(outcome, given, own, columns)
        found.append(Regression(own, chosen[outcome, given] if regularization is None else regularization))
    return tuple(found)


def _kernels(
    nodes: Sequence[str], columns: Mapping[str, Array], kernels: Mapping[str, AbstractKernel]
) -> tuple[AbstractKernel, ...]:
    wide = len(nodes) ** 0.5
    return tuple(
        kernels[node] if node in kernels else RBF(median_heuristic(columns[node][:, None])[0] * wide) for node in nodes
    )


def _chosen(
    outcome: Sequence[str], given: Sequence[str], kernels: Sequence[AbstractKernel], columns: Mapping[str, Array]
) -> Float[Array, ""]:
    """Return the regularization with the smallest leave-one-out error in the observed law."""
    inputs, points = (jnp.stack([columns[node] for node in nodes], axis=1) for nodes in (given, outcome))
    output_kernel = ProductKernel(_kernels(outcome, columns, {}))
    embedding = ConditionalMeanEmbedding(
        kernel=output_kernel,
        input_kernel=ProductKernel(tuple(kernels)),
        inputs=inputs,
        points=points,
        regularization=1.0,
    )
    return select_regularization(embedding).embedding.regularization
