"""The converter of tinygp: conditioned Gaussian processes, and kernels as kpp kernels."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

import kpp
from kpp import kernels
from kpp.gp.toolkit import PriorMean, posterior_by_root
from kpp.kernels import AbstractKernel
from kpp.typing import RngKey
from kpp_converters.rules import class_name, find_rule

# One factor per feature: tinygp scales points by them before they reach a kernel.
Units = Float[Array, " d"]


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
        return posterior_by_root(kpp.RKHSFunction(kernel, points, mean.alpha) + _prior_mean(mean), root)

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


def _prior_mean(mean: Any) -> PriorMean:
    """Return the prior mean that a conditioned mean adds: a number, or a function of points."""
    prior = mean.mean_function
    if not mean.include_mean or prior is None:
        return 0.0
    if class_name(prior) == "tinygp.Mean" and prior.func is None:
        return prior.value
    take = operator.itemgetter((slice(None), 0) if mean.X.ndim == 1 else slice(None))
    return eqx.Partial(lambda prior, x: jax.vmap(prior)(take(x)), prior)


def kernel_from_tinygp(kernel: Any, num_features: int = 1) -> AbstractKernel:
    r"""Convert a kernel of tinygp of d features.

    Args:
        kernel: A kernel of ``tinygp.kernels``: Exp, ExpSquared, Matern32, Matern52, RationalQuadratic, ExpSineSquared
            (of one feature), Constant, DotProduct, Polynomial, sums and products of them, the transforms Linear,
            Cholesky and Subspace, and the quasiseparable Exp, Matern32, Matern52, Scale, Sum and Product; or what
            `kernel_to_tinygp` returns. With the L1 distance of several features only Exp has a counterpart.
        num_features: d, the number of columns of the points; 1 also for points that are numbers.

    Returns:
        The kernel of points (d,), with the same values at any two points.

    Raises:
        ValueError: If a part has no exact counterpart.
    """
    return _convert(kernel, jnp.ones(num_features))


def _convert(kernel: Any, units: Units) -> AbstractKernel:
    """Convert a kernel whose points have been multiplied by `units`."""
    name = f"{type(kernel).__module__.removeprefix('tinygp.')}.{type(kernel).__name__}"
    return find_rule(kernel, _RULES, "kernel", name)(kernel, units)


def _lengthscale(scale: Any, units: Units) -> Any:
    """Return the lengthscales in units of the points, one number for one feature."""
    lengthscale = jnp.abs(scale / units)  # only its square, or its absolute value, enters a distance
    return lengthscale[0] if lengthscale.shape == (1,) else lengthscale


def _radial(cls: Callable[..., AbstractKernel], *further: str) -> Callable[[Any, Units], AbstractKernel]:
    """Return the rule of a kernel with lengthscales and further numbers by name."""

    def convert(kernel: Any, units: Units) -> AbstractKernel:
        _check_euclidean(kernel, units)
        return cls(lengthscale=_lengthscale(kernel.scale, units), **{name: getattr(kernel, name) for name in further})

    return convert


def _check_euclidean(kernel: Any, units: Units) -> None:
    """Check that the distance is Euclidean, or that there is one feature, of which both distances are the same."""
    distance = type(kernel.distance).__name__
    if distance not in ("L1Distance", "L2Distance") or (distance == "L1Distance" and units.size > 1):
        raise ValueError(
            f"the kernel {type(kernel).__name__} with {distance} of {units.size} features has no exact counterpart in "
            "kpp; give it `distance=tinygp.kernels.distance.L2Distance()`"
        )


def _exponential(kernel: Any, units: Units) -> AbstractKernel:
    if type(kernel.distance).__name__ == "L1Distance" and units.size > 1:
        parts = tuple(kernels.Matern12(lengthscale=jnp.abs(kernel.scale / unit)) for unit in units)
        return kernels.ProductKernel(parts)
    return _radial(kernels.Matern12)(kernel, units)


def _periodic(kernel: Any, units: Units) -> AbstractKernel:
    if units.size > 1:
        raise ValueError(
            f"ExpSineSquared of {units.size} features takes the sine of their distance, which is not a kernel; write a "
            "product of one ExpSineSquared for each feature, by tinygp.transforms.Subspace"
        )
    _check_euclidean(kernel, units)
    # tinygp: exp(-gamma sin^2(pi r)); here exp(-2 sin^2(pi r) / l^2).
    return kernels.Periodic(lengthscale=jnp.sqrt(2.0 / kernel.gamma), period=_lengthscale(kernel.scale, units))


def _polynomial(kernel: Any, units: Units) -> AbstractKernel:
    if kernel.order != int(kernel.order) or kernel.order < 1:
        raise ValueError(f"Polynomial has an exact counterpart for a whole `order` of at least 1, got {kernel.order}")
    lengthscale, offset = _lengthscale(kernel.scale, units), jnp.square(kernel.sigma)
    return kernels.Polynomial(degree=int(kernel.order), lengthscale=lengthscale, offset=offset)


def _product(kernel: Any, units: Units) -> AbstractKernel:
    """A constant factor, which is how tinygp writes a variance, becomes the variance of a multiple."""
    parts = [_convert(part, units) for part in (kernel.kernel1, kernel.kernel2)]
    for constant, other in (parts, parts[::-1]):
        if isinstance(constant, kernels.Constant):
            return kernels.Scaled(other, constant.variance)
    return kernels.Product(tuple(parts))


def _sum(kernel: Any, units: Units) -> AbstractKernel:
    return kernels.Sum((_convert(kernel.kernel1, units), _convert(kernel.kernel2, units)))


def _linear_transform(kernel: Any, units: Units) -> AbstractKernel:
    scale = jnp.asarray(kernel.scale)
    return _convert(kernel.kernel, units * scale) if scale.ndim < 2 else _by_matrix(kernel.kernel, scale * units[None])


def _cholesky_transform(kernel: Any, units: Units) -> AbstractKernel:
    factor = jnp.asarray(kernel.factor)
    if factor.ndim < 2:
        return _convert(kernel.kernel, units / factor)
    return _by_matrix(kernel.kernel, solve_triangular(factor, jnp.diag(units), lower=True))  # L^-1 U


def _by_matrix(kernel: Any, matrix: Float[Array, "q d"]) -> AbstractKernel:
    """Return the kernel of A x, which does not treat features separately."""
    return kernels.DeepKernel(_convert(kernel, jnp.ones(matrix.shape[0])), kernels.ApplyFn(jnp.dot, matrix))


def _subspace(kernel: Any, units: Units) -> AbstractKernel:
    axis = np.asarray(kernel.axis) if isinstance(kernel.axis, (tuple, list)) else kernel.axis
    columns = np.atleast_1d(np.arange(units.size)[axis])
    return _convert(kernel.kernel, units[columns]).on(tuple(columns.tolist()))


def _quasiseparable(cls: Callable[..., AbstractKernel]) -> Callable[[Any, Units], AbstractKernel]:
    def convert(kernel: Any, units: Units) -> AbstractKernel:
        return cls(lengthscale=_lengthscale(kernel.scale, units), variance=jnp.square(kernel.sigma))

    return convert


def _own(kernel: Any, units: Units) -> AbstractKernel:
    """A kpp kernel inside a tree of tinygp; its points are those of tinygp."""
    if (units == 1).all():
        return kernel.kernel
    return kernels.DeepKernel(kernel.kernel, kernels.ApplyFn(jnp.multiply, units))


#: By module below `tinygp` and class: kernels.base.Sum and kernels.quasisep.Sum are different classes.
_RULES: dict[str, Callable[[Any, Units], AbstractKernel]] = {
    "kernels.base.Constant": lambda kernel, units: kernels.Constant(kernel.value),
    "kernels.base.DotProduct": lambda kernel, units: kernels.Linear(variance=jnp.square(units)),  # (u x)^T (u x')
    "kernels.base.Polynomial": _polynomial,
    "kernels.base.Product": _product,
    "kernels.base.Sum": _sum,
    "kernels.quasisep.Exp": _quasiseparable(kernels.Matern12),
    "kernels.quasisep.Matern32": _quasiseparable(kernels.Matern32),
    "kernels.quasisep.Matern52": _quasiseparable(kernels.Matern52),
    "kernels.quasisep.Product": _product,
    "kernels.quasisep.Scale": lambda kernel, units: kernels.Scaled(_convert(kernel.kernel, units), kernel.scale),
    "kernels.quasisep.Sum": _sum,
    "kernels.stationary.Exp": _exponential,
    "kernels.stationary.ExpSineSquared": _periodic,
    "kernels.stationary.ExpSquared": _radial(kernels.RBF),
    "kernels.stationary.Matern32": _radial(kernels.Matern32),
    "kernels.stationary.Matern52": _radial(kernels.Matern52),
    "kernels.stationary.RationalQuadratic": _radial(kernels.RationalQuadratic, "alpha"),
    "kpp_converters.to_tinygp.KppKernel": _own,
    "transforms.Cholesky": _cholesky_transform,
    "transforms.Linear": _linear_transform,
    "transforms.Subspace": _subspace,
}
