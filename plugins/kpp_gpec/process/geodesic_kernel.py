r"""The weighted exponential geodesic (WEG) kernel: points are similar if the nearby decision boundary is simple.

Each point is represented by a distribution over samples of the decision boundary, with the largest weights on near
samples. The similarity of two points is the mean similarity of their boundary samples, which decreases along the
boundary.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpy.typing import ArrayLike

from kpp.foundation.validation import count, is_concrete
from kpp.kernels import AbstractKernel, check_non_negative, parameter, scalar
from kpp.kernels.toolkit import AbstractBatchKernel, check_matrices, example_points, point_rows
from kpp.linalg.toolkit import positive_part, root_of_full_rank
from kpp.typing import AnyArray, Leaf, RngKey


def _as_members(value: ArrayLike | None) -> Array | None:
    return None if value is None else jnp.asarray(value, dtype=jnp.int32)


class WeightedExponentialGeodesic(AbstractBatchKernel):
    r"""The WEG kernel of samples of a decision boundary.

    .. math::

        k(x, x') = \sum_{i,j} q_i(x)\, G_{ij}\, q_j(x'), \qquad
        q_j(x) = \frac{e^{-\rho |x - m_j|^2}}{\sum_l e^{-\rho |x - m_l|^2}}, \qquad
        G = \bigl[e^{-\lambda\, d_{\mathrm{geo}}(m_i, m_j)}\bigr]_+

    The positive part :math:`[\cdot]_+` clips negative eigenvalues at 0: the exponential of geodesic distances along a
    graph is indefinite for small :math:`\lambda`, and variances would be negative. The weights are computed from their
    logarithms, so they are accurate for points at any distance. The normalized kernel is

    .. math:: k^*(x, x') = k(x, x') / \sqrt{k(x, x)\, k(x', x')}.

    An infinite distance, between parts of a boundary that are not connected, gives a similarity of 0.

    Args:
        points: The boundary samples :math:`m_j`, (J, d), in the units of x.
        distances: Their geodesic distances, (J, J), symmetric; or (L, L) with `members`.
        decay: :math:`\lambda`, at least 0, or a prior.
        concentration: :math:`\rho`, at least 0, or a prior.
        normalized: Whether this is :math:`k^*`.
        members: For each sample the row of `distances` that it shares with others, (J,); None if each has its own.
            `thin` sets it.
        root: R with :math:`G = R R^\top`, (L, r), if it is already known; `precompute` sets it.

    Raises:
        ValueError: If the arrays do not fit each other, distances are negative or not symmetric, or a parameter is
            negative.

    References:
        Hill, Masoomi, Torop, Ghimire and Dy, Boundary-aware uncertainty for feature attribution explainers, 2024,
        equations (5) to (11).
    """

    points: Leaf = eqx.field(converter=point_rows("points"))
    distances: Leaf = eqx.field(converter=parameter("distances"))
    decay: Leaf = eqx.field(converter=parameter("decay"))
    concentration: Leaf = eqx.field(converter=parameter("concentration"))
    normalized: bool = eqx.field(static=True, default=True)
    members: Any = eqx.field(converter=_as_members, default=None)
    root: Array | None = eqx.field(converter=point_rows("root"), default=None)

    def __check_init__(self) -> None:
        check_non_negative(self.decay, "decay")
        check_non_negative(self.concentration, "concentration")
        if eqx.is_array(self.distances) and eqx.is_array(self.points):
            _check_distances(self.points, self.distances, self.members)

    def __call__(self, x1: Array, x2: Array) -> Float[Array, "n1 n2"]:
        check_matrices(self, x1, x2)
        similarity = self._similarity()
        return self._between(similarity, self._weights(x1), self._weights(x2))

    def gram(self, x: Array) -> Float[Array, "n n"]:
        check_matrices(self, x, x)
        weights = self._weights(x)
        return self._between(self._similarity(), weights, weights)

    def diagonal(self, x: Array) -> Float[Array, " n"]:
        check_matrices(self, x, x)
        if self.normalized:
            return jnp.ones_like(x[:, 0])
        return self._own(self._similarity(), self._weights(x))

    def weights(self, x: ArrayLike) -> Float[Array, "n J"]:
        """Return the weight of each boundary sample for each point; rows sum to 1.

        Args:
            x: n points (n, d).

        Returns:
            The weights :math:`q_j(x_i)`, (n, J).
        """
        return jax.nn.softmax(self._log_weights(jnp.asarray(x)), axis=1)

    def precompute(self) -> WeightedExponentialGeodesic:
        """Return the same kernel with the root of G computed once; it is valid for the current `decay` only."""
        root = root_of_full_rank(self._geodesic())
        return eqx.tree_at(lambda kernel: kernel.root, self, root, is_leaf=lambda leaf: leaf is None)

    def thin(self, num_landmarks: int) -> WeightedExponentialGeodesic:
        r"""Let boundary samples share the distances of landmarks among them, so that time and memory are bounded.

        Landmarks are chosen by farthest-point sampling, until there are `num_landmarks` of them or every sample
        coincides with one. With r the largest distance of a sample from its landmark, the entries of :math:`e^{-\lambda
        d}` change by at most :math:`2 \lambda r`; samples that coincide are joined exactly.

        Args:
            num_landmarks: L, at least 1.

        Returns:
            A kernel with the same samples and at most L rows of distances; this kernel if it already has at most L.

        Raises:
            ValueError: If `num_landmarks` is less than 1.
        """
        count(num_landmarks, "num_landmarks")
        distances = np.asarray(self.distances)
        if len(distances) <= num_landmarks:
            return self
        chosen, nearest = farthest_points(distances, num_landmarks)
        members = nearest if self.members is None else nearest[np.asarray(self.members)]
        shared = distances[np.ix_(chosen, chosen)]
        return dataclasses.replace(self, distances=shared, members=members, root=None)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractKernel, Any]]:
        first, second = jax.random.split(rng_key)
        x, samples = example_points(first, 2), example_points(second, 2)
        sides = np.arange(6) % 2
        bipartite = np.where(sides[:, None] == sides[None, :], 2.0, 1.0) * (1.0 - np.eye(6))
        yield cls(samples, bipartite, 0.1, 0.8), x
        yield cls(samples, bipartite, 0.1, 0.8, normalized=False).thin(5).precompute(), x

    def _log_weights(self, x: Float[Array, "n d"]) -> Float[Array, "n J"]:
        """Return logarithms of the weights up to a constant per row, so that the distance from the samples cancels."""
        center = jax.lax.stop_gradient(jnp.mean(self.points, axis=0, keepdims=True))
        samples, x = self.points - center, x - center
        products = jnp.matmul(x, samples.T, precision=jax.lax.Precision.HIGHEST)  # -|x - m|^2 without |x|^2, below
        return scalar(self.concentration, "concentration") * (2 * products - jnp.sum(samples**2, axis=1)[None, :])

    def _weights(self, x: Float[Array, "n d"]) -> Float[Array, "n L"]:
        """Return the weights of the rows of `distances`."""
        weights = self.weights(x)
        if self.members is None:
            return weights
        return jax.ops.segment_sum(weights.T, self.members, self.distances.shape[0]).T

    def _geodesic(self) -> Float[Array, "L L"]:
        """Return the exponential of the distances before its eigenvalues are clipped."""
        return _decay(self.distances, scalar(self.decay, "decay"))

    def _similarity(self) -> Array:
        """Return R if it is known, otherwise G."""
        return positive_part(self._geodesic()) if self.root is None else self.root

    def _between(self, similarity: Array, first: Array, second: Array) -> Float[Array, "n1 n2"]:
        if self.root is None:
            values = first @ similarity @ second.T
        else:
            values = (first @ similarity) @ (second @ similarity).T
        if not self.normalized:
            return values
        scales = (jnp.sqrt(self._own(similarity, weights)) for weights in (first, second))
        return values / (next(scales)[:, None] * next(scales)[None, :])

    def _own(self, similarity: Array, weights: Array) -> Float[Array, " n"]:
        """Return each point's similarity with itself, which is positive because of the term of the largest weight."""
        spread = weights @ similarity
        return jnp.sum(spread * (weights if self.root is None else spread), axis=1)


