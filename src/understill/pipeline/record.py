"""The record: the results of a run, as objects and as the JSON file of its folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from understill import atomic
from understill.errors import UserError
from understill.models.roles import RECIPE, RECORD

if TYPE_CHECKING:  # which would import torch
    from understill.events import Scores
    from understill.pipeline.aggregate import Findings
    from understill.pipeline.model_training import TrainedModel
    from understill.pipeline.plan.parts import Role
    from understill.recipe import Cell
    from understill.tasks import Task

#: The folder of a run folder that holds the other runs of its study.
CELLS = "cells"
#: The column of a linear head on the frozen encoder, and all columns that models are to beat.
PROBE = "linear probe"
FLOORS = ("majority", PROBE)
#: The columns beside that of what a recipe is made for, its student or, without teachers, its models.
BESIDE = (*FLOORS, "teachers", "baseline", "finetuned baseline", "finetuned")
#: The parts that models play which are scored, in the order of tables.
ROLES: tuple[Role, ...] = ("model", "baseline", "finetuned baseline", "student", "finetuned")


def named_column(column: str) -> str:
    """Call a column by what it is in a sentence."""
    return f"the {column}" if column in BESIDE or column == "student" else column


@dataclass(frozen=True)
class Run:
    """The results of a run."""

    folder: Path
    models: tuple[TrainedModel, ...]
    majority: Scores
    teachers: Scores  # of each task's teachers together; empty without teachers
    members: Mapping[str, Scores]  # of each by itself, where a task has several
    tasks: Mapping[str, Task]
    aid: str = "teachers"  # what the baseline does without
    cell: Cell | None = None  # which run of its study it is
    answers: Path | None = None  # where the teachers' joint answers to the dev sets are kept
    probe: Scores = field(default_factory=dict)  # of linear heads on the frozen encoder; empty without an encoder
    findings: Findings | None = field(default=None, repr=False)  # of the whole study; the first of its runs has them

    @property
    def study(self) -> Path:
        """The folder of the study that it is a run of."""
        return self.folder.parent.parent if self.folder.parent.name == CELLS else self.folder

    @property
    def columns(self) -> dict[str, Scores]:
        """The scores of the floors, of teachers and of models, by the part that each plays."""
        columns: dict[str, Scores] = {"teachers": self.teachers} if self.teachers else {}
        for role in ROLES:
            # Models of one task each stand together.
            if mine := [model for model in self.models if model.role == role]:
                name = role if role != "model" else mine[0].name if len(mine) == 1 else "single-task"
                columns[name] = {place: values for model in mine for place, values in model.scores.items()}
        # Tasks that only help others on the way have no line.
        places = {place for scores in columns.values() for place in scores}
        floors = {"majority": self.majority, **({PROBE: self.probe} if self.probe else {})}
        shown = {name: {place: scores[place] for place in scores if place in places} for name, scores in floors.items()}
        return {**shown, **columns}


def read_record(path: Path) -> dict[str, Any]:
    """Return the record of a finished run."""
    try:
        record = atomic.read_record(path / RECORD)
        record["models"], record["cells"][0]["variant"]
    except OSError:
        raise UserError(f"{path}: no {RECORD} here, so this is no run → name the folder that a run printed") from None
    except (ValueError, LookupError, TypeError):
        raise UserError(
            f"{path / RECORD}: the run is not finished, or the file is broken → run its recipe again"
        ) from None
    if not same_recipe(path, record):
        raise UserError(f"{path / RECIPE} was changed or damaged since the run → run the recipe again")
    return record


def same_recipe(path: Path, record: Mapping[str, Any]) -> bool:
    """Tell whether the recipe in a run folder is the one that its record tells of; old records tell of none."""
    digest = record.get("recipe")
    return digest is None or ((path / RECIPE).exists() and digest == atomic.file_digest(path / RECIPE))


def own_cells(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the runs of the recipe as it is, one for each seed."""
    return [cell for cell in record["cells"] if cell["variant"] == record["cells"][0]["variant"]]
