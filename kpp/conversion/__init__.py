"""Fitted scikit-learn kernel methods as RKHS functions, exactly or not at all."""

from kpp.conversion.estimators import as_rkhs_function as as_rkhs_function
