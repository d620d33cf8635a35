"""Planning: what a recipe comes to on this machine, checked before any training."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from errno import EEXIST, ENOTDIR
from functools import partial
from pathlib import Path

from understill.data.load import LoadedTask, load_tasks, read_tasks
from understill.data.load import resolve as resolve_tasks
from understill.data.read import find_files
from understill.data.vectors import vector_size
from understill.disk import file_digest
from understill.errors import Collector, UserError, nearest
from understill.events import Reading, Watch, silent
from understill.models.assets import ASSETS, locate_vectors
from understill.models.encoder import check_layers, check_lengths, identity, resolve
from understill.pipeline.augmenting import augment_tasks, tagger_of
from understill.pipeline.drafting import Drafts, own_names
from understill.pipeline.examining import refuse_silence
from understill.pipeline.layout import Layout
from understill.pipeline.plan import ModelPlan, Plan, WordSource, cache_folder
from understill.recipe import Recipe
from understill.schema import NETWORKS, EncoderSpec, Settings, TeacherSpec, WordsSpec
from understill.targets.checkpoint import checkpoint_digest, locate
from understill.targets.predictions import predictions_digest
from understill.tasks import Task
from understill.train.device import check_trackers, pick_device, pick_precision

log = logging.getLogger(__name__)

#: Rates at which networks learn that begin at random; encoders take far lower ones.
_USUAL = {"adamw": 2e-3, "adamax": 2e-3, "adadelta": 1.0}


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
    for name in own_names(recipe):
        if name in (*ASSETS, *NETWORKS) or (recipe.find(name) / "config.json").exists():
            with found:
                raise UserError(f'teacher {name}: there is an encoder "{name}" already → choose another name')
    found_encoders: dict[EncoderSpec, str] = {}
    sources: dict[WordsSpec, WordSource] = {}
    for settings in _all_settings(recipe):
        with found:
            pick_precision(settings.training.precision, pick_device(recipe.machine))
        pretrained = not settings.encoder.own and settings.encoder.name not in own_names(recipe)
        if pretrained and settings.encoder not in found_encoders:
            with found:
                found_encoders[settings.encoder] = find_encoder(recipe, settings.encoder)
    for words in {settings.encoder.words: None for settings in _all_settings(recipe) if settings.encoder.own}:
        with found:
            sources[words] = _find_words(recipe, words)
    outside: dict[str, tuple[str, str]] = {}
    for teacher in recipe.teachers:
        if not teacher.trained:
            with found:
                outside[str(teacher.name)] = _find_teacher(recipe, teacher)
    with found:
        tasks = resolve_tasks(recipe)
    with found:
        tagger = tagger_of(recipe)
    found.raise_if_any()
    _look_at_rates(recipe)
    skip = recipe.data.on_bad_row == "skip"
    loaded = read_tasks(tasks, skip, cache_folder(recipe), lambda what, rows: watch(Reading(what, rows)))
    # A diagnostic set's labels are in the order of the head that answers it, also where that task is the user's own.
    loaded = {name: as_trained(task, loaded[task.task.head].task) for name, task in loaded.items()}
    loaded = augment_tasks(recipe, loaded, tagger, watch)
    plan = _lay_out(Drafts(recipe, loaded, found_encoders, sources), outside)
    refuse_silence(plan)
    return plan


def _lay_out(drafts: Drafts, outside: Mapping[str, tuple[str, str]]) -> Plan:
    layout = Layout(drafts, outside)
    again = partial(_lay_out, drafts, outside)
    return Plan(drafts.recipe, drafts.loaded, layout.models(), layout.teachers.candidates, again)


def _all_settings(recipe: Recipe) -> list[Settings]:
    parts = [*(teacher for teacher in recipe.teachers if teacher.trained), recipe.student]
    return [recipe.settings(part) for part in parts]


def _look_at_rates(recipe: Recipe) -> None:
    """Warn of a rate at which a network that begins at random would hardly learn."""
    for name, optimizer, rate in dict.fromkeys(
        (settings.encoder.name, settings.training.optimizer, settings.training.lr)
        for settings in _all_settings(recipe)
        if settings.encoder.own
    ):
        usual = _USUAL[optimizer]
        if rate < usual / 10:
            what = f"{name} begins at random and hardly learns at lr {rate:g}"
            log.warning("%s → write training: {lr: %g} for it, as is usual with %s", what, usual, optimizer)


def find_encoder(recipe: Recipe, spec: EncoderSpec) -> str:
    """Return what the loaders take for an encoder, when it can read as many tokens as are asked for."""
    there = recipe.find(spec.name)
    encoder = resolve(str(there) if there.is_dir() else spec.name)
    own_lengths = {f"tasks.{name}.max_length": task.max_length for name, task in recipe.tasks.items()}
    lengths = {place: length for place, length in own_lengths.items() if length}
    check_lengths(spec.name, encoder, {"encoder.max_length": spec.max_length, **lengths})
    check_layers(spec, encoder)
    return encoder


def _find_words(recipe: Recipe, spec: WordsSpec) -> WordSource:
    """Return where a network's vectors and tokeniser lie, when they fit what is asked for."""
    vectors, place, digests = None, "", {}
    if spec.vectors is not None:
        there = recipe.find(spec.vectors)
        vectors = there if there.exists() else locate_vectors(spec.vectors)
        size = vector_size(vectors)
        if spec.size not in (None, size):
            raise UserError(f"encoder.words.size: {spec.size}, but {spec.vectors} has vectors of {size} → leave it out")
        files = sorted(vectors.iterdir()) if vectors.is_dir() else [vectors]
        digests = {f"vectors/{number}": file_digest(file) for number, file in enumerate(files)}
    if spec.tokenizer != "words":
        there = recipe.find(spec.tokenizer)
        place = resolve(str(there) if there.is_dir() else spec.tokenizer)
        # What it knows besides, its tokeniser does not tell.
        others = {name: digest for name, digest in identity(place).items() if not name.endswith(".safetensors")}
        digests |= {f"tokenizer/{name}": digest for name, digest in others.items()}
    return WordSource(vectors, place, digests)


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


def as_trained(loaded: LoadedTask, trained: Task) -> LoadedTask:
    """Give a task the label order of the model; labels are joined by name."""
    strange = set(loaded.task.labels) - set(trained.labels)
    if loaded.task.kind != trained.kind or strange:
        what = (
            f"labels the model does not know: {', '.join(sorted(strange))}" if strange else f"kind {loaded.task.kind}"
        )
        raise UserError(f"task {loaded.task.name} does not fit the model: {what}")
    if trained.kind == "ranking" and loaded.task.labels != trained.labels:
        what = f'which takes "{trained.labels[-1]}" to be right'
        raise UserError(f"task {loaded.task.name} does not fit the model, {what} → turn the labels round")
    task = replace(loaded.task, labels=trained.labels, range=trained.range)
    return replace(loaded, task=task, splits={name: replace(data, task=task) for name, data in loaded.splits.items()})


def pick_models(plan: Plan, names: tuple[str, ...]) -> tuple[ModelPlan, ...]:
    """Return the models of a plan with these names, or all."""
    known = {model.name: model for model in plan.models}
    for name in names:
        model = known.get(name)
        if plan.candidates and (model.role == "teacher" and model.awaits_choice if model else "-finetuned-" in name):
            what = "which candidates are fine-tuned is known when they are trained"
            raise UserError(f'"{name}": {what} → train them first: {", ".join(each.name for each in plan.candidates)}')
        if model is None:
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
