"""Whether matches can be ranked at all: clusters of comparable items, and statistics."""
