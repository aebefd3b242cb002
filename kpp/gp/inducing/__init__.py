"""Inducing points: their placement, their bounds, and the features of points that they give."""
