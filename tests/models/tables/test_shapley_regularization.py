"""Shapley regularizers against reference values, a generic optimizer, and what they are there for."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.optimize
import scipy.stats
from numpyro.infer.util import log_density

import kpp
from kpp.functions import RKHSFunction
from kpp.games import Interventional, Observational, shapley_values
from kpp.kernels import RBF
from kpp_models import GPRegression, KernelLogistic, KernelRidge, RestrictedShapleyRegularized, ShapleyRegularized
from kpp_models.tables.shapley_regularization import feature_sections

VECTORS = np.load(Path(__file__).parents[2] / "data" / "rkhs_shap.npz")
X, Y = VECTORS["in_X"], VECTORS["in_y"]
FEATURE = int(VECTORS["in_feature_A"])
LAMBDA_F, LAMBDA_S = float(VECTORS["in_lam_f"]), float(VECTORS["in_lam_S"])
PENALTY = LAMBDA_S / LAMBDA_F
KERNEL = RBF(VECTORS["in_ls"])
# The two games that charge the Shapley values, by their names in the reference values; the background is X.
GAMES = {"int": Interventional(X), "obs": Observational(X, regularization=float(VECTORS["in_eta"]), end_points="raw")}
REFERENCE = {"rtol": 1e-7, "atol": 1e-10}

games = pytest.mark.parametrize("name", GAMES)


def ridge(kernel: kpp.kernels.AbstractKernel) -> kpp.Fit:
    model = KernelRidge(kernel, regularization=LAMBDA_F / len(X))
    return model.fit(jax.random.key(0), X, Y, inference=kpp.MAP())


def shapley_of_fit(fit: kpp.Fit, game: object) -> np.ndarray:
    """phi_A at the points X for the one function of a fit, (n,)."""
    return np.asarray(shapley_values(game, fit.function().unfold(), X))[0, 0, :, FEATURE]


@pytest.mark.slow_variants("int", "obs")
@games
def test_sections_equal_the_reference(name: str):
    sections = jax.jit(lambda x: feature_sections(GAMES[name], KERNEL, x, x, FEATURE))(X)
    np.testing.assert_allclose(sections, VECTORS[f"out_zeta_{name}"], **REFERENCE)


@pytest.mark.slow
@games
def test_restricted_coefficients_equal_the_reference(name: str):
    kernel = RestrictedShapleyRegularized(KERNEL, GAMES[name], X, FEATURE, PENALTY)
    function = ridge(kernel).function()
    assert isinstance(function.kernel, RBF), "the function must be one of the kernel that explainers take apart"
    np.testing.assert_allclose(function.coefficients[0, 0], VECTORS[f"out_alpha_reg_{name}"], **REFERENCE)


@pytest.mark.nightly_variants("obs")
@pytest.mark.slow
@games
def test_full_solution_equals_the_reference(name: str):
    """The reference holds the values of the fit at X, and then its Shapley values there."""
    kernel = ShapleyRegularized(KERNEL, GAMES[name], X, FEATURE, PENALTY).precompute()
    n = len(X)
    np.testing.assert_allclose(kernel.section_gram, VECTORS[f"out_gram_{name}"][n:, n:], **REFERENCE)
    fit = ridge(kernel)
    np.testing.assert_allclose(fit.predict(X)["mean"].values[0, 0], VECTORS[f"out_fit_exact_{name}"][:n], **REFERENCE)
    # The function stays one of the regularized kernel: coefficients on its sections at X, those of k at X.
    np.testing.assert_allclose(
        fit.function().coefficients[0, 0], VECTORS[f"out_c_exact_{name}"][:n], rtol=1e-7, atol=1e-9
    )


def objective(function: RKHSFunction, gram_norm: float, game: object) -> float:
    values = shapley_values(game, function, X)[:, FEATURE]
    loss = np.sum((Y - np.asarray(function(X))) ** 2)
    return float(loss + LAMBDA_F * gram_norm + LAMBDA_S * np.mean(np.asarray(values) ** 2))


@pytest.mark.slow
def test_the_full_solution_has_the_lower_objective():
    """As in the paper's problem: loss + lambda_f |f|^2 + lambda_S mean phi^2, the two fits compared."""
    restricted = ridge(RestrictedShapleyRegularized(KERNEL, GAMES["int"], X, FEATURE, PENALTY)).function()
    alpha = np.asarray(restricted.coefficients[0, 0])
    plain = RKHSFunction(KERNEL, X, alpha)
    of_restricted = objective(plain, alpha @ np.asarray(KERNEL.gram(X)) @ alpha, GAMES["int"])
    # The full minimum of a regularized least squares problem is y^T (y - f), f the fit in the norm with both penalties.
    full = ridge(ShapleyRegularized(KERNEL, GAMES["int"], X, FEATURE, PENALTY)).predict(X)["mean"].values[0, 0]
    of_full = float(Y @ (Y - full))
    assert of_full < of_restricted - 1e-3
    # The same identity holds for the restricted one: it checks `objective`.
    fitted = np.asarray(plain(X))
    np.testing.assert_allclose(of_restricted, Y @ (Y - fitted), rtol=1e-8)


