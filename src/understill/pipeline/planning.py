"""Planning: what a recipe comes to on this machine, checked before any training."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from errno import EEXIST, ENOTDIR
from pathlib import Path
from typing import Any

from understill.data.load import LoadedTask, load_tasks, read_tasks
from understill.data.load import resolve as resolve_tasks
from understill.data.read import find_files
from understill.errors import Collector, UserError, nearest
from understill.events import Reading, Watch, silent
from understill.models.assets import ASSETS
from understill.models.encoder import check_layers, check_lengths, identity, resolve
from understill.pipeline.examining import weights_of
from understill.pipeline.plan import (
    Fold,
    Lessons,
    ModelPlan,
    Plan,
    Role,
    Start,
    TargetsPlan,
    TeacherPlan,
    cache_folder,
    dev_sets,
    epoch_of,
    max_length,
    parts_of,
)
from understill.recipe import Recipe, fingerprint
from understill.schema import EncoderSpec, Settings, TeacherSpec, over
from understill.section import Every
from understill.targets.checkpoint import checkpoint_digest, locate
from understill.targets.ensemble import shares
from understill.targets.predictions import predictions_digest
from understill.tasks import Task
from understill.train.device import check_trackers, pick_device, pick_precision
from understill.train.loop import total_steps

#: Each goes up whenever the same recipe would train to another result, or teachers be judged or heard in another way.
TRAINING_VERSION = 2
LABEL_VERSION = 1
#: The share of unlabelled rows where a task names such files and the recipe names no share.
UNLABELLED = 0.5


def read_data(recipe: Recipe, watch: Watch = silent) -> dict[str, LoadedTask]:
    """Read and check all data of a recipe, for which no encoder is needed."""
    writable(recipe.output.path)
    return load_tasks(recipe, cache_folder(recipe), lambda what, rows: watch(Reading(what, rows)))


def make_plan(recipe: Recipe, watch: Watch = silent) -> Plan:
    """Check what is quickly checked, all of it at once, then read all data, and say what is to be done."""
    found = Collector()
    with found:
        writable(recipe.output.path)
    with found:
        check_trackers(recipe.output.trackers)
    for name in _own_names(recipe):
        if name in ASSETS or (recipe.find(name) / "config.json").exists():
            with found:
                raise UserError(f'teacher {name}: there is an encoder "{name}" already → choose another name')
    found_encoders: dict[EncoderSpec, str] = {}
    for settings in _all_settings(recipe):
        with found:
            pick_precision(settings.training.precision, pick_device(recipe.machine))
        if settings.encoder.name not in _own_names(recipe) and settings.encoder not in found_encoders:
            with found:
                found_encoders[settings.encoder] = find_encoder(recipe, settings.encoder)
    outside: dict[str, tuple[str, str]] = {}
    for teacher in recipe.teachers:
        if not teacher.trained:
            with found:
                outside[str(teacher.name)] = _find_teacher(recipe, teacher)
    with found:
        tasks = resolve_tasks(recipe)
    found.raise_if_any()
    skip = recipe.data.on_bad_row == "skip"
    loaded = read_tasks(tasks, skip, cache_folder(recipe), lambda what, rows: watch(Reading(what, rows)))
    # A diagnostic set's labels are in the order of the head that answers it, also where that task is the user's own.
    loaded = {name: as_trained(task, loaded[task.task.head].task) for name, task in loaded.items()}
    return Plan(recipe, loaded, _Planner(recipe, loaded, found_encoders, outside).models())


def _all_settings(recipe: Recipe) -> list[Settings]:
    parts = [*(teacher for teacher in recipe.teachers if teacher.trained), recipe.student]
    return [recipe.settings(part) for part in parts]


def _own_names(recipe: Recipe) -> set[str]:
    """Name the teachers that an encoder may be cut out of."""
    return {str(teacher.name) for teacher in recipe.teachers if teacher.trained}


def find_encoder(recipe: Recipe, spec: EncoderSpec) -> str:
    """Return what the loaders take for an encoder, when it can read as many tokens as are asked for."""
    there = recipe.find(spec.name)
    encoder = resolve(str(there) if there.is_dir() else spec.name)
    own_lengths = {f"tasks.{name}.max_length": task.max_length for name, task in recipe.tasks.items()}
    lengths = {place: length for place, length in own_lengths.items() if length}
    check_lengths(spec.name, encoder, {"encoder.max_length": spec.max_length, **lengths})
    check_layers(spec, encoder)
    return encoder


def _find_teacher(recipe: Recipe, spec: TeacherSpec) -> tuple[str, str]:
    """Return where a teacher that is not trained here lies, and the digest of what it says."""
    if spec.checkpoint is None:
        return "", predictions_digest(find_files(spec.predictions, recipe.roots()), spec.labels, spec.values)
    there = recipe.find(spec.checkpoint)
    try:
        place = locate(str(there) if there.is_dir() else spec.checkpoint)
    except UserError as error:
        raise UserError(f"teacher {spec.name}: {str(error).removeprefix('encoder ')}") from None
    return place, checkpoint_digest(place, spec.labels, spec.max_length)


class _Planner:
    """Lays out the models of a recipe, from the teachers to the fine-tuned students."""

    def __init__(
        self,
        recipe: Recipe,
        loaded: Mapping[str, LoadedTask],
        encoders: Mapping[EncoderSpec, str],
        outside: Mapping[str, tuple[str, str]],
    ) -> None:
        self.recipe, self.loaded, self.encoders, self.outside = recipe, loaded, encoders, outside
        self.artifacts = recipe.output.path / "artifacts"
        self.own = [name for name, task in loaded.items() if task.task.head == name]
        self.identities = {place: identity(place) for place in dict.fromkeys(encoders.values())}
        self.teachers: dict[str, list[TeacherPlan]] = {name: [] for name in self.own}
        self.trained: dict[str, list[ModelPlan]] = {}  # by teacher

    def models(self) -> tuple[ModelPlan, ...]:
        """Return every model, in the order of training."""
        for spec in self.recipe.teachers:
            self._add_teacher(spec)
        models = [model for models in self.trained.values() for model in models]
        groups = {"": self.own} if self.recipe.together else {f"-{name}": [name] for name in self.own}
        if self.recipe.student.unlabelled and not any("unlabelled" in self.loaded[name].splits for name in self.own):
            fix = "name files under tasks.NAME.unlabelled"
            raise UserError(f"student.unlabelled: no task with a teacher has unlabelled text → {fix}")
        self._check_rule()
        for suffix, keys in groups.items():
            models += self._students(suffix, keys)
        _refuse_twins(f"model {model.name}" for model in models)
        _refuse_twins(f"teacher {each.name} of {task}" for task, mine in self.teachers.items() for each in mine)
        return tuple(models)

    # Teachers ---------------------------------------------------------------------------------------------------------

    def _add_teacher(self, spec: TeacherSpec) -> None:
        for name in spec.tasks:
            if name not in self.own:
                raise UserError(f"teacher {spec.name}: {name} is answered by another task's head; leave it out")
        keys = [name for name in self.own if not spec.tasks or name in spec.tasks]
        if not spec.trained:
            place, digest = self.outside[str(spec.name)]
            for key in keys:
                self._add(str(spec.name), key, spec, digest, (), place)
            return
        settings = self.recipe.settings(spec)
        groups = {"": keys} if spec.models == "together" else {f"-{key}": [key] for key in keys}
        self.trained[str(spec.name)] = []
        for seed in spec.seeds or (0,):  # not the student's: one set of teachers serves all its seeds
            name = f"{spec.name}-seed{seed}" if len(spec.seeds) > 1 else str(spec.name)
            for suffix, group in groups.items():
                models = tuple(self._fold_models(f"{name}{suffix}", group, settings, seed, spec.folds))
                self.trained[str(spec.name)] += models
                digest = (
                    models[0].fingerprint if len(models) == 1 else fingerprint([each.fingerprint for each in models])
                )
                for key in group:
                    self._add(name, key, spec, digest, models, "")

    def _fold_models(
        self, name: str, keys: Sequence[str], settings: Settings, seed: int, folds: int | None
    ) -> Iterator[ModelPlan]:
        start = self._start(settings)
        if folds is None:
            yield self._model(name, "teacher", keys, settings, start, seed)
            return
        for number in range(folds):
            fold = Fold(number, folds)
            yield self._model(f"{name}-fold{number + 1}", "teacher", keys, settings, start, seed, fold=fold)

    def _add(
        self, name: str, key: str, spec: TeacherSpec, digest: str, models: tuple[ModelPlan, ...], place: str
    ) -> None:
        facts = {
            "stage": "examine",
            "version": LABEL_VERSION,
            "teacher": digest,
            "task": self.loaded[key].task.to_dict(),
            "dev": {
                f"{task.task.name}/{split}": task.splits[split].fingerprint
                for task, split in dev_sets(self.loaded, key)
            },
            "train": self.loaded[key].splits["train"].fingerprint,
        }
        folder = self.artifacts / f"verdict-{key}-{fingerprint(facts)[:16]}"
        self.teachers[key].append(TeacherPlan(name, key, spec, digest, models, place, folder))

    # Students ---------------------------------------------------------------------------------------------------------

    def _students(self, suffix: str, keys: Sequence[str]) -> Iterator[ModelPlan]:
        """Yield the baseline, the student, and the student fine-tuned on each task."""
        recipe = self.recipe
        settings, seed = recipe.settings(recipe.student), recipe.seed
        start = self._start(settings)
        lessons = self._lessons(keys)
        if lessons and recipe.student.baseline:
            level = self._as_many_steps(settings, keys, lessons)
            # Layers cut out of a teacher have learnt from it: the baseline takes those the teacher itself began with.
            own = start
            while own.model:
                own = own.model.start
            yield self._model(f"baseline{suffix}", "baseline", keys, level, own, seed)
        # Without teachers there is nothing to tell apart, and models are called after their tasks.
        role: Role = "student" if recipe.teachers else "model"
        name = f"student{suffix}" if recipe.teachers else suffix.removeprefix("-") or "multi"
        student = self._model(name, role, keys, settings, start, seed, lessons=lessons)
        yield student
        if recipe.student.finetune is not None:
            tuned = settings.model_copy(update={"training": over(settings.training, recipe.student.finetune)})
            for key in keys:
                begin = Start(student.name, str(student.folder / "model"), student, heads=True)
                yield self._model(f"finetuned-{key}", "finetuned", [key], tuned, begin, seed)

    def _lessons(self, keys: Sequence[str]) -> Lessons | None:
        if not any(self.teachers[key] for key in keys):
            return None
        wanted = self.recipe.student.unlabelled
        unlabelled = {}
        for key in keys:
            if "unlabelled" in self.loaded[key].splits and self.teachers[key] and wanted != 0:
                unlabelled[key] = UNLABELLED if wanted is None else wanted
        tables = [(key, "train") for key in keys if self.teachers[key]] + [(key, "unlabelled") for key in unlabelled]
        targets = tuple(self._targets(key, split) for key, split in tables)
        rule = self.recipe.targets
        by = rule.best.by if rule.best else ()
        judged = tuple(teacher for key in by for teacher in self.teachers[key])
        return Lessons(self.recipe.student.distil, rule, targets, unlabelled, judged)

    def _check_rule(self) -> None:
        """Refuse weights and choices that cannot be carried out, before anything is trained for them."""
        rule = self.recipe.targets
        for teachers in self.teachers.values():
            if teachers and rule.weights != "dev":
                shares(
                    [each.name for each in teachers], weights_of(tuple(teachers), rule.weights), [None] * len(teachers)
                )
        if rule.best:
            every = {teacher.name for teachers in self.teachers.values() for teacher in teachers}
            if rule.best.count > len(every):
                what = f"{rule.best.count} is more than there are teachers"
                raise UserError(f"targets.best.count: {what} → at most {len(every)}")
            for task in rule.best.by:
                for name in sorted(every - {teacher.name for teacher in self.teachers.get(task, ())}):
                    fix = "name tasks that every teacher answers"
                    raise UserError(f"targets.best.by: teacher {name} does not answer {task} → {fix}")

    def _targets(self, key: str, split: str) -> TargetsPlan:
        teachers, facts = tuple(self.teachers[key]), self.loaded[key].task.to_dict()
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
        return TargetsPlan(key, split, teachers, print_of, self.artifacts / f"targets-{key}-{split}-{print_of[:16]}")

    def _as_many_steps(self, settings: Settings, keys: Sequence[str], lessons: Lessons) -> Settings:
        """Give the baseline as many steps and looks at dev as the student, whose epochs have unlabelled rows on top."""
        training = settings.training
        if not lessons.unlabelled:
            return settings
        tasks = tuple(self.loaded[key].task for key in keys)
        epoch = epoch_of(parts_of(tasks, self.loaded, settings, lessons.unlabelled), training)
        changes: dict[str, Any] = {"steps": total_steps(training, epoch)}
        if training.evaluate.unit == "epochs":
            changes["evaluate"] = Every(count=max(1, round(training.evaluate.count * epoch)), unit="steps")
        return settings.model_copy(update={"training": training.model_copy(update=changes)})

    # Models -----------------------------------------------------------------------------------------------------------

    def _start(self, settings: Settings) -> Start:
        """Say where an encoder comes from: a pretrained one, or a teacher of this recipe."""
        name = settings.encoder.name
        if name not in _own_names(self.recipe):
            return Start(name, self.encoders[settings.encoder])
        models = self.trained.get(name)
        if not models:
            fix = "list it first, or name a pretrained encoder"
            raise UserError(f"encoder {name}: this teacher is not trained by then → {fix}")
        if len(models) != 1:
            fix = "train it as one (tasks: together), or name a pretrained encoder"
            raise UserError(f"encoder {name}: this teacher is {len(models)} models, so it has no one encoder → {fix}")
        (teacher,) = models
        has = teacher.settings.encoder
        if has.layers and (settings.encoder.layers or 0) > has.layers:
            raise UserError(f"encoder.layers: teacher {name} has only {has.layers} layers")
        if not teacher.start.model:  # what its own encoder can do, it can do
            spec = settings.encoder.model_copy(update={"name": has.name})
            check_lengths(name, teacher.start.place, {"encoder.max_length": spec.max_length})
            check_layers(spec, teacher.start.place)
        return Start(name, str(teacher.folder / "model"), teacher)

    def _scored(self, keys: Sequence[str]) -> tuple[LoadedTask, ...]:
        return tuple(task for task in self.loaded.values() if task.task.head in keys)

    def _model(
        self,
        name: str,
        role: Role,
        keys: Sequence[str],
        settings: Settings,
        start: Start,
        seed: int,
        *,
        fold: Fold | None = None,
        lessons: Lessons | None = None,
    ) -> ModelPlan:
        tasks = tuple(self.loaded[key].task for key in keys)
        training = settings.training.model_dump(mode="json", exclude={"checkpoint"})
        training["precision"] = pick_precision(settings.training.precision, pick_device(self.recipe.machine))
        facts: dict[str, Any] = {
            "stage": "teach",
            "version": TRAINING_VERSION,
            "start": {"model": start.model.fingerprint} if start.model else self.identities[start.place],
            "heads": start.heads,
            "encoder": settings.encoder.model_dump(mode="json", exclude={"name", "max_length"}),
            "regression": settings.heads.regression,
            "training": training,
            "seed": seed,
            "fold": [fold.number, fold.count] if fold else None,
            "tasks": [self._task_facts(key, settings) for key in keys],
            "lessons": self._lesson_facts(lessons) if lessons else None,
        }
        print_of = fingerprint(facts)
        # Named by what it is, not by its part in this run: recipes that ask for the same model share it.
        folder = self.artifacts / f"model-{keys[0] if len(keys) == 1 else 'multi'}-{print_of[:16]}"
        return ModelPlan(name, role, tasks, self._scored(keys), settings, seed, start, fold, lessons, print_of, folder)

    def _task_facts(self, key: str, settings: Settings) -> dict[str, Any]:
        loaded = self.loaded[key]
        return {
            **loaded.task.to_dict(),
            "weight": self.recipe.tasks[key].weight,
            "max_length": max_length(self.recipe, settings, key),
            "dropout": settings.heads.dropout_of(key),
            "data": {split: loaded.splits[split].fingerprint for split in ("dev", "train") if split in loaded.splits},
        }

    def _lesson_facts(self, lessons: Lessons) -> dict[str, Any]:
        taught = dict.fromkeys(targets.task for targets in lessons.targets)
        return {
            "distil": {task: lessons.distil.of(task).model_dump(mode="json") for task in taught},
            "rule": lessons.rule.model_dump(mode="json"),
            "targets": {f"{targets.task}/{targets.split}": targets.fingerprint for targets in lessons.targets},
            "unlabelled": dict(lessons.unlabelled),
        }


def _refuse_twins(names: Iterable[str]) -> None:
    """Refuse a name that two would share."""
    for name, count in Counter(names).items():
        if count > 1:
            raise UserError(f"there would be {count} of {name}; give teachers other names, or other seeds")


def as_trained(loaded: LoadedTask, trained: Task) -> LoadedTask:
    """Give a task the label order of the model; labels are joined by name."""
    strange = set(loaded.task.labels) - set(trained.labels)
    if loaded.task.kind != trained.kind or strange:
        what = (
            f"labels the model does not know: {', '.join(sorted(strange))}" if strange else f"kind {loaded.task.kind}"
        )
        raise UserError(f"task {loaded.task.name} does not fit the model: {what}")
    task = replace(loaded.task, labels=trained.labels, range=trained.range)
    return replace(loaded, task=task, splits={name: replace(data, task=task) for name, data in loaded.splits.items()})


def pick_models(plan: Plan, names: tuple[str, ...]) -> tuple[ModelPlan, ...]:
    """Return the models of a plan with these names, or all."""
    known = {model.name: model for model in plan.models}
    for name in names:
        if name not in known:
            raise UserError(f'this recipe trains no model "{name}"; {nearest(name, known)}')
    return tuple(known[name] for name in names) if names else plan.models


def writable(folder: Path) -> None:
    """Make sure results can be kept before any work is done."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = "there is a file of this name" if error.errno in (EEXIST, ENOTDIR) else error.strerror
        raise UserError(f"output.folder: {folder} cannot be made: {what} → name another folder") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"output.folder: nothing may be written to {folder} → name another folder")
