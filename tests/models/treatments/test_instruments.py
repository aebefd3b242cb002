"""Regression with instruments against two-stage least squares, the closed form by inverses, and a known effect."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from kpp.causal import CausalDAG, CausalError
from kpp.kernels import RBF, Linear
from kpp_models import instrumental_effect, instrumental_regression
from oracles.kernels import rbf

N = 40
RNG = np.random.default_rng(0)
Z, C, U = RNG.normal(size=(N, 3)), RNG.normal(size=(N, 1)), RNG.normal(size=N)
X = Z[:, :2] + 0.5 * Z[:, 2:] + 0.5 * C + 0.8 * U[:, None] + 0.5 * RNG.normal(size=(N, 2))
Y = 1.0 + X @ [1.0, -0.5] + 0.7 * C[:, 0] + U + 0.3 * RNG.normal(size=N)
AT = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
KERNELS = {"kernel": RBF(2.0) + 1.0, "instrument_kernel": RBF(1.5) + 1.0}
FIXED = KERNELS | {"regularization": 0.01, "instrument_regularization": 0.02}


def two_stage_least_squares(x, y, z):
    """The coefficients, the intercept first, and their covariance with the residuals' mean square."""
    x, z = (np.column_stack([np.ones(len(y)), values]) for values in (x, z))
    fitted = z @ np.linalg.lstsq(z, x, rcond=None)[0]
    slopes = np.linalg.solve(fitted.T @ x, fitted.T @ y)
    return slopes, np.mean((y - x @ slopes) ** 2) * np.linalg.inv(fitted.T @ fitted)


@pytest.mark.slow
def test_with_linear_kernels_it_is_two_stage_least_squares():
    inputs, sources = np.column_stack([X, C]), np.column_stack([Z, C])
    linear = Linear(1.0) + 1.0
    found = instrumental_regression(
        X,
        Y,
        Z,
        C,
        kernel=linear,
        instrument_kernel=linear,
        regularization=1e-8,
        instrument_regularization=1e-9,
    )
    slopes, covariance = two_stage_least_squares(inputs, Y, sources)
    rows = np.column_stack([np.ones(3), AT, np.full(3, C.mean())])
    effect = found.effect(AT)
    # What the ridges change: 1e-8 and 1e-9 over the eigenvalues of the moments, which are 0.1 or more.
    np.testing.assert_allclose(effect.mean, rows @ slopes, rtol=1e-5)
    np.testing.assert_allclose(effect.covariance, rows @ covariance @ rows.T, rtol=1e-4)


def matrix(a, b):
    """The kernel of the treatments."""
    return rbf(a, b, 2.0) + 1.0


def source_matrix(z):
    """The matrix of the kernel of the instruments."""
    return rbf(z, z, 1.5) + 1.0


def smoothing(gram, ridge):
    return gram @ np.linalg.inv(gram + ridge * np.eye(N))


@pytest.mark.slow
def test_it_is_the_closed_form(tolerance):
    inputs = np.column_stack([X, C])
    gram, source = matrix(inputs, inputs), source_matrix(np.column_stack([Z, C]))
    s, ridge = smoothing(source, N * 0.02), N * 0.01
    inverse = np.linalg.inv(s @ gram + ridge * np.eye(N)) @ s
    found = instrumental_regression(X, Y, Z, C, **FIXED)
    residuals = Y - Y.mean() - gram @ inverse @ (Y - Y.mean())
    np.testing.assert_allclose(found.noise_variance, np.mean(residuals**2), **tolerance())
    grid = np.concatenate([np.column_stack([np.broadcast_to(at, (N, 2)), C]) for at in AT])
    sections = matrix(grid, inputs).reshape(3, N, N).mean(axis=1)
    prior = matrix(grid, grid).reshape(3, N, 3, N).mean(axis=(1, 3))
    effect, scale = found.effect(AT), np.mean(residuals**2) / ridge
    np.testing.assert_allclose(effect.mean, Y.mean() + sections @ inverse @ (Y - Y.mean()), **tolerance())
    # The root of S loses half of the digits where S is nearly singular.
    np.testing.assert_allclose(
        effect.covariance, scale * (prior - sections @ inverse @ sections.T), rtol=1e-5, atol=1e-8
    )


