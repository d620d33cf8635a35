"""The outcome: what a run has come to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from understill.pipeline.plan import Role
from understill.pipeline.teaching import TrainedModel
from understill.recipe import Cell
from understill.tasks import Task
from understill.train.fit import Scores

#: The parts that models play which are scored, in the order of tables.
ROLES: tuple[Role, ...] = ("model", "baseline", "finetuned baseline", "student", "finetuned")


@dataclass(frozen=True)
class Run:
    """What a run has come to."""

    folder: Path
    models: tuple[TrainedModel, ...]
    majority: Scores
    teachers: Scores  # of each task's teachers together; empty without teachers
    members: Mapping[str, Scores]  # of each by itself, where a task has several
    tasks: Mapping[str, Task]
    aid: str = "teachers"  # what the baseline does without
    cell: Cell | None = None  # which run of its study it is
    answers: Path | None = None  # where the teachers' joint answers to the dev sets are kept

    @property
    def columns(self) -> dict[str, Scores]:
        """The scores of the majority guess, of teachers and of models, by the part that each plays."""
        columns: dict[str, Scores] = {"teachers": self.teachers} if self.teachers else {}
        for role in ROLES:
            # Models of one task each stand together.
            if mine := [model for model in self.models if model.role == role]:
                name = role if role != "model" else mine[0].name if len(mine) == 1 else "single-task"
                columns[name] = {place: values for model in mine for place, values in model.scores.items()}
        # Tasks that only help others on the way have no line.
        places = {place for scores in columns.values() for place in scores}
        return {"majority": {place: self.majority[place] for place in self.majority if place in places}, **columns}
