"""Models of BoTorch with their transforms, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import kpp

torch = pytest.importorskip("torch")
pytest.importorskip("botorch")

from botorch.models import MixedSingleTaskGP, ModelListGP, MultiTaskGP, SingleTaskGP
from botorch.models.gpytorch import GPyTorchModel
from botorch.models.transforms import (
    ChainedOutcomeTransform,
    Log,
    Normalize,
    Standardize,
    Warp,
)
from botorch.models.transforms.input import (
    AffineInputTransform,
    ChainedInputTransform,
    InputStandardize,
)
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import LinearKernel, MaternKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean
from gpytorch.models import ExactGP

pytestmark = pytest.mark.filterwarnings("ignore::botorch.exceptions.InputDataWarning")

RNG = np.random.default_rng(0)
X = torch.as_tensor(RNG.uniform(-3.0, 8.0, size=(15, 3)))
Y = 30.0 * torch.sin(X[:, :1]) + X[:, 1:2] * X[:, 2:] + 100.0
X_TEST = torch.as_tensor(RNG.uniform(-3.0, 8.0, size=(6, 3)))
CODED, CODED_TEST = (torch.cat([x[:, :2], torch.round(x[:, 2:] / 4.0)], dim=1) for x in (X, X_TEST))
HALVED = AffineInputTransform(3, torch.full((1, 3), 2.0).double(), torch.full((1, 3), 0.7).double())

MODELS = {
    "default": lambda: SingleTaskGP(X, Y),
    "no outcome transform": lambda: SingleTaskGP(X, Y, outcome_transform=None),
    "known noise": lambda: SingleTaskGP(X, Y, 0.1 + Y.abs()),
    "Normalize": lambda: SingleTaskGP(X, Y, input_transform=Normalize(3)),
    "Normalize two features by bounds": lambda: SingleTaskGP(
        X, Y, input_transform=Normalize(3, indices=[2, 0], bounds=torch.tensor([[-4.0, -5.0], [9.0, 7.0]]).double())
    ),
    "chain": lambda: SingleTaskGP(
        X,
        Y,
        input_transform=ChainedInputTransform(first=InputStandardize(3), second=HALVED),
        outcome_transform=ChainedOutcomeTransform(first=Standardize(1), second=Standardize(1)),
    ),
    "Matern of some features": lambda: SingleTaskGP(
        X,
        Y,
        covar_module=ScaleKernel(MaternKernel(2.5, active_dims=(2, 0))) + MaternKernel(0.5, active_dims=(1,)),
        input_transform=Normalize(3),
    ),
    "mixed": lambda: MixedSingleTaskGP(CODED, Y, cat_dims=[2]),
    "mixed, Normalize": lambda: MixedSingleTaskGP(CODED, Y, cat_dims=[2], input_transform=Normalize(3, indices=[0, 1])),
    "one output of two": lambda: SingleTaskGP(X, torch.cat([Y, Y**2], dim=1)).subset_output([1]),
    "own model": lambda: Own(),
    "one model of a list": lambda: ModelListGP(SingleTaskGP(X, Y), SingleTaskGP(X, Y)).models[0],
}


@pytest.mark.parametrize("name", MODELS)
def test_predictions_and_covariances_agree(name):
    model = MODELS[name]().eval()
    x = CODED_TEST if "mixed" in name else X_TEST
    with torch.no_grad():
        law = model.posterior(x)
    posterior = kpp.as_gp_posterior(model)
    mean, covariance = law.mean[:, 0].numpy(), law.distribution.covariance_matrix.numpy()
    scale = np.abs(covariance).max()
    np.testing.assert_allclose(posterior.mean(x.numpy()), mean, rtol=0, atol=1e-9 * np.abs(mean).max())
    np.testing.assert_allclose(posterior.covariance(x.numpy(), x.numpy()), covariance, rtol=0, atol=1e-9 * scale)
    np.testing.assert_allclose(posterior.variance(x.numpy()), law.variance[:, 0], rtol=0, atol=1e-9 * scale)


class Own(ExactGP, GPyTorchModel):
    """A model of GPyTorch with BoTorch's interface and an input transform, so that both converters are asked."""

    _num_outputs = 1

    def __init__(self):
        super().__init__(X, Y[:, 0], GaussianLikelihood())
        self.mean_module, self.covar_module = ConstantMean(), ScaleKernel(MaternKernel(1.5))
        self.input_transform = AffineInputTransform(3, torch.full((1, 3), 2.0).double(), torch.zeros(1, 3).double())
        self.to(X)

    def forward(self, x):
        x = self.transform_inputs(x) if self.training else x
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


