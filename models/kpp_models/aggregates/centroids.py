r"""Gaussian-process regression of bag targets on the centroids of the bags, which ignores the spread within bags."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float
from numpyro import distributions as dist

from kpp.data.bags import Bags
from kpp.data.tables import Schema
from kpp.kernels import RBF
from kpp.typing import RngKey
from kpp_models.aggregates.data import Sources, Targets, as_bags
from kpp_models.aggregates.model import AbstractAggregateModel
from kpp_models.aggregates.preparation import AbstractFieldOfBags, example_bags


class CentroidGP(AbstractFieldOfBags, AbstractAggregateModel):
    r"""A Gaussian process that treats each bag as one point, its centroid.

    .. math:: f \sim GP(m, k), \qquad z_j = f(\bar x_j) + \epsilon_j, \quad \bar x_j = \tfrac{1}{n_j} \sum_i x_j^i

    It is the baseline for models of aggregates. With `num_inducing` it is the variational Gaussian process on
    centroids; under the Gaussian likelihood with the collapsed bound of Titsias.

    Args:
        kernel: k, with numbers or priors as leaves.
        noise_variance: :math:`\sigma^2`, the variance of each :math:`\epsilon_j`, in squared units of z; a number or a
            prior. Likelihoods without noise ignore it; under "student_t" its root is the scale.
        mean, high_resolution_variance, degrees_of_freedom, likelihood, minibatch, seed: As for `BaggGP`.
        inducing_points, num_inducing, learn_inducing: As for `BaggGP`, with centroids in place of points.

    Raises:
        ValueError: If a number is out of range or a name unknown.

    References:
        Titsias, Variational learning of inducing variables in sparse Gaussian processes, 2009, equation 9.
    """

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[CentroidGP, Bags, Array]]:
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
        return jnp.broadcast_to(self.noise_variance, data["sizes"].shape)


def _centroids(bags: Bags) -> Bags:
    """Return bags of one point each, the centroids, with the covariates and names of the bags."""
    numbers = jnp.arange(bags.num_bags)
    names = (bags.feature_names, bags.covariate_names)
    return Bags(bags.centroids(), numbers, jnp.ones_like(bags.sizes), bags.covariates, *names)
