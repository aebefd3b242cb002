"""Many pairs of fewer items: Gram matrix, linear systems, and the law of observations."""
