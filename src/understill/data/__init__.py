"""Data: files in, checked rows with stable ids out."""
