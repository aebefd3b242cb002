"""Small neural classifiers whose boundary can be made smoother: by a penalty on weights, or by a softer activation."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Shaped
from numpy.typing import ArrayLike

from kpp.networks import MLP, train
from kpp.typing import AnyArray, RngKey
from kpp.validation import as_points, check_rng_key, check_same_rows

__all__ = ["FittedMLPClassifier", "MLPClassifier"]


class MLPClassifier(eqx.Module):
    r"""A fully connected classifier, trained by the cross-entropy with a penalty on the weights.

    .. math:: \min_w \; -\frac1n \sum_{i=1}^n \log p_{y_i}(x_i) + \frac{l_2}{2} \sum_l \lVert W_l \rVert^2,
        \qquad p(x) = \mathrm{softmax}(f_w(x))

    Features should be of order 1, such as pixels between 0 and 1.

    Args:
        hidden: The widths of the hidden layers.
        l2: :math:`l_2`, the penalty; a larger value makes the boundary simpler.
        beta: :math:`\beta` of the Softplus :math:`\log(1 + e^{\beta t}) / \beta`; a smaller value makes the function
            smoother. None for the limit, the ReLU.
        num_epochs: The number of passes over the rows.
        batch_size: The most rows in one step.
        learning_rate: The first step size of Adam, which falls to 0.
        progress: Whether to show a bar.

    References:
        Hill, Masoomi, Torop, Ghimire, Dy (2023), "Boundary-aware uncertainty for feature attribution explainers",
        section 5.3 and appendix E.3; Dombrowski et al., "Explanations can be manipulated and geometry is to blame",
        2019, for the Softplus.
    """

    hidden: tuple[int, ...] = eqx.field(static=True, default=(64, 64), converter=tuple)
    l2: float = eqx.field(static=True, default=0.0)
    beta: float | None = eqx.field(static=True, default=None)
    num_epochs: int = eqx.field(static=True, default=100)
    batch_size: int = eqx.field(static=True, default=64)
    learning_rate: float = eqx.field(static=True, default=0.003)
    progress: bool = eqx.field(static=True, default=True)

    def fit(self, x: ArrayLike, y: ArrayLike, *, rng_key: RngKey) -> FittedMLPClassifier:
        """Train on labelled points.

        Args:
            x: The points, (n, d).
            y: One label per point, (n,): integers, booleans or text, of at least two classes.
            rng_key: A JAX random key.

        Returns:
            The classifier.

        Raises:
            ValueError: If `x` is not a table of finite numbers, `y` does not have n labels of at least two classes, or
                an option is out of range.
        """
        points, labels = as_points(x), np.asarray(y)
        if labels.ndim != 1 or labels.dtype.kind not in "biuUSO":
            raise ValueError(f"`y` must hold one label per row, got {labels.dtype} of shape {labels.shape}")
        check_same_rows(len(points), len(labels), "x", "y")
        classes, codes = np.unique(labels, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"`y` must hold labels of at least two classes, got only {classes.tolist()}")
        start, order = jax.random.split(check_rng_key(rng_key))
        trained = train(
            order,
            MLP(start, (points.shape[1], *self.hidden, len(classes)), beta=self.beta),
            _cross_entropy,
            (points, jnp.asarray(codes)),
            num_epochs=self.num_epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            l2=self.l2,
            progress=self.progress,
            label="classifier",
        )
        return FittedMLPClassifier(trained.network, tuple(classes.tolist()), trained.losses)


class FittedMLPClassifier(eqx.Module):
    """A trained classifier, a JAX function from points to probabilities, as returned by `MLPClassifier.fit`.

    Args:
        network: The network, from a point (d,) to the k classes' logits, (k,).
        classes: The labels of the classes, in order.
        losses: The mean cross-entropy of each epoch.
    """

    network: MLP
    classes: tuple[Any, ...] = eqx.field(static=True)
    losses: Float[np.ndarray, " num_epochs"]

    @property
    def output_names(self) -> tuple[str, ...]:
        """The names of the outputs in explanations: the classes."""
        return tuple(str(label) for label in self.classes)

    def __call__(self, x: Float[AnyArray, "n d"]) -> Float[Array, "n k"]:
        """Return the probabilities of the classes at points."""
        return jax.nn.softmax(self.logits(x), axis=1)

    def logits(self, x: Float[AnyArray, "n d"]) -> Float[Array, "n k"]:
        """Return the logits, whose differences are log-odds; their gradient does not vanish if a class is certain."""
        return _logits(self.network, jnp.asarray(x, self.network.layers[0].weight.dtype))

    def predict_proba(self, x: ArrayLike) -> Float[np.ndarray, "n k"]:
        """Return the probabilities as a NumPy array."""
        return np.asarray(self(self._points(x)))

    def predict(self, x: ArrayLike) -> Shaped[np.ndarray, " n"]:
        """Return the label of the most probable class at each point."""
        return np.asarray(self.classes)[np.asarray(self.logits(self._points(x))).argmax(axis=1)]

    def score(self, x: ArrayLike, y: ArrayLike) -> float:
        """Return the accuracy: the share of points whose label is predicted correctly."""
        return float(np.mean(self.predict(x) == np.asarray(y)))

    def _points(self, x: ArrayLike) -> Array:
        return as_points(x, num_features=self.network.layers[0].weight.shape[1])


@eqx.filter_jit
def _logits(network: MLP, x: Array) -> Array:
    return jax.vmap(network)(x)


def _cross_entropy(network: MLP, batch: tuple[Array, Array]) -> Array:
    x, codes = batch
    return optax.softmax_cross_entropy_with_integer_labels(jax.vmap(network)(x), codes).mean()
