"""Exporting: a model as a folder that other programs run, checked on real rows before it appears."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from understill.atomic import hidden_folder, seal, sync, write_bytes
from understill.bench.clock import Ask, Text, split_pairs, time_answers
from understill.bench.subjects import PIPELINE_BATCH, Pipeline
from understill.data.demo import TASKS as DEMO
from understill.data.encode import all_gold, texts_of
from understill.data.groups import grouping
from understill.data.load import LoadedTask
from understill.errors import DataError, UserError, counted
from understill.evaluate.agreement import interval_of
from understill.evaluate.metrics import score
from understill.events import Asking, Watch, silent
from understill.export.card import Card, as_markdown
from understill.export.formats import plan_export, refuse_there
from understill.export.huggingface import score_link, write_classifier
from understill.export.int8 import round_weights
from understill.export.onnx_graph import write_onnx
from understill.export.parity import (
    ROWS,
    DevScore,
    Parity,
    Rounded,
    compare,
    refuse_difference,
    refuse_loss,
    refuse_other_score,
)
from understill.export.sentences import lines_of
from understill.inference.classifier import HuggingFaceModel
from understill.inference.cores import cores
from understill.inference.onnx import OnnxModel
from understill.inference.predictor import Predictions, Predictor, refuse_no_numbers
from understill.inference.torch_model import TorchModel
from understill.models.folder import ModelFolder, load_model
from understill.models.pooling import POOLED
from understill.models.roles import RECIPE
from understill.models.words import WordEncoder
from understill.pipeline.recipe_data import as_trained, read_labelled
from understill.recipe import Recipe
from understill.recipe.schema import TrainedSpec
from understill.tasks import Task
from understill.tasks.metric import is_error

#: Rows between two progress events.
_BLOCK = 2048
#: Texts that a card's speed is measured with.
_TIMED = 256


@dataclass(frozen=True)
class Exported:
    """What an export came to: one folder for each card."""

    folder: Path
    parts: tuple[Path, ...]
    pair: bool  # whether all tasks of the first read two texts
    parity: tuple[Parity, ...]
    rounded: tuple[Rounded, ...]
    left: Mapping[str, str]  # the tasks that stay behind, and why


@dataclass(frozen=True)
class DevSet:
    """The rows of a dev set, as a model is asked about them."""

    place: str
    task: Task
    texts: list[Text]
    gold: NDArray[np.float64]
    groups: NDArray[np.int64] | None
    fingerprint: str  # of its rows


def export(
    path: Path,
    recipe: Recipe,
    to: str,
    *,
    tasks: Sequence[str] = (),
    out: Path | None = None,
    limit: float = 1.0,
    watch: Watch = silent,
) -> Exported:
    """Export a model; the folder appears when all of it is written and its answers match the model's.

    `limit` is what int8 may lose by any metric of a dev set, in points.
    """
    plan = plan_export(path, to, tasks, out)
    if not (plan.source / RECIPE).is_file():
        raise UserError(f"{plan.source}: {RECIPE} is missing, which goes with an export → copy the whole folder again")
    folder = load_model(plan.source)
    loaded = _loaded(recipe, plan.tasks, watch)
    with _appearing(plan.target) as building:
        exporter = Exporter(plan.source.name, TorchModel(folder), recipe, loaded, to, limit, watch)
        for part, own in plan.parts.items():
            exporter.make(building / part, own)
    parts = tuple(plan.target / part for part in plan.parts)
    pair = all(task.pair for task in next(iter(plan.parts.values())))
    return Exported(plan.target, parts, pair, tuple(exporter.parity), tuple(exporter.rounded), plan.left)


@contextmanager
def _appearing(target: Path) -> Iterator[Path]:
    """Give a hidden folder to write in, which is renamed to the target when all went well."""
    with ExitStack() as stack:
        try:
            building = stack.enter_context(hidden_folder(target))
        except OSError as error:
            fix = "choose another place with --out"
            raise UserError(f"{target}: no folder can be made there: {error.strerror} → {fix}") from None
        yield building
        try:
            building.rename(target)
        except OSError:
            refuse_there(target)  # it may have appeared meanwhile
            raise
        sync(target.parent)


def _loaded(recipe: Recipe, chosen: Sequence[Task], watch: Watch) -> list[LoadedTask]:
    """Read the data that a model is checked with: all sets that its heads answer."""
    own = {task.name: task for task in chosen}
    try:
        labelled = read_labelled(recipe, watch).values()
    except DataError:
        raise
    except UserError as error:
        fix = "export from where the recipe was run, or name files with --set or another recipe with --recipe"
        raise UserError(f"no dev rows to check the export with: {error} → {fix}") from None
    loaded = [as_trained(each, own[each.task.head]) for each in labelled if each.task.head in own]
    for name in own:
        if not any(each.task.head == name and "dev" in each.splits for each in loaded):
            fix = "name a recipe that has it with --recipe, or other tasks with --task"
            raise UserError(f"the recipe has no dev rows of {name} to check the export with → {fix}")
    return loaded


def dev_sets(loaded: Sequence[LoadedTask]) -> list[DevSet]:
    """Return the dev sets of tasks with their texts."""
    sets = [data for each in loaded for data in each.splits.values() if data.split.startswith("dev")]
    return [
        DevSet(data.place, data.task, texts_of(data.table(), False), all_gold(data), grouping(data), data.fingerprint)
        for data in sets
    ]


@dataclass
class Exporter:
    """Writes, checks and describes the folders of one export."""

    name: str
    model: TorchModel
    recipe: Recipe
    loaded: Sequence[LoadedTask]
    to: str
    limit: float
    watch: Watch
    parity: list[Parity] = field(default_factory=list)
    rounded: list[Rounded] = field(default_factory=list)

    @property
    def pooled(self) -> bool:
        """Whether it pools in a way that pipeline() does not know."""
        return self.model.folder.model.encoder.pooling in POOLED

    def make(self, place: Path, tasks: Sequence[Task]) -> None:
        """Write a folder for some tasks, refuse it where its answers differ, and describe it."""
        place.mkdir(exist_ok=True)
        sets = dev_sets([each for each in self.loaded if each.task.head in {task.name for task in tasks}])
        answers = {each.place: self._ask(self.model, "the model", each) for each in sets}
        self._compare_scores(sets, answers)
        if self.to == "huggingface":
            write_classifier(self.model.folder, tasks[0], place)
            opened: Predictor = HuggingFaceModel(place)
        else:
            write_onnx(self.model.folder, tasks, place)
            opened = OnnxModel(place)
        parity = [self._check(opened, each, answers[each.place]) for each in sets]
        refuse_difference(parity)
        rounded: list[Rounded] = []
        if self.to == "int8":
            round_weights(place)
            opened, before = OnnxModel(place), answers
            answers = {each.place: self._ask(opened, "int8", each) for each in sets}
            rounded = [cost for each in sets for cost in _rounded(each, before[each.place], answers[each.place])]
            refuse_loss(rounded, self.limit)
            parity = [compare(each.place, before[each.place], answers[each.place]) for each in sets]
        self._finish(place, tasks, opened, sets, answers, parity, rounded)
        self.parity += parity
        self.rounded += rounded

    def _ask(self, model: Predictor, who: str, rows: DevSet) -> Predictions:
        """Return a model's predictions for all rows of a dev set."""
        task, parts, total = self._head(rows), [], len(rows.texts)
        for start in range(0, total, _BLOCK):
            self.watch(Asking(who, rows.place, start, total))
            parts.append(_predict(model, task, rows.texts[start : start + _BLOCK]).logits)
        self.watch(Asking(who, rows.place, total, total))
        predictions = Predictions(rows.task, np.concatenate(parts))
        refuse_no_numbers(who, rows.place, predictions, "write --to onnx" if who == "int8" else "")
        return predictions

    def _compare_scores(self, sets: Sequence[DevSet], answers: Mapping[str, Predictions]) -> None:
        """Refuse a model that does not score what its folder says, on the same rows."""
        folder = self.model.folder
        for each in sets:
            if folder.scored_on.get(each.place) == each.fingerprint and (now := _dev_score(each, answers[each.place])):
                refuse_other_score(now, folder.scores.get(each.place, {}).get(now.metric, now.value))

    def _check(self, export: Predictor, rows: DevSet, before: Predictions) -> Parity:
        after = _predict(export, self._head(rows), rows.texts[:ROWS])
        return compare(rows.place, Predictions(rows.task, before.logits[:ROWS]), after)

    def _head(self, rows: DevSet) -> Task:
        """Return the task whose head answers a dev set."""
        return next(task for task in self.model.tasks if task.name == rows.task.head)

    def _asked(self, place: Path, opened: Predictor, task: Task) -> tuple[str, Ask]:
        """Return what is timed, as the card shows to use it, with a description."""
        where = f"for {task.name}, on {counted(cores(), 'CPU core')}"
        if isinstance(opened, OnnxModel):
            return f"{where} with {counted(opened.threads, 'thread')}", partial(_predict, opened, task)
        threads = counted(torch.get_num_threads(), "thread")
        if self.pooled:
            return f"{where} with {threads}, by understill", partial(_predict, opened, task)
        return f"{where} with {threads}, by pipeline() in batches of {PIPELINE_BATCH}", Pipeline(place).ask

    def _finish(
        self,
        place: Path,
        tasks: Sequence[Task],
        opened: Predictor,
        sets: Sequence[DevSet],
        answers: Mapping[str, Predictions],
        parity: Sequence[Parity],
        rounded: Sequence[Rounded],
    ) -> None:
        """Write the card and the recipe beside what is exported."""
        folder = self.model.folder
        timed, ask = self._asked(place, opened, self._head(sets[0]))
        latency, rate = time_answers(ask, sets[0].texts[:_TIMED])
        card = Card(
            name=f"{self.recipe.name} {self.name}",
            to=self.to,
            tasks=tasks,
            max_lengths=folder.max_lengths,
            rows={each.task.name: {split: data.rows for split, data in each.splits.items()} for each in self.loaded},
            network=_network(folder),
            method=_method(self.recipe, self.name, tasks, folder.taught),
            scores=[value for each in sets if (value := _dev_score(each, answers[each.place]))],
            parity=parity,
            bytes=sum(path.stat().st_size for path in place.rglob("*") if path.is_file()),
            parameters=_count(folder, tasks),
            latency=latency,
            rate=rate,
            timed=timed,
            overlap={
                f"{each.task.name}/{split}": count for each in self.loaded for split, count in each.overlap.items()
            },
            unlabelled=_unlabelled(self.recipe, tasks) if folder.taught else "",
            rounded=rounded,
            program=lines_of(tasks[0]) if self.to == "huggingface" and self.pooled else (),
            score_link=score_link(folder, tasks[0]) if self.to == "huggingface" else "",
        )
        write_bytes(place / RECIPE, folder.path.joinpath(RECIPE).read_bytes())
        write_bytes(place / "README.md", as_markdown(card).encode())
        seal(place)


