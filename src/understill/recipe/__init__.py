"""The recipe: a whole experiment as one frozen, checked object, read from a YAML file."""

from understill.recipe.experiment import Cell, Recipe
from understill.recipe.parse import load_recipe, make_recipe

__all__ = ["Cell", "Recipe", "load_recipe", "make_recipe"]
