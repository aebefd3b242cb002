"""Players of a game and their coalitions."""