@jax.jit
def _decay(distances: Array, decay: Array) -> Array:
    finite = jnp.isfinite(distances)
    # Infinity inside would make the gradient in `decay` NaN.
    return jnp.where(finite, jnp.exp(-decay * jnp.where(finite, distances, 0.0)), 0.0)


def farthest_points(
    distances: Float[AnyArray, "J J"], max_points: int
) -> tuple[Int[np.ndarray, " L"], Int[np.ndarray, " J"]]:
    """Choose up to `max_points` rows by farthest-point sampling, and assign each row to the nearest of them.

    Fewer are chosen if every row coincides with a chosen one. The distances of all rows are read one row at a time. The
    nearest is a position among the chosen rows.
    """
    distances = np.asarray(distances)
    chosen, nearest, gap = [0], np.zeros(len(distances), dtype=np.int32), distances[0].copy()
    while len(chosen) < max_points and gap.max() > 0:
        row = int(gap.argmax())
        closer = distances[row] < gap
        nearest[closer], gap = len(chosen), np.where(closer, distances[row], gap)
        chosen.append(row)
    return np.array(chosen), nearest


def _check_distances(points: Array, distances: Array, members: Array | None) -> None:
    size = distances.shape[-1] if distances.ndim else 0
    rows = points.shape[-2] if members is None else size
    if distances.ndim < 2 or distances.shape[-2:] != (rows, rows):
        raise ValueError(f"`distances` must have shape ({rows}, {rows}), one row per sample, got {distances.shape}")
    if members is not None and members.shape[-1:] != points.shape[-2:-1]:
        raise ValueError(f"`members` must have shape ({points.shape[-2]},), one a sample, got {members.shape}")
    if not is_concrete(distances):
        return
    values = np.asarray(distances)
    if not (values >= 0).all():
        raise ValueError(f"`distances` must be zero or positive, got {np.nanmin(values):g} or NaN")
    if not np.allclose(values, np.swapaxes(values, -1, -2), rtol=1e-6):
        raise ValueError("`distances` must be symmetric, got a matrix that is not")
