"""Prior means that are functions, in models of aggregates: what they add, their priors, and what they refuse."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import log_density

import kpp
from kpp.data.bags import Bags
from kpp.gp.means import LinearMean
from kpp.inference.base import inspect_sites
from kpp.kernels import RBF
from kpp.priors import has_priors
from kpp.storage.serialization import from_spec, to_spec
from kpp_models import CMP
from kpp_models.aggregates.operators.conditional_mean import Places

WEIGHTS, BIAS = np.array([0.7, -1.1]), 2.0
SIZES = np.array([1, 4, 2, 3])


@pytest.fixture(scope="module")
def bags():
    points = np.random.default_rng(3).normal(size=(10, 2))
    return Bags.create(points, np.repeat(np.arange(4), SIZES), np.linspace(-1.0, 1.0, 4)[:, None])


TARGETS = np.array([0.4, -1.0, 2.0, 0.3])
X = np.random.default_rng(4).normal(size=(5, 2))


def prepared(bags, mean, targets=TARGETS, **options):
    model, data, _ = CMP(RBF(0.8), RBF(0.5), 0.1, 0.02, mean=mean, **options).prepare(bags, targets)
    return model, data


@eqx.filter_jit
def evaluate(model, data, x):
    """Everything that depends on the prior mean, under one draw."""
    places = Places(data["target_covariates"], data["target_source"])
    found = {"operator": model.operator(data), "aggregates": model.aggregate_moments({}, data, places)["mean"]}
    found["density"] = log_density(model.numpyro_model, (), data, {})[0]
    return found | model.log_likelihood({}, data) | {"field": model.predictive({}, data, x)}


@pytest.mark.slow
def test_mean_function_shifts_targets_and_field(bags):
    found = evaluate(*prepared(bags, LinearMean(WEIGHTS, BIAS)), X)
    at_points = np.asarray(bags.points) @ WEIGHTS + BIAS
    aggregates = np.asarray(found["operator"]).T @ np.asarray(bags.means(at_points))
    assert np.abs(found["operator"].sum(0) - 1.0).max() > 0.01  # a constant mean does not simply drop out
    plain = evaluate(*prepared(bags, LinearMean(np.zeros(2), 0.0), TARGETS - aggregates), X)
    # The same arithmetic in another order.
    for name, shift in (("field", X @ WEIGHTS + BIAS), ("aggregates", aggregates)):
        means = [values[name]["mean"] if name == "field" else values[name] for values in (found, plain)]
        np.testing.assert_allclose(means[0], means[1] + shift, rtol=1e-10)
    for name in ("density", "y"):
        np.testing.assert_allclose(found[name], plain[name], rtol=1e-10)
    np.testing.assert_allclose(found["field"]["latent_variance"], plain["field"]["latent_variance"], rtol=1e-10)


PRIORS = LinearMean(dist.Normal(0.0, 1.0).expand([2]), dist.Normal(0.0, 2.0))


def test_priors_in_a_mean_function_are_sites(bags):
    model, data = prepared(bags, PRIORS)
    sites = inspect_sites(model.numpyro_model, data)
    assert {name: site.shape for name, site in sites.items() if site.kind == "latent"} == {
        "mean.weights": (2,),
        "mean.bias": (),
    }


def test_models_with_a_mean_function_are_written_and_read(bags):
    for mean in (PRIORS, LinearMean(WEIGHTS, BIAS)):
        model, _ = prepared(bags, mean)
        again = from_spec(to_spec(model), "models")
        assert isinstance(again.mean, LinearMean) and has_priors(again.mean) == has_priors(mean)
        assert to_spec(again) == to_spec(model)
    np.testing.assert_array_equal(again.mean.weights, WEIGHTS)


@pytest.mark.nightly
def test_slopes_of_the_field_are_learned(bags, tmp_path):
    # The model is linear in weights and bias: their mode is that of a Gaussian, generalized least squares with a ridge.
    model = CMP(RBF(0.8), RBF(0.5), 0.1, 0.02, mean=PRIORS)
    inference = kpp.MAP(num_restarts=0, progress=False)
    fit = model.fit(jax.random.key(0), bags, TARGETS, inference=inference, num_prior_samples=0)
    operator = np.asarray(model.operator(fit.data))
    design = operator.T @ np.asarray(bags.means(np.c_[bags.points, np.ones(10)]))
    covariance = operator.T @ np.asarray(bags.gram(RBF(0.8))) @ operator + 0.1 * np.eye(4)
    weighted = np.linalg.solve(covariance, np.c_[design, TARGETS])
    precision = design.T @ weighted[:, :3] + np.diag([1.0, 1.0, 0.25])
    mode = np.linalg.solve(precision, design.T @ weighted[:, 3])
    found = np.r_[fit.draws["mean.weights"][0, 0], fit.draws["mean.bias"][0, 0]]
    np.testing.assert_allclose(found, mode, atol=1e-5)  # where the search stops
    fit.save(tmp_path / "fit.nc")
    again = kpp.Fit.load(tmp_path / "fit.nc")
    np.testing.assert_array_equal(again.predict(X)["mean"], fit.predict(X)["mean"])
    np.testing.assert_allclose(again.function()(X), fit.predict(X)["mean"], rtol=1e-9)


class Wrong(eqx.Module):
    def __call__(self, x):
        return jnp.sum(x)


@pytest.mark.parametrize(
    ("mean", "message"),
    [
        (LinearMean(np.ones(3), 0.0), "`mean` cannot be evaluated on `x` of shape"),
        (Wrong(), "`mean` must return one number per point, shape .10,., got shape"),
        (np.ones(4), "`mean` must be one number"),
    ],
)
def test_means_that_do_not_fit_are_refused(bags, mean, message):
    with pytest.raises(ValueError, match=message):
        prepared(bags, mean)


def test_weights_are_one_a_feature():
    with pytest.raises(ValueError, match="`weights` must hold one number per feature"):
        LinearMean(1.0, 0.0)
    with pytest.raises(ValueError, match="`bias` must be finite"):
        LinearMean(np.ones(2), np.nan)
