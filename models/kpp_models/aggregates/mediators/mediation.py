"""Two-step mediation: targets for bags that have none, by a regression on covariates."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.data.bags import Bags
from kpp.inference import AbstractInference
from kpp.kernels import AbstractKernel, resolve_features
from kpp.typing import Leaf, Numbers, RngKey
from kpp_models.aggregates.data import read_places
from kpp_models.tables.regression import GPRegression


def mediate(
    rng_key: RngKey,
    bags: Bags,
    covariates: Numbers,
    y: Numbers,
    bag_kernel: AbstractKernel,
    noise_variance: Leaf,
    inference: AbstractInference | None = None,
    *,
    mean: Leaf = 0.0,
) -> Float[Array, " N"]:
    r"""Return pseudo-targets of bags by Gaussian-process regression of the targets on their covariates.

    .. math::

        \tilde z_m = g(\tilde y_m) + \epsilon_m, \qquad g \sim GP(m, l), \qquad
        \hat z_j = E[g(y_j) \mid \tilde z]

    So models that need one target per bag, such as `BaggGP`, can be fitted to bags (D1) and targets (D2) that share
    only the kind of covariate. This ignores the uncertainty of :math:`\hat z_j` and the fact that g is a mean of f;
    `CMP` does not need this step.

    Args:
        rng_key: A JAX random key.
        bags: D1, N bags with covariates y.
        covariates: The covariates of the targets of D2, (M, dy), an array or a data frame.
        y: The targets of D2, (M,).
        bag_kernel: l, with numbers or priors as leaves.
        noise_variance: The variance of the noise, a number or a prior.
        inference: How hyperparameters are inferred; `kpp.NUTS()` by default.
        mean: m, a number or a prior.

    Returns:
        The pseudo-targets in the order of the bags, (N,); means over the draws of the hyperparameters.

    Raises:
        ValueError: If the bags have no covariates, or data are invalid.

    References:
        Chau, Bouabid, Sejdinovic, Deconditional downscaling with Gaussian processes, 2021, section 5.1, whose published
        code permutes the rows by a `unique()` that sorts.
    """
    if bags.covariates is None:
        raise ValueError("`bags` must have covariates, by which bags and targets are matched")
    if bags.covariate_names:
        bag_kernel = resolve_features(bag_kernel, bags.covariate_names)
    places = read_places(bags.covariate_names, bags.covariates.shape[1], covariates)
    model = GPRegression(bag_kernel, noise_variance, mean)
    fit = model.fit(rng_key, places, y, inference=inference, num_prior_samples=0)
    return jnp.asarray(fit.predict(bags.covariates)["mean"].mean(("chain", "draw")).values)
