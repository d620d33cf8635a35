"""GLUE on disk: find a task's splits, as Parquet or in the official TSV layout, and read them."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from understill.data.files import BadFile, File, Row, data_file
from understill.data.read import columns_of, read_rows, read_unquoted
from understill.data.source import Part, Source, digest_file, without_gold
from understill.errors import UserError, listed
from understill.tasks import GLUE, Task
from understill.tasks.cells import Fault, as_label, as_score

log = logging.getLogger(__name__)

#: Folder names in use beside those of the table, compared without case and signs.
FOLDERS = {"stsb": ("stsbenchmark",), "ax": ("diagnostic", "diagnostics", "mnli")}
#: File names of each split, the first that is there wins; MNLI's matched sets are its dev and test.
FILES = {
    "train": ("train",),
    "dev": ("dev", "dev_matched", "validation", "validation_matched"),
    "dev_mismatched": ("dev_mismatched", "validation_mismatched"),
    "test": ("test", "test_matched"),
    "test_mismatched": ("test_mismatched",),
}
#: The diagnostic set is scored, never trained on: its only file is its dev split. The full one has labels.
DIAGNOSTIC = ("diagnostic-full", "diagnostic", "dev", "test")

#: Names of the text columns, in the official files and in later exports, as (first, second).
TEXTS = (
    ("question1", "question2"),
    ("#1 string", "#2 string"),
    ("premise", "hypothesis"),
    ("sentence1", "sentence2"),
    ("question", "sentence"),
)
LABELS = ("gold_label", "label", "is_duplicate", "quality", "score")
#: Names of the column that numbers the rows of a test file.
INDEX = ("index", "idx", "id")
#: CoLA's train and dev files have no header.
COLA = ("source", "label", "star", "sentence")


class Count(NamedTuple):
    """How many rows a split has here, and how many the official data has."""

    task: str
    split: str
    rows: int
    official: int


def find(folder: Path, name: str) -> dict[str, Source]:
    """Return the splits of a GLUE task that a folder holds."""
    task = GLUE[name].task
    return {split: _source(files, task) for split, files in find_files(folder, name).items()}


def from_texts(files: Sequence[File], task: Task) -> Source:
    """Take the texts of files alone, by any of the names their columns have in GLUE; no label is read."""
    return _source(files, replace(task, label=None))


def find_files(folder: Path, name: str) -> dict[str, list[File]]:
    """Return the files of each split that are there; in one folder Parquet goes before TSV."""
    wanted = {"dev": DIAGNOSTIC} if GLUE[name].task.head != name else FILES
    splits: dict[str, list[File]] = {}
    for place in _folders(folder, name):
        # The diagnostic set may lie in MNLI's folder, whose other files are not its own.
        own = _key(place.name) != "mnli" or name == "mnli"
        for split, stems in wanted.items():
            for stem in stems if own else DIAGNOSTIC[:2]:
                files = _files(place, stem)
                if files and split not in splits:
                    splits[split] = files
    return splits


def _key(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _folders(folder: Path, name: str) -> list[Path]:
    """Return the folders that may hold a task, the likeliest first."""
    keys = [_key(GLUE[name].folder), *FOLDERS.get(name, ())]
    there = [path for path in sorted(folder.iterdir()) if path.is_dir() and _key(path.name) in keys]
    return sorted(there, key=lambda path: keys.index(_key(path.name)))


def _files(folder: Path, stem: str) -> list[File]:
    """Return the file of a split, or all shards of it."""
    pattern = re.compile(rf"{re.escape(stem)}(-\d+-of-\d+)?\.(parquet|tsv)(\.gz|\.zst)?", re.IGNORECASE)
    names = sorted(path.name for path in folder.iterdir() if pattern.fullmatch(path.name))
    parquet = [name for name in names if name.lower().endswith(".parquet")]
    return [data_file(folder / name) for name in parquet or names[:1]]


def _source(files: Sequence[File], task: Task) -> Source:
    def identity() -> Any:
        return {"glue": [[file.format, digest_file(file.path)] for file in files]}

    def parts() -> Iterator[Part]:
        for file in files:
            yield file.place, _rows(file, task)

    return Source(identity, parts)


def _rows(file: File, task: Task) -> Iterator[Row]:
    """Yield (text, [text,] gold) with labels by name."""
    rows = _tsv(file, task) if file.format == "tsv" else _table(file, task)
    empty = True
    for row in rows:
        empty = False
        yield row if row.fault else Row(row.number, (*row.values[:-1], _gold(row.values[-1], task)))
    if empty:
        raise BadFile(str(file.path), "the file has no rows", "fetch the data again")


def _gold(value: Any, task: Task) -> Any:
    """Turn ids into label names; -1 stands for none."""
    try:
        if not task.kind.named:
            return None if as_score(value) == -1 else value
        label = as_label(value)
    except Fault:
        return value
    if label is None or label == "-1":
        return None
    return {str(number): name for number, name in enumerate(task.labels)}.get(label, label)


def _columns(file: File, header: Sequence[str], task: Task) -> tuple[list[int], int | None]:
    """Find the text columns and the label in a header; the label may be absent, or not wanted."""
    names = [name.strip().lower() for name in header]
    texts: list[int] = []
    if task.pair:
        for pair in TEXTS:
            if all(name in names for name in pair):
                texts = [names.index(name) for name in pair]
                break
    else:
        texts += [names.index(name) for name in ("sentence", "sentence1") if name in names][:1]
    if not texts:
        what = f"not a file of {task.name}; its columns are: {', '.join(header[:20])}"
        raise BadFile(str(file.path), what, f"fetch the data again, or call its texts {listed(task.text, 'and')}")
    gold = [names.index(name) for name in LABELS if name in names and task.label]
    return texts, gold[0] if gold else None


def _table(file: File, task: Task) -> Iterator[Row]:
    header = columns_of(file)
    texts, gold = _columns(file, header, task)
    names = [header[place] for place in texts]
    yield from without_gold(read_rows(file, names)) if gold is None else read_rows(file, [*names, header[gold]])


def _tsv(file: File, task: Task) -> Iterator[Row]:
    lines = read_unquoted(file, _cola_header(file))
    _, header = next(lines, (0, []))
    texts, gold = _columns(file, header, task)
    last = max(*texts, -1 if gold is None else gold)
    broken = 0
    for number, cells in lines:
        if len(cells) == len(header) or (len(cells) > last and len(cells) > len(header)):
            yield Row(number, (*[cells[place] for place in texts], None if gold is None else cells[gold]))
        elif task.name == "qqp":
            # The official file breaks some questions over two lines; the official count leaves them out.
            broken += 1
        else:
            yield Row(number, tuple(cells), f"{len(cells)} columns where {len(header)} are due")
    if broken:
        log.warning("%s: %s broken lines left out, as the official count does", file.path, f"{broken:,}")


def _cola_header(file: File) -> Sequence[str] | None:
    """Return CoLA's column names where a file begins as its files do, which have none."""
    _, first = next(read_unquoted(file), (0, []))
    return COLA if len(first) == len(COLA) and first[1] in ("0", "1") else None


