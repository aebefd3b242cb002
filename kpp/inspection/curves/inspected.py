"""Reading what is inspected: the rows, their columns, and how the laws of linear functionals are computed."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from kpp.conversion.toolkit import as_explainable, is_foreign
from kpp.data.tables import Schema, as_table, is_table
from kpp.explanations import EstimatorFunction
from kpp.explanations.toolkit import (
    describe_uncertainty,
    fit_of,
    fitted_schema,
    has_function_law,
    is_estimator,
    is_fit,
    read_rows,
)
from kpp.foundation.validation import one_of
from kpp.functionals import AbstractFunctional, FunctionalLaw, GPPosterior
from kpp.functions import RKHSFunction
from kpp.gp import probability
from kpp.gp.toolkit import draw_gaussian
from kpp.kernels import AbstractKernel
from kpp.runtime.batching import call_in_chunks
from kpp.runtime.forks import refuse_forked_process
from kpp.typing import AnyArray, RngKey

SCALES = ("auto", "latent", "probability")
# The fewest joint draws of probabilities.
_JOINT_DRAWS = 200


class Inspected(NamedTuple):
    """A predictor and rows that have been read."""

    rows: Float[np.ndarray, "n d"]
    schema: Schema
    law: Callable[[AbstractFunctional], FunctionalLaw]  # of a functional
    uncertainty: str  # what the draws of the law hold
    scale: str  # "latent", "probability", or "prediction" for a function of unknown form
    kernel: AbstractKernel | None  # possibly with draws; None if the function can only be called
    outputs: DrawsAsOutputs | None = None  # its draws as outputs, if it can only be called or has one draw

    @classmethod
    def read(cls, predictor: Any, x: object, *, scale: str, output: str | int | None, rng_key: RngKey) -> Inspected:
        """Read a predictor and rows; the arguments are those of `kpp.curve`.

        Raises TypeError if the predictor cannot be read, or has no probabilities; ValueError if the rows do not fit it.
        """
        refuse_forked_process()
        one_of(scale, "scale", SCALES)
        x = as_table(x)
        predictor = _as_known(predictor, x, scale)
        rows, schema = read_rows(x, fitted_schema(predictor))
        model: Any = getattr(predictor, "model", None)
        is_classifier = getattr(model, "positive_class", None) is not None
        if scale == "probability" and not is_classifier and not isinstance(predictor, EstimatorFunction):
            raise TypeError(
                "`scale` 'probability' needs a kpp.Fit of a classifier or an estimator with probabilities, got a "
                f"{type(predictor).__name__}"
            )
        as_probability = is_classifier and scale != "latent"
        found = "probability" if as_probability else "latent"
        names = getattr(predictor, "output_names", None)
        if has_function_law(predictor, outputs=True):
            posterior = predictor if isinstance(predictor, GPPosterior) else predictor.function_posterior(at="few")
            if posterior.output_covariance is None:
                one_of(output, "output", (None,))
            else:
                num_outputs = posterior.mean.output_shape[0]
                posterior = posterior.combine(np.eye(num_outputs)[_position(output, names, num_outputs)])
            uncertainty = describe_uncertainty(predictor, has_law=True)["uncertainty"]
            if not as_probability:
                return cls(rows, schema, posterior.of, uncertainty, found, posterior.mean.kernel)
            law = functools.partial(_law_of_probabilities, posterior, getattr(model, "likelihood", model).link, rng_key)
            return cls(rows, schema, law, uncertainty, found, posterior.mean.kernel)
        function = _function_of(predictor, as_probability)
        if isinstance(function, RKHSFunction) and not function.output_shape:
            law = functools.partial(_law_of_draws, function)
            has_draws = int(np.prod(function.batch_shape)) > 1
            uncertainty, outputs = ("draws", None) if has_draws else ("none", DrawsAsOutputs(function))
            return cls(rows, schema, law, uncertainty, found, function.kernel, outputs)
        outputs = DrawsAsOutputs(function, output, None if names is None else tuple(names))
        if isinstance(function, EstimatorFunction):
            found = "prediction" if function.output_names is None else "probability"
        elif not is_fit(predictor) and not isinstance(function, RKHSFunction):
            found = "prediction"
        uncertainty = "draws" if outputs(rows[:2]).shape[1] > 1 else "none"
        return cls(rows, schema, outputs.law, uncertainty, found, None, outputs)


@dataclasses.dataclass
class DrawsAsOutputs:
    """A function of points whose draws are the outputs, as functionals take it."""

    function: Callable[..., Any]
    output: str | int | None = None
    names: tuple[str, ...] | None = None

    def __call__(self, x: AnyArray) -> Float[np.ndarray, "n s"]:
        """Return the predictions at points (n, d), one column for each draw."""
        values = self.with_draws(x)
        return values.reshape(-1, values.shape[-1]).T

    def with_draws(self, x: AnyArray) -> Float[np.ndarray, "*draws n"]:
        """Return the predictions at points (n, d) of the chosen output."""
        values, axis = call_in_chunks(self.function, np.asarray(x))
        return values[..., _position(self.output, self.names, values.shape[-1])] if values.ndim > axis + 1 else values

    def law(self, functional: AbstractFunctional) -> FunctionalLaw:
        """Return the law of a functional: a number without variance for each draw."""
        return certain(jnp.asarray(functional.apply(self)).T)


def _position(output: str | int | None, names: Sequence[str] | None, num_outputs: int) -> int:
    """Return the position of an output, by default of the only one, or of the second of two classes."""
    if output is None and (num_outputs == 1 or (num_outputs == 2 and names is not None)):
        return num_outputs - 1
    known: tuple[Any, ...] = tuple(names or range(num_outputs))
    return known.index(one_of(output, "output", known))


def certain(values: Float[AnyArray, "*batch q"]) -> FunctionalLaw:
    """Return the law of numbers without variance, one for each draw."""
    return FunctionalLaw(jnp.asarray(values), jnp.zeros((*values.shape, values.shape[-1])))


def _law_of_draws(function: RKHSFunction, functional: AbstractFunctional) -> FunctionalLaw:
    return certain(functional.of(function))


def _as_known(predictor: Any, x: object, scale: str) -> Any:
    """Return a fit, a posterior, an RKHS function, or a function of points."""
    predictor = getattr(predictor, "best_estimator_", predictor)  # of a search over hyperparameters
    fit = fit_of(predictor)
    if fit is not None:
        return fit
    has_probabilities = is_estimator(predictor) and hasattr(predictor, "predict_proba") and scale != "latent"
    if is_foreign(predictor) and not has_probabilities:
        try:
            return as_explainable(predictor)
        except (TypeError, ValueError):
            if hasattr(predictor, "predict_proba") or not (is_estimator(predictor) or callable(predictor)):
                raise
    if is_estimator(predictor):
        return EstimatorFunction.create(predictor, x if is_table(x) else None)
    if is_fit(predictor) or isinstance(predictor, GPPosterior) or callable(predictor):
        return predictor
    raise TypeError(
        "`predictor` must be a kpp.Fit, a kpp.GPPosterior, a kpp.RKHSFunction, a fitted estimator or a function of "
        f"points (n, d), got a {type(predictor).__module__}.{type(predictor).__qualname__}"
    )


def _function_of(predictor: Any, as_probability: bool) -> Any:
    if not is_fit(predictor):
        return predictor
    if not as_probability:
        return predictor.function()
    return lambda x: predictor.predict(x)["probability"].transpose("chain", "draw", "instance").to_numpy()


def _law_of_probabilities(
    posterior: GPPosterior, link: str, rng_key: RngKey, functional: AbstractFunctional
) -> FunctionalLaw:
    """Return joint draws of a functional of the probability, from joint draws of the latent values that it needs."""
    seen: list[np.ndarray] = []

    def note(x: AnyArray) -> np.ndarray:
        seen.append(np.asarray(x))
        return np.zeros(len(seen[-1]))

    functional.apply(note)
    points = np.unique(np.concatenate(seen), axis=0)
    num_draws = -(-_JOINT_DRAWS // int(np.prod(posterior.batch_shape)))
    keys = jax.random.split(rng_key, (*posterior.batch_shape, num_draws))
    latent = _joint_draws(posterior, jnp.asarray(points), keys)
    values = np.asarray(probability(link, latent)).reshape(-1, len(points)).T
    place = {row.tobytes(): i for i, row in enumerate(points)}
    numbers = functional.apply(lambda x: values[[place[row.tobytes()] for row in np.asarray(x)]])
    return certain(jnp.asarray(numbers).T)


@eqx.filter_jit
def _joint_draws(posterior: GPPosterior, points: jax.Array, keys: jax.Array) -> Float[jax.Array, "*batch num p"]:
    def of_draw(draw: GPPosterior, own: jax.Array) -> jax.Array:
        mean, covariance = draw.mean(points), draw.covariance(points, points)
        scale = jnp.mean(draw.mean.kernel.diagonal(points))
        return jax.vmap(lambda key: draw_gaussian(key, mean, covariance, scale))(own)

    return posterior.map_draws(of_draw, keys)
