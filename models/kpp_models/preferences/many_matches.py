r"""Kernel ridge and logistic regression of the outcomes of many matches between fewer items."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jaxtyping import Array, Float, Int

from kpp.data.tables import Schema
from kpp.foundation.validation import count, warn_if_float32
from kpp.functions import RKHSFunction
from kpp.gp import AbstractPointwiseLikelihood, BinomialLikelihood, GaussianLikelihood, condition, scalar_field
from kpp.gp.toolkit import check_kernel_fits, normal_log_density, refuse_priors_in, step_size
from kpp.inference import AbstractModel, ConvergenceError, Data
from kpp.inference.toolkit import Sample
from kpp.kernels import RBF, AbstractKernel, GeneralizedPreferential, Preferential
from kpp.kernels.toolkit import check_kernel_fields, check_positive
from kpp.preferences import ItemFunction, Matches
from kpp.preferences.toolkit import check_contexts, preference_terms
from kpp.typing import Leaf, RngKey
from kpp_models.preferences.data import (
    check_same_items,
    example_matches,
    read_matches,
    read_pairs,
    refuse_codes,
    resolve_names,
)
from kpp_models.preferences.held_out_gradient import descend
from kpp_models.preferences.pairs.pair_gram import PairSolver
from kpp_models.preferences.pairs.pair_marginal import PairMarginal, has_evidence
from kpp_models.tables.machines.grid_search import Selection, put_values, search_grid

Machine = TypeVar("Machine", bound="AbstractPreferenceMachine")
PerPair = Float[Array, " m"]  # one number for each pair of the matches

_FUNCTION = ("items", "pairs", "coefficients", "contexts", "context_numbers")  # the parts of g in the data
_MAX_NEWTON = 50
_TOLERANCE = 1e-8  # the tolerance of the last change of the log-odds
# Tolerances for residuals of conjugate gradients. In Newton's method the right-hand side may exceed the step by a
# factor of up to the largest eigenvalue of the system, for example 1e4, and only the relative error of a step matters.
_NEWTON_RESIDUAL, _RESIDUAL = 1e-8, 1e-10


def _count_field(name: str, *, default: int) -> Any:
    """Return a static Equinox field that holds an integer of at least 1."""
    return eqx.field(converter=lambda value: count(value, name), static=True, default=default)


class AbstractPreferenceMachine(AbstractModel):
    r"""A regularized regression g of the outcomes of matches, solved by linear systems with matrices of items.

    A final class computes the coefficients of :math:`g = \sum_i \alpha_i k_E(\cdot, p_i)`, and
    says of which Gaussian process and which likelihood g is the mode.

    `fit` takes matches like `AbstractPreferenceModel`, and gives one chain of one draw under every inference; it raises
    `kpp.inference.ConvergenceError` if the iterations do not converge. Its data hold the coefficients, so that
    predictions need no further solution. `predict` takes pairs (p, 2, d), a tuple of them with contexts (p, c), or
    `kpp.preferences.Matches`; it gives ``mean``, which is g, and ``probability``.

    The pointwise log likelihood is leave-one-out, with one term per pair (and context). It needs a matrix with a row
    per pair, so fits to more than 4096 pairs have it only if the kernel has few features; otherwise the group
    log_likelihood is left out, and `select` or matches that are held out score the fit.
    """

    kernel: AbstractKernel
    regularization: Leaf = scalar_field("regularization")
    preconditioner_rank: int = _count_field("preconditioner_rank", default=400)
    max_steps: int = _count_field("max_steps", default=1000)

    def __check_init__(self) -> None:
        check_kernel_fields(self)  # before the kernel is read as a sum of terms
        refuse_priors_in(self, "kpp_models.PreferenceGP")
        check_positive(self.regularization, "regularization", infinity_allowed=False)
        preference_terms(self.kernel)

    def select(
        self: Machine,
        rng_key: RngKey,
        x: Any,
        y: Any = None,
        *,
        grid: Mapping[str, Any],
        train_fraction: float = 0.8,
        by: str = "match",
    ) -> Selection[Machine]:
        """Choose hyperparameters from a grid by the mean loss of matches that are held out.

        Args:
            rng_key: A JAX random key, for the split.
            x: The matches, as for `fit`.
            y: As for `fit`.
            grid: For each path of a leaf (``"regularization"``, ``"kernel.kernel.lengthscale"``) the values to try, of
                shape (g,), or (g, d) for a leaf of shape (d,).
            train_fraction: The fraction of the matches to which each entry is fitted.
            by: "match" holds out single matches; "pair" all matches of a pair, so that all held-out pairs are new.

        Returns:
            The model with the best combination, not fitted, the values chosen, and the loss of every combination. The
            loss is infinite where the iterations do not converge.

        Raises:
            ValueError: If the data or the grid are invalid.
        """
        train, test = read_matches(x, y, ties=True).split(rng_key, train_fraction, by=by)

        def score(entry: Mapping[str, Array]) -> float:
            try:
                model, data, _ = put_values(self, entry).prepare(train)
            except ConvergenceError:
                return np.nan
            return float(model.loss(test, model.item_function(data)(test.inputs)))

        return search_grid(self, grid, score, "held_out_loss")

    def select_by_gradient(
        self: Machine,
        rng_key: RngKey,
        x: Any,
        y: Any = None,
        *,
        paths: Sequence[str],
        max_steps: int = 30,
        train_fraction: float = 0.8,
        by: str = "match",
    ) -> Selection[Machine]:
        r"""Choose many hyperparameters, such as a lengthscale per feature, by the gradient of the held-out loss.

        The gradient is exact up to the tolerance of the solver, by implicit differentiation, and takes one linear
        system more than a fit. The logarithms of the values are searched by L-BFGS from those of this model, each up to
        a factor of 1000. The minimum is a local one; `select` searches a grid.

        Args:
            rng_key: A JAX random key, for the split.
            x: The matches, as for `fit`.
            y: As for `fit`.
            paths: The paths of the leaves that are chosen (``"kernel.kernel.lengthscale"``), all of them positive.
            max_steps: The largest number of steps.
            train_fraction: As for `select`.
            by: As for `select`.

        Returns:
            As `select`, with the loss at each evaluation.

        Raises:
            ValueError: If the data are invalid, or a path leads to no leaf or to a number that is not positive.
            kpp.inference.ConvergenceError: If a fit does not converge.

        References:
            Meanti, Carratino, De Vito and Rosasco, Efficient hyperparameter tuning for large scale kernel ridge
            regression, 2022, who descend along such gradients; Pedregosa, Hyperparameter optimization with approximate
            gradient, 2016, equation 3.
        """
        train, test = read_matches(x, y, ties=True).split(rng_key, train_fraction, by=by)
        train.refuse_teams(type(self).__name__)
        model = dataclasses.replace(self, kernel=_fitting_kernel(self.kernel, train))  # type: ignore[type-var]
        found = descend(model, paths, train, test, count(max_steps, "max_steps"))
        return found.with_names_of(self)

    def prepare(self: Machine, x: Any, y: Any = None) -> tuple[Machine, dict[str, Any], Schema]:
        """Read the matches and compute the coefficients; see `fit` and `AbstractModel.prepare`."""
        warn_if_float32(type(self).__name__)
        matches = read_matches(x, y, ties=True)
        matches.refuse_teams(type(self).__name__)
        model = dataclasses.replace(self, kernel=_fitting_kernel(self.kernel, matches))  # type: ignore[type-var]
        solver = model.solver(matches)
        data = {name: getattr(solver.pairs, name) for name in _FUNCTION}
        data |= {"coefficients": self.coefficients(solver, matches), "trials": matches.counts}
        return model, data | {"y": self.observations(matches)}, matches.schema

    def solver(self, matches: Matches) -> PairSolver:
        """Prepare the linear systems of the fit to matches."""
        return PairSolver.of(self.kernel, self.regularization, matches, self.preconditioner_rank, self.max_steps)

    @abstractmethod
    def coefficients(self, solver: PairSolver, matches: Matches) -> PerPair:
        r"""Return the coefficients :math:`\alpha` of the pairs, (m,)."""

    @abstractmethod
    def residual(self, matches: Matches, g: PerPair, ridged: PerPair) -> PerPair:
        r"""Return what is 0 at the solution, for g at the pairs and :math:`\rho \alpha`; see `held_out_gradient`."""

    @abstractmethod
    def solve_adjoint(self, solver: PairSolver, matches: Matches, coefficients: PerPair, right: PerPair) -> PerPair:
        """Solve the system with the transposed derivative of `residual` in the coefficients."""

    @abstractmethod
    def observations(self, matches: Matches) -> PerPair:
        """Return the observations of the NumPyro model, one per pair, (m,)."""

    @abstractmethod
    def process(self, trials: PerPair) -> tuple[AbstractKernel, AbstractPointwiseLikelihood]:
        """Return the kernel and the likelihood, without observations, of the Gaussian process whose mode is the fit."""

    @abstractmethod
    def probability(self, g: Float[Array, "*p"]) -> Float[Array, "*p"]:
        """Return the probability that the first item wins, plus half the probability of a tie, elementwise."""

    @abstractmethod
    def loss(self, matches: Matches, g: PerPair) -> Float[Array, ""]:
        """Return the mean loss of matches, for values of g at their pairs."""

    @abstractmethod
    def held_out_log_density(self, y: PerPair, trials: PerPair, g: PerPair) -> PerPair:
        """Return the log density of the observations for leave-one-out values of g, (m,)."""

    @abstractmethod
    def draw_outcomes(self, rng_key: RngKey, trials: PerPair, g: PerPair) -> PerPair:
        """Draw `observations` of as many matches of each pair, given g."""

    def read_points(self, x: Any, schema: Schema | None) -> Any:
        return read_pairs(x, schema)

    def numpyro_model(
        self,
        items: Float[Array, "n d"],
        pairs: Int[Array, "m 2"],
        contexts: Float[Array, "c f"] | None,
        context_numbers: Int[Array, " m"] | None,
        trials: PerPair,
        coefficients: PerPair,
        y: PerPair | None = None,
    ) -> None:
        """The NumPyro model: the Gaussian process whose mode is the fit; it has no latent site.

        Its arguments are the data that `prepare` returns. The coefficients have no effect; without `observations` these
        are drawn.
        """
        kernel, likelihood = self.process(trials)
        points = ItemFunction(kernel, items, pairs, coefficients, contexts, context_numbers)
        numpyro.sample("y", PairMarginal(points, likelihood), obs=y)

    def item_function(self, data: Data) -> ItemFunction:
        """Return g, from the data of a fit, as a function that is fast to evaluate at many pairs."""
        return ItemFunction(self.kernel, *(data[name] for name in _FUNCTION))

    def function_draw(self, sample: Sample, data: Data) -> RKHSFunction:
        return self.item_function(data).function()

    def predictive(self, sample: Sample, data: Data, x: Any, *, covariance: bool = False) -> dict[str, Array]:
        """Return g and the probabilities of wins at p pairs; see `AbstractModel.predictive`."""
        function = self.item_function(data)
        check_same_items(x, jax.eval_shape(lambda: function.points))
        mean = function(x)
        return {"mean": mean, "probability": self.probability(mean)}

    def draw_predictive(self, rng_key: RngKey, sample: Sample, data: Data, x: Any) -> Float[Array, " p"]:
        """Draw the outcome of one new match of each pair: 1 for a win, 0 for a loss."""
        chance = self.predictive(sample, data, x)["probability"]
        return jax.random.bernoulli(rng_key, chance).astype(chance.dtype)

    def replicate(self, rng_key: RngKey, sample: Sample, data: Data) -> dict[str, Array]:
        function = self.item_function(data)
        return {"y": self.draw_outcomes(rng_key, data["trials"], function(function.points))}

    def log_likelihood(self, sample: Sample, data: Data) -> dict[str, Array]:
        """Return the leave-one-out log likelihood of every pair, or nothing for too many pairs; see the class."""
        points = self.item_function(data).points
        if not has_evidence(self.kernel, points):
            return {}
        kernel, likelihood = self.process(data["trials"])
        held_out = condition(kernel, points, likelihood.observe(data["y"])).held_out
        assert held_out is not None
        return {"y": self.held_out_log_density(data["y"], data["trials"], held_out()[0])}


def _fitting_kernel(kernel: AbstractKernel, matches: Matches) -> AbstractKernel:
    """Resolve the names of features in a kernel, or raise ValueError if it does not fit the matches."""
    resolved = resolve_names(kernel, matches)
    check_contexts(resolved, has_contexts=matches.contexts is not None)
    check_kernel_fits(resolved, matches.inputs, points="matches")
    refuse_codes(resolved, matches)
    return resolved


class PreferenceRidge(AbstractPreferenceMachine):
    r"""Kernel ridge regression of matches, for tens of thousands of them.

    .. math:: \min_g \frac1N \sum_i \bigl[w_i (1 - g_i)^2 + l_i (-1 - g_i)^2 + t_i g_i^2\bigr] + \lambda \|g\|^2, \qquad
        g_i = g(x_{a_i}, x_{b_i})

    over the N matches. For each pair, w, l and t are the numbers of wins, losses and ties of the first item. g is about
    1 if the first item always wins, and about -1 if it always loses; the ``probability`` of a win is
    :math:`(1 + g) / 2`, cut at 0 and 1. With the counts c = w + l + t and the mean outcomes
    :math:`\bar y = (w - l) / c`, the coefficients of :math:`g = \sum_i \alpha_i k_E(\cdot, p_i)` solve
    :math:`(K_E + N \lambda C^{-1})\, \alpha = \bar y`. It is `kpp_models.KernelRidge` on single matches of outcome 1
    and -1, by conjugate gradients with matrices of items: the Gram matrix of the pairs is never computed.

    `numpyro_model` is the Gaussian process whose posterior mean the fit is, with noise variances
    :math:`N \lambda / c_i` of the mean outcomes. `kpp_models.PreferenceGP` takes priors.

    Args:
        kernel: :math:`k_E`: `kpp.kernels.GeneralizedPreferential`, `kpp.kernels.Preferential`, or a sum of multiples of
            them, with numbers for leaves. For many thousands of items use a kernel of finite rank,
            ``GeneralizedPreferential(Nystrom(kernel, landmarks))``; otherwise the n x n matrix of the items is
            decomposed. If matches have contexts, `kpp.kernels.Contextual` of these; a product with the Gram matrix then
            takes as many times longer as the kernel of contexts has features, at most 100.
        regularization: :math:`\lambda`, multiplied by the number of matches; greater than 0.
        preconditioner_rank: The number of leading features of each term of the kernel in the preconditioner, which
            stores this many numbers per pair.
        max_steps: The largest number of steps of conjugate gradients.

    Raises:
        ValueError: If `regularization` is not one finite number greater than 0, or a whole number is below 1.
        TypeError: If a leaf is a prior, or the kernel is not a sum of preferential kernels.
    """

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[PreferenceRidge, Array, Array]]:
        pairs, y = example_matches(rng_key)
        yield cls(GeneralizedPreferential(RBF(0.8) + 0.5), regularization=0.02), pairs, y

    def coefficients(self, solver: PairSolver, matches: Matches) -> PerPair:
        return _solve_weighted(solver, matches, self.observations(matches))

    def residual(self, matches: Matches, g: PerPair, ridged: PerPair) -> PerPair:
        return g + ridged / matches.counts - self.observations(matches)

    def solve_adjoint(self, solver: PairSolver, matches: Matches, coefficients: PerPair, right: PerPair) -> PerPair:
        return _solve_weighted(solver, matches, right)

    def observations(self, matches: Matches) -> PerPair:
        """Return the mean outcomes, from -1 to 1."""
        return (matches.wins - matches.losses) / matches.counts

    def process(self, trials: PerPair) -> tuple[AbstractKernel, GaussianLikelihood]:
        r"""Return :math:`k_E` and Gaussian noise of the variances :math:`N \lambda / c_i`."""
        ridge = jnp.sum(trials) * self.regularization
        return self.kernel, GaussianLikelihood(noise_variance=0.0, row_variances=ridge / trials)

    def probability(self, g: Float[Array, "*p"]) -> Float[Array, "*p"]:
        """Return (1 + g) / 2, cut at 0 and 1."""
        return jnp.clip(0.5 + 0.5 * g, 0.0, 1.0)

    def loss(self, matches: Matches, g: PerPair) -> Float[Array, ""]:
        """Return the mean squared error of the outcomes 1, 0 and -1."""
        total = matches.wins * (1 - g) ** 2 + matches.losses * (1 + g) ** 2 + matches.ties * g**2
        return jnp.sum(total) / jnp.sum(matches.counts)

    def held_out_log_density(self, y: PerPair, trials: PerPair, g: PerPair) -> PerPair:
        r"""Return :math:`\log N(e_i; 0, s^2 / c_i)`, :math:`s^2` being the mean of :math:`c_i e_i^2`; see the class."""
        residuals = y - g
        return normal_log_density(residuals, jnp.zeros_like(g), jnp.mean(trials * residuals**2) / trials)

    def draw_outcomes(self, rng_key: RngKey, trials: PerPair, g: PerPair) -> PerPair:
        wins = jax.random.binomial(rng_key, trials, self.probability(g), dtype=g.dtype)
        return 2 * wins / trials - 1


def _solve_weighted(solver: PairSolver, matches: Matches, right: PerPair) -> PerPair:
    r"""Return :math:`(K_E + \rho C^{-1})^{-1} b = C^{1/2} (I + C^{1/2} K_E C^{1/2} / \rho)^{-1} C^{1/2} b / \rho`."""
    root = jnp.sqrt(matches.counts)
    return root * solver.solve(root, root * right, _RESIDUAL) / solver.ridge


class PreferenceLogistic(AbstractPreferenceMachine):
    r"""Kernel logistic regression of matches, for tens of thousands of them.

    .. math:: \min_g \frac1N \sum_i \bigl[w_i \log(1 + e^{-g_i}) + l_i \log(1 + e^{g_i})\bigr]
        + \frac\lambda2 \|g\|^2, \qquad g_i = g(x_{a_i}, x_{b_i})

    over the N matches. For each pair, w and l are the numbers of wins and losses of the first item, and a tie counts
    half for both. g are the log-odds that the first item of a pair wins; the ``probability`` of a win is
    :math:`\sigma(g)`. The coefficients of :math:`g = \sum_i \alpha_i k_E(\cdot, p_i)` satisfy :math:`N \lambda\,
    \alpha_i = w_i - (w_i + l_i) \sigma(g_i)`. It is `kpp_models.KernelLogistic` on single matches, and the mode of a
    preference process with kernel :math:`k_E / (N \lambda)`, which `numpyro_model` describes. It is computed by
    Newton's method, whose steps are solved by conjugate gradients with matrices of items: the Gram matrix of the pairs
    is never computed. `kpp_models.PreferenceGP` takes priors.

    Args:
        kernel: :math:`k_E`, as for `PreferenceRidge`.
        regularization: :math:`\lambda`, multiplied by the number of matches; greater than 0.
        preconditioner_rank: As for `PreferenceRidge`.
        max_steps: The largest number of steps of conjugate gradients for a step of Newton's method.

    Raises:
        ValueError: If `regularization` is not one finite number greater than 0, or a whole number is below 1.
        TypeError: If a leaf is a prior, or the kernel is not a sum of preferential kernels.

    Example:
        >>> kernel = kpp.kernels.GeneralizedPreferential(RBF(1.0))
        >>> machine = kpp_models.PreferenceLogistic(kernel, 1e-2)
        >>> machine.fit(jax.random.key(0), matches).attrs["model"]
        'PreferenceLogistic'

    References:
        Rasmussen and Williams (2006), algorithm 3.1.
    """

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[PreferenceLogistic, Array, Array]]:
        pairs, y = example_matches(rng_key)
        yield cls(GeneralizedPreferential(RBF(0.8)) + Preferential(RBF(0.7)), regularization=0.02), pairs, y

    def coefficients(self, solver: PairSolver, matches: Matches) -> PerPair:
        """Solve one linear system for each step of Newton's method."""
        counts, wins = matches.counts, self.observations(matches)
        coefficients = latent = jnp.zeros_like(counts)
        tolerance = max(_TOLERANCE, 100 * float(jnp.finfo(latent.dtype).eps))
        for _ in range(_MAX_NEWTON):
            direction = _direction(solver, counts, wins, coefficients, latent)
            move = solver.multiply(direction)
            size, change = _step_size(counts, wins, coefficients, latent, direction, move)
            coefficients, latent = coefficients + size * direction, latent + size * move
            if change <= tolerance:
                return coefficients / solver.ridge
        raise ConvergenceError(
            f"Newton's method has not converged in {_MAX_NEWTON} steps; the last would change the log-odds by up to "
            f"{float(change):.1e}: raise `regularization`"
        )

    def residual(self, matches: Matches, g: PerPair, ridged: PerPair) -> PerPair:
        return ridged - self.observations(matches) + matches.counts * jax.nn.sigmoid(g)

    def solve_adjoint(self, solver: PairSolver, matches: Matches, coefficients: PerPair, right: PerPair) -> PerPair:
        # (r I + K W)^-1 = (I - K R (I + R K R / r)^-1 R / r) / r, with R = W^1/2
        latent = solver.ridge * solver.multiply(coefficients)
        root = jnp.sqrt(matches.counts * jax.nn.sigmoid(latent) * jax.nn.sigmoid(-latent))
        return (right - solver.multiply(root * solver.solve(root, root * right, _RESIDUAL))) / solver.ridge

    def observations(self, matches: Matches) -> PerPair:
        """Return the numbers of wins, a tie counting half."""
        return matches.wins + matches.ties / 2

    def process(self, trials: PerPair) -> tuple[AbstractKernel, BinomialLikelihood]:
        r"""Return :math:`k_E / (N \lambda)` and the likelihood of wins in c matches."""
        ridge = jnp.sum(trials) * self.regularization
        return self.kernel * (1.0 / ridge), BinomialLikelihood(exposure=trials)

    def probability(self, g: Float[Array, "*p"]) -> Float[Array, "*p"]:
        """Return the logistic function of g."""
        return jax.nn.sigmoid(g)

    def loss(self, matches: Matches, g: PerPair) -> Float[Array, ""]:
        """Return the mean log loss, a tie counting half."""
        wins = self.observations(matches)
        total = wins * jax.nn.softplus(-g) + (matches.counts - wins) * jax.nn.softplus(g)
        return jnp.sum(total) / jnp.sum(matches.counts)

    def held_out_log_density(self, y: PerPair, trials: PerPair, g: PerPair) -> PerPair:
        """Return the log probability of the wins of each pair."""
        return BinomialLikelihood(y, trials).log_density(g)

    def draw_outcomes(self, rng_key: RngKey, trials: PerPair, g: PerPair) -> PerPair:
        return jax.random.binomial(rng_key, trials, self.probability(g), dtype=g.dtype)


