"""The battery of first_run.py: real tasks, kept as small Parquet files, and those that a user puts beside them.

The name begins with a line so that `make bench` does not take it for a benchmark. Nothing of this data is part of the
project: GLUE is a folder that the user has, the descriptions of packages come from Debian's package index. first_run.py
says what a task of one's own looks like.
"""

from __future__ import annotations

import json
import random
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

#: One text or two, then the label: a name, or a score.
Row = tuple[Any, ...]
#: A pool to draw training rows from, and the rows that are scored.
Split = tuple[list[Row], list[Row]]

POOL, TEST = 8000, 1000
METRICS = ("accuracy", "matthews", "correlation")

#: Sections of Debian whose descriptions repeat those of other packages.
REDUNDANT = {"libs", "libdevel", "doc", "debug", "oldlibs", "metapackages", "tasks", "introspection", "localization"}


@dataclass(frozen=True)
class Source:
    """Where one task comes from and how its rows are read."""

    read: Callable[[Path], Split]  # from the folder of the source
    origin: str  # "glue" or "apt"
    about: str
    pair: bool = False
    kind: str = "classes"  # or "score"
    metric: str = "accuracy"  # one of METRICS
    pool: int = POOL


@dataclass(frozen=True)
class Task:
    """A prepared task: what it is, the pool to draw from and the rows to score."""

    name: str
    meta: dict[str, Any]
    pool: list[Row]
    test: list[Row]


# Readers -------------------------------------------------------------------------------------------------------------


def glue(folder: str, labels: Sequence[str] | None = None, dev: str = "dev") -> Callable[[Path], Split]:
    """Read a GLUE task: official train as the pool, official dev as the test rows."""

    def rows(path: Path) -> list[Row]:
        table = pq.read_table(path)
        texts = [table[name].to_pylist() for name in ("sentence1", "sentence2") if name in table.column_names]
        gold = [float(value) if labels is None else labels[int(value)] for value in table["label"].to_pylist()]
        return list(zip(*texts, gold, strict=True))

    return lambda root: (rows(root / folder / "train.parquet"), rows(root / folder / f"{dev}.parquet"))


def debian(folder: Path) -> Split:
    """Read the sections of Debian's packages, by their one-line descriptions."""
    by_section: dict[str, dict[str, str]] = defaultdict(dict)
    for entry in (folder / "packages.txt").read_text(encoding="utf-8").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in entry.splitlines() if ": " in line and line[0] != " ")
        section = fields.get("Section", "libs").split("/")[-1]
        if section not in REDUNDANT and "Description" in fields:
            by_section[section].setdefault(fields["Description"].casefold(), fields["Description"])
    rows = []
    for section, texts in sorted(by_section.items()):
        if len(texts) >= 60:
            rows += [(text, section) for text in sample(sorted(texts.values()), 250)]
    return set_aside(rows)


def sample(rows: Sequence[Any], count: int) -> list[Any]:
    """Choose at most so many rows, the same ones every time, in a random order."""
    return random.Random(0).sample(list(rows), min(count, len(rows)))


