r"""Gram matrices of bags with very many points: exact, from a few points of each bag, or by random Fourier features.

A stationary kernel is the expectation of :math:`\sigma^2 \cos\langle\omega, x - x'\rangle` over its spectral density.
Sums, products, multiples and selections of stationary kernels are expectations of this form too: sums have the waves of
both kernels, products have waves whose frequencies add up. Frequencies are drawn for the lengthscale 1 and divided by
the lengthscales afterwards, so that the draws are fixed while the lengthscales may be learned.
"""

from __future__ import annotations

import functools
import itertools
import logging
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from kpp import linalg
from kpp.data.bags import Bags
from kpp.features import RandomFourier
from kpp.foundation.validation import count, one_of
from kpp.kernels import AbstractKernel, Constant, Product, ProductKernel, Scaled, Selected, Sum
from kpp.linalg.toolkit import positive_part
from kpp_models.aggregates.grams.prior import Basis

_LOGGER = logging.getLogger("kpp")

BAG_GRAMS = ("exact", "sampled", "fourier")
_DEFAULT_SIZES = {"exact": 2, "sampled": 20, "fourier": 500}  # points per bag for "sampled", frequencies for "fourier"
_LEAST_SIZES = {"exact": 0, "sampled": 2, "fourier": 1}
_WARN_PAIRS = 2e9  # the number of kernel values above which an exact Gram matrix and its gradient take most of a minute


class BagGram(NamedTuple):
    """How the Gram matrix of the bags is computed; see `approximate_gram`.

    The size is that of points per bag for "sampled", at least 2, or of frequencies for "fourier".
    """

    kind: str = "exact"
    size: int = 100
    seed: int = 0


def read_gram(bag_gram: str, size: int | None, seed: int) -> BagGram:
    """Return the settings, by default of a usual size; raise ValueError if the kind or the size is impossible."""
    default = _DEFAULT_SIZES[one_of(bag_gram, "bag_gram", BAG_GRAMS)]
    settings = BagGram(bag_gram, default if size is None else size, seed)
    check_gram(settings)
    return settings


def gram_data(settings: BagGram, bags: Bags, bags_per_step: int | None = None) -> dict[str, Array] | None:
    """Return the arrays that `approximate_gram` needs besides the bags, or raise ValueError if the size is too small.

    For "sampled" they are the points that stand for all: ``points`` (n', d), ``index`` (n',) and ``sizes`` (N,), with
    their `point_offsets` as ``offsets``; otherwise None. `bags_per_step` is the number of bags that a step reads; None
    for all.
    """
    check_gram(settings)
    points = bags.num_points
    if bags_per_step is not None:
        points = min(points, bags_per_step * int(bags.sizes.max()))
    if settings.kind == "exact" and points**2 / 2 > _WARN_PAIRS:
        _LOGGER.warning(
            "the exact Gram matrix of bags with %d points takes %.1e kernel values at every step; "
            "bag_gram='sampled' or 'fourier' takes far fewer",
            points,
            points**2 / 2,
        )
    if settings.kind != "sampled":
        return None
    thin = bags.subsample(jax.random.key(settings.seed), settings.size)
    return {"points": thin.points, "index": thin.index, "sizes": thin.sizes, "offsets": point_offsets(thin)}


def point_offsets(bags: Bags) -> Int[Array, " c"]:
    """Return the numbers below the size of the largest bag: an array whose length is known while tracing."""
    return jnp.arange(int(bags.sizes.max()))


