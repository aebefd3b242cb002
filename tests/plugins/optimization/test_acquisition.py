"""Expected improvement against its integral."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from kpp_optimization import expected_improvement


@pytest.mark.parametrize("mean", [-2.0, 0.0, 0.4, 3.0])
@pytest.mark.parametrize("sd", [0.2, 1.0, 4.0])
def test_it_is_the_integral_of_the_improvement(mean, sd):
    """Gauss-Kronrod over twelve standard deviations below the best value; its own tolerance is 1e-10."""
    best = 0.3
    expected, _ = quad(lambda f: (best - f) * norm.pdf(f, mean, sd), min(best, mean) - 12 * sd, best, epsabs=1e-13)
    found = expected_improvement(np.array([mean]), np.array([sd]), best)
    np.testing.assert_allclose(found, [expected], rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("u", [-0.5, -3.0, -8.0, -20.0, -36.0])
def test_the_tail_keeps_its_digits(u):
    r"""Against its integral with :math:`\varphi(u)` taken out; as it is usually written EI loses all digits there."""
    integral, _ = quad(lambda s: s * np.exp(u * s - 0.5 * s**2), 0.0, min(-40.0 / u, 12.0), epsabs=0.0, epsrel=1e-13)
    found = expected_improvement(np.array([-u]), np.array([1.0]), 0.0)
    np.testing.assert_allclose(found, [norm.pdf(u) * integral], rtol=1e-11)  # the bracket is of the order 1 / u^2


def test_without_uncertainty_it_is_the_improvement():
    found = expected_improvement(np.array([1.0, 0.0, -2.0, 5.0]), np.array([0.0, 0.0, 0.0, 1e-300]), 0.0)
    np.testing.assert_array_equal(found, [0.0, 0.0, 2.0, 0.0])


@pytest.mark.parametrize(
    ("mean", "sd", "best", "message"),
    [
        ([0.0], [-1.0], 0.0, "`standard_deviation` must be at least 0, got -1"),
        ([0.0, 1.0], [1.0], 0.0, r"one shape, got \(2,\) and \(1,\)"),
        ([np.nan], [1.0], 0.0, "`mean` must be finite"),
        ([0.0], [1.0], np.inf, "`best` must be finite"),
    ],
)
def test_bad_input_is_refused(mean, sd, best, message):
    with pytest.raises(ValueError, match=message):
        expected_improvement(np.array(mean), np.array(sd), best)
