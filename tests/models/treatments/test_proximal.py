"""Proximal regression against two-stage least squares, a closed form by inverses, and the matrix formula of labels."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from kpp.causal import CausalDAG, CausalError
from kpp.kernels import RBF, Linear
from kpp_models import proximal_regression
from oracles.kernels import rbf

N = 40
RNG = np.random.default_rng(0)
U, C = RNG.normal(size=N), RNG.normal(size=N)
Z, W = U + 0.5 * RNG.normal(size=N), U + 0.5 * C + 0.5 * RNG.normal(size=N)
X = 0.7 * U + 0.4 * C + 0.7 * RNG.normal(size=N)
Y = 1.0 + 0.9 * X + U + 0.5 * C + 0.3 * RNG.normal(size=N)
FRAME = pd.DataFrame({"x": X, "y": Y, "z": Z, "w": W, "c": C})
QUESTION = {"treatment": "x", "outcome": "y", "treatment_proxies": "z", "outcome_proxies": "w", "covariates": "c"}
AT = np.array([0.0, 1.0])


@pytest.mark.slow
def test_with_linear_kernels_it_is_two_stage_least_squares():
    linear = {"kernel": Linear(1.0) + 1.0, "instrument_kernel": Linear(1.0) + 1.0}
    found = proximal_regression(FRAME, **QUESTION, **linear, regularization=1e-8, instrument_regularization=1e-9)
    inputs, sources = np.column_stack([np.ones(N), X, W, C]), np.column_stack([np.ones(N), X, Z, C])
    fitted = sources @ np.linalg.lstsq(sources, inputs, rcond=None)[0]
    slopes = np.linalg.solve(fitted.T @ inputs, fitted.T @ Y)
    covariance = np.mean((Y - inputs @ slopes) ** 2) * np.linalg.inv(fitted.T @ fitted)
    rows = np.column_stack([np.ones(2), AT, np.full(2, W.mean()), np.full(2, C.mean())])
    effect = found.effect(AT[:, None])
    # What the ridges change: 1e-8 and 1e-9 over the eigenvalues of the moments, which are 0.1 or more.
    np.testing.assert_allclose(effect.mean, rows @ slopes, rtol=1e-5)
    np.testing.assert_allclose(effect.covariance, rows @ covariance @ rows.T, rtol=1e-4)


@pytest.mark.slow
def test_it_is_the_closed_form(tolerance):
    kernels = {"kernel": RBF(2.0) + 1.0, "instrument_kernel": RBF(1.5) + 1.0}
    found = proximal_regression(FRAME, **QUESTION, **kernels, regularization=0.01, instrument_regularization=0.02)
    inputs, sources = np.column_stack([X, W, C]), np.column_stack([X, Z, C])
    gram, source = rbf(inputs, inputs, 2.0) + 1.0, rbf(sources, sources, 1.5) + 1.0
    s = source @ np.linalg.inv(source + 0.02 * N * np.eye(N))
    weights = np.linalg.solve(s @ gram + 0.01 * N * np.eye(N), s @ (Y - Y.mean()))
    sections = [rbf(np.column_stack([np.full(N, at), W, C]), inputs, 2.0) + 1.0 for at in AT]
    expected = [Y.mean() + (section @ weights).mean() for section in sections]
    effect = found.effect(pd.DataFrame({"x": AT}))
    np.testing.assert_allclose(effect.mean, expected, **tolerance())
    assert found.covariates.shape == (N, 2)


@pytest.mark.slow
def test_labels_have_the_effect_of_the_matrix_formula():
    """Miao, Geng and Tchetgen Tchetgen (2018), equation 4: P(w) P(W | Z, x)^-1 E[Y | Z, x], of frequencies."""
    rng = np.random.default_rng(2)
    u = rng.random(N) < 0.5
    z, w, x = (np.where(rng.random(N) < 0.8, u, ~u).astype(float) for _ in range(3))
    y = x + u + 0.1 * rng.normal(size=N)
    kernels = {"kernel": RBF(1.0), "instrument_kernel": RBF(1.0)}
    frame = pd.DataFrame({"x": x, "y": y, "z": z, "w": w})
    found = proximal_regression(
        frame, **(QUESTION | {"covariates": ()}), **kernels, regularization=1e-9, instrument_regularization=1e-10
    )
    expected = []
    for value in (0.0, 1.0):
        cells = [(x == value) & (z == level) for level in (0.0, 1.0)]
        law = np.array([[np.mean(w[cell] == level) for level in (0.0, 1.0)] for cell in cells])
        bridge = np.linalg.solve(law, [y[cell].mean() - y.mean() for cell in cells])
        expected.append(y.mean() + np.array([np.mean(w == 0.0), np.mean(w == 1.0)]) @ bridge)
    # The ridges over the eigenvalues of the moments of the four cells, which are above 1e-4.
    np.testing.assert_allclose(found.effect(AT[:, None]).mean, expected, atol=1e-3)


EDGES = [("u", "x"), ("u", "y"), ("u", "z"), ("u", "w"), ("x", "y"), *(("c", name) for name in "xywz")]


@pytest.mark.parametrize(
    ("edges", "bidirected", "message"),
    [
        ([("z", "y")], [], r"`treatment_proxies` \['z'\] must be independent of \['y'\] given .*see the path z -> y"),
        ([("x", "w")], [], r"`outcome_proxies` \['w'\] must be independent of \['x', 'z'\] given .*w <- x"),
        ([], [("x", "y")], r"`hidden` and `covariates`, \['u', 'c'\], must be an adjustment set: .*x <-> y"),
    ],
)
def test_proxies_that_the_graph_does_not_allow_are_refused(edges, bidirected, message):
    graph = CausalDAG([*EDGES, *edges], bidirected=bidirected, latent="u")
    with pytest.raises(CausalError, match=message):
        proximal_regression(FRAME, **QUESTION, graph=graph, hidden="u")


def test_a_proxy_that_says_nothing_of_the_hidden_cause_is_refused():
    graph = CausalDAG([edge for edge in EDGES if edge != ("u", "w")], latent="u")
    with pytest.raises(CausalError, match=r"`outcome_proxies` \['w'\] must depend on \['u'\] given \['c'\]"):
        proximal_regression(FRAME, **QUESTION, graph=graph, hidden="u")


def test_a_graph_that_allows_the_proxies_changes_nothing(tolerance):
    linear = {"kernel": Linear(1.0) + 1.0, "instrument_kernel": Linear(1.0) + 1.0}
    options = linear | {"regularization": 1e-8, "instrument_regularization": 1e-9}
    # A proxy of the treatment may be a cause of it, and latent nodes may be none.
    graph = CausalDAG([*EDGES, ("z", "x")], latent="u")
    found = proximal_regression(FRAME, **QUESTION, graph=graph, hidden="u", **options)
    expected = proximal_regression(FRAME, **QUESTION, **options)
    np.testing.assert_array_equal(found.effect(AT[:, None]).mean, expected.effect(AT[:, None]).mean)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"treatment_proxies": ()}, "`treatment_proxies` must name at least one column, got none"),
        ({"outcome_proxies": ()}, "`outcome_proxies` must name at least one column, got none"),
        ({"outcome_proxies": "z"}, "`treatment_proxies` and `outcome_proxies`"),
        ({"covariates": "age"}, r"`frame` lacks the columns \['age'\]"),
        ({"frame": FRAME[:4]}, "`frame` must have more rows than the 4 columns used, got 4"),
        ({"frame": FRAME.assign(w=np.nan)}, "`frame`"),
        ({"hidden": "u"}, r"`hidden` needs the argument `graph`, got \['u'\] alone"),
        ({"regularization": 0.0}, "`regularization` must be"),
    ],
)
def test_mistakes_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        proximal_regression(**({"frame": FRAME} | QUESTION | change))
