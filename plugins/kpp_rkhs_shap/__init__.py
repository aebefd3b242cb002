"""Shapley values of functions in an RKHS, exact and with a posterior."""
