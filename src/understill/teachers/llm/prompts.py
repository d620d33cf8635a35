"""Prompts: what a language model is asked about a row, made of the task."""

from __future__ import annotations

import itertools
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from understill.data.taskdata import TaskData, text_columns
from understill.errors import UserError, listed
from understill.recipe.schema import LlmServer
from understill.tasks import Task

#: The text comes last, so that servers keep the rest between requests.
TEMPLATE = """{question}

{options}

{instruction}

{examples}{text}
Answer:"""
#: What is asked for where the first answer could not be read.
AGAIN = "Answer with exactly one of these and nothing else: {names}."
#: Texts that say nothing: what is answered to them is due to the prompt alone.
EMPTY = ("", "N/A", "[MASK]")


@dataclass(frozen=True)
class Prompt:
    """How rows of a task are asked about."""

    task: Task
    template: str
    question: str
    names: tuple[str, ...]  # what stands for each choice: letters, numbers or the choices themselves
    choices: tuple[str, ...]
    descriptions: Mapping[str, str]
    examples: tuple[tuple[tuple[str, ...], int], ...] = ()  # texts, and the place of the right choice

    def __call__(self, texts: Sequence[str], again: bool = False) -> str:
        """Return the prompt of a row; `again` where the first answer could not be read."""
        what = "letter" if self.names[0] == "A" else "number" if self.names[0].isdigit() else "option"
        rule = AGAIN.format(names=", ".join(self.names)) if again else f"Answer with the {what} only."
        shown = "".join(f"{self._row(each)}\nAnswer: {self.names[place]}\n\n" for each, place in self.examples)
        parts = {
            "question": self.question,
            "options": self._options(),
            "instruction": rule,
            "examples": shown,
            "text": self._row(texts),
        }
        # In one pass, and not by str.format: other braces, in a template or in a text, are only braces.
        return re.sub(rf"{{({'|'.join(parts)})}}", lambda match: parts[match[1]], self.template).strip()

    def _options(self) -> str:
        lines = []
        for name, choice in zip(self.names, self.choices, strict=True):
            meant = f": {self.descriptions[choice]}" if self.descriptions.get(choice) else ""
            lines.append(f"{name}{meant}" if name == choice else f"{name}. {choice}{meant}")
        return "\n".join(lines)

    def _row(self, texts: Sequence[str]) -> str:
        return "\n".join(f"{column}: {text}" for column, text in zip(self.task.text, texts, strict=True))

    @property
    def decisive(self) -> int:
        """How many tokens tell the names apart for certain: the characters that two of them share, and one more."""
        folded = sorted(name.casefold() for name in self.names)
        return 1 + max(_shared(one, two) for one, two in itertools.pairwise(folded))

    @property
    def longest(self) -> int:
        """About how many tokens a whole name takes, at most."""
        return max(map(len, self.names)) // 2 + 2


def _shared(one: str, two: str) -> int:
    """Count the characters that two names begin with alike."""
    alike = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, two, strict=False))
    return sum(1 for _ in alike)


def make_prompt(
    task: Task,
    settings: LlmServer,
    template: str,
    question: str | None,
    descriptions: Mapping[str, str],
    train: TaskData,
) -> Prompt:
    """Make the prompt of a task, with examples drawn from its training rows."""
    choices = task.kind.choices(task)
    if "{text}" not in template:
        raise UserError("the template of a prompt has no {text} → write {text} where the row's text belongs")
    if task.kind.from_choices(task, np.zeros((1, len(choices)))).shape[1] != task.outputs:
        raise UserError(
            f"task {task.name}: a language model cannot be asked for the kind {task.kind} → leave it out of tasks"
        )
    names = _names(choices, settings.options)
    examples = _examples(task, train, settings.examples, settings.seed) if settings.examples else ()
    asked = question or task.kind.question(task)
    return Prompt(task, template, asked, names, choices, descriptions, examples)


def _names(choices: Sequence[str], options: str) -> tuple[str, ...]:
    """Return what stands for each choice; numbers stand for themselves."""
    if options == "labels" or all(choice.isdigit() and len(choice) == 1 for choice in choices):
        folded = [choice.casefold() for choice in choices]
        if twins := [choice for choice, same in zip(choices, folded, strict=True) if folded.count(same) > 1]:
            raise UserError(f"options: labels: {listed(twins, 'and')} differ in case alone → write options: letters")
        return tuple(choices)
    if options == "letters" and len(choices) <= len(string.ascii_uppercase):
        return tuple(string.ascii_uppercase[: len(choices)])
    return tuple(str(number) for number in range(1, len(choices) + 1))


def _examples(task: Task, train: TaskData, count: int, seed: int) -> tuple[tuple[tuple[str, ...], int], ...]:
    """Draw labelled rows, as many of each choice as of the others."""
    from understill.data.encode import all_gold

    gold = all_gold(train)
    known = np.flatnonzero(~np.isnan(gold))
    if not len(known):
        raise UserError(f"llm.examples: no training row of {task.name} has a label to show → leave it out")
    places = gold if task.kind.named else _steps(task, gold)
    order = known[np.random.default_rng(seed).permutation(len(known))]
    by_choice = [[int(row) for row in order if places[row] == place] for place in range(len(task.kind.choices(task)))]
    turns = [row for turn in range(count) for rows in by_choice for row in rows[turn : turn + 1]][:count]
    rows = texts_of(train, sorted(turns, key=lambda row: int(np.flatnonzero(order == row)[0])))
    return tuple((texts, int(places[row])) for row, texts in rows.items())


def _steps(task: Task, gold: np.ndarray) -> np.ndarray:
    """Return the choice that lies nearest to each score."""
    low, high = task.range or (0.0, 1.0)
    return np.rint((gold - low) / (high - low) * (len(task.kind.choices(task)) - 1))


def texts_of(data: TaskData, rows: Sequence[int] | None = None) -> dict[int, tuple[str, ...]]:
    """Return the texts of rows, or of all, by their places."""
    table = data.table()
    table = table if rows is None else table.take(list(rows))
    columns = [table[name].to_pylist() for name in text_columns(data.task)]
    return dict(zip(range(data.rows) if rows is None else rows, zip(*columns, strict=True), strict=True))
