"""Estimates of an effect: by averages of a fit, an expression, or proxies of hidden causes, and where there is none."""
