"""Engines: execution back ends for the stages of a plan. No stage depends on the engine."""
