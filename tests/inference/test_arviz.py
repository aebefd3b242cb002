"""The ArviZ object: its groups, the names of its axes, and that ArviZ's own functions work on it."""

from __future__ import annotations

import arviz as az
import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats
import xarray as xr

import kpp
from kpp.inference.base import inspect_sites
from kpp.inference.fit.arviz_groups import Naming
from kpp.storage import arviz_data

GROUPS = {
    "posterior",
    "sample_stats",
    "log_likelihood",
    "log_prior",
    "posterior_predictive",
    "observed_data",
    "constant_data",
    "prior",
    "prior_predictive",
}


@pytest.mark.nightly_variants("svi_fit")
@pytest.mark.slow
@pytest.mark.parametrize("name", ["nuts_fit", "map_fit", "laplace_fit", "svi_fit"])
def test_all_groups_are_there_and_every_axis_has_a_name(name, request):
    fit = request.getfixturevalue(name)
    groups = arviz_data.groups(fit.idata)
    assert set(groups) == GROUPS
    named = {"chain", "draw", "instance", "feature", "step"}
    for dataset in groups.values():
        assert set(dataset.dims) <= named
        assert set(dataset.dims) == set(dataset.coords)


def test_shapes_and_coordinates(nuts_fit, conjugate):
    groups = arviz_data.groups(nuts_fit.idata)
    assert groups["posterior"]["weights"].dims == ("chain", "draw", "feature")
    assert list(groups["posterior"]["feature"].values) == ["x0", "x1", "x2"]
    assert groups["log_likelihood"]["y"].sizes == {"chain": 2, "draw": 200, "instance": 20}
    assert groups["posterior_predictive"]["y"].sizes == {"chain": 2, "draw": 200, "instance": 20}
    assert groups["prior"]["weights"].sizes == {"chain": 1, "draw": 100, "feature": 3}
    np.testing.assert_array_equal(groups["observed_data"]["y"], conjugate.y)
    np.testing.assert_array_equal(groups["constant_data"]["x"], conjugate.x)


def test_the_object_is_made_once_and_holds_all_draws_after_thinning(nuts_fit):
    assert nuts_fit.idata is nuts_fit.idata
    thinned, _ = nuts_fit.thin(4)
    assert thinned.draws["weights"].shape[1] == 2
    xr.testing.assert_identical(*(arviz_data.group(fit.idata, "posterior") for fit in (nuts_fit, thinned)))


def test_sampler_statistics(nuts_fit):
    stats = arviz_data.group(nuts_fit.idata, "sample_stats")
    assert {"diverging", "tree_depth", "n_steps", "energy", "acceptance_rate", "lp", "step_size"} <= set(stats)
    assert (stats["n_steps"] <= 2.0 ** stats["tree_depth"] - 1).all()
    assert (stats["n_steps"] >= 2.0 ** (stats["tree_depth"] - 1)).all()


def test_log_likelihood_is_pointwise(nuts_fit, conjugate):
    weights = np.asarray(nuts_fit.draws["weights"])
    residual = conjugate.y - np.einsum("csd,nd->csn", weights, conjugate.x)
    expected = -0.5 * (residual / 0.5) ** 2 - np.log(0.5) - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(
        arviz_data.group(nuts_fit.idata, "log_likelihood")["y"], expected, rtol=1e-10, atol=1e-10
    )


def test_log_prior_is_the_density_of_each_site(nuts_fit):
    found = arviz_data.group(nuts_fit.idata, "log_prior")
    assert {name: density.dims for name, density in found.items()} == {"weights": ("chain", "draw")}
    expected = scipy.stats.norm.logpdf(nuts_fit.draws["weights"]).sum(-1)
    np.testing.assert_allclose(found["weights"], expected, rtol=1e-10)


@pytest.mark.skipif(arviz_data.MAJOR == 0, reason="ArviZ 0 has no power-scaling")
def test_a_tight_prior_is_found_to_drive_the_posterior():
    # The posterior N(0, 1) with the prior N(0, 1.2^2), which has 70 % of the precision, and with N(0, 30^2).
    draws = np.random.default_rng(0).normal(size=(2, 500, 2))
    dims = ("chain", "draw", "which")
    posterior = xr.Dataset({"a": (dims, draws)}, coords={"which": ["first", "second"]})
    found = []
    for scale in (1.2, 30.0):
        prior = xr.Dataset({"a": (dims, scipy.stats.norm.logpdf(draws, scale=scale))})
        found.append(arviz_data.prior_sensitivity({"posterior": posterior, "log_prior": prior}))
    assert set(found[0]) == {"a[first]", "a[second]"}
    assert min(found[0].values()) > 0.05 > 0.005 > max(found[1].values())


def test_posterior_predictive_is_conditioned_on_the_data(nuts_fit, conjugate):
    predictive = arviz_data.group(nuts_fit.idata, "posterior_predictive")["y"]
    exact = conjugate.x @ conjugate.mean
    sd = np.sqrt(np.einsum("nd,de,ne->n", conjugate.x, conjugate.covariance, conjugate.x) + 0.25)
    # 400 draws: five standard errors of their mean, with half of them effective.
    assert (np.abs(predictive.mean(("chain", "draw")).values - exact) < 5 * sd / np.sqrt(200)).all()


