"""The converter of tinygp: conditioned Gaussian processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

import kpp
from kpp.typing import RngKey
from kpp_converters.rules import class_name
from kpp_converters.tinygp_kernels import kernel_from_tinygp


class TinygpConverter(kpp.AbstractConverter):
    """Conditioned Gaussian processes of tinygp: ``gp.condition(y, x).gp``, at any points x.

    The covariance is that of the function: tinygp adds a small ``diag`` to the covariance at its points x. Points that
    are numbers, (n,), become points (n, 1).
    """

    def gp_posterior(self, model: Any) -> kpp.GPPosterior:
        """Return the posterior of a conditioned GaussianProcess, or of a ConditionResult."""
        process = _process(model)
        law, mean = process.kernel, process.mean_function
        points = _points(law.X)
        kernel = kernel_from_tinygp(law.kernel, points.shape[1])
        identity = jnp.eye(points.shape[0], dtype=mean.alpha.dtype)
        root: Float[Array, "n n"] = law.solver.solve_triangular(identity).T  # also quasiseparable solvers have it
        return kpp.GPPosterior(kpp.RKHSFunction(kernel, points, mean.alpha, _constant_mean(mean)), root)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[TinygpConverter, Any, Any, Any, Any]]:
        """Yield a process of three features, and one of numbers with a quasiseparable solver."""
        import tinygp

        points = jax.random.normal(rng_key, (12, 3))
        y, x = jnp.sin(points[:, 0]) + points[:, 1], points[:4] + 0.3
        anisotropic = tinygp.transforms.Linear(jnp.array([1.5, 0.7, 0.5]), tinygp.kernels.ExpSquared())
        yield cls(), *_example(1.7 * anisotropic + tinygp.kernels.Constant(0.4), points, y, x)
        times, later = jnp.sort(points[:, 0]), jnp.sort(x[:, 0])
        yield cls(), *_example(tinygp.kernels.quasisep.Matern32(0.8, sigma=1.3), times, y, later)


@eqx.filter_jit  # operation by operation it takes seconds to compile
def _example(kernel: Any, points: Array, y: Array, x: Array) -> tuple[Any, Array, Array, Array]:
    import tinygp

    noise, mean = jnp.asarray(0.1), jnp.asarray(0.7)
    process = tinygp.GaussianProcess(kernel, points, diag=noise, mean=mean).condition(y, x).gp
    return process, x if x.ndim == 2 else x[:, None], process.mean, process.kernel(x, x)


def _process(model: Any) -> Any:
    """Return the process, conditioned exactly once, of what a user gives."""
    process = model.gp if class_name(model) == "tinygp.ConditionResult" else model
    if class_name(process) != "tinygp.GaussianProcess":
        raise TypeError(f"a {class_name(process)} is not a GaussianProcess of tinygp")
    if class_name(process.kernel) != "tinygp.Conditioned":
        raise ValueError("the GaussianProcess is not conditioned on data: give `gp.condition(y, x_test).gp`")
    if class_name(process.kernel.kernel) == "tinygp.Conditioned":
        raise ValueError("the GaussianProcess is conditioned twice: condition the prior on all data together")
    return process


def _points(x: Any) -> Float[Array, "n d"]:
    """Return the points of a process, which may be numbers, as rows."""
    if not eqx.is_array(x) or x.ndim > 2:
        raise ValueError(f"the points of the GaussianProcess must be an array (n,) or (n, d), got {type(x).__name__}")
    return x[:, None] if x.ndim == 1 else jnp.asarray(x)


def _constant_mean(mean: Any) -> Any:
    """Return the constant prior mean that a conditioned mean adds."""
    prior = mean.mean_function
    if not mean.include_mean or prior is None:
        return 0.0
    if class_name(prior) != "tinygp.Mean" or prior.func is not None:
        raise ValueError(
            "the `mean` of the GaussianProcess is not a constant, so that the posterior mean is not a function of the "
            "RKHS: subtract it from y, and condition with `include_mean=False`"
        )
    return prior.value
