"""The catalog of small graphs against brute force: what the observed law determines, and which sets adjust."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from click.testing import CliRunner

from oracles import discrete_laws as oracle


@pytest.mark.slow
def test_all_questions_on_three_nodes_are_answered_as_brute_force_answers_them(load_script, tmp_path):
    """A set adjusts if its formula gives the effect of a random model; others miss it by more than rounding."""
    path = tmp_path / "catalog.jsonl"
    done = CliRunner().invoke(
        load_script("identification_catalog.py").main, ["--nodes", "3", "--output", path], catch_exceptions=False
    )
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert "35 effects are identified, 47 are not" in done.output and len(lines) == 82
    rng = np.random.default_rng(0)
    for line in lines:
        nodes, pairs = tuple(line["nodes"]), [[tuple(pair) for pair in line[kind]] for kind in ("edges", "bidirected")]
        model = oracle.DiscreteModel(rng, (nodes, *pairs, []), sizes=(2,))
        x, y = line["treatment"], line["outcome"]
        assert line["identified"] == model.determines([y], [x])
        if not line["identified"]:
            continue
        assert line["error"] < 1e-12  # some tens of products and sums of probabilities
        joint, truth = model.joint(), model.effect([y], [x])
        others = [node for node in nodes if node not in (x, y)]
        adjusting = []
        for size in range(len(others) + 1):
            for given in map(list, itertools.combinations(others, size)):
                law = joint.sum([node for node in others if node not in given])
                conditional, weights = law / law.sum(y), law.sum([x, y])
                if abs((conditional * weights).sum(given) - truth).max() < 1e-10:
                    adjusting.append(given)
        assert sorted(map(sorted, line["adjustment_sets"])) == sorted(map(sorted, adjusting)), line
