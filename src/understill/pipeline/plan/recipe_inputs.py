"""The inputs of a recipe: encoders, words, teachers and data, located, checked and read once for all its runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from understill.atomic import known_digest
from understill.data.ingest import SourcedTask
from understill.data.load import LoadedTask, read_tasks
from understill.data.resolve import decisive
from understill.data.resolve import resolve as resolve_tasks
from understill.data.taggers import Tagger
from understill.data.vectors import vector_size
from understill.errors import Collector, UserError
from understill.events import Reading, Watch
from understill.models.assets import locate_vectors
from understill.models.catalogue import ASSETS
from understill.models.encoder import check_layers, check_lengths, identity, resolve
from understill.models.words import check_network
from understill.pipeline.augmentation import augment_tasks, tagger_of
from understill.pipeline.plan.parts import WordSource, cache_folder
from understill.pipeline.recipe_data import as_trained
from understill.plugins import NETWORKS
from understill.recipe import Recipe
from understill.recipe.schema import EncoderSpec, Settings, WordsSpec
from understill.teachers import digest_teacher
from understill.train.device import pick_device, pick_precision

T = TypeVar("T")

log = logging.getLogger(__name__)

#: Rates at which networks learn that begin at random; encoders take far lower ones.
_USUAL = {"adamw": 2e-3, "adamax": 2e-3, "adadelta": 1.0}


class Memo:
    """Remembers what functions return: runs of a study read data and take digests once."""

    def __init__(self) -> None:
        self._known: dict[Any, Any] = {}

    def __call__(self, make: Callable[..., T], *given: Any, key: Any = None) -> T:
        """Return what a function makes, as it was made before for the same key."""
        key = make.__name__, given if key is None else key
        if key not in self._known:
            self._known[key] = make(*given)
        result: T = self._known[key]
        return result


@dataclass(frozen=True)
class Inputs:
    """What the models of a recipe are planned from; data and identities are there once they are read."""

    recipe: Recipe
    encoders: Mapping[EncoderSpec, str]  # where each lies
    words: Mapping[WordsSpec, WordSource]
    external: Mapping[str, str]  # digests of the teachers that are not trained here
    sources: Sequence[SourcedTask]
    tagger: Tagger | None
    loaded: Mapping[str, LoadedTask] = field(default_factory=dict)
    identities: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # by place, the digests of its files

    @property
    def own(self) -> list[str]:
        """The tasks with a head of their own."""
        return [name for name, task in self.loaded.items() if task.task.head == name]

    @property
    def artifacts(self) -> Path:
        """The folder of all that is made."""
        return self.recipe.output.path / "artifacts"


def own_names(recipe: Recipe) -> set[str]:
    """Name the teachers that an encoder may be cut out of."""
    return {str(teacher.name) for teacher in recipe.trained}


def locate_all(recipe: Recipe, memo: Memo, problems: Collector) -> Inputs:
    """Find what a recipe needs, and collect what is wrong with it as far as that is quickly seen."""
    encoders: dict[EncoderSpec, str] = {}
    words: dict[WordsSpec, WordSource] = {}
    external: dict[str, str] = {}
    sources: Sequence[SourcedTask] = ()
    tagger, teachers = None, own_names(recipe)
    lengths = tuple((name, task.max_length) for name, task in recipe.tasks.items())
    for name in teachers:
        if name in (*ASSETS, *NETWORKS) or (recipe.find(name) / "config.json").exists():
            with problems:
                raise UserError(f'teacher {name}: there is an encoder "{name}" already → choose another name')
    for settings in all_settings(recipe):
        with problems:
            pick_precision(settings.training.precision, pick_device(recipe.machine))
        spec = settings.encoder
        with problems:
            if spec.own:
                check_network(spec)
                words[spec.words] = memo(_find_words, recipe, spec.words, key=spec.words)
            elif spec.name not in teachers:
                encoders[spec] = memo(_find_encoder, recipe, spec, key=(spec, lengths))
    for teacher in recipe.teachers:
        if not teacher.trained:
            with problems:
                key = (teacher.model_dump_json(), decisive(recipe))  # prompts are made of what tasks say
                external[str(teacher.name)] = memo(digest_teacher, teacher, recipe, key=key)
    with problems:
        sources = memo(resolve_tasks, recipe, key=decisive(recipe))
    with problems:
        tagger = tagger_of(recipe)
    return Inputs(recipe, encoders, words, external, sources, tagger)


def read_inputs(inputs: Inputs, memo: Memo, watch: Watch) -> Inputs:
    """Read a recipe's tasks with all their rows, augmented ones included."""
    recipe, key = inputs.recipe, decisive(inputs.recipe)
    student = recipe.student
    seed = recipe.seed if student.augment and student.augment.seed == "student" else 0
    augment = student.augment.model_dump_json() if student.augment else None
    rows = memo(_read, inputs, watch, key=key)
    loaded = memo(augment_tasks, recipe, rows, inputs.tagger, watch, key=(key, augment, student.tasks, seed))
    identities = {place: memo(identity, place) for place in inputs.encoders.values()}
    return replace(inputs, loaded=loaded, identities=identities)


def _read(inputs: Inputs, watch: Watch) -> dict[str, LoadedTask]:
    recipe, skip = inputs.recipe, inputs.recipe.data.on_bad_row == "skip"
    loaded = read_tasks(inputs.sources, skip, cache_folder(recipe), lambda what, rows: watch(Reading(what, rows)))
    # A diagnostic set's labels are in the order of the head that answers it, also where that is the user's own.
    return {name: as_trained(task, loaded[task.task.head].task) for name, task in loaded.items()}


def all_settings(recipe: Recipe) -> list[Settings]:
    """Return the settings of all models that a recipe trains."""
    return [recipe.settings(part) for part in (*recipe.trained, recipe.student)]


def warn_of_rates(recipes: Sequence[Recipe]) -> None:
    """Warn of a rate at which a network that begins at random would hardly learn."""
    for name, optimizer, rate in dict.fromkeys(
        (settings.encoder.name, settings.training.optimizer, settings.training.lr)
        for recipe in recipes
        for settings in all_settings(recipe)
        if settings.encoder.own
    ):
        usual = _USUAL[optimizer]
        if rate != "auto" and rate < usual / 10:
            what = f"{name} begins at random and hardly learns at a learning rate of {rate:g}"
            log.warning("%s → write training: {lr: %g} for it, as is usual with %s", what, usual, optimizer)


def locate_encoder(recipe: Recipe, name: str) -> str:
    """Return what the loaders take for the name of an encoder, which may be a folder as the recipe sees it."""
    there = recipe.find(name)
    return resolve(str(there) if there.is_dir() else name)


def _find_encoder(recipe: Recipe, spec: EncoderSpec) -> str:
    """Return what the loaders take for an encoder, when it can read as many tokens as are asked for."""
    encoder = locate_encoder(recipe, spec.name)
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
        digests = {f"vectors/{number}": known_digest(file) for number, file in enumerate(files)}
    if spec.tokenizer != "words":
        place = locate_encoder(recipe, spec.tokenizer)
        # What it knows besides, its tokeniser does not tell.
        others = {name: digest for name, digest in identity(place).items() if not name.endswith(".safetensors")}
        digests |= {f"tokenizer/{name}": digest for name, digest in others.items()}
    return WordSource(vectors, place, digests)
