"""Every inference against the posterior that is known in closed form."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import kpp


@pytest.fixture(scope="module")
def nuts_fit(linear_model, prior, conjugate):
    model = linear_model(prior, conjugate.noise)
    inference = kpp.NUTS(num_warmup=200, num_samples=400, num_chains=2, progress=False)
    return model.fit(jax.random.key(0), conjugate.x, conjugate.y, inference=inference)


def test_nuts_moments(nuts_fit, conjugate):
    draws = np.asarray(nuts_fit.draws["weights"]).reshape(-1, 3)
    assert nuts_fit.draws["weights"].shape == (2, 400, 3)
    # 800 draws of NUTS on a Gaussian: the mean is known to sd/sqrt(ESS), here with ESS > 200, and five times that.
    sd = np.sqrt(np.diag(conjugate.covariance))
    assert (np.abs(draws.mean(0) - conjugate.mean) < 5 * sd / np.sqrt(200)).all()
    np.testing.assert_allclose(draws.std(0), sd, rtol=5 / np.sqrt(2 * 200))


def test_map_is_the_mode(linear_model, prior, conjugate):
    model = linear_model(prior, conjugate.noise)
    fit = model.fit(jax.random.key(0), conjugate.x, conjugate.y, inference=kpp.MAP(progress=False))
    np.testing.assert_allclose(fit.draws["weights"][0, 0], conjugate.mean, atol=1e-7)
