r"""Conditional mean processes: a field recovered from aggregates that are linked to it only by covariates."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float
from numpyro import distributions as dist

from kpp.data.bags import Bags
from kpp.data.tables import Schema
from kpp.foundation.validation import is_concrete, one_of
from kpp.gp import scalar_field
from kpp.gp.toolkit import mean_field
from kpp.kernels import RBF, AbstractKernel, check_non_negative
from kpp.kernels.toolkit import check_positive, point_rows
from kpp.typing import Leaf, RngKey
from kpp_models.aggregates.aggregate_likelihoods import Likelihood
from kpp_models.aggregates.data import Sources, Targets, bags_of, num_sources
from kpp_models.aggregates.model import AbstractAggregateModel
from kpp_models.aggregates.operators.conditional_mean import ESTIMATORS, ConditionalMeanOperator, Places, target_places
from kpp_models.aggregates.preparation import as_noise_variances, example_bags, fitted_kernel


class CMP(AbstractAggregateModel):
    r"""The conditional mean process: a Gaussian process f observed through its conditional expectations.

    .. math::

        f \sim GP(\mu, k), \qquad g(y) = E[f(X) \mid Y = y], \qquad z_j = g(\tilde y_j) + \epsilon_j

    There are two data sets: D1, bags of points x, each with a covariate y, from which the conditional mean operator is
    estimated with the kernel l of covariates (module `conditional_mean`); D2, targets z at covariates :math:`\tilde y`.
    Given both, f is a Gaussian process again, the deconditional posterior,

    .. math::

        E[f(x) \mid z] = \mu(x) + k(x, X) A (Q + \sigma^2 I)^{-1} (z - \nu),
        \qquad Q = A^\top K_{XX} A, \quad \nu = A^\top \mu(X)

    with :math:`A = (L_{YY} + N \lambda I)^{-1} L_{Y \tilde Y}` and, for bags, the bag means in place of :math:`k(x, X)`
    and :math:`K_{XX}`. `predict` gives the field; `kpp_models.aggregate_posterior` gives g. With ``num_inducing`` the
    model is the variational one (VarCMP): the field is summarized by its values at inducing points, whose optimal law
    is known in closed form under the Gaussian likelihood.

    Args:
        kernel: k, the kernel of the field.
        bag_kernel: l, the kernel of the covariates, or a tuple of one kernel per source of aggregates.
        noise_variance: :math:`\sigma^2`, in squared units of z: a number, a prior, or one number per source, (S,).
            Likelihoods without noise ignore it; under "student_t" its root is the scale.
        regularization: :math:`\lambda`, positive; multiplied by the number of rows that the operator is estimated from.
        mean: :math:`\mu`: a number, a prior, or a callable module from points (n, d) to (n,).
        high_resolution_variance: :math:`\varsigma^2`, the variance of white noise on the field.
        operator_variance: :math:`\tau^2`, the scale of the uncertainty of the estimated operator; 0 treats the operator
            as known.
        degrees_of_freedom: The degrees of freedom of the likelihood "student_t".
        inducing_points: w, (w, d), or a prior for them; None lets `num_inducing` choose.
        covariate_names: The names of the covariates' columns, which `fit` sets.
        estimator: "exact", in which every point has the covariate of its bag, or "shrinkage" (S-CMP), in which the mean
            embedding of each bag is one row.
        likelihood: "gaussian", "poisson", "bernoulli", "binomial", "student_t", or a callable from (g, exposure) to a
            NumPyro distribution.
        num_inducing: How many inducing points k-means chooses among the points; None for none.
        learn_inducing: Whether inducing points are learned, with a prior centered at those chosen.
        bag_gram: How the Gram matrix of the bags is computed if there are inducing points: "exact", "sampled" (a few
            points of each bag) or "fourier" (random features).
        gram_size: The number of points per bag, or of frequencies, in that approximation; None for a default.
        minibatch: The number of targets per step of stochastic inference, with inducing points; None for all. With it
            the values at the inducing points are sites under the Gaussian likelihood, too; `kpp.NaturalGradient` finds
            their law. Noise that is correlated between targets (`high_resolution_variance`, `operator_variance`) then
            counts as independent.
        seed: The seed of the random steps before inference: k-means, sampled points, frequencies.

    Raises:
        ValueError: If a number is out of range or a name unknown.

    Example:
        >>> kernels = RBF(1.0), RBF(1.0)
        >>> model = kpp_models.CMP(*kernels, noise_variance=0.01, regularization=0.001)
        >>> model.fit(jax.random.key(0), bags, means).predict(new)["mean"].values.round(1)
        array([[[1.]]])

    References:
        Chau, Bouabid, Sejdinovic, Deconditional downscaling with Gaussian processes, 2021, propositions 3.2 to 3.5;
        Titsias, Variational learning of inducing variables in sparse Gaussian processes, 2009, equation 9.
    """

    mixes_bags: ClassVar[bool] = True

    kernel: AbstractKernel
    bag_kernel: AbstractKernel | tuple[AbstractKernel, ...]
    noise_variance: Leaf = eqx.field(converter=as_noise_variances)
    regularization: Leaf = scalar_field("regularization")
    mean: Any = mean_field(default=0.0)
    high_resolution_variance: Leaf = scalar_field("high_resolution_variance", default=0.0)
    operator_variance: Leaf = scalar_field("operator_variance", default=0.0)
    degrees_of_freedom: Leaf = scalar_field("degrees_of_freedom", default=4.0)
    inducing_points: Leaf | None = eqx.field(converter=point_rows("inducing_points"), default=None)
    covariate_names: tuple[str, ...] = eqx.field(static=True, converter=tuple, default=())
    estimator: str = eqx.field(static=True, default="exact")
    likelihood: Likelihood = eqx.field(static=True, default="gaussian")
    num_inducing: int | None = eqx.field(static=True, default=None)
    learn_inducing: bool = eqx.field(static=True, default=False)
    bag_gram: str = eqx.field(static=True, default="exact")
    gram_size: int | None = eqx.field(static=True, default=None)
    minibatch: int | None = eqx.field(static=True, default=None)
    seed: int = eqx.field(static=True, default=0)

    def __check_init__(self) -> None:
        check_positive(self.regularization, "regularization", infinity_allowed=False)
        check_non_negative(self.operator_variance, "operator_variance")
        one_of(self.estimator, "estimator", ESTIMATORS)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[CMP, Bags, Array]]:
        bags, targets = example_bags(rng_key)
        prior = dist.LogNormal(0.0, 0.5)
        yield cls(RBF(prior.expand([2]), prior), RBF(prior), dist.HalfNormal(1.0), 0.01), bags, targets
        kernel, bag_kernel = RBF(1.0, prior), RBF(1.0)
        options = (0.01, dist.Normal(0.0, 1.0), 0.1)
        model = cls(kernel, bag_kernel, prior, *options, estimator="shrinkage", num_inducing=4)
        yield model, bags, targets + 2.0

    def prepare(
        self, x: Sources, y: Targets, *, covariates: Targets | None = None, exposure: Targets | None = None
    ) -> tuple[CMP, dict[str, Any], Schema]:
        r"""Read the data.

        Args:
            x: D1: `kpp.Bags` with covariates, or a list of them, one per source; or points, (n, d), each of which is a
                bag and its own covariate.
            y: z of D2, (M,), or a list, one entry per source.
            covariates: :math:`\tilde y` of D2, (M, dy), or a list; None if there is one target per bag (matched data).
            exposure: The scale of each target: the expected count at g = 0 of "poisson", the trials of "binomial";
                (M,).

        Returns:
            The model with inducing points and names of features resolved, the data, and the schema of the points.

        Raises:
            ValueError: If the data are invalid; the message names the argument.
        """
        changes, data, bags = self._read(x, y, covariates, exposure=exposure)
        kernels = self.bag_kernel
        if isinstance(kernels, (tuple, list)) and len(kernels) != num_sources(data):
            raise ValueError(
                f"`bag_kernel` must be one kernel, or one for each of the {num_sources(data)} sources, "
                f"got {len(kernels)}"
            )

        def fitted(kernel: AbstractKernel) -> AbstractKernel:
            return fitted_kernel(kernel, bags.covariate_names, data["covariates"], "bag_kernel", "covariates")

        changes["bag_kernel"] = tuple(map(fitted, kernels)) if isinstance(kernels, (tuple, list)) else fitted(kernels)
        changes["covariate_names"] = bags.covariate_names
        return dataclasses.replace(self, **changes), data, Schema(bags.feature_names)

    def operator(self, data: Mapping[str, Any], at: Places | None = None) -> Float[Array, "N M"]:
        """Return the estimated conditional mean operator; see `ConditionalMeanOperator.weights`."""
        return self._conditional_mean(data).weights(target_places(data) if at is None else at)

    def target_noise(self, data: Mapping[str, Any]) -> Float[Array, " M"]:
        """Return the noise variance of every target, which depends on its source."""
        noise = jnp.broadcast_to(self.noise_variance, jnp.shape(self.noise_variance) or (1,))
        source = data["target_source"] if noise.shape[0] > 1 else jnp.zeros_like(data["target_source"])
        return noise[source]

    def residual_covariance(self, data: Mapping[str, Any], first: Places, second: Places) -> Array | None:
        r"""Return the covariance due to the operator, :math:`\tau^2 (l - l_Y (L + \lambda D)^{-1} l_Y^\top)`."""
        if is_concrete(self.operator_variance) and float(self.operator_variance) == 0.0:
            return None
        return self.operator_variance * self._conditional_mean(data).residual_covariance(first, second)

    def _conditional_mean(self, data: Mapping[str, Any]) -> ConditionalMeanOperator:
        kernels = self.bag_kernel if isinstance(self.bag_kernel, tuple) else (self.bag_kernel,)
        return ConditionalMeanOperator(kernels, self.regularization, self.estimator, bags_of(data), data["source"])
