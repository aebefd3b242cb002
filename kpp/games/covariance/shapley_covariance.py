r"""The covariance of Shapley values under a Gaussian process.

Shapley values are linear in the function, so under :math:`f \sim GP(\mu, k - k_X R R^\top k_X^\top)` they are Gaussian,
with the Shapley values of :math:`\mu` for means and

.. math:: \mathrm{Cov}(\phi(x), \phi(x')) = \Sigma_0(x, x') - \Psi_x R R^\top \Psi_{x'}^\top,

where :math:`\Sigma_0` is the covariance under the prior and :math:`\Psi_x` holds the Shapley values of the sections
:math:`k(\cdot, X_i)`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from kpp.features import Nystrom
from kpp.foundation.validation import as_points, is_concrete
from kpp.functionals import AbstractFunctional, GPPosterior
from kpp.functions import RKHSFunction
from kpp.games.covariance.pair_covariance import (
    Solution,
    enumeration_covariance,
    enumeration_representer,
    enumeration_sections,
    interventional_covariance,
    solution_of,
    solution_of_effects,
    solution_of_values,
)
from kpp.games.estimators.asymmetric import asymmetric_weights, solve_in_order
from kpp.games.estimators.effects import check_effects, direct_and_indirect_effects
from kpp.games.estimators.game import read_game
from kpp.games.estimators.methods import choose_for_game, solve_exactly
from kpp.games.estimators.quadrature import quadrature_shapley
from kpp.games.players.players import Players, as_players
from kpp.games.values.imputation import AbstractImputation
from kpp.games.values.interventional import Interventional
from kpp.games.values.product_games import is_product_game
from kpp.kernels import AbstractKernel
from kpp.kernels.toolkit import has_product_terms
from kpp.linalg.toolkit import symmetric_root
from kpp.runtime.batching import map_blocks, rows_that_fit
from kpp.runtime.threads import num_cores
from kpp.typing import AnyArray, Numbers, PointFunction

ExactValues = Callable[[RKHSFunction, Float[Array, "p d"]], Float[Array, "p g r"]]
# Above this many players the 4^g pairs of coalitions are not enumerated.
_MAX_PLAYERS = 12
# Blocks of pairs of points for each thread: the first block of all is computed alone, so there should be several.
_BLOCKS = 4
# The largest number of entries of a table with the values of all coalitions.
_MAX_ENTRIES = 2**25


def shapley_covariance(
    value_function: object,
    process: GPPosterior | AbstractKernel,
    x: object,
    x_other: object = None,
    *,
    groups: object = None,
    order: object = None,
    effects: bool = False,
    feature_names: Iterable[str] | None = None,
) -> Float[Array, "..."]:
    r"""Compute the covariance of Shapley values under a Gaussian process, exactly.

    Law: the sum over all players of both points is the covariance of the predictions minus their base values.

    `Interventional` and a kernel of product terms take :math:`m^2 g^2 \lceil g/2 \rceil^2` steps per pair of points;
    any other imputation or kernel takes :math:`4^g m^2` values of the kernel. Asymmetric values take
    :math:`c^2 m^2` values, for the c coalitions that respect the order. Under `kpp.features.Nystrom` the
    covariance is computed from the Shapley values of the features, and takes the time of explaining one function per
    feature.

    Args:
        value_function: The game, an `AbstractImputation`: its values are averages of predictions, which are Gaussian
            under a Gaussian process.
        process: A `GPPosterior`, possibly with draws and outputs; or a kernel, for the prior of a Gaussian process.
        x: The points to explain, (p, d).
        x_other: Other points, (q, d), for covariances across points; if they are `x` itself, half of the computation is
            saved. None for the covariance at each point alone.
        groups: Groups of features that form one player each, as in `as_players`.
        order: The order of asymmetric Shapley values, as in `asymmetric_shapley_values`; None for Shapley values.
        effects: Whether the covariance is that of the direct effects of all players and then the indirect ones, 2g in
            the place of g; see `direct_and_indirect_effects`.
        feature_names: The names of the d features in `groups` and `order`; by default ``x0, x1, ...``.

    Returns:
        The covariances, (p, g, g), or across points (p, q, g, g), players of `x` before those of `x_other`; led by
        draws. With P outputs the last two axes, (P, P), are those of the covariances between outputs.

    Raises:
        ValueError: If `x`, `x_other` or `groups` are invalid, or there are too many players to enumerate, or too many
            coalitions that respect the order.
        UnknownNodeError: If no player is in the order.
        TypeError: If the value function is not an imputation, or `process` is not a Gaussian process.
        FloatingPointError: If covariances are NaN or infinite.

    Example:
        >>> game = kpp.games.Interventional(x)
        >>> kpp.games.shapley_covariance(game, posterior, x[:1]).shape
        (1, 1, 1, 2, 2)

    References:
        Chau, Muandet and Sejdinovic, Explaining the uncertain: stochastic Shapley values for Gaussian process models,
        2023, theorem 4.
    """
    value_function = _as_imputation(value_function, order, effects)
    background = jnp.asarray(value_function.background)
    num_features, dtype = background.shape[1], background.dtype
    x = as_points(x, num_features=num_features).astype(dtype)
    x_other = None if x_other is None else as_points(x_other, "x_other", num_features=num_features).astype(dtype)
    if not isinstance(process, GPPosterior):  # a prior: a posterior without data, whose root has no columns
        zero = RKHSFunction(process, background[:1], jnp.zeros(1, dtype=dtype))
        process = GPPosterior(zero, jnp.zeros((1, 0), dtype=dtype))
    players = _read_players(groups, num_features, feature_names)
    shared = process.shared
    if isinstance(process.mean.kernel, Nystrom):
        covariance = feature_covariance(exact_values(value_function, players, order, effects), shared, x, x_other)
    else:
        covariance = _section_covariance(_Problem(value_function, shared, players, order, effects), x, x_other)
    _refuse_non_finite(covariance, value_function)
    between = process.output_covariance
    if between is None:
        return covariance
    axes = covariance.ndim - len(process.batch_shape)
    return covariance[..., None, None] * jnp.expand_dims(
        between, tuple(range(between.ndim - 2, between.ndim - 2 + axes))
    )


def shapley_root(
    value_function: object,
    process: GPPosterior,
    x: object,
    *,
    groups: object = None,
    order: object = None,
    effects: bool = False,
    feature_names: Iterable[str] | None = None,
) -> Float[np.ndarray, "p g r"]:
    r"""Compute a root of the covariance of Shapley values across points under a process of finite rank.

    .. math:: \mathrm{Cov}(\phi(x), \phi(x')) = A_x A_{x'}^\top

    It takes the time of explaining one function per feature of the kernel, and its memory grows with the number of
    points, not with the square of it.

    Args:
        value_function: The game, an `AbstractImputation`.
        process: A `GPPosterior` without draws whose kernel is a `kpp.features.Nystrom`.
        x: The points to explain, (p, d).
        groups: Groups of features that form one player each, as in `as_players`.
        order: The order of asymmetric Shapley values, as in `asymmetric_shapley_values`; None for Shapley values.
        effects: As for `shapley_covariance`.
        feature_names: The names of the d features in `groups` and `order`; by default ``x0, x1, ...``.

    Returns:
        The roots A, (p, g, r), with one row per player and one column per feature.

    Raises:
        ValueError: If `x` or `groups` are invalid, or there are too many players to enumerate.
        TypeError: If the value function is not an imputation, or the process is not such a posterior.
        FloatingPointError: If the root is NaN or infinite.
    """
    value_function = _as_imputation(value_function, order, effects)
    if not (isinstance(process, GPPosterior) and isinstance(process.mean.kernel, Nystrom) and not process.batch_shape):
        raise TypeError(
            "`process` must be a GPPosterior without draws whose kernel is a kpp.features.Nystrom, got "
            f"{type(process).__name__}"
        )
    background = jnp.asarray(value_function.background)
    x = as_points(x, num_features=background.shape[1]).astype(background.dtype)
    players = _read_players(groups, x.shape[1], feature_names)
    root = feature_root(exact_values(value_function, players, order, effects), process, x)
    _refuse_non_finite(jnp.asarray(root), value_function)
    return root


def _as_imputation(value_function: object, order: object, effects: bool) -> AbstractImputation:
    if effects:
        return check_effects(value_function, order)
    if isinstance(value_function, AbstractImputation):
        return value_function
    raise TypeError(
        "`value_function` must be an AbstractImputation, an average of predictions, for Shapley values to have a "
        f"covariance under a Gaussian process, got {type(value_function).__name__}"
    )


def _read_players(groups: object, num_features: int, feature_names: Iterable[str] | None) -> Players:
    players = as_players(groups, num_features, None if feature_names is None else tuple(feature_names))
    if (players.membership < 0).any():
        missing = np.flatnonzero(players.membership < 0).tolist()
        raise ValueError(
            f"`groups` must hold every feature for a covariance, got players without the features {missing}"
        )
    return players


def exact_values(value_function: AbstractImputation, players: Players, order: object, effects: bool) -> ExactValues:
    """Return a function that computes the exact Shapley values of a function at points, some points at a time."""

    def values(function: RKHSFunction, x: Array) -> Array:
        special = effects or order is not None
        method = "quadrature" if not special and is_product_game(value_function, function) else "enumeration"

        def of_block(rows: Array) -> Array:
            if effects:
                return jnp.concatenate(direct_and_indirect_effects(value_function, function, rows, groups=players), 1)
            if order is not None:
                game = read_game(value_function, function, rows, players, null_players=True)
                return solve_in_order(game, *asymmetric_weights(order, players))
            game = read_game(value_function, function, rows, players)
            return solve_exactly(game, choose_for_game(game, method))

        entries = 2**players.num_players * math.prod(function.output_shape)
        size = rows_that_fit(x.shape[0], entries, _MAX_ENTRIES)
        if method == "quadrature" or size == x.shape[0] or not is_concrete(x):
            return of_block(x)
        return jnp.asarray(map_blocks(of_block, x, size))

    return values


class _Problem(NamedTuple):
    """A game under a Gaussian process, whose covariance is computed from kernel sections."""

    value_function: AbstractImputation
    process: GPPosterior
    players: Players
    order: object
    effects: bool

    @property
    def is_quadrature(self) -> bool:
        """Whether the covariance has an integral in polynomial time."""
        product = isinstance(self.value_function, Interventional) and has_product_terms(self.process.mean.kernel)
        return product and self.order is None and not self.effects

    def solution(self) -> Solution | None:
        """Return the coalitions and weights for an enumeration; None for quadrature."""
        if self.is_quadrature:
            return None
        if self.effects:
            return solution_of_effects(self.players)
        if self.order is not None:
            return solution_of(self.players, *asymmetric_weights(self.order, self.players))
        return solution_of_values(self.players)


def _section_covariance(problem: _Problem, x: Array, x_other: Array | None) -> Float[Array, "..."]:
    """Subtract the reduction by the data from the prior covariance, using the sections at the training points."""
    num_players = problem.players.num_players
    if problem.order is None and num_players > _MAX_PLAYERS and not problem.is_quadrature:
        raise ValueError(
            f"`value_function` {type(problem.value_function).__name__} with kernel "
            f"{type(problem.process.mean.kernel).__name__} has covariances by enumeration only, for at most "
            f"{_MAX_PLAYERS} players, got {num_players}; group features by `groups`, or take Interventional and a "
            "product kernel"
        )
    solution = problem.solution()
    if x_other is None:
        pairs = np.repeat(np.arange(x.shape[0])[:, None], 2, axis=1)
        mean, players = problem.process.mean, problem.players
        prior = _prior_at(problem.value_function, mean, x, None, pairs, players, solution, True)
    else:
        prior = _prior_across(problem, solution, x, x_other)
    if not problem.process.root.shape[-1]:
        return prior
    return prior - _reduction(problem, solution, x, x_other)


def _refuse_non_finite(covariance: Array, value_function: AbstractImputation) -> None:
    if is_concrete(covariance) and not np.isfinite(covariance).all():
        raise FloatingPointError(
            f"`value_function` {type(value_function).__name__} and `process` give covariances that are not finite; "
            "check the weights of the one and the kernel and root of the other"
        )


def _prior_across(
    problem: _Problem, solution: Solution | None, x: Array, x_other: Array
) -> Float[Array, "*draws p q g g"]:
    """Compute prior covariances across points; if both arguments are the same points, each pair is computed once."""
    num_points, num_other = x.shape[0], x_other.shape[0]
    if not _are_equal(x, x_other):
        pairs = np.indices((num_points, num_other)).reshape(2, -1).T
        blocks = _prior_in_blocks(problem, solution, x, x_other, pairs)
        return blocks.reshape(*blocks.shape[:-3], num_points, num_other, *blocks.shape[-2:])
    first, second = np.triu_indices(num_points)
    pairs = np.stack([first, second], axis=1)
    return _mirror(_prior_in_blocks(problem, solution, x, None, pairs), num_points)


def _prior_in_blocks(
    problem: _Problem, solution: Solution | None, x: Array, x_other: Array | None, pairs: Int[np.ndarray, "k 2"]
) -> Float[Array, "*draws k g g"]:
    """Compute prior covariances at pairs of points, with all cores if nothing is traced."""
    value_function, mean, players = problem.value_function, problem.process.mean, problem.players

    def of_block(block: np.ndarray) -> Array:
        return _prior_at(value_function, mean, x, x_other, block, players, solution, False)

    if not all(is_concrete(leaf) for leaf in jax.tree.leaves((value_function, problem.process, x, x_other))):
        return of_block(pairs)
    threads = num_cores()
    blocks = map_blocks(of_block, pairs, -(-len(pairs) // (_BLOCKS * threads)), axis=-3, threads=threads)
    return jnp.asarray(blocks)


@functools.partial(jax.jit, static_argnums=1)
def _mirror(blocks: Float[Array, "*draws k g g"], num_points: int) -> Float[Array, "*draws p p g g"]:
    """Arrange the blocks of the upper triangle in a symmetric matrix."""
    first, second = np.triu_indices(num_points)
    full = jnp.zeros((*blocks.shape[:-3], num_points, num_points, *blocks.shape[-2:]), dtype=blocks.dtype)
    full = full.at[..., second, first, :, :].set(jnp.swapaxes(blocks, -1, -2))
    return full.at[..., first, second, :, :].set(blocks)


def _are_equal(x: Array, x_other: Array) -> bool:
    return x is x_other or (is_concrete(x) and is_concrete(x_other) and np.array_equal(x, x_other))


@eqx.filter_jit
def _prior_at(
    value_function: AbstractImputation,
    mean: RKHSFunction,
    x: Float[Array, "p d"],
    x_other: Float[Array, "q d"] | None,
    pairs: Int[AnyArray, "k 2"],
    players: Players,
    solution: Solution | None,
    same: bool,
) -> Float[Array, "*draws k g g"]:
    """Compute prior covariances at pairs of points, of `x` and of `x_other`, or of `x` both."""
    others = x if x_other is None else x_other

    def of_draw(draw: RKHSFunction) -> Array:
        if solution is None and isinstance(value_function, Interventional):
            first, second = x[pairs[:, 0]], others[pairs[:, 1]]
            return interventional_covariance(value_function, draw.kernel, first, second, players, same=same)
        assert solution is not None  # the only game without one is handled above
        return enumeration_covariance(value_function, draw, x, others, jnp.asarray(pairs), solution)

    return mean.map_draws(of_draw)


def _reduction(problem: _Problem, solution: Solution | None, x: Array, x_other: Array | None) -> Float[Array, "..."]:
    """Return the reduction of the covariance by the data."""
    values = _whitened_values(problem, solution, x)
    if x_other is None:
        return jnp.einsum("...pgr,...phr->...pgh", values, values, precision="highest")
    others = values if _are_equal(x, x_other) else _whitened_values(problem, solution, x_other)
    return jnp.einsum("...pgr,...qhr->...pqgh", values, others, precision="highest")


def _whitened_values(problem: _Problem, solution: Solution | None, x: Array) -> Float[Array, "*draws p g r"]:
    r"""Return the Shapley values :math:`\Psi R`, whose products are the reduction of the covariance by the data."""
    value_function, process = problem.value_function, problem.process
    if solution is None and isinstance(value_function, Interventional):
        return quadrature_shapley(value_function, process.whitened, x, players=problem.players)
    assert solution is not None  # the only game without one is handled above
    sections = _sections(value_function, process.mean, x, solution)
    return jnp.einsum("...pgn,...nr->...pgr", sections, process.root, precision="highest")


@eqx.filter_jit
def _sections(
    value_function: AbstractImputation, mean: RKHSFunction, x: Float[Array, "p d"], solution: Solution
) -> Float[Array, "*draws p g n"]:
    return mean.map_draws(lambda draw: enumeration_sections(value_function, draw, x, solution))


def feature_covariance(
    exact_values: ExactValues, process: GPPosterior, x: Float[Array, "p d"], x_other: Float[Array, "q d"] | None
) -> Float[Array, "..."]:
    r"""Compute the covariances of Shapley values under a posterior whose kernel is `kpp.features.Nystrom`.

    Under this kernel a function is a combination of finitely many features, :math:`f = \mu + w^\top \varphi` with
    independent standard normal weights before the data, each feature a function of the RKHS of the base kernel. With
    the Shapley values :math:`\Phi_x` of the features,

    .. math:: \mathrm{Cov}(\phi(x), \phi(x')) = \Phi_x \Phi_{x'}^\top - \Phi_x B B^\top \Phi_{x'}^\top, \qquad
        B = \varphi(X)^\top R,

    for any number of rows that the model was fitted to, and for any game that can explain the base kernel.
    `exact_values` computes the Shapley values of the features, outputs of one function, at points. The result has shape
    (\*draws, p, g, g) for points x (p, d), and (\*draws, p, q, g, g) across them and other points (q, d).
    """

    def of_draw(draw: GPPosterior) -> Array:
        features, root = _nystrom_features(draw)
        first = exact_values(features, x)
        second = first if x_other is None else exact_values(features, x_other)
        pattern = "pgr,phr->pgh" if x_other is None else "pgr,qhr->pqgh"
        prior = jnp.einsum(pattern, first, second, precision="highest")
        return prior - jnp.einsum(pattern, first @ root, second @ root, precision="highest")

    return process.map_draws(of_draw)


def feature_root(exact_values: ExactValues, process: GPPosterior, x: Float[Array, "p d"]) -> Float[np.ndarray, "p g r"]:
    r"""Compute :math:`\Phi (I - BB^\top)^{1/2}` for points x (p, d) under one such posterior.

    The covariance of the values of two points is the product of their roots, (g, r) each.
    """
    features, root = _compiled_features(process)
    if np.isnan(root).any():
        _nystrom_features(process)  # raises: the kernel matrix of the landmarks has no factorization
    weights = np.eye(root.shape[0]) - np.asarray(jnp.matmul(root, root.T, precision="highest"))
    return np.asarray(exact_values(features, x)) @ symmetric_root(weights)


def _nystrom_features(process: GPPosterior) -> tuple[RKHSFunction, Float[Array, "r k"]]:
    """Return the features as the outputs of one function, and B."""
    kernel = process.mean.kernel
    assert isinstance(kernel, Nystrom)  # the caller has checked this
    features = kernel.function(jnp.eye(kernel.landmarks.shape[0]))
    return features, jnp.matmul(kernel.feature_map(process.mean.points).T, process.root, precision="highest")


_compiled_features = eqx.filter_jit(_nystrom_features)


class ShapleyValues(AbstractFunctional):
    r"""The Shapley values :math:`\phi_j(x_i)` at points, those of the first point before those of the second.

    With `GPPosterior.of` they have a joint law over points and features, and so have their contrasts: the difference
    between the contributions of two features, or between those of one feature at two points.

    Args:
        game: The game, an `AbstractImputation`.
        x: The points, (p, d).
        groups: Groups of features that form one player each, as in `as_players`; each feature by default. There are
            q = p g values.

    Raises:
        ValueError: If the points do not fit the game, or groups are invalid.

    Example:
        >>> law = posterior.of(kpp.games.ShapleyValues(kpp.games.Interventional(x), x[:1]))
        >>> law.mean.round(2)
        Array([[[ 0.27, -0.03]]], dtype=float64)
    """

    game: AbstractImputation
    x: Float[Array, "p d"]
    players: Players = eqx.field(static=True)

    def __init__(self, game: AbstractImputation, x: Numbers, groups: object = None) -> None:
        self.game = game
        self.x = as_points(x, num_features=game.background.shape[1])
        self.players = as_players(groups, self.x.shape[1], None)

    @property
    def num_values(self) -> int:
        """The number of points times the number of players."""
        return self.x.shape[0] * self.players.num_players

    def apply(self, function: PointFunction) -> Float[Array, "q *outputs"]:
        """Return the Shapley values of an `RKHSFunction`, exactly."""
        if not isinstance(function, RKHSFunction):
            raise TypeError(f"`function` must be an RKHSFunction, got {type(function).__name__}")
        values = exact_values(self.game, self.players, None, False)(function, self.x)
        return values.reshape(-1, *values.shape[2:])

    def representer(self, kernel: AbstractKernel) -> PointFunction:
        """Return sums of sections at the imputed rows of all coalitions, an `RKHSFunction`."""
        rows, weights = enumeration_representer(self.game, kernel, self.x, solution_of_values(self.players))
        return RKHSFunction(kernel, rows, weights.reshape(len(rows), -1))

    def prior_covariance(self, kernel: AbstractKernel, other: AbstractFunctional | None = None) -> Float[Array, "q r"]:
        """Return the covariance under the prior; with values of the same game, as `kpp.games.shapley_covariance`."""
        columns = self if other is None else other
        if not isinstance(columns, ShapleyValues) or columns.game is not self.game or columns.players != self.players:
            return super().prior_covariance(kernel, other)
        covariance = shapley_covariance(self.game, kernel, self.x, columns.x, groups=self.players)
        return jnp.moveaxis(covariance, 1, 2).reshape(self.num_values, columns.num_values)