def price_and_demand(seed, rows):
    """Sales that fall with the price, and a hidden demand that raises both; the cost of transport is the instrument."""
    rng = np.random.default_rng(seed)
    transport, demand = rng.uniform(-3, 3, size=(rows, 1)), rng.normal(size=(rows, 1))
    price = transport + demand
    return price, (-3 * np.tanh(price / 2) + 2 * demand)[:, 0], transport


def padded(x, y, z):
    """The same data with constant columns: distances stay, and the shapes become those of X and Z."""
    return np.column_stack([x, np.zeros(len(x))]), y, np.column_stack([z, np.zeros((len(z), 2))])


def error_and_prior_variance(gram, s, y, value):
    """The leave-one-out error and the mean prior variance of f, for one regularization."""
    coefficients = np.linalg.inv(s @ gram + N * value * np.eye(N)) @ s
    h = s @ gram @ coefficients
    noise_variance = np.mean((y - gram @ coefficients @ y) ** 2)
    error = np.sum((y - h @ y) ** 2 / (1 - np.diag(h)) ** 2)
    return error, np.mean(np.diag(gram)) * noise_variance / (N * value)


@pytest.mark.slow_variants("the best of all", "the best of those with a credible prior variance")
@pytest.mark.parametrize(
    ("x", "y", "z", "bounded"),
    [(X, Y, Z, False), (*padded(*price_and_demand(1, N)), True)],
    ids=["the best of all", "the best of those with a credible prior variance"],
)
def test_the_regularizations_have_the_lowest_errors(x, y, z, bounded):
    found = instrumental_regression(x, y, z, **KERNELS)
    gram, source = matrix(x, x), source_matrix(z)

    def first_error(value):
        a = np.linalg.inv(source + N * value * np.eye(N))
        return np.sum(np.diag(a @ gram @ a) / np.diag(a) ** 2)

    best = min(np.logspace(-7, 0, 15), key=first_error)
    np.testing.assert_allclose(found.instrument_regularization, best, rtol=1e-12)
    s, grid = smoothing(source, N * float(found.instrument_regularization)), np.logspace(-8, 0, 17)
    errors, variances = np.array([error_and_prior_variance(gram, s, y - y.mean(), value) for value in grid]).T
    credible = variances <= 10 * np.var(y)
    assert credible[errors.argmin()] != bounded
    best = grid[np.where(credible, errors, np.inf).argmin()]
    np.testing.assert_allclose(found.regularization, best, rtol=1e-12)


@pytest.mark.slow
def test_without_a_credible_prior_variance_the_regularization_is_the_largest():
    # Even a regularization of 1 gives f a prior variance of 1e6 / 40 times the variance of U.
    found = instrumental_regression(X, Y, Z, kernel=RBF(2.0, 1e6) + 1.0, instrument_kernel=KERNELS["instrument_kernel"])
    assert found.regularization == 1.0
    given = instrumental_regression(X, Y, Z, **(FIXED | {"regularization": 1e-6}))
    assert given.regularization == 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("shift", [0.0, 100.0])
def test_a_line_is_found_wherever_the_treatment_is_centered(shift):
    """The prior variance of a line depends on the place of zero, so it does not bound the regularization."""
    rng = np.random.default_rng(0)
    z, hidden = rng.normal(size=(2, 200, 1))
    x = z + 0.5 * hidden + shift
    y = (x + hidden + 0.1 * rng.normal(size=(200, 1)))[:, 0]
    found = instrumental_regression(x, y, z, kernel=Linear(1.0) + 1.0, instrument_kernel=Linear(1.0) + 1.0)
    effect = found.effect(np.array([[shift], [shift + 1.0]]))
    contrast = np.array([-1.0, 1.0])
    error = float(contrast @ effect.mean) - 1.0
    assert abs(error) < 4 * float(contrast @ effect.covariance @ contrast) ** 0.5
    assert abs(error) < 0.3  # two-stage least squares has a standard error of sd(u) / (sqrt(n) sd(z)), about 0.07


