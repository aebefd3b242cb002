"""Models of preferences between items."""
