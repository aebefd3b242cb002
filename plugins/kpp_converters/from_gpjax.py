"""The converter of GPJax: exact and sparse posteriors, and kernels as kpp kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array

import kpp
from kpp import kernels
from kpp.gp.toolkit import PriorMean, evaluate_mean, posterior_by_root
from kpp.kernels import AbstractKernel
from kpp.linalg import cho_inverse
from kpp.typing import RngKey
from kpp_converters.rules import class_name, find_rule
from kpp_converters.sparse import sparse_posterior, whiten


class GPJaxConverter(kpp.AbstractConverter):
    """Posteriors of GPJax, exact or at inducing points: ``model.condition(data)``, or the pair ``(model, data)``.

    The covariance is that of the function: GPJax adds the ``jitter`` of its prior to the variances that it returns.
    """

    def gp_posterior(self, model: Any) -> kpp.GPPosterior:
        """Return the posterior of an ExactPosterior, SparsePosterior or CollapsedPosterior of one output."""
        posterior = _conditioned(model)
        exact = class_name(posterior) == "gpjax.ExactPosterior"
        joint = posterior if exact else posterior.model
        prior, num_outputs = joint.prior, getattr(joint.likelihood, "num_outputs", 1)
        if num_outputs > 1:
            raise ValueError(f"the likelihood has {num_outputs} outputs; only one is converted")
        points = jnp.asarray(posterior.train_data.X if exact else posterior.inducing_inputs)
        kernel = kernel_from_gpjax(prior.kernel, points.shape[1])
        given = prior.mean_function
        mean = _MEANS.get(class_name(given), _mean_function)(given)
        if not exact:
            moments = _whitened(posterior, evaluate_mean(mean, points))
            return sparse_posterior(kernel, points, posterior.cholesky_kzz, *moments, mean)
        weights, factor = jnp.asarray(posterior.representer_weights[:, 0]), jnp.asarray(posterior.cholesky_factor)
        root: Array = solve_triangular(factor, jnp.eye(len(factor), dtype=factor.dtype), lower=True).T
        return posterior_by_root(kpp.RKHSFunction(kernel, points, weights) + mean, root)

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
    """Return the posterior of what a user gives, or raise TypeError."""
    if type(model) is tuple and len(model) == 2 and class_name(model[0]) in _UNCONDITIONED:
        return model[0].condition(model[1])
    name = class_name(model)
    if name in _UNCONDITIONED:
        raise TypeError(f"a {name} of GPJax holds no data: give `model.condition(data)`, or `(model, data)`")
    if name not in _POSTERIORS:
        raise TypeError(
            f"a {name} is not {', '.join(_POSTERIORS)} of GPJax, or a pair of a Dataset and what conditions on it: "
            f"{', '.join(_UNCONDITIONED)}"
        )
    return model


_POSTERIORS = ("gpjax.ExactPosterior", "gpjax.SparsePosterior", "gpjax.CollapsedPosterior")
_UNCONDITIONED = (
    "gpjax.ConjugateModel",
    "gpjax.CollapsedVariationalGaussian",
    "gpjax.DualVariationalGaussian",
    "gpjax.VariationalGaussian",
    "gpjax.WhitenedVariationalGaussian",
)


def _whitened(posterior: Any, prior: Any) -> tuple[Any, Any]:
    """Return mean (w,) and covariance (w, w) of the whitened values at the inducing points."""
    factor = jnp.asarray(posterior.cholesky_kzz)
    if class_name(posterior) == "gpjax.CollapsedPosterior":
        inverse = cho_inverse(jnp.asarray(posterior.cholesky_b))
        return factor.T @ posterior.representer_weights[:, 0], inverse
    mean, root = jnp.asarray(posterior.variational_mean[:, 0]), jnp.asarray(posterior.variational_root)
    covariance = root @ root.T
    return (mean, covariance) if posterior.whitened else whiten(factor, prior, mean, covariance)


def _mean_function(mean: Any) -> PriorMean:
    return eqx.Partial(lambda given, x: given(x)[:, 0], mean)


#: The means that are constant; any other one is a function of JAX.
_MEANS: dict[str, Callable[[Any], float]] = {
    "gpjax.Constant": lambda mean: value(mean.constant),
    "gpjax.Zero": lambda mean: 0.0,
}


def kernel_from_gpjax(kernel: Any, num_features: int) -> AbstractKernel:
    r"""Convert a kernel of GPJax of d features.

    GPJax's lengthscale of `Periodic` is half of kpp's.

    Args:
        kernel: An RBF, Matern12, Matern32, Matern52, RationalQuadratic, Periodic, Linear, Polynomial or Constant
            kernel, or sums and products of them; each with ``active_dims``.
        num_features: d.

    Returns:
        The kernel, with the same values at any two points.

    Raises:
        ValueError: If a part has no exact counterpart.
    """
    rule = find_rule(kernel, _RULES, "kernel")
    engine = type(kernel.compute_engine).__name__
    if engine != "DenseKernelComputation":
        raise ValueError(
            f"the kernel {type(kernel).__name__} has the compute engine {engine}, whose matrices are not those of the "
            "kernel function; only DenseKernelComputation has an exact counterpart"
        )
    columns = np.arange(num_features)[kernel.active_dims]
    if len(columns) == num_features and (columns == np.arange(num_features)).all():
        return rule(kernel, num_features)
    return rule(kernel, len(columns)).on(tuple(columns.tolist()))


def value(parameter: Any) -> Any:
    """Return the value of a parameter in its own range: an array (d,), or a number if it has one element."""
    from gpjax.parameters import val

    array = np.asarray(val(parameter), dtype=float)
    return array.item() if array.size == 1 else array


def _stationary(
    cls: Callable[..., AbstractKernel], *further: str, factor: float = 1.0
) -> Callable[..., AbstractKernel]:
    """Return the rule of a kernel with a lengthscale, times a factor, a variance, and further numbers by name."""

    def convert(kernel: Any, num_features: int) -> AbstractKernel:
        numbers = {name: value(getattr(kernel, name)) for name in ("variance", *further)}
        return cls(lengthscale=factor * value(kernel.lengthscale), **numbers)

    return convert


def _polynomial(kernel: Any, num_features: int) -> AbstractKernel:
    lengthscale = 1.0 / np.sqrt(value(kernel.variance))
    return kernels.Polynomial(degree=int(kernel.degree), lengthscale=lengthscale, offset=value(kernel.shift))


def _parts(kernel: Any, num_features: int) -> tuple[AbstractKernel, ...]:
    return tuple(kernel_from_gpjax(part, num_features) for part in kernel.kernels)


_RULES: dict[str, Callable[[Any, int], AbstractKernel]] = {
    "gpjax.Constant": lambda kernel, d: kernels.Constant(value(kernel.constant)),
    "gpjax.Linear": lambda kernel, d: kernels.Linear(variance=np.full(d, value(kernel.variance))),
    "gpjax.Matern12": _stationary(kernels.Matern12),
    "gpjax.Matern32": _stationary(kernels.Matern32),
    "gpjax.Matern52": _stationary(kernels.Matern52),
    "gpjax.Periodic": _stationary(kernels.Periodic, "period", factor=2.0),
    "gpjax.Polynomial": _polynomial,
    "gpjax.ProductKernel": lambda kernel, d: kernels.Product(_parts(kernel, d)),
    "gpjax.RBF": _stationary(kernels.RBF),
    "gpjax.RationalQuadratic": _stationary(kernels.RationalQuadratic, "alpha"),
    "gpjax.SumKernel": lambda kernel, d: kernels.Sum(_parts(kernel, d)),
}
