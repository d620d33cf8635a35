"""Augmentation: the rows that a student learns from, made once of the training rows and kept."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, replace

from joblib import cpu_count

from understill.artifact import Artifact
from understill.atomic import write_json
from understill.data.augment import AugmentRules, write_augmented
from understill.data.load import LoadedTask
from understill.data.taggers import Tagger, find_tagger
from understill.data.taskdata import FACTS, ROWS, TaskData
from understill.errors import UserError
from understill.events import Augmenting, Watch
from understill.recipe import Recipe

log = logging.getLogger(__name__)


def tagger_of(recipe: Recipe) -> Tagger | None:
    """Return the tagger that a recipe's augmentation needs; it must be there before any work is done."""
    spec = recipe.student.augment
    return find_tagger(spec.tagger) if spec and spec.swaps else None


def augment_tasks(
    recipe: Recipe, loaded: Mapping[str, LoadedTask], tagger: Tagger | None, watch: Watch
) -> dict[str, LoadedTask]:
    """Return the tasks, those that the student learns with their augmented split where the recipe asks for it."""
    tasks, spec = dict(loaded), recipe.student.augment
    if spec is None:
        return tasks
    own = [name for name, task in loaded.items() if task.task.head == name]
    wanted = [name for name in own if not recipe.student.tasks or name in recipe.student.tasks]
    rankings = [name for name in wanted if loaded[name].task.kind.grouped]
    if rankings == wanted:
        raise UserError("student.augment: ranking tasks are not augmented, and there are no others → leave it out")
    if rankings:
        log.warning("ranking tasks are not augmented; the student learns %s as it is", ", ".join(rankings))
    seed = recipe.seed if spec.seed == "student" else spec.seed
    for name in wanted:
        if name not in rankings:
            rules = AugmentRules(spec.mask, spec.pos if tagger else 0.0, spec.ngram, spec.times_of(name), seed)
            data = _augment(recipe, loaded[name].splits["train"], rules, tagger, watch)
            tasks[name] = replace(loaded[name], splits={**loaded[name].splits, "augmented": data})
    return tasks


def _augment(recipe: Recipe, train: TaskData, rules: AugmentRules, tagger: Tagger | None, watch: Watch) -> TaskData:
    """Return the augmented training rows of a task, from its artefact where it is there."""
    facts = {
        "stage": "augment",
        "data": train.fingerprint,
        "rules": asdict(rules),
        "tagger": tagger and list(tagger),
    }
    name = train.task.name
    artifact = Artifact("augmented", name, facts, recipe.output.path / "artifacts")
    with artifact.exclusive(f"the augmented rows of {name}", watch):
        if (known := artifact.read(FACTS)) is None:
            with artifact.build() as part:
                rows = write_augmented(
                    train, part / ROWS, rules, tagger.name if tagger else None, recipe.machine.threads or cpu_count(),
                    lambda what, rows: watch(Augmenting(name, what, rows, train.rows)),
                )  # fmt: skip
                known = {"task": name, "rows": rows}
                write_json(part / FACTS, known)
    return TaskData(train.task, "augmented", artifact.folder / ROWS, artifact.fingerprint, known["rows"])
