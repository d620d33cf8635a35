"""The saved model that these tests ask."""

from saved_model import make_model, model_folder, predictor

__all__ = ["make_model", "model_folder", "predictor"]
