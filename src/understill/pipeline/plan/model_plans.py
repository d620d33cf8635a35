"""One model of a plan, and where it begins, with the fingerprint of all that goes into it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from understill.artifact import Artifact
from understill.errors import UserError
from understill.losses.mixing import plugin_facts
from understill.models.encoder import check_layers, check_lengths
from understill.models.pooling import own_pooling
from understill.pipeline.plan.parts import (
    ChoicePlan,
    Distillation,
    Fold,
    ModelPlan,
    Role,
    Start,
    max_length,
)
from understill.pipeline.plan.recipe_inputs import Inputs, own_names
from understill.pipeline.vocabularies import plan_words
from understill.plugins import NETWORKS
from understill.recipe import Recipe
from understill.recipe.schema import Settings, Training
from understill.train.device import pick_device, pick_precision


def start_of(inputs: Inputs, settings: Settings, trained: Mapping[str, Sequence[ModelPlan]]) -> Start:
    """Return where an encoder comes from: a pretrained one, a network of our own, or a teacher of this recipe."""
    name = settings.encoder.name
    if settings.encoder.own:
        return Start(name, "")  # its words are those of the model's rows, and known with these
    if name not in own_names(inputs.recipe):
        return Start(name, inputs.encoders[settings.encoder])
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


def finetuned(
    inputs: Inputs, model: ModelPlan, key: str, settings: Settings, role: Role, choice: ChoicePlan | None = None
) -> ModelPlan:
    """Plan a model that goes on from another on one task alone."""
    prefix = {"student": "", "model": "", "baseline": "baseline-"}.get(model.role, f"{model.name}-")
    begin = Start(model.name, str(model.folder / "model"), model, heads=True)
    name = f"{prefix}finetuned-{key}"
    return plan_model(inputs, name, role, [key], settings, begin, model.seed, fold=model.fold, choice=choice)


def plan_model(
    inputs: Inputs,
    name: str,
    role: Role,
    keys: Sequence[str],
    settings: Settings,
    start: Start,
    seed: int,
    *,
    fold: Fold | None = None,
    distillation: Distillation | None = None,
    augmented: tuple[str, ...] = (),
    choice: ChoicePlan | None = None,
) -> ModelPlan:
    """Plan a model of these tasks, with the fingerprint of all that goes into it."""
    recipe, loaded = inputs.recipe, inputs.loaded
    settings = _settled(settings, start)
    if start.name in NETWORKS and not (start.model or start.words):
        words = plan_words(recipe, loaded, settings, inputs.words[settings.encoder.words], keys, fold)
        start = Start(start.name, str(words.artifact.folder), words=words)
    taught = distillation is not None or role == "baseline"  # the rule for open settings goes by it, see `shape_of`
    facts: dict[str, Any] = {
        "stage": "teach",
        "start": _start_facts(inputs, start),
        "heads": start.heads,
        "encoder": settings.encoder.model_dump(mode="json", exclude={"name", "max_length", "words"}),
        "regression": settings.heads.regression,
        "training": _training_facts(recipe, settings.training),
        "seed": seed,
        "fold": fold.facts if fold else None,
        "tasks": [_task_facts(inputs, key, settings, key in augmented) for key in keys],
        "lessons": _distillation_facts(distillation) if distillation else None,
        **({"tuning": [settings.heads.pairs, taught]} if _depends_on_tuning(settings.training) else {}),
    }
    return ModelPlan(
        name=name,
        role=role,
        tasks=tuple(loaded[key].task for key in keys),
        scored=tuple(task for task in loaded.values() if task.task.head in keys),
        settings=settings,
        seed=seed,
        start=start,
        fold=fold,
        distillation=distillation,
        # Named by what it is, not by its part in this run: recipes that ask for the same model share it.
        artifact=Artifact("model", keys[0] if len(keys) == 1 else "multi", facts, inputs.artifacts),
        augmented=augmented,
        choice=choice,
    )


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


# Facts of a fingerprint -----------------------------------------------------------------------------------------------


def _start_facts(inputs: Inputs, start: Start) -> Mapping[str, str]:
    if start.model:
        return {"model": start.model.fingerprint}
    return {"words": start.words.artifact.fingerprint} if start.words else inputs.identities[start.place]


def _depends_on_tuning(training: Training) -> bool:
    """Tell whether the rule for open settings, or a stage whose length it sets, decides about the weights."""
    return training.lr == "auto" or training.start == "contrastive"


def _training_facts(recipe: Recipe, training: Training) -> dict[str, Any]:
    """Return what decides a training."""
    facts = training.model_dump(mode="json", exclude={"checkpoint"})
    return {**facts, "precision": pick_precision(training.precision, pick_device(recipe.machine))}


def _task_facts(inputs: Inputs, key: str, settings: Settings, augmented: bool) -> dict[str, Any]:
    loaded, spec, head = inputs.loaded[key], inputs.recipe.tasks[key], settings.heads.tasks.get(key)
    # A kind that is named counts where others are open; what it is then follows from san and siamese.
    given = {"lr": head.lr, "kind": head.kind if settings.heads.pairs == "auto" else None} if head else {}
    own = {name: value for name, value in given.items() if value is not None}
    read = ("augmented", "dev", "train") if augmented else ("dev", "train")
    return {
        **loaded.task.to_dict(),
        "weight": spec.weight,
        "max_length": max_length(inputs.recipe, settings, key),
        "dropout": settings.heads.dropout_of(key),
        "san": san.model_dump(mode="json") if (san := settings.heads.san_of(loaded.task)) else None,
        "siamese": settings.heads.siamese(loaded.task),
        "data": {split: loaded.splits[split].fingerprint for split in read if split in loaded.splits},
        **({"candidates": spec.candidates} if loaded.task.kind.grouped else {}),
        **({"head": own} if own else {}),
    }


def _distillation_facts(distillation: Distillation) -> dict[str, Any]:
    taught = dict.fromkeys(targets.task for targets in distillation.targets)
    plugins = {task: facts for task in taught if (facts := plugin_facts(distillation.distil.of(task)))}
    judged = {f"{each.name}/{each.task}": each.verdict.fingerprint for each in distillation.judged}
    return {
        "distil": {task: distillation.distil.of(task).model_dump(mode="json") for task in taught},
        "rule": distillation.rule.model_dump(mode="json"),
        "targets": {f"{each.task}/{each.split}": each.artifact.fingerprint for each in distillation.targets},
        "unlabelled": dict(distillation.unlabelled),
        **({"plugins": plugins} if plugins else {}),
        **({"judged": judged} if judged else {}),
    }
