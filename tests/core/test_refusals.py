"""Values that would be read as something else are refused where they come in: a table of values and of entries."""

from __future__ import annotations

import dataclasses
import datetime

import jax
import numpy as np
import pandas as pd
import pytest
from numpyro import distributions as dist

import kpp
from kpp import priors, registry
from kpp.data import tables
from kpp.foundation import validation
from kpp.kernels import RBF, AbstractKernel, Categorical, Linear, Matern52, Periodic, Polynomial
from kpp.storage import serialization

DAYS = np.array(["2024-01-01", "2024-02-01", "2024-03-01", "2024-04-01"], dtype="datetime64[D]")
MASKED = np.ma.masked_array([1.0, 2.0, 3.0, 4.0], mask=[False, True, False, False])


def fields_of(cls):
    """The names of the fields of a class."""
    return [field.name for field in dataclasses.fields(cls)]


# Four entries each; a column of them is not a column of numbers.
STRANGE = {
    "dates of NumPy": (DAYS, "dates or times"),
    "durations": (DAYS - DAYS[0], "dates or times"),
    "times of pandas": (pd.date_range("2024", periods=4).to_numpy(), "dates or times"),
    "times in a zone": (np.array(list(pd.date_range("2024", periods=4, tz="UTC")), dtype=object), "dates or times"),
    "dates of Python": (
        np.array([datetime.date(2024, 1, day) for day in (1, 2, 3, 4)], dtype=object),
        "dates or times",
    ),
    "times of day": (np.array([datetime.time(hour) for hour in (1, 2, 3, 4)], dtype=object), "dates or times"),
    "periods": (np.array(list(pd.period_range("2024", periods=4, freq="M")), dtype=object), "dates or times"),
    "intervals": (np.array(list(pd.interval_range(0, 4)), dtype=object), "real numbers"),
    "no times": (np.array([pd.NaT, *pd.date_range("2024", periods=3)], dtype=object), "dates or times"),
    "complex numbers": (np.array([1.0, 2.0, 3.0, 4.0 + 1j]), "complex"),
    "text": (np.array(["a", "b", "c", "d"]), "text"),
    "numbers as text": (np.array(["1", "2", "3", "4"]), "text"),
    "text among numbers": (np.array([1.0, "2", 3.0, 4.0], dtype=object), "text"),
    "masked entries": (MASKED, "1 masked"),
    "NaN": (np.array([1.0, np.nan, 3.0, 4.0]), r"\d NaN"),
    "infinity": (np.array([1.0, np.inf, 3.0, 4.0]), r"\d infinite"),
    "nothing": (np.array([1.0, None, 3.0, 4.0], dtype=object), r"NoneType|\d NaN"),
}
ARRAYS = {
    "finite array": (lambda column: validation.as_finite_array(column, "a"), "`a`"),
    "points": (lambda column: validation.as_points(column[:, None]), "`x`"),
    "targets": (lambda column: validation.as_targets(column), "`y`"),
    "labels": (lambda column: validation.as_binary_labels(column), "`y`"),
    "table": (lambda column: tables.read_points(column[:, None]), "`x`"),
    "schema": (lambda column: tables.Schema(("a",)).read(column[:, None], "points"), "`points`"),
}


@pytest.mark.parametrize("strange", STRANGE)
@pytest.mark.parametrize("entry", ARRAYS)
def test_arrays_are_refused(entry, strange):
    (read, argument), (column, message) = ARRAYS[entry], STRANGE[strange]
    with pytest.raises(ValueError, match=f"{argument}.*({message})"):
        read(column)


@pytest.mark.parametrize("rows", [list(MASKED), [list(MASKED), [1.0] * 4], [MASKED, MASKED], (MASKED, np.ones(4))])
def test_masked_parts_of_a_list_are_refused(rows):
    with pytest.raises(ValueError, match="`a` has 1 masked entries"):
        validation.as_finite_array(rows, "a")


# Each model that takes a table of numbers and as many targets.
FITTED = sorted({"GPRegression", "GPClassification", "KernelRidge", "KernelLogistic"} & set(registry.models()))


