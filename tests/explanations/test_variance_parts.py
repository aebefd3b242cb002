"""What a variance comes from: parts that add up, and come along wherever the explanation goes."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from kpp.explanations import Explanation
from kpp.storage import arviz_data

PARTS = ("boundary", "approximation")


@pytest.fixture(params=["plain", "outputs", "draws"])
def parts(request, points):
    shape = {"plain": points.shape, "outputs": (*points.shape, 2), "draws": (2, 3, *points.shape)}[request.param]
    rng = np.random.default_rng(5)
    return {name: rng.random(shape) for name in PARTS}


def explain(parts, points, **options):
    values = np.ones_like(parts["boundary"])
    draws = values.ndim == 4
    predictions = values.sum(axis=-1) if draws else values.sum(axis=1)
    base = np.zeros((2, 3)) if draws else 0.0
    return Explanation.create(values, base, predictions, points, draws=draws, variance_parts=parts, **options)


def test_their_sum_is_the_variance_where_none_is_given(parts, points):
    explanation = explain(parts, points)
    np.testing.assert_allclose(explanation.variance.values, parts["boundary"] + parts["approximation"], rtol=1e-15)
    assert explanation.variance_parts.dims == (*explanation.values.dims, "part")
    assert explanation.variance_parts.coords["part"].values.tolist() == list(PARTS)
    for name in PARTS:
        np.testing.assert_array_equal(explanation.variance_parts.sel(part=name).values, parts[name])
    assert "variance_parts" in repr(explanation)


def test_they_go_with_a_covariance_of_the_same_diagonal(points):
    variance = np.random.default_rng(6).random(points.shape)
    covariance = np.einsum("pi,pj->pij", np.sqrt(variance), np.sqrt(variance))
    parts = {"boundary": 0.25 * variance, "approximation": 0.75 * variance}
    explanation = explain(parts, points, covariance=covariance)
    assert "variance" not in explanation.dataset
    np.testing.assert_allclose(explanation.variance_parts.sum("part"), explanation.variance, rtol=1e-14)
    with pytest.raises(ValueError, match="`variance_parts` must add up to the variance"):
        explain(parts, points, covariance=1.01 * covariance)


def test_bad_parts_are_refused(points):
    good = {name: np.ones(points.shape) for name in PARTS}
    for parts, match in (
        ({}, "at least one name"),
        ({**good, "boundary": -good["boundary"]}, r"`variance_parts\['boundary'\]` must not be negative"),
        ({**good, "boundary": good["boundary"][:2]}, r"`variance_parts\['boundary'\]` must have shape"),
    ):
        with pytest.raises(ValueError, match=match):
            Explanation.create(points, 0.0, points.sum(axis=1), points, variance_parts=parts)
    with pytest.raises(ValueError, match="miss it by up to 1"):
        explain(good, points, variance=np.ones(points.shape))


def test_they_come_along_into_selections_files_arviz_and_tables(parts, points, tmp_path):
    explanation = explain(parts, points)
    some = explanation[1:3]
    xr.testing.assert_equal(some.variance_parts, explanation.variance_parts.isel(instance=slice(1, 3)))
    explanation.save(tmp_path / "e.nc")
    xr.testing.assert_equal(Explanation.load(tmp_path / "e.nc").dataset, explanation.dataset)
    constant = arviz_data.groups(explanation.to_arviz())["constant_data"]
    np.testing.assert_array_equal(constant["variance_parts"].values, explanation.variance_parts.values)
    assert explanation.mean().variance_parts is None
    if not explanation.has_draws:
        frame = explanation.to_dataframe()
        total = frame["std_boundary"] ** 2 + frame["std_approximation"] ** 2
        np.testing.assert_allclose(total, frame["std"] ** 2, rtol=1e-13)


def test_one_output_keeps_its_parts(points):
    parts = {name: np.arange(points.size * 2.0).reshape(*points.shape, 2) for name in PARTS}
    one = explain(parts, points).isel(output=1)
    np.testing.assert_array_equal(one.variance_parts.sel(part="boundary").values, parts["boundary"][..., 1])
