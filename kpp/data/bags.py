r"""Bags: points in groups, and averages over the groups.

A bag is a sample of points, :math:`x_j^1, \dots, x_j^{n_j}`, that belong together: the fine pixels under a coarse one,
the people of a district. A covariate :math:`y_j` describes the bag. Kernels need only means over the points of a bag,
:math:`\hat\mu_j = \frac{1}{n_j} \sum_i k(x_j^i, \cdot)`, and inner products of such means; here they are computed in
blocks, so that the matrix of all pairs of points is never stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from kpp.data.tables import read_points
from kpp.foundation.arguments import guard_exports
from kpp.foundation.validation import (
    as_finite_array,
    check_array,
    check_same_rows,
    count,
    is_concrete,
    refuse_masked,
    refuse_missing_labels,
)
from kpp.kernels import AbstractKernel
from kpp.runtime.batching import sum_over
from kpp.storage.serialization import data_class
from kpp.typing import Numbers, Points, RngKey

_BLOCK = 512  # rows and columns of the blocks in which kernel matrices are computed


@data_class
class Bags(eqx.Module):
    """Points sorted by bag, and one covariate per bag; built by `Bags.create`.

    Args:
        points: The points of all bags, (n, d), with the points of bag 0 first.
        index: The bag of each point, (n,), integers that do not decrease.
        sizes: The number of points of each bag, (N,), all positive.
        covariates: The covariates of each bag, (N, dy), or None.
        feature_names: The names of the columns of `points`.
        covariate_names: The names of the columns of `covariates`.

    Example:
        >>> bags = kpp.Bags.create(x[:5], bag=[0, 0, 0, 1, 1])
        >>> bags.sizes.tolist()
        [3, 2]
    """

    points: Float[Array, "n d"]
    index: Int[Array, " n"]
    sizes: Int[Array, " N"]
    covariates: Float[Array, "N dy"] | None = None
    feature_names: tuple[str, ...] = eqx.field(static=True, default=())
    covariate_names: tuple[str, ...] = eqx.field(static=True, default=())

    def __check_init__(self) -> None:
        for name, ndim in (("points", 2), ("index", 1), ("sizes", 1)):
            check_array(getattr(self, name), name, ndim)
        if self.covariates is not None:
            check_array(self.covariates, "covariates", 2)

    @classmethod
    def create(cls, points: object, bag: object, covariates: object = None, *, covariate_bag: object = None) -> Bags:
        """Group points into bags.

        Args:
            points: n points, an array (n, d) or a data frame of numbers.
            bag: The bag of each point, n labels. Without `covariate_bag` they are the integers 0 to N - 1, the rows of
                `covariates`.
            covariates: One row per bag, an array (N, dy) or a data frame of numbers; None for bags without covariates.
            covariate_bag: The label of each row of `covariates`, N different ones.

        Returns:
            The bags, in the order of the rows of `covariates`, or of the sorted labels if there are no covariates.

        Raises:
            ValueError: If rows do not match, values are missing, a bag is empty, or a point's bag has no covariate.
        """
        rows, names = _read_numbers(points, "points")
        bag = _as_labels(bag, "bag")
        check_same_rows(len(rows), len(bag), "points", "bag")
        table, covariate_names = (None, ()) if covariates is None else _read_numbers(covariates, "covariates")
        labels = _labels(bag, table, covariate_bag)
        position = {label: number for number, label in enumerate(labels)}
        _refuse_unmatched(bag, position)
        index = np.array([position[label] for label in bag.tolist()])
        sizes = np.bincount(index, minlength=len(labels))
        order = np.argsort(index, kind="stable")
        known = None if table is None else jnp.asarray(table, float)
        sorted_points = jnp.asarray(rows[order], float)
        return cls(sorted_points, jnp.asarray(index[order]), jnp.asarray(sizes), known, names, covariate_names)

    @classmethod
    def of_single_points(cls, points: object, covariates: object = None) -> Bags:
        """Return bags of one point each, in the order of the points.

        Args:
            points: N points, (N, d), or a data frame.
            covariates: N covariates, (N, dy), or None.
        """
        rows, _ = _read_numbers(points, "points")
        return cls.create(points, np.arange(len(rows)), covariates)

    @property
    def num_bags(self) -> int:
        """The number of bags, N."""
        return self.sizes.shape[0]

    @property
    def num_points(self) -> int:
        """The number of points of all bags together, n."""
        return self.points.shape[0]

    def means(self, values: Numbers) -> Float[Array, "N *k"]:
        """Average values at the points over each bag.

        Args:
            values: One row per point, (n,) or (n, k), in the order of `points`.

        Returns:
            The means, (N,) or (N, k).

        Raises:
            ValueError: If values that are not traced are NaN or infinite, or not one row per point.
        """
        if is_concrete(values):
            as_finite_array(values, "values")
        values = jnp.asarray(values)
        check_same_rows(self.num_points, values.shape[0] if values.ndim else 1, "points", "values")
        sums = jax.ops.segment_sum(values, self.index, self.num_bags, indices_are_sorted=True)
        return sums / self._column(self.sizes, sums.ndim)

    def spread(self, weights: Numbers) -> Float[Array, "n *k"]:
        r"""Share weights of bags equally among their points, the transpose of `means`.

        Args:
            weights: One row per bag, (N,) or (N, k).

        Returns:
            :math:`w_j / n_j` for each point of bag j, (n,) or (n, k).

        Raises:
            ValueError: If weights that are not traced are NaN or infinite, or not one row per bag.
        """
        if is_concrete(weights):
            as_finite_array(weights, "weights")
        weights = jnp.asarray(weights)
        check_same_rows(self.num_bags, weights.shape[0] if weights.ndim else 1, "sizes", "weights")
        return (weights / self._column(self.sizes, weights.ndim))[self.index]

    def sections(self, kernel: Callable[[Any, Any], Array], x: Points) -> Float[Array, "N p"]:
        r"""Evaluate the mean embeddings of the bags, :math:`\frac{1}{n_j} \sum_i k(x_j^i, x)`.

        Returns:
            The values, (N, p). Memory grows with p and not with n.
        """
        if self.num_points <= _BLOCK:
            return self.means(kernel(self.points, x))

        @jax.checkpoint  # derivatives compute a block again, instead of keeping all
        def block(item: tuple[Array, Array]) -> Array:
            return self._sum(kernel(item[0], x), item[1])

        return sum_over(block, self._blocks())[: self.num_bags] / self._column(self.sizes, 2)

    def gram(self, kernel: AbstractKernel) -> Float[Array, "N N"]:
        r"""Return the inner products of the bags' mean embeddings.

        .. math:: G_{jj'} = \frac{1}{n_j n_{j'}} \sum_{i, i'} k(x_j^i, x_{j'}^{i'})

        Args:
            kernel: k.

        Returns:
            The matrix, (N, N). The kernel is evaluated at n (n + 1) / 2 pairs, block by block.
        """
        if self.num_points <= _BLOCK:
            return self.means(self.means(kernel.gram(self.points)).T)
        points, index = self._blocks()
        first, second = np.triu_indices(index.shape[0])
        share = jnp.asarray(np.where(first == second, 0.5, 1.0), dtype=points.dtype)

        @jax.checkpoint
        def block(pair: tuple[Array, Array, Array]) -> Array:
            i, j, share = pair
            return share * self._sum(self._sum(kernel(points[i], points[j]), index[i]).T, index[j])

        pairs = (jnp.asarray(first), jnp.asarray(second), share)
        half = sum_over(block, pairs)[: self.num_bags, : self.num_bags]
        return (half + half.T) / (self.sizes[:, None] * self.sizes[None, :])

    def coincidence(self) -> Float[Array, "N N"]:
        r"""Return the probability that random points of two bags are the same point.

        .. math:: \Delta_{jj'} = \frac{1}{n_j n_{j'}} \sum_{i, i'} 1\{x_j^i = x_{j'}^{i'}\}

        It is the Gram matrix of white noise on the points, :math:`\mathrm{diag}(1 / n_j)` where all points differ.

        Returns:
            The matrix, (N, N). Not traceable by JAX.
        """
        from scipy.sparse import coo_matrix

        _, same = np.unique(np.asarray(self.points), axis=0, return_inverse=True)
        share = 1.0 / np.asarray(self.sizes)[np.asarray(self.index)]
        weights = coo_matrix((share, (np.asarray(self.index), np.ravel(same)))).tocsr()
        return jnp.asarray((weights @ weights.T).toarray(), dtype=self.points.dtype)

    def centroids(self) -> Float[Array, "N d"]:
        """Return the mean point of each bag, (N, d)."""
        return self.means(self.points)

    def take(self, bags: object) -> Bags:
        """Return some of the bags, in the given order.

        Args:
            bags: Their numbers, each at most once.

        Returns:
            The bags. Not traceable by JAX.

        Raises:
            ValueError: If there are no numbers, or one is repeated or not the number of a bag.
        """
        chosen = np.asarray(bags)
        if chosen.ndim != 1 or chosen.dtype.kind not in "iu" or not chosen.size:
            raise ValueError(f"`bags` must hold the numbers of at least one bag, got {bags!r}")
        unknown = np.setdiff1d(chosen, np.arange(self.num_bags))
        if unknown.size:
            raise ValueError(f"`bags` must hold numbers from 0 to {self.num_bags - 1}, got {unknown.tolist()}")
        if len(np.unique(chosen)) < len(chosen):
            raise ValueError(f"`bags` must hold each number at most once, got {chosen.tolist()}")
        rows = [np.flatnonzero(np.asarray(self.index) == number) for number in chosen]
        index = np.repeat(np.arange(len(chosen)), [len(part) for part in rows])
        covariates = None if self.covariates is None else self.covariates[chosen]
        points, sizes = self.points[np.concatenate(rows)], self.sizes[chosen]
        return Bags(points, jnp.asarray(index), sizes, covariates, self.feature_names, self.covariate_names)

    def subsample(self, rng_key: RngKey, num: int) -> Bags:
        """Draw points of each bag without replacement.

        Args:
            rng_key: A JAX random key.
            num: How many points of each bag, at least 1; a smaller bag keeps all its points.

        Returns:
            The bags with fewer points. Not traceable by JAX.

        Raises:
            ValueError: If `num` is not an integer of at least 1.
        """
        count(num, "num")
        shuffled = np.asarray(jax.random.permutation(rng_key, self.num_points))
        order = shuffled[np.argsort(np.asarray(self.index)[shuffled], kind="stable")]
        starts = np.concatenate([[0], np.cumsum(np.asarray(self.sizes))[:-1]])
        kept = np.sort(order[np.arange(self.num_points) - starts[np.asarray(self.index)] < num])
        sizes = jnp.minimum(self.sizes, num)
        points, index = self.points[kept], self.index[kept]
        return Bags(points, index, sizes, self.covariates, self.feature_names, self.covariate_names)

    def _blocks(self) -> tuple[Float[Array, "b c d"], Int[Array, "b c"]]:
        """Cut the points into blocks of one size; an additional bag, dropped later, fills up the last block."""
        size = min(_BLOCK, self.num_points)
        number = -(-self.num_points // size)
        missing = number * size - self.num_points
        points = jnp.pad(self.points, ((0, missing), (0, 0)), mode="edge")
        index = jnp.pad(self.index, (0, missing), constant_values=self.num_bags)
        return points.reshape(number, size, -1), index.reshape(number, size)

    def _sum(self, values: Float[Array, "c k"], index: Int[Array, " c"]) -> Float[Array, "N_and_1 k"]:
        return jax.ops.segment_sum(values, index, self.num_bags + 1, indices_are_sorted=True)

    @staticmethod
    def _column(sizes: Array, ndim: int) -> Array:
        return sizes.reshape(-1, *(1,) * (ndim - 1))


def _read_numbers(table: object, name: str) -> tuple[np.ndarray, tuple[str, ...]]:
    rows, schema = read_points(table, name)
    if schema.levels:
        raise ValueError(f"`{name}` must hold numbers, got text in the columns {sorted(schema.levels)}")
    return np.asarray(rows), schema.feature_names


def _as_labels(labels: object, name: str) -> np.ndarray:
    refuse_masked(labels, name)
    array = np.asarray(labels)
    if array.ndim != 1:
        raise ValueError(f"`{name}` must hold one label per row, shape (n,), got shape {array.shape}")
    refuse_missing_labels(array, name)
    return array


def _labels(bag: np.ndarray, covariates: np.ndarray | None, covariate_bag: object) -> list[Any]:
    """Return the labels of the bags in their order."""
    if covariate_bag is not None:
        if covariates is None:
            raise ValueError("`covariate_bag` names the rows of `covariates`, which is None")
        labels = _as_labels(covariate_bag, "covariate_bag")
        check_same_rows(len(covariates), len(labels), "covariates", "covariate_bag")
        values, counts = np.unique(labels, return_counts=True)
        if (counts > 1).any():
            raise ValueError(f"`covariate_bag` must hold each label once, got {_few(values[counts > 1])} more often")
        return labels.tolist()
    if covariates is None:
        return np.unique(bag).tolist()
    if bag.dtype.kind not in "iu":
        raise ValueError(
            f"`bag` must hold the integers 0 to {len(covariates) - 1}, rows of `covariates`, got dtype {bag.dtype}; "
            "give the labels of these rows as `covariate_bag`"
        )
    return list(range(len(covariates)))


def _refuse_unmatched(bag: np.ndarray, position: dict[Any, int]) -> None:
    found = set(bag.tolist())
    unknown = [label for label in sorted(found, key=str) if label not in position]
    if unknown:
        raise ValueError(f"`bag` names {len(unknown)} bags without a row in `covariates`: {_few(unknown)}")
    empty = [label for label in position if label not in found]
    if empty:
        raise ValueError(
            f"`covariates` has rows for {len(empty)} bags without points: {_few(empty)}; leave these rows out"
        )


def _few(labels: Sequence[object] | np.ndarray) -> str:
    shown = [str(label) for label in list(labels)[:5]]
    return ", ".join(shown) + (", ..." if len(labels) > 5 else "")


guard_exports(globals())
