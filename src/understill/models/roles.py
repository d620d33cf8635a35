"""Roles: the parts that models play in a run, as its record tells; one model may be a teacher here, a student there."""

from __future__ import annotations

from pathlib import Path

from understill.atomic import read_record

#: The file of a run folder that says what the run was and what came of it.
RECORD = "run.json"
#: How a run, a model or an export was made: its recipe, with every default.
RECIPE = "recipe.yaml"
#: The parts of what a run is made for: its student or, without teachers, its models.
MAIN = ("student", "model")


def roles_in(folder: Path) -> dict[str, str]:
    """Return the roles of the models of a run folder, or of one of its cells, by name; none where no record tells."""
    try:
        if (folder / RECORD).is_file():
            roles: dict[str, str] = read_record(folder / RECORD)["roles"]
            return roles
        record = read_record(folder.parent.parent / RECORD)
        models = next(cell["models"] for cell in record["cells"] if cell["name"] == folder.name)
        return {name: model["role"] for name, model in models.items()}
    except (OSError, ValueError, LookupError, TypeError, StopIteration):
        return {}
