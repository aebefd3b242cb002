"""Regression that uses the independences that a collider implies."""
