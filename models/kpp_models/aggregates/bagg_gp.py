r"""Gaussian processes observed through bag averages, one target per bag, and the baseline on the centroids of bags."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float
from numpyro import distributions as dist

from kpp.data.bags import Bags
from kpp.data.tables import Schema
from kpp.foundation.validation import one_of
from kpp.kernels import RBF
from kpp.typing import Leaf, RngKey
from kpp_models.aggregates.data import Data, Sources, Targets, as_bags
from kpp_models.aggregates.model import AbstractAggregateModel
from kpp_models.aggregates.preparation import AbstractFieldOfBags, example_bags

NOISES = ("per_point", "per_bag")


class _AbstractBagg(AbstractFieldOfBags):
    """The noise of `BaggGP` and `VBagg`, which differ only in whether inducing points are required."""

    noise: str = eqx.field(static=True, default="per_point")
    bag_gram: str = eqx.field(static=True, default="exact", kw_only=True)
    gram_size: int | None = eqx.field(static=True, default=None, kw_only=True)

    def __check_init__(self) -> None:
        one_of(self.noise, "noise", NOISES)

    @property
    def place_variance(self) -> Leaf:
        """The variance of the values at single points around the field; Gaussian noise per point is a part of it."""
        per_point = self.noise == "per_point" and self.likelihood == "gaussian"
        return self.high_resolution_variance + (self.noise_variance if per_point else 0.0)

    def target_noise(self, data: Data) -> Float[Array, " N"]:
        """Return the variance of the noise of every target."""
        sizes = data["sizes"].astype(data["x"].dtype)  # the mean of n_j errors has the variance sigma^2 / n_j
        return self.noise_variance / (sizes if self.noise == "per_point" else jnp.ones_like(sizes))


class BaggGP(_AbstractBagg, AbstractAggregateModel):
    r"""A Gaussian process observed through its means over bags (Bagg-GP).

    .. math:: f \sim GP(m, k), \qquad z_j = \frac{1}{n_j} \sum_i f(x_j^i) + \epsilon_j

    There is one target per bag. The covariance of bags is the mean covariance of their points, :math:`\mathrm{cov}(z_j,
    z_{j'}) = \frac{1}{n_j n_{j'}} \sum_{i, i'} k(x_j^i, x_{j'}^{i'})` for :math:`j \ne j'`; covariates of bags are not
    used. On matched data it is the limit of `CMP` for a regularization of zero and a bag kernel that is zero between
    different bags. With a likelihood other than the Gaussian, the latent means of the bags are sampled together with
    the hyperparameters.

    Without inducing points the model is exact. With them the field is represented by its values at w points. Under the
    Gaussian likelihood the optimal distribution of these values is known in closed form, and the evidence is replaced
    by the collapsed bound. Under other likelihoods, such as the Poisson counts of the published model, the values are
    sampled or learned.

    Args:
        kernel: k, with numbers or priors as leaves.
        noise_variance: :math:`\sigma^2`, in squared units of z, a number or a prior. Likelihoods without noise ignore
            it; under "student_t" the root of a target's noise is the scale.
        mean: m: a number, a prior, or a callable module from points (n, d) to (n,).
        high_resolution_variance: :math:`\varsigma^2`, the variance of white noise on the field.
        degrees_of_freedom: The degrees of freedom of the likelihood "student_t".
        noise: Whether :math:`\epsilon_j` has the variance :math:`\sigma^2 / n_j` ("per_point", as published) or
            :math:`\sigma^2` ("per_bag"). Noise per point is a variation of the places around the field, and Gaussian
            predictions of single points contain it; noise per bag is an error of measurement.
        likelihood, gram_size, minibatch: As for `CMP`.
        inducing_points: w, (w, d), or a prior for them; None to let `num_inducing` choose.
        num_inducing: How many inducing points k-means chooses among the points; None for none.
        learn_inducing: Whether inducing points are learned, with a prior centered at those chosen.
        bag_gram: "exact", "sampled" or "fourier", as for `CMP`.
        seed: The seed of k-means, of the sampled points and of the frequencies.

    Raises:
        ValueError: If a number is out of range or a name unknown.

    Example:
        >>> model = kpp_models.BaggGP(RBF(1.0), 0.01)
        >>> model.fit(jax.random.key(0), bags, means).predict(new)["mean"].values.round(1)
        array([[[1.]]])

    References:
        Law et al., Variational learning on aggregate outputs with Gaussian processes, 2018, sections 3.1 and 3.2.
    """

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[BaggGP, Bags, Array]]:
        bags, targets = example_bags(rng_key)
        prior = dist.LogNormal(0.0, 0.5)
        yield cls(RBF(prior.expand([2])), prior, dist.Normal(0.0, 1.0), 0.1), bags, targets + 2.0


class VBagg(_AbstractBagg, AbstractAggregateModel):
    r"""The Gaussian process of `BaggGP` with inducing points, which are required (VBagg).

    Args:
        kernel, noise_variance, mean, high_resolution_variance, degrees_of_freedom, noise, likelihood: As for `BaggGP`.
        inducing_points: w, (w, d), or a prior for them; None to let `num_inducing` choose.
        num_inducing: How many inducing points k-means chooses among the points.
        learn_inducing, bag_gram, gram_size, minibatch, seed: As for `BaggGP`.

    Raises:
        ValueError: If a number is out of range, a name unknown, or there are no inducing points.

    References:
        Law et al., Variational learning on aggregate outputs with Gaussian processes, 2018, section 3.2.
    """

    def __check_init__(self) -> None:
        if self.inducing is None:
            raise ValueError("`num_inducing` or `inducing_points` must be given, got neither; BaggGP needs none")

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[VBagg, Bags, Array]]:
        bags, targets = example_bags(rng_key)
        prior = dist.LogNormal(0.0, 0.5)
        yield cls(RBF(prior), prior, 2.0, 0.1, num_inducing=6, noise="per_bag"), bags, targets + 2.0


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

    def target_noise(self, data: Data) -> Float[Array, " N"]:
        return jnp.broadcast_to(self.noise_variance, data["sizes"].shape)


def _centroids(bags: Bags) -> Bags:
    """Return bags of one point each, the centroids, with the covariates and names of the bags."""
    numbers = jnp.arange(bags.num_bags)
    names = (bags.feature_names, bags.covariate_names)
    return Bags(bags.centroids(), numbers, jnp.ones_like(bags.sizes), bags.covariates, *names)
