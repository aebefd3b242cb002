"""The kernels and the regularization of the conditional laws of a chain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.embeddings.identified.chain_weights import Regression
from kpp.embeddings.identified.chain_wiring import regressed_laws
from kpp.embeddings.means.conditional import ConditionalMeanEmbedding
from kpp.embeddings.means.regularization import select_regularization
from kpp.foundation.wording import named
from kpp.kernels import RBF, AbstractKernel, ProductKernel, check_non_negative, median_heuristic, parameter
from kpp.typing import Leaf

if TYPE_CHECKING:
    from kpp.causal.toolkit import Chain


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
