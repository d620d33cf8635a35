"""Evaluation: predictions kept per example, and the metrics over them."""