def test_leave_one_out_counts_the_observations_and_is_right(nuts_fit, conjugate):
    result = arviz_data.loo_numbers(arviz_data.loo(nuts_fit.idata))
    assert result["pareto_k"].shape == (20,)
    exact = 0.0
    for i in range(20):  # brute force: refit without the row, in closed form
        x, y = np.delete(conjugate.x, i, 0), np.delete(conjugate.y, i)
        covariance = np.linalg.inv(np.eye(3) + x.T @ x / 0.25)
        variance = conjugate.x[i] @ covariance @ conjugate.x[i] + 0.25
        error = conjugate.y[i] - conjugate.x[i] @ covariance @ x.T @ y / 0.25
        exact += -0.5 * error**2 / variance - 0.5 * np.log(2 * np.pi * variance)
    # Importance sampling from 400 draws: a few hundredths a point are typical, 20 points.
    assert abs(result["elpd"] - exact) < 0.5


def test_summary_has_the_same_columns_under_every_arviz(nuts_fit):
    table = arviz_data.summary(nuts_fit.idata, interval_probability=0.9)
    assert list(table.index) == ["weights[x0]", "weights[x1]", "weights[x2]"]
    assert {"mean", "sd", "lower", "upper", "ess_bulk", "ess_tail", "r_hat"} <= set(table.columns)
    draws = np.asarray(nuts_fit.draws["weights"]).reshape(-1, 3)
    np.testing.assert_allclose(table["mean"], draws.mean(0), rtol=1e-10)
    np.testing.assert_allclose(table["lower"], np.quantile(draws, 0.05, axis=0), rtol=1e-10)
    assert (table["r_hat"] < 1.05).all()


@pytest.mark.slow
def test_arviz_itself_summarizes_and_plots(nuts_fit):
    assert az.summary(nuts_fit.idata).shape[0] == 3
    plots = [az.plot_trace, az.plot_energy]
    plots.append(az.plot_ppc if arviz_data.MAJOR == 0 else az.plot_ppc_dist)
    for plot in plots:
        plot(nuts_fit.idata)
    import matplotlib.pyplot as plt

    plt.close("all")


def test_axes_are_named_by_plates_features_and_sites():
    def model(x, y=None):
        kpp.sample("wide", dist.Normal().expand([7]))
        kpp.sample("square", dist.Normal().expand([3, 3]))
        with numpyro.plate("group", 4):
            kpp.sample("weights", dist.Normal().expand([3]))
        numpyro.deterministic("total", x.sum(0))
        numpyro.sample("y", dist.Normal(x.sum(1), 1.0), obs=y)

    sites = inspect_sites(model, {"x": np.ones((20, 3)), "y": np.ones(20)})
    naming = Naming(["a", "b", "c"], 20)
    assert {name: naming.of_site(site) for name, site in sites.items()} == {
        "wide": ("wide_feature",),
        "square": ("feature", "feature_other"),
        "weights": ("group", "feature"),
        "total": ("feature",),
        "y": ("instance",),
    }
    assert {name: site.kind for name, site in sites.items()}["y"] == "observed"


def test_looking_at_sites_computes_nothing():
    def model(x):
        jax.debug.callback(lambda: pytest.fail("the model ran"))
        kpp.sample("a", dist.Normal())

    assert list(inspect_sites(model, {"x": np.ones(3)})) == ["a"]


@pytest.mark.slow
def test_predictions_at_new_points_have_their_own_groups(nuts_fit, conjugate):
    x = np.random.default_rng(3).normal(size=(4, 3))
    fit = nuts_fit.with_predictions(jax.random.key(9), x)
    groups = arviz_data.groups(fit.idata)
    assert set(groups) == set(arviz_data.groups(nuts_fit.idata)) | {"predictions", "predictions_constant_data"}
    drawn = groups["predictions"]["y"]
    assert drawn.sizes == {"chain": 2, "draw": 200, "instance": 4}
    np.testing.assert_array_equal(groups["predictions_constant_data"]["x"], x)
    assert list(groups["predictions_constant_data"]["feature"].values) == ["x0", "x1", "x2"]
    # Each draw of the posterior gives one observation: given the weights, N(weights' x, 1/4).
    weights = np.asarray(nuts_fit.draws["weights"])
    scores = (drawn.values - np.einsum("csd,nd->csn", weights, x)) / 0.5
    # 1600 independent standard normal numbers: 4 standard errors of their mean and of their variance.
    assert abs(scores.mean()) < 4 / 40 and abs(scores.var() - 1) < 4 * (2 / 1600) ** 0.5


@pytest.mark.slow
def test_predictions_do_not_pass_to_a_fit_with_other_draws(nuts_fit, conjugate):
    fit = nuts_fit.with_predictions(jax.random.key(9), conjugate.x[:2])
    assert (
        arviz_data.group(fit.with_predictions(jax.random.key(9), conjugate.x[:3]).idata, "predictions")["y"].shape[2]
        == 3
    )
    assert "predictions" not in arviz_data.group_names(fit.resume(jax.random.key(1), 2).idata)