def _predict(model: Predictor, task: Task, texts: Sequence[Text]) -> Predictions:
    return model.logits(*split_pairs(texts), [task])[task.name]


def _dev_score(rows: DevSet, predictions: Predictions) -> DevScore | None:
    """Return the first metric of a dev set with its interval; None where nothing can be scored."""
    scores = score(rows.task, rows.gold, predictions.values, rows.groups)
    if not scores:
        return None
    metric = rows.task.metrics[0]
    interval = interval_of(rows.task, rows.gold, predictions.values[None], rows.groups)
    return DevScore(rows.place, len(rows.texts), metric, scores[metric], interval.low, interval.high)


def _rounded(rows: DevSet, before: Predictions, after: Predictions) -> list[Rounded]:
    """Return a dev set's metrics before and after rounding; none where nothing can be scored.

    An error's scale is the squared range of the scores.
    """
    low, high = rows.task.range or (0.0, 1.0)
    one, other = (score(rows.task, rows.gold, each.values, rows.groups) for each in (before, after))
    scales = {metric: (high - low) ** 2 if is_error(metric) else 1.0 for metric in one}
    return [Rounded(rows.place, metric, value, other[metric], scales[metric]) for metric, value in one.items()]


def _count(folder: ModelFolder, tasks: Sequence[Task]) -> int:
    """Count the parameters of the encoder and of these tasks' heads."""
    model = folder.model
    parts = [model.encoder, *(model.heads.tasks[model.tasks.index(task)] for task in tasks)]
    return sum(weight.numel() for part in parts for weight in part.parameters())


