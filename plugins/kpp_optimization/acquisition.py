"""The expected improvement of a further query on the best one."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.special import erfcx, ndtr

from kpp.foundation.validation import as_finite_array


def expected_improvement(mean: ArrayLike, standard_deviation: ArrayLike, best: float) -> Float[np.ndarray, " p"]:
    r"""Return the expected improvement of a normal variable below a number.

    .. math:: E \max(b - f, 0) = \sigma \bigl[ u \Phi(u) + \varphi(u) \bigr], \qquad u = (b - \mu)/\sigma

    Below u = 0 the two terms cancel; there :math:`\varphi(u) [1 + u \sqrt{\pi/2}\, \mathrm{erfcx}(-u/\sqrt2)]` keeps
    relative accuracy far into the tail, so that even candidates with a tiny improvement can be ranked. To maximize,
    pass the negatives of mean and best.

    Args:
        mean: :math:`\mu`, (p,), in the units of the objective.
        standard_deviation: :math:`\sigma`, at least 0, (p,).
        best: b, the lowest value so far.

    Returns:
        The expected improvements, at least 0, (p,).

    Raises:
        ValueError: If a value is not finite, the shapes differ, or a standard deviation is negative.

    References:
        Jones, Schonlau and Welch, Efficient global optimization of expensive black-box functions, 1998, equation 15.
    """
    mean, sd = (
        np.asarray(as_finite_array(v, n)) for v, n in ((mean, "mean"), (standard_deviation, "standard_deviation"))
    )
    if mean.shape != sd.shape:
        raise ValueError(f"`mean` and `standard_deviation` must have one shape, got {mean.shape} and {sd.shape}")
    if (sd < 0.0).any():
        raise ValueError(f"`standard_deviation` must be at least 0, got {sd.min():g}")
    gain = float(as_finite_array(best, "best")) - mean
    with np.errstate(over="ignore"):  # for a tiny standard deviation; the density is 0 beyond 40 standard deviations
        u = np.clip(gain / np.where(sd > 0.0, sd, 1.0), -40.0, None)
    density = np.exp(-0.5 * np.minimum(u, 40.0) ** 2) / np.sqrt(2.0 * np.pi)  # phi(u)
    # Erfcx is a scaled tail: the tail itself underflows far below the best.
    below = density * np.maximum(1.0 + u * np.sqrt(np.pi / 2.0) * erfcx(np.maximum(-u, 0.0) / np.sqrt(2.0)), 0.0)
    return np.where(
        sd > 0.0, np.where(u < 0.0, sd * below, np.maximum(gain, 0.0) * ndtr(u) + sd * density), np.maximum(gain, 0.0)
    )
