"""Estimates of an effect: by averages of a fit, by the embedding of an expression, and where there is no effect."""
