r"""Overlap: how many rows tell about each value of a treatment, once the covariates are balanced."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from kpp.tables import Schema

__all__ = ["effective_rows", "residual_scale"]

#: A probability or density below this is taken as this, so that one row never has an infinite weight.
_LEAST = 1e-6


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
        schema: The columns of the covariates; None if there are none.
        values: The values of the treatment, (t,).
        is_number: Whether the treatment is a number, and not a category.

    Returns:
        The effective numbers of rows, (t,); 0 for a value that no row has.
    """
    design = _design(covariates, schema)
    weights = (_number_weights if is_number else _category_weights)(treatment, design, values)
    total, squares = weights.sum(axis=1), (weights**2).sum(axis=1)
    return np.where(squares > 0.0, total**2 / np.where(squares > 0.0, squares, 1.0), 0.0)


def residual_scale(
    treatment: Float[np.ndarray, " n"], covariates: Float[np.ndarray, "n d"], schema: Schema | None
) -> float:
    """Return the standard deviation of the treatment around its linear regression on the covariates."""
    return float(np.std(treatment - _regression(treatment, _design(covariates, schema))))


def _regression(treatment: np.ndarray, design: np.ndarray) -> Float[np.ndarray, " n"]:
    """Return the fitted values of a ridge regression."""
    from sklearn.linear_model import RidgeCV

    if not design.shape[1]:
        return np.full(len(treatment), treatment.mean())
    fitted: np.ndarray = RidgeCV(np.logspace(-3, 3, 13)).fit(design, treatment).predict(design)
    return fitted


def _design(covariates: Float[np.ndarray, "n d"], schema: Schema | None) -> Float[np.ndarray, "n k"]:
    """Return standardized numbers and indicators of categories."""
    columns = [np.zeros((len(covariates), 0))]
    for column, name in zip(covariates.T, schema.feature_names if schema else (), strict=True):
        if schema is not None and name in schema.categories:
            columns.append((column[:, None] == np.unique(column)[None, 1:]).astype(float))
        else:
            columns.append(((column - column.mean()) / (column.std() or 1.0))[:, None])
    return np.concatenate(columns, axis=1)


def _category_weights(treatment: np.ndarray, design: np.ndarray, values: np.ndarray) -> Float[np.ndarray, "t n"]:
    from sklearn.linear_model import LogisticRegression

    shares = np.array([np.mean(treatment == value) for value in values])
    chances = np.tile(shares[:, None], len(treatment))
    if design.shape[1] and len(np.unique(treatment)) > 1:
        model = LogisticRegression(max_iter=1000).fit(design, treatment.astype(str))
        found = dict(zip(model.classes_, model.predict_proba(design).T, strict=True))
        nothing = np.zeros(len(treatment))
        chances = np.stack([found.get(str(value), nothing) for value in values])
    return (treatment[None] == values[:, None]) / np.maximum(chances, _LEAST)


def _number_weights(treatment: np.ndarray, design: np.ndarray, values: np.ndarray) -> Float[np.ndarray, "t n"]:
    bandwidth = 1.06 * treatment.std() * len(treatment) ** -0.2
    center = _regression(treatment, design)
    spread = (treatment - center).std()
    near = np.exp(-0.5 * ((treatment[None] - values[:, None]) / bandwidth) ** 2)
    density = np.exp(-0.5 * ((values[:, None] - center[None]) / spread) ** 2)
    return near / np.maximum(density, _LEAST)
