"""Mechanisms that are linear in the direct causes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float
from numpyro import distributions as dist

from kpp.gp import AbstractPointwiseLikelihood, scalar_field
from kpp.gp.toolkit import LatentObservations
from kpp.typing import Leaf
from kpp_models.mechanisms.mechanism import (
    AbstractMechanism,
    Causes,
    Training,
    leaf_by_name,
    likelihood_field,
    scalars_field,
)


class LinearMechanism(AbstractMechanism):
    r"""A generalized linear model of a variable given its parents and hidden common causes.

    .. math:: y_i \sim p(y_i \mid f_i), \qquad f_i = a + \sum_j b_j\, x_{ij} + \sum_k l_k\, u_{ik}

    The default priors are weakly informative for columns that are standardized; otherwise give your own.

    Args:
        coefficients: b, in units of f per unit of each parent: a number or a prior for all parents, or a mapping from
            each parent to its own. The sites are ``y.coefficients.x``.
        intercept: a, in units of f; a number or a prior.
        likelihood: p, whose parameters may be priors, as in ``GaussianLikelihood(noise_variance=prior)``,
            ``BernoulliLikelihood()`` for labels 0 and 1, or ``PoissonLikelihood()`` for counts.
        loadings: l, as `coefficients`, for each hidden common cause, which is standard normal. By default they are
            standard normal, and half-normal for the variable that comes first in the graph, because the sign of a
            hidden cause is arbitrary. The sites are ``y.loadings.x <-> y``.

    Raises:
        ValueError: If a value is not a finite number or a prior for one.
    """

    coefficients: Any = scalars_field("coefficients", default_factory=lambda: dist.Normal(0.0, 1.0))
    intercept: Leaf = scalar_field("intercept", default_factory=lambda: dist.Normal(0.0, 1.0))
    likelihood: AbstractPointwiseLikelihood = likelihood_field()
    loadings: Any = scalars_field("loadings", default=None)

    def resolve(
        self, node: str, parents: tuple[str, ...], loadings: Mapping[str, dist.Distribution]
    ) -> LinearMechanism:
        return dataclasses.replace(
            self,
            coefficients=leaf_by_name(self.coefficients, parents, "coefficients"),
            loadings=leaf_by_name(loadings if self.loadings is None else self.loadings, tuple(loadings), "loadings"),
        )

    def law(self, inputs: Causes, training: Training | None = None) -> dist.Distribution:
        """Return the law of independent rows; see `AbstractMechanism.law`."""
        return LatentObservations(self.likelihood, self.latent(inputs))

    def latent(
        self, inputs: Causes, white: Float[Array, " n"] | None = None, training: Training | None = None
    ) -> Float[Array, " n"]:
        """Return the linear predictor, which is known; see `AbstractMechanism.latent`."""
        terms = [self.coefficients[name] * values for name, values in inputs.parents.items()]
        terms += [self.loadings[name] * values for name, values in inputs.hidden.items()]
        return sum(terms, jnp.broadcast_to(self.intercept, (inputs.num_rows,)))
