"""The laws of a model. Each is a check of one example: a model, points (a table or data with `points`) and targets."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jaxtyping import PyTree

from kpp.functions import RKHSFunction
from kpp.inference import MAP, AbstractModel, Fit
from kpp.priors import has_priors
from kpp.storage.serialization import to_spec
from kpp.testing.compare import assert_close, assert_raises, assert_same_tree, laws_in, once_per_example, spec_copy
from kpp.typing import AnyArray


class _Site(NamedTuple):
    """A sample site of one run of a NumPyro model: whether it is observed, its value and its log density there."""

    is_observed: bool
    value: np.ndarray
    log_density: np.ndarray


_QUICK = MAP(num_restarts=1, progress=False)


def runs_under_numpyro(model: AbstractModel, x: object, y: AnyArray) -> None:
    """With a seed, numpyro_model draws its priors and observes the data, with finite density."""
    sites = _run(model, x, y)
    observed = [name for name, site in sites.items() if site.is_observed]
    assert observed, f"no site is observed; the sites are {sorted(sites)}"
    for name, site in sites.items():
        assert np.isfinite(site.log_density).all(), f"the log density of site {name} is not finite"


def priors_are_the_latent_sites(model: AbstractModel, x: object, y: AnyArray) -> None:
    """Every prior leaf is a latent site, named after its place."""
    latent = {name for name, site in _run(model, x, y).items() if not site.is_observed}
    is_prior = lambda value: isinstance(value, numpyro.distributions.Distribution)  # noqa: E731
    for path, leaf in jax.tree.leaves_with_path(model, is_leaf=is_prior):
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        assert not is_prior(leaf) or name in latent, (
            f"the prior {name} has no site; the latent sites are {sorted(latent)}"
        )


def draws_from_the_prior(model: AbstractModel, x: object, y: AnyArray) -> None:
    """Without targets numpyro_model draws them: a fit has the prior predictive."""
    prepared, data, _ = model.prepare(x, y)
    drawn = {}
    jax.eval_shape(lambda data: drawn.update(_trace(prepared.numpyro_model, data)), {**data, "y": None})
    idata = _fit(model, x, y).idata
    predictive = idata["prior_predictive"] if "prior_predictive" in _groups(idata) else {}
    for name, site in _run(model, x, y).items():
        if site.is_observed:
            assert name in drawn, f"without targets there is no site {name}"
            assert jnp.shape(drawn[name]["value"]) == site.value.shape, f"the draw of {name} has another shape"
            if not drawn[name]["is_observed"]:  # some observe other data than the targets
                assert name in predictive, f"the group prior_predictive has no {name}, only {sorted(predictive)}"
                assert np.isfinite(predictive[name]).all(), f"the draws of {name} are not finite"


def fits(model: AbstractModel, x: object, y: AnyArray) -> None:
    """Fit returns a Fit whose draws are finite and have the first axes (chain, draw)."""
    fit = _fit(model, x, y)
    assert isinstance(fit, Fit), f"`fit` returns {type(fit).__name__}"
    for name, draws in fit.draws.items():
        assert jnp.ndim(draws) >= 2, f"the draws of {name} have shape {jnp.shape(draws)}"
        assert np.isfinite(draws).all(), f"the draws of {name} are not finite"
    if has_priors(model):
        assert fit.draws, "the model holds priors and the fit has no draws"


def the_same_key_gives_the_same_fit(model: AbstractModel, x: object, y: AnyArray) -> None:
    """The same key, data and inference give the same draws."""
    again = model.fit(jax.random.key(0), x, y, inference=_QUICK)
    for name, draws in _fit(model, x, y).draws.items():
        assert np.array_equal(draws, again.draws[name]), f"the draws of {name} differ between two fits with one key"


def result_has_the_groups_of_arviz(model: AbstractModel, x: object, y: AnyArray) -> None:
    """The result has the groups of ArviZ, and every axis has a name."""
    idata = _fit(model, x, y).idata
    groups = set(_groups(idata))
    expected = {"log_likelihood", "observed_data", "constant_data", "posterior_predictive", "prior_predictive"}
    expected |= {"posterior", "prior"} if has_priors(model) else set()
    assert expected <= groups, f"the groups {sorted(expected - groups)} are missing; there are {sorted(groups)}"
    for group in expected:
        unnamed = [dim for dim in idata[group].dims if "_dim_" in str(dim)]
        assert not unnamed, f"the group {group} has the unnamed dimensions {unnamed}"


def log_likelihood_is_pointwise(model: AbstractModel, x: object, y: AnyArray) -> None:
    """The log likelihood has one finite term per observation."""
    for name, terms in _fit(model, x, y).idata["log_likelihood"].data_vars.items():
        assert terms.sizes.get("instance") == len(y), f"the log likelihood of {name} has sizes {dict(terms.sizes)}"
        assert np.isfinite(terms).all(), f"the log likelihood of {name} is not finite"


def predicts_at_new_points(model: AbstractModel, x: object, y: AnyArray) -> None:
    """Predict returns finite values with dimensions chain, draw and instance; variances are nonnegative."""
    points = _points(x)[:3] + 0.1
    predicted = _fit(model, x, y).predict(points)
    assert "mean" in predicted or "probability" in predicted, (
        f"`predict` gives {list(predicted)}, neither mean nor probability"
    )
    for name, values in predicted.data_vars.items():
        assert {"chain", "draw"} <= set(values.dims), f"{name} has dimensions {values.dims}"
        assert np.isfinite(values).all(), f"{name} is not finite"
        assert "variance" not in str(name) or float(values.min()) >= 0, f"{name} is negative"
        assert name not in ("mean", "probability") or values.sizes["instance"] == 3, f"{name} has sizes {values.sizes}"


def predictions_are_independent(model: AbstractModel, x: object, y: AnyArray) -> None:
    """The prediction at a point does not depend on the other points."""
    points, fit = _points(x)[:5] + 0.1, _fit(model, x, y)
    # The same number of points, so that no other program is compiled; `draws_predictions` asks for one point alone.
    before, after = fit.predict(points[:3]), fit.predict(points[2:])
    for name in before.data_vars:
        found, expected = after[name], before[name]
        if "instance" in found.dims:
            found, expected = found.isel(instance=0), expected.isel(instance=2)
        assert_close(found.values, expected.values, f"{name} of one point among two sets of others", factor=1000)


def draws_predictions(model: AbstractModel, x: object, y: AnyArray) -> None:
    """sample_predictive draws finite targets, (sample, instance), also at one point; the same for the same key."""
    point, fit = _points(x)[:1], _fit(model, x, y)
    first, second = (fit.sample_predictive(jax.random.key(1), point, 4) for _ in range(2))
    assert (first.sizes["sample"], first.sizes["instance"]) == (4, 1), f"the draws have sizes {dict(first.sizes)}"
    assert np.isfinite(first).all(), "the draws are not finite"
    assert first.equals(second), "two calls with the same key differ"


def function_agrees_with_predictions(model: AbstractModel, x: object, y: AnyArray) -> None:
    """If a model has an RKHS function, the function has the draws of the fit and finite values."""
    fit, points = _fit(model, x, y), _points(x)[:3]
    try:
        function = fit.function()
    except TypeError:  # raised by a model without an RKHS function
        return
    assert isinstance(function, RKHSFunction), f"`function` returns {type(function).__name__}"
    values, predicted = np.asarray(function(jnp.asarray(points))), fit.predict(points)
    assert np.isfinite(values).all(), "the function is not finite"
    assert values.shape[:3] == (*function.batch_shape, 3), f"the function's values have shape {values.shape}"
    if "probability" not in predicted:
        assert_close(values, predicted["mean"].values, "the function and the predicted mean", factor=10_000)


def posterior_agrees_with_predictions(model: AbstractModel, x: object, y: AnyArray) -> None:
    """If a model has a Gaussian posterior of the function, its predictions agree with it."""
    fit, points = _fit(model, x, y), jnp.asarray(_points(x)[:3])

    def both(sample: dict[str, jax.Array], data: PyTree) -> Any:
        posterior = fit.model.posterior_draw(sample, data)
        predicted = fit.model.predictive(sample, data, points, covariance=True)
        return posterior.mean(points), posterior.covariance(points, points), predicted

    try:
        mean, covariance, predicted = jax.jit(both)({name: draws[0, 0] for name, draws in fit.draws.items()}, fit.data)
    except TypeError:  # raised by a model without a Gaussian posterior
        return
    assert "latent_covariance" in predicted, f"`predictive` gives {list(predicted)} and no latent_covariance"
    assert_close(mean, predicted["mean"], "the posterior's mean and the predicted one", factor=10_000)
    expected = predicted["latent_covariance"]
    assert_close(covariance, expected, "the posterior's covariance and the predicted one", factor=10_000)


def saves_and_loads(model: AbstractModel, x: object, y: AnyArray) -> None:
    """A saved and loaded fit of a registered model gives the same predictions."""
    if spec_copy(model) is None:
        return
    fit, points = _fit(model, x, y), _points(x)[:3]
    with tempfile.TemporaryDirectory() as folder:
        fit.save(Path(folder) / "fit.nc")
        loaded = Fit.load(Path(folder) / "fit.nc")
    first, second = fit.predict(points), loaded.predict(points)
    for name in first.data_vars:
        assert_close(second[name].values, first[name].values, f"{name} of the fit and of its copy", factor=100)


def survives_the_round_trip_through_a_spec(model: AbstractModel, x: object, y: AnyArray) -> None:
    """A registered model written as JSON and read back is the same, priors included."""
    copy = spec_copy(model)
    if copy is not None:
        assert to_spec(copy) == to_spec(model), f"the copy is {to_spec(copy)}, the model {to_spec(model)}"
        assert_same_tree(copy, model)


def refuses_bad_input(model: AbstractModel, x: object, y: AnyArray) -> None:
    """Invalid data raise a ValueError that names the argument; an integer as the key raises a TypeError."""
    targets, points = np.array(y, dtype=float), _points(x)
    wider = np.concatenate([points, points[..., :1]], axis=-1)
    mistakes = [
        ("infinity in y", "y", lambda: _try_fit(model, x, np.append(np.inf, targets[1:]))),
        ("fewer targets than points", "y", lambda: _try_fit(model, x, targets[1:])),
        ("a column too many to predict at", "x", lambda: _fit(model, x, y).predict(wider)),
    ]
    if not hasattr(x, "points"):
        mistakes += _bad_points(model, np.array(x, float), targets)
    for what, name, call in mistakes:
        message = assert_raises(ValueError, call, what)
        assert f"`{name}`" in message, f"the message for {what} does not name `{name}`: {message}"
    assert_raises(TypeError, lambda: model.fit(0, x, targets, inference=_QUICK), "an integer for `rng_key`")


def _bad_points(model: AbstractModel, points: np.ndarray, targets: np.ndarray) -> list[Any]:
    missing = points.copy()
    missing[0, 0] = np.nan
    return [
        ("NaN in x", "x", lambda: _try_fit(model, missing, targets)),
        ("one-dimensional x", "x", lambda: _try_fit(model, points[:, 0], targets)),
        ("no row", "x", lambda: _try_fit(model, points[:0], targets[:0])),
    ]


LAWS = laws_in(globals())


def _points(x: object) -> np.ndarray:
    """Return the points to which a model is fitted: a table, or the points of an object such as bags."""
    return np.asarray(getattr(x, "points", x), dtype=float)


def _try_fit(model: AbstractModel, x: object, y: AnyArray) -> Any:
    return model.fit(jax.random.key(0), x, y, inference=_QUICK)


_fit = once_per_example(_try_fit)


@once_per_example
def _run(model: AbstractModel, x: object, y: AnyArray) -> dict[str, _Site]:
    """Run the NumPyro model with a seed, compiled as inferences run it, and return its sample sites."""
    prepared, data, _ = model.prepare(x, y)
    is_observed: dict[str, bool] = {}

    def simulate(data: Mapping[str, Any]) -> dict[str, tuple[jax.Array, jax.Array]]:
        drawn = _trace(prepared.numpyro_model, data)
        is_observed.update({name: site["is_observed"] for name, site in drawn.items()})
        return {name: (site["value"], site["fn"].log_prob(site["value"])) for name, site in drawn.items()}

    found = jax.jit(simulate)(data)
    return {name: _Site(is_observed[name], *map(np.asarray, arrays)) for name, arrays in found.items()}


def _trace(numpyro_model: Callable[..., None], data: Mapping[str, object]) -> dict[str, Any]:
    """Return the sample sites of a run with a seed."""
    seeded = numpyro.handlers.seed(numpyro_model, jax.random.key(0))
    trace = numpyro.handlers.trace(seeded).get_trace(**data)
    return {name: site for name, site in trace.items() if site["type"] == "sample"}


def _groups(idata: Any) -> list[str]:
    """Return the names of the groups of an InferenceData or a DataTree."""
    names = idata.groups() if callable(idata.groups) else idata.groups
    return [str(name).strip("/") for name in names]
