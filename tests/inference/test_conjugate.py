"""Every inference against the posterior that is known in closed form."""

from __future__ import annotations

import functools

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import kpp
from kpp.inference.methods import optimum
from kpp.runtime import batching

# `conjugate`: y = x w + noise, w ~ N(0, I), noise known; the posterior is N(mean, covariance) in closed form.


def flat(fit, site="weights"):
    return np.asarray(fit.draws[site]).reshape(-1, *fit.draws[site].shape[2:])


def assert_moments(draws, conjugate, effective):
    """Mean and sd within five standard errors of `effective` independent draws."""
    sd = np.sqrt(np.diag(conjugate.covariance))
    assert (np.abs(draws.mean(0) - conjugate.mean) < 5 * sd / np.sqrt(effective)).all()
    np.testing.assert_allclose(draws.std(0), sd, rtol=5 / np.sqrt(2 * effective))


def test_nuts_draws_the_posterior(nuts_fit, conjugate):
    assert nuts_fit.draws["weights"].shape == (2, 200, 3)
    # NUTS on a Gaussian has an effective size near the number of draws, 400; half of it is allowed for.
    assert_moments(flat(nuts_fit), conjugate, 200)


def test_map_is_the_mode(map_fit, conjugate):
    assert map_fit.draws["weights"].shape == (1, 1, 3)
    np.testing.assert_allclose(
        map_fit.draws["weights"][0, 0], conjugate.mean, atol=1e-7
    )  # 1e-7: the gradient's tolerance


def test_a_search_shows_its_evaluations(linear_model, prior, conjugate, capsys, monkeypatch):
    monkeypatch.setattr(batching, "_PAUSE", 0.0)
    monkeypatch.setattr(optimum, "progress_bar", functools.partial(batching.progress_bar, delay=0.0))
    model, data, _ = linear_model(prior, conjugate.noise).prepare(conjugate.x, conjugate.y)
    posterior = kpp.MAP().run(jax.random.key(0), model.numpyro_model, data)
    lines = capsys.readouterr().err.splitlines()
    assert all(line.startswith("optimization") for line in lines)
    assert lines[-1].startswith(f"optimization, 3 starts: {posterior.attrs['evaluations']} evaluations [")


def test_laplace_is_exact_for_a_gaussian(laplace_fit, conjugate):
    np.testing.assert_allclose(laplace_fit.state["mode"], conjugate.mean, rtol=1e-10)
    factor = np.asarray(laplace_fit.state["precision_factor"])
    np.testing.assert_allclose(factor @ factor.T, np.linalg.inv(conjugate.covariance), rtol=1e-9, atol=1e-9)
    assert_moments(flat(laplace_fit), conjugate, 500)
    stats = kpp.storage.arviz_data.group(laplace_fit.idata, "sample_stats")
    assert float((stats["lp"] - stats["log_q"]).std()) < 1e-9


def test_laplace_gives_the_evidence(laplace_fit, conjugate):
    stats = kpp.storage.arviz_data.group(laplace_fit.idata, "sample_stats")
    covariance = conjugate.x @ conjugate.x.T + 0.25 * np.eye(20)
    sign, log_determinant = np.linalg.slogdet(covariance)
    quadratic = conjugate.y @ np.linalg.solve(covariance, conjugate.y)
    evidence = -0.5 * (quadratic + log_determinant + 20 * np.log(2 * np.pi))
    np.testing.assert_allclose(stats["lp"] - stats["log_q"], evidence, rtol=1e-10)


def test_svi_finds_a_gaussian(svi_fit, conjugate):
    draws = flat(svi_fit)
    sd = np.sqrt(np.diag(conjugate.covariance))
    # A mean of 1000 draws errs by sd/30, the stochastic optimum by a few hundredths of sd: a fifth is allowed.
    assert (np.abs(draws.mean(0) - conjugate.mean) < 0.2 * sd).all()
    np.testing.assert_allclose(draws.std(0), sd, rtol=0.2)


@pytest.mark.nightly
@pytest.mark.parametrize("guide", ["normal", "low_rank_multivariate_normal"])
def test_a_progress_bar_changes_no_draw(guide):
    def model(y=None):  # the sites are not in alphabetical order
        width = numpyro.sample("width", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(mean, jax.numpy.exp(width[0] - width[1])), obs=y)

    data = {"y": np.ones(3)}
    inference, loud = (kpp.SVI(guide=guide, num_steps=50, num_samples=5, progress=each) for each in (False, True))
    quiet, shown = (each.run(jax.random.key(0), model, data) for each in (inference, loud))
    for name, draws in quiet.samples.items():
        np.testing.assert_allclose(draws, shown.samples[name], rtol=1e-8, atol=1e-10)
    fresh = [inference.draw(jax.random.key(1), 5, model, data, fit.state).samples["mean"] for fit in (quiet, shown)]
    np.testing.assert_allclose(*fresh, rtol=1e-8, atol=1e-10)


@pytest.mark.slow
def test_map_maximizes_the_constrained_density(linear_model, conjugate):
    """With all weights known and noise^2 free the mode is a root of a cubic; its logarithm's mode is another number."""
    model = linear_model(np.zeros(3), dist.LogNormal(0.0, 1.0))
    fit = model.fit(jax.random.key(0), conjugate.x, conjugate.y, inference=kpp.MAP(progress=False))
    grid = np.linspace(0.3, 3.0, 270001)
    total = np.sum(conjugate.y**2)
    log_density = -20 * np.log(grid) - total / (2 * grid**2) - np.log(grid) - np.log(grid) ** 2 / 2
    assert abs(float(fit.draws["noise_scale"][0, 0]) - grid[log_density.argmax()]) < 2e-5  # the grid's step is 1e-5


@pytest.mark.slow
def test_no_latent_sites_give_one_draw(linear_model, conjugate):
    model = linear_model(np.array([1.0, -0.5, 0.0]), 0.5)
    for inference in (kpp.NUTS(progress=False), kpp.MAP(), kpp.Laplace(), kpp.SVI()):
        fit = model.fit(jax.random.key(0), conjugate.x, conjugate.y, inference=inference)
        assert (fit.num_chains, fit.num_draws) == (1, 1)
        assert fit.predict(conjugate.x)["mean"].shape == (1, 1, 20)
        np.testing.assert_allclose(
            fit.function()(conjugate.x)[0, 0], conjugate.x @ np.array([1.0, -0.5, 0.0]), atol=1e-12
        )


def test_the_same_key_gives_the_same_draws(linear_model, prior, conjugate, laplace_fit):
    model = linear_model(prior, conjugate.noise)
    again = model.fit(jax.random.key(2), conjugate.x, conjugate.y, inference=laplace_fit.inference)
    np.testing.assert_array_equal(again.draws["weights"], laplace_fit.draws["weights"])


@pytest.mark.parametrize("key", [0, "seed", np.zeros(3)])
def test_a_seed_is_no_key(linear_model, prior, conjugate, key):
    with pytest.raises(TypeError, match="rng_key"):
        linear_model(prior, 0.5).fit(key, conjugate.x, conjugate.y)


@pytest.mark.slow
def test_raw_and_typed_keys_are_the_same_to_inference(linear_model, prior, conjugate):
    model, data = linear_model(prior, 0.5), {"x": conjugate.x, "y": conjugate.y}
    inference = kpp.Laplace(num_samples=5)
    raw = inference.run(jax.random.PRNGKey(0), model.numpyro_model, data)
    typed = inference.run(jax.random.key(0), model.numpyro_model, data)
    np.testing.assert_array_equal(raw.samples["weights"], typed.samples["weights"])
