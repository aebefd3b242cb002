r"""Gaussian processes whose values are averaged over bags, one target a bag: exact, and with inducing points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float
from numpyro import distributions as dist

from kpp.bags import Bags
from kpp.gp import InducingSettings, scalar_field
from kpp.kernels import RBF, AbstractKernel
from kpp.tables import Schema
from kpp.typing import Leaf, RngKey
from kpp_models.aggregates.conditional_mean import Places
from kpp_models.aggregates.model import AbstractAggregateModel
from kpp_models.aggregates.preparation import (
    check_aggregate_fields,
    example_bags,
    inducing_settings,
    mean_field,
    prepare_aggregates,
)

__all__ = ["NOISES", "BaggGP", "VBagg", "own_bag"]

NOISES = ("per_point", "per_bag")


class BaggGP(AbstractAggregateModel):
    r"""A Gaussian process seen through its means over bags (Bagg-GP), exact.

    .. math:: f \sim GP(m, k), \qquad z_j = \frac{1}{n_j} \sum_i f(x_j^i) + \epsilon_j

    One target a bag. Bags covary as their points do, :math:`\mathrm{cov}(z_j, z_{j'}) = \frac{1}{n_j n_{j'}} \sum_{i,
    i'} k(x_j^i, x_{j'}^{i'})` for :math:`j \ne j'`; nothing is known of bags but their points. It is the limit of `CMP`
    on matched data for a bag kernel that sees no likeness between bags and a regularization of zero. With a likelihood
    other than the Gaussian the latent means of the bags are drawn along.

    Args:
        kernel: k, with numbers or priors for leaves.
        noise_variance: :math:`\sigma^2`, in squared units of z, a number or a prior. Likelihoods without noise ignore
            it; under "student_t" the root of a target's noise is the scale.
        mean: m: a number, a prior, or a callable module from points (n, d) to (n,).
        high_resolution_variance: :math:`\varsigma^2`, the variance of white noise on the field.
        degrees_of_freedom: Of the likelihood "student_t".
        noise: Whether :math:`\epsilon_j` has the variance :math:`\sigma^2 / n_j` ("per_point", as published) or
            :math:`\sigma^2` ("per_bag").
        likelihood: As for `CMP`.

    Raises:
        ValueError: If a number is out of range or a name unknown.

    References:
        Law et al., Variational learning on aggregate outputs with Gaussian processes, 2018, section 3.1.
    """

    kernel: AbstractKernel
    noise_variance: Leaf = scalar_field("noise_variance")
    mean: Any = mean_field(default=0.0)
    high_resolution_variance: Leaf = scalar_field("high_resolution_variance", default=0.0)
    degrees_of_freedom: Leaf = scalar_field("degrees_of_freedom", default=4.0)
    noise: str = eqx.field(static=True, default="per_point")
    likelihood: Any = eqx.field(static=True, default="gaussian")

    def __check_init__(self) -> None:
        """Refuse numbers out of range and unknown names."""
        check_aggregate_fields(self)
        _check_noise(self.noise)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[BaggGP, Bags, Array]]:
        """Yield models with bags and targets for the conformance suite."""
        bags, targets = example_bags(rng_key)
        prior = dist.LogNormal(0.0, 0.5)
        yield cls(RBF(prior.expand([2])), prior, dist.Normal(0.0, 1.0), 0.1), bags, targets + 2.0

    def prepare(self, x: Any, y: Any, *, exposure: Any = None) -> tuple[BaggGP, dict[str, Any], Schema]:
        """Read the data.

        Args:
            x: `kpp.Bags`, or a list of them; or points, (n, d), each a bag of its own.
            y: z, one target a bag in the order of the bags, (N,); a list where `x` is one.
            exposure: What scales each target, as for `CMP`, (N,).

        Returns:
            The model with names of features resolved, the data, and the schema of the points.

        Raises:
            ValueError: If the data are unfit, naming the argument.
        """
        return prepare_aggregates(self, x, y, exposure=exposure, matched=True)

    def operator(self, data: Mapping[str, Any], at: Places | None = None) -> Float[Array, "N N"]:
        """Return the identity: every target belongs to the bag of its number."""
        return own_bag(self, data, at)

    def target_noise(self, data: Mapping[str, Any]) -> Float[Array, " N"]:
        """Return the variance of the noise of every target."""
        return _bag_noise(self, data)


class VBagg(AbstractAggregateModel):
    r"""A Gaussian process seen through its means over bags, summarised by inducing points (VBagg).

    The model of `BaggGP`. The field is known through its values at w points. Under the Gaussian likelihood their
    optimal law is had in closed form and the evidence is replaced by the collapsed bound; under others, of which the
    published model is about Poisson counts, their values are drawn or learned along.

    Args:
        kernel: k, with numbers or priors for leaves.
        noise_variance: :math:`\sigma^2`, as for `BaggGP`.
        mean: m, as for `BaggGP`.
        high_resolution_variance: :math:`\varsigma^2`, the variance of white noise on the field.
        degrees_of_freedom: Of the likelihood "student_t".
        inducing_points: w, (w, d), or a prior of them; None lets `num_inducing` choose.
        noise: "per_point" or "per_bag", as for `BaggGP`.
        likelihood: As for `CMP`.
        num_inducing: How many inducing points k-means chooses among the points.
        learn_inducing: Whether inducing points are learned, from a prior about those chosen.
        bag_gram: "exact", "sampled" or "fourier", as for `CMP`.
        gram_size: As for `CMP`.
        minibatch: As for `CMP`.
        seed: Seed of what is random before inference: k-means, sampled points, frequencies.

    Raises:
        ValueError: If a number is out of range, a name unknown, or there are no inducing points.

    References:
        Law et al., Variational learning on aggregate outputs with Gaussian processes, 2018, section 3.2.
    """

    kernel: AbstractKernel
    noise_variance: Leaf = scalar_field("noise_variance")
    mean: Any = mean_field(default=0.0)
    high_resolution_variance: Leaf = scalar_field("high_resolution_variance", default=0.0)
    degrees_of_freedom: Leaf = scalar_field("degrees_of_freedom", default=4.0)
    inducing_points: Leaf | None = None
    noise: str = eqx.field(static=True, default="per_point")
    likelihood: Any = eqx.field(static=True, default="gaussian")
    num_inducing: int | None = eqx.field(static=True, default=None)
    learn_inducing: bool = eqx.field(static=True, default=False)
    bag_gram: str = eqx.field(static=True, default="exact")
    gram_size: int | None = eqx.field(static=True, default=None)
    minibatch: int | None = eqx.field(static=True, default=None)
    seed: int = eqx.field(static=True, default=0)

    def __check_init__(self) -> None:
        """Refuse numbers out of range, unknown names, and a model without inducing points."""
        if self.inducing is None:
            raise ValueError("`num_inducing` or `inducing_points` must be given, got neither; BaggGP needs none")
        check_aggregate_fields(self)
        _check_noise(self.noise)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[VBagg, Bags, Array]]:
        """Yield models with bags and targets for the conformance suite."""
        bags, targets = example_bags(rng_key)
        prior = dist.LogNormal(0.0, 0.5)
        yield cls(RBF(prior), prior, 2.0, 0.1, num_inducing=6, noise="per_bag"), bags, targets + 2.0

    def prepare(self, x: Any, y: Any, *, exposure: Any = None) -> tuple[VBagg, dict[str, Any], Schema]:
        """Read the data; see `BaggGP.prepare`."""
        return prepare_aggregates(self, x, y, exposure=exposure, matched=True)

    @property
    def inducing(self) -> InducingSettings | None:
        """How the field is summarised by inducing points."""
        return inducing_settings(self)

    @property
    def minibatch_size(self) -> int | None:
        """How many targets each step of stochastic inference sees."""
        return self.minibatch

    def operator(self, data: Mapping[str, Any], at: Places | None = None) -> Float[Array, "N N"]:
        """Return the identity: every target belongs to the bag of its number."""
        return own_bag(self, data, at)

    def target_noise(self, data: Mapping[str, Any]) -> Float[Array, " N"]:
        """Return the variance of the noise of every target."""
        return _bag_noise(self, data)


def own_bag(model: Any, data: Mapping[str, Any], at: Places | None) -> Float[Array, "N N"]:
    """Return the identity matrix over the bags.

    Raises:
        TypeError: If places are asked for, which such a model knows nothing of.
    """
    if at is not None:
        raise TypeError(f"{type(model).__name__} knows no aggregates but those of its bags; kpp_models.CMP has others")
    return jnp.eye(data["sizes"].shape[0], dtype=data["x"].dtype)


def _bag_noise(model: BaggGP | VBagg, data: Mapping[str, Any]) -> Float[Array, " N"]:
    sizes = data["sizes"].astype(data["x"].dtype)
    return model.noise_variance / (sizes if model.noise == "per_point" else jnp.ones_like(sizes))


def _check_noise(noise: str) -> None:
    if noise not in NOISES:
        raise ValueError(f"`noise` must be one of {NOISES}, got {noise!r}")
