"""How exactly converted models of other libraries predict: the table of docs/how_to/conversion.md.

    python examples/benchmarks/conversion.py [sklearn gpytorch botorch gpjax tinygp]

Without names it measures the libraries that are installed. Each row compares a converted model with its own library at
points that it was not fitted to: the largest difference, as a share of the largest value; for
covariances, which are small differences of it, of the largest prior variance.
"""

from __future__ import annotations

import argparse
import importlib.util
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process import kernels as gp
from sklearn.kernel_approximation import Nystroem
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

import kpp


class Row(NamedTuple):
    """A converted quantity and the library's own; differences are shares of `unit`, or of the largest value."""

    model: str
    quantity: str
    converted: Any
    own: Any
    unit: float | None = None


def main() -> None:
    """Measure and print the table."""
    installed = [name for name in LIBRARIES if importlib.util.find_spec(name)]
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("libraries", nargs="*", default=installed, help=f"some of {', '.join(LIBRARIES)}")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    print(f"{'library':<10} {'model':<50} {'compared':<20} {'largest difference':>18}")
    for library in options.libraries:
        for row in LIBRARIES[library]():
            own = np.asarray(row.own)
            difference = np.abs(np.asarray(row.converted) - own).max() / (row.unit or np.abs(own).max())
            print(f"{library:<10} {row.model:<50} {row.quantity:<20} {difference:>18.0e}", flush=True)


def sklearn_rows() -> Iterator[Row]:
    """Yield the rows of scikit-learn, on three of its data sets."""
    yield from _sklearn_functions()
    yield from _sklearn_processes()


def _sklearn_functions() -> Iterator[Row]:
    x, y, new = _split(load_diabetes)
    landmarks = Nystroem(gamma=0.05, n_components=50, random_state=0)
    machine = make_pipeline(StandardScaler(), SVR(C=10.0))
    regressors = {
        "KernelRidge": KernelRidge(kernel="rbf", alpha=0.1),
        "StandardScaler, SVR": machine,
        "TransformedTargetRegressor of this": TransformedTargetRegressor(machine, transformer=StandardScaler()),
        "StandardScaler, Nystroem, Ridge": make_pipeline(StandardScaler(), landmarks, Ridge()),
    }
    for name, model in regressors.items():
        model.fit(x, y)
        yield Row(name, "predict", kpp.as_rkhs_function(model)(new), model.predict(new))
    logistic = make_pipeline(landmarks, LogisticRegression())
    classifiers = {
        "StandardScaler, SVC": (SVC(), load_breast_cancer),
        "StandardScaler, SVC of 3 classes, ovo": (SVC(decision_function_shape="ovo"), load_wine),
        "StandardScaler, Nystroem, LogisticRegression": (logistic, load_breast_cancer),
    }
    for name, (model, load) in classifiers.items():
        x, y, new = _split(load)
        fitted = make_pipeline(StandardScaler(), model).fit(x, y)
        yield Row(name, "decision_function", kpp.as_rkhs_function(fitted)(new), fitted.decision_function(new))