def frame_of_rows():
    columns = {"x1": X[:, 0], "x2": X[:, 1], "y": Y, "z1": Z[:, 0], "z2": Z[:, 1], "z3": Z[:, 2], "c": C[:, 0]}
    return pd.DataFrame(columns)


EDGES = [("z1", "x1"), ("z2", "x2"), ("z3", "x1"), ("z3", "x2"), ("c", "x1"), ("c", "x2"), ("c", "y")]
GRAPH = CausalDAG([*EDGES, ("x1", "y"), ("x2", "y")], bidirected=[("x1", "y"), ("x2", "y")])
QUESTION = {"treatment": ["x1", "x2"], "outcome": "y", "instruments": ["z1", "z2", "z3"], "given": "c"}


def test_a_graph_names_the_columns(tolerance):
    found = instrumental_effect(frame_of_rows(), GRAPH, **QUESTION, **FIXED)
    expected = instrumental_regression(X, Y, Z, C, **FIXED)
    at = pd.DataFrame(AT, columns=["x1", "x2"])
    np.testing.assert_allclose(found.effect(at).mean, expected.effect(AT).mean, **tolerance())


def test_instruments_that_the_graph_does_not_allow_are_refused():
    frame, direct = frame_of_rows(), CausalDAG([*GRAPH.edges, ("z1", "y")], bidirected=GRAPH.bidirected)
    with pytest.raises(CausalError, match=r"\['z1', 'z2', 'z3'\] are none for the effect .* path z1 -> y"):
        instrumental_effect(frame, direct, **QUESTION)
    with pytest.raises(CausalError, match="move all treatments independently"):
        instrumental_effect(frame, GRAPH, **(QUESTION | {"instruments": "z3"}))
    with pytest.raises(ValueError, match=r"`frame` lacks the columns \['c'\]"):
        instrumental_effect(frame.drop(columns="c"), GRAPH, **QUESTION)
    with pytest.raises(TypeError, match="`frame` must be a data frame"):
        instrumental_effect(X, GRAPH, **QUESTION)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"instruments": Z[:5]}, "`x` and `instruments` must have the same number of rows, got 40 and 5"),
        ({"covariates": C[:5]}, "`x` and `covariates` must have the same number of rows, got 40 and 5"),
        ({"regularization": 0.0}, "`regularization` must be"),
        ({"instrument_regularization": -1.0}, "`instrument_regularization` must be"),
        ({"y": Y * np.nan}, "`y` must"),
    ],
)
def test_mistakes_are_named(changed, message):
    with pytest.raises(ValueError, match=message):
        instrumental_regression(**({"x": X, "y": Y, "instruments": Z} | changed))


@pytest.mark.slow
def test_treatments_and_instruments_may_be_categories():
    rng = np.random.default_rng(1)
    letter = rng.choice(list("ab"), 300)
    u = rng.normal(size=300)
    taken = (letter == "b") * 2.0 + u + 0.5 * rng.normal(size=300) > 1.0
    y = 2.0 * taken + 2.0 * u + 0.3 * rng.normal(size=300)
    found = instrumental_regression(pd.DataFrame({"taken": taken}), y, pd.DataFrame({"letter": letter}))
    effect = found.effect(pd.DataFrame({"taken": [False, True]}))
    contrast = jnp.array([-1.0, 1.0])
    error = float(contrast @ effect.mean - 2.0)
    assert abs(error) < 3 * float(contrast @ effect.covariance @ contrast) ** 0.5
    naive = y[taken].mean() - y[~taken].mean() - 2.0
    assert abs(error) < abs(naive) / 2


@pytest.mark.nightly
def test_intervals_are_not_wider_than_the_outcome():
    # Without the bound on the prior variance, the mean width is above 100 in some of these data sets. The interval of a
    # single outcome has the width 2 * 1.645 * sd(y), about 7: 200 rows know the mean outcome twice as well, or better.
    prices = np.linspace(-3, 3, 20)[:, None]
    for seed in range(10):
        price, sales, transport = price_and_demand(seed, 200)
        effect = instrumental_regression(price, sales, transport).effect(prices)
        width = 2 * 1.645 * np.mean(np.sqrt(np.diag(effect.covariance)))
        assert width < 1.645 * np.std(sales)
