r"""`kpp.certify`: how often the intervals of a fit and of its explanation hold the truth, for data like the user's.

A truth is drawn from a law: hyperparameters, a function at the training rows and the explained rows, and its Shapley
values. Data are drawn from the truth by the model's likelihood, the model is fitted to them and explained as the user
does, and the intervals that hold the truth are counted.

Shapley values are linear in the function. Given the function's values at the training rows they have a Gaussian law, so
that a true value is one draw from this law, and no function is drawn at the very many points that a game reads.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Array, Float
from scipy import special
from tqdm import tqdm

from kpp.api import read, without_progress
from kpp.calibration import simulate
from kpp.calibration.certifiable import WHOLE, check_certifiable
from kpp.data.tables import Schema
from kpp.explanations.toolkit import fit_of
from kpp.foundation.arguments import guard_exports
from kpp.foundation.validation import between, check_type, count, one_of
from kpp.foundation.wording import duration
from kpp.functionals import GPPosterior
from kpp.functions import RKHSFunction
from kpp.gp import AbstractGPModel, GaussianLikelihood, condition_on_values
from kpp.gp.toolkit import draw_gaussian, draw_joint, evaluate_mean, held_out_law, moments_in_blocks, prior_factor
from kpp.inference import Fit
from kpp.lazy.tasks import map_numbers
from kpp.linalg import solve_lower
from kpp.priors import prior_sites
from kpp.runtime.signals import end_if_asked
from kpp.runtime.threads import alone_in_thread, num_cores
from kpp.storage import arviz_data
from kpp.typing import RngKey

_LOGGER = logging.getLogger("kpp")
_TOLERANCE = 0.03  # what is allowed beyond two standard errors
_PRIOR, _PRIOR_DRAWS = 0.99, 4000  # the probability of the intervals of priors, and the number of their draws
_REPLICATES = 400  # the least number of draws of a left-out row


class Coverage(NamedTuple):
    """How often intervals of one quantity held the truth.

    Attributes:
        quantity: What the intervals are of.
        held: The share that held the truth.
        standard_error: Its standard error.
        nominal: The share that should.
    """

    quantity: str
    held: float
    standard_error: float
    nominal: float

    @property
    def margin(self) -> float:
        """By how much the share may differ from the nominal one: two standard errors and 3 points."""
        return 2.0 * self.standard_error + _TOLERANCE

    @property
    def passes(self) -> bool:
        """Whether the share differs from the nominal one by no more than `margin`."""
        return abs(self.held - self.nominal) <= self.margin

    def __str__(self) -> str:
        judged = "" if self.passes else ", too few" if self.held < self.nominal else ", too many"
        return f"{self.quantity} {self.held:.0%} ({100 * self.standard_error:.0f}) of {self.nominal:.0%}{judged}"


@dataclasses.dataclass(frozen=True, repr=False)
class Certificate:
    """The outcome of `certify`.

    Args:
        shares: For each quantity the share of its intervals that held the truth, by data set, (data_sets,).
        checks: What needs no new fit: how often the intervals of the real rows, each predicted from all others, held
            what was observed, and those of the priors the hyperparameters.
        level: The probability of the intervals.
        law: What the truth was drawn from, in words.
        seconds: The seconds that it took.
    """

    shares: Mapping[str, np.ndarray]
    checks: Sequence[Coverage]
    level: float
    law: str
    seconds: float

    @property
    def data_sets(self) -> int:
        """The number of simulated data sets."""
        return len(next(iter(self.shares.values())))

    @property
    def rows(self) -> list[Coverage]:
        """The share of each quantity, those of the real data last.

        Intervals of one data set are dependent, so the standard error is that of the data sets' own shares.
        """
        found = [Coverage(name, *_mean_and_error(share), self.level) for name, share in self.shares.items()]
        return [*found, *self.checks]

    @property
    def passes(self) -> bool:
        """Whether every share is as it should be; see `Coverage.passes`."""
        return all(row.passes for row in self.rows)

    def sentence(self) -> str:
        """Return the outcome in one sentence."""
        held, error = _mean_and_error(np.mean(list(self.shares.values()), axis=0))
        judged = "as they should" if self.passes else "which is not as it should be"
        return (
            f"The intervals of this study held {held:.0%} ({100 * error:.0f}) of {self.level:.0%}, {judged}: "
            f"{'; '.join(map(str, self.rows))}. In parentheses are standard errors; {self.data_sets} data sets were "
            f"simulated from {self.law}."
        )

    def to_pandas(self) -> pd.DataFrame:
        """Return a table with a row for each quantity."""
        columns = {name: [getattr(row, name) for row in self.rows] for name in (*Coverage._fields[1:], "passes")}
        return pd.DataFrame(columns, index=pd.Index([row.quantity for row in self.rows], name="quantity"))

    def __repr__(self) -> str:
        return f"Certificate({self.sentence()} {self.seconds:.0f} seconds)"


def certify(
    rng_key: RngKey,
    fit: Fit,
    x: Any,
    *,
    data_sets: int = 40,
    level: float = 0.9,
    law: Fit | str = "posterior",
    max_draws: int = 200,
    progress: bool = True,
    **options: Any,
) -> Certificate:
    r"""Measure how often the intervals of a fit and of its explanation hold the truth, for data like the user's.

    .. math:: \theta, f \sim \text{law}, \quad y^\ast \sim p(y \mid f(X), \theta), \quad
        \text{intervals from } p(f \mid y^\ast)

    From each data set :math:`y^\ast` at the user's rows X the fit is repeated with the same model and inference, and
    the rows `x` are predicted and explained. A share passes if it differs from the level by at most two standard
    errors and 3 points.

    * A truth from the posterior, the default, is like what the fit has learned. Over the data sets of a right model it
      is a draw from the prior, so its intervals hold the level on average.
    * A truth from the prior (simulation-based calibration) tests the inference alone, whatever the data are.
    * A truth from another fit to the same rows tests whether this model's intervals hold what that model believes.

    Two checks of the real data need no new fit. Each row is predicted from all others: the intervals hold too few or
    too many rows if the model does not fit the data. And of each hyperparameter, the draws are counted that the central
    99 % of its prior hold: if they are few, the prior contradicts the data.

    The first data set is slower because programs are compiled. The second one tells how long the others take, which is
    written to the error stream before they start. They run in as many threads as there are cores.

    Args:
        rng_key: A JAX random key, which determines the result.
        fit: The fit, of a Gaussian process of one function of the rows of a table, such as `kpp_models.GPRegression`
            and `kpp_models.GPClassification`.
        x: The rows to predict and explain, an array (p, d) or a data frame.
        data_sets: How many data sets are simulated, at least 2.
        level: The probability of the intervals.
        law: "posterior", "prior", or another `kpp.Fit` to the same rows.
        max_draws: The largest number of draws of each fit that are explained, evenly spaced.
        progress: Whether to say how long it takes, and to show a progress bar.
        **options: How the rows are explained, as for `kpp.explain`. The explainer must draw from the whole posterior,
            as "rkhs-shap" does.

    Raises:
        TypeError: If the model has no Gaussian posterior of one function of rows, or the explainer does not draw from
            it.
        ValueError: If a number is out of range, or `law` is a fit to other rows.

    References:
        Talts et al., Validating Bayesian inference algorithms with simulation-based calibration, 2018; Säilynoja,
        Schmitt, Bürkner and Vehtari, Posterior SBC: simulation-based calibration checking conditional on data, 2025.
    """
    start = time.perf_counter()
    fit = fit_of(fit) or fit  # type: ignore[assignment]  # of an estimator
    source = _source(fit, law)
    count(data_sets, "data_sets", 2)
    between(level, "level", 0, 1, ends=False)
    draw_key, run_key, prior_key = jax.random.split(rng_key, 3)
    if hasattr(fit.inference, "progress"):
        quiet = dataclasses.replace(fit.inference, progress=False)  # type: ignore[call-arg]
        fit = dataclasses.replace(fit, inference=quiet)
    study = _Repetition(
        fit,
        source,
        law == "prior",
        _draws_of_law(draw_key, source, law == "prior", data_sets),
        fit.model.read_points(x, fit.schema),
        count(max_draws, "max_draws"),
        None if options.get("explainer", "rkhs-shap") is None else options,
        run_key,
    )
    shares = _run(study, level, data_sets, progress)
    words = f"the {law} of this fit" if isinstance(law, str) else f"another fit, {source!r}"
    checks = [*_left_out(fit, level), *_in_priors(prior_key, fit)]
    return Certificate(shares, checks, level, words, time.perf_counter() - start)


class _Truth(NamedTuple):
    """A truth and data from it: the values at the p explained rows, new observations there, and the n observations."""

    values: Float[Array, " p"]
    observations: Array
    y: Array
    function: GPPosterior


@dataclasses.dataclass(frozen=True)
class _Known:
    """The part of a `kpp.Fit` that explainers use, for a function whose values at the training rows are known."""

    schema: Schema | None
    data: Mapping[str, Any]
    posterior: GPPosterior

    def function(self) -> RKHSFunction:
        """Return the mean given these values."""
        return self.posterior.mean

    def function_posterior(self, *, at: Any = "draws") -> GPPosterior:
        """Return the law given these values."""
        return self.posterior

    def predict(self, x: Any) -> xr.Dataset:
        """Refuse, because nothing is asked that a prediction answers."""
        raise TypeError("the explainer must draw from the law of a function, not from predictions")


@dataclasses.dataclass(frozen=True)
class _Repetition:
    """What is repeated for each data set."""

    fit: Fit
    source: Fit  # its model gives the truth
    from_prior: bool  # whether the function is drawn from the prior, given the hyperparameters
    draws: dict[str, Array]  # of the hyperparameters, for each data set
    x: Array
    max_draws: int  # that are explained
    options: dict[str, Any] | None  # of explanations; None leaves them out
    rng_key: RngKey

    def positions(self, number: int) -> dict[str, np.ndarray]:
        """Return for each quantity the share of the draws from a fit's law that are below the truth, of any shape."""
        keys = jax.random.split(jax.random.fold_in(self.rng_key, number), 5)
        sample = {name: value[number] for name, value in self.draws.items()}
        truth = _simulate(keys[0], self.source.model, sample, self.source.data, self.x, self.from_prior)
        data = {**self.fit.data, "y": truth.y.astype(self.fit.data["y"].dtype)}
        fit = Fit.run(keys[1], self.fit.model, data, self.fit.schema, self.fit.inference, num_prior_samples=0)
        predicted = fit.predict(self.x)
        mean, variance = (predicted[name].values.reshape(-1, len(self.x)) for name in ("mean", "latent_variance"))
        # A known value has a position of 0, 1/2 or 1.
        scores = (np.asarray(truth.values) - mean) / np.sqrt(np.maximum(variance, np.finfo(variance.dtype).tiny))
        found = {"values of the function": special.ndtr(scores).mean(axis=0)}
        if "noise_variance" in predicted:
            again = fit.sample_predictive(keys[2], self.x, max(_REPLICATES, len(mean))).values
            found["new observations"] = _position(np.asarray(truth.observations), again)
        if self.options is not None:
            known = _Known(fit.schema, data, truth.function)
            own, drawn = self._explain(known, keys[3]), self._explain(fit.thin(self.max_draws)[0], keys[4])
            found["Shapley values"] = _position(own[0], drawn)
        return found

    def _explain(self, predictor: Fit | _Known, rng_key: RngKey) -> Float[np.ndarray, "s p g"]:
        """Return draws of the contributions."""
        assert self.options is not None
        options = {"explainer": "rkhs-shap", "value_function": None, **self.options}
        explainer, value_function = options.pop("explainer"), options.pop("value_function")
        reader = read(predictor, self.x, explainer, value_function, without_progress(explainer, options))
        explanation = reader.explain(self.x, rng_key)
        if explanation.attrs.get("uncertainty") not in WHOLE or "draw" not in explanation.values.dims:
            raise TypeError(
                "`options` must ask for contributions that are drawn from the whole posterior, as the explainer "
                "'rkhs-shap' does by default; `explainer=None` certifies the predictions alone"
            )
        return explanation.values.values.reshape(-1, *explanation.values.shape[2:])


