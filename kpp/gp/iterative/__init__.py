"""Gaussian-process regression by products with a kernel matrix that is never in memory."""
