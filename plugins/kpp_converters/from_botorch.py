"""The converter of BoTorch: exact models of one output, with their input and outcome transforms."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from jaxtyping import Float

import kpp
from kpp.conversion import rescale_inputs, rescale_outputs
from kpp.typing import RngKey
from kpp_converters.from_gpytorch import exact_posterior, example_data, number, numbers
from kpp_converters.rules import class_name, find_rule


class BoTorchConverter(kpp.AbstractConverter):
    r"""Exact models of BoTorch, such as SingleTaskGP, with one output.

    The posterior is that of ``model.posterior(x)``, in the units of the user: input transforms :math:`(x - c) / s` and
    the outcome transform Standardize are absorbed exactly.
    """

    def gp_posterior(self, model: Any) -> kpp.GPPosterior:
        """Return the posterior of a SingleTaskGP or another exact model, in eval mode."""
        _check_model(model)
        posterior = exact_posterior(model)
        for transform in reversed(_steps(model, "outcome_transform")):
            scale, shift = find_rule(transform, _OUTCOME_RULES, "outcome transform")(transform)
            posterior = rescale_outputs(posterior, scale, shift)
        for transform in reversed(_steps(model, "input_transform")):
            posterior = rescale_inputs(posterior, *_center_and_scale(transform, posterior.mean.points.shape[1]))
        return posterior

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[BoTorchConverter, Any, Any, Any, Any]]:
        """Yield a SingleTaskGP with normalized inputs and standardized targets, and one with known noise."""
        import torch
        from botorch.models import SingleTaskGP
        from botorch.models.transforms import Normalize

        points, targets, x = example_data(rng_key)
        y = 30.0 * targets[:, None] + 100.0
        noise = torch.full_like(y, 4.0).cumsum(0)
        options: list[dict[str, Any]] = [{"input_transform": Normalize(3)}, {"train_Yvar": noise}]
        for option in options:
            model = SingleTaskGP(points, y, **option).eval()
            with torch.no_grad():
                law = model.posterior(torch.as_tensor(x)).distribution
            yield cls(), model, x, law.mean.numpy(), law.covariance_matrix.numpy()


def _check_model(model: Any) -> None:
    """Check that a model is a single one of GPyTorch with one output, and that its `posterior` is the usual one."""
    from botorch.models.gpytorch import BatchedMultiOutputGPyTorchModel, GPyTorchModel, ModelListGPyTorchModel

    name = type(model).__name__
    if isinstance(model, ModelListGPyTorchModel):
        raise TypeError(f"a {name} holds one model for each output: convert one of `model.models`")
    if not isinstance(model, GPyTorchModel):
        raise TypeError(f"a {class_name(model)} is not a model of BoTorch that builds on GPyTorch")
    if type(model).posterior not in (GPyTorchModel.posterior, BatchedMultiOutputGPyTorchModel.posterior):
        raise ValueError(f"{name} has a method `posterior` of its own, so that it may predict anything")
    if model.num_outputs > 1:
        raise ValueError(
            f"the {name} has {model.num_outputs} outputs, each a Gaussian process with a kernel of its own: convert "
            "`model.subset_output([0])`, and so on for the others"
        )


def _steps(model: Any, part: str) -> list[Any]:
    """Return the transforms of a model, in the order in which they are applied."""
    transform = getattr(model, part, None)
    if class_name(transform) in ("botorch.ChainedInputTransform", "botorch.ChainedOutcomeTransform"):
        return list(transform.values())  # type: ignore[union-attr]
    return [] if transform is None else [transform]


def _center_and_scale(transform: Any, num_features: int) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, " d"]]:
    """Return c and s, (d,) each, of an input transform (x - c) / s."""
    name = class_name(transform)
    if name not in _AFFINE:
        raise ValueError(
            f"the input transform {name} has no exact counterpart in kpp; known are {', '.join(_AFFINE)}, and chains "
            "of them"
        )
    if transform.reverse or not (transform.transform_on_train and transform.transform_on_eval):
        raise ValueError(
            f"the input transform {name} must be applied in train and in eval mode, and not reversed, got "
            f"transform_on_train={transform.transform_on_train}, transform_on_eval={transform.transform_on_eval}, "
            f"reverse={transform.reverse}"
        )
    indices = getattr(transform, "indices", None)
    chosen = slice(None) if indices is None else np.asarray(indices.cpu())
    center, scale = np.zeros(num_features), np.ones(num_features)
    center[chosen] = numbers(transform.offset).reshape(-1)
    scale[chosen] = numbers(transform.coefficient).reshape(-1)
    return center, scale


_AFFINE = ("botorch.AffineInputTransform", "botorch.InputStandardize", "botorch.Normalize")

#: The class of an outcome transform -> a and b of the way back, a f(x) + b.
_OUTCOME_RULES: dict[str, Callable[[Any], tuple[float, float]]] = {
    "botorch.Standardize": lambda transform: (number(transform.stdvs), number(transform.means))
}