def _sklearn_processes() -> Iterator[Row]:
    x, y, new = _split(load_diabetes)
    kernel = 1.0 * gp.RBF(np.full(x.shape[1], 4.0)) + gp.WhiteKernel(0.5)
    wave = np.linspace(0.0, 3.0, 60)[:, None]
    processes = {
        "GaussianProcessRegressor": (GaussianProcessRegressor(1.0 * gp.Matern(0.2, nu=2.5), alpha=100.0), x, y, new),
        "StandardScaler, GaussianProcessRegressor, noise": (
            make_pipeline(StandardScaler(), GaussianProcessRegressor(kernel, normalize_y=True)), x, y, new
        ),
        "GaussianProcessRegressor, alpha 1e-10, no noise": (
            GaussianProcessRegressor(1.0 * gp.RBF(0.5), optimizer=None), wave, np.sin(5.0 * wave[:, 0]), wave + 0.02
        ),
    }  # fmt: skip
    for name, (model, points, targets, at) in processes.items():
        model.fit(points, targets)
        mean, covariance = model.predict(at, return_cov=True)
        process, inner = (model[-1], model[:-1].transform(at)) if hasattr(model, "steps") else (model, at)
        noise = process.kernel_(inner) - process.kernel_(inner, inner.copy())  # not part of the function
        yield from posterior_rows(name, model, at, mean, covariance - noise * np.squeeze(process._y_train_std) ** 2)
    x, y, new = _split(load_breast_cancer)
    model = make_pipeline(StandardScaler(), GaussianProcessClassifier(1.0 * gp.RBF(5.0))).fit(x, y)
    mean, variance = model[-1].latent_mean_and_variance(model[:-1].transform(new))
    posterior = kpp.as_gp_posterior(model)
    name = "StandardScaler, GaussianProcessClassifier"
    yield Row(name, "latent mean", posterior.mean(new), mean)
    yield Row(name, "latent variance", posterior.variance(new), variance, prior_variance(posterior, new))


def gpytorch_rows() -> Iterator[Row]:
    """Yield the rows of GPyTorch: a sum of kernels, and known noise."""
    import gpytorch
    import torch

    class Regression(gpytorch.models.ExactGP):
        def __init__(self, x: Any, y: Any, likelihood: Any) -> None:
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            kernel = gpytorch.kernels.RBFKernel(ard_num_dims=x.shape[1]) + gpytorch.kernels.MaternKernel(1.5)
            self.covar_module = gpytorch.kernels.ScaleKernel(kernel)

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    x, y, new = map(torch.as_tensor, _standardized())
    likelihoods = {
        "GaussianLikelihood": gpytorch.likelihoods.GaussianLikelihood(),
        "FixedNoiseGaussianLikelihood": gpytorch.likelihoods.FixedNoiseGaussianLikelihood(0.1 + 0.1 * y.abs()),
    }
    for name, likelihood in likelihoods.items():
        model = Regression(x, y, likelihood).double().eval()
        with torch.no_grad():
            law = model(new)
        yield from posterior_rows(
            f"ExactGP, {name}", model, new.numpy(), law.mean.numpy(), law.covariance_matrix.numpy()
        )

    class Sparse(gpytorch.models.ApproximateGP):
        def __init__(self) -> None:
            law = gpytorch.variational.CholeskyVariationalDistribution(50)
            super().__init__(gpytorch.variational.VariationalStrategy(self, x[:50].clone(), law))
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=x.shape[1]))

        forward = Regression.forward

    sparse, likelihood = Sparse().double(), gpytorch.likelihoods.GaussianLikelihood().double()
    objective = gpytorch.mlls.VariationalELBO(likelihood, sparse, len(x))
    optimizer = torch.optim.Adam([*sparse.parameters(), *likelihood.parameters()], lr=0.05)
    for _ in range(400):
        optimizer.zero_grad()
        (-objective(sparse(x), y)).backward()
        optimizer.step()
    with torch.no_grad():
        law = sparse.eval()(new)
    jitter = sparse.variational_strategy.jitter_val * np.eye(len(new))  # GPyTorch adds it to its predictions
    covariance = law.covariance_matrix.numpy() - jitter
    yield from posterior_rows("ApproximateGP, 50 inducing points", sparse, new.numpy(), law.mean.numpy(), covariance)


def botorch_rows() -> Iterator[Row]:
    """Yield the rows of BoTorch: a fitted model with its transforms."""
    import torch
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.models.transforms import Normalize
    from gpytorch.mlls import ExactMarginalLogLikelihood

    x, y, new = map(torch.as_tensor, _split(load_diabetes))
    model = SingleTaskGP(x, y[:, None], input_transform=Normalize(x.shape[1]))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    with torch.no_grad():
        law = model.eval().posterior(new).distribution
    name = "SingleTaskGP, Normalize, Standardize"
    yield from posterior_rows(name, model, new.numpy(), law.mean.numpy(), law.covariance_matrix.numpy())


