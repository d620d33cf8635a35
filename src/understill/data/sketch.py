"""Look at data files, guess what they are for, and sketch a recipe."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from understill.data.check import Fault, as_score, plain, wrong_and_right
from understill.data.read import File, columns_of, data_file, read_rows
from understill.errors import UserError
from understill.tasks import Kind

ColumnKind = Literal["text", "label", "score", "id", "other"]

#: Rows that are looked at.
SAMPLED = 2000
ID_NAME = re.compile(r"(^|[_\W])(id|idx|index|uuid|guid|key|nr|no)$|^(id|idx|index|uuid)([_\W]|$)|[a-z]Id$|^Unnamed")
SCORE_NAME = re.compile(r"score|rating|similarity|stars|grade|value", re.I)
LABEL_NAME = re.compile(r"label|class|category|target|gold|intent|topic|sentiment|queue|same|duplicate|tag", re.I)
SPLIT_NAME = re.compile(r"(?P<base>.*?)[-_. ]?(?P<word>train|training|dev|valid|validation|val|eval|test)", re.I)
ROLES = {"train": "train", "training": "train", "test": "test"}  # every other word of SPLIT_NAME means dev


@dataclass(frozen=True)
class ColumnSketch:
    """One column, as far as the first rows tell."""

    name: str
    kind: ColumnKind
    distinct: int
    examples: tuple[str, ...]
    length: float  # mean number of characters


@dataclass(frozen=True)
class FileSketch:
    """One file: its columns, and how many rows were looked at."""

    path: Path
    columns: tuple[ColumnSketch, ...]
    rows: int

    def of_kind(self, *kinds: ColumnKind) -> list[ColumnSketch]:
        """Return the columns that look like one of these kinds."""
        return [column for column in self.columns if column.kind in kinds]


@dataclass(frozen=True)
class TaskGuess:
    """What a group of files is probably meant for."""

    name: str
    files: dict[str, list[Path]]  # train, dev, test
    sketch: FileSketch  # of the first training file
    text: tuple[str, ...]
    label: ColumnSketch
    kind: Kind
    doubts: tuple[str, ...] = field(default=())


def inspect_file(path: Path) -> FileSketch:
    """Look at the first rows of a file and guess what its columns hold."""
    if not path.is_file():
        raise UserError(f"{path}: {'is a folder; name the files in it' if path.is_dir() else 'no such file'}")
    file = data_file(path)
    names = list(dict.fromkeys(columns_of(file)))
    rows = [row.values for row in itertools.islice(read_rows(file, names, names), SAMPLED) if not row.fault]
    columns = [_column(name, [_shown(row[place]) for row in rows]) for place, name in enumerate(names)]
    return FileSketch(path, tuple(columns), len(rows))


def _shown(value: object) -> str | None:
    try:
        return plain(value, "")
    except Fault:
        return None


def _column(name: str, values: Sequence[str | None]) -> ColumnSketch:
    there = [value for value in values if value is not None and value.strip()]
    distinct = list(dict.fromkeys(there))
    length = sum(map(len, there)) / max(len(there), 1)
    return ColumnSketch(name, _kind(name, there, len(distinct), length), len(distinct), tuple(distinct[:50]), length)


def _kind(name: str, values: Sequence[str], distinct: int, length: float) -> ColumnKind:
    """Guess what a column is for; its name decides only where the values leave it open."""
    count = len(values)
    if not count:
        return "other"
    if ID_NAME.search(name) and not any(" " in value.strip() for value in values[:100]):
        return "id"
    if _numbers(values):
        if any("." in value for value in values) or SCORE_NAME.search(name):
            return "score"
        if distinct <= 20 and distinct < max(count, 3):
            return "label"
        return "id" if distinct == count else "score"
    few = distinct < count and distinct <= max(2, min(300, 0.3 * count))
    if LABEL_NAME.search(name) and length < 40 and (few or count < 20):
        return "label"
    words = sum(len(value.split()) for value in values) / count
    if few and length < 40 and words < 4:  # the questions of a ranking come up again and again, too
        return "label"
    return "text" if words >= 1.5 or length >= 12 else "other"


def _numbers(values: Sequence[str]) -> bool:
    try:
        return all(as_score(value) is not None for value in values)
    except Fault:
        return False


# From files to tasks -------------------------------------------------------------------------------------------------


def guess_tasks(paths: Sequence[Path]) -> tuple[list[TaskGuess], list[str]]:
    """Group files into tasks, such as tickets.csv with tickets_dev.csv; return also why any was left out."""
    if not paths:
        raise UserError("name the files to look at, for instance: understill init tickets.csv tickets_dev.csv")
    groups: dict[tuple[Path, str], dict[str, list[Path]]] = {}
    for path in paths:
        base, role = _base_and_role(data_file(path))
        groups.setdefault((path.parent, base), {}).setdefault(role, []).append(path)
    guesses: list[TaskGuess] = []
    left_out = []
    for (folder, base), files in groups.items():
        found = _guess(_name(base or folder.resolve().name, [guess.name for guess in guesses]), files)
        if isinstance(found, str):
            left_out.append(found)
        else:
            guesses.append(found)
    if not guesses:
        raise UserError("; ".join(left_out) + " → a task needs a column of text and one of labels or scores")
    return guesses, left_out


def _base_and_role(file: File) -> tuple[str, str]:
    """Split a file's name into what it is about and which split it holds."""
    name = file.path.name
    for suffix in file.path.suffixes[-2 if file.codec else -1 :]:
        name = name.removesuffix(suffix) if name.endswith(suffix) else name.replace(suffix, "")
    match = SPLIT_NAME.fullmatch(name)
    if not match:
        return name, "train"
    return match["base"], ROLES.get(match["word"].lower(), "dev")


