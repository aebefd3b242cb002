"""Selecting instances, outputs and draws."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (2, [2]),
        (-1, [4]),
        (slice(1, 3), [1, 2]),
        ([3, 0], [3, 0]),
        (np.array([True, False, False, False, True]), [0, 4]),
    ],
    ids=["integer", "negative", "slice", "list", "mask"],
)
def test_instances_are_selected_by_position(make, index, expected):
    explanation = make(True, law="across")
    part = explanation[index]
    assert part.values.coords["instance"].values.tolist() == expected
    assert part.covariance.sizes["instance_other"] == len(expected)
    np.testing.assert_array_equal(part.values, explanation.values.values[:, :, expected])
    np.testing.assert_array_equal(part.data, explanation.data.values[expected])
    assert part.attrs == explanation.attrs


def test_going_through_an_explanation_gives_one_instance_each(make):
    parts = list(make())
    assert [len(part) for part in parts] == [1] * 5


def test_an_output_selected_by_an_integer_is_dropped(make):
    explanation = make(True, outputs=True, law="within")
    one = explanation.isel(output=1)
    assert "output" not in one.dataset.dims
    assert one.output_names is None
    assert float(one.additivity_error().max()) < 1e-14
    assert explanation.isel(output=[1]).output_names == ("yes",)


def test_a_chain_can_be_selected(make):
    assert make(True).isel(chain=1).values.sizes["chain"] == 1


@pytest.mark.parametrize("indexers", [{"feature": 0}, {"nonsense": 0}, {"output": 0}])
def test_other_dimensions_are_refused(make, indexers):
    with pytest.raises(ValueError, match=r"`isel` selects along \['chain', 'draw', 'instance'\]"):
        make(True).isel(**indexers)


def test_a_position_out_of_range_is_an_index_error(make):
    with pytest.raises(IndexError):
        make()[5]
