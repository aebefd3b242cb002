r"""Scores of predictions that scikit-learn lacks: lower is better, except for coverage, gain and similarity.

Pointwise scores have one value per observation, so that models can be compared by paired differences; their mean is the
score of the model. Root mean squared error, R², Brier score, log loss and pinball loss are in `sklearn.metrics`.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from statistics import NormalDist
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.stats as jss
import numpy as np
from jaxtyping import Array, Float
from scipy import stats

from kpp.foundation import validation
from kpp.foundation.arguments import guard_exports
from kpp.foundation.validation import as_finite_array, as_targets, between, count, is_concrete
from kpp.runtime.memory import check_count
from kpp.typing import Numbers


def gaussian_log_score(y: Numbers, mean: Numbers, scale: Numbers) -> Float[Array, " n"]:
    r"""Return the negative log density of observations under normal predictions.

    .. math:: \tfrac12 \log(2 \pi \sigma_i^2) + \frac{(y_i - \mu_i)^2}{2 \sigma_i^2}

    Args:
        y: The observations, (n,).
        mean: :math:`\mu`, (n,) or one number.
        scale: :math:`\sigma`, standard deviations, noise included, (n,) or one number, positive.

    Returns:
        The scores in nats, (n,).

    Raises:
        ValueError: If the shapes differ, or a standard deviation is not positive.
    """
    y, mean, scale = _gaussian(y, mean, scale)
    return _log_score(y, mean, scale)


def gaussian_crps(y: Numbers, mean: Numbers, scale: Numbers) -> Float[Array, " n"]:
    r"""Return the continuous ranked probability score of normal predictions.

    .. math::

        \int (F(t) - 1\{y \le t\})^2\, dt
        = \sigma \bigl[ z (2 \Phi(z) - 1) + 2 \varphi(z) - \pi^{-1/2} \bigr], \qquad z = (y - \mu)/\sigma

    Args:
        y: The observations, (n,).
        mean: :math:`\mu`, (n,) or one number.
        scale: :math:`\sigma`, standard deviations, noise included, (n,) or one number, positive.

    Returns:
        The scores in the units of y, (n,).

    Raises:
        ValueError: As for `gaussian_log_score`.

    Example:
        >>> kpp.metrics.gaussian_crps(np.array([0.0, 1.0]), np.zeros(2), np.ones(2)).round(4)
        Array([0.2337, 0.6024], dtype=float64)

    References:
        Gneiting and Raftery, Strictly proper scoring rules, 2007, equation (21) and the display after it.
    """
    y, mean, scale = _gaussian(y, mean, scale)
    return _crps(y, mean, scale)


def crps_from_draws(y: Numbers, draws: Numbers) -> Float[Array, " n"]:
    r"""Return the continuous ranked probability score of predictive draws.

    .. math::

        \frac1s \sum_r |X_r - y| - \frac{1}{s (s-1)} \sum_{r < r'} |X_r - X_{r'}|

    This estimates the score of the distribution that the draws come from without bias, if they are independent; the
    score of the draws' own empirical distribution would be larger. In O(n s log s) time.

    Args:
        y: The observations, (n,).
        draws: The draws, (s, n), s > 1; as `Fit.sample_predictive` gives them.

    Returns:
        The scores in the units of y, (n,). Single scores may be negative by chance.

    Raises:
        ValueError: If `draws` has a different shape, or fewer than two draws.

    References:
        Gneiting and Raftery, Strictly proper scoring rules, 2007, equation (20); Ferro, Fair scores for ensemble
        forecasts, 2014, equation (6).
    """
    y, draws = as_targets(y), as_finite_array(draws, "draws")
    if draws.ndim != 2 or draws.shape[1] != y.shape[0] or draws.shape[0] < 2:
        raise ValueError(
            f"`draws` must have shape (s, {y.shape[0]}), s > 1, one column per observation, got {draws.shape}"
        )
    return _fair_crps(y, draws)


def interval_coverage(y: Numbers, lower: Numbers, upper: Numbers) -> Float[Array, ""]:
    r"""Return the share of observations inside their intervals, :math:`\frac1n \sum_i 1\{l_i \le y_i \le u_i\}`.

    Args:
        y: The observations, (n,).
        lower: The lower ends, (n,) or one number.
        upper: The upper ends, (n,) or one number, not below the lower ends.

    Returns:
        The share, between 0 and 1; intervals of probability p should come near p.

    Raises:
        ValueError: If the shapes differ, or an interval ends before it starts.

    Example:
        >>> float(kpp.metrics.interval_coverage(np.array([0.0, 3.0]), np.zeros(2) - 1, np.ones(2)))
        0.5
    """
    y, lower, upper = _interval(y, lower, upper)
    return _share_inside(y, lower, upper)


def interval_score(y: Numbers, lower: Numbers, upper: Numbers, probability: float) -> Float[Array, " n"]:
    r"""Return the interval score: the width of intervals plus a penalty for observations outside them.

    .. math:: (u - l) + \frac{2}{1 - p} (l - y)_+ + \frac{2}{1 - p} (y - u)_+

    Args:
        y: The observations, (n,).
        lower: The lower ends, (n,) or one number: predictive quantiles at (1 - p) / 2.
        upper: The upper ends, quantiles at (1 + p) / 2.
        probability: p, the nominal probability of the intervals, between 0 and 1.

    Returns:
        The scores in the units of y, (n,).

    Raises:
        ValueError: As for `interval_coverage`, or if p is not between 0 and 1.

    Example:
        >>> kpp.metrics.interval_score(np.array([0.0, 2.0]), -np.ones(2), np.ones(2), 0.9).round(2)
        Array([ 2., 22.], dtype=float64)

    References:
        Winkler, A decision-theoretic approach to interval estimation, 1972; Gneiting and Raftery, Strictly proper
        scoring rules, 2007, equation (43).
    """
    validation.probability(probability, "probability")
    y, lower, upper = _interval(y, lower, upper)
    return _interval_score(y, lower, upper, 2 / (1 - probability))


def expected_calibration_error(labels: Numbers, probabilities: Numbers, *, num_bins: int = 10) -> Float[Array, ""]:
    r"""Return how far predicted probabilities are from frequencies, on average over bins.

    .. math:: \sum_b \frac{n_b}{n}\, \bigl|\bar y_b - \bar p_b\bigr|

    The bins divide [0, 1] evenly. With labels drawn from the probabilities themselves the value is not 0 but of the
    order of the root of the number of bins over n.

    Args:
        labels: The labels, 0 or 1, (n,).
        probabilities: The predicted probabilities of label 1, (n,).
        num_bins: How many bins.

    Returns:
        The error, between 0 and 1.

    Raises:
        ValueError: If the shapes differ, a label is neither 0 nor 1, a probability is outside [0, 1], or `num_bins` is
            less than 1.

    References:
        Naeini, Cooper and Hauskrecht, Obtaining well calibrated probabilities using Bayesian binning, 2015, section 2.
    """
    num_bins = count(num_bins, "num_bins")
    labels = as_targets(labels, name="labels")
    probabilities = _like(labels, probabilities, "probabilities", "labels")
    _require("labels", "0 or 1", lambda label: (label == 0) | (label == 1), labels)
    _require("probabilities", "between 0 and 1", lambda p: (p >= 0) & (p <= 1), probabilities)
    return _calibration_error(labels, probabilities, num_bins)


def uniform_band(
    num_ranks: int, num_draws: int, probability: float = 0.95, *, num_simulations: int = 2000, seed: int = 0
) -> tuple[Float[np.ndarray, " ranks"], Float[np.ndarray, " ranks"]]:
    r"""Return a band that holds the whole empirical distribution function of uniform ranks with a probability.

    .. math:: P\bigl(\text{lower}_k \le \hat F(k) \le \text{upper}_k \text{ for all } k\bigr) \approx p, \qquad
        S \hat F(k) \sim \mathrm{Binomial}\Bigl(S, \frac{k + 1}{L + 1}\Bigr)

    At each k the band is an interval of the binomial distribution. The probability of these intervals is chosen by
    simulation, such that all of them together have the requested probability.

    Args:
        num_ranks: S, the number of ranks.
        num_draws: L, the number of draws among which the values were ranked.
        probability: p, between 0 and 1.
        num_simulations: How many sets of uniform ranks are simulated.
        seed: The seed of the simulation.

    Returns:
        The lower and the upper ends at k = 0, ..., L - 1, each of shape (L,).

    Raises:
        ValueError: If a number is below 1, or the probability is not between 0 and 1.

    References:
        Säilynoja, Bürkner and Vehtari, Graphical test for discrete uniformity and its applications in goodness-of-fit
        evaluation and multiple sample comparison, 2022, algorithm 1.
    """
    count(num_ranks, "num_ranks")
    count(num_draws, "num_draws")
    between(probability, "probability", 0, 1, ends=False)
    check_count(num_draws, "num_draws", 3)
    law = stats.binom(num_ranks, (np.arange(num_draws) + 1) / (num_draws + 1))
    check_count(count(num_simulations, "num_simulations"), "num_simulations", 2 * num_draws)
    uniform = np.full(num_draws + 1, 1 / (num_draws + 1))
    simulated = np.random.default_rng(seed).multinomial(num_ranks, uniform, num_simulations)
    counts = np.cumsum(simulated[:, :-1], axis=1)
    tails = 2 * np.minimum(law.cdf(counts), law.sf(counts - 1))
    level = np.quantile(tails.min(axis=1), 1 - probability)
    return law.ppf(level / 2) / num_ranks, law.isf(level / 2) / num_ranks


class ProjectionGain(NamedTuple):
    """The outcome of `projection_gain`, in squared units of the outcome.

    Attributes:
        gain: The reduction of the mean squared error by the projection; negative if the error increases.
        standard_error: The standard error of the gain, for this predictor and these expectations.
        interval: The normal confidence interval of the gain at the given level.
        largest_gain: The gain if the conditional expectation were known.
    """

    gain: float
    standard_error: float
    interval: tuple[float, float]
    largest_gain: float


def projection_gain(
    values: Numbers, expectations: Numbers, baseline: Numbers = 0.0, *, level: float = 0.95
) -> ProjectionGain:
    r"""Estimate the reduction of the mean squared error by a projection of a predictor, without labels.

    .. math::

        \Delta = E[(Y - h)^2] - E[(Y - h + \tilde e)^2] = E[2 (h - f_0)\, \tilde e - \tilde e^2], \qquad
        \tilde e = e(C) - f_0

    for a predictor h of Y, an estimate e(c) of :math:`E[h \mid C = c]`, and :math:`f_0 = E[Y \mid C]`, which a collider
    makes known: the mean of Y, or its regression on its parents. The second equality follows from :math:`E[Y \tilde e]
    = E[f_0 \tilde e]`. The mean over rows is unbiased if neither h nor e has seen them.

    The exact expectation would gain :math:`\|E[h \mid C] - f_0\|^2 = \Delta + E[(e - E[h \mid C])^2]`. `largest_gain`
    is the gain plus an estimate of the last term: with m estimates from disjoint sets of rows it is the variance of
    their mean, :math:`E[s^2(C)] / m` with their sample variance :math:`s^2(c)`; with one estimate it is 0. So
    `largest_gain` is too low by the squared bias of the estimates, and for a single estimate also by its variance.

    Args:
        values: h at n rows that it was not fitted to, (n,), n > 1.
        expectations: e at these rows, (n,), fitted to other rows, or (n, m) for m estimates fitted to disjoint sets of
            rows, whose mean is subtracted by the projection.
        baseline: :math:`f_0` at these rows, (n,), or one number; 0 for a centered outcome. The gain treats it as exact.
        level: The probability of the interval.

    Returns:
        The gain, its standard error and interval, and the largest gain.

    Raises:
        ValueError: If the shapes do not fit, there is one row only, or `level` is not between 0 and 1.

    References:
        Bouabid, Fawkes and Sejdinovic, Returning the favour: when regression benefits from probabilistic causal
        knowledge, 2023, propositions 4.1 and 5.1, for exact expectations.
    """
    values = as_targets(values, name="values")
    h, f0 = np.asarray(values), np.asarray(_like(values, baseline, "baseline", "values"))
    estimates = np.asarray(as_finite_array(expectations, "expectations"))
    n = len(h)
    if estimates.shape[:1] != h.shape or estimates.ndim > 2 or 0 in estimates.shape:
        raise ValueError(f"`expectations` must have shape ({n},) or ({n}, m), got {estimates.shape}")
    if n < 2:
        raise ValueError(f"`values` must hold at least two rows, got {n}")
    validation.probability(level, "level")
    estimates = estimates.reshape(n, -1)
    shift = estimates.mean(axis=1) - f0
    terms = 2 * (h - f0) * shift - shift**2
    gain, error = float(terms.mean()), float(terms.std(ddof=1)) / math.sqrt(n)
    half = NormalDist().inv_cdf((1 + level) / 2) * error
    m = estimates.shape[1]
    spread = float(estimates.var(axis=1, ddof=1).mean()) / m if m > 1 else 0.0
    return ProjectionGain(gain, error, (gain - half, gain + half), gain + spread)


def structural_similarity(x: Numbers, y: Numbers, *, data_range: float) -> float:
    r"""Return the structural similarity of two images (level, contrast and structure), averaged over windows.

    .. math::

        \frac{(2 \mu_x \mu_y + c_1)(2 \sigma_{xy} + c_2)}{(\mu_x^2 + \mu_y^2 + c_1)(\sigma_x^2 + \sigma_y^2 + c_2)},
        \qquad c_1 = (0.01 L)^2, \quad c_2 = (0.03 L)^2

    Means, variances and the covariance are weighted within windows of 11 x 11 pixels by a Gaussian of standard
    deviation 1.5 pixels; only windows that lie completely inside the image are used.

    Args:
        x: An image, (a, b), at least 11 pixels on each side.
        y: The other image, (a, b).
        data_range: L, the relevant range of values, positive; for example the range of the true image. The score
            depends on it: level and contrast are compared to constants in proportion to it.

    Returns:
        The score, 1 for equal images, at least -1.

    Raises:
        ValueError: If the shapes differ, an image is too small, a value is missing, or `data_range` is not positive.

    References:
        Wang, Bovik, Sheikh and Simoncelli, Image quality assessment: from error visibility to structural similarity,
        2004, equations (13) to (17).
    """
    from scipy.ndimage import gaussian_filter

    for name, image in (("x", x), ("y", y)):
        as_finite_array(image, name)
    first, second = np.asarray(x, dtype=float), np.asarray(y, dtype=float)  # NumPy's float64, for any setting of JAX
    if first.shape != second.shape or first.ndim != 2 or min(first.shape) < 11:
        raise ValueError(f"`x` and `y` must have one shape (a, b) from (11, 11), got {first.shape} and {second.shape}")
    validation.positive(data_range, "data_range")

    def smooth(image: np.ndarray) -> np.ndarray:
        return gaussian_filter(image, 1.5, radius=5)[5:-5, 5:-5]

    mean_x, mean_y = smooth(first), smooth(second)
    variances = smooth(first**2) - mean_x**2 + smooth(second**2) - mean_y**2
    covariance = smooth(first * second) - mean_x * mean_y
    c1, c2 = (0.01 * data_range) ** 2, (0.03 * data_range) ** 2
    level = (2 * mean_x * mean_y + c1) / (mean_x**2 + mean_y**2 + c1)
    return float(np.mean(level * (2 * covariance + c2) / (variances + c2)))


def _gaussian(y: Numbers, mean: Numbers, scale: Numbers) -> tuple[Array, Array, Array]:
    y = as_targets(y)
    mean, scale = _like(y, mean, "mean"), _like(y, scale, "scale")
    _require("scale", "positive", lambda scale: scale > 0, scale)
    return y, mean, scale


def _interval(y: Numbers, lower: Numbers, upper: Numbers) -> tuple[Array, Array, Array]:
    y = as_targets(y)
    lower, upper = _like(y, lower, "lower"), _like(y, upper, "upper")
    _require("upper", "at least `lower`", operator.ge, upper, lower)
    return y, lower, upper


def _like(y: Array, value: Numbers, name: str, other: str = "y") -> Float[Array, " n"]:
    """Return one number, or one number per observation, as an array of the shape of the observations."""
    array = as_finite_array(value, name)
    if array.shape not in ((), y.shape):
        raise ValueError(f"`{name}` must have the shape of `{other}`, {y.shape}, or be one number, got {array.shape}")
    return array if array.shape == y.shape else jnp.broadcast_to(array, y.shape)


def _require(name: str, wanted: str, test: Callable[..., np.ndarray], *arrays: Array) -> None:
    """Raise ValueError if a test fails for values of the first array; traced arrays are trusted."""
    if not all(map(is_concrete, arrays)):
        return
    known = [np.asarray(array) for array in arrays]
    holds = test(*known)
    if not holds.all():
        first = int(holds.argmin())
        raise ValueError(f"`{name}` must be {wanted}, got {known[0][first]:g} at index {first}")


# Each formula is one program.
@jax.jit
def _log_score(y: Array, mean: Array, scale: Array) -> Array:
    return -jss.norm.logpdf(y, mean, scale)


@jax.jit
def _crps(y: Array, mean: Array, scale: Array) -> Array:
    z = (y - mean) / scale
    return scale * (z * (2 * jss.norm.cdf(z) - 1) + 2 * jss.norm.pdf(z) - 1 / math.sqrt(math.pi))


@jax.jit
def _fair_crps(y: Array, draws: Array) -> Array:
    count = draws.shape[0]
    # In the sum over r < r' of X_(r') - X_(r), the draw of rank r is the larger in r pairs, the smaller in s - 1 - r.
    ranks = 2 * jnp.arange(count, dtype=draws.dtype) - (count - 1)
    differences = ranks @ (jnp.sort(draws, axis=0) - y[None, :])
    return jnp.mean(jnp.abs(draws - y[None, :]), axis=0) - differences / (count * (count - 1))


@jax.jit
def _share_inside(y: Array, lower: Array, upper: Array) -> Array:
    return jnp.mean((lower <= y) & (y <= upper))


@jax.jit
def _interval_score(y: Array, lower: Array, upper: Array, penalty: Array) -> Array:
    missed = jnp.maximum(lower - y, 0.0) + jnp.maximum(y - upper, 0.0)
    return upper - lower + penalty * missed


@functools.partial(jax.jit, static_argnums=2)
def _calibration_error(labels: Array, probabilities: Array, num_bins: int) -> Array:
    bins = jnp.minimum((probabilities * num_bins).astype(int), num_bins - 1)
    gaps = jnp.zeros(num_bins, dtype=probabilities.dtype).at[bins].add(labels - probabilities)
    return jnp.sum(jnp.abs(gaps)) / labels.shape[0]


guard_exports(globals())
