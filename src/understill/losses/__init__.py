"""Losses: a file for each term, how terms are mixed, and the fused form that the fast path runs."""
