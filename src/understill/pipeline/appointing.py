"""Appointing: the models that a recipe's teachers are, which of them go on to teach, and what each teaches."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from understill.disk import fingerprint
from understill.errors import UserError
from understill.pipeline.drafting import Drafts
from understill.pipeline.examining import weights_of
from understill.pipeline.plan import Fold, ModelPlan, Start, TeacherPlan, dev_figure, dev_sets
from understill.recipe.schema import Settings, TeacherSpec
from understill.targets.ensemble import best, shares

#: Goes up whenever teachers would be judged or heard in another way.
LABEL_VERSION = 1


class _Candidate(NamedTuple):
    """A teacher before its fine-tuning."""

    name: str
    spec: TeacherSpec
    models: Mapping[tuple[str, ...], tuple[ModelPlan, ...]]  # by tasks; one model, one for each fold, or none to train


class Teachers:
    """The teachers of a recipe: of each task those that teach it, and the models that they are."""

    def __init__(self, drafts: Drafts, own: Sequence[str], outside: Mapping[str, tuple[str, str]]) -> None:
        self.drafts, self.own, self.outside = drafts, own, outside
        self.recipe, self.loaded = drafts.recipe, drafts.loaded
        self.of: dict[str, list[TeacherPlan]] = {name: [] for name in own}
        self.trained: dict[str, list[ModelPlan]] = {}  # by teacher, before any fine-tuning
        self.tuned: list[ModelPlan] = []
        self.candidates: tuple[ModelPlan, ...] = ()  # among which the choice is still open
        learnt = [each for spec in self.recipe.teachers for each in self._learn(spec)]
        teachers = [each for each in learnt if any(each.spec.teaches_task(name) for name in own)]
        for teacher in self._choose(teachers) if self.chosen_early else teachers:
            self._appoint(teacher)

    @property
    def models(self) -> list[ModelPlan]:
        """Every model of a teacher, in the order of training."""
        return [*(model for models in self.trained.values() for model in models), *self.tuned]

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
        # Where the recipe does not say, not the student's: one set of teachers serves all its seeds.
        seeds = (self.recipe.seed,) if spec.seeds == "student" else spec.seeds or (0,)
        for seed in seeds:
            name = f"{spec.name}-seed{seed}" if len(seeds) > 1 else str(spec.name)
            start = self.drafts.start(settings, self.trained)
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
    def chosen_early(self) -> bool:
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
                        self.drafts.finetuned(model, key, self.recipe.finetuning(spec), "teacher") for model in models
                    )
                    self.tuned += mine
                if spec.trained:
                    prints = [each.fingerprint for each in mine]
                    self._add(candidate.name, key, spec, prints[0] if len(mine) == 1 else fingerprint(prints), mine, "")
                else:
                    place, digest = self.outside[str(spec.name)]
                    self._add(candidate.name, key, spec, digest, (), place)

    def _fold_models(
        self, name: str, keys: Sequence[str], settings: Settings, start: Start, seed: int, folds: int | None
    ) -> Iterator[ModelPlan]:
        if folds is None:
            yield self.drafts.model(name, "teacher", keys, settings, start, seed)
            return
        for number in range(folds):
            fold = Fold(number, folds)
            yield self.drafts.model(f"{name}-fold{number + 1}", "teacher", keys, settings, start, seed, fold=fold)

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
        folder = self.drafts.artifacts / f"verdict-{key}-{fingerprint(facts)[:16]}"
        self.of[key].append(TeacherPlan(name, key, spec, digest, models, place, folder))

    def check_rule(self) -> None:
        """Refuse weights and choices that cannot be carried out, before anything is trained for them."""
        rule = self.recipe.targets
        for teachers in self.of.values():
            if teachers and rule.weights != "dev":
                names = {each.name: str(each.spec.name) for each in teachers}
                shares(list(names), weights_of(names, rule.weights), [None] * len(names))
        if rule.best and not self.chosen_early:
            teaches: dict[str, list[str]] = {}
            for task, teachers in self.of.items():
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
