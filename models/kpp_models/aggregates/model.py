r"""Gaussian processes that are observed only through aggregates: the common part of these models.

A field f has a Gaussian-process prior. Each target belongs to a linear combination of the means of f over bags of
points, :math:`g_m = \sum_j A_{jm} \frac{1}{n_j} \sum_i f(x_j^i)`. Models differ in the matrix A and in the noise of the
targets. This module holds the common parts: conditioning, inducing points, likelihoods, predictions and draws.
"""

# No `from __future__ import annotations`: Equinox reads `AbstractVar` off the annotation itself.

import dataclasses
from abc import abstractmethod
from functools import partial
from typing import Any, ClassVar, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro
from jaxtyping import Array, Float, Int
from numpyro import distributions as dist

from kpp import linalg
from kpp.data.bags import Bags
from kpp.data.tables import Schema
from kpp.foundation.validation import count
from kpp.gp import (
    AbstractGPModel,
    AbstractPointwiseLikelihood,
    ConditionedGP,
    GaussianLikelihood,
    GaussianProcessMarginal,
    replace_priors,
)
from kpp.gp.toolkit import (
    FUNCTION_VALUES,
    INDUCING,
    WHITENED,
    CollapsedBound,
    ConditionedProcess,
    InducingSettings,
    LatentParts,
    check_mean_fits,
    code_columns,
    gaussian_leave_one_out,
    normal_log_density,
    observe_inducing,
    observe_sampled,
    place_inducing,
    prior_factor,
    trace_deficit,
)
from kpp.inference import Data
from kpp.inference.toolkit import Sample
from kpp.kernels import AbstractKernel, check_non_negative
from kpp.kernels.toolkit import check_positive
from kpp.priors import sample as draw_priors
from kpp.typing import Leaf, RngKey
from kpp_models.aggregates.aggregate_likelihoods import (
    Likelihood,
    aggregate_likelihood,
    as_aggregate_targets,
    check_likelihood,
)
from kpp_models.aggregates.data import (
    Sources,
    Targets,
    bags_of,
    join_exposures,
    num_sources,
    read_aggregates,
    take_bags,
)
from kpp_models.aggregates.grams import bag_grams
from kpp_models.aggregates.grams.prior import AggregatePrior, Aggregates, Basis, inverse_root
from kpp_models.aggregates.operators.conditional_mean import Places, target_places
from kpp_models.aggregates.preparation import check_noise_of_sources, fitted_kernel, is_zero

Model = TypeVar("Model", bound="AbstractAggregateModel")


class _Fields:
    """The fields of every final class, in a plain class for the sake of type checkers; see `kpp.foundation.modules`."""

    kernel: eqx.AbstractVar[AbstractKernel]
    noise_variance: eqx.AbstractVar[Leaf]
    mean: eqx.AbstractVar[Any]
    high_resolution_variance: eqx.AbstractVar[Leaf]
    degrees_of_freedom: eqx.AbstractVar[Leaf]
    inducing_points: eqx.AbstractVar[Leaf | None]
    likelihood: eqx.AbstractVar[Likelihood]
    num_inducing: eqx.AbstractVar[int | None]
    learn_inducing: eqx.AbstractVar[bool]
    bag_gram: eqx.AbstractVar[str]
    gram_size: eqx.AbstractVar[int | None]
    minibatch: eqx.AbstractVar[int | None]
    seed: eqx.AbstractVar[int]


