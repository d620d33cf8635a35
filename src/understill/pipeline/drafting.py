"""Drafting: one model of a plan, and where it begins, with the fingerprint of all that goes into it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from understill.data.load import LoadedTask
from understill.disk import fingerprint
from understill.errors import UserError
from understill.models.encoder import check_layers, check_lengths
from understill.models.pooling import own_pooling
from understill.pipeline.plan import Fold, Lessons, ModelPlan, Role, Start, WordSource, max_length
from understill.pipeline.wording import plan_words
from understill.recipe import Recipe
from understill.recipe.schema import NETWORKS, EncoderSpec, Settings, Training, WordsSpec
from understill.train.device import pick_device, pick_precision

#: Goes up whenever the same recipe would train to another result.
TRAINING_VERSION = 3
#: Goes up whenever other settings would be chosen for the same rows.
TUNING_VERSION = 1


def own_names(recipe: Recipe) -> set[str]:
    """Name the teachers that an encoder may be cut out of."""
    return {str(teacher.name) for teacher in recipe.teachers if teacher.trained}


def _settled(settings: Settings, start: Start) -> Settings:
    """Return settings in which nothing is left open but what is chosen when the model is trained."""
    encoder, heads, training = settings.encoder, settings.heads, settings.training
    if encoder.pooling == "auto":
        if start.model:
            pooling = start.model.settings.encoder.pooling
        else:
            pooling = "default" if encoder.own else own_pooling(start.place)
        encoder = encoder.model_copy(update={"pooling": pooling})
    if training.lr != "auto":
        training = training.plain()
        if heads.pairs == "auto" and not start.heads:
            heads = heads.model_copy(update={"pairs": "linear"})
    return settings.model_copy(update={"encoder": encoder, "heads": heads, "training": training})


def _later(training: Training) -> set[str]:
    """Name settings that came later and are as if they were not there, so that old fingerprints hold."""
    return ({"head_lr"} if training.head_lr is None else set()) | ({"start"} if training.start == "fresh" else set())


class Drafts:
    """Drafts models of a recipe, whatever part they play in it."""

    def __init__(
        self,
        recipe: Recipe,
        loaded: Mapping[str, LoadedTask],
        encoders: Mapping[EncoderSpec, str],
        identities: Mapping[str, Mapping[str, str]],
        sources: Mapping[WordsSpec, WordSource],
    ) -> None:
        self.recipe, self.loaded, self.sources = recipe, loaded, sources
        self.encoders, self.identities = encoders, identities  # where each encoder lies, and what lies there
        self.artifacts = recipe.output.path / "artifacts"

    def start(self, settings: Settings, trained: Mapping[str, Sequence[ModelPlan]]) -> Start:
        """Say where an encoder comes from: a pretrained one, a network of our own, or a teacher of this recipe."""
        name = settings.encoder.name
        if settings.encoder.own:
            return Start(name, "")  # its words are those of the model's rows, and known with these
        if name not in own_names(self.recipe):
            return Start(name, self.encoders[settings.encoder])
        models = trained.get(name)
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

    def finetuned(self, model: ModelPlan, key: str, settings: Settings, role: Role) -> ModelPlan:
        """Return a model that goes on from another on one task alone."""
        prefix = {"student": "", "model": "", "baseline": "baseline-"}.get(model.role, f"{model.name}-")
        begin = Start(model.name, str(model.folder / "model"), model, heads=True)
        name = f"{prefix}finetuned-{key}"
        return self.model(name, role, [key], settings, begin, model.seed, fold=model.fold)

    def _scored(self, keys: Sequence[str]) -> tuple[LoadedTask, ...]:
        return tuple(task for task in self.loaded.values() if task.task.head in keys)

    def model(
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
        """Return a model of these tasks, with the fingerprint of all that goes into it."""
        tasks = tuple(self.loaded[key].task for key in keys)
        settings = _settled(settings, start)
        if start.name in NETWORKS and not (start.model or start.words):
            words = plan_words(self.recipe, self.loaded, settings, self.sources[settings.encoder.words], keys, fold)
            start = Start(start.name, str(words.folder), words=words)
        training = settings.training.model_dump(mode="json", exclude={"checkpoint", *_later(settings.training)})
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
            "fold": fold.facts if fold else None,
            "tasks": [self._task_facts(key, settings, key in augmented) for key in keys],
            "lessons": self._lesson_facts(lessons) if lessons else None,
            **({"tuning": [TUNING_VERSION, settings.heads.pairs]} if settings.training.lr == "auto" else {}),
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
            **({"siamese": True} if settings.heads.siamese(loaded.task) else {}),
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
