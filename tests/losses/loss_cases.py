"""Batches with and without gold and teachers, of tasks with settings of their own."""

from __future__ import annotations

from dataclasses import replace

import torch
from hypothesis import strategies as st
from torch import Tensor

from helpers import TASKS
from understill.data.batch import Batch
from understill.recipe.schema import Anneal, Distil
from understill.tasks import Task

NAN = float("nan")
#: Two classes, three classes, a score, and a score without a range: columns 0-1, 2-4, 5, 6.
FREE = Task("free", "regression", ("text",), "label")
MIXED = (*TASKS, FREE)
FIRST = (0, 2, 5, 6)
COLUMNS = 7


def rows_of(
    task: list[int],
    gold: list[float],
    weight: list[float] | None = None,
    teacher: Tensor | None = None,
    group: list[int] | None = None,
) -> Batch:
    count = len(task)
    nothing = torch.zeros(count, dtype=torch.long)
    ones = torch.ones(count) if weight is None else torch.tensor(weight)
    columns = {} if teacher is None else {"logits": teacher}
    groups = torch.arange(count) if group is None else torch.tensor(group)
    return Batch(
        nothing[:, None], nothing, nothing, torch.tensor(task), torch.tensor(gold), ones, nothing, groups, columns
    )


@st.composite
def problems(draw: st.DrawFn) -> tuple[Tensor, Batch]:
    count = draw(st.integers(1, 6))
    task = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    gold = [draw(st.integers(0, MIXED[each].outputs - 1) if each < 2 else st.floats(1, 5, width=32)) for each in task]
    weight = draw(st.lists(st.floats(0.125, 4, width=32), min_size=count, max_size=count))
    values = draw(st.lists(st.floats(-20, 20, width=32), min_size=count * COLUMNS, max_size=count * COLUMNS))
    return torch.tensor(values).view(count, COLUMNS), rows_of(task, [float(each) for each in gold], weight)


def speak(raw: Tensor, task: list[int], distil: Distil, width: int = 3) -> Tensor:
    """The teachers' column for raw logits of the tasks' own outputs, [n, width]."""
    output = torch.full((len(task), width), NAN)
    for row, each in enumerate(task):
        spec, own = MIXED[each], distil.of(MIXED[each].name)
        mine = raw[row, : spec.outputs].double()
        if spec.kind.name == "classification" and own.loss == "cross_entropy":
            mine = (mine / own.temperature).log_softmax(0)
        output[row, : spec.outputs] = mine.float()
    return output


anneals = st.none() | st.builds(
    Anneal, start=st.floats(0, 1), end=st.floats(0, 1), shape=st.sampled_from(["linear", "cosine", "quadratic"])
)
own_settings = st.fixed_dictionaries(
    {
        "loss": st.sampled_from(["cross_entropy", "logits"]),
        "temperature": st.sampled_from([0.5, 1.0, 2.0, 5.0]),
        "hard": st.floats(0.125, 3),
        "soft": st.floats(0.125, 3),
        "anneal": anneals,
    }
)


@st.composite
def lessons(draw: st.DrawFn) -> tuple[Tensor, Batch, Distil]:
    """A batch in which each task has its own settings, and rows may lack gold or teacher."""
    logits, batch = draw(problems())
    top = draw(own_settings)
    tasks = {each.name: draw(own_settings) for each in MIXED if draw(st.booleans())}
    distil = Distil(**top, tasks=tasks)
    count = len(batch)
    raw = torch.tensor(draw(st.lists(st.floats(-20, 20, width=32), min_size=count * 3, max_size=count * 3)))
    teacher = speak(raw.view(count, 3), batch.task.tolist(), distil, width=draw(st.sampled_from([3, 4])))
    gold = batch.gold.clone()
    for row in range(count):
        lacks = draw(st.sampled_from(["nothing", "nothing", "gold", "teacher"]))
        if lacks == "gold":
            gold[row] = NAN
        elif lacks == "teacher":
            teacher[row] = NAN
    return logits, replace(batch, gold=gold, columns={"logits": teacher}), distil
