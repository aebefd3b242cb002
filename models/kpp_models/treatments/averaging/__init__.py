"""Averages of a fitted function over rows in which the treatment is set: laws and draws."""
