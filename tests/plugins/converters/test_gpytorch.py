"""Models of GPyTorch: their kernels, predictions and variances, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import kpp
from kpp_converters import kernel_from_gpytorch

torch = pytest.importorskip("torch")
gpytorch = pytest.importorskip("gpytorch")

from gpytorch import kernels, likelihoods, means

RNG = np.random.default_rng(0)
X, X_TEST = RNG.normal(size=(15, 3)), RNG.normal(size=(6, 3))
Y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2]


def scaled(kernel, outputscale):
    outer = kernels.ScaleKernel(kernel)
    outer.outputscale = outputscale
    return outer


def with_lengthscale(kernel, *values):
    kernel.double().lengthscale = torch.tensor([values], dtype=torch.float64)
    return kernel


def rational_quadratic():
    kernel = with_lengthscale(kernels.RQKernel(ard_num_dims=3), 0.7, 1.3, 2.0)
    kernel.alpha = 0.6
    return kernel


def periodic():
    kernel = with_lengthscale(kernels.PeriodicKernel(ard_num_dims=3), 0.4, 1.3, 2.0)
    kernel.period_length = torch.tensor([[0.9, 1.7, 3.0]])
    return kernel


def linear(**options):
    kernel = kernels.LinearKernel(**options)
    kernel.variance = torch.linspace(0.3, 0.9, options.get("ard_num_dims", 1))[None]
    return kernel


NUS = (0.5, 1.5, 2.5)
KERNELS = {
    "RBF": with_lengthscale(kernels.RBFKernel(), 0.8),
    "RBF, ARD": with_lengthscale(kernels.RBFKernel(ard_num_dims=3), 0.7, 1.3, 2.0),
    **{
        f"Matern {nu}": with_lengthscale(kernels.MaternKernel(nu, ard_num_dims=3), 0.7, 1.3, 2.0)
        for nu in (0.5, 1.5, 2.5)
    },
    "RQ": rational_quadratic(),
    "Periodic": periodic(),
    "Linear": linear(),
    "Linear, ARD": linear(ard_num_dims=3),
    "Polynomial": kernels.PolynomialKernel(3),
    "Constant": scaled(kernels.ConstantKernel(), 0.3),
    "active_dims": with_lengthscale(kernels.RBFKernel(active_dims=(2, 0), ard_num_dims=2), 0.7, 1.3),
    "scaled active_dims": scaled(with_lengthscale(kernels.MaternKernel(2.5, active_dims=(2,)), 0.7), 3.0),
    "tree": scaled(kernels.RBFKernel(active_dims=(0,)), 2.0) * kernels.MaternKernel(1.5, active_dims=(1, 2))
    + scaled(periodic() + kernels.ConstantKernel(), 0.5),
}


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_kernels_have_the_same_values(kernel):
    with torch.no_grad():
        expected = kernel.double()(torch.as_tensor(X), torch.as_tensor(X_TEST)).to_dense().numpy()
    found = kernel_from_gpytorch(kernel, 3)(X, X_TEST)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12 * np.abs(expected).max())


class Model(gpytorch.models.ExactGP):
    def __init__(self, kernel=None, mean=None, likelihood=None, targets=Y, points=X):
        likelihood = likelihoods.GaussianLikelihood() if likelihood is None else likelihood
        super().__init__(torch.as_tensor(points), torch.as_tensor(targets), likelihood)
        self.mean_module = means.ZeroMean() if mean is None else mean
        self.covar_module = kernels.RBFKernel() if kernel is None else kernel

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def constant(value):
    mean = means.ConstantMean()
    mean.constant = value
    return mean


MODELS = {
    "zero mean": lambda: Model(),
    "constant mean": lambda: Model(KERNELS["tree"], constant(0.7)),
    "linear mean": lambda: Model(KERNELS["tree"], means.LinearMean(3)),
    "linear mean without bias": lambda: Model(mean=means.LinearMean(3, bias=False)),
    "fixed noise": lambda: Model(likelihood=likelihoods.FixedNoiseGaussianLikelihood(torch.linspace(0.1, 0.5, 15))),
    "fixed and learned noise": lambda: Model(
        likelihood=likelihoods.FixedNoiseGaussianLikelihood(torch.linspace(0.1, 0.5, 15), learn_additional_noise=True)
    ),
    "fewer features than points": lambda: Model(KERNELS["Linear, ARD"] + kernels.ConstantKernel(), constant(0.7)),
}


@pytest.mark.parametrize("build", MODELS.values(), ids=MODELS)
def test_predictions_and_covariances_agree(build):
    model = build().double().eval()
    with torch.no_grad():
        law = model(torch.as_tensor(X_TEST))
    posterior = kpp.as_gp_posterior(model)
    np.testing.assert_allclose(posterior.mean(X_TEST), law.mean, rtol=0, atol=1e-9)
    np.testing.assert_allclose(posterior.covariance(X_TEST, X_TEST), law.covariance_matrix, rtol=0, atol=1e-9)
    np.testing.assert_allclose(posterior.variance(X_TEST), law.variance, rtol=0, atol=1e-9)
    np.testing.assert_allclose(kpp.as_rkhs_function(model)(X_TEST), law.mean, rtol=0, atol=1e-9)


def test_a_model_of_float32_agrees_to_its_own_rounding():
    model = Model(targets=Y.astype("float32"), points=X.astype("float32")).eval()
    with torch.no_grad():
        law = model(torch.as_tensor(X_TEST.astype("float32")))
    np.testing.assert_allclose(kpp.as_gp_posterior(model).mean(X_TEST), law.mean, rtol=0, atol=1e-4)


class Doubled(Model):
    def forward(self, x):
        return super().forward(2.0 * x)


class Calling(Model):
    def __call__(self, *args, **kwargs):
        return super().__call__(*args, **kwargs)


def batched():
    kernel = kernels.RBFKernel(batch_shape=torch.Size([2]))
    return Model(kernel, targets=np.stack([Y, Y]))


REFUSED = {
    "`forward` of Doubled": lambda: Doubled(),
    "Calling overrides `__call__`": lambda: Calling(),
    "mean gpytorch.LinearMeanGrad": lambda: Model(mean=means.LinearMeanGrad(3)),
    "kernel gpytorch.CosineKernel": lambda: Model(kernels.CosineKernel()),
    "kernel gpytorch.SpectralMixtureKernel": lambda: Model(kernels.SpectralMixtureKernel(2, ard_num_dims=3)),
    "kernel gpytorch.InducingPointKernel": lambda: Model(
        kernels.InducingPointKernel(kernels.RBFKernel(), torch.as_tensor(X[:3]), likelihoods.GaussianLikelihood())
    ),
    "has batches or several outputs": batched,
    "`train_targets` .*NaN": lambda: Model(targets=np.where(Y > 0, np.nan, Y)),
}


@pytest.mark.parametrize(("message", "build"), REFUSED.items(), ids=REFUSED)
def test_what_has_no_counterpart_is_refused_by_name(message, build):
    with pytest.raises(ValueError, match=message):
        kpp.as_gp_posterior(build().double().eval())


def test_a_model_in_train_mode_is_refused():
    with pytest.raises(ValueError, match=r"call `model.eval\(\)`"):
        kpp.as_gp_posterior(Model().double())


def test_other_modules_are_a_type_error():
    with pytest.raises(TypeError, match="not an ExactGP or an ApproximateGP"):
        kpp.as_gp_posterior(kernels.RBFKernel())


class Sparse(gpytorch.models.ApproximateGP):
    def __init__(
        self, strategy="VariationalStrategy", law="CholeskyVariationalDistribution", kernel=None, mean=None, **options
    ):
        variational = gpytorch.variational
        law = getattr(variational, law)(5, **options)
        strategy = getattr(variational, strategy)(self, torch.as_tensor(X[:5]), law, learn_inducing_locations=True)
        super().__init__(strategy)
        self.mean_module = constant(0.7) if mean is None else mean
        self.covar_module = scaled(kernels.RBFKernel(ard_num_dims=3), 1.7) if kernel is None else kernel

    forward = Model.forward


def trained(model, likelihood, targets, steps=150):
    """Adam with the steps of GPyTorch's tutorials."""
    model, likelihood = model.double(), likelihood.double()
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, len(targets))
    optimizer = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.05)
    for _ in range(steps):
        optimizer.zero_grad()
        (-objective(model(torch.as_tensor(X)), torch.as_tensor(targets))).backward()
        optimizer.step()
    return model.eval()


