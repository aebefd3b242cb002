"""Causal graphs: nodes, edges, paths and separation."""
