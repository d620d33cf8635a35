"""Predictions: logits of whole splits, kept per example."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from understill.atomic import hidden_file, refuse_damaged_file
from understill.data.batch import EVERY, Batch, Stream, in_order, sizes_on
from understill.data.packed import Packed, Resident, room
from understill.data.taskdata import TaskData
from understill.data.tokens import Tokens
from understill.errors import UserError
from understill.inference.predictor import Predictions
from understill.models.heads import to_scores
from understill.models.memory import give_back, out_of_memory
from understill.models.multitask import MultiTaskModel
from understill.recipe.schema import HeadsSpec
from understill.tasks import Task

log = logging.getLogger(__name__)

#: Tokens that a GPU reads at once: enough to keep it busy, few enough for its memory.
BUDGET = 1 << 17
#: How many times as many are read at once by a network that costs little a token.
LIGHT = 8
#: Fewer rows than this are not worth the preparations of a light network.
MANY = 32


class Network(Protocol):
    """What can be run over tokens: an understill model, or a classifier made elsewhere."""

    spec: HeadsSpec  # how a regression head's outputs become scores

    def __call__(self, batch: Batch | Packed) -> Tensor:
        """Return the logits of every task for every row, [n, columns]."""

    def packs_on(self, device: torch.device) -> bool:
        """Tell whether it reads packed rows on a device."""

    def columns(self, task: str) -> slice:
        """Return where a task's outputs stand."""

    def number(self, task: str) -> int:
        """Return the place of a task among all."""

    @property
    def light(self) -> bool:
        """Whether a token costs next to nothing, so that the many tokens are what takes time."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """Return the weights; the rows go where they are."""


@torch.inference_mode()
def predict_all(
    model: Network,
    tokens: Tokens,
    tasks: Sequence[Task],
    batch: int,
    progress: Callable[[int], None] | None = None,
    *,
    exact: bool = False,
) -> dict[str, Predictions]:
    """Run a model over tokens once, longest rows together, and give each task's logits in the rows' order.

    A CPU takes `batch` rows at once. A GPU that has bfloat16 computes in it, and takes as many rows as fill it. Of many
    rows, a light network takes as many as fit on either. `progress` is told how many rows were done since it was last
    called. `exact` keeps to the precision of the weights on a GPU too.
    """
    columns = {task.name: model.columns(task.head) for task in tasks}
    number = model.number(tasks[0].head) if len(tasks) == 1 else EVERY
    width = max((span.stop for span in columns.values()), default=0)
    logits = _read(model, lambda network, piece: network(piece), tokens, number, batch, width, progress, exact)
    out = {}
    for task in tasks:
        own = logits[:, columns[task.name]]
        if task.kind.scaled:
            own = to_scores(own, task, model.spec.regression)
        out[task.name] = Predictions(task, own.cpu().numpy())
    return out


def _read(
    model: Network,
    call: Callable[[Any, Batch | Packed], Tensor],
    tokens: Tokens,
    number: int,
    batch: int,
    width: int,
    progress: Callable[[int], None] | None = None,
    exact: bool = False,
) -> Tensor:
    """Return what a call of the model gives of each row, [rows, width], for rows of a task, or of every one."""
    device = next(model.parameters()).device
    low = not exact and device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    packed = len(tokens) >= MANY if model.light else low
    pieces = _packed if packed and model.packs_on(device) else _padded
    values = torch.empty(len(tokens), width, device=device)
    budget = BUDGET * LIGHT if model.light else BUDGET
    if low and pieces is _packed and not model.light and isinstance(model, MultiTaskModel):
        # Autocast would keep the states between layers in float32, twice the bytes, and memory is what bounds them.
        model, low = model.rounded(torch.bfloat16), False
    told = 0
    while True:
        done = 0
        try:
            with torch.autocast("cuda", torch.bfloat16) if low else nullcontext():
                for rows, piece in pieces(tokens, number, batch, device, budget):
                    values[rows] = call(model, piece)[:, :width].float()
                    done += len(piece)
                    if progress and done > told:
                        progress(done - told)
                    told = max(told, done)
            return values
        except RuntimeError as error:
            fixed = device.type != "cuda" and pieces is _padded  # by `batch`, whatever the budget
            if fixed or not out_of_memory(error):
                raise
        # What the failed pass held is let go of only here, where its traceback is gone.
        give_back()
        if budget < int(tokens.lengths.max()):
            raise UserError("out of memory even with one row at a time → use a smaller encoder, or the CPU")
        log.warning("out of memory with %d tokens at once: going on with %d", budget, budget // 2)
        budget //= 2


@torch.inference_mode()
def features(
    model: MultiTaskModel, tokens: Tokens, task: Task, batch: int, progress: Callable[[int], None] | None = None
) -> NDArray[np.float32]:
    """Return what the linear head of a task reads of each row, [rows, features]."""
    number = model.number(task.name)
    out = model.heads.tasks[number].get_submodule("out")
    assert isinstance(out, nn.Linear)

    def call(network: MultiTaskModel, piece: Batch | Packed) -> Tensor:
        return network.features(piece, number)

    return _read(model, call, tokens, number, batch, out.in_features, progress).cpu().numpy()


def _padded(tokens: Tokens, task: int, batch: int, device: torch.device, budget: int) -> Iterator[tuple[Tensor, Batch]]:
    """Give all rows in padded batches."""
    if device.type == "cuda" and len(tokens):
        batch = max(1, budget // int(tokens.lengths.max()))
    for piece in in_order(tokens, task, batch, sizes=sizes_on(device.type, tokens.max_length)):
        moved = piece.to(device)
        yield moved.row, moved


def _packed(
    tokens: Tokens, task: int, batch: int, device: torch.device, budget: int
) -> Iterator[tuple[Tensor, Packed]]:
    """Give all rows in packed batches of so many tokens; the tokens are brought to the device once."""
    resident = Resident([Stream(task, [tokens])], np.ones(1), tokens.pad, device)
    lengths = tokens.lengths
    # Rows have fewer than 65536 tokens, and numbers as small as that are sorted several times as fast.
    order = np.argsort((lengths.max(initial=0) - lengths).astype(np.uint16), kind="stable")
    ends = np.cumsum(lengths[order], dtype=np.int64)
    rows = torch.from_numpy(order).to(device)
    start = 0
    while start < len(order):
        done = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, done + budget, side="right")))
        own = rows[start:stop]
        yield own, resident.pack(own, room(int(ends[stop - 1]) - done), int(lengths[order[start]]))
        start = stop


def predict(model: Network, tokens: Tokens, task: Task, batch: int) -> Predictions:
    """Return one task's predictions."""
    return predict_all(model, tokens, [task], batch)[task.name]


