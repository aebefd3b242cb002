"""The fit: draws, its groups for ArviZ, and its file."""