@pytest.mark.slow
def test_logistic_loss_agrees_with_a_generic_optimizer():
    labels = (Y > np.median(Y)).astype(float)
    signs, n = 2 * labels - 1, len(X)
    gram = np.asarray(KERNEL.gram(X))
    zeta = VECTORS["out_zeta_int"]

    def loss(alpha: np.ndarray) -> float:
        charge = LAMBDA_F * alpha @ gram @ alpha + LAMBDA_S * np.mean((zeta.T @ alpha) ** 2)
        return float(np.logaddexp(0.0, -signs * (gram @ alpha)).sum() + charge)

    found = scipy.optimize.minimize(loss, np.zeros(n), method="BFGS", options={"gtol": 1e-9, "maxiter": 2000})
    # Half the squared norm is charged there, so that lambda_f is half of n * regularization.
    kernel = RestrictedShapleyRegularized(KERNEL, GAMES["int"], X, FEATURE, PENALTY)
    fit = KernelLogistic(kernel, regularization=2 * LAMBDA_F / n).fit(jax.random.key(0), X, labels, inference=kpp.MAP())
    # BFGS takes its gradients by differences: six digits of the fitted values.
    np.testing.assert_allclose(fit.function()(X)[0, 0], gram @ found.x, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [ShapleyRegularized, RestrictedShapleyRegularized])
def test_no_penalty_is_the_kernel_and_a_large_one_silences_the_feature(kind: type):
    free, silenced = (kind(KERNEL, GAMES["int"], X, FEATURE, penalty) for penalty in (0.0, 1e9))
    np.testing.assert_allclose(free.gram(X), KERNEL.gram(X), rtol=1e-9, atol=1e-9)
    if kind is RestrictedShapleyRegularized:
        assert np.abs(shapley_of_fit(ridge(silenced), GAMES["int"])).max() < 1e-5
    else:
        # <phi_i, k~(., x)> = zeta_i(x) - c/n G (I + c/n G)^-1 zeta(x) = (I + c/n G)^-1 zeta(x) goes to 0.
        sections = feature_sections(GAMES["int"], KERNEL, jnp.asarray(X), jnp.asarray(X), FEATURE)
        strength = 1e9 / len(X)
        gram = VECTORS["out_gram_int"][8:, 8:]
        left = np.linalg.solve(np.eye(8) + strength * gram, np.asarray(sections).T)
        expected = np.asarray(KERNEL.gram(X)) - strength * np.asarray(sections) @ left
        np.testing.assert_allclose(silenced.gram(X), expected, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [ShapleyRegularized, RestrictedShapleyRegularized])
def test_the_penalty_may_be_a_prior(kind: type):
    """The model's log density at a penalty is that of y under the dense covariance, plus the prior's."""
    kernel = kind(KERNEL, GAMES["int"], X, FEATURE, dist.HalfCauchy(5.0)).precompute()
    model = GPRegression(kernel, noise_variance=0.3)
    found, trace = log_density(model.numpyro_model, (jnp.asarray(X), jnp.asarray(Y)), {}, {"kernel.penalty": 2.5})
    covariance = np.asarray(kind(KERNEL, GAMES["int"], X, FEATURE, 2.5).gram(X)) + 0.3 * np.eye(len(X))
    expected = scipy.stats.multivariate_normal(np.zeros(len(X)), covariance).logpdf(Y)
    np.testing.assert_allclose(found, expected + scipy.stats.halfcauchy(scale=5.0).logpdf(2.5), rtol=1e-9)
    assert "kernel.penalty" in trace


@pytest.mark.nightly
def test_nuts_samples_the_penalty_and_the_kernel():
    """With a prior on the lengthscale too nothing can be computed ahead; the fit is explained draw by draw."""
    prior = dist.LogNormal(0.0, 0.5)
    kernel = RestrictedShapleyRegularized(RBF(prior, 1.0), GAMES["int"], X, FEATURE, dist.HalfCauchy(5.0))
    model = GPRegression(kernel, noise_variance=0.1)
    fit = model.fit(jax.random.key(1), X, Y, inference=kpp.NUTS(num_warmup=60, num_samples=40, num_chains=1))
    assert {"kernel.penalty", "kernel.kernel.lengthscale"} <= set(fit.idata.posterior.data_vars)
    explanation = kpp.explain(fit, X[:2], value_function="interventional", background=X)
    assert explanation.values.sizes["draw"] == 40
    assert float(explanation.additivity_error().max()) < 1e-8


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"feature": 3}, "`feature` must be a position from 0 to 2"),
        ({"feature": -1}, "`feature` must be a position from 0 to 2"),
        ({"penalty": -1.0}, "`penalty` must be at least 0"),
        ({"penalty": [1.0, 2.0]}, "`penalty` must be one number"),
        ({"points": X[0]}, "`points` must have shape"),
    ],
)
def test_bad_fields_are_refused(changes: dict, message: str):
    fields = {"kernel": KERNEL, "value_function": GAMES["int"], "points": X, "feature": 1, "penalty": 1.0} | changes
    with pytest.raises(ValueError, match=message):
        RestrictedShapleyRegularized(**fields)


def test_precompute_refuses_a_kernel_with_priors():
    kernel = ShapleyRegularized(RBF(dist.LogNormal(0.0, 1.0)), GAMES["int"], X, FEATURE, 1.0)
    with pytest.raises(TypeError, match="`precompute` needs a `kernel` without priors"):
        kernel.precompute()
    with numpyro.handlers.seed(rng_seed=0):
        assert kpp.sample("kernel", kernel).section_gram is None
