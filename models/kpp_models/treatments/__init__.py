"""Effects of treatments from one table and one graph, with their uncertainty."""
