"""Embeddings by kernel ridge regression of elements of an RKHS, as of pairs, and the choice of their regularization."""

# No `from __future__ import annotations`: Equinox reads `AbstractVar` off the annotation itself.

import abc
import functools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from kpp import linalg
from kpp.embeddings.means.elements import AbstractRegressors, BagMeans, KernelSections, PointSections
from kpp.embeddings.means.embedding import AbstractEmbedding, AbstractEmpiricalEmbedding
from kpp.foundation.validation import as_targets, check_rng_key, check_same_rows, count, finite_arrays, one_of
from kpp.kernels import RBF, AbstractKernel, check_non_negative, parameter
from kpp.linalg.toolkit import DenseRidge, FeatureRidge
from kpp.runtime.memory import check_matrices
from kpp.typing import AnyArray, Leaf, Numbers, Points, RngKey

_WHAT = "the regularized kernel matrix of the inputs"


class AbstractRegressionEmbedding(AbstractEmpiricalEmbedding):
    r"""An embedding that regresses elements of its RKHS on inputs.

    .. math:: \mu_q = \sum_{j=1}^N a_j(q)\, g_j, \qquad a(q) = (L + c\,\mathrm{diag}(1/r))^{-1} l(q)

    :math:`g_j` are the elements that belong to N inputs, such as sections of the kernel at points. L holds the inner
    products of the inputs, l(q) their inner products with a query, and :math:`r_j` is the number of times that input j
    is counted. The ridge is :math:`c = \lambda \sum_j r_j`, with the regularization :math:`\lambda`. If the inputs have
    few features, the weights take :math:`O(N q^2)` time and no matrix of all pairs of inputs is formed. Subclasses
    define `outputs` and `regressors`.
    """

    regularization: eqx.AbstractVar[Leaf]

    @property
    @abc.abstractmethod
    def outputs(self) -> PointSections | BagMeans:
        """The elements :math:`g_j`."""

    @property
    @abc.abstractmethod
    def regressors(self) -> AbstractRegressors:
        """The inputs, by their inner products."""

    @property
    def num_inputs(self) -> int:
        """The number of inputs, N."""
        return self.regressors.number

    @property
    def multiplicity(self) -> Float[Array, " N"] | None:
        """The number of times that each input is counted, r; None if each is counted once."""
        return None

    @property
    def ridge(self) -> Float[Array, ""]:
        r"""The ridge c, :math:`\lambda` times the sum of the multiplicities."""
        rows = self.num_inputs if self.multiplicity is None else jnp.sum(self.multiplicity)
        return rows * self.regularization

    def weights(self, query: Points | None = None) -> Float[Array, "n p"]:
        """Return the weights of the support points, (n, p): those of the inputs, shared equally within a bag."""
        return self.outputs.spread(self.input_weights(query))

    def evaluate(self, x: Points, query: Points | None = None) -> Float[Array, "p n"]:
        return self.outputs.combine(x, self.input_weights(query))

    def inner(
        self, other: AbstractEmbedding, query: Points | None = None, other_query: Points | None = None
    ) -> Float[Array, "p other_p"]:
        """Return the inner products, (p, p'); the Gram matrix of bags that both embeddings share is computed once."""
        its = other.outputs if isinstance(other, AbstractRegressionEmbedding) else None
        if not (isinstance(self.outputs, BagMeans) and isinstance(its, BagMeans) and its.bags is self.outputs.bags):
            return AbstractEmpiricalEmbedding.inner(self, other, query, other_query)
        self._check_same_space(other)
        return self.input_weights(query).T @ self.outputs.gram() @ other._coordinates(other_query)

    def input_weights(self, query: Points | None) -> Float[Array, "N p"]:
        """Return the weights of the inputs' elements for each query.

        Returns:
            The weights a(q), (N, p). They may be negative, and their sum may differ from 1.

        Raises:
            ValueError: If `query` is None.
        """
        if query is None:
            raise ValueError("`query` must hold values of the condition, one row each, got None")
        system, features = self._system(), self.regressors.features(query)
        if features is not None and isinstance(system, FeatureRidge):
            return system.weights(features)
        return system.solve(self.regressors.sections(query))

    def leave_one_out_losses(self) -> Float[Array, " N"]:
        r"""Return the squared error of the prediction of each input's element from all other inputs.

        .. math::

            \ell_j = \bigl\|g_j - \mu^{(-j)}_{y_j}\bigr\|^2 = \frac{(A G A)_{jj}}{A_{jj}^2}, \qquad
            A = (L + c\,\mathrm{diag}(1/r))^{-1}, \quad G_{jj'} = \langle g_j, g_{j'} \rangle

        The embedding without input j has the same ridge c.
        """
        return self._system().leave_one_out_norms(self.outputs)

    def held_out_losses(self, folds: Iterable[Int[AnyArray, " _"]]) -> Float[Array, " N"]:
        r"""Return the squared error of the prediction of each input's element from the inputs outside its fold.

        .. math:: g_i - \mu^{(-I)}_{y_i} = \sum_j \bigl[A_{II}^{-1} A_{I,\cdot}\bigr]_{ij} g_j

        Args:
            folds: Index arrays that split 0, ..., N - 1.

        Returns:
            The squared distances in the RKHS, (N,), in the order of the inputs. Matrices (N, N) are formed, also if the
            kernel has few features.
        """
        inverse = DenseRidge.create(self.regressors.gram(), self.ridge, self.multiplicity, what=_WHAT).inverse()
        gram = self.outputs.gram()
        losses = jnp.zeros(self.num_inputs, dtype=gram.dtype)
        for fold in folds:
            factor = linalg.cholesky(inverse[jnp.ix_(fold, fold)], what="the inverse over a fold")
            residuals = linalg.cho_solve(factor, inverse[fold])
            # The residuals of a fold, without a refit.
            losses = losses.at[fold].set(jnp.sum((residuals @ gram) * residuals, axis=1))
        return losses

    def log_evidence(self) -> Float[Array, ""]:
        r"""Return the log evidence of the regression, at its best amplitude.

        The coordinates of :math:`y \mapsto \mu_y` in an orthonormal basis of the span of :math:`g_1, \dots, g_N` are
        independent Gaussian processes with kernel s l, each :math:`g_j` is observed with independent noise of variance
        :math:`s c / r_j` in each coordinate, and :math:`s = \mathrm{tr}(C^{-1} G) / N^2` maximizes

        .. math::

            \log p = -\tfrac{N^2}{2} \log(2 \pi s) - \tfrac N2 \log\det C - \tfrac{1}{2 s} \mathrm{tr}(C^{-1} G),
            \qquad C = L + c\,\mathrm{diag}(1/r)

        In terms of the inner products G, whose covariance is :math:`C \otimes s G`, the same density is :math:`\log p -
        \tfrac N2 \log\det G`. The additional term depends neither on the inputs nor on the regularization, and is not
        defined if G is singular.

        Returns:
            The log evidence, a scalar. It can compare regularizations and input kernels, but not kernels of the space.

        References:
            Chau, Ton, Gonzalez, Teh and Sejdinovic, BayesIMP: uncertainty quantification for causal data fusion, 2021:
            the evidence of its Bayesian conditional mean embedding, with s G as the covariance of the outputs.
        """
        system, count = self._system(), self.num_inputs
        amplitude = system.trace(self.outputs) / count**2
        return -0.5 * count * (count * (jnp.log(2 * jnp.pi * amplitude) + 1) + system.log_determinant())

    def _system(self) -> DenseRidge | FeatureRidge:
        features = self.regressors.features()
        if features is not None and features.shape[1] <= self.num_inputs:
            return FeatureRidge.create(features, self.ridge, self.multiplicity, what=_WHAT)
        check_matrices(3, self.num_inputs, "a conditional mean embedding")
        return DenseRidge.create(self.regressors.gram(), self.ridge, self.multiplicity, what=_WHAT)

    def _coordinates(self, query: Points | None) -> Float[Array, "N p"]:
        return self.input_weights(query)

    def _reduce(self, values: Float[Array, "n *k"]) -> Float[Array, "N *k"]:
        return self.outputs.reduce(values)

    def _squared_norms(self, query: Points | None) -> Float[Array, " p"]:
        weights = self.input_weights(query)
        return jnp.sum(weights * self.outputs.moments(weights)[1], axis=0)


