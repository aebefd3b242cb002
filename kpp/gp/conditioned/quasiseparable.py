r"""Gaussian-process regression on one column, such as time, in linear time: by tinygp.

The kernel matrix of a Markov process at sorted times is quasiseparable: its Cholesky factor and its inverse take time
of order n. tinygp has such matrices and kernels; it is loaded on use.
"""

from __future__ import annotations

import functools
import importlib.util
import operator
import sys
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from numpyro import distributions as dist

from kpp import linalg
from kpp.foundation.distribution import extra
from kpp.functionals import GPPosterior
from kpp.functions import RKHSFunction
from kpp.gp.conditioned.process import PriorMean, evaluate_mean, posterior_by_root
from kpp.gp.fields import with_ones
from kpp.gp.laws.gaussian_laws import LatentPredictive
from kpp.gp.likelihoods.gaussian import GaussianLikelihood
from kpp.kernels import AbstractKernel, Matern12, Matern32, Matern52, Product, Scaled, Selected, Sum
from kpp.runtime.memory import check_memory
from kpp.typing import AnyArray

if TYPE_CHECKING:
    from tinygp.solvers.quasisep.core import LowerTriQSM, SymmQSM


def check_times(kernel: AbstractKernel, x: Float[Array, "n d"]) -> None:
    """Raise an error unless tinygp is there, points are a sorted column, and a kernel is quasiseparable."""
    if importlib.util.find_spec("tinygp") is None:
        raise ImportError(f"latent='quasiseparable' needs tinygp, which is an extra: {extra('tinygp')}")
    if x.shape[1] != 1:
        raise ValueError(f"`x` must have one column with latent='quasiseparable', got shape {x.shape}")
    steps = jnp.diff(x[:, 0])
    if bool(jnp.any(steps < 0)):
        raise ValueError(
            "`x` must be sorted with latent='quasiseparable', got a smaller value after row "
            f"{int(jnp.argmax(steps < 0))}: sort the rows of `x` and `y` by the column"
        )
    jax.eval_shape(lambda times: quasiseparable_matrix(with_ones(kernel, x), times), x[:, 0])


def quasiseparable_matrix(kernel: AbstractKernel, times: Float[AnyArray, " n"]) -> SymmQSM:
    """Return the matrix of a kernel at sorted times; raise TypeError if a part of it is not quasiseparable."""
    from tinygp.kernels import quasisep
    from tinygp.solvers.quasisep.core import DiagQSM, StrictLowerTriQSM, SymmQSM

    if isinstance(kernel, (Sum, Product)):
        combine = operator.add if isinstance(kernel, Sum) else operator.mul
        return functools.reduce(combine, [quasiseparable_matrix(part, times) for part in kernel.kernels])
    if isinstance(kernel, (Scaled, Selected)):
        matrix = quasiseparable_matrix(kernel.kernel, times)
        return matrix.scale(kernel.variance) if isinstance(kernel, Scaled) else matrix
    known: dict[type, Any] = {Matern12: quasisep.Exp, Matern32: quasisep.Matern32, Matern52: quasisep.Matern52}
    if isinstance(kernel, (Matern12, Matern32, Matern52)):
        return known[type(kernel)](kernel.lengthscale.reshape(())).to_symm_qsm(times).scale(kernel.variance)
    features = kernel.finite_features(times[:, None])
    if features is None:
        raise TypeError(
            f"{type(kernel).__name__} is not quasiseparable: Matern12, Matern32, Matern52 and kernels of finitely many "
            "features are, such as HilbertSpace(Periodic(...), num_basis), Linear and Constant; and sums, products and "
            "multiples of them"
        )
    one = jnp.eye(features.shape[1], dtype=features.dtype)
    # Else XLA computes products with this large constant while it compiles.
    unchanged = jax.lax.optimization_barrier(jnp.broadcast_to(one, (*features.shape, features.shape[1])))
    return SymmQSM(DiagQSM(jnp.sum(features**2, axis=1)), StrictLowerTriQSM(features, features, unchanged))


