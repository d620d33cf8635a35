"""Targets: what teachers say about each row, kept as raw logits, and one target made of several teachers."""
