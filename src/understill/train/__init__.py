"""Training: every loss, the optimisers, THE loop, and checkpoints."""
