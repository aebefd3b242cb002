"""Identification of causal effects: estimands, expressions and hedges."""
