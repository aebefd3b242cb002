"""Shapley values and interactions of a game: exact by enumeration or quadrature, or estimated from samples."""
