"""The gain of a projection on finite populations, where an expectation is a mean of rows, and over samples of them."""

from __future__ import annotations

import numpy as np
import pytest

from kpp.metrics import projection_gain

OUTCOMES = np.array([-1.3, 0.2, 0.9, 2.1])


def population(rng, num_parents):
    """Rows (y, x1, x2, x3) of indices, as often as P(x3) P(y | x3) P(x2 | x3) P(x1 | y, x2) says, so Y _||_ X2 | X3."""

    def counts(total, size, *shape):
        return np.moveaxis(rng.multinomial(total, np.full(size, 1 / size), shape), -1, 0)

    y, x2, x1 = counts(6, 4, num_parents), counts(5, 3, num_parents), counts(4, 5, 4, 3)
    table = np.einsum("bac,ad,cd,d->abcd", x1, y, x2, np.arange(1, num_parents + 1))
    return np.repeat(np.argwhere(table >= 0), table.ravel(), axis=0)


def mean_given(values, *columns):
    """The mean of the rows that share values of the columns, one a row."""
    _, group = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    group = group.ravel()
    return (np.bincount(group, values) / np.bincount(group))[group]


def case(rng, num_parents):
    """Outcome, predictor, its expectation given (x2, x3), some other function of these, and the mean given x3."""
    index, x1, x2, x3 = population(rng, num_parents).T
    y, h = OUTCOMES[index], rng.normal(size=(5, 3, num_parents))[x1, x2, x3]
    return y, h, mean_given(h, x2, x3), rng.normal(size=(3, num_parents))[x2, x3], mean_given(y, x3)


@pytest.mark.parametrize("num_parents", [1, 2])
def test_gain_is_the_fall_of_the_mean_squared_error(num_parents, tolerance):
    # Propositions 4.1 (one value of x3) and 5.1 for the exact expectation; the first equality for any other.
    y, h, exact, other, f0 = case(np.random.default_rng(0), num_parents)
    for e in (exact, other):
        fall = np.mean((y - h) ** 2) - np.mean((y - (h - e + f0)) ** 2)
        found = projection_gain(h, e, f0)
        np.testing.assert_allclose(found.gain, fall, **tolerance())
        assert found.largest_gain == found.gain
    np.testing.assert_allclose(projection_gain(h, exact, f0).gain, np.mean((exact - f0) ** 2), **tolerance())


def test_a_number_is_the_baseline_of_all_rows(tolerance):
    y, h, exact, _, f0 = case(np.random.default_rng(0), 1)
    expected = projection_gain(h, exact, f0).interval
    np.testing.assert_allclose(projection_gain(h, exact, y.mean()).interval, expected, **tolerance())
    np.testing.assert_allclose(projection_gain(h - y.mean(), exact - y.mean()).interval, expected, **tolerance())


def test_largest_gain_falls_short_by_the_squared_bias():
    # On a whole population only the estimates are random: e_a = E[h | C] + bias + noise_a, a = 1, 2, 3. The gain of
    # their mean falls short of that of E[h | C] by bias^2 + variance / 3, the largest gain by bias^2. Four standard
    # errors.
    rng = np.random.default_rng(0)
    y, h, exact, bias, f0 = case(rng, 2)
    cells = np.unique(exact, return_inverse=True)[1].ravel()
    found = []
    for _ in range(200):
        noise = 0.5 * rng.normal(size=(cells.max() + 1, 3))[cells]
        found.append(projection_gain(h, (exact + 0.2 * bias)[:, None] + noise, f0))
    best = np.mean((exact - f0) ** 2) - 0.04 * np.mean(bias**2)
    for name, expected in (("largest_gain", best), ("gain", best - 0.25 / 3)):
        values = np.array([getattr(each, name) for each in found])
        assert abs(values.mean() - expected) < 4 * values.std() / 200**0.5


def test_interval_covers_the_gain():
    # 400 samples of 150 rows: coverage has a standard deviation of 0.02 at 0.8; four, one for normality.
    rng = np.random.default_rng(0)
    y, h, _, e, f0 = case(rng, 2)
    truth = np.mean((y - h) ** 2) - np.mean((y - (h - e + f0)) ** 2)
    covered, errors, gains = [], [], []
    for rows in rng.integers(len(y), size=(400, 150)):
        found = projection_gain(h[rows], e[rows], f0[rows], level=0.8)
        covered.append(found.interval[0] <= truth <= found.interval[1])
        errors.append(found.standard_error)
        gains.append(found.gain)
    assert abs(np.mean(covered) - 0.8) < 5 * 0.02
    assert abs(np.mean(gains) - truth) < 4 * np.std(gains) / 20  # no bias
    np.testing.assert_allclose(np.mean(errors), np.std(gains), rtol=0.15)  # the root of a variance of 400, four times


MISTAKES = [
    ({"expectations": np.ones(3)}, r"`expectations` must have shape \(4,\) or \(4, m\), got \(3,\)"),
    ({"values": [1.0], "expectations": [0.5]}, "`values` must hold at least two rows, got 1"),
    ({"baseline": np.ones(2)}, r"`baseline` must have the shape of `values`, \(4,\), or be one number, got \(2,\)"),
    ({"level": 1.0}, "`level` must be between 0 and 1, got 1.0"),
]


@pytest.mark.parametrize(("changed", "message"), MISTAKES)
def test_mistakes_are_named(changed, message):
    with pytest.raises(ValueError, match=message):
        projection_gain(**({"values": np.ones(4), "expectations": np.zeros(4)} | changed))
