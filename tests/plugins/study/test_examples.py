"""The study of `make demo` is sound; running it in full takes minutes and is left to `make demo` itself."""

from __future__ import annotations

import importlib.util

from kpp_study.study.reading.kinds import read_data
from kpp_study.study.reported import describe_model
from kpp_study.study.sections.config import load_study


def test_the_diabetes_study_fits_its_data(root, tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("diabetes_data", root / "examples" / "diabetes_data.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    monkeypatch.setattr(script, "__file__", str(tmp_path / "diabetes_data.py"))
    script.main()
    (tmp_path / "diabetes.toml").write_text((root / "examples" / "diabetes.toml").read_text(encoding="utf-8"))
    config = load_study(tmp_path / "diabetes.toml")
    data = read_data(config.data)
    assert data.x.shape == (442, 10)
    config.model.prepare(*data.training)
    inference = config.inference
    assert (inference.num_chains, inference.num_warmup, inference.num_samples) == (2, None, 500)
    assert config.explainer.instances == 40
    assert config.explainer.options == {"value_function": "interventional"}
    name, text = describe_model(config.model)
    assert name == "GPRegression"
    assert "lengthscale ~ LogNormal(loc=1.0, scale=1.0), 10 independent" in text
