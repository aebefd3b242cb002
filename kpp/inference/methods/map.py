"""The joint mode of all sites."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from kpp.inference.base import AbstractInference, Data, NumpyroModel, Posterior, inspect_sites, without_latents
from kpp.inference.example_models import linear_regression, regression_data
from kpp.inference.methods.optimum import Density, check_search, find_mode
from kpp.typing import AnyArray, RngKey


class MAP(AbstractInference):
    r"""Find the joint mode of all latent sites.

    .. math:: \hat\theta = \arg\max_\theta\; p(y \mid \theta)\, p(\theta)

    The density that is maximized is the density of the sites themselves, as the model is written: for a lengthscale
    with a LogNormal prior it is the density of the lengthscale, not of its logarithm. The search runs in unconstrained
    coordinates, but their Jacobian is left out, so the mode does not depend on these coordinates. (`kpp.Laplace` is
    centered at the mode *with* the Jacobian.) A density without a maximum inside the support has no mode, for example
    the density of a Gamma prior with concentration below 1.

    The attribute ``modes`` of the fit is the number of different modes that the starts reached, of those whose density
    is at least a thousandth of the highest one. The fit is the highest of them; a warning tells if there are several.

    Args:
        num_restarts: The number of further starts, in addition to the prior medians.
        max_steps: Steps of L-BFGS from each start.
        tolerance: A start has converged when no entry of the gradient exceeds this times max(1, abs(log-density)).
        progress: Whether to show a progress bar.

    Raises:
        ValueError: If a number is out of range.

    Example:
        >>> model = kpp_models.GPRegression(kpp.kernels.RBF(dist.LogNormal()), 0.01)
        >>> found = model.fit(jax.random.key(0), x, y, inference=kpp.MAP(progress=False), num_prior_samples=0)
        >>> found.draws["kernel.lengthscale"].round(1)
        Array([[1.8]], dtype=float64)
    """

    approximates: ClassVar[bool] = True

    num_restarts: int = eqx.field(static=True, default=2)
    max_steps: int = eqx.field(static=True, default=500)
    tolerance: float = eqx.field(static=True, default=1e-6)
    progress: bool = eqx.field(static=True, default=True)

    def __check_init__(self) -> None:
        check_search(self.num_restarts, self.max_steps, self.tolerance)

    def run(self, rng_key: RngKey, numpyro_model: NumpyroModel, data: Data) -> Posterior:
        """Find the mode; one chain of one draw.

        Raises:
            ConvergenceError: If no start converged.
        """
        sites = inspect_sites(numpyro_model, data)
        if (fixed := without_latents(numpyro_model, data, sites, "MAP")) is not None:
            return fixed
        init_key, restart_key = jax.random.split(rng_key)
        density = Density(init_key, numpyro_model, data, sites)
        mode = find_mode(density.constrained, density, data, restart_key, self)
        samples = _one_draw(density, mode.vector.astype(density.start.dtype), data)
        stats = {"lp": jnp.asarray(np.full((1, 1), -mode.value))}
        return Posterior(samples, stats, {"inference": "MAP", **mode.attrs()})

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractInference, NumpyroModel, Data]]:
        yield cls(progress=False), linear_regression, regression_data(rng_key)


@eqx.filter_jit
def _one_draw(density: Density, vector: AnyArray, data: Data) -> dict[str, jax.Array]:
    return {name: jnp.asarray(value)[None, None] for name, value in density.sites(vector, data).items()}