def numbered_in_order(files: Sequence[File]) -> bool:
    """Say whether rows that carry a number are numbered 0, 1, 2 and so on, as the answers to them will be."""
    numbers = (number for file in files for number in _numbers(file))
    return all(str(number).strip() == str(place) for place, number in enumerate(numbers))


def _numbers(file: File) -> Iterator[Any]:
    """Yield the number that each row carries; nothing where there is no column of them."""
    if file.format != "tsv":
        names = {name.strip().lower(): name for name in columns_of(file)}
        for column in [names[name] for name in INDEX if name in names][:1]:
            yield from (row.values[0] for row in read_rows(file, [column]))
        return
    lines = read_unquoted(file)
    header = [name.strip().lower() for name in next(lines, (0, []))[1]]
    for place in [header.index(name) for name in INDEX if name in header][:1]:
        yield from (cells[place] for _, cells in lines if len(cells) > place)


def verify_counts(folder: Path) -> list[Count]:
    """Compare the rows of every split with the official numbers; 0 stands for a split that is absent."""
    if not folder.is_dir():
        raise UserError(f"{folder}: there is no such folder; name the one that holds CoLA, SST-2, MNLI and so on")
    counts = []
    for name, entry in GLUE.items():
        there = find_files(folder, name)
        for split, official in entry.counts.items():
            rows = sum(_count(file, entry.task) for file in there.get(split, ()))
            counts.append(Count(name, split, rows, official))
    return counts


def _count(file: File, task: Task) -> int:
    return sum(1 for row in _rows(file, task) if not row.fault)
