"""Kernels on pairs of items, for preferences."""
