"""Planning: what a recipe comes to on this machine, checked before any training."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from understill.data.load import LoadedTask, decisive, read_tasks
from understill.data.load import resolve as resolve_tasks
from understill.data.normal import Plan as TaskPlan
from understill.data.read import find_files
from understill.data.tagging import Tagger
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
from understill.pipeline.plan import ModelPlan, Plan, Study, Wanted, WordSource, cache_folder, once_each
from understill.pipeline.reading import writable
from understill.recipe import Recipe
from understill.recipe.schema import NETWORKS, EncoderSpec, Settings, TeacherSpec, WordsSpec
from understill.targets.checkpoint import checkpoint_digest, locate
from understill.targets.predictions import predictions_digest
from understill.tasks import Task
from understill.train.device import check_trackers, pick_device, pick_precision

Found = TypeVar("Found")

log = logging.getLogger(__name__)

#: Rates at which networks learn that begin at random; encoders take far lower ones.
_USUAL = {"adamw": 2e-3, "adamax": 2e-3, "adadelta": 1.0}


def make_plan(recipe: Recipe, watch: Watch = silent) -> Plan:
    """Say what is to be done for a recipe as it is."""
    return make_study(recipe, watch).plan


def make_study(recipe: Recipe, watch: Watch = silent) -> Study:
    """Check what is quickly checked, in all runs and at once, then read all data, and say what is to be done."""
    found, grounds, cells = Collector(), Grounds(watch), recipe.cells
    with found:
        writable(recipe.output.path)
    with found:
        check_trackers(recipe.output.trackers)
    surveys = [grounds.survey(cell.recipe, found) for cell in cells]
    found.raise_if_any()
    _look_at_rates([cell.recipe for cell in cells])
    loaded = [grounds.data(survey) for survey in surveys]
    plans: list[Plan] = []
    for cell, survey, data in zip(cells, surveys, loaded, strict=True):
        with found, _naming(cell.variant if plans else ""):
            plan = _lay_out(grounds.drafts(survey, data), survey.outside)
            refuse_silence(plan)
            plans.append(plan)
        if not plans:
            break  # what is wrong with the recipe as it is would be found in every other run
    found.raise_if_any()
    return Study(recipe, tuple(zip(cells, plans, strict=True)))


@contextmanager
def _naming(variant: str) -> Iterator[None]:
    """Say which variant it is that cannot be done."""
    try:
        yield
    except UserError as error:
        raise UserError(f"with {variant}: {error}") if variant else error from None


@dataclass
class Survey:
    """What a recipe needs, and where it lies."""

    recipe: Recipe
    encoders: dict[EncoderSpec, str] = field(default_factory=dict)
    sources: dict[WordsSpec, WordSource] = field(default_factory=dict)
    outside: dict[str, tuple[str, str]] = field(default_factory=dict)
    tasks: Sequence[TaskPlan] = ()
    tagger: Tagger | None = None


class Grounds:
    """What plans stand on: data and the digests of files, each read once however many plans there are."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self._known: dict[Any, Any] = {}

    def _once(self, make: Callable[..., Found], *given: Any, key: Any = None) -> Found:
        """Return what a function makes, as it was made before for the same key."""
        key = make.__name__, given if key is None else key
        if key not in self._known:
            self._known[key] = make(*given)
        found: Found = self._known[key]
        return found

    def survey(self, recipe: Recipe, found: Collector) -> Survey:
        """Find what a recipe needs, and what is wrong with it as far as that is quickly seen."""
        survey = Survey(recipe)
        lengths = tuple((name, task.max_length) for name, task in recipe.tasks.items())
        for name in own_names(recipe):
            if name in (*ASSETS, *NETWORKS) or (recipe.find(name) / "config.json").exists():
                with found:
                    raise UserError(f'teacher {name}: there is an encoder "{name}" already → choose another name')
        for settings in _all_settings(recipe):
            with found:
                pick_precision(settings.training.precision, pick_device(recipe.machine))
            spec = settings.encoder
            if not spec.own and spec.name not in own_names(recipe):
                with found:
                    survey.encoders[spec] = self._once(find_encoder, recipe, spec, key=(spec, lengths))
            elif spec.own:
                with found:
                    survey.sources[spec.words] = self._once(_find_words, recipe, spec.words, key=spec.words)
        for teacher in recipe.teachers:
            if not teacher.trained:
                with found:
                    place = self._once(_find_teacher, recipe, teacher, key=teacher.model_dump_json())
                    survey.outside[str(teacher.name)] = place
        with found:
            survey.tasks = self._once(resolve_tasks, recipe, key=decisive(recipe))
        with found:
            survey.tagger = tagger_of(recipe)
        return survey

    def data(self, survey: Survey) -> dict[str, LoadedTask]:
        """Return a recipe's tasks with all their rows, augmented ones included."""
        recipe = survey.recipe
        key = decisive(recipe)
        loaded = self._once(self._read, survey, key=key)
        student = recipe.student
        seed = recipe.seed if student.augment and student.augment.seed == "student" else 0
        augment = student.augment.model_dump_json() if student.augment else None
        return self._once(
            augment_tasks, recipe, loaded, survey.tagger, self.watch, key=(key, augment, student.tasks, seed)
        )

    def _read(self, survey: Survey) -> dict[str, LoadedTask]:
        recipe = survey.recipe
        skip = recipe.data.on_bad_row == "skip"
        loaded = read_tasks(
            survey.tasks, skip, cache_folder(recipe), lambda what, rows: self.watch(Reading(what, rows))
        )
        # A diagnostic set's labels are in the order of the head that answers it, also where that is the user's own.
        return {name: as_trained(task, loaded[task.task.head].task) for name, task in loaded.items()}

    def drafts(self, survey: Survey, loaded: Mapping[str, LoadedTask]) -> Drafts:
        """Return what the models of a recipe are drafted from."""
        identities = {place: self._once(identity, place) for place in survey.encoders.values()}
        return Drafts(survey.recipe, loaded, survey.encoders, identities, survey.sources)


