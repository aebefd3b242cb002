r"""Logistic regression of counts without an intercept, by Newton's method.

.. math:: \min_w \sum_i \bigl[u_i \log(1 + e^{-z_i}) + v_i \log(1 + e^{z_i})\bigr] + \frac\gamma2 \|w\|^2,
    \qquad z = D w
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
from jaxtyping import Float
from scipy.special import expit, log_expit

_MAX_STEPS = 100
_TOLERANCE = 1e-10  # the tolerance of the largest change of a coefficient


def fit_logistic(
    design: Any, wins: Float[np.ndarray, " m"], losses: Float[np.ndarray, " m"], penalty: float
) -> Float[np.ndarray, " q"]:
    """Return the coefficients w, (q,), for a design D, an array or a sparse matrix (m, q).

    `wins` and `losses` say how often each row had the outcomes 1 and 0, (m,) each. At the penalty 0 the result is the
    solution of smallest norm, if a finite solution exists. Raises ValueError if Newton's method does not converge, for
    example because the minimum is not attained.
    """

    def objective(w: np.ndarray) -> float:
        z = design @ w
        return float(wins @ log_expit(z) + losses @ log_expit(-z) - penalty / 2 * w @ w)

    coefficients = np.zeros(design.shape[1])
    for _ in range(_MAX_STEPS):
        z = design @ coefficients
        gradient = design.T @ (wins * expit(-z) - losses * expit(z)) - penalty * coefficients
        curvature = (wins + losses) * expit(z) * expit(-z)
        step = _solve(_hessian(design, curvature), gradient, penalty)
        sizes = 0.5 ** np.arange(20)
        present = objective(coefficients)
        slack = 100 * np.finfo(float).eps * (1 + abs(present))  # rounding errors near the maximum must not halve steps
        size = next((size for size in sizes if objective(coefficients + size * step) >= present - slack), sizes[-1])
        coefficients = coefficients + size * step
        if np.abs(step).max() <= _TOLERANCE * (1 + np.abs(coefficients).max()):
            return coefficients
    raise ValueError(
        f"the logistic regression of `y` has not converged in {_MAX_STEPS} steps of Newton's method; its coefficients "
        f"have grown to {np.abs(coefficients).max():.1e}: penalize them more"
    )


def _hessian(design: Any, curvature: np.ndarray) -> Float[np.ndarray, "q q"]:
    if isinstance(design, np.ndarray):
        return design.T @ (curvature[:, None] * design)
    return (design.T @ design.multiply(curvature[:, None])).toarray()


def _solve(hessian: np.ndarray, gradient: np.ndarray, penalty: float) -> np.ndarray:
    if penalty > 0:
        return scipy.linalg.solve(hessian + penalty * np.eye(len(hessian)), gradient, assume_a="pos")
    return scipy.linalg.lstsq(hessian, gradient)[0]  # singular: a constant added to all strengths changes nothing
