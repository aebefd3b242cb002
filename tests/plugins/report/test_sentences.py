"""What a report says about contributions: what is varied by each value function, and that they are not causal."""

from __future__ import annotations

import pytest

from kpp import registry
from kpp_study.report.sentences import explained

SAID = {
    "interventional": "background rows, whatever the others are, so correlated features are combined",
    "baseline": "keep the values of the baseline, whatever the others are",
    "observational": "how far knowing a feature moves the prediction",
    "causal": "setting a feature by intervention",
}


@pytest.mark.parametrize("name", sorted(registry.value_functions()))
def test_every_value_function_says_what_it_varies(name, make_explanation):
    text = explained(make_explanation(2, attrs={"value_function": name}))
    kind = name.partition("-")[0]
    assert SAID.get(kind, "what is predicted when no feature is known") in text
    assert ("They are not causal effects" in text) == (kind != "causal")
    assert ("how far knowing a feature" in text) == (kind == "observational")
