"""A function of one draw is mapped over all, and what goes wrong in one draw is an error, not a NaN."""

import jax.numpy as jnp
import numpy as np
import pytest

from kpp import linalg
from kpp.inference.fit.draws import DrawMap

DRAWS = {"shift": jnp.arange(45.0)}
NUMBERS = jnp.arange(45)


@pytest.mark.parametrize("label", [None, "progress"])
def test_every_draw_is_mapped_once_and_in_order(label):
    run = DrawMap(lambda draw, number, shared: draw["shift"] * shared + number)
    np.testing.assert_array_equal(run(DRAWS, NUMBERS, 2.0, label=label), 3.0 * np.arange(45))


@pytest.mark.slow
def test_a_failed_factorization_names_the_matrix():
    run = DrawMap(lambda draw, number, matrix: linalg.cholesky(matrix - draw["shift"] * matrix, what="the Gram matrix"))
    with pytest.raises(linalg.FactorizationError, match=r"the Gram matrix.*not positive definite.*condition number"):
        run({"shift": jnp.array([0.0, 2.0])}, jnp.arange(2), jnp.eye(3))


def test_other_nan_names_the_draw():
    run = DrawMap(lambda draw, number, shared: jnp.log(draw["shift"] - 1.0))
    with pytest.raises(FloatingPointError, match=r"1 of 2 draws give NaN, the first at \{'shift': 0.0\}"):
        run({"shift": jnp.array([3.0, 0.0])}, jnp.arange(2), None)
