"""The planner: from a recipe and its data to what is to be made."""
