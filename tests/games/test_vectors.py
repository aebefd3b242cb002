"""Reference numbers computed by independent brute-force programs."""

from __future__ import annotations

import numpy as np
import pytest

from kpp.functions import RKHSFunction
from kpp.games import Interventional, all_coalitions, interventional_shapley, shapley_values_from_table
from kpp.kernels import RBF

TOLERANCE = {"rtol": 1e-7, "atol": 1e-10}


def test_shapley_values_of_a_table(vectors):
    shapley = vectors("shapley_core")
    np.testing.assert_allclose(shapley_values_from_table(shapley["in_v"]), shapley["out_phi"], **TOLERANCE)


@pytest.mark.slow_variants("small-enumeration", "small-quadrature", "d60-auto")
@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("small", "quadrature"),
        ("small", "enumeration"),
        pytest.param("d10", "quadrature", marks=pytest.mark.slow),
        pytest.param("d10", "enumeration", marks=pytest.mark.slow),
        ("d60", "auto"),
    ],
)
def test_interventional_values(vectors, name, method):
    product = vectors("exact_product")
    function = RKHSFunction(
        RBF(lengthscale=product[f"in_{name}_ls"]), product[f"in_{name}_X"], product[f"in_{name}_alpha"]
    )
    values = interventional_shapley(function, product[f"in_{name}_Xq"], product[f"in_{name}_Z"], method=method)
    np.testing.assert_allclose(values, product[f"out_{name}_phi"], **TOLERANCE)


def test_values_of_all_coalitions(vectors):
    product = vectors("exact_product")
    function = RKHSFunction(RBF(lengthscale=product["in_d10_ls"]), product["in_d10_X"], product["in_d10_alpha"])
    values = Interventional(product["in_d10_Z"])(function, product["in_d10_Xq"], all_coalitions(10))
    np.testing.assert_allclose(values.T, product["out_d10_v"], **TOLERANCE)
