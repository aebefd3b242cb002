"""Split conformal checks of the intervals of a GPEC: their coverage, and the factor that corrects it."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import numpy as np
import scipy.special
import xarray as xr
from numpy.typing import ArrayLike

from kpp.explanations import Explanation
from kpp.foundation.validation import probability as check_probability
from kpp.typing import RngKey
from kpp_gpec.fitted import FittedGPEC


class ConformalCheck(NamedTuple):
    """The coverage of intervals for the explanations of rows to which the process was not fitted.

    Attributes:
        probability: The nominal probability of the intervals.
        coverage: The share of all held-out rows whose explanations they contain, (feature[, output]).
        factor: The factor by which to widen (or narrow) them to reach the nominal probability, (feature[, output]),
            computed from one part of the rows. It is infinite if an explanation with variance 0 was wrong.
        conformal_coverage: The coverage of the widened intervals for the other rows.
        num_calibration: The number of rows from which the factors are computed.
        num_test: The number of rows for the coverage of the widened intervals.
    """

    probability: float
    coverage: xr.DataArray
    factor: xr.DataArray
    conformal_coverage: xr.DataArray
    num_calibration: int
    num_test: int


def conformal_check(
    fitted: FittedGPEC,
    explanation: Explanation,
    x: ArrayLike | None = None,
    *,
    rng_key: RngKey,
    probability: float = 0.9,
    calibration_share: float = 0.5,
) -> ConformalCheck:
    r"""Compare a GPEC's intervals with explanations of rows to which it was not fitted.

    With the errors :math:`r_{id} = |E_{id} - \mu_{id}| / \sqrt{V_{id} + U_{id}}` of n rows, the factor of feature d is
    the :math:`\lceil (n + 1) q \rceil`-th smallest of them over the Gaussian quantile :math:`z_{(1+q)/2}`. If rows are
    exchangeable, intervals widened by it contain the explanation of another row with probability at least q, for any
    law of the errors. This is the explanation by the explainer, with its error: if the explainer errs, intervals of
    `FittedGPEC.explain` hold the value without error less often.

    Args:
        fitted: The processes.
        explanation: Explanations of held-out rows, made by the explainer itself.
        x: The rows, (p, d); by default the data of the explanation.
        rng_key: A JAX random key, which divides the rows.
        probability: q, the nominal probability of the intervals.
        calibration_share: The share of the rows from which the factors are computed.

    Returns:
        Coverages and factors.

    Raises:
        ValueError: If an argument is out of range, or there are too few rows for the probability.

    References:
        Lei, G'Sell, Rinaldo, Tibshirani and Wasserman, Distribution-free predictive inference for regression, 2018.
    """
    for name, value in (("probability", probability), ("calibration_share", calibration_share)):
        check_probability(value, name)
    scores = _scores(fitted, explanation, x)
    num_rows = scores.sizes["instance"]
    num_calibration = math.floor(calibration_share * num_rows)
    rank = _ceil((num_calibration + 1) * probability)  # Lei et al.: plus 1 for the row to come
    if rank > num_calibration or num_calibration == num_rows:
        least = _ceil(probability / (1 - probability))
        raise ValueError(
            f"`explanation` must have at least {least} rows to calibrate `probability` {probability} on, and one to "
            f"test it on, got {num_calibration} and {num_rows - num_calibration}"
        )
    order = np.asarray(jax.random.permutation(rng_key, num_rows))
    first, second = scores.isel(instance=order[:num_calibration]), scores.isel(instance=order[num_calibration:])
    quantile = float(scipy.special.ndtri((1 + probability) / 2))
    ranked = np.sort(first.transpose("instance", ...).values, axis=0)[rank - 1]
    factor = first.isel(instance=0, drop=True).copy(data=ranked / quantile).rename("factor")
    return ConformalCheck(
        probability=probability,
        coverage=(scores <= quantile).mean("instance").rename("coverage"),
        factor=factor,
        conformal_coverage=(second <= factor * quantile).mean("instance").rename("coverage"),
        num_calibration=num_calibration,
        num_test=num_rows - num_calibration,
    )


def widen(explanation: Explanation, check: ConformalCheck) -> Explanation:
    """Widen the law of an explanation, so that its intervals of the checked probability are the conformal ones.

    Args:
        explanation: An explanation by the GPEC that was checked.
        check: The outcome of `conformal_check`.

    Returns:
        The explanation with the variance, its parts and the covariance multiplied by the squares of the factors.

    Raises:
        ValueError: If the features or outputs differ, or a factor is infinite.
    """
    if not np.isfinite(check.factor.values).all():
        raise ValueError("no finite factor widens an interval of length zero; give some noise (`min_noise_variance`)")
    dataset, factor = explanation.dataset.copy(), check.factor
    for dim in factor.dims:
        if not np.array_equal(factor.coords[dim].values, dataset.coords[dim].values):
            raise ValueError(f"`check` must have the {dim}s of `explanation`, got {factor.coords[dim].values.tolist()}")
    for name in ("variance", "variance_parts"):
        if name in dataset:
            dataset[name] = (dataset[name] * factor**2).transpose(*dataset[name].dims)
    if "covariance" in dataset:
        both = factor * factor.rename(feature="feature_other")
        dataset["covariance"] = (dataset["covariance"] * both).transpose(*dataset["covariance"].dims)
    record = {"probability": check.probability, "rows": check.num_calibration}
    dataset.attrs = {**explanation.attrs, "uncertainty": "calibrated on held-out rows", "conformal": record}
    return Explanation(dataset)


def _ceil(value: float) -> int:
    """Round up to an integer, ignoring rounding errors: 0.9 / (1 - 0.9) counts as 9."""
    return math.ceil(round(value, 9))


def _scores(fitted: FittedGPEC, explanation: Explanation, x: ArrayLike | None) -> xr.DataArray:
    """Return the errors in standard deviations; infinite for an error with standard deviation 0."""
    assessed = fitted.assess(explanation, x)
    predicted = fitted.explain(explanation.data.values if x is None else x)
    assert assessed.variance is not None  # GPEC always gives a variance
    errors = abs(assessed.values - predicted.values.assign_coords(assessed.values.coords))
    deviations = assessed.variance**0.5
    certain = deviations == 0
    return xr.where(certain, xr.where(errors == 0, 0.0, np.inf), errors / deviations.where(~certain, 1.0))
