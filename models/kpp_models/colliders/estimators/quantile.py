"""Projection of conditional quantiles onto the constraints of independences, through the distribution function."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr
from scipy.stats import rankdata
from sklearn.base import RegressorMixin
from sklearn.ensemble import RandomForestRegressor
from sklearn.metrics import d2_pinball_score

from kpp import Fit
from kpp.foundation.validation import count
from kpp.typing import Numbers
from kpp_models.colliders.estimators.function import ProjectedEstimator
from kpp_models.colliders.estimators.projection import fit_baselines
from kpp_models.colliders.estimators.regressions import predict_columns
from kpp_models.colliders.estimators.rows import Rows, check_predictions, fit_predictor, read_targets


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)  # compared and printed by scikit-learn
class ProjectedQuantileRegressor(RegressorMixin, ProjectedEstimator):
    r"""Conditional quantiles that obey independences of the target.

    Quantiles of Y given X obey no constraint on their means, but where Y is independent of A given B, the conditional
    distribution function :math:`F(t \mid x)` does at each t:

    .. math:: E[F(t \mid X) \mid A, B] = P(Y \le t \mid B).

    So it is projected, at thresholds t among the targets, and the result, which need not increase with t or stay
    between 0 and 1, is clipped, sorted (the increasing rearrangement) and inverted, with linear interpolation between
    thresholds. F is estimated by one regression of the indicators of :math:`Y \le t` for all t (distribution
    regression).

    Args:
        estimator: The regressor of the indicators; by default a random forest of leaves of at least five rows. With
            `prefit` it is used unchanged: a `kpp.Fit` whose noise is normal, or a callable that takes rows and
            thresholds (q,) and returns the values of F, (n, q).
        levels: The probabilities of the quantiles, a number or several.
        num_thresholds: The number of thresholds, evenly spread quantiles of the targets, the largest among them; fewer
            if there are fewer different targets.
        collider, outcome, conditional, several, tol, max_cycles: As for `ProjectedRegressor`.
        baseline: The regression of the indicators on B, as `conditional`; frequencies if B is empty.
        prefit: Whether the estimator is already fitted.
        check: Whether to test on the labeled rows what the statements say, for the ranks of the targets, and to warn
            of those that look false.
        random_state: The seed of the default estimator, of "forest" and "kernel-ridge", and of tests.

    Attributes:
        thresholds_: The thresholds in order, (q,).
        estimator_: The predictor whose distribution functions are projected.
        statements_, n_features_in_, feature_names_in_: As for `ProjectedRegressor`.
        baselines_: For each statement the distribution function given B, at the thresholds.
        projection_: The function that is subtracted; None without a collider.
        independence_tests_: For each statement a `kpp.embeddings.MeanIndependenceTest`.

    References:
        Chernozhukov, Fernandez-Val and Galichon, Quantile and probability curves without crossing, 2010, for the
        rearrangement; Chernozhukov, Fernandez-Val and Melly, Inference on counterfactual distributions, 2013, section
        3, for distribution regression; Bouabid, Fawkes and Sejdinovic, Returning The Favour, 2023, algorithm 4, here
        for indicators.
    """

    levels: Numbers = 0.5
    num_thresholds: int = 100

    def fit(self, X: object, y: object, X_unlabeled: object = None) -> ProjectedQuantileRegressor:
        """Fit the estimator and its projection; see `ProjectedRegressor.fit`.

        ValueError is also raised if `levels` or `num_thresholds` are invalid.
        """
        levels = np.asarray(self.levels, dtype=float)
        if levels.ndim > 1 or levels.size == 0 or not ((levels > 0) & (levels < 1)).all():
            raise ValueError(f"`levels` must be a number between 0 and 1 or a sequence of such, got {self.levels!r}")
        count(self.num_thresholds, "num_thresholds")
        rows, y = read_targets(self, X, y)
        # The test compares means: those of ranks exist for heavy tails too, and see shifts of any quantile.
        plan, further = self._plan(rows, rankdata(y)[:, None], X_unlabeled)
        probabilities = np.arange(1, self.num_thresholds + 1) / self.num_thresholds
        self.thresholds_ = np.unique(np.quantile(y, probabilities, method="inverted_cdf"))
        below = (y[:, None] <= self.thresholds_).astype(float)
        estimator = self.estimator
        if estimator is None:
            estimator = RandomForestRegressor(min_samples_leaf=5, random_state=self._seed)
        self.estimator_ = fit_predictor(estimator, self.prefit, rows, below)
        baselines = fit_baselines(plan.statements, rows.table, below, plan.baseline)
        plain = DistributionFunction(self.estimator_, self.prefit, self.thresholds_)
        self._keep(plan.project(plain, baselines, rows, further))
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # scikit-learn's mixin uses squared errors
        return tags

    def predict(self, X: object) -> Float[np.ndarray, "n *q"]:
        """Return the quantiles at rows (n, d): (n,) for one level, else (n, q) in the order of the levels."""
        values = self.predict_distribution(X)
        levels = np.asarray(self.levels, dtype=float)
        found = np.stack([_invert(values, self.thresholds_, level) for level in levels.ravel()], axis=1)
        return found[:, 0] if levels.ndim == 0 else found

    def predict_distribution(self, X: object) -> Float[np.ndarray, "n q"]:
        """Return the distribution functions at rows (n, d), at `thresholds_` and sorted, (n, q)."""
        return np.sort(np.clip(self.projected_values(X), 0.0, 1.0), axis=1)

    def projected_values(self, X: object) -> Float[np.ndarray, "n q"]:
        """Return the values that obey the statements at rows (n, d): distribution functions before clipping, (n, q)."""
        return self._values(X)

    def score(self, X: object, y: object) -> float:
        """Return the relative reduction of the pinball loss of constant quantiles, averaged over the levels."""
        levels = np.asarray(self.levels, dtype=float).ravel()
        quantiles = self.predict(X).reshape(-1, len(levels))
        scores = [d2_pinball_score(y, found, alpha=level) for found, level in zip(quantiles.T, levels, strict=True)]
        return float(np.mean(scores))


@dataclasses.dataclass(frozen=True)
class DistributionFunction:
    r"""The conditional distribution functions of a predictor before the projection, :math:`F(t \mid x)`.

    The predictor is the fitted regression of the indicators, or with `prefit` a `kpp.Fit` or a callable.
    """

    predictor: Any
    prefit: bool
    thresholds: np.ndarray

    def __call__(self, rows: Rows) -> Float[np.ndarray, "n q"]:
        """Return the values at rows and thresholds."""
        if not self.prefit:
            found = predict_columns(self.predictor, rows.features)
        elif isinstance(self.predictor, Fit):
            found = _normal_mixture(self.predictor, rows, self.thresholds)
        elif callable(self.predictor):
            found = np.asarray(self.predictor(rows.features, self.thresholds), dtype=np.float64)
        else:
            raise TypeError(
                "`estimator` must, with `prefit=True`, be a kpp.Fit or a callable of rows and thresholds, got "
                f"{self.predictor!r}"
            )
        check_predictions(found, (len(rows), len(self.thresholds)))
        return found


def _normal_mixture(fit: Fit, rows: Rows, thresholds: np.ndarray) -> Float[np.ndarray, "n q"]:
    """Return the mean over draws of the normal distribution functions of new observations."""
    found = fit.predict(rows.features)
    lacking = [name for name in ("mean", "noise_variance") if name not in found]
    if lacking:
        raise TypeError(f"`estimator` must be a fit with normal noise, got {fit!r}, whose predictions lack {lacking}")
    mean, variance = found["mean"], found["noise_variance"] + found.get("latent_variance", 0.0)
    standardized = [(threshold - mean) / np.sqrt(variance) for threshold in thresholds]
    columns = [ndtr(z.to_numpy()).mean(axis=(0, 1)) for z in standardized]
    return np.stack(columns, axis=1)


def _invert(values: Float[np.ndarray, "n q"], thresholds: Float[np.ndarray, " q"], level: float) -> np.ndarray:
    """Return the points at which increasing values reach a level, by linear interpolation between thresholds, (n,)."""
    rows, last = np.arange(len(values)), len(thresholds) - 1
    after = np.minimum((values < level).sum(axis=1), last)
    before = np.maximum(after - 1, 0)
    low, high = values[rows, before], values[rows, after]
    rise = np.where(high > low, high - low, 1.0)
    share = np.clip((level - low) / rise, 0.0, 1.0)
    return thresholds[before] + share * (thresholds[after] - thresholds[before])
