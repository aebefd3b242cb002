"""Models of any library as RKHS functions and Gaussian-process posteriors, by the converters that plugins register."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kpp import registry
from kpp.conversion.converter import AbstractConverter
from kpp.explanations.toolkit import is_fit
from kpp.functionals import GPPosterior
from kpp.functions import RKHSFunction


def as_gp_posterior(predictor: Any) -> GPPosterior:
    r"""Represent a fitted Gaussian process of any library exactly: the posterior of its function.

    Args:
        predictor: A `kpp.GPPosterior`, which is returned; a `kpp.Fit` of a Gaussian process; or a fitted model of a
            library for which a converter is registered (``kpp.registry.converters()``), or a pair of the model and its
            training data if the library keeps them apart.

    Returns:
        The posterior of the function, without observation noise, on the scale of the model's predictions. For a
        `kpp.Fit` there is one posterior for every draw of the hyperparameters.

    Raises:
        TypeError: If no converter knows the class of the model, or it is not a Gaussian process.
        ValueError: If a part of the model has no exact representation, which the message names, or the model is not
            fitted.

    Example:
        >>> kpp.as_gp_posterior(fit).variance(x[:2]).round(3).tolist()
        [[[0.004, 0.003]]]
    """
    if isinstance(predictor, GPPosterior):
        return predictor
    if hasattr(predictor, "function_posterior"):
        return predictor.function_posterior()
    return _first_converted(predictor, lambda converter: converter.gp_posterior(predictor))


def as_rkhs_function(predictor: Any) -> RKHSFunction:
    r"""Represent a fitted kernel method of any library exactly as an RKHS function.

    The page "Conversion" of the documentation lists which models are converted, and which parts are refused.

    Args:
        predictor: A fitted model of a library for which a converter is registered (``kpp.registry.converters()``), or a
            pair of the model and its training data if the library keeps them apart. A `kpp.Fit`, a `kpp.GPPosterior`
            and a `kpp.RKHSFunction` give their own function.

    Returns:
        f, equal to the model's own predictions up to rounding.

    Raises:
        TypeError: If no converter knows the class of the model.
        ValueError: If a part of the model has no exact representation, which the message names, or the model is not
            fitted.

    Example:
        >>> function = kpp.as_rkhs_function(fit)
        >>> function(x[:3]).round(2)
        Array([[[ 0.1 ,  0.65, -0.53]]], dtype=float64)
    """
    if isinstance(predictor, RKHSFunction):
        return predictor
    if isinstance(predictor, GPPosterior):
        return predictor.mean
    if is_fit(predictor):
        return predictor.function()
    return _first_converted(predictor, lambda converter: converter.rkhs_function(predictor))


def as_explainable(predictor: Any) -> Any:
    """Represent a foreign model by its posterior if it is a Gaussian process, or else by its function.

    A pipeline around an estimator of kpp keeps the draws of its fit.

    Args:
        predictor: A fitted model, or a pair of a model and its data; see `as_rkhs_function`.

    Raises:
        TypeError: If no converter knows the class of the model.
        ValueError: If a part of the model has no exact representation, or the model is not fitted.
    """
    return _first_converted(predictor, lambda converter: converter.explainable(predictor))


def is_foreign(predictor: Any) -> bool:
    """Return whether a converter is registered for the library of a predictor."""
    return next(_converters(predictor), None) is not None


def _converters(predictor: Any) -> Iterator[AbstractConverter]:
    """Yield the converters of the libraries that the predictor's class and its base classes come from, in their order.

    A pair (model, data) is looked up by the class of the model.
    """
    model = predictor[0] if type(predictor) is tuple and predictor else predictor
    libraries = dict.fromkeys(base.__module__.partition(".")[0] for base in type(model).__mro__)
    registered = registry.converters()
    yield from (registered[library]() for library in libraries if library in registered)


def _first_converted(predictor: Any, convert: Callable[[AbstractConverter], Any]) -> Any:
    """Return what the first converter makes of a predictor whose class it knows."""
    refusals = []
    for converter in _converters(predictor):
        try:
            return convert(converter)
        except TypeError as refusal:
            refusals.append(refusal)
    if len(refusals) == 1:
        raise refusals[0]
    if refusals:
        raise TypeError("; ".join(str(refusal) for refusal in refusals)) from refusals[0]
    libraries = ", ".join(sorted(registry.converters()))
    raise TypeError(
        f"`predictor` must be a kpp.Fit, a kpp.RKHSFunction, a kpp.GPPosterior, or a fitted model of {libraries}; got "
        f"a {type(predictor).__module__}.{type(predictor).__qualname__}"
    )