class AbstractAggregateModel(_Fields, AbstractGPModel):
    r"""A Gaussian process observed through linear combinations of bag means.

    .. math:: f \sim GP(m, k), \qquad g = A^\top \bar f, \quad \bar f_j = \tfrac{1}{n_j} \textstyle\sum_i f(x_j^i)

    Subclasses have the fields above and define the noise of the targets by `target_noise`. By default there is one
    target per bag; a subclass with other aggregates sets `mixes_bags` and defines `operator` and `prepare`. In these
    methods, as in every method that takes the data but no draw, all priors have been replaced by numbers.

    Under the Gaussian likelihood all latent values are integrated out. Otherwise, and with a `minibatch`, the values at
    the inducing points are sites of the model, and the targets are independent given them.
    """

    #: Whether a target may depend on several bags. If not, a step with a minibatch reads the bags of its targets only.
    mixes_bags: ClassVar[bool] = False

    def __check_init__(self) -> None:
        check_non_negative(self.noise_variance, "noise_variance")
        check_non_negative(self.high_resolution_variance, "high_resolution_variance")
        check_positive(self.degrees_of_freedom, "degrees_of_freedom", infinity_allowed=False)
        check_likelihood(self.likelihood)
        if self.num_inducing is not None:
            count(self.num_inducing, "num_inducing")
        if self.learn_inducing and self.inducing is None:
            raise ValueError("`learn_inducing` needs `num_inducing` or `inducing_points`, got neither")
        bag_grams.read_gram(self.bag_gram, self.gram_size, self.seed)
        if self.minibatch is not None:
            count(self.minibatch, "minibatch")
            if self.inducing is None:
                raise ValueError(
                    f"`minibatch` must be None unless the model has inducing points, got {self.minibatch}; give "
                    "`num_inducing`"
                )

    def prepare(
        self: Model, x: Sources, y: Targets, *, exposure: Targets | None = None
    ) -> tuple[Model, dict[str, Any], Schema]:
        """Read bags and one target per bag.

        Args:
            x: `kpp.Bags`, or a list of them, one per source; or points, (n, d), each of which is a bag.
            y: z, one target per bag in the order of the bags, (N,); a list if `x` is one.
            exposure: The exposure of each target, as for `CMP`, (N,).

        Returns:
            The model with names of features resolved, the data, and the schema of the points.

        Raises:
            ValueError: If the data are invalid; the message names the argument.
        """
        changes, data, bags = self._read(x, y, exposure=exposure, matched=True)
        return dataclasses.replace(self, **changes), data, Schema(bags.feature_names)

    def _read(
        self,
        x: Sources,
        y: Targets,
        covariates: Targets | None = None,
        *,
        exposure: Targets | None = None,
        matched: bool = False,
    ) -> tuple[dict[str, Any], dict[str, Any], Bags]:
        """Read bags and targets; return the fields that change, with inducing points placed, the data and all bags."""
        data, bags = read_aggregates(x, y, covariates, matched=matched)
        check_mean_fits(self.mean, bags.points)
        check_noise_of_sources(self.noise_variance, num_sources(data))
        data["y"], data["exposure"] = as_aggregate_targets(self.likelihood, data["y"], join_exposures(exposure))
        changes: dict[str, Any] = {"kernel": fitted_kernel(self.kernel, bags.feature_names, bags.points, "kernel", "x")}
        data["coincidence"] = None if is_zero(self.high_resolution_variance) else bags.coincidence()
        data["inducing"], data["offsets"] = None, None
        if self.inducing is not None:
            placed = place_inducing(self.inducing, bags.points, code_columns(changes["kernel"], bags.points))
            changes |= {"inducing_points": placed, "num_inducing": None}
            per_step = None if self.mixes_bags else self.minibatch
            data["inducing"] = bag_grams.gram_data(self.approximation, bags, per_step)
            data["offsets"] = None if per_step is None else bag_grams.point_offsets(bags)
        return changes, data, bags

    def operator(self, data: Data, at: Places | None = None) -> Float[Array, "N M"]:
        """Return the matrix A at the places of the targets, or at others; by default the identity.

        Args:
            data: The data.
            at: The places; None for the places of the targets.

        Returns:
            The weights of the bag means, (N, M).

        Raises:
            TypeError: If the model has no aggregates other than the bags themselves.
        """
        if at is not None:
            raise TypeError(f"{type(self).__name__} has no aggregates other than its bags; kpp_models.CMP has others")
        return jnp.eye(data["sizes"].shape[0], dtype=data["x"].dtype)

    @abstractmethod
    def target_noise(self, data: Data) -> Float[Array, " M"]:
        """Return the variance of the noise of every target, (M,)."""

    @property
    def place_variance(self) -> Leaf:
        """The variance of the values at single points around the field, for a model without priors."""
        return self.high_resolution_variance

    def residual_covariance(self, data: Data, first: Places, second: Places) -> Float[Array, "M1 M2"] | None:
        """Return the covariance of the aggregates beyond that of f, or None if there is none."""
        return None

    @property
    def inducing(self) -> InducingSettings | None:
        """The settings of the inducing points; None if there are none."""
        if self.num_inducing is None and self.inducing_points is None:
            return None
        return InducingSettings(self.inducing_points, self.num_inducing, self.learn_inducing, self.seed)

    @property
    def collapsed(self) -> bool:
        """Whether all latent values are integrated out in closed form, which needs all targets at once."""
        return self.likelihood == "gaussian" and self.minibatch is None

    @property
    def approximation(self) -> bag_grams.BagGram:
        """How the Gram matrix of the bags is computed; only models with inducing points approximate it."""
        if self.inducing is None:
            return bag_grams.BagGram()
        return bag_grams.read_gram(self.bag_gram, self.gram_size, self.seed)

    def numpyro_model(
        self,
        x: Float[Array, "n d"],
        bag_of: Int[Array, " n"],
        sizes: Int[Array, " N"],
        covariates: Float[Array, "N dy"] | None,
        source: Int[Array, " N"],
        target_covariates: Float[Array, "M dy"] | None,
        target_source: Int[Array, " M"],
        exposure: Float[Array, " M"] | None,
        coincidence: Float[Array, "N N"] | None,
        inducing: dict[str, Array] | None,
        offsets: Int[Array, " c"] | None,
        y: Float[Array, " M"] | None = None,
    ) -> None:
        r"""The NumPyro model; its arguments are the data that `prepare` returns.

        Args:
            x: The points of all bags, (n, d).
            bag_of: The bag of each point, (n,), not decreasing.
            sizes: The sizes of the bags, (N,).
            covariates: The covariates of the bags, (N, dy), or None.
            source: The source of each bag, (N,).
            target_covariates: The covariates of the targets, (M, dy), or None.
            target_source: The source of each target, (M,).
            exposure: The scale of each target (see the likelihoods), (M,), or None.
            coincidence: The probabilities that points of two bags are the same (`kpp.Bags.coincidence`), (N, N), or
                None.
            inducing: The arrays for the approximation of the bags' Gram matrix, or None.
            offsets: The numbers below the size of the largest bag, (c,), if a step reads some bags only; or None.
            y: The targets, (M,), or None to draw them.
        """
        data: dict[str, Any] = {"x": x, "bag_of": bag_of, "sizes": sizes, "covariates": covariates, "source": source}
        data |= {"target_covariates": target_covariates, "target_source": target_source, "exposure": exposure}
        data |= {"coincidence": coincidence, "inducing": inducing, "offsets": offsets}
        model = replace_priors(self, draw_priors)
        if model.collapsed:
            numpyro.sample("y", model._marginal(data), obs=y)
        elif model.inducing is None:  # the whitened aggregates are sampled
            at, explained, rest = model._covariance(model._prior(data), data)
            factor = prior_factor(explained + rest)
            observe_sampled(model._observation(data), lambda white: at.mean + factor @ white, at.mean.shape, y)
        else:  # the whitened field at the inducing points is sampled, and the rest is integrated out
            num_targets, shape = target_source.shape[0], jnp.shape(model.inducing.points)[:1]
            parts = partial(model._given_inducing, data)
            observe_inducing(model._observation(data), parts, shape, num_targets, y, model.minibatch)

    def posterior(self, sample: Sample, data: Data) -> ConditionedProcess:
        """Return the field conditioned on the data, under one draw.

        The likelihood of new observations of the field is the variation of places around it; the likelihood of the
        targets enters through what the field is conditioned on.
        """
        model = self.at(sample)
        support, root, white = model._condition(data, sample)
        noise = GaussianLikelihood(data["y"], model.place_variance)
        return ConditionedGP(model.kernel, support, root @ white, lambda k: root.T @ k, noise, model.mean)

    def replicate(self, rng_key: RngKey, sample: Sample, data: Data) -> dict[str, Array]:
        """Draw new targets at the places of the observed targets, independently; see `AbstractModel.replicate`."""
        model = self.at(sample)
        mean, variance = model._target_moments(data, sample)
        latent_key, noise_key = jax.random.split(rng_key)
        g = mean + jnp.sqrt(variance) * jax.random.normal(latent_key, mean.shape, mean.dtype)
        return {"y": model._observation(data).draw_observed(noise_key, g).astype(mean.dtype)}

    def log_likelihood(self, sample: Sample, data: Data) -> dict[str, Array]:
        r"""Return the log density of every target; see `AbstractModel.log_likelihood`.

        Under a Gaussian likelihood it is leave-one-out, :math:`\log p(z_m \mid z_{-m})`; with inducing points this is
        an approximation, in which they represent the prior. Under other likelihoods, and with a minibatch, it is
        conditional on the draw of the latent values.
        """
        model = self.at(sample)
        if model.collapsed:
            prior = model._prior(data)
            at, explained, rest = model._covariance(prior, data)
            mean, variance = gaussian_leave_one_out(data["y"] - at.mean, explained + rest)
            variance = variance + jnp.maximum(jnp.diagonal(prior.deficit(at, at)), 0.0)  # not explained by w
            return {"y": normal_log_density(data["y"] - at.mean, mean, variance)}
        mean, variance = model._target_moments(data, sample)
        return {"y": model._observation(data).observe(data["y"]).marginal_log_density(mean, variance)}

    def latent_values(self, sample: Sample, data: Data) -> dict[str, Array]:
        return {FUNCTION_VALUES: self.at(sample)._target_moments(data, sample)[0]} if WHITENED in sample else {}

    def site_dims(self, data: Data) -> dict[str, tuple[str, ...]]:
        names = {WHITENED: ("coordinate",), INDUCING: ("coordinate",)}
        return names | {"inducing_points": ("inducing_point", "feature")}  # a site only if they are learned

    def aggregate_moments(
        self, sample: Sample, data: Data, at: Places, x: Float[Array, "p d"] | None = None
    ) -> dict[str, Array]:
        r"""Return the posterior of the aggregates at some places, under one draw.

        .. math:: E[g(y) \mid z] = \nu(y) + q(y)^\top C^{-1} (z - \nu), \qquad
            \mathrm{cov} = A_y^\top G A_{y'} - q(y)^\top C^{-1} q(y')

        Args:
            sample: One draw.
            data: The data.
            at: p places.
            x: Points of the field for the covariances with it, or None.

        Returns:
            ``mean`` (p,), ``latent_covariance`` (p, p), and ``field_covariance`` (points, p) if `x` is given.
        """
        model = self.at(sample)
        prior = model._prior(data)
        here = prior.aggregates(model.operator(data, at))
        root, white, projections = model._project(prior, data, sample, here, at)
        covariance = prior.covariance(here, here) + prior.deficit(here, here)
        covariance = covariance + model._other_covariance(prior, data, (here, at), (here, at))
        mean = here.mean + projections.T @ white  # nu + q^T C^-1 (z - nu)
        result = {"mean": mean, "latent_covariance": covariance - projections.T @ projections}
        if x is not None:
            cross = prior.bags.sections(model.kernel, x).T @ here.weights
            result["field_covariance"] = cross - prior.sections(x).T @ (root @ projections)
        return result

    def _prior(self, data: Data) -> AggregatePrior:
        bags = bags_of(data)
        points = bags.points
        mean = self.mean(points) if callable(self.mean) else jnp.full(points.shape[0], self.mean, dtype=points.dtype)
        bag_means = bags.means(mean)
        noise = None if data["coincidence"] is None else self.high_resolution_variance * data["coincidence"]
        inducing_points = None if self.inducing is None else self.inducing.points
        gram, basis = _over_bags(self.approximation, self.kernel, bags, inducing_points, data["inducing"])
        return AggregatePrior(self.kernel, bags, bag_means, gram, noise, basis)

    def _other_covariance(
        self, prior: AggregatePrior, data: Data, first: tuple[Aggregates, Places], second: tuple[Aggregates, Places]
    ) -> Float[Array, "M1 M2"]:
        """Return the covariance of aggregates that comes neither from f nor from the noise of the targets."""
        noise = prior.noise_covariance(first[0], second[0])
        residual = self.residual_covariance(data, first[1], second[1])
        return noise if residual is None else noise + residual

    def _covariance(self, prior: AggregatePrior, data: Data) -> tuple[Aggregates, Array, Array]:
        """Return the targets' aggregates, their covariance due to f, and the rest of their covariance."""
        targets = prior.aggregates(self.operator(data)), target_places(data)
        rest = self._other_covariance(prior, data, targets, targets)
        if self.collapsed:
            rest = linalg.add_diagonal(rest, self.target_noise(data))
        return targets[0], prior.covariance(targets[0], targets[0]), rest

    def _marginal(self, data: Data) -> dist.Distribution:
        prior = self._prior(data)
        at, explained, rest = self._covariance(prior, data)
        if at.low_rank is None:
            return GaussianProcessMarginal(at.mean, explained + rest, 0.0)
        whole = at.weights.T @ prior.gram @ at.weights  # Titsias 2009, equation 9: the bound needs its trace
        return CollapsedBound(at.mean, at.low_rank, rest, trace_deficit(rest, whole, at.low_rank))

    def _observation(self, data: Data) -> AbstractPointwiseLikelihood:
        """Return the likelihood of the targets, without the targets."""
        noise = self.target_noise(data)
        if self.likelihood == "gaussian" and not self.collapsed:
            noise = noise + self._independent_noise(data)
        return aggregate_likelihood(self.likelihood, data["exposure"], noise, self.degrees_of_freedom)

    def _independent_noise(self, data: Data) -> Float[Array, " M"] | float:
        """Return the variances of what the aggregates have beyond f: high-resolution noise, and that of the operator.

        Minibatches cannot hold its correlations between targets, which are left out.
        """
        places, noise = target_places(data), 0.0
        if data["coincidence"] is not None:
            weights = self.operator(data)
            noise = self.high_resolution_variance * jnp.sum(weights * (data["coincidence"] @ weights), axis=0)
        residual = self.residual_covariance(data, places, places)
        return noise if residual is None else noise + jnp.maximum(jnp.diagonal(residual), 0.0)

    def _given_inducing(self, data: Data, rows: Int[Array, " b"]) -> LatentParts:
        """Return the parts of the aggregates of some targets, given the field at the inducing points."""
        places = jax.tree.map(lambda part: part[rows], target_places(data))
        if data["offsets"] is not None:
            prior = self._prior(take_bags(data, rows))
            at = prior.aggregates(jnp.eye(prior.gram.shape[0], rows.shape[0], dtype=prior.gram.dtype))
        else:
            prior = self._prior(data)
            at = prior.aggregates(self.operator(data, places) if self.mixes_bags else self.operator(data)[:, rows])
        assert at.low_rank is not None  # only called with inducing points
        variance = prior.unexplained(at)
        if self.likelihood != "gaussian":  # the Gaussian likelihood counts these as noise
            residual = self.residual_covariance(data, places, places)
            variance = variance + prior.noise_variances(at) + (0.0 if residual is None else jnp.diagonal(residual))
        return LatentParts(at.mean, at.low_rank.T, jnp.maximum(variance, 0.0))

    def _moments_given_inducing(self, data: Data, white: Float[Array, " w"]) -> tuple[Array, Array]:
        """Return mean and variance of the aggregates of all targets, given the whitened field at inducing points."""

        def moments(rows: Array) -> tuple[Array, Array]:
            center, features, rest, _ = self._given_inducing(data, rows)
            return jnp.asarray(center) + features @ white, rest

        count = data["target_source"].shape[0]
        if data["offsets"] is None:
            return moments(jnp.arange(count))
        assert self.minibatch is not None  # offsets are there only with a minibatch
        size = min(self.minibatch, count)
        # The last block is filled up with the last target.
        blocks = jnp.minimum(jnp.arange(-(-count // size) * size), count - 1).reshape(-1, size)
        mean, variance = jax.lax.map(moments, blocks)
        return mean.ravel()[:count], variance.ravel()[:count]

    def _target_moments(self, data: Data, sample: Sample) -> tuple[Array, Array]:
        """Return mean and variance of the aggregates at the targets, given the data and one draw."""
        if not self.collapsed and self.inducing is not None:
            return self._moments_given_inducing(data, sample[INDUCING])
        prior = self._prior(data)
        at, explained, rest = self._covariance(prior, data)
        if not self.collapsed:
            return at.mean + prior_factor(explained + rest) @ sample[WHITENED], jnp.zeros_like(at.mean)
        factor = linalg.cholesky(explained + rest, what="the covariance matrix of `y`")
        latent = linalg.add_diagonal(explained + rest, -self.target_noise(data))  # of aggregates, not of targets
        projections = linalg.solve_lower(factor, latent)
        variance = jnp.diagonal(latent + prior.deficit(at, at)) - jnp.sum(projections**2, axis=0)
        mean = at.mean + projections.T @ linalg.solve_lower(factor, data["y"] - at.mean)
        return mean, jnp.maximum(variance, 0.0)

    def _condition(self, data: Data, sample: Sample) -> tuple[Any, Array, Array]:
        """Return the conditioning of f: the support, the root of the projections, and the whitened values."""
        if not self.collapsed and self.inducing is not None:
            points = self.inducing.points
            return points, inverse_root(prior_factor(self.kernel.gram(points))), sample[INDUCING]
        prior = self._prior(data)
        at, factor, white = self._whiten(prior, data, sample)
        return prior.support, prior.root_of_aggregates(at, factor), white

    def _whiten(self, prior: AggregatePrior, data: Data, sample: Sample) -> tuple[Aggregates, Array, Array]:
        """Return the aggregates conditioned on, the factor of their covariance, and their whitened values."""
        at, explained, rest = self._covariance(prior, data)
        if not self.collapsed:
            return at, prior_factor(explained + rest), sample[WHITENED]
        factor = linalg.cholesky(explained + rest, what="the covariance matrix of `y`")
        return at, factor, linalg.solve_lower(factor, data["y"] - at.mean)

    def _project(
        self, prior: AggregatePrior, data: Data, sample: Sample, here: Aggregates, at: Places
    ) -> tuple[Array, Array, Float[Array, "q p"]]:
        """Return the whitened values that f is conditioned on, and the projections of other aggregates on them."""
        if not self.collapsed and prior.basis is not None:
            assert here.low_rank is not None  # as always with a basis
            return inverse_root(prior.basis.factor), sample[INDUCING], here.low_rank
        targets, factor, white = self._whiten(prior, data, sample)
        other = self._other_covariance(prior, data, (targets, target_places(data)), (here, at))
        cross = prior.covariance(targets, here) + other
        return prior.root_of_aggregates(targets, factor), white, linalg.solve_lower(factor, cross)


@eqx.filter_jit  # if inference runs a model without compiling it, this part is still compiled as a whole and only once
def _over_bags(
    approximation: bag_grams.BagGram,
    kernel: AbstractKernel,
    bags: Bags,
    inducing_points: Float[Array, "w d"] | None,
    arrays: dict[str, Array] | None,
) -> tuple[Float[Array, "N N"], Basis | None]:
    """Return the Gram matrix of the bags, and the kernel means of the inducing points over the bags, if any."""
    basis = None if inducing_points is None else Basis.build(kernel, inducing_points, bags)
    return bag_grams.approximate_gram(approximation, kernel, bags, arrays, basis), basis
