"""Targets: teachers' answers to each row, kept as raw logits, and one target made of several teachers."""
