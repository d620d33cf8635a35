"""TaskData: one split of a task as a checked, memory-mapped Arrow file with stable ids."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from understill.data.check import id_maker, text_key
from understill.tasks import Task

#: The files of a split's folder: its rows, what is known of them, and the bad rows that were left out.
ROWS, FACTS, REJECTS = "data.arrow", "data.json", "rejects.jsonl"
BATCH = 8192
#: Batches are also cut at this many characters, far below the 2 GiB an Arrow string column can hold.
BATCH_CHARACTERS = 1 << 26


@dataclass(frozen=True)
class TaskData:
    """One split of one task, ready to be tokenised."""

    task: Task
    split: str
    path: Path  # Arrow IPC file with the columns of `schema`
    fingerprint: str
    rows: int
    rejected: int = 0  # bad rows that were left out

    @property
    def place(self) -> str:
        """What scores and messages call it, such as `mnli/dev`."""
        return f"{self.task.name}/{self.split}"

    def table(self) -> Any:
        """Return the whole split, memory-mapped: what is not touched takes no memory."""
        with pa.memory_map(str(self.path)) as source:
            return pa.ipc.open_file(source).read_all()

    def batches(self, size: int = BATCH) -> Iterator[Any]:
        """Yield record batches of at most so many rows, in order."""
        with pa.memory_map(str(self.path)) as source:
            reader = pa.ipc.open_file(source)
            for index in range(reader.num_record_batches):
                batch = reader.get_batch(index)
                for start in range(0, batch.num_rows, size):
                    yield batch.slice(start, size)


def blocks(path: Path, most_bytes: int, most_rows: int = BATCH, without: Collection[str] = ()) -> Iterator[Any]:
    """Read the rows of a file in blocks of at most so many rows and bytes; a giant row is a block of its own."""
    # Read, not mapped: pages of a mapped file count as resident for as long as memory is not short.
    with pa.OSFile(str(path)) as file:
        names = pa.ipc.open_file(file).schema.names
        fields = [place for place, name in enumerate(names) if name not in without]
        reader = pa.ipc.open_file(file, options=pa.ipc.IpcReadOptions(included_fields=fields))
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            waiting = [batch.slice(start, most_rows) for start in range(0, batch.num_rows, most_rows)][::-1]
            while waiting:
                block = waiting.pop()
                if block.num_rows > 1 and block.nbytes > most_bytes:
                    half = block.num_rows // 2
                    waiting += [block.slice(half), block.slice(0, half)]
                else:
                    yield block


def schema(task: Task) -> Any:
    """Return the columns: id, text1, text2 of pairs, group of ranking tasks, and label, null where there is none."""
    strings = ["id", *text_columns(task), *(["group"] if task.kind.grouped else [])]
    return pa.schema([*((name, pa.string()) for name in strings), ("label", gold_type(task))])


def text_columns(task: Task) -> list[str]:
    """Name the columns of a task's texts."""
    return ["text1", "text2"][: len(task.text)]


def gold_type(task: Task) -> Any:
    """Return how gold is kept: the name of a label, a number, or several."""
    if task.kind.named:
        return pa.string()
    return pa.float64() if task.kind.gold_numbers(task) == 1 else pa.list_(pa.float64(), task.kind.gold_numbers(task))


class Writer:
    """Writes checked rows to an Arrow file, batch by batch."""

    def __init__(self, path: Path, task: Task) -> None:
        self.rows = 0
        self._schema = schema(task)
        self._file = pa.OSFile(str(path), "wb")
        self._out = pa.ipc.new_file(self._file, self._schema)
        self._waiting: list[tuple[Any, ...]] = []
        self._characters = 0

    def add(self, name: str, texts: list[str], gold: Any) -> None:
        """Add one row; the group of a ranking task follows its texts."""
        self._waiting.append((name, *texts, gold))
        self.rows += 1
        for text in texts:
            self._characters += len(text)
        if len(self._waiting) >= BATCH or self._characters >= BATCH_CHARACTERS:
            self._flush()

    def add_batch(self, batch: Any) -> None:
        """Add rows that already have this form."""
        self._flush()
        self.rows += batch.num_rows
        self._out.write_batch(batch)

    def _flush(self) -> None:
        if self._waiting:
            columns = zip(zip(*self._waiting, strict=True), self._schema, strict=True)
            arrays = [pa.array(values, part.type) for values, part in columns]
            self._out.write_batch(pa.record_batch(arrays, schema=self._schema))
            self._waiting = []
            self._characters = 0

    def close(self) -> None:
        """Write what is left and the footer."""
        self._flush()
        self._out.close()
        self._file.close()


