"""The models under every inference: ArviZ counts n, functions carry chain and draw, data frames keep names."""

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest

import kpp
from kpp.kernels import RBF
from kpp_models import GPClassification, GPRegression, gp_classification, gp_regression

PRIOR = dist.LogNormal(0.0, 0.5)
INFERENCES = {
    "nuts": (kpp.NUTS(num_warmup=60, num_samples=60, num_chains=2, progress=False), (2, 60)),
    "svi": (kpp.SVI(num_steps=200, num_samples=50, progress=False), (1, 50)),
    "map": (kpp.MAP(progress=False), (1, 1)),
    "laplace": (kpp.Laplace(num_samples=50, progress=False), (1, 50)),
}
slow = pytest.mark.slow


def regression():
    return GPRegression(RBF(PRIOR.expand([3])), noise_variance=dist.HalfNormal(1.0), mean=dist.Normal(0.0, 1.0))


def classification(latent):
    return GPClassification(RBF(PRIOR), latent=latent)


def fit_to_frame(name, data):
    x, y = data
    frame = pd.DataFrame(x, columns=["age", "dose", "site"])
    return regression().fit(jax.random.key(0), frame, pd.Series(y), inference=INFERENCES[name][0])


@pytest.fixture(scope="module")
def nuts_fit(regression_data):
    return fit_to_frame("nuts", regression_data)


@pytest.fixture(scope="module")
def map_fit(regression_data):
    return fit_to_frame("map", regression_data)


def check(fit, shape, x):
    assert (fit.num_chains, fit.num_draws) == shape
    assert fit.idata["log_likelihood"]["y"].shape == (*shape, 20)
    function = fit.function()
    assert function.batch_shape == shape
    values, predicted = np.asarray(function(jnp.asarray(x[:4]))), fit.predict(x[:4])
    np.testing.assert_allclose(values, predicted["mean"], rtol=1e-6, atol=1e-8)
    for group in ("posterior", "log_likelihood", "posterior_predictive", "prior_predictive"):
        for value in fit.idata[group].data_vars.values():
            assert np.isfinite(value).all()
            assert not [dim for dim in value.dims if "_dim_" in dim]


@pytest.mark.nightly
def test_regression_under_map(map_fit, regression_data):
    check(map_fit, INFERENCES["map"][1], regression_data[0])


@pytest.mark.nightly
def test_regression_under_laplace(regression_data):
    inference, shape = INFERENCES["laplace"]
    check(regression().fit(jax.random.key(0), *regression_data, inference=inference), shape, regression_data[0])


@pytest.mark.nightly_variants("laplace-map", "sample-nuts", "sample-svi")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("latent", "name"),
    [("laplace", "map"), ("sample", "nuts"), ("sample", "svi")],  # regression has a test of the others
)
def test_classification_under_every_inference(latent, name, classification_data):
    inference, shape = INFERENCES[name]
    fit = classification(latent).fit(jax.random.key(0), *classification_data, inference=inference)
    check(fit, shape, classification_data[0])
    if latent == "sample":
        latent = fit.idata["latent"]
        assert latent["latent_whitened"].dims == ("chain", "draw", "coordinate")
        assert latent["function_values"].dims == ("chain", "draw", "instance")


@pytest.mark.nightly
def test_arviz_counts_the_rows(nuts_fit, regression_data):
    check(nuts_fit, (2, 60), regression_data[0])
    result = az.loo(nuts_fit.idata, pointwise=True)
    assert result.n_data_points == 20
    assert result.n_samples == 120


@pytest.mark.slow
def test_sites_and_axes_carry_names(nuts_fit):
    posterior = nuts_fit.idata["posterior"]
    assert set(posterior.data_vars) == {"kernel.lengthscale", "noise_variance", "mean"}
    assert posterior["kernel.lengthscale"].dims == ("chain", "draw", "feature")
    assert list(posterior["feature"].values) == ["age", "dose", "site"]


@pytest.mark.slow
def test_predicting_reads_columns_by_name(map_fit, regression_data):
    x = regression_data[0][:4]
    frame = pd.DataFrame({"site": x[:, 2], "dose": x[:, 1], "age": x[:, 0]})
    np.testing.assert_array_equal(map_fit.predict(frame)["mean"], map_fit.predict(x)["mean"])
    with pytest.raises(ValueError, match=r"lacks the columns \['dose'\]"):
        map_fit.predict(frame.drop(columns="dose"))


@pytest.mark.slow
def test_the_posterior_mode_of_regression_is_that_of_numpyros_own_model(regression_data):
    """The site's log density and its gradient, against NumPyro's multivariate normal in the same model."""
    x, y = (jnp.asarray(array) for array in regression_data)
    model = regression()

    def reference(x, y):
        kernel = kpp.sample("kernel", model.kernel)
        noise = numpyro.sample("noise_variance", model.noise_variance)
        mean = numpyro.sample("mean", model.mean)
        covariance = kernel.gram(x) + noise * jnp.eye(20)
        numpyro.sample("y", dist.MultivariateNormal(mean * jnp.ones(20), covariance_matrix=covariance), obs=y)

    def density(numpyro_model, values):
        return numpyro.infer.util.log_density(numpyro_model, (x, y), {}, values)[0]

    values = {
        "kernel.lengthscale": jnp.array([0.5, 1.0, 2.0]),
        "noise_variance": jnp.array(0.1),
        "mean": jnp.array(0.7),
    }
    ours, theirs = (
        jax.jit(jax.value_and_grad(lambda v, f=f: density(f, v)))(values) for f in (model.numpyro_model, reference)
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8), ours, theirs)


@pytest.mark.nightly_variants("gp_classification")
@pytest.mark.slow
@pytest.mark.parametrize("function", [pytest.param(gp_regression, marks=slow), gp_classification])
def test_plain_model_functions_run_under_numpyro(function, classification_data):
    """NumPyro takes a kernel with priors as an ordinary argument."""
    x, y = (jnp.asarray(array) for array in classification_data)
    arguments = (RBF(PRIOR), dist.HalfNormal(1.0)) if function is gp_regression else (RBF(PRIOR),)
    mcmc = numpyro.infer.MCMC(numpyro.infer.NUTS(function), num_warmup=2, num_samples=2, progress_bar=False)
    mcmc.run(jax.random.key(0), x, y, *arguments)
    assert np.isfinite(mcmc.get_samples()["kernel.lengthscale"]).all()
