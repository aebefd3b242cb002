"""Targets for bags that have none: two-step mediation, and how well it can work."""
