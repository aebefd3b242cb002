r"""Overlap: how many rows tell about each value of a treatment, once the covariates are balanced."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
from jaxtyping import Bool, Float

from kpp.data.tables import Schema

#: A probability or density below this is taken as this, so that one row never has an infinite weight.
_LEAST = 1e-6
# Common treatments have at least this probability, or, of numbers, residuals between these quantiles of residuals.
_COMMON, _CENTRAL = 0.05, (0.01, 0.99)


@dataclasses.dataclass(frozen=True)
class Assignment:
    """How a treatment depends on covariates z, (n, d); d may be 0."""

    treatment: Float[np.ndarray, " n"]
    covariates: Float[np.ndarray, "n d"]
    schema: Schema | None  # None if all are numbers
    is_number: bool

    @functools.cached_property
    def columns(self) -> dict[str, Float[np.ndarray, " n"]]:
        """Standardized numbers and indicators of categories, by name."""
        schema, found = self.schema or Schema(tuple(f"x{j}" for j in range(self.covariates.shape[1]))), {}
        for column, name in zip(self.covariates.T, schema.feature_names, strict=True):
            if name in schema.categories:
                # Without the first level: all indicators add up to 1, which the intercept has already.
                for code in np.unique(column)[1:]:
                    label = f"{name} = {schema.levels[name][int(code)]}" if name in schema.levels else name
                    found[label] = (column == code).astype(float)
            else:
                found[name] = (column - column.mean()) / (column.std() or 1.0)
        return found

    @functools.cached_property
    def design(self) -> Float[np.ndarray, "n k"]:
        """The columns, without their names."""
        return np.stack([np.zeros(len(self.covariates)), *self.columns.values()], axis=1)[:, 1:]

    @functools.cached_property
    def fitted(self) -> Float[np.ndarray, " n"]:
        """The fitted values of a ridge regression of the treatment on the covariates."""
        from sklearn.linear_model import RidgeCV

        if not self.design.shape[1]:
            return np.full(len(self.treatment), self.treatment.mean())
        model = RidgeCV(np.logspace(-3, 3, 13)).fit(self.design, self.treatment)
        return np.asarray(model.predict(self.design))

    @property
    def residual_scale(self) -> float:
        """The standard deviation of the treatment around its linear regression on the covariates."""
        return float(np.std(self.treatment - self.fitted))

    def weights(self, values: Float[np.ndarray, " t"]) -> Float[np.ndarray, "t n"]:
        """Return the inverse-probability weights of the rows at each value of the treatment; see `effective_rows`."""
        if self.is_number:
            bandwidth = 1.06 * self.treatment.std() * len(self.treatment) ** -0.2  # Silverman 1986, equation 3.28
            near = np.exp(-0.5 * ((self.treatment[None] - values[:, None]) / bandwidth) ** 2)
            density = np.exp(-0.5 * ((values[:, None] - self.fitted[None]) / self.residual_scale) ** 2)
            return near / np.maximum(density, _LEAST)
        return (self.treatment[None] == values[:, None]) / np.maximum(self.propensities(values), _LEAST)

    def is_common(self, values: Float[np.ndarray, "l n"]) -> Bool[np.ndarray, "l n"]:
        """Return whether rows that are similar to a row have a treatment, for l treatments of each row."""
        if self.is_number:
            low, high = np.quantile(self.treatment - self.fitted, _CENTRAL)
            return (values - self.fitted >= low) & (values - self.fitted <= high)
        different, places = np.unique(values, return_inverse=True)
        chances = np.take_along_axis(self.propensities(different), places.reshape(values.shape), axis=0)
        return chances >= _COMMON

    def propensities(self, values: Float[np.ndarray, " t"]) -> Float[np.ndarray, "t n"]:
        """Return the probabilities of levels of the treatment given the covariates, by a logistic regression."""
        from sklearn.linear_model import LogisticRegression

        shares = np.array([np.mean(self.treatment == value) for value in values])
        chances = np.tile(shares[:, None], len(self.treatment))
        if self.design.shape[1] and len(np.unique(self.treatment)) > 1:
            model = LogisticRegression(max_iter=1000).fit(self.design, self.treatment.astype(str))
            found = dict(zip(model.classes_, model.predict_proba(self.design).T, strict=True))
            nothing = np.zeros(len(self.treatment))
            chances = np.stack([found.get(str(value), nothing) for value in values])
        return chances


def effective_size(weights: Float[np.ndarray, "t n"]) -> Float[np.ndarray, " t"]:
    """Return the effective sample size of weights, 0 if all are 0."""
    total, squares = weights.sum(axis=1), (weights**2).sum(axis=1)
    return np.where(squares > 0.0, total**2 / np.where(squares > 0.0, squares, 1.0), 0.0)  # Kish 1965


def effective_rows(
    treatment: Float[np.ndarray, " n"],
    covariates: Float[np.ndarray, "n d"],
    schema: Schema | None,
    values: Float[np.ndarray, " t"],
    *,
    is_number: bool,
) -> Float[np.ndarray, " t"]:
    r"""Return the effective sample size at each value of the treatment.

    .. math:: n(t) = \frac{\bigl(\sum_i w_i\bigr)^2}{\sum_i w_i^2}, \qquad w_i = \frac{1\{t_i = t\}}{P(t \mid z_i)}

    The probabilities are those of a logistic regression. For a treatment of numbers the indicator is a Gaussian kernel
    with Silverman's bandwidth, and the density is that of a linear regression with Gaussian errors.

    Args:
        treatment: The treatment of each row, (n,).
        covariates: z, (n, d); d may be 0.
        schema: The columns of the covariates, some of which may be categories; None if all are numbers.
        values: The values of the treatment, (t,).
        is_number: Whether the treatment is a number, and not a category.

    Returns:
        The effective numbers of rows, (t,); 0 for a value that no row has.

    Example:
        >>> arm = (dose > 0).astype(float)
        >>> values = np.array([0.0, 1.0])
        >>> kpp_models.effective_rows(arm, age[:, None], None, values, is_number=False).round()
        array([24., 21.])
    """
    return effective_size(Assignment(treatment, covariates, schema, is_number).weights(values))