def _position(truth: Float[np.ndarray, "*shape"], draws: Float[np.ndarray, "s *shape"]) -> Float[np.ndarray, "*shape"]:
    """Return the share of draws below the truth; of draws that equal it, half count."""
    return np.mean((draws < truth) + 0.5 * (draws == truth), axis=0)


@eqx.filter_jit
def _simulate(
    rng_key: RngKey, model: AbstractGPModel, sample: dict[str, Array], data: Mapping[str, Any], x: Array, prior: bool
) -> _Truth:
    """Draw a function under one draw of the hyperparameters, and observations.

    The function is drawn at the p explained rows and at the points that determine the posterior mean: the training
    rows, or inducing points. Its values at these points determine the law of the Shapley values, and the values at the
    training rows; what inducing points do not explain there is independent, as in the model.
    """
    keys = jax.random.split(rng_key, 4)
    process: Any = model.posterior(sample, data)
    kernel, likelihood, mean = process.kernel, process.likelihood, process.prior_mean
    points = process.function().spanned.points
    places = jnp.concatenate([points, x])
    scale = jnp.mean(kernel.diagonal(places))
    if prior:
        center = jnp.broadcast_to(evaluate_mean(mean, places), len(places))
        values = draw_gaussian(keys[0], center, kernel.gram(places), scale)
    else:
        values = draw_joint(keys[0], process.joint(places), scale)
    at_points, at_x = jnp.split(values, [len(points)])
    white = solve_lower(prior_factor(kernel.gram(points)), at_points - evaluate_mean(mean, points))
    known = condition_on_values(kernel, points, white, likelihood, mean)
    law = moments_in_blocks(known.moments, data["x"])
    at_rows = law.mean + jnp.sqrt(law.variance) * jax.random.normal(keys[3], law.mean.shape, law.mean.dtype)
    y = likelihood.draw_observed(keys[2], at_rows)
    return _Truth(at_x, likelihood.draw(keys[1], at_x), y, known.posterior())


