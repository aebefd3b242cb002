"""Kernels of two points."""
