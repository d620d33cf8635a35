"""The layout: the models and tables a recipe comes to, from the teachers to the fine-tuned students."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from understill.disk import fingerprint
from understill.errors import UserError
from understill.pipeline.appointing import LABEL_VERSION, Teachers
from understill.pipeline.drafting import Drafts
from understill.pipeline.plan import Lessons, ModelPlan, Role, TargetsPlan, epoch_of, parts_of
from understill.pipeline.rule import steps_for
from understill.recipe.schema import Settings
from understill.recipe.section import Every
from understill.train.loop import total_steps

#: The share of unlabelled rows where a task names such files and the recipe names no share.
UNLABELLED = 0.5


class Layout:
    """Lays out the models of a recipe."""

    def __init__(self, drafts: Drafts, outside: Mapping[str, tuple[str, str]]) -> None:
        self.drafts, self.recipe, self.loaded = drafts, drafts.recipe, drafts.loaded
        self.own = [name for name, task in self.loaded.items() if task.task.head == name]
        self.teachers = Teachers(drafts, self.own, outside)

    def models(self) -> tuple[ModelPlan, ...]:
        """Return every model, in the order of training."""
        models = self.teachers.models
        for name in self.recipe.student.tasks:
            if name not in self.own:
                raise UserError(f"student.tasks: {name} is answered by another task's head; leave it out")
        wanted = [name for name in self.own if not self.recipe.student.tasks or name in self.recipe.student.tasks]
        groups = {"": wanted} if self.recipe.together else {f"-{name}": [name] for name in wanted}
        read = [name for name in wanted if self.teachers.of[name] and "unlabelled" in self.loaded[name].splits]
        if self.recipe.student.unlabelled and not read:
            fix = "name files under tasks.NAME.unlabelled"
            raise UserError(f"student.unlabelled: no task with a teacher has unlabelled text → {fix}")
        self.teachers.check_rule()
        for suffix, keys in groups.items():
            models += self._students(suffix, keys)
        _refuse_twins(f"model {model.name}" for model in models)
        _refuse_twins(f"teacher {each.name} of {task}" for task, mine in self.teachers.of.items() for each in mine)
        return tuple(models)

    def _students(self, suffix: str, keys: Sequence[str]) -> Iterator[ModelPlan]:
        """Yield the baseline and the student, and each fine-tuned on every task."""
        recipe = self.recipe
        settings, seed = recipe.settings(recipe.student), recipe.seed
        start = self.drafts.start(settings, self.teachers.trained)
        augmented = tuple(key for key in keys if "augmented" in self.loaded[key].splits)
        lessons = self._lessons(keys, augmented)
        tuned = recipe.finetuning(recipe.student) if recipe.student.finetune is not None else None
        alike = augmented if recipe.student.augment and recipe.student.augment.baseline else ()
        if (lessons or start.model or augmented != alike) and recipe.student.baseline:
            level = self._as_many_steps(settings, keys, lessons.unlabelled if lessons else {}, augmented, alike)
            # Layers cut out of a teacher have learnt from it: the baseline takes those the teacher itself began with.
            own = start
            while own.model:
                own = own.model.start
            baseline = self.drafts.model(f"baseline{suffix}", "baseline", keys, level, own, seed, augmented=alike)
            yield baseline
            if tuned:
                yield from (self.drafts.finetuned(baseline, key, tuned, "finetuned baseline") for key in keys)
        # Without teachers there is nothing to tell apart, and models are called after their tasks.
        role: Role = "student" if recipe.teachers else "model"
        name = f"student{suffix}" if recipe.teachers else suffix.removeprefix("-") or "multi"
        student = self.drafts.model(name, role, keys, settings, start, seed, lessons=lessons, augmented=augmented)
        yield student
        if tuned:
            yield from (self.drafts.finetuned(student, key, tuned, "finetuned") for key in keys)

    def _lessons(self, keys: Sequence[str], augmented: Collection[str]) -> Lessons | None:
        if not any(self.teachers.of[key] for key in keys):
            return None
        wanted = self.recipe.student.unlabelled
        unlabelled = {}
        for key in keys:
            if "unlabelled" in self.loaded[key].splits and self.teachers.of[key] and wanted != 0:
                unlabelled[key] = UNLABELLED if wanted is None else wanted
        tables = [(key, "augmented" if key in augmented else "train") for key in keys if self.teachers.of[key]]
        tables += [(key, "unlabelled") for key in unlabelled]
        targets = tuple(self._targets(key, split) for key, split in tables)
        rule = self.recipe.targets
        if self.teachers.chosen_early:
            rule = rule.model_copy(update={"best": None})
        by = rule.best.by if rule.best else ()
        judged = tuple(teacher for key in by for teacher in self.teachers.of[key])
        return Lessons(self.recipe.student.distil, rule, targets, unlabelled, judged)

    def _targets(self, key: str, split: str) -> TargetsPlan:
        teachers, facts = tuple(self.teachers.of[key]), self.loaded[key].task.to_dict()
        print_of = fingerprint(
            {
                "stage": "label",
                "version": LABEL_VERSION,
                "task": {part: facts[part] for part in ("name", "kind", "labels", "range")},
                "split": split,
                "data": self.loaded[key].splits[split].fingerprint,
                "teachers": {teacher.name: teacher.digest for teacher in teachers},
                "dtype": self.recipe.targets.dtype,
            }
        )
        folder = self.drafts.artifacts / f"targets-{key}-{split}-{print_of[:16]}"
        return TargetsPlan(key, split, teachers, print_of, folder)

    def _as_many_steps(
        self,
        settings: Settings,
        keys: Sequence[str],
        unlabelled: Mapping[str, float],
        augmented: Collection[str],
        alike: Collection[str],
    ) -> Settings:
        """Give the baseline as many steps and looks at dev as the student, whose epochs may have more rows."""
        training = settings.training
        if not unlabelled and augmented == alike:
            return settings
        if training.lr == "auto" and training.epochs == "auto":
            if training.steps or augmented == alike:
                return settings  # which are chosen by the labelled rows, and these are the same
            rows = sum(self.loaded[key].splits["augmented" if key in augmented else "train"].rows for key in keys)
            steps = steps_for(rows, len(keys), training.batch)
            return settings.model_copy(update={"training": training.model_copy(update={"steps": steps})})
        tasks = tuple(self.loaded[key].task for key in keys)
        epoch = epoch_of(parts_of(tasks, self.loaded, settings, unlabelled, augmented), training)
        changes: dict[str, Any] = {"steps": total_steps(training, epoch)}
        if training.evaluate.unit in ("epochs", "auto"):
            changes["evaluate"] = Every(count=max(1, round(training.evaluate.count * epoch)), unit="steps")
        return settings.model_copy(update={"training": training.model_copy(update=changes)})


def _refuse_twins(names: Iterable[str]) -> None:
    """Refuse a name that two would share."""
    for name, count in Counter(names).items():
        if count > 1:
            raise UserError(f"there would be {count} of {name}; give teachers other names, or other seeds")
