r"""Conditional mean embeddings of all coalitions: the weights of background points given the present features.

.. math:: W_S = (K_{Z_S Z_S} + m \eta I)^{-1} K_{Z_S, x_S}

One matrix per coalition is factorized, for all explained points together.

In low rank, by kernel sections at b landmarks B, the features of a point are :math:`\phi_S(x) = L_S^{-1} k(B_S, x_S)`,
where :math:`K_{B_S B_S} = L_S L_S^\top`; landmarks that depend on others in S up to rounding are left out. With the
features :math:`\Phi_S` (m, b) of the background, the weights of the background points are

.. math:: W_S(x) = \Phi_S (\Phi_S^\top \Phi_S + m \eta I)^{-1} \phi_S(x).

They are the weights of ridge regression with Nyström's approximation of the kernel, restricted to S. A coalition takes
:math:`m b^2 + b^3` steps. Averages of functions, :math:`\sum_b W_{S,b}(x)\, g(z_b)`, need sums over the background
only, which are formed in blocks: no array (m, m) or (m, p) is formed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, PyTree

from kpp.foundation.validation import as_points, count
from kpp.games.values.product_games import masked_product
from kpp.kernels import RBF, AbstractKernel, AbstractProductKernel, Constant
from kpp.kernels.toolkit import has_product_terms
from kpp.linalg import add_diagonal, cho_solve, cholesky
from kpp.linalg.pivoted import pivoted_whitener
from kpp.linalg.toolkit import DenseRidge, FeatureRidge
from kpp.runtime.batching import average_chunks, even_size, split_rows, sum_over
from kpp.typing import Points

#: The name of the factorized matrix in messages.
REGULARIZED = "the regularized kernel matrix of the background"

#: A function from a coalition of features, which may be traced, to a matrix.
MatrixOf = Callable[[Bool[Array, " d"]], Float[Array, "n1 n2"]]

# The largest number of entries of a table of factors; beyond it factors are computed again for each coalition.
_MAX_TABLE = 2**25
# The number of background points from whose distances the default kernel gets its lengthscales.
_MEDIAN_ROWS = 128


def restricted_matrices(kernel: AbstractKernel, x1: Points, x2: Points) -> MatrixOf:
    """Return a function that restricts a kernel to a coalition and evaluates it at pairs of points.

    The scale of the kernel is removed. From a product kernel the factors of the other features are removed too. Any
    other kernel receives zeros in place of the other features; a kernel of distances then equals the kernel of the
    remaining features.

    Returns:
        A function of a mask (d,) that returns the matrix (n1, n2).
    """
    if not isinstance(kernel, AbstractProductKernel):
        correlation = kernel.split_scale()[1]
        return lambda mask: correlation(jnp.where(mask[None], x1, 0.0), jnp.where(mask[None], x2, 0.0))
    if not is_tabulated(kernel, x1.shape[0], x2):
        return lambda mask: kernel.restrict(mask)(x1, x2)
    factors = kernel.factors(x1, x2)
    return lambda mask: masked_product(factors, mask)


def is_tabulated(kernel: AbstractKernel, num_rows: int, points: Points) -> bool:
    """Return whether a table of the factors between rows and points saves time, and is not too large."""
    if isinstance(kernel, RBF) or not isinstance(kernel, AbstractProductKernel):  # an RBF takes one exponential
        return False
    return num_rows * points.size <= _MAX_TABLE


def median_kernel(background: Float[Array, "m d"]) -> RBF:
    r"""Return the RBF kernel whose lengthscales are :math:`\sqrt d` times the median distances, which may be traced.

    As in `kpp.kernels.median_heuristic`, pairs of points with equal values of a feature are left out, and a constant
    feature gets 1. If there are more than 128 points, 128 of them at equal steps are used.
    """
    rows = background[:: -(-background.shape[0] // _MEDIAN_ROWS)]
    first, second = np.triu_indices(rows.shape[0], 1)
    distances = jnp.abs(rows[first] - rows[second])
    medians = jnp.nanmedian(jnp.where(distances > 0, distances, jnp.nan), axis=0)
    return RBF(lengthscale=jnp.sqrt(rows.shape[1]) * jnp.where(jnp.isnan(medians), 1.0, medians))


def single_term(kernel: AbstractKernel) -> AbstractKernel | None:
    """Return the single product kernel of a kernel, ignoring constants; None if the kernel has several or none."""
    if not has_product_terms(kernel):
        return None
    terms = [term for term in kernel.product_terms() if not isinstance(term, Constant)]
    return terms[0] if len(terms) == 1 else None


def direct_solve(matrix: Float[Array, "m m"], right: Float[Array, "m p"], ridge: ArrayLike) -> Float[Array, "m p"]:
    r"""Return :math:`(A + \rho I)^{-1} B`, (m, p), by a Cholesky factorization.

    For many right-hand sides the inverse is formed: a matrix product takes half the time of two triangular solves.
    """
    system = DenseRidge.create(matrix, ridge, what=REGULARIZED)
    if 2 * right.shape[1] < right.shape[0]:
        return system.solve(right)
    return jnp.matmul(system.inverse(), right, precision="highest")


# The largest number of entries of the matrices of a block of background points.
_MAX_ENTRIES = 2**21

Mask = Bool[Array, " d"]


class _Columns(NamedTuple):
    """Values at the background points, in blocks, that depend on the coalition: a matrix (m, k)."""

    blocks: PyTree  # arrays that lead with the blocks
    of_block: Callable[[Any, Mask], Float[Array, "size k"]]  # of one block and a mask to the values (size, k)


class LandmarkEmbeddings(eqx.Module):
    """Conditional mean embeddings of all coalitions, by ridge regression on features at landmarks."""

    kernel: AbstractKernel  # see `restricted_matrices` for its restriction to a coalition
    landmarks: Float[Array, "b d"]
    background: Float[Array, "m d"]
    regularization: Float[Array, ""]  # of the regression, divided by m
    exact_ends: bool  # whether the weights are 1/m for no features and for all

    def weights_at(self, x: Float[Array, "p d"]) -> Callable[[Mask], Float[Array, "m p"]]:
        """Return a function from the mask of a coalition to the weights of the background at some points."""
        size, roots = self.background.shape[0], self._roots()
        outer = restricted_matrices(self.kernel, x, self.landmarks)
        inner = restricted_matrices(self.kernel, self.background, self.landmarks)

        def weights(mask: Mask) -> Array:
            root = roots(mask)
            system = FeatureRidge.create(_product(inner(mask), root.T), size * self.regularization)
            return jnp.where(self._is_end(mask), 1 / size, system.weights(_product(outer(mask), root.T)))

        return weights

    def averages(self, values: Float[Array, "m k"], x: Float[Array, "p d"]) -> Callable[[Mask], Float[Array, "p k"]]:
        """Return a function from the mask of a coalition to the weighted sums of values at the background points."""
        size = self._block_size(values.shape[1])
        blocks = split_rows(values, size)
        average = self._averages(_Columns(blocks, lambda block, _: block), size)
        return lambda mask: average(mask)(x)

    def absent_averages(
        self, pairs: Sequence[tuple[AbstractProductKernel, Points]]
    ) -> Callable[[Mask], Callable[[Float[Array, "p d"]], Float[Array, "p k"]]]:
        """Return the weighted sums of the factors of absent features, between the background and points of each term.

        They are a function from the mask of a coalition to a function from p points to the sums, (p, k) for k points of
        all product kernels, those of one after the other, without their scales.
        """
        size = self._block_size(sum(points.shape[0] for _, points in pairs))
        parts = [_sections(term, split_rows(self.background, size), points) for term, points in pairs]

        def of_block(blocks: tuple[PyTree, ...], mask: Mask) -> Array:
            return jnp.concatenate(
                [part.of_block(block, ~mask) for part, block in zip(parts, blocks, strict=True)], axis=1
            )

        return self._averages(_Columns(tuple(part.blocks for part in parts), of_block), size)

    def _averages(self, values: _Columns, size: int) -> Callable[[Mask], Callable[[Array], Float[Array, "p k"]]]:
        chunks, shares = average_chunks(self.background, size)
        sections = _sections(self.kernel, chunks, self.landmarks)
        num, roots = self.landmarks.shape[0], self._roots()

        def of_coalition(mask: Mask) -> Callable[[Array], Array]:
            root = roots(mask)

            def of_block(block: tuple[Array, PyTree, PyTree]) -> tuple[Array, Array]:
                share, kernel_block, value_block = block
                features = _product(sections.of_block(kernel_block, mask), root.T)
                columns = jnp.concatenate([features, values.of_block(value_block, mask)], axis=1)
                return _product((share[:, None] * features).T, columns), share @ columns

            products, means = sum_over(of_block, (shares, sections.blocks, values.blocks))
            factor = cholesky(add_diagonal(products[:, :num], self.regularization))
            coefficients = _product(root.T, cho_solve(factor, products[:, num:]))

            def at_points(x: Array) -> Array:
                found = _product(restricted_matrices(self.kernel, x, self.landmarks)(mask), coefficients)
                return jnp.where(self._is_end(mask), means[None, num:], found)

            return at_points

        return of_coalition

    def _roots(self) -> Callable[[Mask], Float[Array, "b b"]]:
        """Return a function from the mask of a coalition to the whitener of the landmarks' kernel matrix."""
        gram = restricted_matrices(self.kernel, self.landmarks, self.landmarks)
        return lambda mask: pivoted_whitener(gram(mask), what="the kernel matrix of the landmarks")

    def _is_end(self, mask: Mask) -> Bool[Array, ""]:
        return self.exact_ends & (jnp.all(mask) | ~jnp.any(mask))

    def _block_size(self, width: int) -> int:
        return even_size(self.background.shape[0], _MAX_ENTRIES // (self.landmarks.shape[0] + width))


def read_landmarks(value: ArrayLike, background: Float[Array, "m d"]) -> Float[Array, "b d"]:
    """Return landmarks, which are points or the number of rows of the background to take at even steps."""
    size, num_features = background.shape
    if np.ndim(value) == 0:
        num = count(value, "landmarks", most=size, most_is="the number of background points")
        return background[np.arange(num) * size // num]
    return as_points(value, "landmarks", num_features=num_features)


def _sections(kernel: AbstractKernel, blocks: Float[Array, "k s d"], points: Points) -> _Columns:
    """Return the restricted kernel between blocks of background points and other points."""
    num_rows = blocks.shape[0] * blocks.shape[1]
    if isinstance(kernel, AbstractProductKernel) and is_tabulated(kernel, num_rows, points):
        tables = jax.lax.map(lambda rows: kernel.factors(rows, points), blocks)
        return _Columns(tables, masked_product)
    return _Columns(blocks, lambda rows, mask: restricted_matrices(kernel, rows, points)(mask))


def _product(first: Array, second: Array) -> Array:
    return jnp.matmul(first, second, precision="highest")
