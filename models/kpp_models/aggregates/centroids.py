r"""Gaussian-process regression of bag targets on the centroids of the bags, which ignores the spread within bags."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float
from numpyro import distributions as dist

from kpp.data.bags import Bags
from kpp.data.tables import Schema
from kpp.gp import scalar_field
from kpp.kernels import RBF, AbstractKernel
from kpp.kernels.toolkit import point_rows
from kpp.typing import Leaf, RngKey
from kpp_models.aggregates.aggregate_likelihoods import Likelihood
from kpp_models.aggregates.data import Sources, Targets, as_bags
from kpp_models.aggregates.model import AbstractAggregateModel
from kpp_models.aggregates.preparation import example_bags, mean_field


class CentroidGP(AbstractAggregateModel):
    r"""A Gaussian process that treats each bag as one point, its centroid.

    .. math:: f \sim GP(m, k), \qquad z_j = f(\bar x_j) + \epsilon_j, \quad \bar x_j = \tfrac{1}{n_j} \sum_i x_j^i

    It is the baseline for models of aggregates. With `num_inducing` it is the variational Gaussian process on
    centroids; under the Gaussian likelihood with the collapsed bound of Titsias.

    Args:
        kernel: k, with numbers or priors as leaves.
        noise_variance: :math:`\sigma^2`, the variance of each :math:`\epsilon_j`, in squared units of z; a number or a
            prior. Likelihoods without noise ignore it; under "student_t" its root is the scale.
        mean: m: a number, a prior, or a callable module from points (n, d) to (n,).
        high_resolution_variance: The variance of white noise on the field.
        degrees_of_freedom: The degrees of freedom of the likelihood "student_t".
        inducing_points: w, (w, d), or a prior for them.
        likelihood, minibatch: As for `CMP`.
        num_inducing: How many inducing points k-means chooses among the centroids; None for none.
        learn_inducing: Whether inducing points are learned, with a prior centered at those chosen.
        seed: The seed of k-means.

    Raises:
        ValueError: If a number is out of range or a name unknown.

    References:
        Titsias, Variational learning of inducing variables in sparse Gaussian processes, 2009, equation 9.
    """

    kernel: AbstractKernel
    noise_variance: Leaf = scalar_field("noise_variance")
    mean: Any = mean_field(default=0.0)
    high_resolution_variance: Leaf = scalar_field("high_resolution_variance", default=0.0)
    degrees_of_freedom: Leaf = scalar_field("degrees_of_freedom", default=4.0)
    inducing_points: Leaf | None = eqx.field(converter=point_rows("inducing_points"), default=None)
    likelihood: Likelihood = eqx.field(static=True, default="gaussian")
    num_inducing: int | None = eqx.field(static=True, default=None)
    learn_inducing: bool = eqx.field(static=True, default=False)
    minibatch: int | None = eqx.field(static=True, default=None)
    seed: int = eqx.field(static=True, default=0)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[CentroidGP, Bags, Array]]:
        """Yield models with bags and targets for the conformance suite."""
        bags, targets = example_bags(rng_key)
        prior = dist.LogNormal(0.0, 0.5)
        yield cls(RBF(prior), prior, dist.Normal(0.0, 1.0), num_inducing=3), bags, targets + 2.0

    def prepare(
        self, x: Sources, y: Targets, *, exposure: Targets | None = None
    ) -> tuple[CentroidGP, dict[str, Any], Schema]:
        """Read bags and one target per bag, with each bag replaced by its centroid; see `BaggGP.prepare`."""
        sources = [_centroids(bags) for bags in as_bags(x)]
        several = isinstance(x, (list, tuple)) and any(isinstance(part, Bags) for part in x)
        changes, data, bags = self._read(sources if several else sources[0], y, exposure=exposure, matched=True)
        return dataclasses.replace(self, **changes), data, Schema(bags.feature_names)

    @property  # type: ignore[misc]  # Equinox lets a property stand for an AbstractVar
    def bag_gram(self) -> str:  # type: ignore[override]
        """The Gram matrix of the bags, which are single points, is exact."""
        return "exact"

    @property  # type: ignore[misc]
    def gram_size(self) -> None:  # type: ignore[override]
        """An exact Gram matrix needs no size."""

    def target_noise(self, data: Mapping[str, Any]) -> Float[Array, " N"]:
        """Return the variance of the noise of every target."""
        return jnp.broadcast_to(self.noise_variance, data["sizes"].shape)


def _centroids(bags: Bags) -> Bags:
    """Return bags of one point each, the centroids, with the covariates and names of the bags."""
    numbers = jnp.arange(bags.num_bags)
    names = (bags.feature_names, bags.covariate_names)
    return Bags(bags.centroids(), numbers, jnp.ones_like(bags.sizes), bags.covariates, *names)
