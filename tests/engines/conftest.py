"""The saved model that shards are labelled with."""

from saved_model import make_model, model_folder

__all__ = ["make_model", "model_folder"]
