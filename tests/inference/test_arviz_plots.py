"""ArviZ's standard functions on the groups of every registered model."""

from __future__ import annotations

import dataclasses
import functools

import arviz as az
import equinox as eqx
import jax
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import pytest
import xarray as xr

import kpp
from kpp import registry
from kpp.inference import AbstractInference
from kpp.inference.base import CalledWith, Posterior, inspect_sites
from kpp.storage import arviz_data

# Two chains of few draws: enough for every function to run, and each model is compiled once.
CHAINS, DRAWS = 2, 20
# Examples whose latent values or inducing points are sampled, by model; of all others the first example is enough.
SAMPLED = {"GPClassification": 1, "GPRegression": 3, "GeneralizedGP": 2, "MultiLatentGP": 1, "PreferenceGP": 1}
QUICK = {("BayesIMP", 0), ("GPClassification", 1)}
# Leave-one-out PIT is defined for one number per observation: not for counts of outcomes, orders, or several outputs.
WITHOUT_PIT = {"GPGP", "PGP", "PreferenceGP", "RankingGP"}
if arviz_data.MAJOR == 0:
    # Densities of replicates that are all 0 or all 1 are more than ArviZ 0 draws.
    PPC, PIT = (lambda idata: az.plot_ppc(idata, kind="cumulative"), lambda idata: az.plot_loo_pit(idata, y="y"))
else:
    PPC, PIT = (az.plot_ppc_dist, az.plot_loo_pit)
FUNCTIONS = [az.summary, az.loo, az.plot_trace, az.plot_rank, PPC]


class PriorDraws(AbstractInference):
    """Draws from the prior: the groups are the same as those of a sampler, and no sampler is compiled."""

    progress: bool = False

    def run(self, rng_key, numpyro_model, data):
        names = [name for name, site in inspect_sites(numpyro_model, data).items() if site.kind == "latent"]
        model = CalledWith(numpyro_model)

        @jax.jit
        def draw(keys):
            def one(key):
                trace = numpyro.handlers.trace(numpyro.handlers.seed(model, key)).get_trace(data)
                return {name: trace[name]["value"] for name in names}

            return jax.lax.map(one, keys)

        found = draw(jax.random.split(rng_key, CHAINS * DRAWS))
        return Posterior(
            {name: value.reshape(CHAINS, DRAWS, *value.shape[1:]) for name, value in found.items()}, {}, {}
        )


def case(name, number):
    marks = [] if (name, number) in QUICK else [pytest.mark.slow]
    return pytest.param(name, number, id=f"{name}-{number}", marks=marks)


CASES = [case(name, number) for name in registry.models() for number in sorted({0, SAMPLED.get(name, 0)})]


@functools.cache
def fitted(name, number):
    model, x, y = [*registry.models()[name].examples(jax.random.key(0))][number]
    return model.fit(jax.random.key(0), x, y, inference=PriorDraws(), num_prior_samples=0)


@pytest.mark.nightly_variants(
    "GPRegression-0",
    "GeneralizedGP-0",
    "BaggGP-0",
    "ColliderRegression-0",
    "PreferenceGP-0",
    "PreferenceGP-1",
    "PGP-0",
    "GeneralizedGP-2",
    "MultiLatentGP-1",
    "GPClassification-0",
    "BayesIME-0",
    "GPRegression-3",
    "VBagg-0",
    "CentroidGP-0",
)
@pytest.mark.filterwarnings("ignore::UserWarning")  # of ArviZ, on few draws and on binary observations
@pytest.mark.parametrize(("name", "number"), CASES)
def test_arviz_summarizes_compares_and_plots(name, number):
    fit = fitted(name, number)
    if not fit.draws:
        pytest.skip("no parameter is sampled")
    groups = arviz_data.groups(fit.idata)
    assert set(groups["observed_data"]) == set(groups["posterior_predictive"]), "what is observed is predicted"
    hyperparameters = {name for name in fit.draws if name not in fit.model.latent_sites}
    if hyperparameters:
        assert set(groups["posterior"]) == set(groups["log_prior"]) == hyperparameters
        assert "instance" not in groups["posterior"].dims
    for function in [*FUNCTIONS, *([] if name in WITHOUT_PIT else [PIT])]:
        function(fit.idata)
        plt.close("all")
    az.compare({"first": fit.idata, "second": fit.idata})
    assert len(az.summary(fit.idata)) == sum(np.prod(site.shape[2:]) for site in groups["posterior"].values())


def test_latent_values_are_those_of_the_function():
    fit = fitted("GPClassification", 1)
    latent, x = arviz_data.group(fit.idata, "latent"), np.asarray(fit.data["x"])
    squares = np.sum((x[:, None] - x[None]) ** 2, axis=-1)
    draws = {name: np.asarray(site)[0, 3] for name, site in fit.draws.items()}
    gram = np.exp(-0.5 * squares / draws["kernel.lengthscale"] ** 2)
    expected = draws["mean"] + np.linalg.cholesky(gram + 1e-10 * np.eye(12)) @ draws["latent_whitened"]
    # The jitter of the factor changes the smallest eigenvalues.
    np.testing.assert_allclose(latent["function_values"][0, 3], expected, atol=1e-3)
    assert latent["function_values"].dims == ("chain", "draw", "instance")


def test_files_with_latent_values_among_the_parameters_still_load(tmp_path):
    fit = fitted("GPClassification", 1)
    groups = arviz_data.groups(fit.idata)
    latent, _ = groups.pop("latent"), groups.pop("log_prior")
    older = {**groups, "posterior": groups["posterior"].merge(latent[["latent_whitened"]])}
    dataclasses.replace(fit, arviz=arviz_data.from_groups(older, fit.attrs)).save(tmp_path / "fit.nc")
    loaded = kpp.Fit.load(tmp_path / "fit.nc")
    assert eqx.tree_equal(dict(loaded.draws), dict(fit.draws))
    xr.testing.assert_equal(arviz_data.group(loaded.idata, "posterior"), groups["posterior"])
    xr.testing.assert_equal(
        arviz_data.group(loaded.idata, "latent"), latent[["latent_whitened"]].drop_vars("instance", errors="ignore")
    )
