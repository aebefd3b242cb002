"""A Gaussian process of one RBF kernel conditioned on any linear functionals, by one dense joint Gaussian.

Each functional is a row of weights of atoms: values of f and first derivatives at points. Formulas for the derivatives
of the kernel are written out (Rasmussen and Williams 2006, section 9.4), in NumPy.
"""

import numpy as np


def atoms_covariance(first, second, lengthscale, variance):
    """The covariances of atoms (point, feature); feature None is the value, else the derivative."""
    result = np.empty((len(first), len(second)))
    for i, (a, j) in enumerate(first):
        for k, (b, other) in enumerate(second):
            gap = (np.asarray(a) - np.asarray(b)) / lengthscale**2
            value = variance * np.exp(-0.5 * np.sum((np.asarray(a) - np.asarray(b)) ** 2) / lengthscale**2)
            if j is None and other is None:
                factor = 1.0
            elif other is None:
                factor = -gap[j]
            elif j is None:
                factor = gap[other]
            else:
                factor = (j == other) / lengthscale**2 - gap[j] * gap[other]
            result[i, k] = value * factor
    return result


def atoms_mean(atoms, mean):
    """The prior means of atoms under a constant mean."""
    return np.array([mean if feature is None else 0.0 for _, feature in atoms])


def condition_jointly(atoms, weights, z, noise, lengthscale, variance, mean):
    """Return the law of functionals of other atoms given z = W a + noise: (other atoms, weights) -> mean, covariance.

    The second value that is returned is the log evidence of z.
    """
    prior = atoms_covariance(atoms, atoms, lengthscale, variance)
    matrix = weights @ prior @ weights.T + np.diag(noise)
    residual = z - weights @ atoms_mean(atoms, mean)
    solved = np.linalg.solve(matrix, residual)
    evidence = -0.5 * (residual @ solved + np.linalg.slogdet(matrix)[1] + len(z) * np.log(2 * np.pi))

    def law(others, rows):
        cross = rows @ atoms_covariance(others, atoms, lengthscale, variance) @ weights.T
        known = rows @ atoms_covariance(others, others, lengthscale, variance) @ rows.T
        center = rows @ atoms_mean(others, mean) + cross @ solved
        return center, known - cross @ np.linalg.solve(matrix, cross.T)

    return law, evidence
