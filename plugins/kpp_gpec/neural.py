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
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from kpp.estimators import KernelEstimator, as_rng_key, pad_rows, read_rows, read_training
from kpp.networks import MLP, train
from kpp.typing import AnyArray
from kpp.validation import as_points

__all__ = ["FittedMLPClassifier", "MLPClassifier"]


class MLPClassifier(ClassifierMixin, KernelEstimator):
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
        random_state: An integer, a `numpy.random.RandomState`, None or a JAX random key.

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

    function_: FittedMLPClassifier

    def __init__(
        self,
        hidden: Any = (64, 64),
        *,
        l2: Any = 0.0,
        beta: Any = None,
        num_epochs: Any = 100,
        batch_size: Any = 64,
        learning_rate: Any = 0.003,
        progress: Any = True,
        random_state: Any = None,
    ) -> None:
        self.hidden = hidden
        self.l2 = l2
        self.beta = beta
        self.num_epochs = num_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.progress = progress
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> MLPClassifier:
        """Train on labelled points.

        Args:
            X: The points, (n, d), an array or a data frame of numbers.
            y: One label per point, (n,), of at least two classes.

        Returns:
            The estimator itself.

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
        trained = train(
            order,
            MLP(start, (points.shape[1], *self.hidden, len(self.classes_)), beta=self.beta),
            _cross_entropy,
            (points, jnp.asarray(codes.ravel())),
            num_epochs=self.num_epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            l2=self.l2,
            progress=self.progress,
            label="classifier",
        )
        self.function_ = FittedMLPClassifier(trained.network, tuple(self.classes_.tolist()), trained.losses)
        return self

    def predict_proba(self, X: Any) -> Float[np.ndarray, "n k"]:
        """Return the probabilities of the classes at points (n, d)."""
        check_is_fitted(self)
        points = np.asarray(read_rows(self, X))
        return np.asarray(self.function_(pad_rows(points)))[: len(points)]

    def predict(self, X: Any) -> np.ndarray:
        """Return the label of the most probable class at each point (n, d)."""
        probabilities = self.predict_proba(X)
        return self.classes_[np.argmax(probabilities, axis=1)]


class FittedMLPClassifier(eqx.Module):
    """A trained classifier as a JAX function from points to probabilities: `function_` of an `MLPClassifier`.

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
