"""Conditioning a mixture of Gaussian vectors on noisy entries, component by component and all at once."""

from __future__ import annotations

import itertools

import numpy as np
from scipy.optimize import brentq
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm


def condition(log_weights, means, covariances, discrepancies, noise_factors, index, values, noise_variance):
    """Return weights (j, l, v), means (j, l, v, p) and covariances (j, l, v, p, p) given entries with noise.

    A component is a draw j with a discrepancy l and a factor v of the noise variance; entries may be repeated.
    """
    shape, p = (len(means), len(discrepancies), len(noise_factors)), means.shape[1]
    logs, found, spread = np.empty(shape), np.empty((*shape, p)), np.empty((*shape, p, p))
    for j, d, v in itertools.product(*map(range, shape)):
        prior = covariances[j] + discrepancies[d]
        joint = prior[np.ix_(index, index)] + noise_factors[v] * noise_variance * np.eye(len(index))
        gain = np.linalg.solve(joint, prior[index]).T
        logs[j, d, v] = log_weights[j] + multivariate_normal(means[j][index], joint).logpdf(values)
        found[j, d, v] = means[j] + gain @ (values - means[j][index])
        spread[j, d, v] = prior - gain @ prior[index]
    return np.exp(logs - logsumexp(logs)), found, spread


def quantile(weights, means, variances, level):
    """Return the quantile of a mixture at each point, by Brent's method on its distribution function."""
    weights, p = weights.ravel(), means.shape[-1]
    means, sds = means.reshape(-1, p), np.sqrt(variances.reshape(-1, p))
    bounds = (means - 40 * sds).min(axis=0), (means + 40 * sds).max(axis=0)
    return np.array(
        [
            brentq(lambda f, i=i: weights @ norm.cdf(f, means[:, i], sds[:, i]) - level, low, high, xtol=1e-13)
            for i, (low, high) in enumerate(zip(*bounds, strict=True))
        ]
    )