def id_keys(ids: Any) -> NDArray[np.uint64]:
    """Return the last 64 bits of each id of an Arrow string column, as numbers."""
    parts = [ids] if isinstance(ids, pa.Array) else ids.chunks
    keys = [np.zeros(0, np.uint64)]
    for part in parts:
        if len(part):
            text = np.frombuffer(part.buffers()[2], np.uint8, len(part) * 24, part.offset * 24).reshape(-1, 24)[:, 8:]
            nibbles = np.where(text > 57, text - 87, text - 48).astype(np.uint8)  # "a" is 97, "0" is 48
            octets = (nibbles[:, 0::2] << 4) | nibbles[:, 1::2]
            keys.append(np.ascontiguousarray(octets).view(">u8").ravel().astype(np.uint64))
    return np.concatenate(keys)


def unit_keys(rows: Any, task: Task) -> NDArray[np.uint64]:
    """Return a number for what each row of a batch must stay together with: rows of its id, or of its first text."""
    if not task.kind.grouped:
        return id_keys(rows.column("id"))
    texts, name = pc.dictionary_encode(rows.column("text1")), id_maker(task.name)
    ids = [name([text.encode()]) for text in texts.dictionary.to_pylist()]
    keys: NDArray[np.uint64] = id_keys(pa.array(ids, pa.string()))[np.asarray(texts.indices)]
    return keys


def text_keys(rows: Any, task: Task) -> NDArray[np.uint64]:
    """Return a number for the texts of each row of a batch, in any order; of a ranking, for its first text."""
    columns = text_columns(task)[:1] if task.kind.grouped else text_columns(task)
    texts = zip(*(rows.column(name).to_pylist() for name in columns), strict=True)
    return np.array([int(text_key([text.encode() for text in each])[8:], 16) for each in texts], np.uint64)


def source_rows(data: TaskData) -> NDArray[np.int64]:
    """Return the place of the row that each row was made of: its own, save in an augmented split."""
    places = np.arange(data.rows)
    if data.split != "augmented":
        return places
    table = data.table()
    own = pc.equal(table.column("id"), table.column("source")).to_numpy()
    return np.maximum.accumulate(np.where(own, places, 0))  # what is made of a row stands after it


def held_out(name: str, share: float) -> bool:
    """Say whether what has this key belongs to the held-out part; the same text always falls on the same side."""
    return int(name[:8], 16) < share * 2**32


class Sample:
    """A fair sample of n rows out of a stream: those whose keys are lowest, in memory that grows with n alone.

    Of a ranking task it has as many first texts, with all their rows, as n rows take.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._keys = array("Q")
        self._bar = 2**64

    def wants(self, name: str) -> bool:
        """Say whether what has this key may still be chosen; `choose` drops some that are wanted early."""
        key = int(name[8:], 16)
        if key > self._bar:
            return False
        self._keys.append(key)
        if len(self._keys) >= 2 * self.count + BATCH:
            lowest = np.partition(np.frombuffer(self._keys, np.uint64), self.count - 1)[: self.count]
            self._keys = array("Q", lowest.tobytes())
            self._bar = int(lowest.max())
        return True

    def choose(self, data: Path, out: Path, task: Task, by_text: bool = False) -> int:
        """Copy the chosen rows of the wanted ones, in their order, and return how many there are."""
        with pa.memory_map(str(data)) as source:
            reader = pa.ipc.open_file(source)
            batches = [reader.get_batch(index) for index in range(reader.num_record_batches)]
            keys_of = text_keys if by_text else unit_keys
            keys = np.concatenate([np.zeros(0, np.uint64), *(keys_of(batch, task) for batch in batches)])
            keep = np.zeros(len(keys), bool)
            keep[np.argsort(keys, kind="stable")[: self.count]] = True
            if task.kind.grouped:
                keep = keys <= keys[keep].max(initial=0)  # the last text's rows are not cut
            writer = Writer(out, task)
            done = 0
            for batch in batches:
                writer.add_batch(batch.filter(pa.array(keep[done : done + batch.num_rows])))
                done += batch.num_rows
            writer.close()
        return writer.rows