def _network(folder: ModelFolder) -> str:
    """Say in a few words what kind of network it is."""
    encoder = folder.model.encoder
    if isinstance(encoder, WordEncoder):
        return f"A {encoder.config.network} network over words"
    layers = getattr(encoder.config, "num_hidden_layers", 0)
    return f"A {encoder.config.model_type} encoder of {layers} layer{'s' if layers != 1 else ''}, {encoder.width} wide"


def _method(recipe: Recipe, name: str, tasks: Sequence[Task], distilled: bool) -> str:
    """Say how a model was made."""
    teachers = _teachers(recipe, tasks) if distilled else []
    who = f"{len(teachers)} teachers" if len(teachers) != 1 else "a teacher"
    taught = f", distilled from {who}: {'; '.join(teachers)}" if teachers else ""
    return (
        f'The model "{name}" of the understill recipe "{recipe.name}"{taught}. The recipe, with every setting, is '
        "recipe.yaml beside this file; `understill run recipe.yaml` makes it again."
    )


def _teachers(recipe: Recipe, tasks: Sequence[Task]) -> list[str]:
    """Say who taught some of these tasks."""
    names = []
    for each in recipe.teachers:
        if any(each.teaches_task(task.name) for task in tasks):
            what = each.describe()
            if isinstance(each, TrainedSpec):
                what = f"{recipe.settings(each).encoder.name}, {what}"
            names.append(f"{each.name} ({what})" if each.name else what)
    return names


def _unlabelled(recipe: Recipe, tasks: Sequence[Task]) -> str:
    """Say what a student has read without labels."""
    share = recipe.student.unlabelled
    names = []
    for task in tasks if share != 0 else ():
        spec = recipe.tasks.get(task.name)
        if spec is None or not any(each.teaches_task(task.name) for each in recipe.teachers):
            continue
        if spec.unlabelled:
            names.append(f"{task.name} ({', '.join(spec.unlabelled)})")
        elif share and recipe.data.demo is not None and task.name in DEMO and not spec.own:
            names.append(f"{task.name} (texts of the demo)")
    if not names:
        return ""
    what = f"{share or 0.5:.0%} of such a task's rows in a batch, answered by teachers alone"
    return f"It also read texts without labels, {what}: {', '.join(names)}."
