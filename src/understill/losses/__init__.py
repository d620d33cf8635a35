"""Losses: a file for each term, how terms are mixed, and the fused form that the fast path runs."""

from understill.losses.term import Needs, Outputs, TaskRows, Term

__all__ = ["Needs", "Outputs", "TaskRows", "Term"]
