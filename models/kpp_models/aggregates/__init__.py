"""Models of fields that are observed through averages over bags of points."""
