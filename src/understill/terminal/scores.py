"""Scores of a run: a table of models beside each other, and what the student gained."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from shlex import quote
from typing import TYPE_CHECKING, Any

from understill.errors import counted
from understill.numbers import NONE, duration, fixed, interval, p_value, plain_name, score
from understill.pipeline.record import FLOORS
from understill.pipeline.shortfalls import LEGEND, Shortfall, marks_of, shortfalls
from understill.tasks.metric import is_error
from understill.terminal import console

if TYPE_CHECKING:
    from understill.pipeline.comparison import Comparison
    from understill.pipeline.record import Run
    from understill.tasks import Task

Scores = Mapping[str, Mapping[str, float]]


def show_run(run: Run) -> None:
    """Show the results of a run: the score table, and where everything is."""
    columns = run.columns
    primary = {name: _primary_scores(scores, run.tasks) for name, scores in columns.items()}
    below = shortfalls(primary, run.cell.recipe) if run.cell else []
    show_scores(columns, run.tasks, below=below)
    if run.members:
        floors = {name: columns[name] for name in FLOORS if name in columns}
        _show_models({**floors, **run.members, **columns}, run.tasks)
    _say_gains(primary, run)
    say_shortfalls(below)
    for model in run.models:
        if model.role != "teacher":
            name = f"model {model.name}" if model.role == "model" else model.name
            console.say(f"{name}: {model.folder}  (trained in {duration(model.seconds)})")
    teachers = [model for model in run.models if model.role == "teacher"]
    if teachers:
        spent = duration(sum(model.seconds for model in teachers))
        console.say(f"teachers: {counted(len(teachers), 'model')} in {run.folder / 'models'}  (trained in {spent})")
    chosen = [model for model in run.models if model.role in ("model", "student")]
    one = run.folder if len(chosen) == 1 else run.folder / "models" / "NAME"
    pairs = all(run.tasks[place.partition("/")[0]].pair for model in chosen for place in model.scores)
    second = ' --second "…"' if pairs else ""
    console.say(f'ask it: understill predict {quote(str(one))} --text "…"{second}')
    console.say(f"run folder: {run.folder}")


def say_shortfalls(below: Sequence[Shortfall]) -> None:
    """Say which models are below what they should beat."""
    for each in below:
        console.say(each.sentence)


def show_scores(
    columns: Mapping[str, Scores], tasks: Mapping[str, Task], split: str = "dev", below: Sequence[Shortfall] = ()
) -> None:
    """Show scores ×100: a row for each dev set and metric, a column for each model, and the means."""
    marks = marks_of(below, tasks)
    rows: list[Sequence[str] | None] = [*score_rows(columns, tasks, marks, score, split)]
    means = {name: list(_primary_scores(scores, tasks, split).values()) for name, scores in columns.items()}
    complete = max((len(values) for values in means.values()), default=0)
    if complete > 1:
        # A mean over fewer tasks would not compare with the others.
        full = (fixed(sum(values) / complete, 1) if len(values) == complete else NONE for values in means.values())
        rows += [None, ("mean", "primary metrics", *full)]
    title = f"{split} scores ({LEGEND})" if marks else f"{split} scores"
    console.show_table(title, ("task", "metric"), tuple(columns), rows)


def score_rows(
    columns: Mapping[str, Mapping[str, Mapping[str, Any]]],
    tasks: Mapping[str, Task],
    marks: Mapping[tuple[str, str, str], str],
    write: Callable[[str, Any], str],
    split: str = "dev",
) -> list[tuple[str, ...]]:
    """Return a row for each dev set and metric, with what each column has there and its mark."""
    rows = []
    for task in tasks.values():
        places = (place for scores in columns.values() for place in scores if place.split("/")[0] == task.name)
        for place in dict.fromkeys(places):
            for metric in task.metrics:
                cells = (
                    write(metric, scores.get(place, {}).get(metric)) + marks.get((place, metric, name), "")
                    for name, scores in columns.items()
                )
                rows.append((plain_name(place, split), metric, *cells))
    return rows


def _show_models(models: Mapping[str, Scores], tasks: Mapping[str, Task]) -> None:
    """Show the primary metric of each task ×100 with a row for each model, as many as there are."""
    primary = {name: _primary_scores(scores, tasks) for name, scores in models.items()}
    shown = [name for name in tasks if any(name in scores for scores in primary.values())]
    rows = []
    for model, scores in primary.items():
        mean = fixed(sum(scores.values()) / len(scores), 1) if len(scores) == len(shown) else NONE
        rows.append((model, *(fixed(scores[name], 1) if name in scores else NONE for name in shown), mean))
    console.show_table("each teacher, their ensemble and the models", ("model",), (*shown, "mean"), rows)


def _say_gains(primary: Mapping[str, Mapping[str, float]], run: Run) -> None:
    """Say what the student has gained by its teachers or more rows, how sure that is, and what it keeps of theirs."""
    alone = [name for name in primary if name in {"single-task", *(m.name for m in run.models if m.role == "model")}]
    tested = {(each.second, each.first): each for each in run.findings.comparisons} if run.findings else {}
    for one, other, words in (
        ("student", "baseline", f"student against the same student without {run.aid}"),
        *((name, "baseline", f"{name} against the same without {run.aid}") for name in alone),
        ("finetuned", "finetuned baseline", "both fine-tuned on each task"),
        ("student", "teachers", "student against its teachers"),
        ("finetuned", "teachers", "fine-tuned student against its teachers"),
    ):
        both = [name for name in primary.get(one, {}) if name in primary.get(other, {})]
        if both:
            gains = [primary[one][name] - primary[other][name] for name in both]
            better = sum(gain > 0 for gain in gains)
            mean = fixed(sum(gains) / len(gains), 1, "+")
            count = f"better on {better} of {len(both)} tasks" if len(both) > 1 else f"on {both[0]}"
            console.say(f"{words}: {mean} ({count}{_sureness(tested.get((one, other)), both)})")
    say_retention(run)


def _sureness(comparison: Comparison | None, names: Sequence[str]) -> str:
    """Write the interval and p-value of a difference on these tasks, and whether it is significant."""
    if comparison is None:
        return ""
    row = comparison.mean if len(names) > 1 else comparison.at(f"{names[0]}/dev")
    if row is None:
        return ""
    sure = "" if row.verdict else ", not significant"
    return f"; 95 % interval {interval(row.metric, row.difference.interval, '+')}, p {p_value(row.p)}{sure}"


def say_retention(run: Run) -> None:
    """Say what the student keeps of its teachers' score."""
    if run.findings and run.findings.retention and run.cell:
        console.say(run.findings.retention.sentence(run.cell.recipe.evaluation.keep))


def _primary_scores(scores: Scores, tasks: Mapping[str, Task], split: str = "dev") -> dict[str, float]:
    """Return each task's primary metric ×100, by task; an error has no upper end and is left out."""
    return {
        name: 100 * scores[place][task.metrics[0]]
        for name, task in tasks.items()
        if (place := f"{name}/{split}") in scores and task.head == name and not is_error(task.metrics[0])
    }
