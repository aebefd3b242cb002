"""Searches: where they look, what they log, when they stop."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from kpp import plots
from kpp.kernels import RBF
from kpp_optimization import (
    FunctionPrior,
    KernelPrior,
    RefittedPrior,
    optimize,
    regret,
    regrets,
    replicate,
)

KEY = jax.random.key(0)
GRID = np.linspace(-3.0, 3.0, 41)[:, None]
TRUTH = np.sin(2.0 * GRID[:, 0]) + 0.1 * GRID[:, 0]
PRIOR = KernelPrior(RBF(0.8))


def wave(point):
    return np.sin(2.0 * point[0]) + 0.1 * point[0]


@pytest.mark.slow_variants("kernel-minimize")
@pytest.mark.parametrize("direction", ["minimize", "maximize"])
@pytest.mark.parametrize("prior", [PRIOR, RefittedPrior(np.geomspace(0.2, 5.0, 9))], ids=["kernel", "refitted"])
def test_the_best_of_a_wave_is_found(direction, prior):
    search = optimize(KEY, wave, GRID, prior, direction=direction, num_queries=15)
    best = TRUTH.min() if direction == "minimize" else TRUTH.max()
    np.testing.assert_allclose(search.best_value, best, atol=1e-5)  # the nugget pulls at neighbors of equal values
    np.testing.assert_allclose(wave(search.best), best, atol=1e-12)
    assert search.queries["candidate"].is_unique  # without noise nobody asks twice


def test_each_query_is_where_improvement_is_expected_most():
    """The second query by hand: conditioning on the first by the formula, and EI by its definition on 4e5 draws."""
    search = optimize(KEY, wave, GRID, PRIOR, num_queries=2)
    first, second = search.queries["candidate"]
    gram = np.asarray(RBF(0.8).gram(jnp.asarray(GRID)))
    mean = gram[:, first] * TRUTH[first]
    sd = np.sqrt(np.maximum(1.0 - gram[:, first] ** 2, 0.0))
    normal = np.random.default_rng(0).normal(size=400_000)
    improvement = [np.maximum(TRUTH[first] - m - s * normal, 0.0).mean() for m, s in zip(mean, sd, strict=True)]
    assert improvement[second] > max(improvement) - 0.005  # a few standard errors
    logged = search.queries.iloc[1]
    np.testing.assert_allclose([logged["mean"], logged["standard_deviation"]], [mean[second], sd[second]], atol=1e-8)
    np.testing.assert_allclose(logged["expected_improvement"], improvement[second], atol=0.005)


def test_a_good_prior_starts_at_its_optimum():
    prior = FunctionPrior(lambda x: jnp.sin(2.0 * x[:, 0]) + 0.1 * x[:, 0], RBF(0.8, 1e-6))
    assert regret(optimize(KEY, wave, GRID, prior, num_queries=1), TRUTH)[0] < 1e-3


def test_the_log_of_a_data_frame_of_candidates_has_its_columns():
    frame = pd.DataFrame({"dose": GRID[:, 0]})
    log = optimize(KEY, wave, frame, PRIOR, num_queries=3).queries
    np.testing.assert_array_equal(log["dose"], GRID[log["candidate"], 0])
    np.testing.assert_allclose(log["value"], [wave([dose]) for dose in log["dose"]])
    assert list(log["query"]) == [1, 2, 3] and list(log["total_cost"]) == [1.0, 2.0, 3.0]


def test_dear_queries_are_avoided_and_the_budget_is_kept():
    def cost(point):
        return 10.0 if point[0] > 0.0 else 1.0

    search = optimize(KEY, wave, GRID, PRIOR, cost=cost, budget=5.5, num_queries=50)
    assert search.stopped == "budget" and search.queries["total_cost"].iloc[-1] == 5.0
    assert (search.queries["x0"] <= 0.0).all()


@pytest.mark.slow
def test_it_stops_for_each_of_its_reasons():
    assert optimize(KEY, wave, GRID, PRIOR, num_queries=2).stopped == "queries"
    assert optimize(KEY, wave, GRID[:3], PRIOR, num_queries=9).stopped in ("candidates", "improvement")
    stopped = optimize(KEY, wave, GRID, PRIOR, num_queries=40, min_improvement=0.05)
    assert stopped.stopped == "improvement" and 1 < len(stopped.queries) < 40
    with pytest.raises(ValueError, match="no query was made"):
        optimize(KEY, wave, GRID, PRIOR, min_improvement=1e3)


def test_noisy_queries_may_be_repeated_and_the_incumbent_is_the_best_posterior_mean():
    rng = np.random.default_rng(0)
    search = optimize(
        KEY, lambda p: wave(p) + rng.normal(), GRID[::8], PRIOR, num_queries=60, num_initial=2, noise_variance=1.0
    )
    assert not search.queries["candidate"].is_unique
    asked = search.queries["candidate"].unique()
    assert search.queries["incumbent"].iloc[-1] == asked[np.argmin(search.belief.mean[asked])]


@pytest.mark.slow
def test_initial_queries_and_ties_are_random_and_repeatable():
    flat = KernelPrior(RBF(1e-3))
    firsts = {
        int(optimize(key, wave, GRID, flat, num_queries=1).queries["candidate"][0]) for key in jax.random.split(KEY, 8)
    }
    assert len(firsts) > 4
    one, other = (optimize(KEY, wave, GRID, PRIOR, num_queries=5, num_initial=3).queries for _ in range(2))
    pd.testing.assert_frame_equal(one, other)


def test_initial_queries_are_different_candidates_also_with_noise():
    search = optimize(KEY, wave, GRID, PRIOR, num_queries=8, num_initial=6, noise_variance=0.1)
    assert search.queries["candidate"][:6].is_unique


def test_regrets_of_replications_and_their_plot():
    def run(key, number):
        return optimize(key, wave, GRID, PRIOR, num_queries=4 + number, num_initial=2)

    one, two = (replicate(KEY, run, 3, num_workers=workers) for workers in (1, 2))
    for first, second in zip(one, two, strict=True):
        pd.testing.assert_frame_equal(first.queries, second.queries)
    table = regrets({"a": one, "b": two[::-1]}, TRUTH)
    assert table.sizes == {"prior": 2, "replication": 3, "query": 6}
    # The definition: the best value among the first t queries, less the best of all.
    lowest = np.minimum.accumulate(one[1].queries["value"]) - TRUTH.min()
    np.testing.assert_allclose(table.sel(prior="a")[1], [*lowest, lowest.iloc[-1]], atol=1e-12)
    ax = plots.regret(table, spread="se")
    assert [line.get_label() for line in ax.lines] == ["a", "b"] and len(ax.collections) == 2
    np.testing.assert_allclose(ax.lines[0].get_ydata(), table.sel(prior="a").mean("replication"))
    for wrong in ({"spread": "iqr"}, {"values": table.mean("query")}):
        with pytest.raises(ValueError, match="must"):
            plots.regret(**({"values": table} | wrong))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"direction": "up"}, "`direction` must be one of .'minimize', 'maximize'., got 'up'"),
        ({"num_queries": 0}, "`num_queries` must be at least 1"),
        ({"num_initial": 99}, "`num_initial` must be between 0 and 41 .the number of candidates., got 99"),
        ({"noise_variance": -1.0}, "`noise_variance` must be at least 0"),
        ({"cost": lambda point: 0.0}, "`cost` must return finite positive numbers"),
        ({"objective": lambda point: np.nan}, "`objective` must return a finite number, got nan"),
        ({"candidates": GRID[:, 0]}, r"`candidates` must have shape \(n, d\)"),
        ({"candidates": pd.DataFrame({"cost": GRID[:, 0]})}, r"own names, got \['cost'\]"),
        ({"prior": FunctionPrior(lambda x: jnp.zeros(3), RBF(1.0))}, r"`prior` must give a mean of shape \(41,\)"),
    ],
)
def test_bad_arguments_are_refused(options, message):
    arguments = {"objective": wave, "candidates": GRID, "prior": PRIOR} | options
    with pytest.raises(ValueError, match=message):
        optimize(KEY, **arguments)