def _lay_out(drafts: Drafts, outside: Mapping[str, tuple[str, str]]) -> Plan:
    layout = Layout(drafts, outside)
    again = partial(_lay_out, drafts, outside)
    return Plan(drafts.recipe, drafts.loaded, layout.models(), layout.teachers.candidates, again)


def _all_settings(recipe: Recipe) -> list[Settings]:
    parts = [*(teacher for teacher in recipe.teachers if teacher.trained), recipe.student]
    return [recipe.settings(part) for part in parts]


def _look_at_rates(recipes: Sequence[Recipe]) -> None:
    """Warn of a rate at which a network that begins at random would hardly learn."""
    for name, optimizer, rate in dict.fromkeys(
        (settings.encoder.name, settings.training.optimizer, settings.training.lr)
        for recipe in recipes
        for settings in _all_settings(recipe)
        if settings.encoder.own
    ):
        usual = _USUAL[optimizer]
        if rate != "auto" and rate < usual / 10:
            what = f"{name} begins at random and hardly learns at a learning rate of {rate:g}"
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


def pick_wanted(study: Study, names: tuple[str, ...]) -> tuple[Wanted, ...]:
    """Return the models of a study with these names, in all its runs or, as in `seed1/student`, in one; or all."""
    runs = {cell.name: plan for cell, plan in study.cells}
    chosen = []
    for name in names:
        run, slash, model = name.rpartition("/")
        if slash and run not in runs:
            raise UserError(f'this recipe has no run "{run}"; {nearest(run, runs)}')
        for plan in [runs[run]] if slash else runs.values():
            (found,) = pick_models(plan, (model,))
            chosen.append(next(each for each in study.wanted if each.model is found))
    wanted = tuple(chosen) if names else study.wanted
    return wanted if len(runs) == 1 else once_each(wanted)
