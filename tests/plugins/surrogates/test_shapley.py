"""KernelSHAP and ShapleySampling: the definition where it can be enumerated, standard errors where it is sampled."""

from __future__ import annotations

import itertools
import math

import jax
import numpy as np
import pytest

import kpp
from kpp.functions import RKHSFunction
from kpp.kernels import RBF
from kpp_surrogates import KernelSHAP, ShapleySampling

RNG = np.random.default_rng(0)
BACKGROUND, X = RNG.normal(size=(4, 12)), RNG.normal(size=(3, 12))
KEY = jax.random.key(0)
SAMPLED = [
    KernelSHAP(BACKGROUND, num_coalitions=300, progress=False),
    ShapleySampling(BACKGROUND, num_coalitions=300, progress=False),
]


def function(x):
    x = np.asarray(x)
    return np.stack([np.sum(x[:, :-2] * x[:, 1:-1] * x[:, 2:], axis=1), np.abs(x.sum(axis=1))], axis=1)


def definition(f, background, x, groups):
    """Average gains over all coalitions, one point and player at a time."""

    def worth(point, coalition):
        rows = background.copy()
        columns = [j for player in coalition for j in groups[player]]
        rows[:, columns] = point[columns]
        return f(rows).mean(axis=0)

    values = []
    for point, player in itertools.product(x, range(len(groups))):
        others = [k for k in range(len(groups)) if k != player]
        total = 0.0
        for size in range(len(groups)):
            for chosen in itertools.combinations(others, size):
                gain = worth(point, (*chosen, player)) - worth(point, chosen)
                total = total + gain / (len(groups) * math.comb(len(groups) - 1, size))
        values.append(total)
    return np.array(values).reshape(len(x), len(groups), -1)


GROUPS = {"rest": list(range(5, 12)), "pair": [0, 3]}
MEMBERS = [[0, 3], [1], [2], [4], list(range(5, 12))]


@pytest.mark.slow_variants("least squares")
@pytest.mark.parametrize(
    "explainer",
    [
        KernelSHAP(BACKGROUND, groups=GROUPS, progress=False),
        KernelSHAP(BACKGROUND, groups=GROUPS, method="enumeration", progress=False),
        ShapleySampling(BACKGROUND, groups=GROUPS, progress=False),
    ],
    ids=["least squares", "enumeration", "permutation"],
)
def test_a_budget_for_all_coalitions_gives_the_values_of_the_definition(explainer, tolerance):
    explanation = explainer.explain(function, X)  # nothing is sampled, so no key is needed
    assert explanation.feature_names == ("pair", "x1", "x2", "x4", "rest")
    assert explanation.attrs["exact"] and explanation.standard_errors is None
    np.testing.assert_allclose(explanation.values, definition(function, BACKGROUND, X, MEMBERS), **tolerance())
    np.testing.assert_allclose(explanation.base_values, function(BACKGROUND).mean(axis=0), **tolerance())


@pytest.fixture(scope="module")
def truth():
    return KernelSHAP(BACKGROUND, method="enumeration", progress=False).explain(function, X)


@pytest.mark.slow
@pytest.mark.parametrize("explainer", SAMPLED, ids=["kernel-shap", "shapley-sampling"])
def test_sampled_values_add_up_and_miss_by_what_their_errors_say(explainer, truth):
    explanation = explainer.explain(function, X, rng_key=KEY)
    assert float(explanation.additivity_error().max()) < 1e-10
    assert explanation.attrs["coalitions"] <= 300 and not explanation.attrs["exact"]
    errors = explanation.standard_errors
    scores = (explanation.values - truth.values) / errors
    # 72 scores, dependent within a point: their mean square is 1, give or take a half.
    assert 0.5 < float((scores**2).mean()) < 2.0 and float(abs(scores).max()) < 4.5


@pytest.mark.slow
def test_the_function_is_called_in_few_sizes():
    sizes = set()

    def recorded(x):
        sizes.add(len(x))
        return function(x)

    SAMPLED[0].explain(recorded, X, rng_key=KEY)
    assert all(size & (size - 1) == 0 for size in sizes) and len(sizes) <= 4


@pytest.mark.slow
def test_points_in_blocks_share_their_coalitions(monkeypatch, tolerance):
    whole = SAMPLED[0].explain(function, X, rng_key=KEY)
    monkeypatch.setattr("kpp_surrogates.shapley._INSTANCES", 2)
    np.testing.assert_allclose(SAMPLED[0].explain(function, X, rng_key=KEY).values, whole.values, **tolerance())


