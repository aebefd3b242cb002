"""Threads that explain at the same time get the same numbers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

import kpp
from kpp.kernels import RBF


def test_eight_threads_get_the_same_numbers():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6, 3))
    function = kpp.RKHSFunction(RBF(1.0), x, rng.normal(size=6))

    def explain(_: int) -> np.ndarray:
        return kpp.explain(function, x[:2], explainer="rkhs-shap", background=x).values.to_numpy()

    alone = explain(0)
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(explain, range(16)))
    for values in together:
        np.testing.assert_array_equal(values, alone)
