"""Blocks: the same results as all at once, few shapes, clear refusals."""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kpp import RKHSFunction
from kpp.kernels import RBF
from kpp.runtime import batching
from kpp.runtime.batching import call_in_chunks, even_size, in_blocks, map_blocks, map_rows

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
    with pytest.raises(ValueError, match=r"one prediction per point, .* got shape \(3,\) for 64 points"):
        call_in_chunks(lambda x: x[:3, 0], ROWS)
    with pytest.raises(ValueError, match="finite numbers, got 37 that are not"):
        call_in_chunks(lambda x: np.full(len(x), np.nan), ROWS)
    with pytest.raises(ValueError, match="`function` must return real numbers, got dtype <U3"):
        call_in_chunks(lambda x: np.full(len(x), "yes"), ROWS)


@pytest.mark.slow_variants("inside a program-64", "inside a program-8")
@pytest.mark.parametrize("size", [1, 8, 37, 64])
@pytest.mark.parametrize("work", [map_rows, map_blocks], ids=["inside a program", "a call per block"])
def test_blocks_of_rows_give_what_all_rows_give(work, size):
    rows = (jnp.asarray(ROWS), jnp.arange(37))
    shapes = set()

    def function(block):
        shapes.add(block[0].shape)
        return {"sums": block[0].sum(axis=1), "rows": 2 * block[0], "positions": block[1]}

    results = work(function, rows, size)
    assert len(shapes) == 1
    np.testing.assert_allclose(results["sums"], ROWS.sum(axis=1), rtol=1e-14)
    np.testing.assert_array_equal(results["rows"], 2 * ROWS)
    np.testing.assert_array_equal(results["positions"], np.arange(37))


@pytest.mark.slow_variants("3")
@pytest.mark.parametrize("num_draws", [3, 50])
def test_blocks_of_draws_and_points_give_what_one_call_gives(num_draws):
    coefficients = np.random.default_rng(1).normal(size=(2, num_draws, 4))
    function = RKHSFunction.over_draws(RBF(), ROWS[:4], coefficients, 0.5, batch_shape=(2, num_draws))
    shapes = set()

    def solve(part, rows):
        shapes.add((part.batch_shape, rows.shape))
        return part(rows), None

    values, nothing = in_blocks(solve, function, jnp.asarray(ROWS), instances_at_once=16, label="test", progress=False)
    assert nothing is None
    assert len(shapes) == 1
    np.testing.assert_allclose(values, function(ROWS), rtol=1e-12)


def test_threads_change_no_result_and_compile_once():
    double = jax.jit(lambda block: {"double": 2.0 * block})
    one, several = (map_blocks(double, ROWS, 4, threads=threads) for threads in (1, 4))
    np.testing.assert_array_equal(several["double"], 2.0 * ROWS)
    np.testing.assert_array_equal(several["double"], one["double"])
    assert double._cache_size() == 1


def test_an_error_in_a_thread_is_raised():
    def fails(block):
        if 36 in block[:, 0]:
            raise ValueError("the last block")
        return block

    with pytest.raises(ValueError, match="the last block"):
        map_blocks(fails, np.arange(37.0)[:, None], 4, threads=4)


def test_even_blocks_are_no_larger_than_allowed_and_waste_little():
    assert [even_size(count, 4) for count in (1, 4, 5, 9, 12)] == [1, 4, 3, 3, 4]


def test_in_a_log_a_progress_bar_is_lines_with_the_time_that_is_left(capsys, monkeypatch):
    monkeypatch.setattr(batching, "_PAUSE", 0.0)
    with batching.progress_bar(3, "fit", delay=0.0) as bar:
        for _ in range(3):
            bar.update()
    lines = capsys.readouterr().err.split("\n")
    assert lines[-1] == ""
    assert all(line.startswith("fit: ") and "\r" not in line for line in lines[:-1])
    assert any(line.startswith("fit:  67%") and "<" in line for line in lines)  # [elapsed<left]


def test_a_bar_says_what_it_waits_for_if_that_takes_long(capsys, monkeypatch):
    monkeypatch.setattr(batching, "_PAUSE", 0.0)
    with batching.progress_bar(2, "slow", delay=0.0) as slow, batching.announce(slow, "compiling"):
        time.sleep(0.3)  # a timer writes the text at once; the pause is for a busy machine
    with batching.progress_bar(2, "quick", delay=60.0) as quick, batching.announce(quick, "compiling"):
        pass
    written = capsys.readouterr().err
    assert "slow:   0%" in written
    assert "compiling" in written
    assert "quick" not in written
