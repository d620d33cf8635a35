"""The bench: models of any form timed side by side on this machine, with their sizes."""
