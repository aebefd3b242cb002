"""Features of kernels as transformers, for linear methods on many rows."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, TypeVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from kpp.data.estimators import KernelEstimator, as_rng_key, in_float64, pad_rows, read_estimator_rows
from kpp.data.tables import Schema, read_points
from kpp.features import AbstractFeatureKernel, Nystrom, RandomFourier, landmarks
from kpp.gp.toolkit import check_categories, check_kernel_fits
from kpp.kernels import resolve_features
from kpp_models.tables.estimators.defaults import fixed_rbf, scaled_kernel

Features = TypeVar("Features", bound="KernelFeatures")


class KernelFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, KernelEstimator):
    """A transformer to the features of a kernel of finite rank, in its attribute `features_`."""

    features_: AbstractFeatureKernel
    schema_: Schema
    kernel: Any
    random_state: Any = None

    @abc.abstractmethod
    def _features(self, points: Float[np.ndarray, "n d"]) -> tuple[AbstractFeatureKernel, int]:
        """Return the kernel of the features, chosen by points, and the number of features."""

    @in_float64
    def fit(self: Features, X: Any, y: Any = None) -> Features:
        """Choose the landmarks of Nyström's method, or draw the frequencies of random Fourier features.

        Args:
            X: The points, an array (n, d), a data frame or an xarray object; columns of text are categories, which
                random Fourier features do not take.
            y: Not used.

        Returns:
            The estimator itself.

        Raises:
            ValueError: If the data or a parameter are invalid.
            TypeError: If the kernel holds priors, or its spectral density must be known and is not.
        """
        points, self.schema_ = read_points(read_estimator_rows(self, X, reset=True), "X")
        self.features_, self._n_features_out = self._features(points)
        return self

    @in_float64
    def transform(self, X: Any) -> Float[np.ndarray, "p q"]:
        """Return the features of rows (p, d), (p, q)."""
        check_is_fitted(self)
        points = self.schema_.read(read_estimator_rows(self, X), "X")
        return np.asarray(_feature_map(self.features_, jnp.asarray(pad_rows(points))))[: len(points)]


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)  # compared and printed by scikit-learn
class NystroemFeatures(KernelFeatures):
    r"""Features of Nyström's method, `kpp.features.Nystrom`.

    .. math:: \phi(x) = L^{-1} k(Z, x), \qquad k(Z, Z) = L L^\top, \qquad
        \phi(x)^\top \phi(x') = k(x, Z)\, k(Z, Z)^{-1} k(Z, x')

    They are scikit-learn's `Nystroem` up to a rotation, with any kernel of kpp. A linear model on them is a function of
    the kernel, ``features_.function(ridge.coef_, ridge.intercept_)``, so `kpp.explain` takes the pipeline of both.

    Args:
        kernel: k, with numbers as leaves; by default `kpp.kernels.default_kernel` with lengthscales by the median
            distances of each column.
        num_landmarks: The number of landmarks Z; if there are fewer rows, all rows.
        method: How `kpp.features.landmarks` chooses them: "random", "herding" or "kmeans".
        random_state: An integer, a generator of NumPy, None or a JAX random key.

    Attributes:
        features_: The kernel of the features.
        schema_: The columns of the rows, a `kpp.data.tables.Schema`.
        n_features_in_: The number of columns.
        feature_names_in_: The names of the columns of a data frame.

    Example:
        >>> from kpp_models.estimators import NystroemFeatures
        >>> features = NystroemFeatures(kpp.kernels.RBF(1.0), num_landmarks=5, random_state=0)
        >>> features.fit_transform(x).shape
        (20, 5)
    """

    kernel: Any = dataclasses.field(default=None, kw_only=False)
    num_landmarks: Any = 100
    method: Any = "random"
    random_state: Any = None

    def _features(self, points: Float[np.ndarray, "n d"]) -> tuple[AbstractFeatureKernel, int]:
        kernel = scaled_kernel(points, self.schema_) if self.kernel is None else self.kernel
        kernel = resolve_features(kernel, self.schema_.feature_names)
        count = min(self.num_landmarks, len(points))
        key = as_rng_key(self.random_state)
        found = landmarks(points, count, method=self.method, kernel=kernel, rng_key=key)
        return Nystrom(kernel, found.points), count


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)  # compared and printed by scikit-learn
class RandomFourierFeatures(KernelFeatures):
    r"""Random Fourier features of a stationary kernel, `kpp.features.RandomFourier`.

    .. math:: \phi(x) = \frac{\sigma}{\sqrt q} \bigl(\cos\langle\omega_r, x/\ell\rangle,
        \sin\langle\omega_r, x/\ell\rangle\bigr)_{r = 1, \ldots, q}, \qquad E[\phi(x)^\top \phi(x')] = k(x, x')

    Args:
        kernel: k, `kpp.kernels.RBF` or a Matern kernel, with numbers as leaves; by default an RBF with lengthscales by
            the median distances of each column.
        num_frequencies: q; there are twice as many features.
        random_state: An integer, a generator of NumPy, None or a JAX random key.

    Attributes:
        features_: The kernel of the features.
        schema_: The columns of the rows, a `kpp.data.tables.Schema`.
        n_features_in_: The number of columns.
        feature_names_in_: The names of the columns of a data frame.
    """

    kernel: Any = dataclasses.field(default=None, kw_only=False)
    num_frequencies: Any = 100
    random_state: Any = None

    def _features(self, points: Float[np.ndarray, "n d"]) -> tuple[AbstractFeatureKernel, int]:
        kernel = fixed_rbf(points) if self.kernel is None else self.kernel
        key = as_rng_key(self.random_state)
        features = RandomFourier.approximate(key, kernel, self.num_frequencies, points.shape[1])
        check_kernel_fits(features, jnp.asarray(points))
        check_categories(kernel, self.schema_)
        return features, 2 * self.num_frequencies


_feature_map = eqx.filter_jit(lambda kernel, x: kernel.feature_map(x))
