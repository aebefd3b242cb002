"""scikit-learn's kernel methods and Gaussian processes as functions and posteriors of kpp."""

from kpp.conversion.scikit_learn.converter import SklearnConverter as SklearnConverter