def set_aside(rows: Iterable[Row]) -> Split:
    """Set rows aside for the test, where a task has no official split: 1,000, or a quarter of few."""
    shuffled = sample(unique(rows), 10**9)
    count = min(TEST, len(shuffled) // 4)
    return shuffled[count:], shuffled[:count]


def unique(rows: Iterable[Row], seen: set[Any] | None = None) -> list[Row]:
    """Return rows whose texts were not there before."""
    seen = set() if seen is None else seen
    kept = []
    for row in rows:
        key = tuple(text.casefold().strip() for text in row[:-1])
        if all(key) and key not in seen:
            seen.add(key)
            kept.append(row)
    return kept


# The tasks -----------------------------------------------------------------------------------------------------------

ENTAILS = ("entailment", "not_entailment")
PARAPHRASE = ("different", "paraphrase")

SOURCES = {
    "sst2": Source(glue("SST-2", ("negative", "positive")), "glue", "films, good or bad", pool=20_000),
    "cola": Source(glue("CoLA", ("unacceptable", "acceptable")), "glue", "grammar", metric="matthews"),
    "debian": Source(debian, "apt", "sections of Debian packages"),
    "mrpc": Source(glue("MRPC", PARAPHRASE), "glue", "paraphrases in news", pair=True),
    "qqp": Source(glue("QQP", PARAPHRASE), "glue", "duplicate questions", pair=True),
    "rte": Source(glue("RTE", ENTAILS), "glue", "inference, few rows", pair=True),
    "qnli": Source(glue("QNLI", ENTAILS), "glue", "does it answer", pair=True),
    "mnli": Source(
        glue("MNLI", ("entailment", "neutral", "contradiction"), "dev_matched"), "glue", "inference", pair=True
    ),
    "stsb": Source(glue("STS-B"), "glue", "similarity, 0 to 5", pair=True, kind="score", metric="correlation"),
}


# Preparing and loading -----------------------------------------------------------------------------------------------


def known(data: Path) -> list[str]:
    """Return the names of all tasks: those of the battery, and those that somebody has put into the folder."""
    return [*SOURCES, *sorted({path.parent.name for path in data.glob("*/meta.json")} - set(SOURCES))]


def prepare(name: str, data: Path, glue_folder: Path | None) -> None:
    """Make the Parquet files of a task, unless they are there."""
    if (data / name / "meta.json").is_file():
        return
    source = SOURCES[name]
    pool, test = source.read(folder_of(source.origin, data, glue_folder))
    test = sample(unique(test), TEST)
    pool = sample(unique(pool, {tuple(text.casefold().strip() for text in row[:-1]) for row in test}), source.pool)
    # A class that the pool does not have cannot be learnt from it.
    classes = {row[-1] for row in pool}
    test = [row for row in test if source.kind == "score" or row[-1] in classes]
    meta = {"kind": source.kind, "pair": source.pair, "metric": source.metric, "about": source.about}
    save(Task(name, meta, pool, test), data)


def folder_of(origin: str, data: Path, glue_folder: Path | None) -> Path:
    """Return the folder of a source; Debian's package index is written there first."""
    if origin == "glue":
        if glue_folder is None:
            raise FileNotFoundError("GLUE is not given; add --glue DIR")
        return glue_folder
    folder = data / "sources" / origin
    if not (folder / "packages.txt").is_file():
        result = subprocess.run(("apt-cache", "dumpavail"), capture_output=True, encoding="utf-8", timeout=300)
        if result.returncode or not result.stdout:
            reason = (result.stderr.strip().splitlines() or ["it knows no packages"])[-1]
            raise OSError(f"apt-cache failed: {reason} → apt-get update")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "packages.txt").write_text(result.stdout, encoding="utf-8")
    return folder


def save(task: Task, data: Path) -> None:
    """Write a task: its rows as Parquet, then meta.json, which says that it is whole."""
    folder = data / task.name
    folder.mkdir(parents=True, exist_ok=True)
    for split, rows in (("train", task.pool), ("test", task.test)):
        columns = map(list, zip(*rows, strict=True))
        table = pa.table(dict(zip(columns_of(task.meta), columns, strict=True)))
        pq.write_table(table, folder / f"{split}.parquet", compression="zstd", compression_level=15)
    (folder / "meta.json").write_text(json.dumps(task.meta, indent=1), encoding="utf-8")


def load(name: str, data: Path) -> Task:
    """Read a prepared task; classes are text and scores numbers, however they are kept."""
    folder = data / name
    meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
    columns = columns_of(meta)
    as_label = {"classes": str, "score": float}[meta["kind"]]
    if meta["metric"] not in METRICS:
        raise ValueError(f'metric "{meta["metric"]}" → write {", ".join(METRICS)}')
    splits: list[list[Row]] = []
    for split in ("train", "test"):
        table = pq.read_table(folder / f"{split}.parquet")
        *texts, labels = (table[column].to_pylist() for column in columns)
        splits.append(list(zip(*texts, map(as_label, labels), strict=True)))
    return Task(name, meta, *splits)


def columns_of(meta: dict[str, Any]) -> tuple[str, ...]:
    """Return the columns of a task's files."""
    return ("text1", "text2", "label") if meta["pair"] else ("text", "label")
