"""The fit to more rows than an exact Gaussian process takes, by inducing points."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Float

from kpp.data.tables import read_points
from kpp.inference import AbstractInference, Laplace
from kpp.typing import RngKey
from kpp_models.treatments.regression import OutcomeFit, fit_outcome

# The inducing points by default.
_NUM_INDUCING = 100
# The rows from which hyperparameters are learned: further ones cost time and change them little.
_NUM_FITTED = 5000
# Each draw of the hyperparameters takes a pass over all rows.
_NUM_DRAWS = 50


def fit_many_rows(
    rng_key: RngKey,
    features: pd.DataFrame,
    outcome: Float[np.ndarray, " n"],
    inference: AbstractInference | None,
    models: tuple[Callable[..., Any], Callable[..., Any]],
    num_inducing: int | None,
) -> OutcomeFit:
    """Fit a Gaussian process with inducing points, its hyperparameters to at most 5,000 random rows, and f to all rows.

    The random rows include one of each level of a category. See `fit_outcome` for the arguments and errors; the default
    inference has 50 draws.
    """
    order_key, fit_key = jax.random.split(rng_key)
    points, schema = read_points(features, "data")
    chosen = np.asarray(jax.random.permutation(order_key, len(points)))[:_NUM_FITTED]
    levels = [np.unique(points[:, schema.index(name)], return_index=True)[1] for name in sorted(schema.categories)]
    some = np.unique(np.concatenate([chosen, *levels]))
    gaussian = functools.partial(models[0], latent="inducing", num_inducing=num_inducing or _NUM_INDUCING)
    inference = Laplace(num_samples=_NUM_DRAWS, progress=False) if inference is None else inference
    found = fit_outcome(fit_key, features.iloc[some], outcome[some], None, inference, (gaussian, models[1]))
    every = {"x": jnp.asarray(found.scales.apply(points)), "y": jnp.asarray((outcome - found.center) / found.width)}
    return found._replace(fit=dataclasses.replace(found.fit, arviz=None, data=every), features=features)
