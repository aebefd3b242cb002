"""Laws of Gaussian vectors: formulas, and distributions of NumPyro for the observed site."""
