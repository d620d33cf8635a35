"""Models: an encoder, one head per task, and the folder they are kept in."""
