"""Shapley values from few coalitions that are chosen by the posterior of a Gaussian process on coalitions."""
