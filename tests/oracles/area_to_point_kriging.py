"""Simple kriging from weighted area averages, by the textbook system of covariances."""

import numpy as np


def area_to_point_kriging(covariance, weights, averages, noise=0.0):
    """Return the estimate and its covariance at n points, for weights (N, n) whose rows sum to 1.

    Kyriakidis, A geostatistical framework for area-to-point spatial interpolation, 2004: the covariances between areas,
    and between areas and points, are weighted sums of those between points.
    """
    num_areas, num_points = weights.shape
    between_areas, to_points = np.zeros((num_areas, num_areas)), np.zeros((num_areas, num_points))
    for j in range(num_areas):
        for i in range(num_points):
            to_points[j] += weights[j, i] * covariance[i]
            between_areas[j] += weights[j, i] * (weights @ covariance[i])
    shares = np.linalg.solve(between_areas + noise * np.eye(num_areas), to_points)
    return shares.T @ averages, covariance - shares.T @ to_points
