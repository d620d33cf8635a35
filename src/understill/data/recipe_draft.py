"""Recipe drafts: a commented recipe for data files, with the reason for each value that was inferred."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from understill.data.columns import NONE_NAMED, NamedColumns
from understill.data.infer import InferredTask, infer_tasks
from understill.data.ingest import FEW_ROWS
from understill.data.language import foreign, language_doubt
from understill.errors import UserError
from understill.recipe.experiment import TAKEN
from understill.tasks.cells import as_score, pointed

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

#: What a recipe that distils nothing begins with.
ENCODER = "minilm"
#: Where comments begin.
MARGIN = 34
#: What is said of minilm.
SMALL = "a small one, for English; or a folder, or a name of the Hugging Face hub"
#: Loads the tokeniser of an encoder.
LoadTokenizer = Callable[[str], "PreTrainedTokenizerFast"]


@dataclass(frozen=True)
class Draft:
    """A recipe that was inferred from files."""

    name: str  # of the run
    text: str
    guesses: tuple[str, ...]  # a line for each task, and for each doubt about it
    left_out: tuple[str, ...]  # why files are not used
    pairs: bool = False  # every task reads two texts


def draft_recipe(
    paths: Sequence[Path],
    teacher: str | None = None,
    load_tokenizer: LoadTokenizer | None = None,
    named: NamedColumns = NONE_NAMED,
) -> Draft:
    """Return a commented recipe for these files; with the encoder of a teacher, one that distils a small student.

    Given a way to load tokenisers, texts in a language that the encoder does not know are a doubt.
    """
    inferred, left_out = infer_tasks(paths, teacher is not None, named)
    if load_tokenizer:
        inferred = [_in_its_language(task, teacher or ENCODER, load_tokenizer) for task in inferred]
    reasons = tuple(_printable(reason, 300) for reason in left_out)
    name = inferred[0].name if len(inferred) == 1 and inferred[0].name not in TAKEN else "my-tasks"
    guesses = tuple(line for task in inferred for line in _guesses(task))
    pairs = all(len(task.text) == 2 for task in inferred)
    return Draft(name, _text(inferred, name, reasons, teacher), guesses, reasons, pairs)


def _in_its_language(task: InferredTask, encoder: str, load_tokenizer: LoadTokenizer) -> InferredTask:
    """Add a doubt where the encoder does not know the language; the tokeniser is loaded only where that may be so."""
    texts = [text for column in task.profile.columns if column.name in task.text for text in column.examples]
    if not foreign(texts):
        return task
    try:
        doubt = language_doubt(encoder, task.name, texts, load_tokenizer(encoder))
    except UserError:  # it is not installed, as `check` will say
        return task
    return replace(task, doubts=(*task.doubts, doubt)) if doubt else task


def _guesses(task: InferredTask) -> list[str]:
    """Say in a line what a task was taken for, and then what is doubtful about it."""
    label = f"label: {_printable(task.label.name, 40)} ({_why_label(task)})"
    texts = " and ".join(_printable(name, 40) for name in task.text)
    return [
        f"{task.name}: {task.kind}; text: {texts}; {label}",
        *(
            f"  {_printable(path.name, 80)}: read without labels; the teacher labels its texts for the student"
            for path in task.files.get("unlabelled", ())
        ),
        *(f"  {_printable(each, 300)}" for each in task.doubts),
    ]


def _text(inferred: Sequence[InferredTask], name: str, left_out: Sequence[str], teacher: str | None) -> str:
    lines = [
        "# A first recipe, inferred from the first rows of your files. Look it over, then:",
        "#   understill check RECIPE    reads all rows and says what would run",
        "#   understill run RECIPE      trains and evaluates",
        _line(f"name: {_yaml(name)}", "the name of the run folder"),
        "",
        "tasks:",
    ]
    for number, task in enumerate(inferred):
        shown = any(task.profile is other.profile for other in inferred[:number])
        lines += [f"  {line}".rstrip() for line in _task_lines(task, not shown)]
    lines += [f"# left out: {reason}" for reason in left_out]
    on_bad_row = _line("  on_bad_row: stop", "or skip: bad rows are then left out and listed in a file")
    if any(task.label.blank for task in inferred):
        on_bad_row = _line("  on_bad_row: skip", "rows without a label are left out and listed in a file; or stop")
    lines += ["", "data:", on_bad_row, ""]
    lines += _plain_model() if teacher is None else _distilled(teacher)
    lines += [
        "# training: left out, so learning rates, steps and heads are chosen for these rows;",
        "# `understill check` shows the candidates",
        "",
    ]
    return "\n".join(lines)


def _plain_model() -> list[str]:
    return [
        _line(f"encoder: {ENCODER}", SMALL),
        _line("models: together", "one model for all tasks; each: one model for every task"),
    ]


def _distilled(teacher: str) -> list[str]:
    return [
        "teachers:",
        _line("  - name: teacher", "trained on your labels first; its answers teach the student"),
        _line(f"    encoder: {_yaml(teacher)}", SMALL if teacher == "minilm" else "as you named it"),
        _line("    models: together", "one teacher for all tasks, so that the student can take its layers"),
        "",
        "student:",
        _line("  encoder: {name: teacher, layers: 3}", "begins as three of the teacher's layers; fewer are faster"),
        _line("models: together", "one student for all tasks; each: one for every task"),
    ]


# Tasks ----------------------------------------------------------------------------------------------------------------


def _task_lines(task: InferredTask, columns: bool) -> list[str]:
    lines = [f"{_yaml(task.name)}:"]
    lines += [f"  # {_printable(doubt, 300)}" for doubt in task.doubts]
    lines += _file_lines(task)
    lines += _column_lines(task) if columns else []
    lines.append(_line(f"  text: {_list([_yaml(name) for name in task.text])}", _why_text(task)))
    lines.append(_line(f"  label: {_yaml(task.label.name)}", _why_label(task)))
    lines.append(_line(f"  kind: {task.kind}", task.kind.why))
    if "decimal" in task.kind.settings and task.label.decimal == ",":
        shown = next(value for value in task.label.examples if "," in value)
        lines.append(_line('  decimal: ","', f"scores such as {_printable(shown, 20)}, and none with a point"))
    return lines


def _column_lines(task: InferredTask) -> list[str]:
    """Say what was seen in each column of the training file."""
    file = _printable(task.profile.path.name, 100)
    lines = [f"  # columns of {file}, from its first {task.profile.rows:,} rows:"]
    for column in task.profile.columns:
        example = _printable(column.examples[0], 50) if column.examples else ""
        seen = f"{column.role}, {column.distinct:,} different"
        lines.append(f'  #   {_printable(column.name, 40)}: {seen}, such as "{example}"')
    return lines


def _file_lines(task: InferredTask) -> list[str]:
    """Name the files, and how they are to be read where that is not the usual way."""
    why = {
        "train": "the file without another role" if task.files.get("dev") or task.files.get("test") else "your file",
        "dev": "by its name; scored while training",
        "test": "by its name; scored only when you ask",
        "unlabelled": "texts without labels, which the teacher labels",
    }
    lines = []
    for role, reason in why.items():
        names = [_yaml(str(path)) for path in task.files.get(role, ())]
        if names:
            lines.append(_line(f"  {role}: {_list(names)}", reason))
        elif role == "dev" and task.profile.rows < FEW_ROWS:
            lines.append(_line("  # dev: dev.csv", "so few rows are all needed to train: give a file to know a score"))
        elif role == "dev":
            lines.append(_line("  dev: 0.1", "no dev file was given: this share of train is held out"))
    if task.encoding:
        lines.append(_line(f"  encoding: {task.encoding}", "its bytes are not UTF-8, and fit this; see the examples"))
    if task.separator:
        why_so = "as the file's first line says" if task.separator_said else "as the first rows fit the header"
        lines.append(_line(f"  separator: {_yaml(task.separator)}", why_so))
    return lines


def _why_text(task: InferredTask) -> str:
    columns = [column for column in task.profile.columns if column.name in task.text]
    why = "as you named it" if columns[0].given else "reads like text"
    return f"{why}: {max(column.length for column in columns):.0f} characters on average"


def _why_label(task: InferredTask) -> str:
    if not task.kind.named:
        scores = [as_score(pointed(value, task.label.decimal)) or 0.0 for value in task.label.examples]
        return f"numbers, such as {min(scores):g} and {max(scores):g}"
    shown = ", ".join(_printable(label, 30) for label in sorted(task.label.examples)[:8])
    more = ", …" if task.label.distinct > 8 else ""
    return f"{task.label.distinct} seen: {shown}{more}"


# YAML -----------------------------------------------------------------------------------------------------------------


def _line(text: str, comment: str) -> str:
    return f"{text:<{MARGIN}}  # {comment}"


def _list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else "[" + ", ".join(names) + "]"


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