def example(name):
    model, x, y = next(iter(registry.models()[name].examples(jax.random.key(0))))
    return model, np.array(x), np.array(y)


@pytest.mark.parametrize("strange", STRANGE)
@pytest.mark.parametrize("place", ["x", "y"])
@pytest.mark.parametrize("name", FITTED)
def test_models_refuse_them(name, place, strange):
    model, x, y = example(name)
    column, message = STRANGE[strange]
    if isinstance(column, np.ma.MaskedArray):
        bad = {"x": np.ma.masked_array(x, mask=np.eye(len(x), x.shape[1])), "y": np.ma.masked_array(y, mask=y * 0 == 0)}
        message = "masked"
    else:
        bad = {"x": x.astype(object), "y": y.astype(object)}
        bad[place][:4, ...] = column.reshape(4, *[1] * (bad[place].ndim - 1)).astype(object)
        message += "|must hold real numbers"
    arguments = {"x": x, "y": y, place: bad[place]}
    with pytest.raises(ValueError, match=f"`{place}`.*({message})"):
        model.fit(jax.random.key(0), arguments["x"], arguments["y"])


# Columns of text and of intervals are categories, and a data frame has no masks.
READABLE = ("text", "numbers as text", "text among numbers", "intervals", "masked entries")
COLUMNS = {name: strange for name, strange in STRANGE.items() if name not in READABLE}


@pytest.mark.parametrize("strange", COLUMNS)
def test_columns_of_data_frames_are_refused_by_name(strange):
    column, _ = COLUMNS[strange]
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0, 4.0], "b": pd.Series(column)})
    with pytest.raises(ValueError, match="`x`"):
        tables.read_points(frame)
    numbers = tables.read_points(frame[["a"]].assign(b=1.0))[1]
    with pytest.raises(ValueError, match="`points`"):
        numbers.read(frame, "points")


@pytest.mark.parametrize("code", [7.0, 0.5, -1.0, 2.0])
def test_codes_outside_of_the_levels_are_refused(code):
    _, schema = tables.read_points(pd.DataFrame({"a": [1.0, 2.0], "b": ["no", "yes"]}))
    np.testing.assert_array_equal(schema.read(np.array([[0.3, 1.0]])), [[0.3, 1.0]])
    with pytest.raises(
        ValueError, match=rf"`x` must hold codes from 0 to 1 in the categorical column 'b', got {code:g}"
    ):
        schema.read(np.array([[0.3, code]]))


NEGATIVE = {
    "Normal": dist.Normal(0.0, 1.0),
    "Normal of three": dist.Normal(0.0, 1.0).expand([3]).to_event(1),
    "StudentT": dist.StudentT(3.0),
    "Uniform": dist.Uniform(-1.0, 2.0),
    "TruncatedNormal": dist.TruncatedNormal(0.0, 1.0, low=-1.0),
}
NOT_NEGATIVE = {
    "LogNormal": dist.LogNormal(0.0, 1.0),
    "HalfNormal": dist.HalfNormal(1.0),
    "Gamma": dist.Gamma(2.0, 1.0),
    "Uniform": dist.Uniform(0.0, 2.0),
    "TruncatedNormal": dist.TruncatedNormal(0.0, 1.0, low=0.0),
    "Delta": dist.Delta(1.0),
    "ImproperUniform": dist.ImproperUniform(dist.constraints.positive, (), ()),
}
PARAMETERS = {
    "RBF.lengthscale": (lambda prior: RBF(prior), "lengthscale"),
    "RBF.variance": (lambda prior: RBF(1.0, prior), "variance"),
    "Matern52.lengthscale": (lambda prior: Matern52(prior), "lengthscale"),
    "Periodic.period": (lambda prior: Periodic(period=prior), "period"),
    "Linear.variance": (lambda prior: Linear(prior), "variance"),
    "Polynomial.offset": (lambda prior: Polynomial(2, offset=prior), "offset"),
    "Scaled.variance": (lambda prior: RBF() * prior, "variance"),
    "GPRegression.noise_variance": (lambda prior: registry.models()["GPRegression"](RBF(), prior), "noise_variance"),
}


