r"""Random functions and random embeddings, known by mean and covariance, and their inner products.

Let f be the function from an outcome to its effect and :math:`\mu(x)` the embedding of the outcome's distribution under
the treatment x. The effect of the treatment is :math:`g(x) = \langle f, \mu(x) \rangle`. If f and :math:`\mu` are
independent, the mean and the covariance of g follow in closed form from those of f and :math:`\mu`. Then g is a random
function of x, so that a chain of links is a sequence of inner products, the last link first.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from kpp import linalg
from kpp.embeddings import Intervention
from kpp.kernels import AbstractKernel, NuclearDominant
from kpp.typing import Leaf


class OutcomeSpace(eqx.Module):
    """The RKHS of the kernel k of an outcome, and inner products of sections in it.

    A function of level 0 is spanned by sections of k, one of level 1 by those of the nuclear dominant kernel r. Inner
    products of sections, and of products of sections with r or k, are chains: with :math:`c_0 = k` and :math:`c_1 = r`,
    sections of the levels i and j have the inner product :math:`c_{i+j}`. With landmarks, functions are projected onto
    the sections of k there, which replaces the chains of orders 2 and 3 by approximations.

    References:
        Chau, Ton, Gonzalez, Teh and Sejdinovic, BayesIMP: uncertainty quantification for causal data fusion, 2021,
        appendix B, for the landmarks.
    """

    kernel: AbstractKernel  # k; an RBF if level 1 is used
    width: Leaf | None = None  # eta of r, or None without level 1
    landmarks: Float[Array, "H d"] | None = None

    @property
    def dominant(self) -> NuclearDominant:
        """The nuclear dominant kernel r."""
        return NuclearDominant(self.kernel, self.width)  # type: ignore[arg-type]

    def level_kernel(self, level: int) -> AbstractKernel:
        """Return k or r, the kernel of functions of a level."""
        return self.dominant if level else self.kernel

    def chain(self, order: int, first: Float[Array, "n d"], second: Float[Array, "m d"]) -> Float[Array, "n m"]:
        """Return the chain of an order between 0 and 3 at every pair of points."""
        if order < 2:
            return self.level_kernel(order)(first, second)
        if self.landmarks is None:
            return self.dominant.chain(order, first, second)
        factor = self._factor(self.landmarks)
        left, right = (linalg.solve_lower(factor, self.dominant(self.landmarks, at)) for at in (first, second))
        return left.T @ right if order == 2 else left.T @ self._middle(self.landmarks) @ right

    def squared_norm(self, num_features: int) -> Float[Array, ""]:
        """Return the squared norm of r in the tensor product of the space with itself."""
        if self.landmarks is None:
            return self.dominant.squared_norm(num_features)
        return jnp.sum(self._middle(self.landmarks) ** 2)

    def _factor(self, landmarks: Float[Array, "H d"]) -> Float[Array, "H H"]:
        return linalg.cholesky(self.kernel.gram(landmarks), what="the kernel matrix of `landmarks`")

    def _middle(self, landmarks: Float[Array, "H d"]) -> Float[Array, "H H"]:
        factor = self._factor(landmarks)
        return linalg.solve_lower(factor, linalg.solve_lower(factor, self.dominant.gram(landmarks)).T)


class RandomFunction(eqx.Module):
    r"""A random function by its mean and the parts of its covariance.

    .. math:: E f = \sum_i v_i\, \kappa(p_i, \cdot), \qquad
            \mathrm{cov}_s f = c_s\, \kappa(y, y') - \kappa(y, P)\, A_s\, \kappa(P, y')

    with :math:`\kappa` the kernel of a level, points P, coefficients v, scales c and matrices A. There is one part s
    for each source of data, in the order of the chain from here on, and a last part for their interaction. The sum of
    the parts is a covariance; a single part need not be one.
    """

    points: Float[Array, "n d"]
    coefficients: Float[Array, " n"]
    scales: Float[Array, " s"]
    matrices: Float[Array, "s n n"]
    level: int = eqx.field(static=True)

    @classmethod
    def regression(
        cls,
        space: OutcomeSpace,
        level: int,
        points: Float[Array, "n d"],
        targets: Float[Array, " n"],
        noise_variance: Float[Array, ""],
        amplitude: Float[Array, ""],
        *,
        uncertain: bool,
    ) -> RandomFunction:
        r"""Return the posterior of a Gaussian process given noisy values.

        .. math:: v = a (a K + \sigma^2 I)^{-1} t, \qquad c = a, \qquad A = a^2 (a K + \sigma^2 I)^{-1}

        The points are P, and the targets t are minus their prior mean; a is the amplitude, which multiplies the kernel
        of a level. There is one part for the data and a part 0 for the interaction. Unless it is `uncertain`, the
        function is known to be its mean.
        """
        count = points.shape[0]
        gram = amplitude * space.level_kernel(level).gram(points)
        factor = linalg.cholesky(
            linalg.add_diagonal(gram, noise_variance), what="the kernel matrix of `mediators` with noise"
        )
        scales, matrices = jnp.zeros(2, gram.dtype), jnp.zeros((2, count, count), gram.dtype)
        if uncertain:
            scales = scales.at[0].set(amplitude)
            matrices = matrices.at[0].set(amplitude**2 * linalg.cho_inverse(factor))
        return cls(points, amplitude * linalg.cho_solve(factor, targets), scales, matrices, level)


class RandomEmbedding(eqx.Module):
    r"""The posterior of the embedding of one link's outcome.

    .. math::

        E \mu(x) = \sum_i \gamma_i(x)\, \kappa(u_i, \cdot), \qquad
        \mathrm{cov}\, \mu(x), \mu(x') = s\,[F(x, x')\, r - G(x, x')\, r(\cdot, U) R^{-1} r(U, \cdot)]

    with :math:`R = r(U, U)`, :math:`\gamma(x) = R^{-1} K_{UY} C^{-1} \Phi(x)`, :math:`G = \Phi^\top C^{-1} \Phi` and
    :math:`C = K_\Omega + \lambda I` at level 1, where U are the distinct outcomes; at level 0 the embedding is known to
    be its mean, with U = Y and :math:`\gamma = C^{-1} \Phi`.
    """

    space: OutcomeSpace
    outcome: Float[Array, "U d"]  # U
    factor: Float[Array, "V V"]  # the Cholesky factor L of the covariance of the distinct outcomes, at level 1 of R
    coordinates: Float[Array, "N V"]  # K_YU L^-T, the observations at N outcomes in the coordinates of that factor
    covariance_factor: Float[Array, "N N"]  # the Cholesky factor of C
    amplitude: Float[Array, ""]  # s
    level: int = eqx.field(static=True)  # 1 for the Bayesian embedding, 0 for the ridge regression

    def mean_map(self) -> Float[Array, "U N"]:
        r"""Return the matrix from :math:`\Phi(x)` to :math:`L^\top \gamma(x)`, at level 0 to :math:`\gamma(x)`."""
        if self.level == 0:
            return linalg.cho_inverse(self.covariance_factor)
        return linalg.cho_solve(self.covariance_factor, self.coordinates).T

    def whiten(self, rows: Float[Array, "U m"]) -> Float[Array, "U m"]:
        r"""Return :math:`L^{-1}` times a matrix (at level 0 the matrix), which keeps sums with :math:`\gamma`."""
        return rows if self.level == 0 else linalg.solve_lower(self.factor, rows)


class Effect(eqx.Module):
    r"""The effect of a treatment as a random function, by mean and the parts of its covariance.

    .. math:: E g(x) = \Phi(x)^\top w, \qquad \mathrm{cov}_s g = a_s F(x, x') - \Phi(x)^\top B_s \Phi(x')

    The coefficients are w, the scales a, the matrices B; the intervention gives :math:`\Phi` and F.
    """

    intervention: Intervention
    coefficients: Float[Array, " N"]
    scales: Float[Array, " s"]
    matrices: Float[Array, "s N N"]

    def as_function(self, level: int) -> RandomFunction:
        """Return the effect as a random function on the outcomes of the previous link, in the kernel of a level."""
        rows, scale, matrix = self.intervention.sections()
        matrices = rows.T @ self.matrices @ rows - self.scales[:, None, None] * matrix[None]
        coefficients = rows.T @ self.coefficients
        return RandomFunction(self.intervention.treatment, coefficients, self.scales * scale, matrices, level)


def inner_product(function: RandomFunction, embedding: RandomEmbedding, intervention: Intervention) -> Effect:
    r"""Return the inner products of a random function with the random embeddings of a link.

    .. math::

        E g &= \gamma^\top Q v \\
        \mathrm{cov}_{\text{function}} &= \gamma^\top (c\, S - Q A Q^\top)\, \gamma \\
        \mathrm{cov}_{\text{link}} &= s\,[(v^\top s_P v)\, F - (v^\top Q^\top R^{-1} Q v)\, G] \\
        \mathrm{cov}_{\text{interaction}} &= s\,[(c \|r\|^2 - \mathrm{tr}\, A s_P)\, F
            - (c\, \mathrm{tr}\, R^{-1} S - \mathrm{tr}\, R^{-1} Q A Q^\top)\, G]

    Q, S and :math:`s_P` are inner products of sections at (U, P), with the function's kernel at (U, U), and with r at
    (P, P). Only moments and the independence of function and embedding are used: the results are exact, but for the
    1e-10 of its mean diagonal that R gets where distinct outcomes are so close that it is numerically singular. The
    parts of the effect are the part of the link, the parts of the function, and the part of all interactions.

    References:
        Chau, Ton, Gonzalez, Teh and Sejdinovic, BayesIMP: uncertainty quantification for causal data fusion, 2021,
        propositions 3, 4 and C.2; the moments are exact where the paper projects on landmarks.
    """
    space, level, order = embedding.space, embedding.level, function.level
    mean_map = embedding.mean_map()
    across = embedding.whiten(space.chain(level + order, embedding.outcome, function.points))
    within = space.chain(2 * level + order, embedding.outcome, embedding.outcome)
    within = embedding.whiten(embedding.whiten(within).T)  # L^-1 S L^-T
    image = across @ function.coefficients  # L^-1 Q v
    spread = function.scales[:, None, None] * within[None] - across @ function.matrices @ across.T  # c S - Q A Q^T
    matrices = -(mean_map.T @ spread @ mean_map)  # negative: an `Effect` subtracts its matrices
    scales = jnp.zeros_like(function.scales)
    link_scale, link_matrix = jnp.zeros_like(scales[0]), jnp.zeros_like(matrices[0])
    if level:
        inverse = linalg.cho_inverse(embedding.covariance_factor)
        gram = space.chain(2 * order + 1, function.points, function.points)
        link_scale = embedding.amplitude * (function.coefficients @ gram @ function.coefficients)  # s v^T s_P v
        link_matrix = embedding.amplitude * jnp.dot(image, image) * inverse  # s v^T Q^T R^-1 Q v, of G
        scale, matrix = jnp.sum(function.scales), jnp.sum(function.matrices, axis=0)
        norm = space.squared_norm(function.points.shape[1]) if order else jnp.zeros_like(scale)
        interaction_scale = embedding.amplitude * (scale * norm - jnp.sum(matrix * gram))  # s (c |r|^2 - tr A s_P)
        interaction_trace = embedding.amplitude * jnp.trace(jnp.sum(spread, axis=0))  # s tr R^-1 (c S - Q A Q^T)
        scales = scales.at[-1].add(interaction_scale)
        matrices = matrices.at[-1].add(interaction_trace * inverse)
    return Effect(
        intervention,
        mean_map.T @ image,
        jnp.concatenate([link_scale[None], scales]),
        jnp.concatenate([link_matrix[None], matrices]),
    )
