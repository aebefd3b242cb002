"""The fits without priors: scikit-learn's numbers, the stated optimum, leave-one-out against refits, grid choice."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import distributions as dist
from sklearn.kernel_ridge import KernelRidge as PeerRidge
from sklearn.linear_model import LogisticRegression

import kpp
from kpp import registry
from kpp.kernels import RBF, Linear
from kpp_models import KernelLogistic, KernelRidge, LandmarkLogistic, LandmarkRidge

REGULARIZATION = 0.02


@pytest.fixture(scope="module")
def ridge(regression_data):
    return KernelRidge(RBF(1.2), REGULARIZATION).fit(jax.random.key(0), *regression_data, num_prior_samples=0)


@pytest.fixture(scope="module")
def logistic(classification_data):
    return KernelLogistic(RBF(1.2), REGULARIZATION).fit(jax.random.key(0), *classification_data, num_prior_samples=0)


@pytest.mark.slow
def test_ridge_is_scikit_learns(ridge, regression_data):
    x, y = regression_data
    peer = PeerRidge(alpha=20 * REGULARIZATION, kernel="rbf", gamma=0.5 / 1.2**2).fit(x, y)
    function = ridge.function()
    assert function.batch_shape == (1, 1)
    np.testing.assert_allclose(function.coefficients[0, 0], peer.dual_coef_, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(ridge.predict(x[:5])["mean"][0, 0], peer.predict(x[:5]), rtol=1e-9)


@pytest.mark.slow
def test_leave_one_out_residuals_of_ridge_are_those_of_refits(ridge, regression_data):
    x, y = regression_data
    # A refit to 19 rows keeps the total n * regularization = scikit-learn's alpha.
    peer = PeerRidge(alpha=20 * REGULARIZATION, kernel="rbf", gamma=0.5 / 1.2**2)
    rest = [np.arange(20) != i for i in range(20)]
    expected = [y[i] - peer.fit(x[keep], y[keep]).predict(x[i : i + 1])[0] for i, keep in enumerate(rest)]
    found = ridge.model.loo_residuals(**ridge.data)
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(ridge.predict(x[:3])["noise_variance"], np.full((1, 1, 3), np.mean(np.square(expected))))


@pytest.mark.slow
def test_logistic_is_at_its_optimum(logistic, classification_data):
    """The gradient of the stated objective vanishes: n * regularization * alpha = y - sigma(f)."""
    _, y = classification_data
    alpha = np.asarray(logistic.function().coefficients[0, 0])
    chance = logistic.predict(classification_data[0])["probability"].values[0, 0]
    np.testing.assert_allclose(20 * REGULARIZATION * alpha, y - chance, atol=1e-10)


@pytest.mark.slow
def test_linear_logistic_is_scikit_learns(classification_data):
    x, y = classification_data
    # Its objective is C * sum(log loss) + |w|^2 / 2.
    peer = LogisticRegression(C=1 / (20 * REGULARIZATION), fit_intercept=False, tol=1e-10, max_iter=1000).fit(x, y)
    model, data, _ = KernelLogistic(Linear(), REGULARIZATION).prepare(x, y)
    found = jax.jit(lambda data: model.predictive({}, data, data["x"])["probability"])(data)
    np.testing.assert_allclose(found, peer.predict_proba(x)[:, 1], atol=1e-6)


@pytest.mark.slow
def test_leave_one_out_of_logistic_is_close_to_refits(logistic, classification_data):
    x, y = classification_data
    total = 20 * REGULARIZATION
    model = KernelLogistic(RBF(1.2), total / 19)

    @jax.jit
    def refit(x, y, x_left):
        return model.predictive({}, {"x": x, "y": y}, x_left)["probability"][0]

    rest = [np.arange(20) != i for i in range(20)]
    chance = np.array([refit(x[keep], y[keep], x[i : i + 1]) for i, keep in enumerate(rest)])
    found = np.exp(np.asarray(logistic.model.loo_log_probabilities(**logistic.data)))
    # One Newton step from the full fit; measured: at most 0.0033, and twice that is allowed.
    np.testing.assert_allclose(found, np.where(y == 1, chance, 1 - chance), atol=0.0066)


@pytest.mark.slow_variants("logistic")
@pytest.mark.parametrize("name", [pytest.param("ridge", marks=pytest.mark.slow), "logistic"])
def test_a_fit_in_closed_form_is_one_chain_of_one_draw(name, request):
    fit = request.getfixturevalue(name)
    assert (fit.num_chains, fit.num_draws) == (1, 1)
    assert fit.draws == {}
    assert fit.idata["log_likelihood"]["y"].shape == (1, 1, 20)
    assert np.isfinite(fit.idata["posterior_predictive"]["y"]).all()


@pytest.mark.slow
def test_grid_choice_returns_the_best_and_the_curve(regression_data, caplog):
    x, y = regression_data
    grid = {"regularization": [1e-3, 1e-2, 1e-1], "kernel.lengthscale": [0.5, 1.2]}
    found = KernelRidge(RBF(jnp.ones(3)), 1.0).select(x, y, grid=grid)
    assert found.scores.dims == ("regularization", "kernel.lengthscale")
    assert found.scores.shape == (3, 2)
    best = found.scores.isel(found.scores.argmin(...))
    assert {path: float(best[path]) for path in grid} == found.chosen
    model, data, _ = found.model.prepare(x, y)
    residuals = np.asarray(jax.jit(lambda data: model.loo_residuals(**data))(data))
    np.testing.assert_allclose(np.mean(residuals**2), found.scores.min(), rtol=1e-9)
    np.testing.assert_array_equal(model.kernel.lengthscale, np.full(3, found.chosen["kernel.lengthscale"]))
    regularization = found.chosen["regularization"]
    at_edge = regularization != 1e-2  # two values of the lengthscale have no inside
    assert ("at the edge of the grid" in caplog.text) == at_edge


@pytest.mark.slow
def test_grid_choice_keeps_feature_names_and_takes_arrays(classification_data):
    pandas = pytest.importorskip("pandas")
    x, y = classification_data
    frame = pandas.DataFrame(x, columns=["a", "b"])
    model = KernelLogistic(RBF(jnp.ones(2)).on(("b", "a")), 0.01)
    found = model.select(frame, y, grid={"kernel.kernel.lengthscale": [[1.0, 2.0], [2.0, 1.0], [3.0, 3.0]]})
    assert found.scores.shape == (3,)
    assert found.model.kernel.features == ("b", "a")
    assert found.model.kernel.kernel.lengthscale.shape == (2,)


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ({}, r"`grid` must name leaves of the model.*'kernel.lengthscale'"),
        ({"lengthscale": [1.0]}, r"`grid` must name leaves.*'kernel.lengthscale'.*got \['lengthscale'\]"),
        ({"regularization": []}, r"`grid\['regularization'\]` must hold one or more values.*\(0,\)"),
        ({"regularization": 0.1}, r"`grid\['regularization'\]` must hold one or more values"),
        ({"kernel.lengthscale": [[1.0, 2.0]]}, r"of shape \(\) or \(3,\), got shape \(1, 2\)"),
        ({"regularization": [0.1, 0.0]}, r"`grid\['regularization'\]` holds a value that is impossible: .* positive"),
        ({"kernel.lengthscale": [-1.0, 1.0]}, r"impossible: `lengthscale` must be positive, got \[-1., -1., -1.\]"),
        ({"kernel.lengthscale": [1.0], "kernel.variance": [1.0, -2.0]}, r"`grid\['kernel.variance'\]` holds a value"),
        ({"regularization": [np.nan]}, r"`grid\['regularization'\]` must be finite"),
    ],
)
def test_a_bad_grid_is_refused(grid, message, regression_data):
    with pytest.raises(ValueError, match=message):
        KernelRidge(RBF(jnp.ones(3)), 1.0).select(*regression_data, grid=grid)


@pytest.mark.parametrize("model", [KernelRidge, KernelLogistic])
def test_priors_are_refused(model):
    with pytest.raises(TypeError, match="is a fit without priors; kpp_models.GP"):
        model(RBF(dist.LogNormal(0.0, 1.0)), 0.1)
    with pytest.raises(ValueError, match="`regularization` must be positive, got 0"):
        model(RBF(1.0), 0.0)


def test_registered_under_their_names():
    assert {"GPRegression", "GPClassification", "KernelRidge", "KernelLogistic"} <= set(kpp.registry.models())


def test_every_select_takes_the_data_in_the_order_of_fit_and_the_grid_by_name():
    found = {name: cls.select for name, cls in registry.models().items() if hasattr(cls, "select")}
    found |= {"LandmarkRidge": LandmarkRidge.select, "LandmarkLogistic": LandmarkLogistic.select}
    assert {"KernelRidge", "KernelLogistic", "ColliderRidge", "PreferenceLogistic"} <= found.keys()
    for name, select in found.items():
        parameters = inspect.signature(select).parameters.values()
        positional = [entry.name for entry in parameters if entry.kind is entry.POSITIONAL_OR_KEYWORD]
        assert positional in (["self", "x", "y"], ["self", "rng_key", "x", "y"]), name
        assert "grid" in {entry.name for entry in parameters if entry.kind is entry.KEYWORD_ONLY}, name


@pytest.mark.slow
def test_residuals_that_are_all_zero_have_a_finite_density(regression_data):
    x, y = regression_data
    fit = KernelRidge(RBF(1.2), REGULARIZATION).fit(jax.random.key(0), x, np.zeros(len(y)), num_prior_samples=0)
    assert np.isfinite(fit.idata["log_likelihood"]["y"]).all()
    np.testing.assert_array_equal(fit.predict(x[:3])["mean"], np.zeros((1, 1, 3)))


@pytest.mark.parametrize("largest", [1e300, -1e200])
def test_targets_whose_squares_overflow_are_refused(regression_data, largest):
    x, y = regression_data
    with pytest.raises(ValueError, match=r"`y` must have absolute values of at most .* choose a larger unit"):
        KernelRidge(RBF(1.2), REGULARIZATION).fit(jax.random.key(0), x, np.append(y[1:], largest))
