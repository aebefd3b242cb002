"""Sharp bounds of probabilities of causation, by linear programs over all laws of potential outcomes."""

from __future__ import annotations

import itertools

import numpy as np
from scipy.optimize import linprog

#: The types of units: treatment X, and outcomes without and with the treatment.
TYPES = list(itertools.product((0, 1), repeat=3))


def frequencies(weights):
    """What a study and a trial show if types have these weights: P(Y_1 = 1), P(Y_0 = 1) and P(X, Y)."""
    joint = np.zeros((2, 2))
    for (x, without, with_treatment), weight in zip(TYPES, weights, strict=True):
        joint[x, with_treatment if x else without] += weight
    treated, untreated = (sum(w for t, w in zip(TYPES, weights, strict=True) if t[place]) for place in (2, 1))
    return treated, untreated, joint


def probabilities(weights):
    """PNS, PN and PS if types have these weights."""
    of = dict(zip(TYPES, weights, strict=True))
    joint = frequencies(weights)[2]
    caused = {x: of[x, 0, 1] for x in (0, 1)}
    return {"PNS": caused[0] + caused[1], "PN": caused[1] / joint[1, 1], "PS": caused[0] / joint[0, 0]}


def sharp_bounds(treated, untreated, joint):
    """The least and the largest value of each probability among the laws of types with these frequencies."""
    unit = np.eye(len(TYPES))
    rows = np.array([np.concatenate([[t, q], j.ravel()]) for t, q, j in map(frequencies, unit)]).T
    found = np.concatenate([[treated, untreated], np.ravel(joint)])
    aims = {
        "PNS": np.array([float(t[1:] == (0, 1)) for t in TYPES]),
        "PN": np.array([float(t == (1, 0, 1)) for t in TYPES]) / joint[1, 1],
        "PS": np.array([float(t == (0, 0, 1)) for t in TYPES]) / joint[0, 0],
    }
    return {
        name: [sign * linprog(sign * aim, A_eq=rows, b_eq=found).fun for sign in (1, -1)] for name, aim in aims.items()
    }
