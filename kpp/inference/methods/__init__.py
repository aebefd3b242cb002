"""Inferences: NUTS, MCMC, SVI, Laplace's approximation, MAP, natural gradients, and what they share."""
