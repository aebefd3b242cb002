"""Embeddings of distributions: means, conditional means, their inverses, and their posteriors."""