def _run(study: _Repetition, level: float, data_sets: int, progress: bool) -> dict[str, np.ndarray]:
    """Return the shares of intervals that hold the truth, (data_sets,), by quantity."""
    found, seconds = [], 0.0
    threads, others = num_cores(), data_sets - 2
    with _without_warnings():
        with alone_in_thread():  # the first compiles, the second shows how long one takes
            for number in range(2):
                start = time.perf_counter()
                found.append(study.positions(number))
                seconds = time.perf_counter() - start
                end_if_asked()
        if progress:
            left = duration(seconds * math.ceil(others / threads))
            tqdm.write(f"kpp: a certificate from {data_sets} data sets takes another {left}", file=sys.stderr)
        bar: dict[str, Any] = {"name": "data set", "label": "certificate", "progress": progress}
        found += map_numbers(lambda number: study.positions(number + 2), others, threads=threads, **bar)
    tail = 0.5 * (1.0 - level) - 1e-9  # a share of draws at the end is inside
    return {
        name: np.array([np.mean(np.abs(positions[name] - 0.5) <= 0.5 - tail) for positions in found])
        for name in found[0]
    }


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """Leave out kpp's warnings meanwhile, which the fit of the user has given and each data set would repeat."""
    level = _LOGGER.level
    _LOGGER.setLevel(logging.ERROR)
    try:
        yield
    finally:
        _LOGGER.setLevel(level)