@pytest.mark.parametrize("prior", NEGATIVE)
@pytest.mark.parametrize("parameter", PARAMETERS)
def test_priors_with_negative_draws_are_refused(parameter, prior):
    build, name = PARAMETERS[parameter]
    with pytest.raises(ValueError, match=rf"`{name}` must be .*|`{name}` must be one number"):
        build(NEGATIVE[prior])


@pytest.mark.parametrize("prior", NOT_NEGATIVE)
@pytest.mark.parametrize("parameter", PARAMETERS)
def test_priors_without_negative_draws_are_accepted(parameter, prior):
    assert priors.has_priors(PARAMETERS[parameter][0](NOT_NEGATIVE[prior]))


def test_a_correlation_has_a_prior_between_0_and_1():
    kpp.kernels.Categorical(dist.Beta(1.0, 1.0))
    with pytest.raises(ValueError, match="`correlation` must be between 0 and 1, but its prior LogNormal"):
        Categorical(dist.LogNormal(0.0, 1.0))


@pytest.mark.parametrize("parameter", ["RBF.variance", "Linear.variance", "Polynomial.offset", "Scaled.variance"])
def test_infinite_variances_are_refused(parameter):
    build, name = PARAMETERS[parameter]
    with pytest.raises(ValueError, match=f"`{name}` must be finite, got inf"):
        build(np.inf)


@pytest.mark.parametrize("wrong", ["rkhs-shap", 3.0, dist.LogNormal(0.0, 1.0)], ids=["name", "number", "prior"])
@pytest.mark.parametrize("name", registry.models())
def test_models_refuse_what_is_no_kernel(name, wrong):
    model = next(iter(registry.get("models", name).examples(jax.random.key(0))))[0]
    for field in fields_of(model):
        if isinstance(getattr(model, field), AbstractKernel):
            # The last one where annotated types are checked at every call.
            message = f"`{field}` must be a kernel, got {type(wrong).__name__}|is a fit without priors|Type-check error"
            with pytest.raises((TypeError, ValueError), match=message):
                dataclasses.replace(model, **{field: wrong})


@pytest.mark.parametrize("name", list(registry.explainers()))
def test_an_explainer_s_name_is_refused_where_a_kernel_is_expected(name):
    spec = {"name": "GPRegression", "kernel": {"name": name}, "noise_variance": 1.0}
    with pytest.raises(
        ValueError, match=f"`kernel`: needs a kernel, got '{name}', which is registered among explainers"
    ):
        serialization.from_spec(spec, "models")


@pytest.mark.parametrize("length", [-1, 0])
def test_shapes_of_priors_have_at_least_one_number(length):
    with pytest.raises(ValueError, match=rf"`lengthscale` must have a prior .* got shape \({length},\)"):
        RBF(dist.LogNormal(0.0, 1.0).expand([length]))
    prior = {"prior": "LogNormal", "expand": [length]}
    with pytest.raises(ValueError, match=r"`lengthscale` must have a prior"):
        serialization.from_spec({"name": "RBF", "lengthscale": prior}, "kernels")


def test_counts_beyond_exact_floats_are_refused():
    assert validation.count(2**53, "n") == 2**53
    with pytest.raises(ValueError, match=r"`n` must be at most 2\*\*53, .* got 9007199254740993"):
        validation.count(2**53 + 1, "n")


@pytest.mark.parametrize("name", [name for name, cls in registry.models().items() if "num_inducing" in fields_of(cls)])
def test_numbers_of_inducing_points_are_counts(name):
    examples = [example[0] for example in registry.get("models", name).examples(jax.random.key(0))]
    model = next((model for model in examples if model.num_inducing is not None), examples[0])
    for number in (0, -1, True, 2**60):
        with pytest.raises(ValueError, match="`num_inducing` (must be|goes with)"):
            dataclasses.replace(model, num_inducing=number)
