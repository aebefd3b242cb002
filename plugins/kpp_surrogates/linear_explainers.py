"""The explainers "lime", "bayes-lime" and "bayes-shap": a linear model of the predictions around each point."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float
from scipy.special import comb

from kpp import AbstractExplainer
from kpp.explanations import Inputs
from kpp.explanations.toolkit import describe_key, freeze_groups
from kpp.foundation.validation import count, one_of
from kpp.runtime.memory import check_count
from kpp.typing import AnyArray, RngKey
from kpp_surrogates.converters import as_background, as_float, freeze_features, required_key
from kpp_surrogates.example_functions import function_with_draws, points, product, two_outputs
from kpp_surrogates.local_linear import AbstractLocalLinear, LinearModels, LocalProblem, fit_posterior, ridge_regression
from kpp_surrogates.perturbation import Coalitions, Neighborhood, kinds_of_players

# The kernel's width for one feature; the width grows with the root of the number of features.
_WIDTH = 0.75
_NUM_BINS = {None: 0, "quartile": 4, "decile": 10}


class LIME(AbstractLocalLinear):
    r"""The coefficients of a ridge regression of predictions on perturbed features, weighted by proximity.

    .. math:: \min_{b, \beta} \sum_i \pi_i \bigl(f(x_i') - b - z_i^\top \beta\bigr)^2 + \lambda \|\beta\|^2,
        \qquad \pi_i = \exp(-\|z_i - z_0\|^2 / w^2)^{1/2}

    over neighbors :math:`x_i'` of the point, the first of which is the point itself. A numerical feature is drawn from
    a Gaussian with the mean and variance of the background, and z is its standardized value, so that its contribution
    is the slope of the prediction per standard deviation of the background. A category, in text or one-hot columns, is
    drawn by its frequency in the background, and a group of other columns is kept or replaced by the values of a
    background point; for these z is 1 if they equal those of the point, and otherwise 0.

    The base value is the intercept b. The contributions do not add up to the prediction.

    Args:
        background: The background points, (m, d).
        num_perturbations: The number of neighbors of each point.
        kernel_width: w, by default 0.75 times the root of the number of features or groups.
        penalty: :math:`\lambda`; not multiplied by the number of neighbors.
        around: Whether numbers are drawn around the mean of the "background" or around the "instance".
        discretize: None, or "quartile" or "decile": numbers become intervals between these quantiles of the background.
            z is 1 in the interval of the point, so that a contribution is the effect of being in it.
        categorical: Columns of numbers that hold categories, by name or position; columns of text need not be named.
        groups: Features that are perturbed together: a mapping from a name to names or positions of features.
        progress: Whether to show a progress bar.

    References:
        Ribeiro, Singh and Guestrin, "Why should I trust you?": explaining the predictions of any classifier, 2016.
    """

    background: Float[AnyArray, "m d"] = eqx.field(converter=as_background)
    num_perturbations: int = eqx.field(static=True, default=5000)
    kernel_width: float | None = eqx.field(static=True, default=None, converter=as_float("kernel_width"))
    penalty: float = eqx.field(static=True, default=1.0, converter=as_float("penalty"))
    around: str = eqx.field(static=True, default="background")
    discretize: str | None = eqx.field(static=True, default=None)
    categorical: Any = eqx.field(static=True, default=(), converter=freeze_features)
    groups: Any = eqx.field(static=True, default=None, converter=freeze_groups)
    progress: bool = eqx.field(static=True, default=True)

    def __check_init__(self) -> None:
        _check_options(self)

    def local_problem(self, inputs: Inputs, rng_key: RngKey | None) -> LocalProblem:
        """Return random neighbors of the points and the ridge regression on them."""

        def fit(
            features: Float[np.ndarray, "p n g"], targets: Float[np.ndarray, "p n r"], weights: Float[np.ndarray, "p n"]
        ) -> LinearModels:
            intercepts, coefficients = ridge_regression(features, weights, targets, self.penalty)
            return LinearModels(intercepts, coefficients, None)

        return _problem(self, "lime", fit, inputs, rng_key)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractExplainer, Any, Any]]:
        background, x = points(rng_key)
        yield cls(background, num_perturbations=40, categorical=[4]), two_outputs, x
        yield cls(background, num_perturbations=40, groups={"pair": [0, 2]}, around="instance"), product, x
        binned = cls(background, num_perturbations=40, penalty=0.1, discretize="quartile")
        yield binned, function_with_draws(background), x


class BayesLIME(AbstractLocalLinear):
    r"""The posterior of a Bayesian linear regression of predictions on perturbed features, weighted by proximity.

    The neighbors and their weights :math:`\pi` are those of `LIME`. With rows :math:`X = [1, Z]` and
    :math:`\Pi = \operatorname{diag} \pi`, coefficient j has a Student law,

    .. math:: V = (X^\top \Pi X + I)^{-1}, \quad \hat\beta = V X^\top \Pi y, \quad
        s^2 = \frac{r^\top \Pi r + \hat\beta^\top \hat\beta}{N}, \quad \beta_j \sim t_N(\hat\beta_j, s^2 V_{jj}),

    r being the residuals. Its mean is the contribution, and its variance is the variance of the explanation. The
    targets y are the predictions minus their mean over the background, so that a constant added to the function changes
    nothing; the base value is the intercept with that mean added again.

    All that is not linear counts as noise, of one size in units of the weights. It is neither, so that 90 % intervals
    held the best slope in 82 % of simulated cases.

    Args:
        background, kernel_width, around, discretize, categorical, groups, progress: As for `LIME`.
        num_perturbations: The number of neighbors of each point, N.

    Example:
        >>> options = {"explainer": "bayes-lime", "background": x, "progress": False}
        >>> found = kpp.explain(lambda rows: rows[:, 0], x[:1], rng_key=jax.random.key(0), **options)
        >>> found.attrs["explainer"]
        'bayes-lime'

    References:
        Slack, Hilgard, Singh and Lakkaraju, Reliable post hoc explanations: modeling uncertainty in explainability,
        2021.
    """

    background: Float[AnyArray, "m d"] = eqx.field(converter=as_background)
    num_perturbations: int = eqx.field(static=True, default=200)
    kernel_width: float | None = eqx.field(static=True, default=None, converter=as_float("kernel_width"))
    around: str = eqx.field(static=True, default="background")
    discretize: str | None = eqx.field(static=True, default=None)
    categorical: Any = eqx.field(static=True, default=(), converter=freeze_features)
    groups: Any = eqx.field(static=True, default=None, converter=freeze_groups)
    progress: bool = eqx.field(static=True, default=True)

    def __check_init__(self) -> None:
        _check_options(self)

    def local_problem(self, inputs: Inputs, rng_key: RngKey | None) -> LocalProblem:
        """Return random neighbors of the points and the Bayesian regression on them."""
        base = inputs.mean_predictions()
        return _problem(self, "bayes-lime", functools.partial(fit_posterior, base=base), inputs, rng_key)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractExplainer, Any, Any]]:
        background, x = points(rng_key)
        yield cls(background, num_perturbations=40, categorical=[4]), two_outputs, x
        yield cls(background, num_perturbations=40, groups={"pair": [0, 2]}, around="instance"), product, x
        yield cls(background, num_perturbations=40), function_with_draws(background), x


def _check_options(explainer: LIME | BayesLIME) -> None:
    count(explainer.num_perturbations, "num_perturbations", 3)
    check_count(explainer.num_perturbations, "num_perturbations", np.shape(explainer.background)[-1])
    one_of(explainer.around, "around", ("background", "instance"))
    one_of(explainer.discretize, "discretize", _NUM_BINS)
    if explainer.discretize is not None and explainer.around == "instance":
        raise ValueError(
            "`around` must be 'background' with `discretize`, because numbers are drawn from the intervals of the "
            "background; got 'instance'"
        )


def _problem(
    explainer: LIME | BayesLIME, name: str, fit: Callable[..., LinearModels], inputs: Inputs, rng_key: RngKey | None
) -> LocalProblem:
    """Return the neighbors of points, and a regression with weights by proximity."""
    rng_key = required_key(rng_key, name)
    num_bins = _NUM_BINS[explainer.discretize]
    kinds = kinds_of_players(inputs.players, inputs.shown, inputs.schema, explainer.categorical, intervals=num_bins > 0)
    background = np.asarray(inputs.background)
    neighborhood = Neighborhood(rng_key, background, inputs.players, kinds, explainer.around, num_bins)
    width = explainer.kernel_width or _WIDTH * inputs.players.num_players**0.5

    record = {"explainer": name, "kernel_width": width, "around": explainer.around, "rng_key": describe_key(rng_key)}
    if explainer.discretize is not None:
        record["discretize"] = explainer.discretize
    return LocalProblem(neighborhood.sample, lambda z, y: fit(z, y, weights=_proximity(z, width)), record)


def _proximity(features: Float[np.ndarray, "p n g"], width: float) -> Float[np.ndarray, "p n"]:
    """Return the weights of neighbors by their distance from the first one, the point itself."""
    squares = np.sum((features - features[:, :1]) ** 2, axis=2)
    return np.exp(-squares / width**2) ** 0.5  # the root is that of the package lime, not of the paper


class BayesSHAP(AbstractLocalLinear):
    r"""The posterior of a Bayesian linear regression on coalitions, whose coefficients estimate Shapley values.

    A coalition of features keeps the values of the point, and all other features take those of one random row of the
    background. With rows :math:`X = [1, Z]`, z being 1 for the features that are present, coefficient j has a Student
    law,

    .. math:: V = (X^\top \Pi X + I)^{-1}, \quad \hat\beta = V X^\top \Pi y, \quad
        s^2 = \frac{r^\top \Pi r + \hat\beta^\top \hat\beta}{N}, \quad \beta_j \sim t_N(\hat\beta_j, s^2 V_{jj}),

    r being the residuals. Its mean is the contribution, and its variance is the variance of the explanation. The
    targets y are the predictions minus their mean over the background, so that a constant added to the function changes
    nothing. That mean is the base value of Shapley values; base value plus contributions equal the prediction only
    approximately.

    Args:
        background: The background points, (m, d).
        num_perturbations: N, the number of coalitions for each point, and of evaluations of the function for it.
        coalitions: "shapley" draws coalitions by the Shapley kernel, with equal weights. "uniform" draws all coalitions
            with equal probability and weights them by the kernel, with 1 for the empty and the full one, as first
            published: the sum of the weights is so small that the prior dominates, and the intervals are far too
            narrow.
        groups: Features that form one player: a mapping from the name of a player to names or positions of features.
        progress: Whether to show a progress bar.

    Example:
        >>> options = {"explainer": "bayes-shap", "background": x, "progress": False}
        >>> found = kpp.explain(lambda rows: rows[:, 0], x[:1], rng_key=jax.random.key(0), **options)
        >>> found.mean().values.round(2).values
        array([[ 0.24, -0.09]])

    References:
        Slack, Hilgard, Singh and Lakkaraju, Reliable post hoc explanations: modeling uncertainty in explainability,
        2021.
    """

    background: Float[AnyArray, "m d"] = eqx.field(converter=as_background)
    num_perturbations: int = eqx.field(static=True, default=200)
    coalitions: str = eqx.field(static=True, default="shapley")
    groups: Any = eqx.field(static=True, default=None, converter=freeze_groups)
    progress: bool = eqx.field(static=True, default=True)

    def __check_init__(self) -> None:
        count(self.num_perturbations, "num_perturbations", 3)
        check_count(self.num_perturbations, "num_perturbations", np.shape(self.background)[-1])
        one_of(self.coalitions, "coalitions", ("shapley", "uniform"))

    def local_problem(self, inputs: Inputs, rng_key: RngKey | None) -> LocalProblem:
        """Return random coalitions and the Bayesian regression on them."""
        rng_key = required_key(rng_key, "bayes-shap")
        base = inputs.mean_predictions()

        def fit(features: Float[np.ndarray, "p n g"], targets: Float[np.ndarray, "p n r"]) -> LinearModels:
            is_uniform = self.coalitions == "uniform"
            weights = _kernel_weights(features) if is_uniform else np.ones(features.shape[:2], features.dtype)
            return fit_posterior(features, targets, weights, base)

        record = {"explainer": "bayes-shap", "coalitions_drawn": self.coalitions, "rng_key": describe_key(rng_key)}
        coalitions = Coalitions(rng_key, np.asarray(inputs.background), inputs.players, self.coalitions)
        return LocalProblem(coalitions.sample, fit, record, base)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractExplainer, Any, Any]]:
        background, x = points(rng_key)
        yield cls(background, num_perturbations=40), two_outputs, x
        yield cls(background, num_perturbations=40, groups={"pair": [0, 2]}, coalitions="uniform"), product, x
        yield cls(background, num_perturbations=40), function_with_draws(background), x


def _kernel_weights(features: Float[np.ndarray, "p n g"]) -> Float[np.ndarray, "p n"]:
    """Return the Shapley kernel, but 1 for the empty and the full coalition, for which it is infinite."""
    num_players = features.shape[2]
    sizes = np.arange(1, num_players)  # of proper coalitions; Lundberg and Lee 2017, theorem 2
    weights = np.ones(num_players + 1, dtype=features.dtype)
    weights[1:-1] = (num_players - 1) / (comb(num_players, sizes) * sizes * (num_players - sizes))
    return weights[features.sum(axis=2).astype(int)]
