r"""Gaussian processes conditioned on data: the distribution of the whole function, not only its mean.

A Gaussian likelihood, or Laplace's approximation of another one, gives a posterior whose covariance is the prior
covariance minus a reduction by the data, a matrix :math:`R R^\top` between kernel sections. `GPPosterior` holds that
root and the mean, so that covariances of functionals of f, such as Shapley values, need no samples.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from kpp.foundation.arguments import guard_exports
from kpp.foundation.validation import as_finite_array, is_concrete
from kpp.functionals.law import FunctionalLaw
from kpp.functions import RKHSFunction
from kpp.typing import Numbers, Points

if TYPE_CHECKING:
    from kpp.functionals.functional import AbstractFunctional


class GPPosterior(eqx.Module):
    r"""The posterior of a function under a Gaussian process, one posterior or one for each draw of the hyperparameters.

    .. math:: f \mid D \sim GP\bigl(\mu,\; k(x, x') - k(x, X) R R^\top k(X, x')\bigr)

    k and X are the kernel and the points of the mean :math:`\mu`. Law: the covariance is positive semi-definite, that
    is :math:`R R^\top \preceq K_{XX}^{+}`. For a regression with noise variance :math:`\sigma^2`, :math:`R R^\top =
    (K_{XX} + \sigma^2 I)^{-1}`.

    A function may have several outputs, such as the classes of a classifier. Then :math:`\mathrm{Cov}(f_p(x), f_q(x'))`
    is the covariance above times :math:`B_{pq}`.

    The roots of all draws take ``draws * n * r`` numbers, 3 GB for 2000 draws and n = 442: if that is too much, use
    fewer draws, or the posterior at the mean of the hyperparameters.

    Args:
        mean: The posterior mean; possibly with draws, and with an axis of P outputs.
        root: R, of shape (*batch_shape, n, r), with a row for each of the mean's points.
        output_covariance: B, of shape (*batch_shape, P, P); None if the mean has no axis of outputs.

    Raises:
        ValueError: If the root or the covariance of the outputs does not fit the mean.

    Example:
        >>> posterior.mean(x[:2]).round(2), posterior.variance(x[:2]).round(3)
        (Array([[[0.1 , 0.65]]], dtype=float64), Array([[[0.004, 0.003]]], dtype=float64))

    References:
        Rasmussen and Williams (2006), equations 2.24 and 3.24.
    """

    mean: RKHSFunction
    root: Float[Array, "*batch n r"] = eqx.field(converter=jnp.asarray)
    output_covariance: Float[Array, "*batch P P"] | None = None

    def __check_init__(self) -> None:
        outputs, given = 2 * self.mean.output_shape, self.output_covariance
        if (None if given is None else given.shape) != ((*self.batch_shape, *outputs) if outputs else None):
            raise ValueError(
                f"`output_covariance` must have shape (*batch_shape, P, P) for P outputs of `mean`, {outputs[:1]}, and "
                f"be None for a function without an axis of outputs, got {None if given is None else given.shape}"
            )
        expected = (*self.batch_shape, self.mean.num_points)
        if self.root.ndim != len(expected) + 1 or self.root.shape[:-1] != expected:
            raise ValueError(
                f"`root` must have shape (*batch_shape, n, r) with (*batch_shape, n) = {expected}, got shape "
                f"{self.root.shape}"
            )

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The shape of the draws: () for one posterior, (chain, draw) for one per draw of the hyperparameters."""
        return self.mean.batch_shape

    def of(self, functional: AbstractFunctional) -> FunctionalLaw:
        r"""Return the joint law of linear functionals of f, given the hyperparameters.

        .. math:: L f \sim N\bigl(L \mu,\; L k L^\top - (L k_X R)(L k_X R)^\top\bigr)

        Args:
            functional: The functional L, of q numbers.

        Returns:
            Means (*batch_shape, q) and covariances (*batch_shape, q, q). With P outputs they are q P numbers, the
            outputs of the first number first.

        Raises:
            ValueError: If the numbers are not defined for the functions of the kernel.
        """
        functional.check_space(self.mean)
        # Where the functional holds the points of the posterior, XLA computes equal parts of the law once.
        equal = jax.tree.map(lambda leaf: _is_equal(leaf, self.mean.points), functional)
        return _law(self, eqx.filter(functional, equal, inverse=True), equal)

    def combine(self, weights: Numbers) -> GPPosterior:
        r"""Return the posterior of a linear combination of the outputs, such as one output, or a contrast of two.

        .. math:: w^\top f \mid D \sim GP\bigl(w^\top \mu,\; w^\top B w\, (k(x, x') - k(x, X) R R^\top k(X, x'))\bigr)

        Args:
            weights: w, (P,).

        Raises:
            ValueError: If the function has no axis of outputs, the number of weights is not that of the outputs, or the
                combination has no variance.
        """
        w = jnp.asarray(as_finite_array(weights, "weights"), self.root.dtype)
        if self.output_covariance is None or w.shape != self.mean.output_shape:
            raise ValueError(f"`weights` must be one number per output, {self.mean.output_shape}, got shape {w.shape}")
        size = jnp.einsum("p,...pq,q->...", w, self.output_covariance, w)
        if is_concrete(size) and not np.all(np.asarray(size) > 0):
            raise ValueError(f"`weights` must give a combination of positive variance, got {w}")
        mean, coefficients = self.mean, self.mean.coefficients @ w / size[..., None]
        function = RKHSFunction(mean.kernel * size, mean.points, coefficients, mean.intercept @ w, self.batch_shape)
        return GPPosterior(function, self.root / jnp.sqrt(size)[..., None, None])

    @property
    def shared(self) -> GPPosterior:
        """The posterior of all covariances: that of the first output, with 1 for B, and without an added function."""
        mean = self.mean.spanned
        if self.output_covariance is not None:
            first = mean.coefficients[..., 0], mean.intercept[..., 0]
            mean = RKHSFunction(mean.kernel, mean.points, *first, self.batch_shape)
        return self if mean is self.mean else GPPosterior(mean, self.root[..., : mean.num_points, :])

    @property
    def whitened(self) -> RKHSFunction:
        r"""The functions :math:`k(x, X) R`, r outputs, whose inner product is the reduction of the covariance."""
        intercept = jnp.zeros(self.batch_shape + self.root.shape[-1:], dtype=self.root.dtype)
        return RKHSFunction(self.mean.kernel, self.mean.points, self.root, intercept, self.batch_shape)

    def covariance(self, x1: Points, x2: Points) -> Float[Array, "*batch p1 p2"]:
        """Return the covariance of the function's values at two batches of points.

        Args:
            x1: p1 points, an array (p1, d) or another batch that the kernel accepts.
            x2: p2 points.

        Returns:
            The covariances, (*batch_shape, p1, p2[, P, P]).
        """

        def of_one_draw(draw: GPPosterior) -> Array:
            reduction = jnp.matmul(draw.whitened(x1), draw.whitened(x2).T, precision="highest")
            return draw._of_outputs(draw.mean.kernel(x1, x2) - reduction, draw.output_covariance)

        return self.map_draws(of_one_draw)

    def variance(self, x: Points) -> Float[Array, "*batch p"]:
        """Return the variance of the function's values at p points, not below 0.

        Args:
            x: The points, an array (p, d) or another batch that the kernel accepts.

        Returns:
            The variances, (*batch_shape, p[, P]).
        """

        def of_one_draw(draw: GPPosterior) -> Array:
            variance = draw.mean.kernel.diagonal(x) - jnp.sum(draw.whitened(x) ** 2, axis=-1)
            between = draw.output_covariance
            # The variance is a difference of nearly equal numbers where there are data.
            return draw._of_outputs(jnp.maximum(variance, 0.0), None if between is None else jnp.diagonal(between))

        return self.map_draws(of_one_draw)

    def at_draw(self, position: tuple[int, ...]) -> GPPosterior:
        """Return the posterior of one draw."""
        parts = (self.root, self.output_covariance)
        root, between = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)[position]), parts)
        return GPPosterior(self.mean.at_draw(position), root, between)

    def map_draws(self, f: Callable[..., Any], *others: PyTree, batch_size: int | None = None) -> Any:
        """Apply a function of one posterior to the posteriors of all draws.

        Args:
            f: A function of a `GPPosterior` with ``batch_shape`` () and the entries of `others` for the same draw. It
                returns a pytree of arrays and must be traceable by JAX.
            *others: Pytrees of arrays led by ``batch_shape``.
            batch_size: How many draws are worked on at once; one after another by default.

        Returns:
            The results of `f`, each array led by ``batch_shape``.
        """

        def of_draw(mean: RKHSFunction, parts: tuple[Array, Array | None], *further: PyTree) -> Any:
            return f(GPPosterior(mean, *parts), *further)

        parts = (self.root, self.output_covariance)
        return self.mean.map_draws(of_draw, parts, *others, batch_size=batch_size)

    def _of_outputs(self, shared: Array, between: Array | None) -> Array:
        """Return the products of the moments that all outputs share with those between outputs, if there are any."""
        return shared if between is None else jnp.tensordot(shared, between, axes=0)


def _is_equal(leaf: Any, points: Points) -> bool:
    known = all(eqx.is_array(each) and is_concrete(each) for each in (leaf, points))
    return known and leaf.shape == points.shape and np.array_equal(leaf, points)


@eqx.filter_jit
def _law(posterior: GPPosterior, other: AbstractFunctional, equal: AbstractFunctional) -> FunctionalLaw:
    functional = eqx.combine(other, jax.tree.map(lambda known: posterior.mean.points if known else None, equal))

    def of_draw(draw: GPPosterior) -> FunctionalLaw:
        shared = draw.shared
        mean, whitened, prior = functional.moments(shared.mean, shared.root)
        covariance = prior - jnp.matmul(whitened, whitened.T, precision="highest")
        covariance = (covariance + covariance.T) / 2
        if draw.output_covariance is not None:
            covariance = jnp.kron(covariance, draw.output_covariance)
        return FunctionalLaw(mean if shared is draw else functional.apply(draw.mean).ravel(), covariance)

    return posterior.map_draws(of_draw)


guard_exports(globals())
