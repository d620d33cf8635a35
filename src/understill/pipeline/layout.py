"""The layout: the models, verdicts and tables a recipe comes to, each with the fingerprint of all that goes into it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from understill.data.load import LoadedTask
from understill.errors import UserError
from understill.models.encoder import check_layers, check_lengths, identity
from understill.pipeline.examining import weights_of
from understill.pipeline.plan import (
    Fold,
    Lessons,
    ModelPlan,
    Role,
    Start,
    TargetsPlan,
    TeacherPlan,
    WordSource,
    dev_figure,
    dev_sets,
    epoch_of,
    max_length,
    parts_of,
)
from understill.pipeline.wording import plan_words
from understill.recipe import Recipe, fingerprint
from understill.schema import NETWORKS, EncoderSpec, Settings, TeacherSpec, WordsSpec
from understill.section import Every
from understill.targets.ensemble import best, shares
from understill.train.device import pick_device, pick_precision
from understill.train.loop import total_steps

#: Each goes up whenever the same recipe would train to another result, or teachers be judged or heard in another way.
TRAINING_VERSION = 3
LABEL_VERSION = 1
#: The share of unlabelled rows where a task names such files and the recipe names no share.
UNLABELLED = 0.5


def own_names(recipe: Recipe) -> set[str]:
    """Name the teachers that an encoder may be cut out of."""
    return {str(teacher.name) for teacher in recipe.teachers if teacher.trained}


class _Candidate(NamedTuple):
    """A teacher before its fine-tuning."""

    name: str
    spec: TeacherSpec
    models: Mapping[tuple[str, ...], tuple[ModelPlan, ...]]  # by tasks; one model, one for each fold, or none to train


class Layout:
    """Lays out the models of a recipe, from the teachers to the fine-tuned students."""

    def __init__(
        self,
        recipe: Recipe,
        loaded: Mapping[str, LoadedTask],
        encoders: Mapping[EncoderSpec, str],
        sources: Mapping[WordsSpec, WordSource],
        outside: Mapping[str, tuple[str, str]],
    ) -> None:
        self.recipe, self.loaded, self.encoders, self.outside = recipe, loaded, encoders, outside
        self.sources = sources
        self.artifacts = recipe.output.path / "artifacts"
        self.own = [name for name, task in loaded.items() if task.task.head == name]
        self.identities = {place: identity(place) for place in dict.fromkeys(encoders.values())}
        self.teachers: dict[str, list[TeacherPlan]] = {name: [] for name in self.own}
        self.trained: dict[str, list[ModelPlan]] = {}  # by teacher, before any fine-tuning
        self.tuned: list[ModelPlan] = []
        self.candidates: tuple[ModelPlan, ...] = ()  # among which the choice is still open

    def models(self) -> tuple[ModelPlan, ...]:
        """Return every model, in the order of training."""
        learnt = [each for spec in self.recipe.teachers for each in self._learn(spec)]
        teachers = [each for each in learnt if any(each.spec.teaches_task(name) for name in self.own)]
        for teacher in self._choose(teachers) if self._chosen_early else teachers:
            self._appoint(teacher)
        models = [*(model for models in self.trained.values() for model in models), *self.tuned]
        for name in self.recipe.student.tasks:
            if name not in self.own:
                raise UserError(f"student.tasks: {name} is answered by another task's head; leave it out")
        wanted = [name for name in self.own if not self.recipe.student.tasks or name in self.recipe.student.tasks]
        groups = {"": wanted} if self.recipe.together else {f"-{name}": [name] for name in wanted}
        read = [name for name in wanted if self.teachers[name] and "unlabelled" in self.loaded[name].splits]
        if self.recipe.student.unlabelled and not read:
            fix = "name files under tasks.NAME.unlabelled"
            raise UserError(f"student.unlabelled: no task with a teacher has unlabelled text → {fix}")
        self._check_rule()
        for suffix, keys in groups.items():
            models += self._students(suffix, keys)
        _refuse_twins(f"model {model.name}" for model in models)
        _refuse_twins(f"teacher {each.name} of {task}" for task, mine in self.teachers.items() for each in mine)
        return tuple(models)

    # Teachers ---------------------------------------------------------------------------------------------------------

    def _learn(self, spec: TeacherSpec) -> Iterator[_Candidate]:
        """Yield a teacher, once for each of its seeds, with the models it is before any fine-tuning."""
        for name in (*spec.tasks, *(spec.teaches or ())):
            if name not in self.own:
                raise UserError(f"teacher {spec.name}: {name} is answered by another task's head; leave it out")
        keys = [name for name in self.own if not spec.tasks or name in spec.tasks]
        if not spec.trained:
            yield _Candidate(str(spec.name), spec, {(key,): () for key in keys})
            return
        settings = self.recipe.settings(spec)
        groups = {"": keys} if spec.models == "together" else {f"-{key}": [key] for key in keys}
        self.trained[str(spec.name)] = []
        for seed in spec.seeds or (0,):  # not the student's: one set of teachers serves all its seeds
            name = f"{spec.name}-seed{seed}" if len(spec.seeds) > 1 else str(spec.name)
            start = self._start(settings)
            models = {
                tuple(group): tuple(self._fold_models(f"{name}{suffix}", group, settings, start, seed, spec.folds))
                for suffix, group in groups.items()
            }
            self.trained[str(spec.name)] += [model for group in models.values() for model in group]
            yield _Candidate(name, spec, models)

    def _choose(self, candidates: Sequence[_Candidate]) -> list[_Candidate]:
        """Return those that teach: of candidates that are to be fine-tuned only the best go on.

        The choice is made by their dev scores before that. Where they are not trained yet it is open, and the first
        ones stand in.
        """
        best_of = self.recipe.targets.best
        assert best_of
        for candidate in candidates:
            if candidate.spec.folds:
                what = (
                    f"teacher {candidate.name} is several models, one for each fold, of which none can be judged alone"
                )
                raise UserError(f"targets.best.by: {what} → leave folds out, or best")
            if candidate.spec.finetune is None:
                what = f"teacher {candidate.name} is not fine-tuned as the others are"
                raise UserError(f"targets.best.by: {what} → give all teachers finetune, or leave best.by out")
        self._check_count(candidates)
        names = {candidate.name: str(candidate.spec.name) for candidate in candidates}
        if isinstance(self.recipe.targets.weights, dict):
            weights_of(names, self.recipe.targets.weights)
        models = {candidate.name: next(iter(candidate.models.values()))[0] for candidate in candidates}
        for name, model in models.items():
            self._check_by(name, [task.name for task in model.tasks], "learn")
            twin = next(other for other in models if models[other].folder == model.folder)
            if twin != name:
                what = f"teachers {twin} and {name} differ only in their fine-tuning, which comes after the choice"
                raise UserError(f"targets.best.by: {what} → leave best.by out, or let them differ before")
        if not all(model.done for model in models.values()):
            self.candidates = tuple(models.values())
            return list(candidates[: best_of.count])
        scores = {name: {task.name: dev_figure(model, task) for task in model.tasks} for name, model in models.items()}
        chosen = best(scores, best_of.count, best_of.by)
        return [candidate for candidate in candidates if candidate.name in chosen]

    @property
    def _chosen_early(self) -> bool:
        """Whether teachers are chosen before they are fine-tuned."""
        best_of = self.recipe.targets.best
        return bool(best_of and best_of.by and any(spec.finetune is not None for spec in self.recipe.teachers))

    def _appoint(self, candidate: _Candidate) -> None:
        """Let a candidate teach its tasks, fine-tuned on each where its recipe says so."""
        spec = candidate.spec
        for group, models in candidate.models.items():
            for key in group:
                if not spec.teaches_task(key):
                    continue
                mine = models
                if spec.finetune is not None:
                    mine = tuple(
                        self._finetuned(model, key, self.recipe.finetuning(spec), "teacher") for model in models
                    )
                    self.tuned += mine
                if spec.trained:
                    prints = [each.fingerprint for each in mine]
                    self._add(candidate.name, key, spec, prints[0] if len(mine) == 1 else fingerprint(prints), mine, "")
                else:
                    place, digest = self.outside[str(spec.name)]
                    self._add(candidate.name, key, spec, digest, (), place)

    def _finetuned(self, model: ModelPlan, key: str, settings: Settings, role: Role) -> ModelPlan:
        """Return a model that goes on from another on one task alone."""
        prefix = {"student": "", "model": "", "baseline": "baseline-"}.get(model.role, f"{model.name}-")
        begin = Start(model.name, str(model.folder / "model"), model, heads=True)
        name = f"{prefix}finetuned-{key}"
        return self._model(name, role, [key], settings, begin, model.seed, fold=model.fold)

    def _fold_models(
        self, name: str, keys: Sequence[str], settings: Settings, start: Start, seed: int, folds: int | None
    ) -> Iterator[ModelPlan]:
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
        """Yield the baseline and the student, and each fine-tuned on every task."""
        recipe = self.recipe
        settings, seed = recipe.settings(recipe.student), recipe.seed
        start = self._start(settings)
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
            baseline = self._model(f"baseline{suffix}", "baseline", keys, level, own, seed, augmented=alike)
            yield baseline
            if tuned:
                yield from (self._finetuned(baseline, key, tuned, "finetuned baseline") for key in keys)
        # Without teachers there is nothing to tell apart, and models are called after their tasks.
        role: Role = "student" if recipe.teachers else "model"
        name = f"student{suffix}" if recipe.teachers else suffix.removeprefix("-") or "multi"
        student = self._model(name, role, keys, settings, start, seed, lessons=lessons, augmented=augmented)
        yield student
        if tuned:
            yield from (self._finetuned(student, key, tuned, "finetuned") for key in keys)

    def _lessons(self, keys: Sequence[str], augmented: Collection[str]) -> Lessons | None:
        if not any(self.teachers[key] for key in keys):
            return None
        wanted = self.recipe.student.unlabelled
        unlabelled = {}
        for key in keys:
            if "unlabelled" in self.loaded[key].splits and self.teachers[key] and wanted != 0:
                unlabelled[key] = UNLABELLED if wanted is None else wanted
        tables = [(key, "augmented" if key in augmented else "train") for key in keys if self.teachers[key]]
        tables += [(key, "unlabelled") for key in unlabelled]
        targets = tuple(self._targets(key, split) for key, split in tables)
        rule = self.recipe.targets
        if self._chosen_early:
            rule = rule.model_copy(update={"best": None})
        by = rule.best.by if rule.best else ()
        judged = tuple(teacher for key in by for teacher in self.teachers[key])
        return Lessons(self.recipe.student.distil, rule, targets, unlabelled, judged)

    def _check_rule(self) -> None:
        """Refuse weights and choices that cannot be carried out, before anything is trained for them."""
        rule = self.recipe.targets
        for teachers in self.teachers.values():
            if teachers and rule.weights != "dev":
                names = {each.name: str(each.spec.name) for each in teachers}
                shares(list(names), weights_of(names, rule.weights), [None] * len(names))
        if rule.best and not self._chosen_early:
            teaches: dict[str, list[str]] = {}
            for task, teachers in self.teachers.items():
                for teacher in teachers:
                    teaches.setdefault(teacher.name, []).append(task)
            self._check_count(teaches)
            for name in sorted(teaches):
                self._check_by(name, teaches[name], "teach")

    def _check_count(self, every: Collection[Any]) -> None:
        best_of = self.recipe.targets.best
        if best_of and best_of.count > len(every):
            what = f"{best_of.count} is more than there are teachers"
            raise UserError(f"targets.best.count: {what} → at most {len(every)}")

    def _check_by(self, name: str, tasks: Collection[str], verb: str) -> None:
        """Refuse a choice by tasks that a teacher has no score on."""
        for task in self.recipe.targets.best.by if self.recipe.targets.best else ():
            if task not in tasks:
                fix = f"name tasks that all teachers {verb}"
                raise UserError(f"targets.best.by: teacher {name} does not {verb} {task} → {fix}")

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
        tasks = tuple(self.loaded[key].task for key in keys)
        epoch = epoch_of(parts_of(tasks, self.loaded, settings, unlabelled, augmented), training)
        changes: dict[str, Any] = {"steps": total_steps(training, epoch)}
        if training.evaluate.unit == "epochs":
            changes["evaluate"] = Every(count=max(1, round(training.evaluate.count * epoch)), unit="steps")
        return settings.model_copy(update={"training": training.model_copy(update=changes)})

    # Models -----------------------------------------------------------------------------------------------------------

    def _start(self, settings: Settings) -> Start:
        """Say where an encoder comes from: a pretrained one, a network of our own, or a teacher of this recipe."""
        name = settings.encoder.name
        if settings.encoder.own:
            return Start(name, "")  # its words are those of the model's rows, and known with these
        if name not in own_names(self.recipe):
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
        if has.own:
            if settings.encoder.layers:
                raise UserError(f"encoder.layers: teacher {name} is a {has.name}, which has no layers → leave it out")
        elif not teacher.start.model:  # what its own encoder can do, it can do
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
        augmented: tuple[str, ...] = (),
    ) -> ModelPlan:
        tasks = tuple(self.loaded[key].task for key in keys)
        if start.name in NETWORKS and not (start.model or start.words):
            words = plan_words(self.recipe, self.loaded, settings, self.sources[settings.encoder.words], keys, fold)
            start = Start(start.name, str(words.folder), words=words)
        training = settings.training.model_dump(mode="json", exclude={"checkpoint"})
        training["precision"] = pick_precision(settings.training.precision, pick_device(self.recipe.machine))
        facts: dict[str, Any] = {
            "stage": "teach",
            "version": TRAINING_VERSION,
            "start": self._start_facts(start),
            "heads": start.heads,
            "encoder": settings.encoder.model_dump(mode="json", exclude={"name", "max_length", "words"}),
            "regression": settings.heads.regression,
            "training": training,
            "seed": seed,
            "fold": [fold.number, fold.count] if fold else None,
            "tasks": [self._task_facts(key, settings, key in augmented) for key in keys],
            "lessons": self._lesson_facts(lessons) if lessons else None,
        }
        print_of = fingerprint(facts)
        # Named by what it is, not by its part in this run: recipes that ask for the same model share it.
        folder = self.artifacts / f"model-{keys[0] if len(keys) == 1 else 'multi'}-{print_of[:16]}"
        scored = self._scored(keys)
        return ModelPlan(
            name, role, tasks, scored, settings, seed, start, fold, lessons, print_of, folder, augmented
        )  # fmt: skip

    def _start_facts(self, start: Start) -> Mapping[str, str]:
        if start.model:
            return {"model": start.model.fingerprint}
        return {"words": start.words.fingerprint} if start.words else self.identities[start.place]

    def _task_facts(self, key: str, settings: Settings, augmented: bool) -> dict[str, Any]:
        loaded = self.loaded[key]
        read = ("augmented", "dev", "train") if augmented else ("dev", "train")
        return {
            **loaded.task.to_dict(),
            "weight": self.recipe.tasks[key].weight,
            "max_length": max_length(self.recipe, settings, key),
            "dropout": settings.heads.dropout_of(key),
            "san": san.model_dump(mode="json") if (san := settings.heads.san_of(loaded.task)) else None,
            "data": {split: loaded.splits[split].fingerprint for split in read if split in loaded.splits},
            **({"candidates": self.recipe.tasks[key].candidates} if loaded.task.kind == "ranking" else {}),
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
