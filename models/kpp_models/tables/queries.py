"""Queries to a fitted regression: functions drawn from the posterior, and the summands of the function."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float

from kpp import linalg
from kpp.features import AbstractFeatureKernel, RandomFourier
from kpp.foundation.validation import check_type, count, finite_arrays
from kpp.functionals import GPPosterior
from kpp.functions import RKHSFunction
from kpp.gp.toolkit import QuasiseparableGP
from kpp.inference import Data, Fit
from kpp.inference.toolkit import Sample
from kpp.kernels import AbstractKernel, Categorical, Periodic, Product, ProductKernel, Scaled, Selected, Sum
from kpp.typing import Points, RngKey


class DrawnFunction(eqx.Module):
    r"""A function :math:`x \mapsto g(x) + \phi(x)^\top w` that `sample_function` has drawn, with draws or without.

    g is the posterior mean and the correction by the data; the arrays of the kernel `prior`, whose features are
    :math:`\phi`, lead with the draws.
    """

    update: RKHSFunction
    prior: AbstractKernel
    weights: Float[Array, "*batch q"]

    def __call__(self, x: Points) -> Float[Array, "*batch p *outputs"]:
        """Return the values at p points, (p, d), or another batch that the kernel accepts."""
        return self._values(finite_arrays(x, "x"))

    @eqx.filter_jit
    def _values(self, x: Points) -> Float[Array, "*batch p *outputs"]:
        return self.update.map_draws(
            lambda update, prior, weights: update(x) + prior.finite_features(x) @ weights, self.prior, self.weights
        )


def sample_function(rng_key: RngKey, posterior: GPPosterior | Fit, *, num_frequencies: int = 1000) -> DrawnFunction:
    r"""Draw a function from a posterior, which can be evaluated anywhere, compiled, mapped and differentiated.

    .. math:: f(x) = \mu(x) + f_0(x) - k(x, X)\, R\, \bigl(R^\top f_0(X) + \epsilon\bigr), \qquad
        \epsilon \sim N(0,\; I - R^\top K_{XX} R)

    The draw :math:`f_0` of the prior has random Fourier features where the kernel has stationary parts; the update by
    the data is exact. Over the keys, mean and covariance of the values are those of the posterior for any number of
    frequencies; with more of them the values are closer to Gaussian.

    Args:
        rng_key: A JAX random key.
        posterior: The posterior, whose points are arrays; of a fit one draw of the hyperparameters, at random.
        num_frequencies: The number of frequencies of each stationary part; there are twice as many features.

    Returns:
        A callable from points (p, d) to values (*batch_shape, p[, outputs]) of the latent function.

    Raises:
        TypeError: If a part of the kernel is neither stationary nor of finitely many features.
        ValueError: If `num_frequencies` is not positive.

    Example:
        >>> draw = kpp_models.sample_function(jax.random.key(0), fit)
        >>> draw(x[:3]).shape
        (3,)

    References:
        Wilson, Borovitskiy, Terenin, Mostowsky and Deisenroth, Efficiently sampling functions from Gaussian process
        posteriors, 2020, equation (13); Pathwise conditioning of Gaussian processes, 2021.
    """
    check_type(posterior, "posterior", ("GPPosterior", "Fit"))
    count(num_frequencies, "num_frequencies")
    if isinstance(posterior, Fit):
        chosen = jax.random.randint(rng_key, (1,), 0, posterior.num_chains * posterior.num_draws)
        posterior = posterior.function_posterior(at=np.asarray(chosen)).at_draw((0, 0))
    whole, shape = posterior.mean, posterior.batch_shape
    posterior = posterior.shared if posterior.output_covariance is None else posterior
    keys = jax.random.split(jax.random.fold_in(rng_key, 1), math.prod(shape)).reshape(shape)
    coefficients, prior, weights = _draws(posterior, keys, num_frequencies)
    update = RKHSFunction(posterior.mean.kernel, posterior.mean.points, coefficients, whole.intercept, shape)
    return DrawnFunction(whole.with_spanned(update), prior, weights)


def components(fit: Fit, x: Any, names: Sequence[str] | None = None) -> xr.Dataset:
    r"""Divide a regression function into the summands of its kernel, at p points and for every draw.

    .. math:: f = m + \sum_c f_c, \qquad f_c \mid y \sim GP\bigl(k_c(x, X)\, \alpha,\;
        k_c(x, x') - k_c(x, X) (K + \Sigma)^{-1} k_c(X, x')\bigr)

    Args:
        fit: A fit of a `GPRegression` with ``latent="quasiseparable"`` whose kernel is a sum.
        x: The points, as for `Fit.predict`.
        names: Names of the summands, in their order; by default their numbers.

    Returns:
        ``mean`` and ``variance``, with dims (chain, draw, component, instance). The means and the prior mean add up to
        the ``mean`` of `Fit.predict`; the components are dependent, so that their variances do not add up.

    Raises:
        TypeError: If the fit is of another model, or its kernel is not a sum.
        ValueError: If there is not one name for each summand, or `x` does not fit the training data.

    References:
        Duvenaud, Automatic model construction with Gaussian processes, 2014, section 2.4.5.
    """
    check_type(fit, "fit", ("Fit",))
    kernel = getattr(fit.model, "kernel", None)
    if not isinstance(kernel, Sum) or getattr(fit.model, "latent", "") != "quasiseparable":
        raise TypeError(
            "`fit` must be of a GPRegression with latent='quasiseparable' whose kernel is a sum, got "
            f"{type(fit.model).__name__} with the kernel {type(kernel).__name__}"
        )
    found = list(map(str, range(len(kernel.kernels)) if names is None else names))
    if len(found) != len(kernel.kernels):
        raise ValueError(f"`names` must name each of {len(kernel.kernels)} summands, got {found}")
    moments = fit.map_draws(_moments, fit.model.read_points(x, fit.schema))
    dims = ("chain", "draw", "component", "instance")
    return xr.Dataset({name: (dims, values) for name, values in moments.items()}, {"component": found})


@eqx.filter_jit
def _draws(posterior: GPPosterior, keys: RngKey, num_frequencies: int) -> tuple[Array, AbstractKernel, Array]:
    """Draw a function for each draw of the posterior; see `_draw`."""
    return posterior.map_draws(lambda draw, key: _draw(key, draw, num_frequencies), keys)


def _draw(key: RngKey, posterior: GPPosterior, num_frequencies: int) -> tuple[Array, AbstractKernel, Array]:
    """Draw a function; return the coefficients of its update, and its `prior` and `weights`."""
    kernel_key, weight_key, noise_key = jax.random.split(key, 3)
    mean, root = posterior.mean, posterior.root

    def noise(key: RngKey, size: int) -> Float[Array, "size *outputs"]:
        drawn = jax.random.normal(key, (size, *mean.output_shape), root.dtype)
        if posterior.output_covariance is None:
            return drawn
        values, vectors = jnp.linalg.eigh(posterior.output_covariance)
        return drawn @ (vectors * jnp.sqrt(jnp.maximum(values, 0.0))[None]).T

    prior = _with_features(kernel_key, mean.kernel, (num_frequencies, mean.points.shape[-1]))
    features = prior.finite_features(mean.points)
    if features is None:
        raise TypeError(
            f"{type(mean.kernel).__name__} has a part that is neither stationary nor of finitely many features, so "
            "that its functions cannot be drawn; `GPPosterior.of` gives the law of their values, which has `sample`"
        )
    weights = noise(weight_key, features.shape[1])
    remainder = jnp.eye(root.shape[1], dtype=root.dtype) - root.T @ mean.kernel.gram(mean.points) @ root
    factor = linalg.cholesky(linalg.add_diagonal(remainder, linalg.max_relative_jitter(root.dtype)))
    observed = root.T @ (features @ weights) + factor @ noise(noise_key, root.shape[1])
    return mean.coefficients - root @ observed, prior, weights


def _with_features(rng_key: RngKey, kernel: AbstractKernel, shape: tuple[int, int]) -> AbstractKernel:
    """Replace the stationary parts of a kernel by random features, whose mean over the keys is the kernel."""
    if isinstance(kernel, AbstractFeatureKernel):
        return kernel
    found = _spectrum(rng_key, kernel, shape)
    if found is not None:
        return RandomFourier(found[0], variance=found[1])
    if isinstance(kernel, (Product, ProductKernel)):  # one draw of frequencies for all stationary factors
        factors = [(_spectrum(rng_key, factor, shape) is None, factor) for factor in _factors(kernel)]
        others, stationary = ([factor for is_other, factor in factors if is_other is side] for side in (True, False))
        kernel = Product((*others, Product(tuple(stationary))) if stationary else tuple(others))
    shape = (shape[0], len(kernel.features)) if isinstance(kernel, Selected) else shape
    keys = (jax.random.fold_in(rng_key, number) for number in itertools.count())

    def convert(node: Any) -> Any:
        return _with_features(next(keys), node, shape) if isinstance(node, AbstractKernel) else node

    return jax.tree.map(convert, kernel, is_leaf=lambda node: isinstance(node, AbstractKernel) and node is not kernel)


def _spectrum(key: RngKey, kernel: Any, shape: tuple[int, int]) -> tuple[Float[Array, "q d"], Any] | None:
    """Draw frequencies of a product of stationary kernels, and return its variance; None for another kernel."""
    if isinstance(kernel, (Product, ProductKernel)):
        found = [_spectrum(jax.random.fold_in(key, j), factor, shape) for j, factor in enumerate(_factors(kernel))]
        known = [each for each in found if each is not None]
        if len(known) < len(found):
            return None
        return jnp.sum(jnp.stack([each[0] for each in known]), axis=0), math.prod(each[1] for each in known)
    if isinstance(kernel, (Scaled, Selected)):
        columns = np.asarray(kernel.features) if isinstance(kernel, Selected) else np.arange(shape[1])
        inner = _spectrum(key, kernel.kernel, (shape[0], len(columns)))
        variance = kernel.variance if isinstance(kernel, Scaled) else 1.0
        return None if inner is None else (jnp.zeros(shape).at[:, columns].set(inner[0]), variance * inner[1])
    first, second = jax.random.split(key)
    if isinstance(kernel, Periodic):  # the Fourier coefficients of exp(a cos t) are those of a Skellam law
        rate = jnp.broadcast_to(0.5 / jnp.atleast_1d(kernel.lengthscale) ** 2, shape)
        harmonics = jax.random.poisson(first, rate) - jax.random.poisson(second, rate)
        return 2 * jnp.pi * harmonics / jnp.broadcast_to(kernel.period, shape[1:])[None], kernel.variance
    if isinstance(kernel, Categorical):  # uniform frequencies show whether two integers are equal
        same = jax.random.bernoulli(second, jnp.broadcast_to(jnp.atleast_1d(kernel.correlation), shape))
        return jnp.where(same, 0.0, jax.random.uniform(first, shape, maxval=2 * jnp.pi)), kernel.variance
    if not isinstance(kernel, RandomFourier.approximated):
        return None
    drawn = RandomFourier.approximate(key, kernel, *shape)
    return drawn.frequencies / jnp.broadcast_to(kernel.lengthscale, shape[1:])[None], kernel.variance


def _factors(kernel: Product | ProductKernel) -> tuple[AbstractKernel, ...]:
    return kernel.kernels if isinstance(kernel, Product) else tuple(k.on(j) for j, k in enumerate(kernel.kernels))


def _moments(model: Any, sample: Sample, data: Data, x: Float[Array, "p d"]) -> dict[str, Array]:
    posterior: QuasiseparableGP = model.posterior(sample, data)
    assert isinstance(posterior.total, Sum)
    laws = [dataclasses.replace(posterior, part=part).moments(x) for part in posterior.total.kernels]
    return {name: jnp.stack([getattr(law, name) for law in laws]) for name in ("mean", "variance")}
