"""Gaussian processes conditioned on data: what they are, and how they come about."""