def _source(fit: Fit, law: Fit | str) -> Fit:
    """Return the fit whose model gives the truth, or raise because a fit or a law cannot be used."""
    source = fit if isinstance(law, str) else law
    for name, one in (("fit", fit), ("law", source)):
        check_type(one, name, ["Fit"])
        check_certifiable(one.model, one.data, one.schema)
    if isinstance(law, str):
        one_of(law, "law", ("posterior", "prior"))
    elif not np.array_equal(source.data["x"], fit.data["x"]):
        raise ValueError("`law` must be a fit to the rows of `fit`, got one to other rows")
    return source


def _draws_of_law(rng_key: RngKey, source: Fit, prior: bool, num: int) -> dict[str, Array]:
    """Return draws of all sites, from the prior or of the posterior, of which none is taken twice unless all are."""
    if prior:
        unobserved = {name: value for name, value in source.data.items() if name != "y"}
        return simulate(rng_key, source.model.numpyro_model, unobserved, num)[0]
    total = source.num_chains * source.num_draws
    keys = jax.random.split(rng_key, -(-num // total))
    picked = jnp.concatenate([jax.random.permutation(key, total) for key in keys])[:num]
    return {name: value.reshape(-1, *value.shape[2:])[picked] for name, value in source.draws.items()}


def _left_out(fit: Fit, level: float) -> Iterator[Coverage]:
    """Yield how often the real rows are in their intervals given all others, or how often their labels are right."""
    found = {name: value.reshape(-1, value.shape[-1]) for name, value in fit.map_draws(_held_out).items()}
    weights = arviz_data.held_out_weights(np.asarray(found["density"]))
    if "position" in found:
        inside = np.abs(np.sum(weights * found["position"], axis=0) - 0.5) <= 0.5 * level
        yield Coverage("rows left out", float(inside.mean()), math.sqrt(level * (1 - level) / inside.size), level)
    elif "probability" in found:
        ones = np.sum(weights * found["probability"], axis=0)
        right = np.mean((ones > 0.5) == (np.asarray(fit.data["y"]) > 0.5))
        error = math.sqrt(np.mean(ones * (1.0 - ones)) / ones.size)
        yield Coverage("labels of rows left out", float(right), error, float(np.maximum(ones, 1.0 - ones).mean()))


def _in_priors(rng_key: RngKey, fit: Fit) -> Iterator[Coverage]:
    """Yield the share of the draws of hyperparameters that are in the central 99 % of their priors."""
    known: dict[str, Any] = {}
    for field in dataclasses.fields(fit.model):
        known |= prior_sites(field.name, getattr(fit.model, field.name))
    inside = []
    for number, (name, prior) in enumerate(known.items()):
        sampled = np.asarray(prior.sample(jax.random.fold_in(rng_key, number), (_PRIOR_DRAWS,)))
        low, high = np.quantile(sampled, [0.5 - 0.5 * _PRIOR, 0.5 + 0.5 * _PRIOR], axis=0)
        draws = np.asarray(fit.draws[name])
        inside.append(np.mean((low <= draws) & (draws <= high), axis=(0, 1)).ravel())
    if inside:
        shares = np.concatenate(inside)
        error = math.sqrt(_PRIOR * (1.0 - _PRIOR) / shares.size)
        yield Coverage("hyperparameters in their priors", float(shares.mean()), error, _PRIOR)


def _held_out(model: AbstractGPModel, sample: dict[str, Array], data: Mapping[str, Any]) -> dict[str, Array]:
    """Return what one draw says of every row given all others: its density, and its position or its probability."""
    process = model.posterior(sample, data)
    mean, variance = held_out_law(process, data)
    likelihood, variance = process.likelihood, jnp.zeros_like(mean) if variance is None else variance
    found = {"density": likelihood.marginal_log_density(mean, variance)}
    if isinstance(likelihood, GaussianLikelihood):
        scores = (data["y"] - mean) / jnp.sqrt(variance + likelihood.variances)
        return found | {"position": jax.scipy.special.ndtr(scores)}
    return found | {name: value for name, value in likelihood.predict(mean, variance).items() if name == "probability"}


def _mean_and_error(shares: Float[np.ndarray, " s"]) -> tuple[float, float]:
    """Return the mean of shares and its standard error; if all are 0 or 1, the error is that of one more."""
    mean = float(np.mean(shares))
    spread = shares if 0.0 < mean < 1.0 else np.append(shares, 1.0 - mean)
    return mean, float(np.std(spread) / math.sqrt(len(shares)))


guard_exports(globals())
