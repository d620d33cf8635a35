"""The server: a model that answers over HTTP, with a page to try it."""
