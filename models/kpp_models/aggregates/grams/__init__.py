"""Gram matrices of bags: exact, from a few points of each, by random features; and their prior."""