@pytest.mark.slow
def test_a_product_kernel_of_many_features_is_exact_by_quadrature(tolerance):
    points = RNG.normal(size=(5, 24))
    ridge = RKHSFunction(RBF(lengthscale=3.0), points, np.ones(5))
    explanation = KernelSHAP(points, progress=False).explain(ridge, points[:2] + 0.1)
    assert explanation.attrs["method"] == "quadrature"
    assert float(explanation.additivity_error().max()) < 1e-10


@pytest.mark.slow
def test_draws_of_a_plain_function_lead():
    draws = lambda x: np.stack([function(x)[:, 0], 2 * function(x)[:, 0]])[None]  # noqa: E731
    explanation = SAMPLED[0].explain(draws, X, rng_key=KEY)
    assert explanation.values.dims == ("chain", "draw", "instance", "feature")
    np.testing.assert_allclose(explanation.values[0, 1], 2 * explanation.values[0, 0], rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("explainer", [KernelSHAP, ShapleySampling])
def test_a_tolerance_bounds_the_standard_errors_of_all_points(explainer, caplog):
    """12 players have 4096 coalitions: the tolerance 0.05 needs a part of them, 1e-9 all, and 300 do not suffice."""
    found = explainer(BACKGROUND, tolerance=0.05, progress=False).explain(function, X, rng_key=KEY)
    assert float(found.standard_errors.max()) <= 0.05
    recorded = [found.attrs[name] for name in ("tolerance", "tolerance_reached", "exact")]
    assert recorded == [0.05, True, False] and 240 < found.attrs["coalitions"] < 4096
    exact = explainer(BACKGROUND, tolerance=1e-9, progress=False).explain(function, X, rng_key=KEY)
    assert exact.attrs["exact"] and exact.attrs["tolerance_reached"] and float(exact.standard_errors.max()) == 0.0
    assert not caplog.records
    small = explainer(BACKGROUND, tolerance=1e-9, num_coalitions=300, progress=False)
    few = small.explain(function, X, rng_key=KEY)
    assert not few.attrs["tolerance_reached"] and few.attrs["coalitions"] <= 300
    assert "more than the `tolerance` 1e-09; allow for more by `num_coalitions`" in caplog.text


def test_missing_keys_and_wrong_methods_are_refused():
    for explainer in SAMPLED:
        with pytest.raises(TypeError, match="`rng_key` must be given to sample coalitions of 12 players"):
            explainer.explain(function, X)
    with pytest.raises(ValueError, match="`method` must be one of .*, got 'permutation'"):
        KernelSHAP(BACKGROUND, method="permutation")


@pytest.mark.slow
def test_the_active_design_values_few_coalitions_for_slow_functions():
    """60 of 4096 coalitions: closer to the values of all coalitions than the fit to random ones is."""
    rows = []

    def slow(x):
        rows.append(len(x))
        return np.tanh(function(x)[:, 0] / 4)

    options = {"explainer": "kernel-shap", "background": BACKGROUND, "progress": False, "rng_key": KEY}
    exact = kpp.explain(slow, X, **{**options, "method": "enumeration"}).values
    rows.clear()
    active = kpp.explain(slow, X, design="active", num_coalitions=60, **options)
    assert active.attrs["method"] == "active" and active.attrs["coalitions"] == 60 and not active.attrs["exact"]
    assert active.attrs["standard_errors"] == "posterior standard deviations of a Gaussian process on coalitions"
    assert sum(rows) <= 2 * 60 * len(X) * len(BACKGROUND) + 64  # chunks are filled up to a power of two
    assert float(active.additivity_error().max()) < 1e-12
    random = kpp.explain(slow, X, num_coalitions=60, **options)
    assert float(((active.values - exact) ** 2).sum()) < 0.3 * float(((random.values - exact) ** 2).sum())
    assert float((abs(active.values - exact) <= 3 * active.standard_errors).mean()) > 0.9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"design": "adaptive"}, "`design` must be one of .'random', 'active'., got 'adaptive'"),
        ({"design": "active", "method": "enumeration"}, "`method` must be 'auto' with `design` 'active'"),
        ({"design": "active", "num_coalitions": 13}, "`num_coalitions` must be at least 14 to choose coalitions of 12"),
        ({"design": "active", "tolerance": -1.0}, "`tolerance` must be"),
    ],
)
def test_bad_options_of_the_design_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        KernelSHAP(BACKGROUND, progress=False, **options).explain(function, X, rng_key=KEY)
