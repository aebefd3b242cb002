"""Explanations of very many rows as jobs that go on after an interruption: `explain_to_store`, `kpp explain`."""