class ConditionalMeanEmbedding(AbstractRegressionEmbedding):
    r"""The embedding of the distribution of Z given X = x, from a sample of pairs.

    .. math:: \hat\mu_{Z|x} = \sum_i w_i(x)\, k(z_i, \cdot), \qquad w(x) = (K_X + n \lambda I)^{-1} k_X(X, x)

    It is kernel ridge regression of :math:`k(Z, \cdot)` on X: it minimizes
    :math:`\frac1n \sum_i \|k(z_i, \cdot) - \mu(x_i)\|^2 + \lambda \|\mu\|^2`.

    Args:
        kernel: The kernel k of the space of the embeddings. All arguments are given by keyword.
        input_kernel: The kernel :math:`k_X` of the condition.
        inputs: X, the n values of the condition: an array (n, d), or a batch of inputs of `input_kernel`.
        points: Z, the n points: an array (n, d'), or a batch of inputs of `kernel`.
        regularization: :math:`\lambda`, at least 0; it is multiplied by n. `select_regularization` chooses it.

    With an `input_kernel` of q features (`kpp.features`), at most n, the time is :math:`O(n q^2)` and no matrix (n, n)
    is formed: :math:`w(x) = \Phi (\Phi^\top \Phi + n \lambda I)^{-1} \phi(x)`.

    References:
        Song, Huang, Smola and Fukumizu, Hilbert space embeddings of conditional distributions, 2009, equation (6);
        Muandet et al., Kernel mean embedding of distributions, 2017, equation (4.6).
    """

    kernel: AbstractKernel = eqx.field(kw_only=True)
    input_kernel: AbstractKernel = eqx.field(kw_only=True)
    inputs: Points = eqx.field(converter=functools.partial(finite_arrays, name="inputs"), kw_only=True)
    points: Points = eqx.field(converter=functools.partial(finite_arrays, name="points"), kw_only=True)
    regularization: Leaf = eqx.field(converter=parameter("regularization"), kw_only=True)

    def __check_init__(self) -> None:
        check_non_negative(self.regularization, "regularization")
        for leaf in jax.tree.leaves((self.inputs, self.points)):
            if leaf.shape[:1] in ((), (0,)):
                raise ValueError(
                    f"`inputs` and `points` must hold at least one pair, got an array of shape {leaf.shape}"
                )
            check_same_rows(self.num_inputs, leaf.shape[0], "inputs", "points")

    @property
    def outputs(self) -> PointSections:
        return PointSections(self.kernel, self.points)

    @property
    def regressors(self) -> KernelSections:
        return KernelSections(self.input_kernel, self.inputs)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple["ConditionalMeanEmbedding", Any]]:
        inputs, points = jax.random.normal(rng_key, (6, 3)), jax.random.normal(rng_key, (6, 2)) + 0.3
        kernels = {"kernel": RBF(jnp.array([0.8, 1.5])), "input_kernel": RBF(1.2)}
        yield cls(**kernels, inputs=inputs, points=points, regularization=0.01), inputs[:3] - 0.2


