"""`kpp.gradient`: the derivatives of a Gaussian process with respect to features."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax

from kpp.data.tables import as_names
from kpp.foundation.arguments import guard_exports
from kpp.foundation.validation import one_of
from kpp.functionals import FunctionalLaw, Gradient
from kpp.inspection.curves.inspected import Inspected


def gradient(predictor: object, x: object, features: str | Sequence[str] | None = None) -> FunctionalLaw:
    r"""Compute the law of the derivatives of the latent function of a Gaussian process, :math:`\partial_j f(x_i)`.

    Args:
        predictor: A Gaussian process that `kpp.explain` takes.
        x: The p points, (p, d), or a data frame.
        features: The names of one or several features, all numbers; all features that are numbers by default.

    Returns:
        The joint law of the derivatives, those of the first point before those of the second, in units of the function
        per unit of the feature, for at most 100 draws of the hyperparameters (``function_posterior(at="few")``). Its
        names are those of the features, with the numbers of the points if there are several.

    Raises:
        TypeError: If the predictor is not a Gaussian process.
        ValueError: If `x` does not fit it, a feature is unknown or a category, or the functions of the kernel have no
            derivatives.
    """
    subject = Inspected.read(predictor, x, scale="latent", output=None, rng_key=jax.random.key(0))
    if subject.uncertainty not in ("full", "function only"):
        raise TypeError(f"`predictor` must be a Gaussian process, got a {type(predictor).__name__} without its law")
    rows, schema = subject.rows, subject.schema
    numeric = [name for name in schema.feature_names if name not in schema.categories]
    names = numeric if features is None else [one_of(name, "features", numeric) for name in as_names(features)]
    law = subject.law(Gradient(rows, [schema.index(name) for name in names]))
    several = [f"{name}, point {i}" for i in range(len(rows)) for name in names]
    return dataclasses.replace(law, names=tuple(several if len(rows) > 1 else names))


guard_exports(globals())
