"""The laws of a converter. Each is a check of one example: a converter, a model, points, and what the model says there.

An example is (converter, model, x, mean, covariance): `mean` and `covariance` are the predictions of the model's own
library at x; `covariance` is None for a model that is not a Gaussian process.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jax.typing import ArrayLike

from kpp.conversion import AbstractConverter
from kpp.functionals import GPPosterior
from kpp.functions import RKHSFunction
from kpp.testing.compare import assert_close, assert_raises, laws_in

# The tolerance of a law in float64, relative to the largest value, in units of `kpp.testing.compare.tolerance`, 1e-12.
_FACTOR = 10_000


def needs_no_arguments(converter: object, model: object, x: object, mean: object, covariance: object) -> None:
    """The class of a converter can be built without arguments."""
    try:
        type(converter)()
    except TypeError as error:
        raise AssertionError(f"{type(converter).__name__} cannot be built without arguments: {error}") from error


def function_predicts_as_the_model(
    converter: AbstractConverter, model: Any, x: Any, mean: ArrayLike, covariance: ArrayLike | None
) -> None:
    """rkhs_function(model) is an RKHSFunction whose values are the model's own predictions, at 1e-8 in float64."""
    function = converter.rkhs_function(model)
    assert isinstance(function, RKHSFunction), f"`rkhs_function` returns a {type(function).__name__}"
    assert_close(function(x), mean, "values of `rkhs_function` and the model's own", _FACTOR)


def posterior_is_the_models_own(
    converter: AbstractConverter, model: Any, x: Any, mean: ArrayLike, covariance: ArrayLike | None
) -> None:
    """gp_posterior(model) has the model's own mean, covariance and variances, at 1e-8 in float64."""
    if covariance is None:
        return
    posterior = converter.gp_posterior(model)
    assert isinstance(posterior, GPPosterior), f"`gp_posterior` returns a {type(posterior).__name__}"
    assert_close(posterior.mean(x), mean, "means of `gp_posterior` and the model's own", _FACTOR)
    assert_close(posterior.covariance(x, x), covariance, "covariances of `gp_posterior` and the model's own", _FACTOR)
    variances = np.diag(np.asarray(covariance))
    assert_close(posterior.variance(x), variances, "variances of `gp_posterior` and the model's own", _FACTOR)


def has_posterior_tells_the_truth(
    converter: AbstractConverter, model: Any, x: Any, mean: ArrayLike, covariance: ArrayLike | None
) -> None:
    """has_posterior(model) is true exactly for models with a covariance; for others gp_posterior is an error."""
    assert converter.has_posterior(model) is (covariance is not None), (
        f"`has_posterior` is {converter.has_posterior(model)}, and the example has "
        f"{'no ' if covariance is None else 'a '}covariance"
    )
    if covariance is None:
        assert_raises((TypeError, ValueError), lambda: converter.gp_posterior(model), "a model without a posterior")


def refuses_other_classes(
    converter: AbstractConverter, model: object, x: object, mean: object, covariance: object
) -> None:
    """An object of another library is a TypeError, so that other converters are asked."""
    assert_raises(TypeError, lambda: converter.gp_posterior(object()), "a plain object as a posterior")
    assert_raises(TypeError, lambda: converter.rkhs_function(object()), "a plain object as a function")


LAWS = laws_in(globals())
