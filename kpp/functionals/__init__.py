"""Gaussian posteriors of a function, and the law of what is linear in it."""

from kpp.functionals.posterior import GPPosterior as GPPosterior
