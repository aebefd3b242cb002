"""What an Explanation holds, how its parts are named, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from kpp import registry
from kpp.explanations import AbstractExplainer, AbstractPointsExplainer, Explanation

SHAPES = [
    (False, False, ("instance", "feature")),
    (False, True, ("instance", "feature", "output")),
    (True, False, ("chain", "draw", "instance", "feature")),
    (True, True, ("chain", "draw", "instance", "feature", "output")),
]


@pytest.mark.parametrize(("draws", "outputs", "dims"), SHAPES)
def test_dimensions_and_coordinates_are_named(make, draws, outputs, dims):
    explanation = make(draws, outputs)
    assert explanation.values.dims == dims
    assert explanation.predictions.dims == tuple(dim for dim in dims if dim != "feature")
    assert explanation.base_values.dims == tuple(dim for dim in dims if dim not in ("feature", "instance"))
    assert explanation.data.dims == ("instance", "feature")
    assert set(explanation.dataset.coords) == set(dims)
    assert explanation.feature_names == ("age", "bmi", "region")
    assert explanation.output_names == (("no", "yes") if outputs else None)
    assert explanation.has_draws is draws
    assert len(explanation) == 5
    assert explanation.schema.levels == {"region": ("north", "south", "west")}


@pytest.mark.parametrize(("draws", "outputs", "dims"), SHAPES)
def test_additivity_error_is_the_gap(make, draws, outputs, dims):
    explanation = make(draws, outputs)
    error = explanation.additivity_error()
    assert set(error.dims) == set(dims) - {"feature"}
    assert float(error.max()) < 1e-14
    broken = explanation.dataset.assign(predictions=explanation.predictions + 0.5)
    np.testing.assert_allclose(Explanation(broken).additivity_error(), 0.5, rtol=1e-12)


def test_base_values_may_differ_between_instances_or_be_one_number():
    data = np.zeros((4, 2))
    own = Explanation.create(data, np.arange(4.0), np.arange(4.0), data)
    assert own.base_values.dims == ("instance",)
    assert float(own.additivity_error().max()) == 0.0
    one = Explanation.create(np.zeros((2, 3, 4, 2)), 7.0, np.full((2, 3, 4), 7.0), data, draws=True)
    assert one.base_values.dims == ("chain", "draw")
    assert one.feature_names == ("x0", "x1")


def test_attributes_are_json_and_carry_versions(make):
    attrs = make().attrs
    assert attrs["seed"] is None
    assert attrs["options"] == {"nodes": 3, "names": ["a"]}
    assert set(attrs["versions"]) >= {"kpp", "jax"}


def test_float32_stays_float32():
    values = np.ones((2, 3), dtype=np.float32)
    explanation = Explanation.create(values, 0.0, np.full(2, 3.0, dtype=np.float32), values)
    assert explanation.values.dtype == np.float32


def test_text_says_what_it_is(make):
    text = repr(make(True, law="within"))
    for part in ("chain: 2", "instance: 5", "age", "covariance", "explainer='linear'"):
        assert part in text


GOOD = {
    "values": np.zeros((4, 2)),
    "base_values": 0.0,
    "predictions": np.zeros(4),
    "data": np.zeros((4, 2)),
}
WRONG = [
    ({"values": np.zeros(4)}, r"`values` must have shape \(instance, feature\[, output\]\), got shape \(4,\)"),
    ({"values": np.zeros((0, 2))}, "`values` must hold at least one"),
    ({"values": np.full((4, 2), np.nan)}, "`values` must be finite, got 8"),
    ({"values": np.full((4, 2), "a")}, "`values` must hold real numbers"),
    ({"predictions": np.zeros(3)}, r"`predictions` must have shape \(4,\)"),
    ({"predictions": np.array([0.0, np.inf, 0.0, 0.0])}, "`predictions` must be finite, got 1"),
    ({"data": np.zeros((4, 3))}, r"`data` must have shape \(4, 2\)"),
    ({"data": 5.0}, r"`data` must have shape \(4, 2\)"),
    ({"base_values": np.zeros(3)}, r"`base_values` must have shape \(4,\)"),
    ({"draws": True}, r"`values` must have shape \(chain, draw, instance, feature"),
    ({"feature_names": ["a"]}, "`feature_names` must have 2 entries, got 1"),
    ({"feature_names": ["a", "a"]}, "`feature_names` must differ"),
    ({"instance_names": ["a", "b"]}, "`instance_names` must have 4 entries"),
    ({"output_names": ["a"]}, "`output_names` go with an output dimension"),
    ({"variance": np.full((4, 2), -1.0)}, "`variance` must not be negative"),
    ({"covariance": np.zeros((4, 2))}, r"`covariance` must have shape \(4, 2, 2\)"),
    ({"covariance": np.zeros((4, 2, 2)), "variance": np.zeros((4, 2))}, "not both"),
    ({"attrs": {"function": np.sin}}, "`attrs` must be values that JSON can hold"),
]


@pytest.mark.parametrize(("change", "message"), WRONG, ids=[message[:40] for _, message in WRONG])
def test_bad_parts_are_refused_by_name(change, message):
    with pytest.raises(ValueError, match=message):
        Explanation.create(**{**GOOD, **change})


def test_names_and_schema_exclude_each_other(schema):
    with pytest.raises(ValueError, match="`feature_names` or `schema`"):
        Explanation.create(np.zeros((1, 3)), 0.0, [0.0], np.zeros((1, 3)), schema=schema, feature_names=["a", "b", "c"])


def test_all_explainers_of_this_repository_read_their_inputs_in_the_same_way():
    ours = [cls for cls in registry.explainers().values() if cls.__module__.startswith("kpp_")]
    assert len(ours) > 10
    assert all(issubclass(cls, AbstractPointsExplainer) for cls in ours)


def test_an_explainer_must_declare_what_it_needs():
    with pytest.raises(TypeError, match=r"`Undeclared` lacks the fields \['additive', 'requires'\]"):

        class Undeclared(AbstractExplainer):
            def explain(self, predictor, x, *, rng_key=None):
                raise NotImplementedError


def test_a_dataset_that_is_no_explanation_is_refused(make):
    dataset = make(True).dataset
    bad = {
        "`dataset` must have the array 'data'": dataset.drop_vars("data"),
        r"`values` must have dimensions \(\[chain": dataset.assign(values=dataset["values"].rename(instance="row")),
        "got \\('chain', 'feature'": dataset.isel(draw=0, instance=0),
        "`covariance` must be finite, got 1 ": dataset.assign(covariance=np.nan),
        "`predictions` must hold real numbers": dataset.assign(predictions=dataset["predictions"].astype(str)),
    }
    for message, wrong in bad.items():
        with pytest.raises(ValueError, match=message):
            Explanation(wrong)
    with pytest.raises(TypeError, match="`dataset` must be an xarray.Dataset, got dict"):
        Explanation({"values": 1.0})
