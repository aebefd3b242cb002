"""Curves of one feature by loops over values and rows."""

from __future__ import annotations

import numpy as np


def with_value(row, column, value):
    """Return a row with a value in one column."""
    changed = np.array(row, dtype=float)
    changed[column] = value
    return changed


def partial_dependence(f, rows, column, grid):
    """Return the mean of a function of one row over rows with each value in the column."""
    return np.array([np.mean([f(with_value(row, column, t)) for row in rows], axis=0) for t in grid])


def accumulated_effects(f, rows, column, grid):
    """Return accumulated local effects of a function of one row, with mean 0 over the rows inside of the grid."""
    total, curve, weighted, count = 0.0, [0.0], 0.0, 0
    for k in range(len(grid) - 1):
        low, high = grid[k], grid[k + 1]
        inside = [row for row in rows if low < row[column] <= high or (k == 0 and row[column] == low)]
        changes = [f(with_value(row, column, high)) - f(with_value(row, column, low)) for row in inside]
        before, total = total, total + np.mean(changes, axis=0)
        curve.append(total)
        weighted, count = weighted + len(inside) * (before + total) / 2, count + len(inside)
    return np.array([value - weighted / count for value in curve])


def variance_of_last_change(f, rows, column, grid):
    """Return the variance, from the sampling of the rows, of the last change of accumulated local effects."""
    low, high = grid[-2:]
    inside = [row for row in rows if low < row[column] <= high]
    changes = [f(with_value(row, column, high)) - f(with_value(row, column, low)) for row in inside]
    return np.var(changes, ddof=1) / len(changes)


def law(posterior, functional, points):
    """Return mean and covariance of a functional of all values at points, by dense algebra.

    Args:
        posterior: A posterior without draws.
        functional: A function from a function of one row to q numbers.
        points: All rows at which the functional evaluates.
    """
    points = np.unique(points, axis=0)
    index = {row.tobytes(): i for i, row in enumerate(points)}
    matrix = functional(lambda row: np.eye(len(points))[index[np.asarray(row, dtype=float).tobytes()]])
    mean, covariance = np.asarray(posterior.mean(points)), np.asarray(posterior.covariance(points, points))
    return matrix @ mean, matrix @ covariance @ matrix.T