def quasiseparable_marginal(
    kernel: AbstractKernel, x: Float[Array, "n 1"], noise: AnyArray | float, mean: AnyArray | float
) -> dist.Distribution:
    r"""Return the law of observations at sorted times, :math:`y \sim N(m, K + D)`: a distribution of tinygp."""
    from tinygp import GaussianProcess
    from tinygp.solvers.quasisep.core import DiagQSM

    times, center = x[:, 0], jnp.broadcast_to(mean, x.shape[:1])
    covariance = quasiseparable_matrix(kernel, times) + DiagQSM(jnp.broadcast_to(noise, x.shape[:1]))
    process: Any = GaussianProcess
    return process(kernel, times, mean_value=center, covariance_value=covariance).numpyro_dist()


class _Joined(eqx.Module):
    """The kernel matrix K at sorted times, and the factor of B; the roots of W are 0 at times that are not observed."""

    matrix: SymmQSM
    times: Float[Array, " n"]
    roots: Float[Array, " n"]

    @property
    def factor(self) -> LowerTriQSM:
        from tinygp.solvers.quasisep.core import DiagQSM, StrictLowerTriQSM, SymmQSM

        p, q, a = self.matrix.lower
        scaled = StrictLowerTriQSM(p * self.roots[:, None], q * self.roots[:, None], a)
        return SymmQSM(DiagQSM(1 + self.matrix.diag.d * self.roots**2), scaled).cholesky()

    def solve(self, white: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return the coefficients of whitened residuals."""
        factor = self.factor
        return self.roots * factor.transpose().solve(factor.solve(white))

    def variance(self, own: SymmQSM) -> Float[Array, " n"]:
        """Return the variances at all times of a part of the function with its kernel matrix."""
        from tinygp.solvers.quasisep.core import DiagQSM, SquareQSM, StrictLowerTriQSM, StrictUpperTriQSM

        (d,), (p, q, a), roots = own.diag, own.lower, self.roots[:, None]
        lower, upper = StrictLowerTriQSM(p * roots, q, a), StrictUpperTriQSM(p, q * roots, a)
        reduction = self.factor.inv() @ SquareQSM(DiagQSM(d * self.roots), lower, upper)
        return jnp.maximum(d - reduction.gram().diag.d, 0.0)


class _Paths(eqx.Module):
    """A root of the covariance at some of the times, in the form of its product with normal numbers."""

    system: _Joined
    places: Array

    @property
    def shape(self) -> tuple[int, int]:
        return 2 * self.system.times.shape[0], self.places.shape[0]

    @property
    def dtype(self) -> Any:
        return self.system.times.dtype

    def __rmatmul__(self, normal: Float[Array, " q"]) -> Float[Array, " p"]:
        from tinygp.solvers.quasisep.core import DiagQSM

        matrix, roots = self.system.matrix, self.system.roots
        values, noise = jnp.split(normal, 2)
        nugget = linalg.max_relative_jitter(self.dtype) * jnp.mean(matrix.diag.d)
        drawn = (matrix + DiagQSM(jnp.broadcast_to(nugget, roots.shape))).cholesky() @ values
        update = matrix @ self.system.solve(roots * drawn + jnp.where(roots > 0, noise, 0.0))
        return (drawn - update)[self.places]


class QuasiseparableGP(eqx.Module):
    r"""The posterior of a regression on one column, a `kpp.gp.ConditionedProcess`.

    With the precisions W of the observations, which are 0 at the p times without one, everything follows from the
    factor of :math:`B = I + W^{1/2} K W^{1/2}` at all times. Time and memory are of order n + p.

    .. math:: f \mid y \sim GP\bigl(m + K W^{1/2} B^{-1} W^{1/2} (y - m),\; K - K W^{1/2} B^{-1} W^{1/2} K\bigr)

    Args:
        total: k.
        points: The sorted times, (n, 1).
        likelihood: The likelihood, with positive variances.
        prior_mean: m, a number, or a function from points to one number per point.
        part: A summand of k: the process is then this component of the function, without m; None for all of it.

    References:
        Foreman-Mackey, Agol, Ambikasaran and Angus, Fast and scalable Gaussian process modeling with applications to
        astronomical time series, 2017; Rasmussen and Williams (2006), equations 3.26 and 3.27.
    """

    rows_at_once: ClassVar[int] = sys.maxsize  # in `moments_in_blocks`: each block would read all observations
    at_points: ClassVar[None] = None

    total: AbstractKernel
    points: Float[Array, "n 1"]
    likelihood: GaussianLikelihood
    prior_mean: PriorMean = 0.0
    part: AbstractKernel | None = None

    @property
    def kernel(self) -> AbstractKernel:
        """The kernel of the process."""
        return self.total if self.part is None else self.part

    def held_out(self) -> tuple[Array, Array]:
        """Return the laws of leave-one-out, by the diagonal of the inverse of K + D."""
        system, residual, _ = self._at(self.points[:0])
        inverse = system.factor.inv()
        precision = system.roots**2 * (inverse.transpose() @ inverse).diag.d
        predicted = self.likelihood.y - system.solve(system.roots * residual) / precision
        return predicted, 1 / precision - system.roots**-2

    def moments(self, x: Float[AnyArray, "p 1"], *, covariance: bool = False) -> LatentPredictive:
        """Return the law of the function's values; see `ConditionedProcess.moments`."""
        system, residual, places = self._at(x)
        own = quasiseparable_matrix(self.kernel, system.times)
        center = 0.0 if self.part is not None else evaluate_mean(self.prior_mean, x)
        mean = center + (own @ system.solve(system.roots * residual))[places]
        variance, matrix = system.variance(own)[places], None
        if covariance:
            sections = system.factor.solve(system.roots[:, None] * self.kernel(system.times[:, None], x))
            matrix = self.kernel.gram(x) - sections.T @ sections
        return LatentPredictive(mean, variance, matrix)

    def joint(self, x: Float[AnyArray, "p 1"]) -> LatentPredictive:
        """Return the law with a root of its covariance."""
        if self.part is not None:
            return self.moments(x, covariance=True)
        system, _, places = self._at(x)
        return self.moments(x)._replace(root=_Paths(system, places))

    def function(self) -> RKHSFunction:
        """Return the posterior mean; see `ConditionedProcess.function`."""
        system, residual, _ = self._at(self.points[:0])
        coefficients = system.solve(system.roots * residual)
        center = 0.0 if self.part is not None else self.prior_mean
        return RKHSFunction(self.kernel, self.points, coefficients) + center

    def posterior(self) -> GPPosterior:
        """Return the law with a root of n * n numbers."""
        count = self.points.shape[0]
        advice = "`predict` and `kpp_models.components` need no matrix"
        check_memory(8 * count**2, f"The posterior of the function with n = {count} rows", advice)
        system, _, _ = self._at(self.points[:0])
        return posterior_by_root(self.function(), system.factor.solve(jnp.diag(system.roots)).T)

    def _at(self, x: Float[AnyArray, "p 1"]) -> tuple[_Joined, Array, Array]:
        """Return the system at the observed times and x, the residuals, and the places of x in it."""
        times, unseen = jnp.concatenate([self.points[:, 0], x[:, 0]]), jnp.zeros(x.shape[0], self.points.dtype)
        order = jnp.argsort(times)
        residual = self.likelihood.y - evaluate_mean(self.prior_mean, self.points)
        roots = jnp.broadcast_to(self.likelihood.variances, residual.shape) ** -0.5
        roots, residual = (jnp.concatenate([known, unseen])[order] for known in (roots, residual))
        system = _Joined(quasiseparable_matrix(self.total, times[order]), times[order], roots)
        return system, residual, jnp.argsort(order)[self.points.shape[0] :]
