"""Exporting: a model as a folder that other programs run, checked on real rows before it appears."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from understill.data.demo import TASKS as DEMO
from understill.data.encode import all_gold
from understill.data.groups import grouping
from understill.data.load import LoadedTask
from understill.disk import hidden_folder, seal, sync, write_bytes
from understill.errors import DataError, UserError, counted
from understill.evaluate.agreement import interval_of
from understill.evaluate.clock import PIPELINE_BATCH, Text, apart
from understill.evaluate.efficiency import time_answers
from understill.evaluate.metrics import score
from understill.evaluate.predictor import Predictor
from understill.events import Asking, Watch, silent
from understill.export import huggingface
from understill.export.card import Card, DevScore, as_markdown
from understill.export.formats import refuse_there, take_order
from understill.export.int8 import Rounded, refuse_loss, round_weights
from understill.export.onnx_graph import write_onnx
from understill.export.parity import ROWS, Parity, compare, refuse_difference, refuse_no_numbers
from understill.export.sentences import lines_of
from understill.models.folder import ModelFolder, load_model
from understill.models.pooling import POOLED
from understill.models.words import WordEncoder
from understill.pipeline.reading import as_trained, read_labelled
from understill.recipe import Recipe
from understill.recipe.schema import TrainedSpec
from understill.runtime.answers import Answerer, Predictions
from understill.runtime.cores import cores
from understill.runtime.onnx import OnnxModel
from understill.tasks import Task

#: How a model was made; it goes along.
RECIPE = "recipe.yaml"
#: Rows that a model answers between two words about progress.
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
    texts: list[str]
    pairs: list[str] | None
    gold: NDArray[np.float64]
    groups: NDArray[np.int64] | None

    def some(self, count: int) -> list[Text]:
        """Return the first rows, as texts or pairs."""
        texts, pairs = self.first(count)
        return list(texts) if pairs is None else list(zip(texts, pairs, strict=True))

    def first(self, count: int) -> tuple[list[str], list[str] | None]:
        """Return the texts of the first rows."""
        return self.texts[:count], None if self.pairs is None else self.pairs[:count]


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
    """Export a model; the folder appears when all of it is written and says what the model says.

    `limit` is what int8 may lose by any metric of a dev set, in points.
    """
    order = take_order(path, to, tasks, out)
    if not (order.source / RECIPE).is_file():
        raise UserError(f"{order.source}: {RECIPE} is missing, which goes with an export → copy the whole folder again")
    folder = load_model(order.source)
    loaded = _loaded(recipe, order.tasks, watch)
    with _hidden(order.target) as building:
        shipment = Shipment(order.source.name, Predictor(folder), recipe, loaded, to, limit, watch)
        for part, own in order.parts.items():
            shipment.make(building / part, own)
        _put(building, order.target)
    parts = tuple(order.target / part for part in order.parts)
    pair = all(task.pair for task in next(iter(order.parts.values())))
    return Exported(order.target, parts, pair, tuple(shipment.parity), tuple(shipment.rounded), order.left)


@contextmanager
def _hidden(target: Path) -> Iterator[Path]:
    """Give the folder that an export lies in until it is whole."""
    try:
        stack = ExitStack()
        building = stack.enter_context(hidden_folder(target))
    except OSError as error:
        fix = "choose another place with --out"
        raise UserError(f"{target}: no folder can be made there: {error.strerror} → {fix}") from None
    with stack:
        yield building


def _put(building: Path, target: Path) -> None:
    """Move an export into place, which may have been taken meanwhile."""
    try:
        building.rename(target)
    except OSError:
        refuse_there(target)
        raise
    sync(target.parent)


def _loaded(recipe: Recipe, chosen: Sequence[Task], watch: Watch) -> list[LoadedTask]:
    """Read the data that a model is checked with: all sets that its heads answer."""
    own = {task.name: task for task in chosen}
    try:
        found = read_labelled(recipe, watch).values()
    except DataError:
        raise
    except UserError as error:
        fix = "export from where the recipe was run, or name files with --set or another recipe with --recipe"
        raise UserError(f"no dev rows to check the export with: {error} → {fix}") from None
    loaded = [as_trained(each, own[each.task.head]) for each in found if each.task.head in own]
    for name in own:
        if not any(each.task.head == name and "dev" in each.splits for each in loaded):
            fix = "name a recipe that has it with --recipe, or other tasks with --task"
            raise UserError(f"the recipe has no dev rows of {name} to check the export with → {fix}")
    return loaded


def dev_sets(loaded: Sequence[LoadedTask]) -> list[DevSet]:
    """Return the dev sets of tasks with their texts."""
    found = []
    for each in loaded:
        for split, data in each.splits.items():
            if split.startswith("dev"):
                table = data.table()
                pairs = table["text2"].to_pylist() if each.task.pair else None
                texts = table["text1"].to_pylist()
                place = f"{each.task.name}/{split}"
                found.append(DevSet(place, each.task, texts, pairs, all_gold(data), grouping(data)))
    return found


class Shipment:
    """The folders of one export, each written, checked and described."""

    def __init__(
        self,
        name: str,
        predictor: Predictor,
        recipe: Recipe,
        loaded: Sequence[LoadedTask],
        to: str,
        limit: float,
        watch: Watch,
    ) -> None:
        self.name, self.predictor, self.recipe, self.loaded = name, predictor, recipe, loaded
        self.to, self.limit, self.watch = to, limit, watch
        self.parity: list[Parity] = []
        self.rounded: list[Rounded] = []

    def make(self, place: Path, tasks: Sequence[Task]) -> None:
        """Write a folder for some tasks, refuse it where it says something else, and describe it."""
        folder = self.predictor.folder
        place.mkdir(exist_ok=True)
        sets = dev_sets([each for each in self.loaded if each.task.head in {task.name for task in tasks}])
        before = {each.place: self._ask(self.predictor, "the model", each) for each in sets}
        if self.to == "huggingface":
            huggingface.write_classifier(folder, tasks[0], place)
            opened: Answerer = huggingface.ClassifierModel(place)
        else:
            write_onnx(folder, tasks, place)
            opened = OnnxModel(place)
        parity = [self._check(opened, each, before[each.place]) for each in sets]
        refuse_difference(parity)
        rounded: list[Rounded] = []
        if self.to == "int8":
            round_weights(place)
            opened = OnnxModel(place)
            after = {each.place: self._ask(opened, "int8", each) for each in sets}
            rounded = [found for each in sets for found in _rounded(each, before[each.place], after[each.place])]
            refuse_loss(rounded, self.limit)
            parity = [compare(each.place, before[each.place], after[each.place]) for each in sets]
            before = after
        self._finish(place, tasks, opened, sets, before, parity, rounded)
        self.parity += parity
        self.rounded += rounded

    def _ask(self, model: Answerer, who: str, rows: DevSet) -> Predictions:
        """Return what a model says of all rows of a dev set."""
        task, parts, total = self._head(rows), [], len(rows.texts)
        for start in range(0, total, _BLOCK):
            self.watch(Asking(who, rows.place, start, total))
            span = slice(start, start + _BLOCK)
            pairs = None if rows.pairs is None else rows.pairs[span]
            parts.append(model.logits(rows.texts[span], pairs, [task])[task.name].logits)
        self.watch(Asking(who, rows.place, total, total))
        said = Predictions(rows.task, np.concatenate(parts))
        refuse_no_numbers(who, rows.place, said)
        return said

    def _check(self, export: Answerer, rows: DevSet, before: Predictions) -> Parity:
        task = self._head(rows)
        said = export.logits(*rows.first(ROWS), [task])[task.name]
        return compare(rows.place, Predictions(rows.task, before.logits[:ROWS]), said)

    @property
    def _pooled(self) -> bool:
        """Whether a classifier cannot be asked by `pipeline()`, which knows no mean pooling."""
        return self.predictor.folder.model.encoder.pooling in POOLED

    def _head(self, rows: DevSet) -> Task:
        """Return the task whose head answers a dev set."""
        return next(task for task in self.predictor.tasks if task.name == rows.task.head)

    def _asked(self, place: Path, opened: Answerer, task: Task) -> tuple[str, Callable[[Sequence[Text]], object]]:
        """Return what answers when an export is timed, with what to say of it; it is what the card tells to use."""
        where = f"for {task.name}, on {counted(cores(), 'CPU core')}"
        if isinstance(opened, OnnxModel):
            return f"{where} with {counted(opened.threads, 'thread')}", partial(_answer, opened, task)
        threads, how = counted(torch.get_num_threads(), "thread"), f"by pipeline() in batches of {PIPELINE_BATCH}"
        if self._pooled:
            return f"{where} with {threads}, by understill", partial(_answer, opened, task)
        return f"{where} with {threads}, {how}", huggingface.Pipeline(place).ask

    def _finish(
        self,
        place: Path,
        tasks: Sequence[Task],
        opened: Answerer,
        sets: Sequence[DevSet],
        said: Mapping[str, Predictions],
        parity: Sequence[Parity],
        rounded: Sequence[Rounded],
    ) -> None:
        """Write the card and the recipe beside what is exported."""
        folder = self.predictor.folder
        timed, ask = self._asked(place, opened, self._head(sets[0]))
        latency, rate = time_answers(ask, sets[0].some(_TIMED))
        card = Card(
            name=f"{self.recipe.name} {self.name}",
            to=self.to,
            tasks=tasks,
            max_lengths=folder.max_lengths,
            rows={each.task.name: {split: data.rows for split, data in each.splits.items()} for each in self.loaded},
            network=_network(folder),
            method=_method(self.recipe, self.name, tasks, folder.taught),
            scores=[found for each in sets if (found := _dev_score(each, said[each.place]))],
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
            program=lines_of(tasks[0]) if self.to == "huggingface" and self._pooled else (),
            score_link=huggingface.score_link(folder, tasks[0]) if self.to == "huggingface" else "",
        )
        write_bytes(place / RECIPE, folder.path.joinpath(RECIPE).read_bytes())
        write_bytes(place / "README.md", as_markdown(card).encode())
        seal(place)


def _answer(model: Answerer, task: Task, texts: Sequence[Text]) -> None:
    """Answer texts, or pairs, as they are timed."""
    model.logits(*apart(texts), [task])


def _dev_score(rows: DevSet, said: Predictions) -> DevScore | None:
    """Return the first metric of a dev set with its interval; None where nothing can be scored."""
    measured = score(rows.task, rows.gold, said.values, rows.groups)
    if not measured:
        return None
    metric = rows.task.metrics[0]
    interval = interval_of(rows.task, rows.gold, said.values, rows.groups)
    return DevScore(rows.place, len(rows.texts), metric, measured[metric], interval.low, interval.high)


def _rounded(rows: DevSet, before: Predictions, after: Predictions) -> list[Rounded]:
    """Return a dev set's metrics before and after rounding; none where nothing can be scored."""
    one, other = (score(rows.task, rows.gold, each.values, rows.groups) for each in (before, after))
    return [Rounded(rows.place, metric, value, other[metric]) for metric, value in one.items()]


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
    found = []
    for each in recipe.teachers:
        if any(each.teaches_task(task.name) for task in tasks):
            what = each.describe()
            if isinstance(each, TrainedSpec):
                what = f"{recipe.settings(each).encoder.name}, {what}"
            found.append(f"{each.name} ({what})" if each.name else what)
    return found


def _unlabelled(recipe: Recipe, tasks: Sequence[Task]) -> str:
    """Say what a student has read without labels."""
    share = recipe.student.unlabelled
    found = []
    for task in tasks if share != 0 else ():
        spec = recipe.tasks.get(task.name)
        if spec is None or not any(each.teaches_task(task.name) for each in recipe.teachers):
            continue
        if spec.unlabelled:
            found.append(f"{task.name} ({', '.join(spec.unlabelled)})")
        elif share and recipe.data.demo is not None and task.name in DEMO and not spec.own:
            found.append(f"{task.name} (texts of the demo)")
    if not found:
        return ""
    what = f"{share or 0.5:.0%} of such a task's rows in a batch, answered by teachers alone"
    return f"It also read texts without labels, {what}: {', '.join(found)}."
