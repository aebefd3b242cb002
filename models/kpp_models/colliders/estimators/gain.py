"""The reduction of the mean squared error by a projection, from rows unseen by it and by the predictor."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from kpp.metrics import ProjectionGain
from kpp_models.colliders.estimators.function import ProjectedFunction
from kpp_models.colliders.estimators.rows import Rows

_QUANTILE = 1.959964  # the normal quantile at 0.975, for intervals of level 0.95


def cross_fitted_gain(
    fit: Callable[[Rows, np.ndarray, Rows], ProjectedFunction],
    rows: Rows,
    y: Float[np.ndarray, " n"],
    further: Rows,
    num_folds: int,
    random: np.random.RandomState,
) -> ProjectionGain:
    r"""Estimate the reduction of the mean squared error of a regression h by subtracting e.

    .. math::

        E[(Y - h)^2] - E[(Y - h + e)^2] = E[2 (h - f_0) e - e^2] - 2 E[(Y - f_0) e]

    The first term is averaged over all rows, the second over the labelled ones, each row by the h, e and baseline
    :math:`f_0` of the folds without it. The second is 0 for the true baseline; it corrects the bias from an estimated
    one. Each fit is one to labelled rows, their targets, and the `further` rows without labels. With one estimate of e
    the largest possible gain cannot be estimated, so `largest_gain` equals the gain; see `kpp.metrics.projection_gain`.

    References:
        Bouabid, Fawkes and Sejdinovic, Returning The Favour, 2023, Propositions 4.1 and 5.1, for :math:`e = E[h \mid C]
        - f_0`; Angelopoulos et al., Prediction-powered inference, 2023, for the two averages.
    """
    if num_folds < 2:
        raise ValueError(f"`gain_folds` must be at least 2, or None, got {num_folds}")
    num_folds = min(num_folds, len(rows))
    of_all, of_labelled = [np.empty(len(rows)), np.empty(len(further))], np.empty(len(rows))
    for fold, further_fold in zip(
        np.array_split(random.permutation(len(rows)), num_folds),
        np.array_split(random.permutation(len(further)), num_folds),
        strict=True,
    ):
        function = fit(rows.without(fold), np.delete(y, fold), further.without(further_fold))
        excess, taken, start = _at(function, rows.take(fold))
        of_all[0][fold] = 2 * excess * taken - taken**2  # 2 (h - f_0) e - e^2
        of_labelled[fold] = 2 * (y[fold] - start) * taken  # 2 (Y - f_0) e, of mean 0 for the true f_0
        if len(further_fold):
            excess, taken, _ = _at(function, further.take(further_fold))
            of_all[1][further_fold] = 2 * excess * taken - taken**2
    total = len(rows) + len(further)
    gain = float(np.concatenate(of_all).mean() - of_labelled.mean())
    influence = of_all[0] / total - of_labelled / len(rows)
    variance = len(rows) * influence.var(ddof=1)  # of a sum over independent rows
    if len(further) > 1:
        variance += len(further) * of_all[1].var(ddof=1) / total**2
    error = float(np.sqrt(variance))
    return ProjectionGain(gain, error, (gain - _QUANTILE * error, gain + _QUANTILE * error), gain)


def _at(function: ProjectedFunction, rows: Rows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return h - f_0, e and f_0 at rows."""
    assert function.projection is not None  # for the type checker: statements exist
    start = function.baselines[0](rows.table)[:, 0]
    return function.plain(rows)[:, 0] - start, function.projection(rows.table)[:, 0], start
