"""Laplace's approximation: its mode, its evidence, and its correction by annealing."""
