"""The Gaussian process of explanations and its kernel."""