def kept_at(folder: Path, place: str) -> Path:
    """Return the file that keeps the predictions of a split, "task/split", in a folder."""
    return folder / f"{place.replace('/', '.', 1)}.parquet"


def save_predictions(path: Path, data: TaskData, predictions: Predictions) -> None:
    """Keep the predictions of a split, with ids and gold, as Parquet; paired tests need them one by one."""
    table = data.table()
    columns: dict[str, pa.Array | pa.ChunkedArray] = {
        "id": table["id"],
        **({"group": table["group"]} if predictions.task.kind.grouped else {}),
        "gold": table["label"],
        "prediction": pa.array(predictions.answers),
        "logits": pa.array(list(predictions.logits), type=pa.list_(pa.float32())),
    }
    metadata = {b"task": json.dumps(predictions.task.to_dict()).encode()}
    path.parent.mkdir(parents=True, exist_ok=True)
    with hidden_file(path) as building:
        pq.write_table(pa.table(columns).replace_schema_metadata(metadata), building, compression="zstd")


def settled(gold: NDArray[np.float64], logits: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return gold where a model has logits; a teacher that does not answer a row gives NaN."""
    silent = np.isnan(logits).any(axis=1)
    return np.where(silent if gold.ndim == 1 else silent[:, None], np.nan, gold)


@dataclass(frozen=True)
class KeptRows:
    """What was kept of a split: a model's answers, beside what identifies and settles each row."""

    ids: NDArray[np.str_]
    gold: NDArray[np.float64]  # class numbers or scores, NaN where there is none
    groups: NDArray[np.int64] | None  # of a ranking: the number of each row's query
    predictions: Predictions

    @property
    def settled(self) -> NDArray[np.float64]:
        """Gold where the model has logits; a teacher that does not answer a row gives NaN."""
        return settled(self.gold, self.predictions.logits)

    def take(self, rows: NDArray[np.int64]) -> KeptRows:
        """Return some of the rows, in this order."""
        return KeptRows(
            self.ids[rows],
            self.gold[rows],
            None if self.groups is None else self.groups[rows],
            Predictions(self.predictions.task, self.predictions.logits[rows]),
        )


def read_kept(path: Path, task: Task) -> KeptRows:
    """Read what `save_predictions` kept, with the classes in the order of the task's labels."""
    table = _open(path, pq.read_table)
    logits = table["logits"].combine_chunks()
    values = np.asarray(logits.values, dtype=np.float32).reshape(len(logits), -1)
    own = _kept_task(path, table.schema)
    if task.kind.has_classes and set(own.labels) != set(task.labels):
        names = ", ".join(own.labels)
        raise UserError(f"{path}: its labels ({names}) are not those of {task.name} → evaluate it again")
    values = values[:, task.kind.order(own, task)]
    groups = None
    if task.kind.grouped:
        groups = np.asarray(table["group"].combine_chunks().dictionary_encode().indices, dtype=np.int64)
    return KeptRows(
        np.asarray(table["id"].to_pylist(), dtype=np.str_),
        _gold(table["gold"], task),
        groups,
        Predictions(task, values),
    )


def _open(path: Path, read: Callable[[Path], Any]) -> Any:
    """Read a file of kept predictions, or refuse a broken one."""
    refuse_damaged_file(path, "run the recipe again")
    try:
        return read(path)
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{path}: cannot be read ({type(error).__name__}) → run the recipe again") from None


def kept_task(path: Path, metrics: Sequence[str]) -> Task:
    """Return what has to be known of the task of kept predictions to score them by these metrics."""
    return replace(_kept_task(path, _open(path, pq.read_schema)), metrics=tuple(metrics))


def _kept_task(path: Path, schema: pa.Schema) -> Task:
    try:
        return Task.from_dict(json.loads(schema.metadata[b"task"]))
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{path}: kept by another version of understill → run the recipe again") from None


def _gold(column: pa.ChunkedArray, task: Task) -> NDArray[np.float64]:
    """Return class numbers or scores, NaN where there is none."""
    if (numbers := task.kind.gold_numbers(task)) > 1:
        rows = [[np.nan] * numbers if row is None else row for row in column.to_pylist()]
        return np.asarray(rows, dtype=np.float64).reshape(-1, numbers)
    if task.kind.named:
        column = pc.index_in(column, pa.array(task.labels))
    return np.asarray(pc.fill_null(column.cast(pa.float64()), float("nan")), dtype=np.float64)
