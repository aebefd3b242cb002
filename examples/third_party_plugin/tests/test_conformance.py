import jax
import numpy as np
import pytest
from kpp_example import Cosine, Occlusion, ScipyConverter
from scipy.interpolate import RBFInterpolator

import kpp
from kpp.testing import parametrize_with_checks

jax.config.update("jax_enable_x64", True)


@parametrize_with_checks([Cosine, Occlusion, ScipyConverter])
def test_conformance(check):
    check()


def test_cosine_is_the_real_part_of_two_waves():
    x = np.linspace(-1.0, 2.0, 7)[:, None]
    waves = np.exp(1j * x / 0.4)
    np.testing.assert_allclose(Cosine(0.4, 2.0).gram(x), 2.0 * (waves @ waves.conj().T).real, atol=1e-12)


def test_occlusion_of_a_sum_is_each_term():
    explanation = Occlusion([1.0, 1.0]).explain(lambda x: x[:, 0] + 3 * x[:, 1], np.array([[2.0, 0.0]]))
    np.testing.assert_allclose(explanation.values, [[1.0, -3.0]])


OTHER = {"`kernel`": {"kernel": "cubic"}, "`neighbors`=5": {"neighbors": 5}, "`degree`": {"degree": 1}}


@pytest.mark.parametrize("part", OTHER)
def test_other_interpolators_are_refused_by_the_part_that_differs(part):
    points = np.random.default_rng(0).normal(size=(12, 2))
    model = RBFInterpolator(points, points[:, 0], **{"kernel": "gaussian", "epsilon": 1.0, **OTHER[part]})
    with pytest.raises(ValueError, match=part):
        kpp.as_rkhs_function(model)
