"""The terminal: progress while something is made, and tables at the end."""
