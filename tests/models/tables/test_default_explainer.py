"""`kpp.explain(fit, x)` of any model of tables is interventional RKHS-SHAP with the training data as background."""

from __future__ import annotations

import numpy as np
import pytest

import kpp
from kpp.gp import PoissonLikelihood, SoftmaxLikelihood
from kpp.kernels import RBF
from kpp_models import GeneralizedGP, GPClassification, GPRegression, KernelLogistic, KernelRidge, MultiLatentGP

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 2))
COUNTS = RNG.integers(0, 3, 12).astype(float)
MODELS = {
    "ridge": (KernelRidge(RBF(1.0), regularization=0.1), X[:, 0]),
    "logistic": (KernelLogistic(RBF(1.0), regularization=0.1), COUNTS > 0),
    "regression": (GPRegression(RBF(1.0), noise_variance=0.1), X[:, 0]),
    "classification": (GPClassification(RBF(1.0)), COUNTS > 0),
    "counts": (GeneralizedGP(RBF(1.0), PoissonLikelihood()), COUNTS),
    "classes": (MultiLatentGP(RBF(1.0), SoftmaxLikelihood(), latent="inducing", num_inducing=4), COUNTS),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_fit_and_rows_are_enough(name: str):
    model, y = MODELS[name]
    model, data, schema = model.prepare(X, y)
    draws = {"inducing_whitened": RNG.normal(size=(1, 1, 4, 3))} if name == "classes" else {}
    fit = kpp.Fit(model, None, data, schema, draws, kpp.MAP(progress=False))  # explanations need no groups of ArviZ
    default = kpp.explain(fit, X[:3], progress=False)
    record = {key: default.attrs[key] for key in ("explainer", "value_function", "background", "background_size")}
    assert record == {
        "explainer": "rkhs-shap",
        "value_function": "interventional",
        "background": "training data",
        "background_size": 12,
    }
    options = {"explainer": "rkhs-shap", "value_function": "interventional", "background": X, "progress": False}
    np.testing.assert_array_equal(default.values, kpp.explain(fit, X[:3], **options).values)
    assert float(default.additivity_error().max()) < 1e-8