def _name(text: str, taken: Sequence[str]) -> str:
    """Make a task name out of a file's, unlike those that are taken."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", text).strip("_-") or "task"
    return next(n for n in itertools.chain([name], (f"{name}_{i}" for i in itertools.count(2))) if n not in taken)


def _guess(name: str, files: dict[str, list[Path]]) -> TaskGuess | str:
    doubts = []
    if "train" not in files:
        role = "dev" if "dev" in files else "test"
        files = {"train": files[role], **{other: paths for other, paths in files.items() if other != role}}
        doubts.append("no training file was given, so this one is used as such")
    sketch = inspect_file(files["train"][0])
    for paths in files.values():
        for path in paths:
            inspect_file(path)  # so that what cannot be read is said now
    shown = ", ".join(f"{column.name} ({column.kind})" for column in sketch.columns)
    texts, golds = sketch.of_kind("text"), sketch.of_kind("label", "score")
    if not texts or not golds:
        return f"{sketch.path}: no column looks like {'text' if not texts else 'a label or a score'}; columns: {shown}"
    label = max(golds, key=lambda column: (bool(LABEL_NAME.search(column.name)), bool(SCORE_NAME.search(column.name))))
    ranked = len(texts) == 2 and 2 * texts[0].distinct <= sketch.rows and wrong_and_right(label.examples) is not None
    if ranked:
        doubts.append("the same first text comes with several second ones, wrong and right, so these are ranked")
    elif len(texts) == 2:
        doubts.append("two columns look like text, so the task is about pairs; keep one if the other is something else")
    if len(texts) > 2:
        texts = [max(texts, key=lambda column: column.length)]
        doubts.append("several columns look like text; the longest was taken")
    kind: Kind = "ranking" if ranked else "regression" if label.kind == "score" else "classification"
    return TaskGuess(name, files, sketch, tuple(column.name for column in texts), label, kind, tuple(doubts))


# From tasks to YAML --------------------------------------------------------------------------------------------------


def sketch_recipe(paths: Sequence[Path]) -> str:
    """Return a commented recipe for these files, ready to be saved and looked over."""
    guesses, left_out = guess_tasks(paths)
    lines = [
        "# A first recipe, guessed from the first rows of your files. Look it over, then:",
        "#   understill check RECIPE    reads all rows and says what would run",
        "#   understill run RECIPE      trains and evaluates",
        f"name: {_yaml(guesses[0].name) if len(guesses) == 1 else 'my-tasks'}",
        "",
        "tasks:",
    ]
    for guess in guesses:
        lines += [f"  {line}".rstrip() for line in _task_lines(guess)]
    lines += [f"# left out: {_printable(reason, 300)}" for reason in left_out]
    lines += [
        "",
        "data:",
        "  on_bad_row: stop            # or skip: bad rows are then left out and listed in a file",
        "",
        "encoder: minilm               # a short name, a folder, or a name of the Hugging Face hub",
        "models: together              # one model for all tasks; each: one model for every task",
        "",
        "training:",
        "  epochs: 3",
        "  batch: 32",
        "  lr: 1e-4",
        "",
    ]
    return "\n".join(lines)


def _task_lines(guess: TaskGuess) -> list[str]:
    lines = [f"{_yaml(guess.name)}:"]
    lines += [f"  # {doubt}" for doubt in guess.doubts]
    for role in ("train", "dev", "test"):
        names = [_yaml(str(path)) for path in guess.files.get(role, ())]
        if names:
            lines.append(f"  {role}: {names[0] if len(names) == 1 else '[' + ', '.join(names) + ']'}")
        elif role == "dev":
            lines.append("  dev: 0.1                  # no dev file was given: this share of train is held out")
    file = _printable(guess.sketch.path.name, 100)
    lines.append(f"  # columns of {file}, from its first {guess.sketch.rows:,} rows:")
    for column in guess.sketch.columns:
        example = _printable(column.examples[0], 50) if column.examples else ""
        seen = f"{column.kind}, {column.distinct:,} different"
        lines.append(f'  #   {_printable(column.name, 40)}: {seen}, such as "{example}"')
    texts = [_yaml(name) for name in guess.text]
    lines.append(f"  text: {texts[0] if len(texts) == 1 else '[' + ', '.join(texts) + ']'}")
    lines.append(f"  label: {_yaml(guess.label.name)}{_labels_seen(guess)}")
    lines.append(f"  kind: {guess.kind:<20}  # {_other_kind(guess)}")
    return lines


def _labels_seen(guess: TaskGuess) -> str:
    if guess.kind == "regression":
        return ""
    shown = ", ".join(_printable(label, 30) for label in sorted(guess.label.examples)[:8])
    more = ", …" if guess.label.distinct > 8 else ""
    return f"  # {guess.label.distinct} seen: {shown}{more}"


def _other_kind(guess: TaskGuess) -> str:
    if guess.kind == "ranking":
        return "or classification, if each pair is judged by itself"
    other = "classification" if guess.kind == "regression" else "regression"
    return f"or {other}, if the column holds {'labels' if other == 'classification' else 'scores'}"


def _printable(text: str, length: int) -> str:
    """Return text that may stand in a YAML comment: one line, no control characters."""
    line = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
    return line if len(line) <= length else line[: length - 1] + "…"


def _yaml(text: str) -> str:
    """Write a string so that YAML reads the same string."""
    if re.fullmatch(r"[A-Za-z_][\w./-]*", text, re.ASCII) and text.lower() not in ("true", "false", "null"):
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(sign if sign.isprintable() else f"\\U{ord(sign):08x}" for sign in quoted)
