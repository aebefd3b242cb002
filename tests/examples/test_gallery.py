"""The scripts of the gallery run, and what their figures are said to show holds."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("shap")


@pytest.mark.slow
def test_the_uncertainty_of_tree_shap_is_larger_near_the_boundary(load_script, tmp_path, capsys):
    load_script("gallery/gpec_tree_shap.py").main(tmp_path / "figure.png", num_rows=800)
    printed = capsys.readouterr().out
    assert (tmp_path / "figure.png").stat().st_size > 10_000
    pairs = re.findall(r"^(.*): ([\d.]+) .* boundary, ([\d.]+) beyond", printed, re.MULTILINE)
    assert len(pairs) == 3
    for name, near, far in pairs:
        assert float(near) > float(far), name
    covered = re.search(r"lies in (\d+)% of the 90 % intervals", printed)
    # Means over 1000 dependent attributions of one forest: a nominal 90 % within 10 %.
    assert 80 <= int(covered[1])
