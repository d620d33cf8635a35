"""The bench: models of any form side by side on this machine, in one run, and through HTTP."""
