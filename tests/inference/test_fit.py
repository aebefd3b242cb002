"""What a fit answers: predictions by chain and draw, functions, fresh draws; and what it refuses."""

from __future__ import annotations

import jax
import numpy as np
import pandas as pd
import pytest

import kpp


@pytest.fixture(scope="module")
def table_fit(linear_model, prior, conjugate, laplace_fit):
    frame = pd.DataFrame(conjugate.x, columns=["age", "dose", "mass"])
    return linear_model(prior, 0.5).fit(jax.random.key(4), frame, conjugate.y, inference=laplace_fit.inference)


def test_predictions_are_named_by_chain_and_draw(nuts_fit, conjugate):
    predicted = nuts_fit.predict(conjugate.x[:5])
    assert predicted["mean"].sizes == {"chain": 2, "draw": 200, "instance": 5}
    assert set(predicted) == {"mean", "latent_variance", "noise_variance"}
    expected = np.einsum("csd,nd->csn", np.asarray(nuts_fit.draws["weights"]), conjugate.x[:5])
    np.testing.assert_allclose(predicted["mean"], expected, rtol=1e-10, atol=1e-10)


def test_covariance_has_two_axes_of_instances(laplace_fit, conjugate):
    predicted = laplace_fit.predict(conjugate.x[:5], covariance=True)
    assert predicted["latent_covariance"].dims == ("chain", "draw", "instance", "instance_other")


def test_batches_of_draws_change_nothing(nuts_fit, conjugate):
    one = nuts_fit.predict(conjugate.x[:5])
    many = nuts_fit.predict(conjugate.x[:5], batch_size=7)
    np.testing.assert_allclose(one["mean"], many["mean"], rtol=1e-12)


def test_the_function_is_the_prediction(nuts_fit, conjugate):
    function = nuts_fit.function()
    assert function.batch_shape == (2, 200)
    assert function.points.shape == (3, 3)  # shared by all draws
    np.testing.assert_allclose(
        function(conjugate.x[:5]), nuts_fit.predict(conjugate.x[:5])["mean"], rtol=1e-9, atol=1e-9
    )


@pytest.mark.slow
def test_predictive_draws_have_the_spread_of_the_prediction(laplace_fit, conjugate):
    draws = laplace_fit.sample_predictive(jax.random.key(5), conjugate.x[:5], 1200)
    assert draws.sizes == {"sample": 1200, "instance": 5}
    x = conjugate.x[:5]
    variance = np.einsum("nd,de,ne->n", x, conjugate.covariance, x) + 0.25
    # 1200 draws, of 500 posterior draws: standard deviations are known to 1/sqrt(2 * 500), five times that is allowed.
    np.testing.assert_allclose(draws.std("sample"), np.sqrt(variance), rtol=5 / np.sqrt(1000))
    assert (np.abs(draws.mean("sample") - x @ conjugate.mean) < 5 * np.sqrt(variance / 500)).all()


@pytest.mark.slow
def test_fresh_draws_of_laplace_and_svi(laplace_fit, svi_fit, conjugate):
    for fit in (laplace_fit, svi_fit):
        fresh = fit.sample(jax.random.key(6), 60)
        assert fresh.draws["weights"].shape == (1, 60, 3)
        assert kpp.storage.arviz_data.group(fresh.idata, "log_likelihood")["y"].sizes["draw"] == 60
        assert not np.array_equal(fresh.draws["weights"], fit.draws["weights"][:, :60])
        sd = np.sqrt(np.diag(conjugate.covariance))
        assert (np.abs(np.asarray(fresh.draws["weights"]).mean((0, 1)) - conjugate.mean) < sd).all()


def test_nuts_and_map_have_nothing_to_draw_from(nuts_fit, map_fit):
    for fit in (nuts_fit, map_fit):
        with pytest.raises(TypeError, match="keeps no distribution to draw from"):
            fit.sample(jax.random.key(0), 3)


@pytest.mark.slow
def test_tables_are_read_by_their_columns(table_fit, conjugate):
    shuffled = pd.DataFrame(conjugate.x[:4, ::-1], columns=["mass", "dose", "age"])
    np.testing.assert_array_equal(table_fit.predict(shuffled)["mean"], table_fit.predict(conjugate.x[:4])["mean"])
    assert list(kpp.storage.arviz_data.group(table_fit.idata, "posterior")["feature"].values) == ["age", "dose", "mass"]


def test_bad_points_are_refused(table_fit, conjugate):
    frame = pd.DataFrame(conjugate.x, columns=["age", "dose", "weight"])
    with pytest.raises(ValueError, match=r"`x` lacks the columns \['mass'\]"):
        table_fit.predict(frame)
    with pytest.raises(ValueError, match=r"`x` must have 3 columns"):
        table_fit.predict(conjugate.x[:, :2])
    with pytest.raises(ValueError, match="NaN"):
        table_fit.predict(np.full((2, 3), np.nan))
    with pytest.raises(ValueError, match="`batch_size` must be at least 1"):
        table_fit.predict(conjugate.x, batch_size=0)
    with pytest.raises(ValueError, match="`num_samples` must be at least 1"):
        table_fit.sample_predictive(jax.random.key(0), conjugate.x, 0)


def test_a_second_prediction_of_that_shape_compiles_nothing(nuts_fit, conjugate, monkeypatch):
    nuts_fit.predict(conjugate.x[:6])
    monkeypatch.setattr(type(nuts_fit.model), "predictive", lambda *args, **kwargs: pytest.fail("traced again"))
    nuts_fit.predict(conjugate.x[:6] + 1.0)
