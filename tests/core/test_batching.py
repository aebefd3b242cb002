"""Calls in chunks: the same predictions, few shapes, clear refusals."""

from __future__ import annotations

import numpy as np
import pytest

from kpp.batching import call_in_chunks

ROWS = np.random.default_rng(0).normal(size=(37, 3))
FUNCTIONS = {
    "one output": (lambda x: x.sum(axis=1), 0),
    "outputs": (lambda x: x[:, :2] ** 2, 0),
    "draws": (lambda x: np.stack([x.sum(axis=1), x[:, 0]])[None], 2),
    "labels": (lambda x: (x[:, 0] > 0).astype(int), 0),
}


@pytest.mark.parametrize("size", [1, 8, 36, 37, 64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_chunks_predict_what_one_call_does(name, size):
    function, axis = FUNCTIONS[name]
    values, found = call_in_chunks(function, ROWS, size)
    assert found == axis
    np.testing.assert_array_equal(values, function(ROWS))


def test_few_shapes_are_called():
    shapes = set()

    def function(x):
        shapes.add(x.shape)
        return x[:, 0]

    for length in range(1, 38):
        call_in_chunks(function, ROWS[:length], 16)
    assert shapes == {(1, 3), (2, 3), (4, 3), (8, 3), (16, 3)}


def test_bad_predictions_are_refused():
    with pytest.raises(ValueError, match=r"one prediction a point, .* got shape \(3,\) for 64 points"):
        call_in_chunks(lambda x: x[:3, 0], ROWS)
    with pytest.raises(ValueError, match="finite numbers, got 37 that are not"):
        call_in_chunks(lambda x: np.full(len(x), np.nan), ROWS)
    with pytest.raises(ValueError, match="`function` must return real numbers, got dtype <U3"):
        call_in_chunks(lambda x: np.full(len(x), "yes"), ROWS)
