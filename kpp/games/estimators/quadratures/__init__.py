"""Exact Shapley values and interactions of product kernels, in polynomial time by quadrature."""
