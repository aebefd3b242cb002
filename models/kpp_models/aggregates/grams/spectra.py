r"""Mean embeddings of bags by random Fourier features, for the Gram matrix of bags with very many points.

A stationary kernel is the expectation of :math:`\sigma^2 \cos\langle\omega, x - x'\rangle` over its spectral density.
Sums, products, multiples and selections of stationary kernels are expectations of this form too: sums have the waves of
both kernels, products have waves whose frequencies add up. Frequencies are drawn for the lengthscale 1 and divided by
the lengthscales afterwards, so that the draws are fixed while the lengthscales may be learned.
"""

from __future__ import annotations

import functools
import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp.data.bags import Bags
from kpp.features import RandomFourier
from kpp.kernels import AbstractKernel, Constant, Product, ProductKernel, Scaled, Selected, Sum


class Waves(NamedTuple):
    r"""One term :math:`\frac{\sigma^2}{q} \sum_r \cos\langle\omega_r, x - x'\rangle` of a kernel."""

    variance: Float[Array, ""]
    frequencies: Float[Array, "q d"]


def waves_of(rng_key: Array, kernel: AbstractKernel, num_frequencies: int, num_features: int) -> list[Waves]:
    """Draw waves whose terms together are an unbiased estimate of a kernel of d features, with q frequencies.

    The same key gives the same draws for any parameters of the kernel, which is RBF, a Matérn kernel, Constant or
    `RandomFourier`, or a sum, product, multiple or selection of these. A `RandomFourier` keeps the frequencies it has,
    and must have q of them. Raises TypeError if the spectral density of a part is not known here.
    """
    if isinstance(kernel, (Sum, Product, ProductKernel)):
        parts = _parts(kernel)
        keys = jax.random.split(rng_key, len(parts))
        several = [waves_of(key, part, num_frequencies, num_features) for key, part in zip(keys, parts, strict=True)]
        return sum(several, []) if isinstance(kernel, Sum) else _multiply(several)
    if isinstance(kernel, Scaled):
        terms = waves_of(rng_key, kernel.kernel, num_frequencies, num_features)
        return [Waves(kernel.variance * term.variance, term.frequencies) for term in terms]
    if isinstance(kernel, Selected):
        index = jnp.asarray(kernel.features)
        terms = waves_of(rng_key, kernel.kernel, num_frequencies, len(kernel.features))
        return [Waves(term.variance, _in_columns(term.frequencies, index, num_features)) for term in terms]
    if isinstance(kernel, Constant):
        return [Waves(kernel.variance, jnp.zeros((num_frequencies, num_features)))]
    return [_draw(rng_key, kernel, num_frequencies, num_features)]


def fourier_gram(rng_key: Array, kernel: AbstractKernel, bags: Bags, num_frequencies: int) -> Float[Array, "N N"]:
    r"""Estimate the inner products of the bags' mean embeddings, at a cost that grows with n instead of its square.

    .. math:: G_{jj'} = \sum_t \frac{\sigma_t^2}{q} \mathrm{Re} \langle z_{tj}, z_{tj'} \rangle, \qquad
        z_{tj} = \frac{1}{n_j} \sum_i e^{\mathrm{i} \langle \omega_t, x_j^i \rangle}

    The kernel is of the kinds that `waves_of` knows. The matrix (N, N) is positive semi-definite; its expectation over
    the draws is `Bags.gram`, and its error of the order of one over the root of the number of frequencies q.

    References:
        Rahimi and Recht, Random features for large-scale kernel machines, 2007, algorithm 1.
    """
    total = jnp.zeros((bags.num_bags, bags.num_bags), bags.points.dtype)
    for term in waves_of(rng_key, kernel, num_frequencies, bags.points.shape[1]):
        means = bags.sections(_cosines_and_sines, term.frequencies)
        total = total + term.variance / num_frequencies * (means @ means.T)
    return total


def _cosines_and_sines(points: Float[Array, "c d"], frequencies: Float[Array, "q d"]) -> Float[Array, "c 2*q"]:
    phases = points @ frequencies.T
    return jnp.concatenate([jnp.cos(phases), jnp.sin(phases)], axis=1)  # cos a cos b + sin a sin b


def _parts(kernel: Sum | Product | ProductKernel) -> list[AbstractKernel]:
    if isinstance(kernel, ProductKernel):
        return [Selected(part, (j,)) for j, part in enumerate(kernel.kernels)]
    return list(kernel.kernels)


def _multiply(several: list[list[Waves]]) -> list[Waves]:
    """Multiply out; the product of two independent waves is a wave at the sum of their frequencies."""

    def pair(first: Waves, second: Waves) -> Waves:
        return Waves(first.variance * second.variance, first.frequencies + second.frequencies)

    return [functools.reduce(pair, choice) for choice in itertools.product(*several)]


def _in_columns(frequencies: Array, index: Array, num_features: int) -> Array:
    return jnp.zeros((frequencies.shape[0], num_features), frequencies.dtype).at[:, index].set(frequencies)


def _draw(rng_key: Array, kernel: AbstractKernel, num_frequencies: int, num_features: int) -> Waves:
    if isinstance(kernel, RandomFourier.approximated):
        kernel = RandomFourier.approximate(rng_key, kernel, num_frequencies, num_features)
    if not isinstance(kernel, RandomFourier):
        raise TypeError(
            f"the spectral density of {type(kernel).__name__} is not known, which Fourier features of the bags need; "
            "take `bag_gram='sampled'`, which works with every kernel"
        )
    if kernel.frequencies.shape[0] != num_frequencies:
        raise ValueError(
            f"`gram_size` must be the {kernel.frequencies.shape[0]} frequencies that `kernel` has, got "
            f"{num_frequencies}"
        )
    lengthscale = jnp.broadcast_to(kernel.lengthscale, (num_features,))
    return Waves(kernel.variance, kernel.frequencies / lengthscale[None, :])
