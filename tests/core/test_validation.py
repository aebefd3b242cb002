"""What users hand in is read or refused with a message that names the argument, what came and what is needed."""

import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kpp import validation

REFUSED = {
    "one dimension": (lambda: validation.as_points([1.0, 2.0]), r"`x` must have shape \(n, d\).*x\[:, None\]"),
    "three dimensions": (lambda: validation.as_points(np.zeros((2, 2, 2))), r"shape \(2, 2, 2\)"),
    "no rows": (lambda: validation.as_points(np.zeros((0, 3))), r"at least one row.*\(0, 3\)"),
    "no columns": (lambda: validation.as_points(np.zeros((3, 0))), r"at least one row and one column"),
    "text": (lambda: validation.as_points([["a"]]), r"`x` must hold real numbers"),
    "complex": (lambda: validation.as_points([[1j]]), r"`x` must hold real numbers"),
    "complex JAX array": (lambda: validation.as_points(jnp.array([[1j]])), r"real numbers, got dtype complex"),
    "NaN": (lambda: validation.as_points([[1.0, np.nan]]), r"1 NaN and 0 infinite.*index \(0, 1\)"),
    "infinity": (lambda: validation.as_points([[np.inf, -np.inf]]), r"0 NaN and 2 infinite"),
    "columns": (lambda: validation.as_points(np.zeros((2, 3)), num_features=2), r"must have 2 columns"),
    "column of targets": (lambda: validation.as_targets(np.zeros((3, 1))), r"`y` must have shape \(n,\).*y\[:, 0\]"),
    "no targets": (lambda: validation.as_targets([]), r"at least one value"),
    "rows": (lambda: validation.as_targets([1.0, 2.0], 3), r"same number of rows, got 3 and 2"),
    "labels": (lambda: validation.as_binary_labels([0, 2]), r"labels 0 and 1, got the values 0, 2"),
    "signed labels": (lambda: validation.as_binary_labels([-1, 1]), r"\(y \+ 1\) / 2"),
    "one class": (lambda: validation.as_binary_labels([1, 1, 1]), r"both labels 0 and 1, got only 1 in 3 rows"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused(case):
    call, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("rng_key", [0, np.int64(3), None, np.zeros(2), jax.random.split(jax.random.key(0))])
def test_only_a_single_key_is_a_key(rng_key):
    with pytest.raises(TypeError, match="`rng_key` must be a single JAX random key"):
        validation.check_rng_key(rng_key)


def test_an_integer_seed_gets_the_fix():
    with pytest.raises(TypeError, match=r"write jax\.random\.key\(7\)"):
        validation.check_rng_key(7)


def test_typed_and_raw_keys_pass():
    for key in (jax.random.key(0), jax.random.PRNGKey(0)):
        assert validation.check_rng_key(key) is not None


@pytest.mark.parametrize(
    "values", [[[1, 2]], np.ones((1, 2), bool), jnp.ones((1, 2), jnp.int32), np.ones((1, 2), "f4")]
)
def test_real_numbers_become_the_default_float(values):
    points = validation.as_points(values)
    assert points.dtype == jnp.result_type(float)
    np.testing.assert_array_equal(points, np.asarray(values, float))


def test_shapes_are_checked_and_values_trusted_in_traced_code():
    traced = jax.jit(validation.as_points)
    assert traced(np.array([[np.nan]])).shape == (1, 1)
    with pytest.raises(ValueError, match="shape"):
        jax.jit(validation.as_points)(np.zeros(3))


def test_float32_is_warned_of_once(caplog, monkeypatch):
    monkeypatch.setattr(validation, "_warned_float32", False)
    with caplog.at_level(logging.WARNING, logger="kpp"):
        validation.warn_if_float32("GPRegression")
        assert not caplog.records
        with jax.enable_x64(False):
            validation.warn_if_float32("GPRegression")
            validation.warn_if_float32("GPRegression")
    assert len(caplog.records) == 1
    assert "jax_enable_x64" in caplog.text
