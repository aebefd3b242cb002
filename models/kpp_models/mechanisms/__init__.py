"""From a causal graph to a NumPyro model: one site per variable, and a mechanism with priors for each."""
