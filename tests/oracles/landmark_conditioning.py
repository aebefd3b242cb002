"""Observational values in low rank, one coalition and one point after the other."""

from __future__ import annotations

import numpy as np


def landmark_weights(kernel, background, landmarks, x, mask, regularization):
    """The weights (m, p) by the m x m matrix of Nyström's approximation, from eigenvectors of the landmarks' matrix.

    `kernel` is a function of two sets of points that hold the features of the coalition alone, and of its mask.
    """
    z, b, rows = background[:, mask], landmarks[:, mask], x[:, mask]
    values, vectors = np.linalg.eigh(kernel(b, b, mask))
    kept = values > 1e-15 * values[-1]
    root = vectors[:, kept] / np.sqrt(values[kept])
    features, at_rows = kernel(z, b, mask) @ root, kernel(rows, b, mask) @ root
    return np.linalg.solve(features @ features.T + len(z) * regularization * np.eye(len(z)), features @ at_rows.T)


def landmark_values(f, constant, kernel, background, landmarks, x, coalitions, regularization, *, embedded=False):
    """The values (c, p): exact ends, else weighted predictions of imputed rows, or of background rows."""
    table = []
    for mask in coalitions:
        if mask.all() or not mask.any():
            weights = np.full((len(background), len(x)), 1 / len(background))
        else:
            weights = landmark_weights(kernel, background, landmarks, x, mask, regularization)
        values = []
        for point, column in zip(x, weights.T, strict=True):
            rows = background.copy()
            if mask.all() or not embedded:
                rows[:, mask] = point[mask]
            values.append(constant + column @ (np.asarray(f(rows)) - constant))
        table.append(values)
    return np.array(table)


def gaussian_conditional_values(function, covariance, x, coalitions):
    """The conditional expectations (c, p) of a function with an RBF kernel under a Gaussian with mean 0."""
    points, squares = np.asarray(function.points), np.asarray(function.kernel.lengthscale) ** 2
    table = []
    for mask in coalitions:
        slopes = np.linalg.solve(covariance[np.ix_(mask, mask)], covariance[np.ix_(mask, ~mask)]).T
        spread = covariance[np.ix_(~mask, ~mask)] - slopes @ covariance[np.ix_(mask, ~mask)]
        widened = spread + np.diag(squares[~mask])
        scale = np.sqrt(np.prod(squares[~mask]) / np.linalg.det(widened))
        values = []
        for point in x:
            gaps = slopes @ point[mask] - points[:, ~mask]
            absent = scale * np.exp(-0.5 * np.sum(gaps * np.linalg.solve(widened, gaps.T).T, axis=1))
            present = np.exp(-0.5 * np.sum((point[mask] - points[:, mask]) ** 2 / squares[mask], axis=1))
            values.append(np.asarray(function.coefficients) @ (present * absent) + float(function.intercept))
        table.append(values)
    return np.array(table)