def approximate_gram(
    settings: BagGram, kernel: AbstractKernel, bags: Bags, arrays: dict[str, Array] | None, basis: Basis | None = None
) -> Float[Array, "N N"]:
    r"""Return the inner products of the bags' mean embeddings, or an estimate of them, (N, N).

    "exact" takes n (n + 1) / 2 kernel values. "sampled" takes :math:`m_j` points of bag j without replacement: an entry
    off the diagonal is the mean over pairs of these points, and an entry on the diagonal is

    .. math:: G_{jj} = (1 - 1/n_j)\, \bar k_{i \ne i'} + \bar k_{ii} / n_j,

    with the weights that pairs of different and of equal points have in the whole bag. "fourier" averages random
    Fourier features over all points. Both estimates are unbiased, and "sampled" is exact if it takes every point.

    With a basis of inducing points the estimate is never below the covariance that they explain; otherwise the
    collapsed bound would grow without limit as the noise vanishes. "sampled" then estimates the unexplained part,
    :math:`k(x, x') - k(x, w) K_{ww}^{-1} k(w, x')`, from the sampled points, its rows and columns shrunk to the
    diagonal above; the explained part is exact, which makes the error smaller. "fourier" leaves out the negative
    eigenvalues of the difference.

    The draws are fixed by `seed`, so that the bound is a smooth function of the parameters. `arrays` is what
    `gram_data` returned. Raises TypeError if "fourier" does not know the spectral density of the kernel.
    """
    if settings.kind == "exact":
        return bags.gram(kernel)
    if settings.kind == "fourier":
        gram = fourier_gram(jax.random.key(settings.seed), kernel, bags, settings.size)
        explained = 0.0 if basis is None else basis.sections.T @ basis.sections
        return gram if basis is None else explained + positive_part(gram - explained)
    if arrays is None:
        raise ValueError("`arrays` must be what `gram_data` returned, got None")
    thin = Bags(arrays["points"], arrays["index"], arrays["sizes"])
    if basis is None:
        gram, same = thin.gram(kernel), thin.means(kernel.diagonal(thin.points))
        index = jnp.arange(gram.shape[0])
        return gram.at[index, index].set(_in_whole_bags(jnp.diagonal(gram), same, thin.sizes, bags.sizes))
    return basis.sections.T @ basis.sections + _unexplained_gram(kernel, thin, bags.sizes, basis)


def _unexplained_gram(kernel: AbstractKernel, thin: Bags, sizes: Array, basis: Basis) -> Float[Array, "N N"]:
    """Estimate the Gram matrix of the part that the inducing points do not explain, for bags of these sizes."""

    def values(points: Array, inducing: Array) -> Array:
        """Return k(x, w), and in the last column the unexplained part of k(x, x)."""
        cross = kernel(points, inducing)
        explained = jnp.sum(jnp.square(linalg.solve_lower(basis.factor, cross.T)), axis=0)
        return jnp.concatenate([cross, (kernel.diagonal(points) - explained)[:, None]], axis=1)

    means = thin.sections(values, basis.points)
    sections = linalg.solve_lower(basis.factor, means[:, :-1].T)
    gram, same = thin.gram(kernel), jnp.maximum(means[:, -1], 0.0)
    floor = linalg.max_relative_jitter(gram.dtype) * jnp.diagonal(gram)  # negative only by rounding
    unexplained = gram - sections.T @ sections
    own = jnp.maximum(jnp.diagonal(unexplained), floor)
    least = jnp.clip(same / sizes, floor, own)  # as if different points were uncorrelated
    shrinkage = jnp.sqrt(jnp.clip(_in_whole_bags(own, same, thin.sizes, sizes), least, own) / own)
    return shrinkage[:, None] * unexplained * shrinkage[None, :]


def _in_whole_bags(own: Array, same: Array, taken: Array, sizes: Array) -> Float[Array, " N"]:
    """Correct the weight of pairs of equal points, with mean value `same`, in means over sampled pairs."""
    share = 1.0 / taken.astype(own.dtype)
    among = jnp.maximum(1.0 - share, 0.5)  # 0 only for bags of one point, which need no correction
    different = (own - same * share) / among  # own = (1 - 1/m) different + same / m
    return jnp.where(taken == sizes, own, (1.0 - 1.0 / sizes) * different + same / sizes)  # and back, with n for m


def check_gram(settings: BagGram) -> None:
    """Raise ValueError if the kind of approximation is unknown, or its size is too small."""
    least = _LEAST_SIZES[one_of(settings.kind, "bag_gram", BAG_GRAMS)]
    count(settings.size, "gram_size", least)


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
        zeros = jnp.zeros((num_frequencies, num_features))
        return [Waves(term.variance, zeros.at[:, index].set(term.frequencies)) for term in terms]
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
