"""Exact conversion of fitted scikit-learn kernel methods to RKHS functions."""

from kpp.conversion.estimators import as_rkhs_function as as_rkhs_function
