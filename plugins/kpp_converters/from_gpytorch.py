"""The converter of GPyTorch: models of exact and variational inference, and kernels, with BoTorch's categorical one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

import kpp
from kpp import kernels
from kpp.foundation.validation import finite_arrays
from kpp.gp import GaussianLikelihood, LinearMean, condition
from kpp.gp.toolkit import PriorMean, evaluate_mean
from kpp.kernels import AbstractKernel
from kpp.typing import AnyArray, RngKey
from kpp_converters.rules import find_rule
from kpp_converters.sparse import sparse_posterior, whiten

#: The attributes of a BoTorch model that change its inputs and its outputs.
BOTORCH_PARTS = ("input_transform", "outcome_transform")

_CHECKED = 24  # training or inducing points at which `forward` is compared with mean and kernel


class GPyTorchConverter(kpp.AbstractConverter):
    """Models of GPyTorch that derive from ``gpytorch.models.ExactGP`` or ``ApproximateGP``."""

    def gp_posterior(self, model: Any) -> kpp.GPPosterior:
        """Return the posterior of an ExactGP or an ApproximateGP, in eval mode."""
        if any(hasattr(model, part) for part in BOTORCH_PARTS):
            raise TypeError(
                f"a {type(model).__name__} has transforms of BoTorch ({' or '.join(BOTORCH_PARTS)}), so that BoTorch's "
                "converter must take it: derive it from botorch.models.gpytorch.GPyTorchModel"
            )
        from gpytorch.models import ApproximateGP

        return _variational_posterior(model) if isinstance(model, ApproximateGP) else exact_posterior(model)

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[GPyTorchConverter, Any, Any, Any, Any]]:
        """Yield a model with a constant mean and a sum of kernels, with one noise variance."""
        import gpytorch
        import torch

        points, targets, x = example_data(rng_key)
        kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=3))
        kernel += gpytorch.kernels.MaternKernel(1.5, active_dims=(2,))
        kernel.kernels[0].base_kernel.lengthscale = torch.tensor([[0.7, 1.3, 2.0]])
        model = _model_of(points, targets, kernel.double(), gpytorch.likelihoods.GaussianLikelihood().double())
        with torch.no_grad():
            law = model(torch.as_tensor(x))
            yield cls(), model, x, law.mean.numpy(), law.covariance_matrix.numpy()


def example_data(rng_key: RngKey) -> tuple[Any, Any, Float[np.ndarray, "4 3"]]:
    """Return training points (12, 3) and targets (12,) as tensors, and 4 points."""
    import torch

    points = np.array(jax.random.uniform(rng_key, (12, 3)), dtype=float)
    targets = np.sin(3.0 * points[:, 0]) + points[:, 1] * points[:, 2]
    return torch.as_tensor(points), torch.as_tensor(targets), points[:4] + 0.1


def exact_posterior(model: Any) -> kpp.GPPosterior:
    """Return the posterior of an ExactGP, in the units of its training inputs and targets.

    Raises TypeError if the model is not an ExactGP, and ValueError if it is in train mode, has batches, or a part has
    no exact counterpart.
    """
    points, targets = _training_data(model)
    mean, kernel = _prior(model, model.train_inputs[0])
    noise_variance, row_variances = find_rule(model.likelihood, _NOISE, "likelihood")(model.likelihood)
    likelihood = GaussianLikelihood(targets, noise_variance=noise_variance, row_variances=row_variances)
    return condition(kernel, points, likelihood, mean).posterior()


def _variational_posterior(model: Any) -> kpp.GPPosterior:
    """Return the posterior of an ApproximateGP, from the law of its values at the inducing points."""
    from gpytorch.distributions import MultivariateNormal
    from gpytorch.models import ApproximateGP

    _check_mode(model, ApproximateGP)
    strategy = model.variational_strategy
    whitened = find_rule(strategy, _STRATEGIES, "variational strategy")
    if not (strategy.variational_params_initialized and getattr(strategy, "updated_strategy", True)):
        raise ValueError("the variational distribution is not initialized: train the model, or call it once")
    law, inducing = strategy.variational_distribution, strategy.inducing_points
    if not isinstance(law, MultivariateNormal) or law.mean.ndim != 1 or inducing.ndim != 2:
        raise ValueError(
            f"the variational distribution must be a MultivariateNormal of one output, got a {type(law).__name__} of "
            f"shape {tuple(law.mean.shape)}, with inducing points of shape {tuple(inducing.shape)}"
        )
    mean, kernel = _prior(model, inducing)
    points = numbers(inducing)
    factor = np.linalg.cholesky(np.asarray(kernel.gram(points)) + strategy.jitter_val * np.eye(len(points)))
    moments = whitened(factor, evaluate_mean(mean, points), numbers(law.mean), numbers(law.covariance_matrix))
    return sparse_posterior(kernel, points, factor, *moments, mean)


def _prior(model: Any, inputs: Any) -> tuple[PriorMean, AbstractKernel]:
    """Return the prior mean and the kernel of a model, which are checked at some inputs."""
    mean_module = getattr(model, "mean_module", None)
    mean = find_rule(mean_module, _MEANS, "mean")(mean_module)
    kernel = kernel_from_gpytorch(getattr(model, "covar_module", None), inputs.shape[1])
    _check_forward(model, inputs[:_CHECKED], mean, kernel)
    return mean, kernel


def _check_mode(model: Any, kind: type) -> None:
    name = type(model).__name__
    if type(model).__call__ is not kind.__call__:
        raise ValueError(f"{name} overrides `__call__`, so that its predictions may not be those of {kind.__name__}")
    if model.training:
        raise ValueError(f"the {name} is in train mode, in which it does not predict: call `model.eval()`")


def _training_data(model: Any) -> tuple[Float[AnyArray, "n d"], Float[AnyArray, " n"]]:
    from gpytorch.models import ExactGP

    name = type(model).__name__
    if not isinstance(model, ExactGP):
        raise TypeError(f"a {name} is not an ExactGP or an ApproximateGP, which are converted")
    _check_mode(model, ExactGP)
    if model.train_inputs is None or len(model.train_inputs) != 1:
        raise ValueError(f"the {name} must have one tensor of training inputs, got {model.train_inputs!r}")
    points, targets = numbers(model.train_inputs[0]), numbers(model.train_targets)
    if points.ndim != 2 or targets.ndim != 1:
        raise ValueError(
            f"the {name} has batches or several outputs: training inputs of shape {points.shape} and targets of shape "
            f"{targets.shape}, where (n, d) and (n,) are needed (in BoTorch: convert `model.subset_output([0])`)"
        )
    return finite_arrays(points, "train_inputs"), finite_arrays(targets, "train_targets")


def _check_forward(model: Any, inputs: Any, mean: PriorMean, kernel: AbstractKernel) -> None:
    """Check that `forward` of a model returns the law that its `mean_module` and `covar_module` describe."""
    import torch

    tolerance = 1e-6 if inputs.dtype == torch.float64 else 1e-3
    with torch.no_grad():
        law = model.forward(inputs)
        found, covariance = numbers(law.mean), numbers(law.covariance_matrix)
    expected = np.asarray(kernel.gram(numbers(inputs)))
    close = np.allclose(covariance, expected, rtol=0, atol=tolerance * np.abs(expected).max())
    if not close or not np.allclose(found, evaluate_mean(mean, numbers(inputs)), rtol=tolerance, atol=tolerance):
        raise ValueError(
            f"`forward` of {type(model).__name__} does not return the law of its `mean_module` and `covar_module` at "
            "its points: it changes the inputs, the mean or the kernel in between, which has no exact "
            "counterpart in kpp"
        )


#: The class of a variational strategy -> the law of the whitened values.
_STRATEGIES: dict[str, Callable[..., tuple[Any, Any]]] = {
    "gpytorch.UnwhitenedVariationalStrategy": whiten,
    "gpytorch.VariationalStrategy": lambda factor, mean, center, covariance: (center, covariance),
}

_MEANS: dict[str, Callable[[Any], PriorMean]] = {
    "gpytorch.ConstantMean": lambda mean: number(mean.constant),
    "gpytorch.LinearMean": lambda mean: LinearMean(
        numbers(mean.weights)[:, 0], 0.0 if mean.bias is None else number(mean.bias)
    ),
    "gpytorch.ZeroMean": lambda mean: 0.0,
}

#: The class of a likelihood -> its variance of new observations and what each observation has in addition.
_NOISE: dict[str, Callable[[Any], tuple[float, Any]]] = {
    "gpytorch.FixedNoiseGaussianLikelihood": lambda likelihood: (0.0, numbers(likelihood.noise)),
    "gpytorch.GaussianLikelihood": lambda likelihood: (number(likelihood.noise), None),
}


def _model_of(points: Any, targets: Any, kernel: Any, likelihood: Any) -> Any:
    """Return a model in eval mode with a constant mean."""
    import gpytorch

    class Regression(gpytorch.models.ExactGP):
        def __init__(self) -> None:
            super().__init__(points, targets, likelihood)
            self.mean_module = gpytorch.means.ConstantMean().double().initialize(constant=0.4)
            self.covar_module = kernel

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    return Regression().eval()


_MATERN: dict[float, Any] = {0.5: kernels.Matern12, 1.5: kernels.Matern32, 2.5: kernels.Matern52, math.inf: kernels.RBF}


def kernel_from_gpytorch(kernel: Any, num_features: int) -> AbstractKernel:
    r"""Convert a kernel of GPyTorch of d features.

    GPyTorch's lengthscale of `PeriodicKernel` is the square of kpp's.

    Args:
        kernel: An RBFKernel, MaternKernel, RQKernel, PeriodicKernel, LinearKernel, PolynomialKernel, ConstantKernel, a
            ScaleKernel, AdditiveKernel or ProductKernel of them, or BoTorch's CategoricalKernel; each with
            ``ard_num_dims`` and ``active_dims``, without batches.
        num_features: d.

    Returns:
        The kernel, with the same values at any two points.

    Raises:
        ValueError: If a part has no exact counterpart, or the parameters have batches.
    """
    rule = find_rule(kernel, _RULES, "kernel")
    if tuple(kernel.batch_shape):
        raise ValueError(
            f"the kernel {type(kernel).__name__} has parameters of batch shape {tuple(kernel.batch_shape)}; convert a "
            "model of one output without batches (in BoTorch: `model.subset_output([0])`)"
        )
    if kernel.active_dims is None:
        return rule(kernel, num_features)
    features = tuple(int(feature) for feature in kernel.active_dims)  # a buffer of the module, hence a tensor
    return rule(kernel, len(features)).on(features)


def numbers(tensor: Any) -> Float[np.ndarray, "..."]:
    """Return a tensor as an array of float64."""
    return np.asarray(tensor.detach().cpu().numpy(), dtype=float)


def number(tensor: Any) -> float:
    """Return a tensor of one element as a number."""
    return numbers(tensor).item()


def _per_feature(tensor: Any) -> Any:
    """Return parameters of shape (1, d): one per feature, or one number."""
    values = numbers(tensor).reshape(-1)
    return values[0] if values.size == 1 else values


def _lengthscale(kernel: Any) -> Any:
    return _per_feature(kernel.lengthscale)


def _periodic(kernel: Any, num_features: int) -> AbstractKernel:
    # GPyTorch divides the squared sine by the lengthscale itself, not by its square.
    return kernels.Periodic(lengthscale=np.sqrt(_lengthscale(kernel)), period=_per_feature(kernel.period_length))


def _categorical(kernel: Any, num_features: int) -> AbstractKernel:
    r"""BoTorch divides by the number of features, :math:`\exp(-\frac1d \sum_j 1\{x_j \ne x'_j\} / \ell_j)`."""
    return kernels.Categorical(correlation=np.exp(-1.0 / (num_features * _lengthscale(kernel))))


def _scaled(kernel: Any, num_features: int) -> AbstractKernel:
    """Its base kernel's `active_dims` are not used: ScaleKernel copies them and calls the base kernel's `forward`."""
    base = kernel.base_kernel
    return kernels.Scaled(find_rule(base, _RULES, "kernel")(base, num_features), number(kernel.outputscale))


def _parts(kernel: Any, num_features: int) -> tuple[AbstractKernel, ...]:
    return tuple(kernel_from_gpytorch(part, num_features) for part in kernel.kernels)


_RULES: dict[str, Callable[[Any, int], AbstractKernel]] = {
    "botorch.CategoricalKernel": _categorical,
    "gpytorch.AdditiveKernel": lambda kernel, d: kernels.Sum(_parts(kernel, d)),
    "gpytorch.ConstantKernel": lambda kernel, d: kernels.Constant(number(kernel.constant)),
    "gpytorch.LinearKernel": lambda kernel, d: kernels.Linear(np.broadcast_to(_per_feature(kernel.variance), (d,))),
    "gpytorch.MaternKernel": lambda kernel, d: _MATERN[float(kernel.nu)](lengthscale=_lengthscale(kernel)),
    "gpytorch.PeriodicKernel": _periodic,
    "gpytorch.PolynomialKernel": lambda kernel, d: kernels.Polynomial(int(kernel.power), offset=number(kernel.offset)),
    "gpytorch.ProductKernel": lambda kernel, d: kernels.Product(_parts(kernel, d)),
    "gpytorch.RBFKernel": lambda kernel, d: kernels.RBF(lengthscale=_lengthscale(kernel)),
    "gpytorch.RQKernel": lambda kernel, d: kernels.RationalQuadratic(_lengthscale(kernel), alpha=number(kernel.alpha)),
    "gpytorch.ScaleKernel": _scaled,
}