def _direction(solver: PairSolver, counts: Array, wins: Array, coefficients: Array, latent: Array) -> PerPair:
    r"""Return the step of Newton's method for the coefficients a of :math:`f = K a`, :math:`K = K_E / (N \lambda)`.

    .. math:: (I + W K)^{-1} e = e - W^{1/2} (I + W^{1/2} K W^{1/2})^{-1} W^{1/2} K e, \qquad
        e = w - c\, \sigma(f) - a, \quad W = \mathrm{diag}(c\, \sigma(f)\, \sigma(-f))
    """
    chance = jax.nn.sigmoid(latent)
    residual = wins - counts * chance - coefficients
    root = jnp.sqrt(counts * chance * jax.nn.sigmoid(-latent))  # 1 - chance would lose digits
    return residual - root * solver.solve(root, root * solver.multiply(residual), _NEWTON_RESIDUAL)


@jax.jit
def _step_size(
    counts: Array, wins: Array, coefficients: Array, latent: Array, direction: Array, move: Array
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return the size of the step, 1 if a full step is an improvement, and the largest change of a full step."""

    def objective(size: Array) -> Array:
        f = latent + size * move
        likelihood = jnp.sum(wins * jax.nn.log_sigmoid(f) + (counts - wins) * jax.nn.log_sigmoid(-f))
        return likelihood - 0.5 * jnp.dot(coefficients + size * direction, f)

    return step_size(objective, latent.dtype), jnp.max(jnp.abs(move))