def gpjax_rows() -> Iterator[Row]:
    """Yield the rows of GPJax."""
    import gpjax

    x, y, new = _standardized()
    kernel = gpjax.kernels.RBF(lengthscale=jnp.full(x.shape[1], 3.0)) + gpjax.kernels.Matern32(lengthscale=2.0)
    prior = gpjax.gps.Prior(kernel=kernel, mean_function=gpjax.mean_functions.Constant(0.2))
    model = prior * gpjax.likelihoods.Gaussian(0.7)
    collapsed = gpjax.variational_families.CollapsedVariationalGaussian(model, jnp.asarray(x[:50]))
    for name, given in {"ConjugateModel": model, "CollapsedVariationalGaussian": collapsed}.items():
        posterior = given.condition(gpjax.Dataset(jnp.asarray(x), jnp.asarray(y)[:, None]))
        law = posterior(jnp.asarray(new))
        covariance = law.covariance() - prior.jitter * np.eye(len(new))  # GPJax adds it to its predictions
        yield from posterior_rows(f"{name}.condition", posterior, new, law.mean, covariance)


def tinygp_rows() -> Iterator[Row]:
    """Yield the rows of tinygp: many features, and a quasiseparable solver of a series."""
    import tinygp

    x, y, new = map(jnp.asarray, _standardized())
    wave = jnp.linspace(0.0, 3.0, 60)
    kernel = 0.8 * tinygp.transforms.Linear(1 / jnp.full(x.shape[1], 3.0), tinygp.kernels.ExpSquared())
    series = tinygp.kernels.quasisep.Matern52(0.4, sigma=1.3)
    processes = {
        "GaussianProcess.condition": (kernel, x, y, new),
        "the same, quasiseparable": (series, wave, jnp.sin(5.0 * wave), wave + 0.02),
    }
    for name, (of, points, targets, at) in processes.items():
        prior = tinygp.GaussianProcess(of, points, diag=jnp.asarray(0.5), mean=jnp.asarray(0.2))
        process = prior.condition(targets, at).gp
        rows = at if at.ndim == 2 else at[:, None]
        yield from posterior_rows(name, process, rows, process.loc, process.kernel(at, at))


def posterior_rows(name: str, model: Any, x: Any, mean: Any, covariance: Any) -> Iterator[Row]:
    """Yield the rows of a Gaussian process, given its own mean and covariance at x."""
    posterior = kpp.as_gp_posterior(model)
    unit = prior_variance(posterior, x)
    yield Row(name, "mean", posterior.mean(x), mean)
    yield Row(name, "covariance", posterior.covariance(x, x), covariance, unit)
    yield Row(name, "variance", posterior.variance(x), np.diag(covariance), unit)


def prior_variance(posterior: kpp.GPPosterior, x: Any) -> float:
    """Return the largest prior variance at some points."""
    return float(posterior.mean.kernel.diagonal(x).max())


def _split(load: Any) -> tuple[Any, Any, Any]:
    """Return 2 rows of 3 of a data set with their targets, and the other rows."""
    x, y = load(return_X_y=True)
    other = np.arange(len(x)) % 3 == 2
    return x[~other], y[~other], x[other]


def _standardized() -> tuple[Any, Any, Any]:
    """Return the diabetes data, standardized, and 147 of its rows that are left out."""
    x, y, new = _split(load_diabetes)
    return x / x.std(0), (y - y.mean()) / y.std(), new / x.std(0)


#: The rows of each library.
LIBRARIES = {
    "sklearn": sklearn_rows,
    "gpytorch": gpytorch_rows,
    "botorch": botorch_rows,
    "gpjax": gpjax_rows,
    "tinygp": tinygp_rows,
}


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of optimizers at the bounds of their hyperparameters
        main()
