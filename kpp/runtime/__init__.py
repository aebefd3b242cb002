"""How programs run: threads, processes, signals, memory, blocks of work, random keys, and whole files."""
