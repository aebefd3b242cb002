"""The rate of the deconditional operator: the script's estimate is the library's, its truth the population's."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from kpp.embeddings import ConditionalMeanEmbedding, DeconditionalMeanEmbedding


@pytest.fixture(scope="module")
def script(load_script):
    return load_script("reproduce/dmo_rate.py")


@pytest.fixture(scope="module")
def problem(script):
    return script.make_problem()


@pytest.mark.slow
def test_the_estimate_from_counts_is_the_librarys(script, problem, tolerance):
    rng = np.random.default_rng(0)
    angles = 2 * np.pi * np.arange(24) / 24
    y, x = np.unravel_index(rng.choice(24**2, size=40, p=problem.joint.ravel()), (24, 24))
    values = rng.integers(0, 24, size=15)
    pairs = np.zeros((24, 24))
    np.add.at(pairs, (y, x), 1)
    found = script.estimate(problem, pairs, np.bincount(values, minlength=24), 0.05, 0.2)
    at = jnp.asarray(angles)[:, None]
    conditional = ConditionalMeanEmbedding(
        kernel=problem.kernel, input_kernel=problem.condition_kernel, inputs=at[y], points=at[x], regularization=0.05
    )
    deconditional = DeconditionalMeanEmbedding(conditional, at[values], 0.2)
    expected = eqx.filter_jit(lambda part: part.evaluate(at, at))(deconditional)
    np.testing.assert_allclose(problem.features @ found.T @ problem.condition_features.T, expected, **tolerance())


@pytest.mark.slow
def test_the_population_operator_is_diagonal_and_its_inverse_has_no_risk(script, problem, tolerance):
    angles = 2 * np.pi * np.arange(24) / 24
    given = 24 * problem.joint  # P(x | y)
    for h, rho in enumerate(script.RHO):
        np.testing.assert_allclose(given @ np.cos(h * angles), rho * np.cos(h * angles), **tolerance())
    np.testing.assert_allclose(given @ np.cos(3 * angles), np.zeros(24), **tolerance())
    # The features of y are taken to those of x, frequency by frequency.
    means = problem.condition_features @ problem.operator.T
    np.testing.assert_allclose(means, given @ problem.features, **tolerance())
    assert script.excess_risk(problem, np.linalg.pinv(problem.operator)) < 1e-20
    assert script.excess_risk(problem, np.zeros((5, 25))) == pytest.approx(np.trace(problem.moments))


def test_the_exponents_are_the_theorems(script):
    slow, fast = script.Schedule(1.0, 2.0, 1.5, 1.5), script.Schedule(3.0, 2.0, 1.5, 1.5)
    assert slow.turning_point == pytest.approx(2.0 * 2.5 / (2.0 * 1.5 + 1))
    assert (slow.rate, slow.penalty_decay) == pytest.approx((-1.5 / 2.5, 1 / 2.5))
    assert (fast.rate, fast.penalty_decay) == pytest.approx((-2.0 * 1.5 / 4.0, 2.0 / 4.0))
    assert slow.pairs_growth == pytest.approx(2.5 / 0.5)
    first, second = slow.penalties(10.0)
    assert (slow.pairs(10.0), first, second) == pytest.approx((10**5, 10**-2, 10**-0.4))


@pytest.mark.parametrize("a", [0.5, 1.0, 1.5, 2.0])
def test_the_slope_at_c_2_is_the_theorems(script, problem, a):
    """Ten data sets of each of four large sizes; higher orders of epsilon bend the line by less than 0.07."""
    schedule = script.Schedule(a, np.inf, 2.0, 2.0)
    sizes, rng = schedule.sizes(8), np.random.default_rng(1)
    risks = np.array([script.mean_risk(rng, problem, schedule, size, 10) for size in sizes])
    assert script.slope(sizes, risks) == pytest.approx(schedule.rate, abs=0.07)


@pytest.mark.slow
def test_the_table_and_the_figure_are_made(script, capsys, tmp_path):
    script.main(["--quick", "--speeds", "1.0", "--figure", str(tmp_path / "rate.png")])
    text = capsys.readouterr().out
    assert "a = 1 <= 1.5, N = M^3" in text and "theorem -0.667" in text
    assert (tmp_path / "rate.png").stat().st_size > 0
