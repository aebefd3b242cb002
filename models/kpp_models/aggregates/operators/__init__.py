"""The estimated conditional mean operator, and its uncertainty."""
