"""Small neural classifiers whose boundary can be made smoother: by a penalty on weights, or by a softer activation."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Shaped
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from kpp.data.estimators import KernelEstimator, as_rng_key, pad_rows, read_estimator_rows, read_training
from kpp.foundation.validation import as_points
from kpp.networks import MLP, ConvolutionalNetwork, train
from kpp.networks.toolkit import read_image_shape
from kpp.typing import AnyArray, RngKey

Classifier = TypeVar("Classifier", bound="_NeuralClassifier")


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)  # compared and printed by scikit-learn
class _NeuralClassifier(ClassifierMixin, KernelEstimator):
    """What the classifiers have in common, such as the options of training; each builds its own network."""

    hidden: Any = dataclasses.field(default=(64, 64), kw_only=False)
    l2: Any = 0.0
    beta: Any = None
    num_epochs: Any = 100
    batch_size: Any = 64
    learning_rate: Any = 0.003
    progress: Any = True
    random_state: Any = None

    def fit(self: Classifier, X: Any, y: Any) -> Classifier:
        """Train on labeled points.

        Args:
            X: The points, (n, d), an array or a data frame of numbers.
            y: One label per point, (n,), of at least two classes.

        Raises:
            ValueError: If the data or an option are invalid.
        """
        table, labels = read_training(self, X, y, numeric=False)
        check_classification_targets(labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"`y` must hold labels of at least two classes, got only {self.classes_.tolist()}")
        points = as_points(table, "X")
        start, order = jax.random.split(as_rng_key(self.random_state))
        network, data = self._network(start, points.shape[1], len(self.classes_)), (points, jnp.asarray(codes.ravel()))
        names = ("num_epochs", "batch_size", "learning_rate", "l2", "progress")
        options = {name: getattr(self, name) for name in names}
        trained = train(order, network, _cross_entropy, data, label="classifier", **options)
        self.function_ = FittedNeuralClassifier(trained.network, tuple(self.classes_.tolist()), trained.losses)
        return self

    def predict_proba(self, X: Any) -> Float[np.ndarray, "n k"]:
        """Return the probabilities of the classes at points (n, d)."""
        check_is_fitted(self)
        points = np.asarray(read_estimator_rows(self, X))
        return np.asarray(self.function_(pad_rows(points)))[: len(points)]

    def predict(self, X: Any) -> np.ndarray:
        """Return the label of the most probable class at each point (n, d)."""
        probabilities = self.predict_proba(X)
        return self.classes_[np.argmax(probabilities, axis=1)]

    def _network(self, rng_key: RngKey, num_features: int, num_classes: int) -> MLP | ConvolutionalNetwork:
        """Return the network before training, from points of d features to logits."""
        raise NotImplementedError


class MLPClassifier(_NeuralClassifier):
    r"""A fully connected classifier, trained by the cross-entropy with a penalty on the weights.

    .. math:: \min_w \; -\frac1n \sum_{i=1}^n \log p_{y_i}(x_i) + \frac{l_2}{2} \sum_l \lVert W_l \rVert^2,
        \qquad p(x) = \mathrm{softmax}(f_w(x))

    It is an estimator of scikit-learn. Features should be of order 1, such as pixels between 0 and 1.

    Args:
        hidden: The widths of the hidden layers.
        l2: :math:`l_2`, the penalty; a larger value makes the boundary simpler.
        beta: :math:`\beta` of the Softplus :math:`\log(1 + e^{\beta t}) / \beta`; a smaller value makes the function
            smoother. None for the limit, the ReLU.
        num_epochs: The number of passes over the rows.
        batch_size: The most rows in one step.
        learning_rate: The first step size of Adam, which falls to 0.
        progress: Whether to show a bar.
        random_state: An integer, a generator of NumPy, None or a JAX random key.

    Attributes:
        function_: The trained classifier as a JAX function, for explainers and samplers that need its gradients.
        classes_: The sorted labels.
        n_features_in_: The number of columns.
        feature_names_in_: The names of the columns of a data frame.

    References:
        Hill, Masoomi, Torop, Ghimire, Dy (2023), "Boundary-aware uncertainty for feature attribution explainers",
        section 5.3 and appendix E.3; Dombrowski et al., "Explanations can be manipulated and geometry is to blame",
        2019, for the Softplus.
    """

    def _network(self, rng_key: RngKey, num_features: int, num_classes: int) -> MLP:
        return MLP(rng_key, (num_features, *self.hidden, num_classes), beta=self.beta)


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)  # compared and printed by scikit-learn
class ConvolutionalClassifier(_NeuralClassifier):
    r"""A convolutional classifier of images in rows of pixels, trained as `MLPClassifier` is.

    Each convolution has windows of 3 by 3 pixels; after it come the Softplus or ReLU, and the largest values of windows
    of 2 by 2 pixels. Fully connected layers come last (`kpp.networks.ConvolutionalNetwork`).

    Args:
        image_shape: (height, width), or (height, width, channels) with the channels of a pixel side by side. None for
            images of one channel that are as high as wide.
        channels: The number of features of each convolution.
        hidden: The widths of the fully connected hidden layers.
        l2, beta, num_epochs, batch_size, learning_rate, progress, random_state: As for `MLPClassifier`.

    Attributes:
        function_: As for `MLPClassifier`, like ``classes_``, ``n_features_in_`` and ``feature_names_in_``.

    References:
        LeCun, Bottou, Bengio, Haffner, Gradient-based learning applied to document recognition, 1998.
    """

    image_shape: Any = dataclasses.field(default=None, kw_only=False)
    channels: Any = (16, 32)
    hidden: Any = (64,)
    num_epochs: Any = 60
    learning_rate: Any = 0.01

    def _network(self, rng_key: RngKey, num_features: int, num_classes: int) -> ConvolutionalNetwork:
        side = math.isqrt(num_features)
        shape = read_image_shape((side, side) if self.image_shape is None else self.image_shape, num_features)
        return ConvolutionalNetwork(rng_key, shape, self.channels, self.hidden, num_classes, beta=self.beta)


class FittedNeuralClassifier(eqx.Module):
    """A trained classifier as a JAX function from points to probabilities: `function_` of a neural classifier.

    Args:
        network: The network, from a point (d,) to the k classes' logits, (k,).
        classes: The labels of the classes, in order.
        losses: The mean cross-entropy of each epoch.
    """

    network: MLP | ConvolutionalNetwork
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
        weights = next(leaf for leaf in jax.tree.leaves(self.network) if eqx.is_inexact_array(leaf))
        return _logits(self.network, jnp.asarray(x, weights.dtype))

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
        return as_points(x, num_features=self.network.num_features)


@eqx.filter_jit
def _logits(network: Callable[[Array], Array], x: Array) -> Array:
    return jax.vmap(network)(x)


def _cross_entropy(network: Callable[[Array], Array], batch: tuple[Array, Array]) -> Array:
    x, codes = batch
    return optax.softmax_cross_entropy_with_integer_labels(jax.vmap(network)(x), codes).mean()
