"""The explained optimization: the values add up, and the table and the picture are made."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("botorch")


@pytest.mark.slow
def test_each_stage_is_explained(load_script, tmp_path, capsys):
    script = load_script("gallery/botorch_loop.py")
    stages = script.main(["--quick", "--output", str(tmp_path / "loop.png")])
    assert (tmp_path / "loop.png").stat().st_size > 10_000
    assert capsys.readouterr().out.count("predicted yield") == 3
    assert [stage.num_experiments for stage in stages] == [8, 12, 16]
    for stage in stages:
        explained = stage.explanation
        assert explained.additivity_error().max() < 1e-8
        assert (stage.standard_deviations > 0).all()
        assert stage.truth[3] == 0.0  # the stirrer
    background = script.uniform(128, 1)
    best = stages[-1].best
    gap = script.true_yield(best)[0] - script.true_yield(background).mean()
    np.testing.assert_allclose(stages[-1].truth.sum(), gap, rtol=1e-6)
