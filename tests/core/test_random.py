"""Random numbers of several axes are those of JAX."""

import jax
import numpy as np
import pytest

from kpp.runtime.random import standard_normal, uniform


@pytest.mark.parametrize(("shape", "dtype"), [((2, 3, 4), np.float64), ((3, 4), np.float32)])
@pytest.mark.parametrize(("ours", "theirs"), [(standard_normal, jax.random.normal), (uniform, jax.random.uniform)])
def test_they_are_those_of_jax(ours, theirs, shape, dtype):
    key = jax.random.key(3)
    found = ours(key, shape, dtype)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, theirs(key, shape, dtype))
