"""`kpp.sensitivity`: Sobol indices and Shapley effects of the variance of a function, as posteriors."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import xarray as xr
from jaxtyping import Float

from kpp import registry
from kpp.conversion.toolkit import as_explainable, is_foreign
from kpp.data.tables import Schema, as_table, is_table
from kpp.explanations import EstimatorFunction
from kpp.explanations.toolkit import (
    ReadPredictor,
    check_features,
    describe_key,
    describe_uncertainty,
    describe_value_function,
    fit_of,
    has_function_law,
    is_estimator,
    read_rows,
)
from kpp.foundation.arguments import guard_exports
from kpp.foundation.validation import count
from kpp.functions import RKHSFunction
from kpp.games import AbstractValueFunction, as_players
from kpp.inspection.scores import FeatureScores
from kpp.inspection.variances.function_indices import (
    Indices,
    Question,
    indices_of_callable,
    indices_of_functions,
    indices_of_posterior,
)
from kpp.inspection.variances.product_variances import MEASURES
from kpp.runtime.random import numpy_generator
from kpp.typing import RngKey

# Of more rows than this, this number at even distances represents all, for methods whose cost grows with their square.
_MAX_ROWS = 1000


def sensitivity(
    predictor: object,
    x: object,
    *,
    value_function: str | AbstractValueFunction | None = None,
    groups: Mapping[str, Any] | None = None,
    relative: bool = True,
    num_draws: int = 200,
    num_rows: int = 4096,
    rng_key: RngKey | None = None,
    progress: bool = True,
) -> FeatureScores:
    r"""Compute how much of the variance of a function each feature explains.

    With independent features X and :math:`V(S) = \mathrm{Var}(E[f(X) \mid X_S])`,

    .. math:: \text{first order } V(\{j\}), \qquad \text{total } V(D) - V(D \setminus \{j\}), \qquad
        \text{Shapley effect } \sum_{S \not\ni j} \frac{|S|!\,(d-1-|S|)!}{d!} \bigl(V(S \cup j) - V(S)\bigr).

    The first-order index leaves out interactions, the total index counts each for all of its features, and the Shapley
    effects, which lie between both, divide them and add up to the variance.

    For a Gaussian process each draw is one of the function from its posterior. With a product kernel (`RBF`,
    `Categorical`, sums and products of such kernels) the integrals over the features are exact for any number of
    features. Draws of the function are determined by its values at up to 800 points; the rest of the function enters by
    its mean, so that the posterior mean has no error, and the attribute ``variance_left_out`` has the share of the
    posterior variance of f that the draws lack. Any other function is predicted at all combinations of the values of
    the features if there are at most 65536, and otherwise at pairs of random rows.

    Args:
        predictor: As for `kpp.explain`: a `kpp.Fit`, a `kpp.GPPosterior`, a `kpp.RKHSFunction`, a fitted estimator, or
            a function of points (p, d) with one output. Fits of classifiers are taken on the scale of their latent
            function.
        x: At least 2 rows, (n, d), or a data frame. Each feature has the empirical law of its column, independent of
            the other features; a group has that of its columns together. More than 1000 rows are thinned out evenly
            unless rows are sampled.
        value_function: For dependent features: the registered name of a value function whose only necessary option is
            ``background``, for which x is taken, or an instance. Its values v(S) replace E[f | X_S], for example those
            of "observational" or "observational-gaussian", and the variance is over the rows x. At most 12 players.
        groups: Features that form one player: a mapping from the name of a player to names or positions of features.
        relative: Whether the indices are shares of the variance of the function in the same draw, or in units of the
            variance. The shares of a constant function are 0.
        num_draws: The smallest number of draws of functions for a Gaussian process, and the largest number of draws of
            the hyperparameters. Of these at least 8 are taken at even distances, and more as long as this takes some
            seconds.
        num_rows: The number of pairs of rows, of a scrambled Sobol sequence, where nothing exact applies. The attribute
            ``standard_error`` of each measure has the standard errors of as many independent pairs, which are larger.
        rng_key: A JAX random key; by default ``jax.random.key(0)``.
        progress: Whether to show a progress bar.

    Returns:
        Draws of the measures ``first_order``, ``total`` and ``shapley``, one draw if the function has none. If the
        posterior mean is known exactly, the attribute ``posterior_mean`` of each measure holds it, in squared units.

    Raises:
        TypeError: If the predictor is of an unknown kind, or a value function needs further options.
        ValueError: If there are fewer than 2 rows, the function has several outputs, a feature or group does not exist,
            or numbers are not finite.

    Example:
        >>> indices = kpp.sensitivity(lambda rows: rows[:, 0], x, num_rows=64, progress=False)
        >>> indices["total"].values.round(3)
        array([[[1., 0.]]])

    References:
        Sobol', Sensitivity estimates for nonlinear mathematical models, 1993;
        Homma and Saltelli, Importance measures in global sensitivity analysis, 1996 (total indices);
        Owen, Sobol' indices and Shapley value, 2014;
        Oakley and O'Hagan, Probabilistic sensitivity analysis of complex models, 2004 (Gaussian processes).
    """
    num_draws, num_rows = count(num_draws, "num_draws"), count(num_rows, "num_rows", least=2)
    key = jax.random.key(0) if rng_key is None else rng_key
    known = _read(predictor, as_table(x))
    rows, schema = read_rows(x, known.schema)
    if len(rows) < 2:
        raise ValueError(f"`x` must hold at least 2 rows, because indices are of a variance, got shape {rows.shape}")
    check_features(known.function, rows)
    if not isinstance(known.function, RKHSFunction) and value_function is None:
        thinned = rows
    else:
        thinned = rows[:: -(-len(rows) // _MAX_ROWS)]
    game = None if value_function is None else _game(value_function, thinned)
    players = as_players(groups, rows.shape[1], schema.feature_names)
    question = Question(thinned, players, game, num_rows, numpy_generator(key), progress)
    found = _indices(known, question, num_draws)
    attrs = _describe(known, found, question) | {"rng_key": describe_key(key)}
    return FeatureScores(_dataset(found, players.names, relative=relative).assign_attrs(attrs))


def _read(predictor: Any, x: Any) -> ReadPredictor:
    """Return the predictor, its function, and its columns if it knows them."""
    predictor = getattr(predictor, "best_estimator_", predictor)  # of a search over hyperparameters
    fit = fit_of(predictor)
    if fit is not None:
        return ReadPredictor.read(fit, "callable")
    if is_foreign(predictor):
        # What has no exact representation, such as a forest, can still be predicted.
        with contextlib.suppress(TypeError, ValueError):
            names = getattr(predictor, "feature_names_in_", None)
            schema = None if names is None else Schema(tuple(map(str, names)))
            return ReadPredictor.read(as_explainable(predictor), "callable", schema)
    if is_estimator(predictor):
        predictor = EstimatorFunction.create(predictor, x if is_table(x) else None)
    return ReadPredictor.read(predictor, "callable")


def _game(value_function: str | AbstractValueFunction, rows: Float[np.ndarray, "m d"]) -> AbstractValueFunction:
    if not isinstance(value_function, str):
        return value_function
    try:
        return registry.get("value_functions", value_function)(background=rows)
    except registry.PluginError as error:
        raise registry.PluginError(f"`value_function`: {error}") from None
    except TypeError as error:
        raise TypeError(
            f"`value_function` {value_function!r} cannot be made from a background alone ({error}); give an instance"
        ) from None


def _has_law(known: ReadPredictor) -> bool:
    return isinstance(known.function, RKHSFunction) and has_function_law(known.predictor)


def _indices(known: ReadPredictor, question: Question, num_draws: int) -> Indices:
    function = known.function
    if not isinstance(function, RKHSFunction):
        return indices_of_callable(function, question)
    if function.output_shape:
        raise ValueError(
            f"`predictor` must have one output, got outputs of shape {function.output_shape}; give a function "
            "of points that returns one of them"
        )
    if _has_law(known):
        return indices_of_posterior(known.predictor, function, question, num_draws)
    return indices_of_functions(function, question, num_draws)


def _describe(known: ReadPredictor, found: Indices, question: Question) -> dict[str, Any]:
    """Return how the indices were computed, and what their draws hold."""
    num_draws = found.values.shape[1]
    law = describe_uncertainty(known.predictor, has_law=_has_law(known), num_draws=num_draws)
    attrs: dict[str, Any] = {
        "uncertainty": "draws of the function" if num_draws > 1 else "none: one function",
        **law,
        "method": found.method,
        "background_size": len(question.rows),
    }
    if question.value_function is not None:
        attrs |= describe_value_function(question.value_function)
    if found.left_out is not None:
        attrs["variance_left_out"] = found.left_out
    if found.used is not None:
        attrs["hyperparameter_draws"] = f"{found.used[0]} of {found.used[1]}"
    return attrs


def _dataset(found: Indices, names: tuple[str, ...], *, relative: bool) -> xr.Dataset:
    """Return the draws of each measure, (chain, draw, feature), with what is known of their errors."""
    values, errors = found.values, found.errors
    if relative:
        variance = values[2].sum(axis=-1)[None, :, None]
        scale = np.divide(1.0, variance, out=np.zeros_like(variance), where=variance > 0)
        values, errors = values * scale, None if errors is None else errors * scale
    dataset = xr.Dataset(coords={"feature": list(names)})
    for position, measure in enumerate(MEASURES):
        attrs: dict[str, Any] = {"unit": "share of the variance" if relative else "squared unit of the predictions"}
        if found.mean is not None:
            attrs["posterior_mean"] = found.mean[position].tolist()
        if errors is not None:
            attrs["standard_error"] = np.sqrt(np.mean(errors[position] ** 2, axis=0)).tolist()
        draws = values[position].reshape(*(found.batch_shape or (1, -1)), len(names))
        dataset[measure] = (("chain", "draw", "feature"), draws, attrs)
    return dataset


guard_exports(globals())