class Halved(SingleTaskGP):
    def posterior(self, X, *args, **kwargs):
        return super().posterior(X / 2.0, *args, **kwargs)


REFUSED = {
    "has 2 outputs": lambda: SingleTaskGP(X, torch.cat([Y, Y**2], dim=1)),
    "batches": lambda: SingleTaskGP(torch.stack([X, X]), torch.stack([Y, Y])),
    "input transform botorch.Warp": lambda: SingleTaskGP(X, Y, input_transform=Warp(3, [0])),
    "outcome transform botorch.Log": lambda: SingleTaskGP(X, Y, outcome_transform=Log()),
    "transform_on_eval=False": lambda: SingleTaskGP(X, Y, input_transform=Normalize(3, transform_on_eval=False)),
    "reverse=True": lambda: SingleTaskGP(X, Y, input_transform=Normalize(3, reverse=True)),
    "a Linear kernel behind": lambda: SingleTaskGP(X, Y, covar_module=LinearKernel(), input_transform=Normalize(3)),
    "`posterior` of its own": lambda: Halved(X, Y),
    "kernel botorch.PositiveIndexKernel|kernel gpytorch.IndexKernel|outputs|posterior": lambda: MultiTaskGP(
        CODED, Y, task_feature=2
    ),
}


@pytest.mark.parametrize(("message", "build"), REFUSED.items(), ids=REFUSED)
def test_what_has_no_counterpart_is_refused_by_name(message, build):
    with pytest.raises(ValueError, match=message):
        kpp.as_gp_posterior(build().eval())


def test_a_list_of_models_is_a_type_error():
    with pytest.raises(TypeError, match=r"convert one of `model.models`"):
        kpp.as_gp_posterior(ModelListGP(SingleTaskGP(X, Y)).eval())


def test_a_model_is_explained_with_its_posterior_covariance():
    model = SingleTaskGP(X, Y, input_transform=Normalize(3)).eval()
    explanation = kpp.explain(model, X_TEST.numpy(), background=X.numpy(), covariance="point", progress=False)
    with torch.no_grad():
        mean = model.posterior(X_TEST).mean[:, 0]
        of_background = model.posterior(torch.cat([X_TEST, X])).distribution.covariance_matrix.numpy()
    total = explanation.values.sum("feature") + explanation.base_values
    np.testing.assert_allclose(total, mean, rtol=1e-9)
    contrast = np.eye(21)[:6] - np.concatenate([np.zeros(6), np.full(15, 1 / 15)])  # prediction minus base value
    expected = np.diag(contrast @ of_background @ contrast.T)  # the variance of the sum of the values
    np.testing.assert_allclose(explanation.covariance.sum(["feature", "feature_other"]), expected, rtol=1e-7)


def test_an_explainer_of_any_function_takes_a_model():
    model = SingleTaskGP(X, Y, input_transform=Normalize(3)).eval()
    options = {"background": X.numpy(), "progress": False}
    exact = kpp.explain(model, X_TEST.numpy(), covariance=None, **options)
    found = kpp.explain(model, X_TEST.numpy(), explainer="kernel-shap", **options)
    np.testing.assert_allclose(found.values, exact.values, rtol=0, atol=1e-6)
