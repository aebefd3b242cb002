"""Plots of the values of an explanation."""
