"""The effect of a treatment as labeled draws, with its contrasts, summaries and robustness."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float
from numpyro import distributions as dist

import kpp
from kpp.foundation.caution import KppWarning
from kpp.foundation.validation import count, one_of, refuse_first
from kpp.foundation.wording import named
from kpp.typing import RngKey
from kpp_models.treatments.treatment import setting_label

# Fewer effective rows than this are warned about.
_FEW_ROWS = 10
# A message lists no more values of a curve than these.
_FEW_VALUES = 6
# The default number of rows that stand for the law of the covariates in an explanation.
_NUM_BACKGROUND = 50

_MEASURES: dict[str, Callable[[xr.DataArray, xr.DataArray], xr.DataArray]] = {
    "difference": lambda a, b: a - b,
    "ratio": lambda a, b: a / b,
    "odds ratio": lambda a, b: a * (1 - b) / (b * (1 - a)),
}


@runtime_checkable
class Study(Protocol):
    """What has made an effect, as far as the effect knows it."""

    def refute(self, rng_key: RngKey, how: str) -> CausalEffect:
        """Estimate the effect again on a changed table; see `CausalEffect.refute`."""


@dataclasses.dataclass(frozen=True)
class CausalEffect:
    r"""The expected outcome after an intervention, E[Y | do(t)], for some values t of a treatment, or policies.

    The dataset holds

    * ``effect``: draws of the curve, (chain, draw, treatment). They carry the uncertainty of the hyperparameters, of
      the function given these, and of the law of the covariates (Bayesian bootstrap). Of an effect without an
      adjustment set each is the estimate from a random half of the rows (the half-sample bootstrap).
    * ``variance_parts``: the variance of the curve due to "function", the uncertainty of the function given
      hyperparameters and covariates, and to "hyperparameters and covariates", (part, treatment). An effect without an
      adjustment set has none.
    * ``average_derivative``: draws of the average derivative, (chain, draw), if asked for.
    * ``effect_of_rows``: joint draws of E[Y | do(t), z_i], (chain, draw, row, treatment), if asked for; they are
      independent of those of ``effect``.
    * ``effective_rows``: the effective number of rows at each value of the treatment, (treatment,); see
      `kpp_models.effective_rows`. The effect at a value with few of them rests on the prior. For an effect without
      an adjustment set they are the rows near the value, whatever their other columns. Under a policy they are the
      rows whose treatment is common among similar rows: with a probability of at least 5 %, or, of a number, a residual
      of a linear regression between the quantiles of 1 and 99 %.

    Its attributes record the graph, the treatment, the outcome, the adjustment, the ``estimand`` (the expression of the
    effect in the law of the table) and the ``method`` of its estimate. With an adjustment set, ``uncertainty`` says
    what the draws carry and of which rows the effect is, and ``caution`` where intervals are too narrow.

    Args:
        dataset: The dataset.
        study: What was estimated, to estimate it again on changed tables; None for an effect of a ready fit.
        scale: Numbers for `with_hidden_confounder`: the mean of the treatment, and the standard deviations of the
            residuals of treatment and outcome; None where it does not apply.
        function_of_covariates: Draws contrasts as functions of the covariates, for `contrast_function`; None without an
            adjustment set.
    """

    dataset: xr.Dataset
    study: Study | None = None
    scale: tuple[float, float, float] | None = None
    function_of_covariates: Callable[..., tuple[kpp.DrawFunction, pd.DataFrame]] | None = None

    def __repr__(self) -> str:
        """Return the dataset, and what its attributes say of the intervals in full."""
        said = self.dataset.attrs
        notes = [f"{name}: {said[name]}" for name in ("uncertainty", "caution") if name in said]
        return "\n".join([f"CausalEffect: {self.dataset!r}", *notes])

    @property
    def draws(self) -> xr.DataArray:
        """The draws of the curve, (chain, draw, treatment)."""
        return self.dataset["effect"]

    @property
    def average_derivative(self) -> xr.DataArray:
        r"""Draws of the average derivative with respect to a treatment of numbers, (chain, draw).

        .. math:: \theta = \sum_i w_i\, \partial_t\, \mathrm{E}[Y \mid t_i, z_i]

        It is also called the average marginal effect. Its part due to the uncertainty of the function is drawn
        independently of ``effect``.

        Raises:
            ValueError: If the effect was computed without ``derivative=True``.
        """
        if "average_derivative" not in self.dataset:
            raise ValueError("`average_derivative` needs kpp_models.causal_effect(..., derivative=True)")
        return self.dataset["average_derivative"]

    def contrast(
        self, value: Any, reference: Any, *, measure: str = "difference", by_row: bool = False
    ) -> xr.DataArray:
        r"""Return draws of a comparison of a = E[Y | do(value)] with b = E[Y | do(reference)], (chain, draw).

        Args:
            value: A value of the treatment, one of ``dataset["treatment"]``; a policy by its name, or a tuple of the
                values of several treatments.
            reference: Another one.
            measure: "difference", a - b; "ratio", a / b, the risk ratio or rate ratio of outcomes that are not
                negative; or "odds ratio", a (1 - b) / (b (1 - a)), for probabilities.
            by_row: Whether to compare a = E[Y | do(value), z_i] with b = E[Y | do(reference), z_i] in each row,
                (chain, draw, row). The share of draws above 0 is then the probability that the row gains.

        Raises:
            ValueError: If a value is not there (`at` of `kpp_models.causal_effect` holds the values of the curve), the
                expected outcomes do not suit the measure, or the effect was computed without ``by_row=True``.
        """
        one_of(measure, "measure", tuple(_MEASURES))
        if by_row and "effect_of_rows" not in self.dataset:
            raise ValueError(
                "`by_row` needs kpp_models.causal_effect(..., by_row=True), and a treatment with an effect in the graph"
            )
        curves = self.dataset["effect_of_rows" if by_row else "effect"]
        a = curves.isel(treatment=self._place(value, "value"), drop=True)
        b = curves.isel(treatment=self._place(reference, "reference"), drop=True)
        low, high = (0.0, np.inf) if measure == "ratio" else (0.0, 1.0)
        if measure != "difference" and not bool(((a > low) & (a < high) & (b > low) & (b < high)).all()):
            raise ValueError(
                f"`measure` must be 'difference' here: a {measure} needs expected outcomes between {low:g} and "
                f"{high:g}, as of kpp_models.causal_effect(..., likelihood=...) for labels or counts"
            )
        return _MEASURES[measure](a, b).rename("contrast")

    def contrast_function(
        self, rng_key: RngKey, value: Any, reference: Any, *, num_draws: int = 50
    ) -> tuple[kpp.DrawFunction, pd.DataFrame]:
        r"""Return draws of a contrast as a function of the covariates, and the covariates of all rows.

        .. math:: \tau(z) = \mathrm{E}[Y \mid do(\text{value}), z] - \mathrm{E}[Y \mid do(\text{reference}), z]

        `kpp.curve`, `kpp.importance` and `kpp.explain` take the function, for any covariates: the curve or surface of
        the effect, and the columns that make it differ. Each draw of the hyperparameters has as many drawn functions.

        Args:
            rng_key: A JAX random key.
            value: A value of the treatment, one of ``dataset["treatment"]``.
            reference: Another one.
            num_draws: The least number of functions, and the largest one of draws of the hyperparameters.

        Returns:
            The function of data frames of the covariates, with predictions (chain, draw, p), and the covariates.

        Raises:
            ValueError: If a value is not there, there are no covariates or several treatments, or the effect is that of
                policies, of an expression without an adjustment set, or with a hidden confounder.
        """
        if self.function_of_covariates is None:
            raise ValueError(
                "`contrast_function` needs values of one treatment, an adjustment set that is not empty, and no hidden "
                "confounder"
            )
        places = [self._place(value, "value"), self._place(reference, "reference")]
        pair = self.dataset["treatment_code"].to_numpy()[places]
        return self.function_of_covariates(rng_key, pair, count(num_draws, "num_draws"))

    def explain(self, rng_key: RngKey, value: Any, reference: Any, x: Any = None, **options: Any) -> kpp.Explanation:
        """Explain which covariates make a contrast larger or smaller in a row; see `contrast_function`.

        Args:
            rng_key: A JAX random key.
            value: A value of the treatment, one of ``dataset["treatment"]``.
            reference: Another one.
            x: The rows to explain, a data frame of the covariates; by default all rows of the table.
            **options: Options of `kpp.explain`; the `explainer` is by default "kernel-shap", and the `background` is at
                most 50 rows of the table, at equal distances.

        Returns:
            The explanation. Its values have draws, of the hyperparameters and of the function given these.

        Raises:
            ValueError: As `contrast_function` and `kpp.explain`.
        """
        function, rows = self.contrast_function(rng_key, value, reference)
        some = rows.iloc[:: -(-len(rows) // _NUM_BACKGROUND)]
        options = {"explainer": "kernel-shap", "background": some, **options}
        return kpp.explain(function, rows if x is None else x, **options)

    def summary(self, probability: float = 0.9) -> pd.DataFrame:
        """Return mean, standard deviation, interval of equal tails and effective rows for each value of the treatment.

        Args:
            probability: The probability of the interval.
        """
        tails = [(1 - probability) / 2, (1 + probability) / 2]
        low, high = self.draws.quantile(tails, ("chain", "draw")).to_numpy()
        columns = {
            "mean": self.draws.mean(("chain", "draw")).to_numpy(),
            "sd": self.draws.std(("chain", "draw"), ddof=1).to_numpy(),
            f"{100 * tails[0]:g} %": low,
            f"{100 * tails[1]:g} %": high,
            "effective_rows": self.dataset["effective_rows"].to_numpy(),
        }
        return pd.DataFrame(columns, index=pd.Index(self.dataset["treatment"].to_numpy(), name="treatment"))

    def with_hidden_confounder(
        self, rng_key: RngKey, *, share_of_treatment: dist.Distribution, share_of_outcome: dist.Distribution
    ) -> CausalEffect:
        r"""Return the effect if a confounder is hidden whose strength has a prior.

        .. math:: g'(t) = g(t) + b\,(t - \bar t), \qquad
            b = \pm \frac{\mathrm{sd}(Y \mid T, Z)}{\mathrm{sd}(T \mid Z)} \sqrt{\frac{R^2_Y R^2_T}{1 - R^2_T}}

        Both signs are equally likely. The shares are the partial :math:`R^2` of the confounder: of the variance of the
        treatment given the covariates, and of the outcome given treatment and covariates.

        Args:
            rng_key: A JAX random key.
            share_of_treatment: The prior of :math:`R^2_T`, a distribution on (0, 1), such as ``dist.Beta(1, 20)``.
            share_of_outcome: The prior of :math:`R^2_Y`.

        Raises:
            ValueError: If the treatment is a category of more than two levels, the outcome is not a number with noise,
                no adjustment set identifies the effect, or a share is not between 0 and 1.
            TypeError: If a prior is not a distribution.

        References:
            Cinelli and Hazlett, Making sense of sensitivity: extending omitted variable bias, 2020, equation 14.
        """
        if self.scale is None:
            raise ValueError(
                "the treatment must be a number or have two levels, the outcome a number with noise, and an adjustment "
                "set must identify the effect, to shift it by a slope"
            )
        keys = jax.random.split(rng_key, 3)
        shape = self.draws.shape[:2]
        of_treatment = _draw_shares(keys[0], share_of_treatment, "share_of_treatment", shape)
        of_outcome = _draw_shares(keys[1], share_of_outcome, "share_of_outcome", shape)
        sign = np.where(np.asarray(jax.random.bernoulli(keys[2], shape=shape)), 1.0, -1.0)
        # Cinelli and Hazlett, equation 14: the bias of the slope of a linear regression, of either sign.
        center, treatment_sd, outcome_sd = self.scale
        slope = sign * outcome_sd / treatment_sd * np.sqrt(of_outcome * of_treatment / (1 - of_treatment))
        shift = self.draws.copy(data=slope[..., None] * (self.dataset["treatment_code"].to_numpy() - center))
        changed = self.dataset.drop_vars("variance_parts")
        for name in ("effect", "effect_of_rows"):
            if name in changed:
                changed[name] = changed[name] + shift
        if "average_derivative" in changed:
            changed["average_derivative"] = self.average_derivative + slope
        return dataclasses.replace(self, dataset=changed, function_of_covariates=None)

    def refute(self, rng_key: RngKey, how: str) -> CausalEffect:
        """Estimate the effect again on a changed table, to see whether the answer changes as it must.

        Args:
            rng_key: A JAX random key.
            how: "placebo" permutes the treatment, so that its effect must vanish. "random common cause" adds a
                covariate of random numbers, and "subset" takes four fifths of the rows: the effect must stay.

        Returns:
            The new effect.

        Raises:
            ValueError: If `how` is unknown, or a covariate is to be added to an effect without an adjustment set.
            TypeError: If the effect is that of a ready fit, which cannot be fitted again.

        Warns:
            KppWarning: If a placebo is asked for with `kpp.MAP`, under which it says nothing.
        """
        if self.study is None:
            raise TypeError(
                "`refute` needs an effect of a table, kpp_models.causal_effect(table, ...); this one is of a fit"
            )
        return self.study.refute(rng_key, how)

    def rescaled(self, center: float, width: float) -> CausalEffect:
        """Return the effect on the outcome times `width` plus `center`.

        Args:
            center: The shift.
            width: The factor, positive.
        """
        scale = None if self.scale is None else (*self.scale[:2], self.scale[2] * width)
        dataset = self.dataset.copy()
        for name, shift, factor in (
            ("effect", center, width),
            ("effect_of_rows", center, width),
            ("average_derivative", 0.0, width),
            ("variance_parts", 0.0, width**2),
        ):
            if name in dataset:
                dataset[name] = dataset[name] * factor + shift
        return dataclasses.replace(self, dataset=dataset, scale=scale)

    def _place(self, value: Any, argument: str) -> int:
        known, value = self.dataset["treatment"].to_numpy(), setting_label(value)
        if value not in known:
            many = known.dtype.kind == "f" and len(known) > _FEW_VALUES
            values = f"{len(known)} values from {known[0]:.4g} to {known[-1]:.4g}" if many else named(known.tolist())
            raise ValueError(
                f"`{argument}` must be a treatment of the curve, got {value!r}; it has {values}. Give the values that "
                f"you compare to kpp_models.causal_effect(..., at=[{value!r}, ...])"
            )
        return int(np.flatnonzero(known == value)[0])


def curve_dataset(
    draws: Float[np.ndarray, "chain draw t"],
    effective_rows: Float[np.ndarray, " t"],
    values: Float[np.ndarray, "t *c"],
    labels: list[Any],
) -> xr.Dataset:
    """Return the draws of a curve and the effective rows at its values of the treatment; see `CausalEffect`.

    The values are numbers or codes, and the labels the same as in the table. Warns if fewer than 10 effective rows tell
    about a value.
    """
    few = [label for label, number in zip(labels, effective_rows, strict=True) if number < _FEW_ROWS]
    if few:
        warnings.warn(
            f"the effect at the treatments {few} rests on fewer than {_FEW_ROWS} effective rows, and so on the prior; "
            "see `effective_rows` in the dataset",
            KppWarning,
            stacklevel=4,
        )
    return xr.Dataset(
        {"effect": (("chain", "draw", "treatment"), draws), "effective_rows": ("treatment", effective_rows)},
        coords={"treatment": labels, "treatment_code": (("treatment", "column")[: values.ndim], values)},
    )


def _draw_shares(rng_key: RngKey, prior: dist.Distribution, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Draw shares of a variance from their prior, of a shape."""
    shares = np.asarray(prior.sample(rng_key, shape))
    if shares.shape != shape:
        raise ValueError(f"`{name}` must be the prior of one number, got shape {prior.shape()}")
    wrong = ~((shares > 0) & (shares < 1))
    refuse_first(shares[wrong], np.ones(int(wrong.sum()), bool), f"`{name}` must be a distribution on (0, 1)")
    return shares
