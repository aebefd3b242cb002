"""The observational value function: absent features follow their conditional distribution given the present ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from kpp.embeddings import ConditionalMeanEmbedding
from kpp.features import Nystrom
from kpp.foundation.validation import as_points, as_targets, check_rng_key, is_concrete, one_of, warn_if_float32
from kpp.foundation.wording import warn_at_edge
from kpp.functions import RKHSFunction
from kpp.games.players.players import Coalitions, CoalitionTable, Instances, all_coalitions, as_coalitions
from kpp.games.values.abstract import AbstractValueFunction
from kpp.games.values.conditional.conditional_embeddings import (
    REGULARIZED,
    LandmarkEmbeddings,
    MatrixOf,
    direct_solve,
    median_kernel,
    read_landmarks,
    restricted_matrices,
    single_term,
)
from kpp.games.values.imputation import imputed_values, mean_prediction
from kpp.games.values.product_games import example_functions
from kpp.games.values.weighted import MAX_ENTRIES, AbstractWeighted, embedded_values, weighted_sums
from kpp.kernels import AbstractKernel, AbstractProductKernel, Matern12, parameter
from kpp.kernels.toolkit import check_positive
from kpp.linalg import FactorizationError
from kpp.linalg.toolkit import DenseRidge
from kpp.runtime.batching import NUM_BLOCKS, map_blocks, map_rows, rows_that_fit, sum_arrays
from kpp.runtime.memory import check_count, check_memory
from kpp.runtime.random import uniform
from kpp.runtime.threads import num_cores
from kpp.typing import AnyArray, Leaf, PointFunction, RngKey

# The least number of coalitions in a block that a thread values.
_FEWEST = 8
# The matrices (m, m) of a coalition that are in memory at the same time, at least.
_MATRICES = 2
_OPTIONS = {"estimator": ("auto", "imputed", "embedded"), "end_points": ("exact", "raw")}


def _as_landmarks(landmarks: Any) -> Float[Array, "b d"] | None:
    """Return landmarks as points; a number of them has been replaced by points before."""
    return None if landmarks is None else as_points(landmarks, "landmarks")


class Observational(AbstractWeighted):
    r"""Absent features follow their conditional distribution given the present ones, by conditional mean embeddings.

    .. math::

        v(S) = \sum_{b=1}^m W_{S,b}(x)\, f(x_S, z_{b, S^c}), \qquad
        W_S(x) = (K_{Z_S Z_S} + m \eta I)^{-1} k(Z_S, x_S)

    for the estimator "imputed". The estimator "embedded" is :math:`v(S) = \sum_b W_{S,b}(x)\, f(z_b)`: present features
    come from the background, too. It needs only m predictions for any number of coalitions and points. However, its
    regression is on functions of all d features instead of the absent ones, which is harder: prefer "imputed" if its
    cost is acceptable. The default is "imputed", but "embedded" for an `RKHSFunction` whose kernel is not a sum of
    product kernels.

    The weight that is missing to 1 goes to the intercept of an `RKHSFunction` and to the mean prediction of any other
    function. The formula alone gives the empty coalition the value :math:`\bar f / (1 + \eta)` and the full one
    :math:`f(x) \sum_b W_b(x)`. By default both are replaced by the exact values, the mean prediction over the
    background and f(x), so that Shapley values add up to the prediction; "raw" keeps the formula.

    The kernel k is a product kernel restricted to S, without its scale: by default the kernel of the function, if it is
    a product kernel with or without a constant, otherwise an RBF kernel whose lengthscales are :math:`\sqrt d` times
    the median distances of the background (`kpp.kernels.median_heuristic`). Other kernels receive zeros for absent
    features.

    Args:
        background: The background points z, (m, d), a sample of the distribution of the features.
        regularization: :math:`\eta`, positive; `select` chooses it by cross-validation.
        kernel: k, or None for the default.
        estimator: "imputed", "embedded", or "auto" for the default.
        end_points: "exact" or "raw".
        landmarks: None for the exact weights; or B, the landmarks of weights in low rank: an array (b, d), or the
            number b of background points to take, at even steps.

    With landmarks, :math:`K_{Z_S Z_S}` is replaced by Nyström's approximation with the landmarks, restricted to S,

    .. math::

        W_S(x) = \Phi_S (\Phi_S^\top \Phi_S + m \eta I)^{-1} \phi_S(x), \qquad
        \phi_S(x) = L_S^{-1} k(B_S, x_S), \quad K_{B_S B_S} = L_S L_S^\top,

    which takes :math:`m b^2 + b^3` instead of :math:`m^3` steps per coalition, and forms no matrix (m, m). With all
    background points as landmarks it is the exact game. `kpp.games.landmark_error` measures the difference. Landmarks
    may be equal in some features: those that depend on others in S up to rounding are left out. If landmarks are close
    in S, the values at points far from them may have errors of the order :math:`10^{-8} / (m \eta)`, and larger errors
    if many background points are also far from the landmarks.

    Example:
        >>> game = kpp.games.Observational(background=x, regularization=1e-3)
        >>> kpp.explain(fit, x[:1], value_function=game, covariance=None).mean().values.round(2).values
        array([[ 0.4 , -0.16]])

    References:
        Chau, Hu, Gonzalez and Sejdinovic, RKHS-SHAP, 2022, proposition 3 and, for other kernels than product kernels,
        appendix C, equations (C.4) and (C.5); Chau, Towards trustworthy machine learning with kernels, 2023, section
        5.2.2, and Williams and Seeger, Using the Nyström method to speed up kernel machines, 2001, equation (9), for
        low rank.
    """

    background: Float[AnyArray, "m d"] = eqx.field(converter=lambda value: as_points(value, "background"))
    regularization: Leaf = eqx.field(converter=parameter("regularization"), default=1e-4)
    kernel: AbstractKernel | None = None
    estimator: str = eqx.field(static=True, default="auto")
    end_points: str = eqx.field(static=True, default="exact")
    landmarks: Float[AnyArray, "b d"] | int | None = eqx.field(converter=_as_landmarks, default=None)

    def __post_init__(self) -> None:
        """Replace a number of landmarks by rows of the background."""
        if self.landmarks is not None:
            self.landmarks = read_landmarks(self.landmarks, as_points(self.background, "background"))

    def __check_init__(self) -> None:
        for name, allowed in _OPTIONS.items():
            one_of(getattr(self, name), name, allowed)
        if jnp.shape(self.regularization) != ():
            raise ValueError(f"`regularization` must be one number, got shape {jnp.shape(self.regularization)}")
        check_positive(self.regularization, "regularization", infinity_allowed=False)

    def __call__(self, function: PointFunction, x: object, coalitions: object) -> CoalitionTable:
        """Value coalitions at points; the function may also be any callable from (n, d) to (n,) or (n, outputs).

        Raises:
            ValueError: If `x` or `coalitions` are invalid, or the system is numerically singular.
        """
        x = as_points(x, num_features=self.background.shape[1])
        coalitions = as_coalitions(coalitions, x.shape[1])
        warn_if_float32("Observational")
        if self.landmarks is None:
            size = self.background.shape[0]
            num_bytes = _MATRICES * size**2 * self.background.dtype.itemsize
            advice = "give the option `landmarks=200`, which forms no matrix of all pairs of background points"
            check_memory(num_bytes, f"an exact observational game with m = {size} background points", advice)
        if self.is_embedded(function):
            values = embedded_values(self, function, x, jnp.asarray(coalitions))
        elif isinstance(function, RKHSFunction) and function.has_product_parts:
            values = self._values_of_products(function, x, coalitions)
        else:
            values = imputed_values(self, function, x, coalitions)
        if is_concrete(values) and not np.isfinite(values).all():
            matrix = "kernel matrix of the background" if self.landmarks is None else "features at the landmarks"
            raise FactorizationError(
                f"`regularization` {self.regularization} is too small for the {matrix}: some values are NaN or "
                "infinite; make it larger, or remove duplicated rows"
            )
        return values

    def base(self, function: PointFunction) -> Float[Array, "*draws *outputs"]:
        """Return the value of the empty coalition: with exact end points the mean prediction over the background."""
        if self.has_exact_ends:
            return mean_prediction(function, jnp.asarray(self.background))
        empty = np.zeros((1, self.background.shape[1]), dtype=bool)
        values = self(function, self.background[:1], empty)
        axis = len(function.batch_shape) if isinstance(function, RKHSFunction) else values.shape.index(1)
        return jnp.squeeze(values, axis=(axis, axis + 1))

    @property
    def has_exact_ends(self) -> bool:
        return self.end_points == "exact"

    def impute(self, function: object, x: Instances, coalitions: Coalitions) -> Float[Array, "c p m d"]:
        """Return the rows whose predictions are averaged; for "embedded" they are the background points, unchanged."""
        if not self.is_embedded(function):
            return super().impute(function, x, coalitions)
        return self.impute_from_background(x, coalitions)

    def is_embedded(self, function: object) -> bool:
        """Return whether "embedded" is used for a function: present features come from the background, too."""
        if self.estimator == "auto":
            return isinstance(function, RKHSFunction) and not function.has_product_parts
        return self.estimator == "embedded"

    def kernel_for(self, function: object) -> AbstractKernel:
        """Return the field `kernel`, else the product kernel of the function, else the RBF that the class describes."""
        if self.kernel is not None:
            return single_term(self.kernel) or self.kernel
        own = single_term(function.spanned.kernel) if isinstance(function, RKHSFunction) else None
        return own or median_kernel(jnp.asarray(self.background))

    def embeddings(self, kernel: AbstractKernel) -> LandmarkEmbeddings:
        """Return the conditional mean embeddings in low rank; the game must have landmarks."""
        background, landmarks = jnp.asarray(self.background), jnp.asarray(self.landmarks)
        regularization = jnp.asarray(self.regularization, background.dtype)
        return LandmarkEmbeddings(kernel, landmarks, background, regularization, self.has_exact_ends)

    def averages_of(self, kernel: AbstractKernel, x: Float[Array, "p d"], values: Float[Array, "m k"]) -> MatrixOf:
        if self.landmarks is None:
            return weighted_sums(self.weights_of(kernel, x), values)
        return self.embeddings(kernel).averages(values, x)

    def weights_of(self, kernel: AbstractKernel, x: Float[Array, "p d"] | None) -> MatrixOf:
        background = jnp.asarray(self.background)
        if self.landmarks is not None:
            return self.embeddings(kernel).weights_at(background if x is None else x)
        ridge = (background.shape[0] * self.regularization).astype(background.dtype)
        inner = restricted_matrices(kernel, background, background)
        outer = inner if x is None else restricted_matrices(kernel, background, x)

        def weights(mask: Bool[Array, " d"]) -> Array:
            if x is None:
                found = DenseRidge.create(inner(mask), ridge, what=REGULARIZED).smoother()
            else:
                found = direct_solve(inner(mask), outer(mask), ridge)
            at_end = self.has_exact_ends & (jnp.all(mask) | ~jnp.any(mask))
            return jnp.where(at_end, 1 / background.shape[0], found)

        return weights

    def _values_of_products(self, function: RKHSFunction, x: Array, coalitions: Coalitions) -> CoalitionTable:
        """Value coalitions of a sum of product kernels; many of them in as many threads as there are cores."""
        # If the explained points are known to be the background, the computation is faster.
        known = self.landmarks is None and is_concrete(x) and is_concrete(self.background)
        points = None if known and np.array_equal(np.asarray(x), np.asarray(self.background)) else x

        def of_block(block: Bool[AnyArray, "b d"]) -> Array:
            if self.landmarks is not None:
                return _landmark_values(self, function, x, jnp.asarray(block))
            return _product_values(self, function, points, jnp.asarray(block))

        size = math.ceil(coalitions.shape[0] / NUM_BLOCKS)
        if size < _FEWEST or not all(map(is_concrete, jax.tree.leaves((self, function, x, coalitions)))):
            return of_block(coalitions)
        axis = len(function.batch_shape)
        return jnp.asarray(map_blocks(of_block, coalitions, size, axis=axis, threads=num_cores()))

    @classmethod
    def select(
        cls,
        background: Any,
        kernel: AbstractKernel | None = None,
        *,
        grid: object = None,
        num_coalitions: int = 20,
        rng_key: RngKey | None = None,
        **options: Any,
    ) -> Observational:
        r"""Choose the regularization by cross-validation.

        The loss is the mean squared distance, in the RKHS, of each background point from the conditional mean embedding
        of all others at that point, averaged over coalitions; leaving one out takes no more time than fitting.

        Args:
            background: The background points, (m, d), with at least two features.
            kernel: The kernel, preferably the kernel of the function to explain; None for the RBF kernel described
                above.
            grid: The values to try, positive; by default 9 from 1e-6 to 1e-2.
            num_coalitions: How many proper coalitions to average over, of sizes drawn uniformly; all proper coalitions
                if there are not more.
            rng_key: A JAX random key for the coalitions, if there are more.
            **options: Other fields of the class.

        Returns:
            A value function with the regularization of the lowest loss, and with the kernel.

        Raises:
            ValueError: If there are fewer than two features, or a value is not positive.
            TypeError: If a random key is needed and none is given.
        """
        game = cls(background, kernel=kernel, **options)
        values = as_targets(np.logspace(-6, -2, 9) if grid is None else grid, name="grid")
        check_positive(values, "grid")
        coalitions = proper_coalitions(game.background.shape[1], num_coalitions, rng_key)
        losses = _leave_one_out_losses(game, values, jnp.asarray(coalitions))
        best = values[jnp.nanargmin(losses)]  # NaN where the matrix cannot be factorized
        warn_at_edge({"regularization": (float(best), values)})
        return eqx.tree_at(lambda tree: tree.regularization, game, best)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractValueFunction, RKHSFunction, Any]]:
        _, (function, x), outputs = list(example_functions(rng_key))
        yield cls(function.points[:3] + 0.1, 0.01), function, x
        other = RKHSFunction(Matern12(lengthscale=1.5), function.points, outputs[0].coefficients, outputs[0].intercept)
        yield cls(function.points[:3] + 0.1, 0.01), other, x
        yield cls(function.points + 0.1, 0.01, landmarks=3), function, x


@eqx.filter_jit
def _product_values(
    value_function: Observational, function: RKHSFunction, x: Array | None, coalitions: Array
) -> CoalitionTable:
    """Value coalitions of a sum of product kernels, by weighted sums of the factors of absent features.

    If the points are None, they are the background.
    """
    background = jnp.asarray(value_function.background)

    def of_draw(draw: RKHSFunction) -> Array:
        def block(rows: Array | None) -> Array:
            weights = value_function.weights_of(value_function.kernel_for(draw), rows)
            parts = [_term_sums(term, part, background, rows) for term, part in draw.product_parts()]

            def of_coalition(mask: Array) -> Array:
                found = weights(mask)
                return sum_arrays(part(mask, found) for part in parts)

            return jnp.swapaxes(jax.lax.map(of_coalition, coalitions), 0, 1)

        if x is None:
            values = block(None)
        else:
            entries = draw.num_points + background.shape[0]
            values = map_rows(block, x, rows_that_fit(x.shape[0], entries, MAX_ENTRIES))
        values = jnp.swapaxes(values, 0, 1)
        return values + jnp.broadcast_to(draw.intercept, values.shape)

    return function.map_draws(of_draw)


@eqx.filter_jit
def _landmark_values(
    value_function: Observational, function: RKHSFunction, x: Array, coalitions: Array
) -> CoalitionTable:
    """Value coalitions of a sum of product kernels in low rank, by averages of the factors of absent features."""

    def of_draw(draw: RKHSFunction) -> Array:
        pairs = [(term, part.points) for term, part in draw.product_parts()]
        averages = value_function.embeddings(value_function.kernel_for(draw)).absent_averages(pairs)
        coefficients = jnp.concatenate([term.scale * part.coefficients for term, part in draw.product_parts()])
        size = rows_that_fit(x.shape[0], coefficients.shape[0], MAX_ENTRIES)

        def of_coalition(mask: Array) -> Array:
            average = averages(mask)

            def of_points(rows: Array) -> Array:
                present = [restricted_matrices(term, rows, points)(mask) for term, points in pairs]
                sections = jnp.concatenate(present, axis=1) * average(rows)
                return jnp.tensordot(sections, coefficients, axes=(1, 0), precision="highest")

            return map_rows(of_points, x, size)

        values = jax.lax.map(of_coalition, coalitions)
        return values + jnp.broadcast_to(draw.intercept, values.shape)

    return function.map_draws(of_draw)


def _term_sums(
    term: AbstractProductKernel, function: RKHSFunction, background: Array, x: Array | None
) -> Callable[[Array, Array], Float[Array, "p *outputs"]]:
    r"""Return the function of a mask and its weights :math:`\sigma^2 \sum_i \alpha_i a_{ip} \sum_b c_{ib} W_{bp}`."""
    absent = restricted_matrices(term, function.points, background)
    present = absent if x is None else restricted_matrices(term, function.points, x)

    def sums(mask: Array, weights: Array) -> Array:
        sections = present(mask) * jnp.matmul(absent(~mask), weights, precision="highest")
        return term.scale * jnp.tensordot(sections, function.coefficients, axes=(0, 0), precision="highest")

    return sums


def proper_coalitions(num_features: int, num_coalitions: int, rng_key: RngKey | None) -> Bool[np.ndarray, "c d"]:
    """Return all proper coalitions, or `num_coalitions` of them with sizes drawn uniformly, if there are more."""
    if num_features < 2:
        raise ValueError(
            f"`background` must have at least two features for a coalition to condition on, got {num_features}"
        )
    if num_features <= num_coalitions.bit_length() and 2**num_features - 2 <= num_coalitions:
        return all_coalitions(num_features)[1:-1]
    check_count(num_coalitions, "num_coalitions", 2 * num_features)
    sizes, order = jax.random.split(check_rng_key(rng_key))
    drawn = jax.random.randint(sizes, (num_coalitions, 1), 1, num_features)
    ranks = jnp.argsort(uniform(order, (num_coalitions, num_features)), axis=1)
    return np.asarray(ranks < drawn)


@eqx.filter_jit
def _leave_one_out_losses(game: Observational, grid: Array, coalitions: Array) -> Float[Array, " values"]:
    """Return the mean leave-one-out loss of each regularization."""
    background = jnp.asarray(game.background)
    kernel = game.kernel_for(None)

    def of_pair(pair: tuple[Array, Array]) -> Array:
        mask, regularization = pair
        present, absent, inputs = kernel, kernel, background
        if isinstance(kernel, AbstractProductKernel):
            present = kernel.restrict(mask)
            absent = kernel if game.estimator == "embedded" else kernel.restrict(~mask)
        else:
            present, inputs = kernel.split_scale()[1], jnp.where(mask[None], background, 0.0)
        if game.landmarks is not None:
            landmarks = jnp.asarray(game.landmarks)
            given = landmarks if inputs is background else jnp.where(mask[None], landmarks, 0.0)
            absent, present = Nystrom(absent, landmarks), Nystrom(present, given)
        embedding = ConditionalMeanEmbedding(
            kernel=absent, input_kernel=present, inputs=inputs, points=background, regularization=regularization
        )
        return jnp.mean(embedding.leave_one_out_losses())

    pairs = (jnp.repeat(coalitions, grid.shape[0], axis=0), jnp.tile(grid, coalitions.shape[0]))
    return jnp.mean(jax.lax.map(of_pair, pairs).reshape(coalitions.shape[0], -1), axis=0)
