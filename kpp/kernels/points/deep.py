r"""Deep-feature kernels: a kernel of the features that a network computes.

The network is a pytree of arrays like any other, so its weights may hold priors (`network_priors` puts them there) and
be learned with the parameters of the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Float, PyTree

from kpp.foundation.supports import is_prior
from kpp.foundation.validation import positive
from kpp.kernels.base import AbstractKernel
from kpp.kernels.checks import example_points
from kpp.kernels.parameters import show
from kpp.kernels.parts import as_kernel
from kpp.kernels.points.stationary import RBF
from kpp.typing import Coefficients, Leaf, OutputValues, Points, RngKey

Network = TypeVar("Network")


class _Fixed(eqx.Module):
    """A function that a network holds as a leaf, for example its activation, wrapped as a module without leaves."""

    function: Callable[..., Any] = eqx.field(static=True)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return getattr(self.function, "__name__", repr(self.function))


class ApplyFn(eqx.Module):
    """A network whose weights are stored separately, as in Flax and Haiku.

    ``ApplyFn(module.apply, module.init(rng_key, x))`` is a feature map for `DeepKernel`. The kernel maps over the batch
    axis, so the network receives one point (d,) at a time.

    Args:
        apply: A function of the weights and one point that returns its features, (q,).
        params: The weights, a pytree of arrays or priors.
    """

    apply: Any = eqx.field(static=True)
    params: Any

    def __check_init__(self) -> None:
        if not callable(self.apply):
            raise TypeError(f"`apply` must be a function of the weights and a point, got {type(self.apply).__name__}")

    def __call__(self, x: Points) -> Any:
        """Return the features of one point."""
        return self.apply(self.params, x)


class DeepKernel(AbstractKernel):
    r"""A kernel of features that a network computes.

    .. math:: k(x, x') = k_1\bigl(\phi(x), \phi(x')\bigr)

    It is positive semi-definite for any :math:`\phi`. A lengthscale of :math:`k_1` and the scale of the last layer
    are redundant, so fix one of them.

    Args:
        kernel: :math:`k_1`, on features of shape (q,).
        feature_map: :math:`\phi`, a callable pytree that takes one point, usually (d,), and returns its features (q,),
            or one number: a network of Equinox, an `ApplyFn` around one of Flax or Haiku, a function. Functions that it
            holds as leaves (activations) become static; arrays are parameters.

    Raises:
        TypeError: If `kernel` is not a kernel or `feature_map` cannot be called.

    References:
        Wilson, Hu, Salakhutdinov and Xing, Deep kernel learning, 2016, equation (5).
    """

    kernel: AbstractKernel
    feature_map: Any

    def __init__(self, kernel: object, feature_map: object) -> None:
        if not callable(feature_map) or is_prior(feature_map):
            raise TypeError(f"`feature_map` must be a function of one point, got {type(feature_map).__name__}")
        self.kernel = as_kernel(kernel)
        self.feature_map = jax.tree.map(_fix, feature_map, is_leaf=is_prior)

    def evaluate(self, x1: Points, x2: Points) -> Float[Array, ""]:
        return self.kernel.evaluate(self._features(x1), self._features(x2))

    def __call__(self, x1: Points, x2: Points) -> Float[Array, "n1 n2"]:
        return self.kernel(self.features(x1), self.features(x2))

    def gram(self, x: Points) -> Float[Array, "n n"]:
        return self.kernel.gram(self.features(x))

    def diagonal(self, x: Points) -> Float[Array, " n"]:
        return self.kernel.diagonal(self.features(x))

    def combine_sections(self, x: Points, points: Points, coefficients: Coefficients) -> OutputValues:
        return self.kernel.combine_sections(self.features(x), self.features(points), coefficients)

    def features_as_numbers(self, features: Sequence[str]) -> frozenset[str]:
        return frozenset(features)  # they are numbers for the network

    def split_scale(self) -> tuple[Leaf, AbstractKernel]:
        scale, kernel = self.kernel.split_scale()
        return scale, DeepKernel(kernel, self.feature_map)

    def features(self, x: Points) -> Float[Array, "n q"]:
        """Return the features of a batch of points, (n, q).

        Raises:
            ValueError: If `feature_map` returns neither a vector nor one number.
        """
        return jax.vmap(self._features)(x)

    def _features(self, x: Points) -> Float[Array, " q"]:
        features = jnp.atleast_1d(self.feature_map(x))
        if features.ndim != 1:
            raise ValueError(
                f"`feature_map` must return the features of one point, of shape (q,), got shape {features.shape}"
            )
        return features

    def __repr__(self) -> str:
        return f"DeepKernel(kernel={self.kernel!r}, feature_map={_show(self.feature_map)})"

    @classmethod
    def examples(cls, rng_key: RngKey) -> Iterator[tuple[AbstractKernel, Any]]:
        network = eqx.nn.MLP(3, 2, width_size=3, depth=1, activation=jnp.tanh, key=rng_key)
        yield cls(RBF(0.7, 1.3), network), example_points(rng_key, 3)


def network_priors(
    network: Network, scale: float | Callable[[Array], Any] = 1.0, *, centered_at_start: bool = False
) -> Network:
    r"""Put a normal prior in the place of every floating-point array of a network.

    .. math:: w_{ij} \sim N(0, s^2), \qquad \text{or } N(w^0_{ij}, s^2)

    Args:
        network: Any pytree: a network of Equinox, the weights of one of Flax, an `ApplyFn`. Priors that it holds
            already, and leaves other than floating-point arrays, stay unchanged.
        scale: s, one positive number, or a function of the array that returns one: ``lambda w: w.shape[-1] ** -0.5``
            keeps the outputs of Equinox's wide layers of order one.
        centered_at_start: Whether the priors are centered at the network's own arrays :math:`w^0` instead of 0. An
            optimizer that starts from the middle of the prior then starts from the given network.

    Returns:
        The network with priors for `kpp.sample`; the sites are named after the paths, ``kernel.feature_map...``.

    Raises:
        ValueError: If `scale` is not positive, or the network has no floating-point arrays.
    """
    if not callable(scale):
        positive(scale, "scale")

    def prior(leaf: Any) -> Any:
        if not eqx.is_inexact_array(leaf):
            return leaf
        deviation = scale(leaf) if callable(scale) else scale
        return dist.Normal(leaf if centered_at_start else jnp.zeros_like(leaf), jnp.full_like(leaf, deviation))

    replaced = jax.tree.map(prior, network, is_leaf=is_prior)
    if not any(is_prior(leaf) for leaf in jax.tree.leaves(replaced, is_leaf=is_prior)):
        raise ValueError(f"`network` must hold floating-point arrays, got a {type(network).__name__} without any")
    return replaced


def _fix(leaf: object) -> Any:
    """Make functions static fields, so that all leaves are arrays or priors."""
    return _Fixed(leaf) if callable(leaf) and not is_prior(leaf) and not eqx.is_array(leaf) else leaf


def _show(tree: PyTree) -> str:
    """Return a text with the values of all leaves; the repr of a network would show only their shapes."""
    leaves = jax.tree_util.tree_leaves_with_path(tree, is_leaf=is_prior)
    values = [
        f"{jax.tree_util.keystr(path, simple=True, separator='.')}={' '.join(show(leaf).split())}"
        for path, leaf in leaves
    ]
    name = repr(tree) if isinstance(tree, _Fixed) else type(tree).__name__
    return f"{name}({', '.join(values)})" if values else name
