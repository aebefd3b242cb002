"""Estimates of Shapley values from drawn coalitions or orders, and their errors."""
