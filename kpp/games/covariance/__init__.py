"""Covariances of the Shapley values of a Gaussian process."""
