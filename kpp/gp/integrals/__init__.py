"""Integrals over one Gaussian variable: expectations of links, of the softmax and of functions."""
