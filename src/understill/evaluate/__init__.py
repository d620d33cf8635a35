"""Evaluation: predictions kept per row, metrics over them, and what differences between models mean."""
