"""Likelihoods of n observations, each of which depends on its own latent value, or on several of its own."""
