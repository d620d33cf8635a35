"""Scores of runs: a table of models beside each other, and what the student gained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from understill.numbers import duration
from understill.pipeline.record import FLOORS
from understill.pipeline.shortfalls import LEGEND, Shortfall, marks_of, shortfalls
from understill.tasks.metric import is_error
from understill.terminal import console

if TYPE_CHECKING:
    from understill.pipeline import Run
    from understill.tasks import Task

Scores = Mapping[str, Mapping[str, float]]


def show_run(run: Run) -> None:
    """Show what a run came to: the score table, and where everything is."""
    columns = run.columns
    firsts = {name: _first_metrics(scores, run.tasks) for name, scores in columns.items()}
    below = shortfalls(firsts, run.cell.recipe) if run.cell else []
    show_scores(columns, run.tasks, below=below)
    if run.members:
        floors = {name: columns[name] for name in FLOORS if name in columns}
        _show_models({**floors, **run.members, **columns}, run.tasks)
    _show_winner(columns, run)
    say_shortfalls(below)
    for model in run.models:
        if model.role != "teacher":
            name = f"model {model.name}" if model.role == "model" else model.name
            console.say(f"{name}: {model.folder}  (trained in {duration(model.seconds)})")
    teachers = [model for model in run.models if model.role == "teacher"]
    if teachers:
        spent = duration(sum(model.seconds for model in teachers))
        count = f"{len(teachers)} models" if len(teachers) > 1 else "1 model"
        console.say(f"teachers: {count} in {run.folder / 'models'}  (trained in {spent})")
    chosen = [model for model in run.models if model.role in ("model", "student")]
    one = run.folder if len(chosen) == 1 else run.folder / "models" / "NAME"
    pairs = all(run.tasks[place.partition("/")[0]].pair for model in chosen for place in model.scores)
    second = ' --second "…"' if pairs else ""
    console.say(f'ask it: understill predict {console.typed(one)} --text "…"{second}')
    console.say(f"run folder: {run.folder}")


def say_shortfalls(below: Sequence[Shortfall]) -> None:
    """Say what is below what it should beat."""
    for each in below:
        console.say(each.sentence)


def _show_models(rows: Mapping[str, Scores], tasks: Mapping[str, Task]) -> None:
    """Show the first metric of each task ×100 with a row for each model, as many as there are."""
    firsts = {name: _first_metrics(scores, tasks) for name, scores in rows.items()}
    shown = [name for name in tasks if any(name in first for first in firsts.values())]
    table = console.table("each teacher, and what became of them", "model")
    for name in (*shown, "mean"):
        table.add_column(name, justify="right", min_width=5)
    for model, first in firsts.items():
        mean = f"{sum(first.values()) / len(first):.1f}" if len(first) == len(shown) else "–"
        table.add_row(model, *(f"{first[name]:.1f}" if name in first else "–" for name in shown), mean)
    console.out.print(table)


def _show_winner(columns: Mapping[str, Scores], run: Run) -> None:
    """Say what the student has gained by its teachers or more rows, and how much of its teachers it keeps."""
    means = {name: _first_metrics(scores, run.tasks) for name, scores in columns.items()}
    alone = [name for name in columns if name in {"single-task", *(m.name for m in run.models if m.role == "model")}]
    for one, other, words in (
        ("student", "baseline", f"student against the same student without {run.aid}"),
        *((name, "baseline", f"{name} against the same without {run.aid}") for name in alone),
        ("finetuned", "finetuned baseline", "both fine-tuned on each task"),
        ("student", "teachers", "student against its teachers"),
        ("finetuned", "teachers", "fine-tuned student against its teachers"),
    ):
        both = [name for name in means.get(one, {}) if name in means.get(other, {})]
        if both:
            gains = [means[one][name] - means[other][name] for name in both]
            better = sum(gain > 0 for gain in gains)
            mean = sum(gains) / len(gains)
            count = f"better on {better} of {len(both)} tasks" if len(both) > 1 else f"on {both[0]}"
            console.say(f"{words}: {mean:+.1f} ({count})")


def _first_metrics(scores: Scores, tasks: Mapping[str, Task], split: str = "dev") -> dict[str, float]:
    """Return each task's first metric ×100, by task; an error has no upper end and is left out."""
    found = {}
    for name, task in tasks.items():
        place = f"{name}/{split}"
        if place in scores and task.head == name and not is_error(task.metrics[0]):
            found[name] = 100 * scores[place][task.metrics[0]]
    return found


def show_scores(
    columns: Mapping[str, Scores], tasks: Mapping[str, Task], split: str = "dev", below: Sequence[Shortfall] = ()
) -> None:
    """Show scores ×100: a row for each dev set and metric, a column for each model, and the means."""
    marks = marks_of(below, tasks)
    table = console.table(f"{split} scores ({LEGEND})" if marks else f"{split} scores", "task", "metric")
    for name in columns:
        table.add_column(name, justify="right", overflow="fold", min_width=5)  # numbers are never cut
    for task in tasks.values():
        for place in _places(task, columns):
            for metric in task.metrics:
                cells = [
                    score(metric, scores.get(place, {}).get(metric)) + marks.get((place, metric, name), "")
                    for name, scores in columns.items()
                ]
                table.add_row(place.removesuffix(f"/{split}").replace(f"/{split}_", " "), metric, *cells)
    means = {name: list(_first_metrics(scores, tasks, split).values()) for name, scores in columns.items()}
    complete = max((len(values) for values in means.values()), default=0)
    if complete > 1:
        table.add_section()
        # A mean over fewer tasks would not compare with the others.
        full = (f"{sum(values) / complete:.1f}" if len(values) == complete else "–" for values in means.values())
        table.add_row("mean", "first of each", *full)
    console.out.print(table)


def score(metric: str, value: float | None) -> str:
    """Write a score, ×100 unless it is an error."""
    if value is None:
        return "–"
    return f"{value:.3f}" if is_error(metric) else f"{100 * value:.1f}"


def _places(task: Task, columns: Mapping[str, Scores]) -> list[str]:
    """Name the dev sets of a task that any column has a score for."""
    there = (place for scores in columns.values() for place in scores if place.split("/")[0] == task.name)
    return list(dict.fromkeys(there))
