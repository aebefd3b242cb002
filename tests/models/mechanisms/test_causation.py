"""Bounds of probabilities of causation against linear programs over all laws of potential outcomes."""

from __future__ import annotations

import numpy as np
import pytest

from kpp_models import causation_bounds
from oracles.causation import TYPES, frequencies, probabilities, sharp_bounds

MONOTONE = np.array([without <= with_treatment for _, without, with_treatment in TYPES])


def weights_of(seed, shape=()):
    return np.random.default_rng(seed).dirichlet(np.full(len(TYPES), 0.5), shape)


@pytest.mark.parametrize("seed", range(8))
def test_the_bounds_are_sharp(seed):
    seen = frequencies(weights_of(seed))
    found, expected = causation_bounds(*seen), sharp_bounds(*seen)
    for name in ("PNS", "PN", "PS"):  # the programs are solved to 1e-7
        np.testing.assert_allclose(found[name], expected[name], atol=1e-6)


def test_they_hold_for_each_draw_and_are_equal_to_the_value_if_the_treatment_never_harms():
    draws = weights_of(0, 5) * MONOTONE
    draws /= draws.sum(1, keepdims=True)
    found = causation_bounds(*map(np.array, zip(*map(frequencies, draws), strict=True)))
    for name in ("PNS", "PN", "PS"):
        expected = [probabilities(draw)[name] for draw in draws]
        np.testing.assert_allclose(found[name].sel(bound="lower"), expected, atol=1e-12)
        assert (found[name].sel(bound="upper") >= found[name].sel(bound="lower") - 1e-12).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"treated": 1.2}, "`treated` must be probabilities"),
        ({"joint": np.full((2, 2), 0.3)}, "sum to 1"),
        ({"joint": np.full(4, 0.25)}, r"shape \(2, 2\)"),
        ({"joint": np.array([[0.5, 0.0], [0.5, 0.0]])}, "units with X = Y = 1"),
        ({"untreated": 0.9}, "`untreated` contradicts `joint`.*between 0.2 and 0.7"),
    ],
)
def test_what_is_not_a_study_and_a_trial_is_refused(change, message):
    seen = {"treated": 0.6, "untreated": 0.4, "joint": np.array([[0.3, 0.2], [0.2, 0.3]])}
    with pytest.raises(ValueError, match=message):
        causation_bounds(**seen | change)
