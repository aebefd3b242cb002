"""What users hand in is read or refused with a message that names the argument, what came and what is needed."""

import logging

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from kpp.foundation import validation

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
    "labels of text": (
        lambda: validation.as_binary_labels(["no", "yes"]),
        "text such as 'no'; write `y == 'no'`, or take",
    ),
    "text in a column": (lambda: validation.as_binary_labels(pd.Series(["a", "b"])), "write `y == 'a'`"),
    "text of objects": (lambda: validation.as_binary_labels(np.array([0, "b"], object)), "text such as 'b'"),
    "one class": (lambda: validation.as_binary_labels([1, 1, 1]), r"both labels 0 and 1, got only 1 in 3 rows"),
}

REFUSED_SETTINGS = {
    "no choice": (lambda: validation.one_of("x", "link", ("a", "b")), r"`link` must be one of \('a', 'b'\), got 'x'$"),
    "near miss": (
        lambda: validation.one_of("logitt", "link", ["logit", "probit"]),
        r"'logitt'; did you mean 'logit'\?",
    ),
    "a flag": (lambda: validation.one_of(True, "size", (1, 2)), r"`size` must be one of \(1, 2\), got True"),
    "an array": (lambda: validation.one_of(np.ones(2), "link", ("a",)), r"must be one of \('a',\), got \[1., 1.\]"),
    "too few": (lambda: validation.count(0, "num"), "`num` must be at least 1, got 0"),
    "a float": (lambda: validation.count(2.0, "num", 2), "`num` must be an integer of at least 2, got 2.0"),
    "a boolean": (lambda: validation.count(True, "num"), "`num` must be an integer of at least 1, got True"),
    "too many": (
        lambda: validation.count(5, "num", most=4, most_is="the number of rows"),
        r"`num` must be between 1 and 4 \(the number of rows\), got 5",
    ),
    "half": (lambda: validation.count(0.5, "num", most=4), "`num` must be an integer between 1 and 4, got 0.5"),
    "below": (lambda: validation.at_least(-0.1, "noise", 0), "`noise` must be at least 0, got -0.1"),
    "below, NaN": (lambda: validation.at_least(np.nan, "noise", 0), "`noise` must be at least 0, got nan"),
    "text": (lambda: validation.at_least("many", "noise", 0), "`noise` must be a number, got str 'many'"),
    "ragged": (lambda: validation.at_least([[1], [1, 2]], "noise", 0), "`noise` must be a number, got list"),
    "a flag as a number": (lambda: validation.positive(True, "noise"), "`noise` must be a number, got bool True"),
    "zero": (lambda: validation.positive(0.0, "step"), "`step` must be positive, got 0.0"),
    "one zero": (lambda: validation.positive(jnp.array([1.0, 0.0]), "step"), r"must be positive, got \[1., 0.\]"),
    "infinite": (lambda: validation.positive(np.inf, "step"), "`step` must be positive and finite, got inf"),
    "outside": (lambda: validation.between(1.2, "share", 0, 1), "`share` must be between 0 and 1, got 1.2$"),
    "an end": (lambda: validation.probability(1.0, "level"), "between 0 and 1, got 1.0; 0 and 1 themselves are not"),
    "no level": (lambda: validation.probability(np.nan, "level"), "`level` must be between 0 and 1, got nan"),
}


@pytest.mark.parametrize("case", REFUSED_SETTINGS)
def test_settings_out_of_range_are_refused(case):
    call, message = REFUSED_SETTINGS[case]
    with pytest.raises(ValueError, match=message):
        call()


def test_settings_in_range_are_returned():
    ends = np.array([0.0, 1.0])
    assert validation.one_of(None, "link", ("a", None)) is None
    assert validation.one_of(np.str_("a"), "link", ("a", "b")) == "a"
    assert type(validation.count(np.int64(3), "num", 3, most=3)) is int
    assert validation.between(ends, "share", 0, 1) is ends
    assert validation.at_least(0, "noise", 0) == 0
    assert validation.positive(np.inf, "lengthscale", infinity_allowed=True) == np.inf
    assert validation.probability(0.5, "level") == 0.5


def test_values_of_traced_settings_are_trusted():
    assert jax.jit(lambda value: validation.positive(value, "step"))(-1.0) == -1.0
    assert jax.jit(lambda value: validation.between(value, "share", 0, 1))(2.0) == 2.0


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


@pytest.mark.parametrize("convert", [validation.as_finite_array, validation.finite_arrays])
def test_arrays_are_copied(convert, compilations):
    """JAX can share memory that begins at a multiple of 64 bytes; and a copy needs no program for its shape."""
    buffer = np.empty(64 * 13 + 64, dtype=np.uint8)
    start = -buffer.ctypes.data % 64
    values = buffer[start : start + 64 * 13].view(np.float64).reshape(8, 13)
    values[:] = 1.0
    array = convert(values, "x")
    values[:] = 2.0
    assert float(array.max()) == 1.0
    assert not [program for program in compilations if "max" not in str(program)]


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
