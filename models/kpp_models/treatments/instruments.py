r"""Regression with instruments: the effect of treatments that share hidden causes with the outcome.

The outcome is :math:`Y = f(X) + U` with a hidden U on which the treatments X depend, so that a regression of Y on X is
not f. Instruments Z tell about X and not about U: :math:`E[Y - f(X) \mid Z] = 0`. The squared violation of this moment
condition is measured by a kernel of Z, and used as the likelihood of f.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float

from kpp.causal import CausalError, is_instrument
from kpp.causal.toolkit import as_causal_graph
from kpp.data.tables import Schema, as_frame, as_names, check_columns, read_points
from kpp.embeddings import ConditionalMeanEmbedding, select_regularization
from kpp.foundation.validation import as_targets, check_same_rows, positive, warn_if_float32
from kpp.functionals import GPPosterior
from kpp.functions import RKHSFunction
from kpp.kernels import AbstractKernel, default_kernel, median_heuristic, resolve_features
from kpp.runtime.memory import check_matrices

_GRID = np.logspace(0, -8, 17)  # the regularizations tried, the largest first: it is taken if none is credible
_CREDIBLE = 10.0  # the largest prior variance of f, in variances of y; 1 gives too narrow intervals
_CONSTANT = 100.0  # the variance of a constant in the regressions on instruments, so that it is hardly penalized


class InstrumentalMean(NamedTuple):
    """The posterior of the mean outcome under interventions.

    Attributes:
        mean: Its mean at each of p values of the treatments, (p,), in units of the outcome.
        covariance: Its covariance, (p, p).
    """

    mean: Float[Array, " p"]
    covariance: Float[Array, "p p"]


class InstrumentalRegression(eqx.Module):
    """A regression with instruments, as `instrumental_regression` and `proximal_regression` return it.

    Attributes:
        posterior: The posterior of f, a function of the columns of the treatments and then of `covariates`.
        noise_variance: The variance of U, the mean of the squared residuals :math:`y_i - f(x_i)`.
        regularization: The ratio of this variance to the prior variance, over the number of rows.
        instrument_regularization: The regularization of the regression on the instruments.
        covariates: The covariates of the rows, (n, c), after proxies of the outcome; c = 0 if there are none.
        schema: The columns of the treatments.
    """

    posterior: GPPosterior
    noise_variance: Float[Array, ""]
    regularization: Float[Array, ""]
    instrument_regularization: Float[Array, ""]
    covariates: Float[Array, "n c"]
    schema: Schema = eqx.field(static=True)

    def effect(self, x: Any) -> InstrumentalMean:
        r"""Return the mean outcome under interventions, :math:`E[Y \mid do(x)] = \frac1n \sum_i f(x, c_i)`.

        The covariance of differences between interventions follows from it. It holds the uncertainty of f given the
        hyperparameters; the covariates of the rows count as their distribution.

        Args:
            x: The p values of the treatments, (p, d), or a data frame.

        Returns:
            Mean (p,) and covariance (p, p).
        """
        return _averaged(self.posterior, jnp.asarray(self.schema.read(x, "x")), self.covariates)


def instrumental_regression(
    x: Any,
    y: Any,
    instruments: Any,
    covariates: Any = None,
    *,
    kernel: AbstractKernel | None = None,
    instrument_kernel: AbstractKernel | None = None,
    regularization: float | None = None,
    instrument_regularization: float | None = None,
) -> InstrumentalRegression:
    r"""Fit the effect of one or several treatments with instruments, in closed form.

    .. math::

        \hat f = \arg\min_f\, (y - f)^\top S\, (y - f) + n \xi \|f\|^2, \qquad S = L (L + n \nu I)^{-1}

    f holds the values at the rows :math:`(x_i, c_i)`, and L is the kernel matrix of :math:`(z_i, c_i)`. The first term
    is the largest violation of the moment condition :math:`E[(Y - f(X, C))\, g(Z, C)] = 0` by a penalized function g.
    Under a Gaussian process of f it is the quasi-likelihood :math:`\exp(-\frac{1}{2 \sigma^2} (y - f)^\top S (y - f))`,
    whose posterior is a Gaussian process with the mean :math:`\hat f`. With linear kernels and small regularizations
    the mean is that of two-stage least squares, and the covariance is its homoscedastic covariance.

    :math:`\nu` minimizes the leave-one-out error of the conditional mean embedding of (X, C) given (Z, C). :math:`\xi`
    minimizes that of the prediction of Y from the instruments, :math:`\sum_i (y_i - \hat y_i)^2 / (1 - H_{ii})^2` with
    :math:`\hat y = S \hat f = H y`. :math:`\sigma^2` is the mean of the squared residuals :math:`y_i - \hat f(x_i)`,
    and the prior has the kernel k times :math:`\sigma^2 / (n \xi)`.

    For small :math:`\xi` the leave-one-out error hardly changes, because S smooths already, while the prior variance
    grows without limit. Therefore :math:`\xi` is chosen only among the values with

    .. math::

        \frac{\sigma^2(\xi)}{n \xi}\, \frac1n \sum_i k((x_i, c_i), (x_i, c_i)) \le 10\, \mathrm{var}(y):

    a prior variance of f of more than ten times the variance of the outcome is not credible. If no value of the grid
    satisfies this, :math:`\xi` is the largest one. The bound holds for kernels with the same variance at all rows, as
    the default one. For a kernel such as `kpp.kernels.Linear`, whose variance depends on the place of zero, it would
    shrink the effect of treatments that are not centered, so all values are tried.

    Args:
        x: X, the treatments, (n, d): an array, or a data frame whose columns of text are categories.
        y: Y, the outcome, (n,).
        instruments: Z, (n, q), likewise; they affect Y through X only, given C.
        covariates: C, (n, c), likewise, or None; they may affect X, Y and Z.
        kernel: k, on the columns of X and then C; by default `kpp.kernels.default_kernel` with the lengthscales of
            `median_heuristic` times the square root of the number of columns, plus a constant.
        instrument_kernel: The kernel of the columns of Z and then C, by default likewise.
        regularization: :math:`\xi`, positive; by default chosen from :math:`10^{-8}` to 1. A given value is used
            unchanged.
        instrument_regularization: :math:`\nu`, positive.

    Returns:
        The regression with its posterior.

    Raises:
        ValueError: If the numbers of rows differ, values are missing or not finite, a regularization is not positive,
            or the columns are constant.

    References:
        Wang, Zhou and Zhu, Quasi-Bayesian dual instrumental variable regression, 2021, equations (5) and (6); Singh,
        Sahani and Gretton, Kernel instrumental variable regression, 2019; Muandet, Mehrjou, Lee and Raj, Dual
        instrumental variable regression, 2020.
    """
    treatments, schema = read_points(x, "x")
    outcome = as_targets(y, len(treatments))
    adjusting, adjusting_schema = (
        (np.zeros((len(treatments), 0)), None) if covariates is None else read_points(covariates, "covariates")
    )
    moving, moving_schema = read_points(instruments, "instruments")
    for name, values in (("instruments", moving), ("covariates", adjusting)):
        check_same_rows(len(treatments), len(values), "x", name)
    for name, value in (("regularization", regularization), ("instrument_regularization", instrument_regularization)):
        if value is not None:
            positive(value, name)
    warn_if_float32("instrumental_regression")
    check_matrices(5, len(treatments), "`instrumental_regression`")
    inputs, sources = np.concatenate([treatments, adjusting], axis=1), np.concatenate([moving, adjusting], axis=1)
    if kernel is None:
        kernel = _default(inputs, (schema, adjusting_schema), 1.0)
    if instrument_kernel is None:
        instrument_kernel = _default(sources, (moving_schema, adjusting_schema), _CONSTANT)
    embedding = ConditionalMeanEmbedding(
        kernel=kernel,
        input_kernel=instrument_kernel,
        inputs=sources,
        points=inputs,
        regularization=instrument_regularization or 1.0,
    )
    if instrument_regularization is None:
        selected = select_regularization(embedding).embedding.regularization
        embedding = dataclasses.replace(embedding, regularization=selected)
    grid = jnp.asarray(_GRID if regularization is None else [regularization])
    return InstrumentalRegression(
        *_fit(embedding, outcome, grid), jnp.asarray(embedding.regularization), jnp.asarray(adjusting), schema
    )


def instrumental_effect(
    frame: pd.DataFrame,
    graph: Any,
    *,
    treatment: str | Sequence[str],
    outcome: str,
    instruments: str | Sequence[str],
    given: str | Sequence[str] = (),
    **options: Any,
) -> InstrumentalRegression:
    """Fit the effect of treatments on an outcome with instruments that a causal graph allows.

    Args:
        frame: The table, with one column for each variable that is named.
        graph: The causal graph; see `kpp.causal.as_graph`.
        treatment: The treatment, or several.
        outcome: The outcome, a column of numbers.
        instruments: The instrument, or several.
        given: The covariates.
        options: The keyword arguments of `instrumental_regression`.

    Returns:
        The regression; its `effect` takes values of the treatments, in the order of `treatment`.

    Raises:
        CausalError: If the graph does not allow the instruments, given the covariates; it says which condition fails.
        ValueError: If columns are missing, or as for `instrumental_regression`.
    """
    known = as_causal_graph(graph)
    table = as_frame(frame, "frame")
    x, z, c = (as_names(names) for names in (treatment, instruments, given))
    check = is_instrument(known, z, treatment=x, outcome=outcome, given=c)
    if not check:
        raise CausalError(f"`instruments` {list(z)} are none for the effect of {list(x)} on {outcome!r}: {check}")
    check_columns(table.columns, (*x, outcome, *z, *c), "frame")
    covariates = table[list(c)] if c else None
    y = Schema((outcome,)).read(table, "frame")[:, 0]
    return instrumental_regression(table[list(x)], y, table[list(z)], covariates, **options)


def _default(points: np.ndarray, schemas: tuple[Schema, Schema | None], constant: float) -> AbstractKernel:
    """Return the default kernel of the columns of one or two tables side by side, plus a constant."""
    names, categories = [], []
    for position, schema in enumerate(schemas):
        if schema is not None:
            names += [f"{position}: {name}" for name in schema.feature_names]
            categories += [f"{position}: {name}" for name in schema.categories]
    joint = Schema(tuple(names), {name: () for name in categories})
    numbers = [index for index, name in enumerate(names) if name not in categories]
    scales = np.asarray(median_heuristic(points[:, numbers])) * len(numbers) ** 0.5 if numbers else 1.0
    return resolve_features(default_kernel(joint, priors=False, lengthscale=scales), names) + constant


@eqx.filter_jit
def _fit(
    embedding: ConditionalMeanEmbedding, y: Float[Array, " n"], grid: Float[Array, " g"]
) -> tuple[GPPosterior, Float[Array, ""], Float[Array, ""]]:
    r"""Return the posterior, the noise variance and the regularization.

    With :math:`S^{1/2} K S^{1/2} = U\, \mathrm{diag}(\tau)\, U^\top` all regularizations share one decomposition.
    """
    n, center = y.shape[0], jnp.mean(y)
    values, vectors = jnp.linalg.eigh(embedding.input_kernel.gram(embedding.inputs))
    values = jnp.maximum(values, 0.0)
    half = (vectors * jnp.sqrt(values / (values + n * embedding.regularization))[None]) @ vectors.T  # S^1/2
    gram = embedding.kernel.gram(embedding.points)
    spectrum, rotation = jnp.linalg.eigh(half @ gram @ half)
    spectrum, basis = jnp.maximum(spectrum, 0.0), half @ rotation
    targets = basis.T @ (y - center)

    def coefficients(ridge: Array) -> Array:
        return basis @ (targets / (spectrum + ridge))  # S^1/2 (S^1/2 K S^1/2 + n xi I)^-1 S^1/2 (y - m)

    def residual_variance(ridge: Array) -> Array:
        return jnp.mean((y - center - gram @ coefficients(ridge)) ** 2)

    def left_out(ridge: Array) -> Array:
        shrunk = basis * (spectrum / (spectrum + ridge))[None]
        return jnp.sum(((y - center - shrunk @ targets) / (1 - jnp.sum(shrunk * basis, axis=1))) ** 2)

    variances = jnp.diagonal(gram)
    amplitudes = jax.lax.map(residual_variance, n * grid) / (n * grid)  # sigma^2 / (n xi), of the prior
    credible = jnp.mean(variances) * amplitudes <= _CREDIBLE * jnp.var(y)
    varies = jnp.ptp(variances) > 1e-6 * jnp.max(variances)  # the variance depends on the place of zero
    best = grid[jnp.argmin(jnp.where(credible | varies, jax.lax.map(left_out, n * grid), jnp.inf))]
    noise_variance = residual_variance(n * best)
    amplitude = noise_variance / (n * best)
    mean = RKHSFunction(amplitude * embedding.kernel, embedding.points, coefficients(n * best) / amplitude, center)
    root = basis / jnp.sqrt(amplitude * (spectrum + n * best))[None]  # a tau + sigma^2, as sigma^2 = a n xi
    return GPPosterior(mean, root), noise_variance, best


@eqx.filter_jit
def _averaged(posterior: GPPosterior, x: Float[Array, "p d"], covariates: Float[Array, "n c"]) -> InstrumentalMean:
    """Return mean and covariance of the averages of f over covariates, at each of p values of the treatments."""
    count = covariates.shape[0] if covariates.shape[1] else 1

    def rows(point: Array) -> Array:
        return jnp.concatenate([jnp.broadcast_to(point, (count, x.shape[1])), covariates[:count]], axis=1)

    def prior(first: Array, second: Array) -> Array:
        return jnp.mean(posterior.mean.kernel(rows(first), rows(second)))

    # Averages before products: the covariance of averages needs p means of whitened sections, not p n.
    def sections(point: Array) -> tuple[Array, Array]:
        return jnp.mean(posterior.mean(rows(point))), jnp.mean(posterior.whitened(rows(point)), axis=0)

    mean, whitened = jax.lax.map(sections, x)
    # One pair of treatments at a time, since the kernel values of all pairs are (p n)^2 numbers.
    before = jax.lax.map(lambda first: jax.lax.map(lambda second: prior(first, second), x), x)
    return InstrumentalMean(mean, before - whitened @ whitened.T)
