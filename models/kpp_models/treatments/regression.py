"""The regression of an outcome on treatment and covariates: its fit to a table, and draws of its averages."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
from jaxtyping import Array, Bool, Float, PyTree

from kpp.data.tables import Scales, Schema, read_points, standardize
from kpp.functionals import GPPosterior, Gradient
from kpp.functionals.toolkit import PartialDependence
from kpp.gp import AbstractGPModel, AbstractPointwiseLikelihood
from kpp.inference import AbstractInference, Fit, Laplace
from kpp.kernels import AbstractKernel, Linear, default_kernel
from kpp.runtime.memory import check_memory
from kpp.typing import RngKey
from kpp_models.treatments.averaging import averages, responses
from kpp_models.treatments.averaging.responses import at_settings, make_grid, root
from kpp_models.treatments.treatment import TreatmentColumn, refuse_constant

# The largest number of draws of the hyperparameters that are used: each needs a root of n^2 numbers.
MAX_DRAWS = 250
# More rows than these have inducing points by default: one exact evidence takes a second for 3,000 rows.
MANY_ROWS = 3000
# The rows at which the part that inducing points leave out is computed.
_NUM_FEW = 500
# Of many rows: the inducing points by default; the rows from which hyperparameters are learned, because further ones
# cost time and change them little; and the draws, because each takes a pass over all rows.
_NUM_INDUCING, _NUM_FITTED, _NUM_DRAWS = 100, 5000, 50
# The variance of the noise of a standardized outcome: the median is 0.36, and an outcome without noise has a mode, too.
_NOISE_PRIOR = dist.InverseGamma(1.0, 0.25)
# Latent values that are log-odds or log-rates: the scale of the prior variance, and the prior of the mean.
_LATENT_PRIOR = 4.0, dist.Normal(0.0, 5.0)
# What new observations have in place of the observations and their exposures.
_NEW = {"y": None, "exposure": np.ones(())}


@dataclasses.dataclass(frozen=True)
class EffectRegression:
    """The regression of the outcome, with draws of its hyperparameters."""

    posterior: GPPosterior  # of the latent function
    likelihood: AbstractPointwiseLikelihood | None  # of new observations; None for numbers with noise
    column: TreatmentColumn

    @classmethod
    def of_fit(cls, fit: Fit, column: TreatmentColumn) -> EffectRegression:
        """Return the regression of a fit, with few enough draws."""
        kept = fit.thin(MAX_DRAWS)[0]
        return cls(kept.function_posterior(), likelihood_of_draws(kept), column)

    @property
    def mean_is_latent(self) -> bool:
        """Whether the outcome is a number with noise around the latent function."""
        return responses.mean_is_latent(self.likelihood)

    def curves(
        self,
        rng_key: RngKey,
        values: Float[np.ndarray, "t *n"],
        weights: jax.Array,
        chances: Float[Array, "q t n"] | None = None,
    ) -> tuple[Float[np.ndarray, "c sb q"], Float[np.ndarray, "c s b q"], Float[np.ndarray, " q"]]:
        """Return draws of the curve, its expectations given the hyperparameters and weights, and the other variance.

        With chances the values are t treatments of each row, and the curve has a value for each of q policies.
        """
        rows, index, scaled = jnp.asarray(self.column.rows), self.column.index, jnp.asarray(self.column.scaled(values))
        if self.likelihood is None or responses.mean_is_latent(self.likelihood):
            curve: Any = eqx.Partial(PartialDependence, rows, index, scaled)
            if chances is not None:
                curve = eqx.Partial(averages.policy_average, at_settings(rows, index, scaled), chances)
            law = averages.weighted_laws(self.posterior, curve, weights)
            expected, variances = law.mean, law.variance
            draws = _draw(rng_key, expected, law.covariance)
        else:
            points, is_curve = self.posterior.mean.spanned.points, chances is None and np.ndim(index) == 0
            grid = make_grid(points, self.column.rows, index, np.asarray(scaled)) if is_curve else None
            draws, expected = responses.average_responses(
                rng_key, self.posterior, self.likelihood, rows, index, scaled, weights, grid, chances
            )
            variances = jnp.square(draws - expected)  # of one draw each; their mean over draws is unbiased
        return _joined(draws), np.asarray(expected), np.asarray(variances).mean((0, 1, 2))

    def corrections(self, weights: jax.Array, inverse: Float[np.ndarray, "t n"]) -> Float[np.ndarray, "c s b t"]:
        r"""Return the doubly robust corrections of the curve, by weights of the rows and inverse propensities.

        .. math:: \sum_i w_i\, \frac{1\{t_i = t\}}{P(t \mid z_i)}\, r_i, \qquad r_i = \alpha_i / (R R^\top)_{ii}

        r are the leave-one-out residuals. Those at the fitted values are too small where few rows have the treatment.
        """
        shared = self.posterior.shared
        *_, size, rank = shared.root.shape
        if self.column.is_number or np.ndim(self.column.index) or not self.mean_is_latent or size != rank:
            raise ValueError(
                "`doubly_robust` needs a treatment of two values or a category, an outcome of numbers with Gaussian "
                "noise, and the exact posterior"
            )
        residuals = shared.mean.coefficients / jnp.sum(shared.root**2, axis=-1)
        return np.asarray(jnp.einsum("csbn,csn,tn->csbt", weights, residuals, inverse, precision="highest"))

    @property
    def is_by_inducing(self) -> bool:
        """Whether the averages take the inducing points of the fit, because they are over too many rows."""
        size = len(self.column.rows)
        return size > MANY_ROWS and self.posterior.mean.num_points < size and self.mean_is_latent

    def many_rows_curves(
        self,
        rng_key: RngKey,
        values: Float[np.ndarray, " t"],
        num_draws: int,
        mask: Bool[np.ndarray, " n"],
        *,
        bootstrap: bool,
    ) -> tuple[Float[np.ndarray, "c sb t"], Float[np.ndarray, "c s b t"], Float[np.ndarray, "2 t"]]:
        """Return `curves` over many rows, with as many sets of weights for each draw of the hyperparameters.

        The variance has a second row, the part that the inducing points leave out.
        """
        weight_key, draw_key = jax.random.split(rng_key)
        rows, scaled = self.column.rows, jnp.asarray(self.column.scaled(values))
        few = rows[mask][:: -(-int(mask.sum()) // _NUM_FEW)]
        weights = eqx.Partial(averages.row_weights, shape=(num_draws,), mask=jnp.asarray(mask), bootstrap=bootstrap)
        law, left_out = averages.laws_by_inducing(
            weight_key, self.posterior, jnp.asarray(rows), self.column.index, scaled, weights, jnp.asarray(few)
        )
        parts = np.stack([np.asarray(law.variance).mean((0, 1, 2)), np.asarray(left_out).mean((0, 1))])
        return _joined(_draw(draw_key, law.mean, law.covariance)), np.asarray(law.mean), parts

    def of_rows(
        self, rng_key: RngKey, values: Float[np.ndarray, " t"], num_draws: int, mask: Bool[np.ndarray, " n"]
    ) -> Float[np.ndarray, "c sb m t"]:
        """Return joint draws of the expected outcomes of the m rows of a mask at the values of the treatment."""
        rows, index, scaled = self.column.rows[mask], self.column.index, self.column.scaled(values)
        size = 8 * math.prod(self.posterior.batch_shape) * num_draws * len(rows) * len(values)
        check_memory(2 * size, f"draws of {len(rows)} rows at {len(values)} treatments", "give fewer of them in `at`")
        grid = make_grid(self.posterior.mean.spanned.points, rows, index, scaled)
        arguments = jnp.asarray(rows), index, jnp.asarray(scaled), grid, num_draws
        draws = responses.draw_responses(rng_key, self.posterior, self.likelihood, *arguments)
        return np.swapaxes(_joined(draws), 2, 3)

    def slopes(self, rng_key: RngKey, weights: jax.Array) -> Float[np.ndarray, "c sb"]:
        """Return draws of the average derivative, in units of the treatment."""
        rows, index = jnp.asarray(self.column.rows), self.column.index
        if not self.column.is_number:
            raise ValueError(
                f"`derivative` needs a treatment of numbers with more than two values, unlike {self.column.name!r}; "
                "`contrast` compares levels"
            )
        Gradient(rows, (index,)).check_space(self.posterior.mean)
        if self.likelihood is None or responses.mean_is_latent(self.likelihood):
            law = averages.weighted_laws(self.posterior, eqx.Partial(averages.average_derivative, rows, index), weights)
            means, sds = law.mean[..., 0], jnp.sqrt(law.variance[..., 0])
            draws = means + sds * jax.random.normal(rng_key, means.shape, means.dtype)
        else:
            draws = responses.average_response_derivatives(
                rng_key, self.posterior, self.likelihood, rows, index, weights
            )
        return _joined(draws) / self.column.width


def _joined(draws: jax.Array) -> np.ndarray:
    """Join the draws of the hyperparameters with the sets of weights: (chain, draw, b, ...) to (chain, draw b, ...)."""
    if not bool(jnp.isfinite(draws).all()):
        raise FloatingPointError("the draws of the effect are not finite: a covariance matrix cannot be factorized")
    return np.asarray(draws).reshape(draws.shape[0], -1, *draws.shape[3:])


def likelihood_of_draws(fit: Fit) -> AbstractPointwiseLikelihood | None:
    """Return the likelihood of new observations, at an exposure of 1; its arrays lead with (chain, draw).

    It is None for a model without such a likelihood.
    """
    if not isinstance(fit.model, AbstractGPModel):
        return None
    sample = {name: value[0, 0] for name, value in fit.draws.items()}
    abstract = eqx.filter_eval_shape(lambda: _of_one_draw(fit.model, sample, fit.data))
    static = eqx.filter(abstract, lambda leaf: not isinstance(leaf, jax.ShapeDtypeStruct))
    if not isinstance(static, AbstractPointwiseLikelihood):
        return None
    return eqx.combine(fit.map_draws(_arrays_of_one_draw), static)


def _of_one_draw(model: AbstractGPModel, sample: Mapping[str, Array], data: Mapping[str, Any]) -> Any:
    """Return the likelihood under one draw, without its observations and at an exposure of 1."""
    likelihood = model.posterior(sample, data).likelihood
    new = {name: value for name, value in _NEW.items() if getattr(likelihood, name, None) is not None}
    if not new:
        return likelihood
    return eqx.tree_at(lambda tree: [getattr(tree, name) for name in new], likelihood, list(new.values()))


def _arrays_of_one_draw(model: AbstractGPModel, sample: Mapping[str, Array], data: Mapping[str, Any]) -> PyTree:
    return eqx.filter(_of_one_draw(model, sample, data), eqx.is_array)


@jax.jit
def _draw(rng_key: RngKey, means: jax.Array, covariances: jax.Array) -> jax.Array:
    """Draw one curve from each Gaussian law."""
    white = jax.random.normal(rng_key, means.shape, means.dtype)
    return means + jnp.einsum("...ij,...j->...i", root(covariances), white, precision="highest")


class OutcomeFit(NamedTuple):
    """A fit to features that were standardized, their scales, and the center and width of the outcome."""

    fit: Fit
    scales: Scales
    center: float
    width: float
    features: pd.DataFrame


def fit_outcome(
    rng_key: RngKey,
    features: pd.DataFrame,
    outcome: Float[np.ndarray, " n"],
    likelihood: AbstractPointwiseLikelihood | None,
    inference: AbstractInference | None,
    models: tuple[Callable[..., Any], Callable[..., Any]],
    num_treatments: int = 1,
) -> OutcomeFit:
    """Fit a Gaussian process to an outcome.

    The features whose effect is of interest are the first. The outcome is standardized here if its mean is the latent
    value; without a likelihood it has Gaussian noise. The default inference is `kpp.Laplace` with 250 draws. The models
    are those of numbers with Gaussian noise and of other likelihoods, `kpp_models.GPRegression` and
    `kpp_models.GeneralizedGP`. Raises ValueError if a column is invalid, or the first one is constant.
    """
    scaled, scales = standardize(features, "data")
    refuse_constant(scaled.iloc[:, 0], scales.schema.feature_names[0])
    center, width = (outcome.mean(), outcome.std()) if responses.mean_is_latent(likelihood) else (0.0, 1.0)
    if likelihood is None:
        model = models[0](_kernel(scales.schema, num_treatments, 1.0), noise_variance=_NOISE_PRIOR)
    else:
        variance, mean = (1.0, 0.0) if responses.mean_is_latent(likelihood) else _LATENT_PRIOR
        model = models[1](_kernel(scales.schema, num_treatments, variance), likelihood, mean=mean)
    inference = Laplace(num_samples=250, progress=False) if inference is None else inference
    fit = model.fit(rng_key, scaled, (outcome - center) / width, inference=inference, num_prior_samples=0)
    return OutcomeFit(fit, scales, float(center), float(width), features)


def fit_many_rows(
    rng_key: RngKey,
    features: pd.DataFrame,
    outcome: Float[np.ndarray, " n"],
    inference: AbstractInference | None,
    models: tuple[Callable[..., Any], Callable[..., Any]],
    num_inducing: int | None,
) -> OutcomeFit:
    """Fit a Gaussian process with inducing points, its hyperparameters to at most 5,000 random rows, and f to all rows.

    The random rows include one of each level of a category. See `fit_outcome` for the arguments and errors; the default
    inference has 50 draws.
    """
    order_key, fit_key = jax.random.split(rng_key)
    points, schema = read_points(features, "data")
    chosen = np.asarray(jax.random.permutation(order_key, len(points)))[:_NUM_FITTED]
    levels = [np.unique(points[:, schema.index(name)], return_index=True)[1] for name in sorted(schema.categories)]
    some = np.unique(np.concatenate([chosen, *levels]))
    gaussian = functools.partial(models[0], latent="inducing", num_inducing=num_inducing or _NUM_INDUCING)
    inference = Laplace(num_samples=_NUM_DRAWS, progress=False) if inference is None else inference
    found = fit_outcome(fit_key, features.iloc[some], outcome[some], None, inference, (gaussian, models[1]))
    every = {"x": jnp.asarray(found.scales.apply(points)), "y": jnp.asarray((outcome - found.center) / found.width)}
    return found._replace(fit=dataclasses.replace(found.fit, arviz=None, data=every), features=features)


def _kernel(schema: Schema, num_treatments: int, variance: float) -> AbstractKernel:
    """Return a kernel of all columns, plus one of the treatments, plus a linear one of the numbers.

    The second is an effect that all rows share. Without it the effect in rows without overlap would tend to 0. The
    third keeps apart the slopes of columns that are correlated.
    """
    # A sum of three kernels, each with a variance of its own, so that data may do without any of them.
    joint = default_kernel(schema, variance=variance)
    if schema.num_features == num_treatments:
        return joint
    both = joint + default_kernel(schema.select(schema.feature_names[:num_treatments]), variance=variance)
    numbers = tuple(name for name in schema.feature_names if name not in schema.categories)
    if not numbers:
        return both
    return both + (dist.HalfNormal(variance) * Linear(jnp.ones(len(numbers)))).on(numbers)