_GRID = np.logspace(-7, 0, 15)
_CRITERIA = ("loss", "evidence")


class SelectedRegularization(NamedTuple):
    """The result of `select_regularization`.

    Attributes:
        embedding: The embedding with the regularization that has the lowest loss.
        grid: The regularizations tried.
        losses: The mean loss of each regularization, or its negative log evidence.
    """

    embedding: AbstractRegressionEmbedding
    grid: np.ndarray
    losses: np.ndarray


def select_regularization(
    embedding: AbstractRegressionEmbedding,
    grid: Numbers | None = None,
    *,
    criterion: str = "loss",
    num_folds: int | None = None,
    rng_key: RngKey | None = None,
) -> SelectedRegularization:
    r"""Choose the regularization of a conditional or deconditional embedding.

    The loss is `AbstractRegressionEmbedding.leave_one_out_losses`: the squared error of the prediction of an input's
    element from the other inputs. For bags, whole bags are left out, :math:`\|\hat\mu_j - \hat\mu^{(-j)}_{X|y_j}\|^2`.
    In the mean loss a bag has the same multiplicity as in the estimator: once, or once per point for the replicated
    estimator. The evidence is `AbstractRegressionEmbedding.log_evidence`; it uses all samples.

    Args:
        embedding: The embedding; its own regularization is ignored.
        grid: The values to try, positive; by default 15 from 1e-7 to 1.
        criterion: "loss" for cross-validation, "evidence" for the highest evidence.
        num_folds: The number of folds; by default each input is a fold, which does not take more time.
        rng_key: A JAX random key for the split into folds; not needed without `num_folds`.

    Returns:
        The embedding with the best value, and the mean loss, or the negative log evidence, of each.

    Raises:
        ValueError: If a value is not positive, the criterion is unknown or cannot use folds, or `num_folds` is not
            between 2 and the number of inputs.
    """
    values = as_targets(_GRID if grid is None else grid, name="grid")
    if not bool((values > 0).all()):
        raise ValueError(f"`grid` must hold positive numbers, got {float(values.min()):g} among them")
    one_of(criterion, "criterion", _CRITERIA)
    if criterion == "evidence" and num_folds is not None:
        raise ValueError(f"`num_folds` must be None for the criterion 'evidence', got {num_folds}")
    folds = None if num_folds is None else _split(embedding.num_inputs, num_folds, rng_key)
    losses = _losses(embedding, values, folds, criterion)
    if not bool(jnp.isfinite(losses).all()):
        raise linalg.FactorizationError(f"the kernel matrix of the inputs is singular with {float(values.min()):g}")
    best = eqx.tree_at(lambda tree: tree.regularization, embedding, values[jnp.argmin(losses)])
    return SelectedRegularization(best, np.asarray(values), np.asarray(losses))


@eqx.filter_jit
def _losses(
    embedding: AbstractRegressionEmbedding, grid: Array, folds: list[Array] | None, criterion: str
) -> Float[Array, " values"]:
    def loss(value: Array) -> Array:
        changed = eqx.tree_at(lambda tree: tree.regularization, embedding, value)
        if criterion == "evidence":
            return -changed.log_evidence()
        losses = changed.leave_one_out_losses() if folds is None else changed.held_out_losses(folds)
        return jnp.average(losses, weights=changed.multiplicity)

    return jax.lax.map(loss, grid)  # one factorization in memory at a time


def _split(num_inputs: int, num_folds: int, rng_key: RngKey | None) -> list[Array]:
    count(num_folds, "num_folds", 2, most=num_inputs, most_is="the number of inputs")
    order = np.asarray(jax.random.permutation(check_rng_key(rng_key), num_inputs))
    return [jnp.asarray(fold) for fold in np.array_split(order, num_folds)]