SPARSE = {
    "whitened": lambda: trained(Sparse(), likelihoods.GaussianLikelihood(), Y),
    "classes": lambda: trained(Sparse(), likelihoods.BernoulliLikelihood(), (Y > 0).astype(float)),
    "mean field": lambda: trained(Sparse(law="MeanFieldVariationalDistribution"), likelihoods.GaussianLikelihood(), Y),
    "linear mean": lambda: trained(Sparse(mean=means.LinearMean(3)), likelihoods.GaussianLikelihood(), Y),
    "values themselves": lambda: trained(
        Sparse("UnwhitenedVariationalStrategy", kernel=scaled(kernels.MaternKernel(2.5), 1.7)),
        likelihoods.GaussianLikelihood(),
        Y,
        300,
    ),
}


@pytest.mark.parametrize("build", SPARSE.values(), ids=SPARSE)
def test_sparse_predictions_and_covariances_agree(build):
    """The whitened strategy adds its jitter to the variances that it returns."""
    model = build()
    with torch.no_grad():
        law = model(torch.as_tensor(X_TEST))
    whitened = type(model.variational_strategy) is gpytorch.variational.VariationalStrategy
    covariance = law.covariance_matrix.numpy() - whitened * model.variational_strategy.jitter_val * np.eye(len(X_TEST))
    posterior = kpp.as_gp_posterior(model)
    np.testing.assert_allclose(posterior.mean(X_TEST), law.mean, rtol=0, atol=1e-8)
    np.testing.assert_allclose(posterior.covariance(X_TEST, X_TEST), covariance, rtol=0, atol=1e-8)


SPARSE_REFUSED = {
    "is not initialized": lambda: Sparse(),
    "1.4[0-9]* times that of the prior": lambda: wide(),
    "variational strategy gpytorch.CiqVariationalStrategy": lambda: Sparse("CiqVariationalStrategy"),
    "must be a MultivariateNormal of one output, got a Delta": lambda: initialized(
        Sparse(law="DeltaVariationalDistribution")
    ),
    r"of one output, got a MultivariateNormal of shape \(2, 5\)": lambda: initialized(
        Sparse(batch_shape=torch.Size([2]))
    ),
}


def initialized(model):
    model.double().eval()(torch.as_tensor(X_TEST))
    return model


def wide():
    model = initialized(Sparse())
    model.variational_strategy._variational_distribution.chol_variational_covar.data *= 1.2
    return model.train()  # which forgets what it has computed


@pytest.mark.parametrize(("message", "build"), SPARSE_REFUSED.items(), ids=SPARSE_REFUSED)
def test_sparse_models_without_a_counterpart_are_refused_by_name(message, build):
    with pytest.raises(ValueError, match=message):
        kpp.as_gp_posterior(build().double().eval())
