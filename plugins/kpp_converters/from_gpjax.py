"""The converter of GPJax: exact posteriors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array

import kpp
from kpp.typing import RngKey
from kpp_converters.gpjax_kernels import kernel_from_gpjax, value
from kpp_converters.rules import class_name, find_rule


class GPJaxConverter(kpp.AbstractConverter):
    """Exact posteriors of GPJax: ``model.condition(data)``, or the pair ``(model, data)``.

    The covariance is that of the function: GPJax adds the ``jitter`` of its prior to the variances that it returns.
    """

    def gp_posterior(self, model: Any) -> kpp.GPPosterior:
        """Return the posterior of an ExactPosterior of one output, or of a ConjugateModel and its Dataset."""
        posterior = _conditioned(model)
        if posterior.likelihood.num_outputs > 1:
            raise ValueError(f"the likelihood has {posterior.likelihood.num_outputs} outputs; only one is converted")
        prior, points = posterior.prior, jnp.asarray(posterior.train_data.X)
        kernel = kernel_from_gpjax(prior.kernel, points.shape[1])
        mean = find_rule(prior.mean_function, _MEANS, "mean function")(prior.mean_function)
        weights, factor = jnp.asarray(posterior.representer_weights[:, 0]), jnp.asarray(posterior.cholesky_factor)
        root: Array = solve_triangular(factor, jnp.eye(len(factor), dtype=factor.dtype), lower=True).T
        return kpp.GPPosterior(kpp.RKHSFunction(kernel, points, weights, mean), root)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[GPJaxConverter, Any, Any, Any, Any]]:
        """Yield a conditioned model, and a pair of a model with a sum of kernels and its data."""
        import gpjax

        points = jax.random.normal(rng_key, (12, 3))
        targets, x = jnp.sin(points[:, :1]) + points[:, 1:2], points[:4] + 0.3
        data = gpjax.Dataset(points, targets)
        rbf, periodic = gpjax.kernels.RBF(lengthscale=jnp.array([0.7, 1.3, 2.0])), gpjax.kernels.Periodic([2])
        for kernel in (rbf, rbf * periodic + gpjax.kernels.Linear(variance=0.3)):
            prior = gpjax.gps.Prior(mean_function=gpjax.mean_functions.Constant(0.4), kernel=kernel)
            model = prior * gpjax.likelihoods.Gaussian(obs_stddev=0.3)
            law = model.condition(data)(x)
            covariance = law.covariance() - prior.jitter * jnp.eye(len(x))
            yield cls(), model.condition(data) if kernel is rbf else (model, data), x, law.mean, covariance


def _conditioned(model: Any) -> Any:
    """Return the ExactPosterior of what a user gives, or raise TypeError."""
    if type(model) is tuple and len(model) == 2 and class_name(model[0]) == "gpjax.ConjugateModel":
        return model[0].condition(model[1])
    name = class_name(model)
    if name == "gpjax.ConjugateModel":
        raise TypeError("a ConjugateModel of GPJax holds no data: give `model.condition(data)`, or `(model, data)`")
    if name != "gpjax.ExactPosterior":
        raise TypeError(
            f"a {name} is not an ExactPosterior of GPJax, or a pair (ConjugateModel, Dataset); models of approximate "
            "inference are not converted"
        )
    return model


_MEANS: dict[str, Callable[[Any], float]] = {
    "gpjax.Constant": lambda mean: value(mean.constant),
    "gpjax.Zero": lambda mean: 0.0,
}
