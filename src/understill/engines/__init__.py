"""Engines: whatever runs the stages of a plan. No stage knows which engine runs it."""
