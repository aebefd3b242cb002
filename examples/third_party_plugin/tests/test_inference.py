import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from kpp_example import BlackJAXNUTS

import kpp
from kpp.kernels import RBF
from kpp.testing import parametrize_with_checks
from kpp_models import GPRegression

pytest.importorskip("blackjax")
jax.config.update("jax_enable_x64", True)


@parametrize_with_checks([BlackJAXNUTS])
def test_conformance(check):
    check()


def test_mean_of_a_conjugate_model():
    def model(y):
        mean = numpyro.sample("mean", dist.Normal(0.0, 2.0))
        numpyro.sample("y", dist.Normal(mean, 1.0).expand([5]).to_event(1), obs=y)

    y = np.array([1.0, 2.0, 0.5, 1.5, 3.0])
    draws = BlackJAXNUTS(num_samples=2000).run(jax.random.key(0), model, {"y": y}).samples["mean"]
    variance = 1 / (1 / 4 + 5)
    # 4000 draws, of which at least 1000 are effective: 5 standard errors.
    np.testing.assert_allclose(draws.mean(), variance * y.sum(), atol=5 * np.sqrt(variance / 1000))
    np.testing.assert_allclose(draws.var(), variance, rtol=5 * np.sqrt(2 / 1000))


def test_a_fit_is_saved_loaded_and_resumed(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, size=(12, 1))
    model = GPRegression(RBF(dist.LogNormal(0.0, 0.5)), noise_variance=0.1)
    fit = model.fit(jax.random.key(0), x, np.sin(x[:, 0]), inference=BlackJAXNUTS(50, 20), num_prior_samples=0)
    fit.save(tmp_path / "fit.nc")
    loaded = kpp.Fit.load(tmp_path / "fit.nc")
    assert loaded.inference == BlackJAXNUTS(50, 20)
    assert loaded.resume(jax.random.key(1), 5).num_draws == 25
