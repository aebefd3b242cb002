"""How much of the variance of a function each feature explains: Sobol indices and Shapley effects."""
