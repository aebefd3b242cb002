"""Bars: places are in the picture, arrows point in the direction of the change."""

from __future__ import annotations

import re

import pytest

from kpp_study.report.bars import Scale, bar, step


def test_a_scale_maps_its_range_to_the_width():
    scale = Scale([-1.0, 3.0], margin=0.0)
    assert [scale(value) for value in (-1.0, 0.0, 3.0)] == ["0", "25", "100"]
    assert [scale(value) for value in (-5.0, 9.0)] == ["0", "100"]


def test_a_scale_of_one_value_is_defined():
    assert Scale([2.0, 2.0])(2.0) == "0"


@pytest.mark.parametrize(("size", "kind", "tip"), [(5.0, "up", 75.0), (-2.0, "down", 40.0)])
def test_an_arrow_ends_at_the_new_value(size, kind, tip):
    picture = step(Scale([0.0, 20.0], margin=0.0), 10.0, size, [-1.0, 1.0], base=0.0)
    path = re.search(rf'class="{kind}" d="([^"]+)"', picture)[1]
    assert path.startswith("M50 1H")
    assert f"L{tip:g} 5" in path
    assert 'class="ci" d="M45 5H55"' in picture


def test_a_step_of_zero_has_no_arrow():
    assert "up" not in step(Scale([0.0, 1.0]), 0.5, 0.0, None, base=0.0)


def test_a_bar_starts_at_zero():
    picture = bar(Scale([0.0, 4.0], margin=0.0), 1.0, [0.5, 2.0])
    assert 'd="M0 1H25V9H0z"' in picture
    assert 'd="M12.5 5H50"' in picture
