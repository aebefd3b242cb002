"""Embeddings of interventions, by adjustment or by an identifying expression."""
