"""What the terminal shows: progress while it happens, and tables at the end."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import comb
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.syntax import Syntax
from rich.table import Table

from understill.errors import counted
from understill.pipeline.outcome import FLOORS
from understill.pipeline.shortfalls import LEGEND, Shortfall, marks_of, shortfalls

if TYPE_CHECKING:
    from pathlib import Path

    from understill.bench.measure import Bench
    from understill.data.load import LoadedTask
    from understill.estimate import Estimate
    from understill.evaluate.stream import Predicted
    from understill.models.assets import AssetStatus
    from understill.pipeline import Compared, Comparison, Exported, Kept, Plan, Run, Study, Submission, Waste
    from understill.runtime.answers import Answer
    from understill.tasks import Task

Scores = Mapping[str, Mapping[str, float]]

#: Seconds between two lines where the output is a file and nothing can be redrawn.
QUIET = 15.0

#: Columns of a table where the output is a file, and COLUMNS does not say.
WIDTH = 120

# Texts, labels and file names are shown as they are: no markup, no emoji codes, no wrapping.
_PLAIN: dict[str, Any] = {"highlight": False, "markup": False, "emoji": False, "soft_wrap": True}
_told = os.environ.get("COLUMNS", "").isdigit()
out = Console(width=None if sys.stdout.isatty() or _told else WIDTH, **_PLAIN)
err = Console(stderr=True, **_PLAIN)


def say(text: str) -> None:
    """Print a line."""
    out.print(text)


def duration(seconds: float) -> str:
    """Put a time into words."""
    seconds = max(0, round(seconds))
    if seconds < 90:
        return f"{seconds} s"
    if seconds < 5400:
        return f"{seconds // 60} min {seconds % 60:02d} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60:02d} min"


class Progress:
    """Watches a run: one live bar on a terminal, plain lines now and then in a file."""

    def __init__(self) -> None:
        self.live = err.is_terminal
        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(24), MofNCompleteColumn(),
                   TextColumn("{task.fields[detail]}", markup=False), TimeElapsedColumn())  # fmt: skip
        self.bars = Bars(*columns, console=err, transient=True, disable=not self.live)
        self.bar: TaskID | None = None
        self.what = ""
        self.spoke = time.monotonic()
        self.model = ""
        self.parts: dict[str, float] = {}

    def __enter__(self) -> Callable[[Any], None]:
        self.bars.start()
        return self.watch

    def __exit__(self, *_: object) -> None:
        self.bars.stop()

    def watch(self, event: Any) -> None:
        """Show one event; events are told apart by their class, so that nothing heavy is imported for them."""
        getattr(self, f"_{type(event).__name__.lower()}")(event)

    def _line(self, text: str) -> None:
        self.bars.console.print(text.rstrip())

    def _show(self, what: str, done: int, total: int | None, detail: str = "") -> None:
        if self.bar is None or self.what != what:
            if self.bar is not None:
                self.bars.remove_task(self.bar)
            self.bar, self.what = self.bars.add_task(what, total=total, detail=""), what
        self.bars.update(self.bar, completed=done, total=total, detail=detail)
        if not self.live and time.monotonic() - self.spoke > QUIET:
            self.spoke = time.monotonic()
            of = f"/{total:,}" if total else ""
            self._line(f"{what}: {done:,}{of} {detail}")

    def _reading(self, event: Any) -> None:
        self._show(f"reading {event.what}", event.rows, None)

    def _checking(self, event: Any) -> None:
        self._show(event.what, event.done, event.total)

    def _augmenting(self, event: Any) -> None:
        self._show(f"{event.what} {event.task}", event.rows, event.total)

    def _tokenising(self, event: Any) -> None:
        self._show(f"tokenising {event.what}", event.rows, event.total)

    def _teaching(self, event: Any) -> None:
        self.model, self.parts = event.model, {}
        if event.state == "resumed":
            self._show(f"going on with {event.model}", 0, None)  # from which step, its checkpoint tells
        else:
            self._line(f"{'training' if event.state == 'new' else 'already trained:'} {event.model}")

    def _tuned(self, event: Any) -> None:
        for reason in event.reasons:
            self._line(f"  {event.model}: {reason}")

    def _resumed(self, event: Any) -> None:
        self._line(f"{self.model}: going on from step {event.step:,} of {event.total:,}")

    def _turn(self, event: Any) -> None:
        self.model, self.parts = event.model, {}

    def _waiting(self, event: Any) -> None:
        self._line(f"another process is making {event.what}; waiting for it")

    def _labelling(self, event: Any) -> None:
        self._show(f"{event.teacher} answers {event.what}", event.rows, event.total)

    def _asking(self, event: Any) -> None:
        self._show(f"{event.who} answers {event.what}", event.rows, event.total)

    def _measuring(self, event: Any) -> None:
        self._show("measuring", event.turn, event.total, f"{event.what}: {event.who}")

    def _expected(self, event: Any) -> None:
        self._line(f"measuring takes about {duration(event.seconds)}")

    def _examined(self, event: Any) -> None:
        said = "not scored" if event.score is None else f"dev {100 * event.score:.1f}"
        self._line(f"  teacher {event.teacher} of {event.task}: {said}{' (weak)' if event.fault else ''}")

    def _chosen(self, event: Any) -> None:
        self._line(f"the best of {event.candidates} candidates teach: {', '.join(event.teachers)}")

    def _report(self, event: Any) -> None:
        whole = {name: value for name, value in event.parts.items() if not name.endswith(("/hard", "/soft"))}
        self.parts |= whole  # a task that was not drawn lately keeps its last loss
        shown = " ".join(f"{name} {value:.3f}" for name, value in list(self.parts.items())[:5])
        shown = shown if len(self.parts) > 1 else ""
        mix = "" if event.mix is None else f"· λ {event.mix:.2f} "
        left = "" if event.seconds_left is None else f" · {duration(event.seconds_left)} left"
        detail = (
            f"loss {event.loss:.3f} {shown} {mix}· {event.rows_per_second:,.0f} rows/s · "
            f"padding {event.padding:.0%}{left}"
        )
        self._show(f"training {self.model}", event.step, event.total, detail)

    def _evaluated(self, event: Any) -> None:
        best = " (best so far)" if event.best else ""
        self._line(f"  step {event.step}: dev mean {100 * event.score:.1f}{best}")

    def _fitted(self, event: Any) -> None:
        if event.early:
            self._line(f"  stopped at step {event.step} of {event.total}: the dev score no longer rises")

    def _scored(self, event: Any) -> None:
        if self.bar is not None:
            self.bars.remove_task(self.bar)
            self.bar = None


@contextmanager
def counter(what: str) -> Iterator[Callable[[int], None]]:
    """Show a running count."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        TextColumn("{task.completed:,.0f} rows"),
        TimeElapsedColumn(),
    )
    with Bars(*columns, console=err, transient=True, disable=not err.is_terminal) as bars:
        bar = bars.add_task(what, total=None)
        yield lambda rows: bars.advance(bar, rows)


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
            own = model.name.startswith((model.role, "baseline-"))
            name = model.name if own else f"{model.role} {model.name}"
            say(f"{name}: {model.folder}  (trained in {duration(model.seconds)})")
    teachers = [model for model in run.models if model.role == "teacher"]
    if teachers:
        spent = duration(sum(model.seconds for model in teachers))
        count = f"{len(teachers)} models" if len(teachers) > 1 else "1 model"
        say(f"teachers: {count} in {run.folder / 'models'}  (trained in {spent})")
    chosen = [model for model in run.models if model.role in ("model", "student")]
    one = run.folder if len(chosen) == 1 else run.folder / "models" / "NAME"
    pairs = all(run.tasks[place.partition("/")[0]].pair for model in chosen for place in model.scores)
    second = ' --second "…"' if pairs else ""
    say(f'ask it: understill predict {_typed(one)} --text "…"{second}')
    say(f"run folder: {run.folder}")


def say_shortfalls(below: Sequence[Shortfall]) -> None:
    """Say what is below what it should beat."""
    for each in below:
        say(each.sentence)


def _typed(path: Path) -> str:
    """Write a path as it is typed in a shell."""
    return shlex.quote(str(path))


def _show_models(rows: Mapping[str, Scores], tasks: Mapping[str, Task]) -> None:
    """Show the first metric of each task ×100 with a row for each model, as many as there are."""
    firsts = {name: _first_metrics(scores, tasks) for name, scores in rows.items()}
    shown = [name for name in tasks if any(name in first for first in firsts.values())]
    table = _table("each teacher, and what became of them", "model")
    for name in (*shown, "mean"):
        table.add_column(name, justify="right", min_width=5)
    for model, first in firsts.items():
        mean = f"{sum(first.values()) / len(first):.1f}" if len(first) == len(shown) else "–"
        table.add_row(model, *(f"{first[name]:.1f}" if name in first else "–" for name in shown), mean)
    out.print(table)


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
            say(f"{words}: {mean:+.1f} ({count})")


def _first_metrics(scores: Scores, tasks: Mapping[str, Task], split: str = "dev") -> dict[str, float]:
    """Return each task's first metric ×100, by task; an error has no upper end and is left out."""
    found = {}
    for name, task in tasks.items():
        place = f"{name}/{split}"
        if place in scores and task.head == name and task.metrics[0] != "mse":
            found[name] = 100 * scores[place][task.metrics[0]]
    return found


def show_scores(
    columns: Mapping[str, Scores], tasks: Mapping[str, Task], split: str = "dev", below: Sequence[Shortfall] = ()
) -> None:
    """Show scores ×100: a row for each dev set and metric, a column for each model, and the means."""
    marks = marks_of(below, tasks)
    table = _table(f"{split} scores ({LEGEND})" if marks else f"{split} scores", "task", "metric")
    for name in columns:
        table.add_column(name, justify="right", overflow="fold", min_width=5)  # numbers are never cut
    for task in tasks.values():
        for place in _places(task, columns):
            for metric in task.metrics:
                cells = [
                    _score(metric, scores.get(place, {}).get(metric)) + marks.get((place, metric, name), "")
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
    out.print(table)


def _score(metric: str, value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.3f}" if metric == "mse" else f"{100 * value:.1f}"


def _places(task: Task, columns: Mapping[str, Scores]) -> list[str]:
    """Name the dev sets of a task that any column has a score for."""
    there = (place for scores in columns.values() for place in scores if place.split("/")[0] == task.name)
    return list(dict.fromkeys(there))


def _table(title: str, *columns: str) -> Table:
    """Start a table; names and numbers are kept whole, long texts may break."""
    table = Table(title=title, title_justify="left")
    whole = ("task", "kind", "metric", "model", "steps", "about", "timed", "split", "run", "size", "folder")
    for column in columns:
        table.add_column(column, no_wrap=column in whole)
    return table


def show_export(made: Exported) -> None:
    """Show how far an export is from its model, and where it is."""
    table = _table("the export against the model", "dev set")
    for column in ("rows", "largest difference", "labels changed"):
        table.add_column(column, justify="right")
    for column in ("metric", "before", "after") if made.rounded else ():
        table.add_column(column, justify="left" if column == "metric" else "right")
    for each in made.parity:
        cells = (each.place, f"{each.rows:,}", f"{each.worst:.1e}", f"{each.changed:,}")
        costs = [cost for cost in made.rounded if cost.place == each.place]
        if not costs:  # nothing was rounded, or no row has gold
            table.add_row(*cells)
        for cost in costs:
            table.add_row(*cells, cost.metric, *(_score(cost.metric, value) for value in (cost.before, cost.after)))
            cells = ("",) * 4
    out.print(table)
    for part in made.parts:
        say(f"wrote {part}")
    if made.left:
        from understill.ship.forms import in_words

        say(f"not exported: {in_words(made.left)} → --to onnx takes every task")
    second = ' --second "…"' if made.pair else ""
    say(f'ask it: understill predict {_typed(made.parts[0])} --text "…"{second}')


def show_bench(bench: Bench) -> None:
    """Show what models cost side by side; beside each number stand the lowest and the highest round."""
    first, names = bench.models[0], _short([each.model for each in bench.models])
    for part in first.latency:
        rounds = counted(bench.rounds, "round")
        table = _table(
            f"{part}: {bench.texts:,} texts of {bench.task}, {rounds}, {counted(bench.machine['cores'], 'core')}"
        )
        table.add_column("model", overflow="fold", min_width=12)
        table.add_column("form", no_wrap=True)
        for column in ("MB", "one text\nms", "95 %\nms", "texts/s", "low to high", "× first", "low to high"):
            table.add_column(column, justify="right", no_wrap=True)
        for name, each in zip(names, bench.models, strict=True):
            one, rate, times = each.latency[part], each.rate(part), each.times(first, part)
            table.add_row(
                name,
                each.form_in(part),
                f"{each.bytes / 1e6:,.1f}",
                f"{1000 * one.median:.2f}",
                f"{1000 * one.p95:.2f}",
                f"{rate.middle:,.0f}",
                f"{rate.low:,.0f} to {rate.high:,.0f}",
                f"{times.middle:.3g}",
                f"{times.low:.3g} to {times.high:.3g}",
            )
        out.print(table)
    rates = (f"{each.rate('tokenising').middle:,.0f}/s" for each in bench.models)
    say(f"tokenising alone: {', '.join(f'{name} {rate}' for name, rate in zip(names, rates, strict=True))}")


def _short(paths: Sequence[str]) -> list[str]:
    """Leave out of paths the folder that all of them lie in."""
    try:
        shared = os.path.commonpath([os.path.dirname(path) for path in paths])
    except ValueError:  # some begin at the root and some do not
        return list(paths)
    return [os.path.relpath(path, shared or ".") for path in paths]


def show_plan(study: Study, times: Mapping[str, Estimate] | None = None) -> None:
    """Show what would run, what is there already, and, where it was measured, about how long the rest takes."""
    # Where runs read other splits of a task, those of the one that reads most are shown.
    loaded: dict[str, LoadedTask] = {}
    for name, task in ((name, task) for _, plan in study.cells for name, task in plan.loaded.items()):
        loaded[name] = max(loaded.get(name, task), task, key=lambda each: len(each.splits))
    show_data(loaded, 0)
    timed = any(each.timed for each in (times or {}).values())
    columns = () if times is None else ("steps", "timed" if timed else "about")
    table = _table("models", "model", "tasks", *columns, "state", "folder")
    # The models of one run under all names that they have there, those of several once each.
    alone = len(study.cells) == 1
    for wanted in study.wanted if alone else study.models:
        model, name = wanted.model, wanted.model.name if alone else wanted.title
        time_of = (times or {}).get(name)
        state = "done" if model.done else "goes on from a checkpoint" if model.started else "to be trained"
        cells = (f"{time_of.steps:,}", duration(time_of.seconds)) if time_of else ("", "")
        tasks = ", ".join(task.name for task in model.tasks)
        table.add_row(name, tasks, *(cells if times is not None else ()), state, model.folder.name)
    out.print(table)
    if study.targets:
        table = _table("soft targets", "task", "split", "teachers", "state", "folder")
        for targets in study.targets:
            names = ", ".join(dict.fromkeys(teacher.name for teacher in targets.teachers))
            table.add_row(
                targets.task, targets.split, names, "done" if targets.done else "to be written", targets.folder.name
            )
        out.print(table)
    if not alone:
        say(f"{len(study.cells)} runs: {_counted(study)}; what they have in common is made once")
    if candidates := study.plan.candidates:
        say(
            f"which of the {len(candidates)} candidates teach is known when they are trained; "
            "here the first ones stand in for them"
        )
    _show_choices(study)
    if times is None:
        missing = [wanted for wanted in study.models if not wanted.model.done]
        say(f"nothing was run; {len(missing)} of {len(study.models)} models are to be trained")
        return
    _show_exports(study.plan)
    total = sum(each.seconds for each in times.values())
    how = "timed by real steps of each model" if timed else "reckoned from sizes; --time takes real steps"
    say(
        f"recipe and data are fine; training would take about {duration(total)} here ({how})"
        if times
        else "nothing is left to train"
    )


def _show_choices(study: Study) -> None:
    """Show what the recipe leaves open and the rule chooses, with what will be tried."""
    open_ones = [each for each in study.models if each.model.settings.training.lr == "auto" and not each.model.done]
    if not open_ones:
        return
    from understill.pipeline.tuning import foreseen

    for plan, model, title in open_ones:
        for reason in foreseen(plan, model)[0].reasons:
            say(f"{title}: {reason}")


def _show_exports(plan: Plan) -> None:
    """Show what the models that a run is made for can be exported to."""
    main = [each for each in plan.models if each.name in ("student", "multi")]
    main = main or [each for each in plan.models if each.role in ("student", "model")]
    if not main:
        return
    from understill.models.shape import WORDS
    from understill.ship.forms import allowed, kind_at

    start, settings = main[0].start, main[0].settings
    if settings.training.lr == "auto":
        from understill.pipeline.tuning import foreseen

        settings = foreseen(plan, main[0])[0].settings
    while start.model:
        start = start.model.start
    kind, tasks = WORDS if start.words else kind_at(start.place), [task for each in main for task in each.tasks]
    for form, what in allowed(kind, settings.encoder.pooling, settings.heads, tasks).items():
        say(f"export --to {form}: {what}")


def _counted(study: Study) -> str:
    """Say what the runs of a study differ in."""
    variants, seeds = ({getattr(cell, part) for cell, _ in study.cells} for part in ("variant", "seed"))
    parts = {"variant": len(variants), "seed": len(seeds)}
    return " × ".join(f"{count} {part}s" for part, count in parts.items() if count > 1)


def show_data(loaded: Mapping[str, LoadedTask], examples: int) -> None:
    """Show the tasks of a recipe with their rows and, if wanted, some of them."""
    table = _table("tasks", "task", "kind", "texts", "labels", "rows", "notes")
    for task in loaded.values():
        rows = ", ".join(f"{split} {data.rows:,}" for split, data in task.splits.items())
        notes = [f"{count:,} rows of {split} are in train" for split, count in task.overlap.items() if count]
        notes += [f"{count:,} rows of {split} are in train of {other}" for (split, other), count in task.across.items()]
        notes += [f"{count:,} rows of {split} are in unlabelled" for split, count in task.foreseen.items() if count]
        notes += [f"{data.rejected:,} rows of {split} left out" for split, data in task.splits.items() if data.rejected]
        table.add_row(task.task.name, *_about(task.task), rows, "; ".join(notes))
    out.print(table)
    for task in loaded.values():
        for split, data in list(task.splits.items())[:1] if examples else []:
            say(f"{task.task.name} ({split}):")
            for row in data.table().slice(0, examples).to_pylist():
                texts = " | ".join(str(row[name]) for name in ("text1", "text2") if name in row)
                say(f"  {row['label'] if row['label'] is not None else '?'}: {texts}")


def _about(task: Task) -> tuple[str, str, str]:
    if task.kind == "regression":
        labels = f"{task.range[0]:g} to {task.range[1]:g}" if task.range else "any score"
    else:
        labels = ", ".join(task.labels[:6]) + (f", … ({len(task.labels)})" if len(task.labels) > 6 else "")
    return task.kind.name, ", ".join(task.text), labels


def show_tasks(groups: Mapping[str, Sequence[Task]]) -> None:
    """Show the tasks that need no files of the user's."""
    for title, tasks in groups.items():
        table = _table(title, "task", "kind", "texts", "labels", "metrics")
        for task in tasks:
            table.add_row(task.name, *_about(task), ", ".join(task.metrics))
        out.print(table)


def show_counts(counts: Sequence[Any]) -> None:
    """Show the rows found in a GLUE folder beside the official ones."""
    table = _table("GLUE", "task", "split")
    for column in ("rows", "official", ""):
        table.add_column(column, justify="right" if column else "left")
    for task, split, found, official in counts:
        same = "" if official is None else "complete" if found == official else "missing" if not found else "differs"
        shown = "–" if official is None else f"{official:,}"
        table.add_row(task, split, "–" if found is None else f"{found:,}", shown, same)
    out.print(table)


def show_predicted(done: Predicted, path: Path) -> None:
    """Show how many rows of a file were answered, and which were not."""
    of = f"{done.answered:,} of " if done.unanswered else ""
    say(f"{of}{counted(done.rows, 'row')} answered for {', '.join(done.tasks)}: {path}")
    if done.unanswered:
        say(f"{counted(done.unanswered, 'row')} without an answer of every task, cells kept:")
        for fault in done.faults:
            say(f"  {fault}")
        if rest := done.unanswered - len(done.faults):
            say(f"  … and {rest:,} more")


def show_answers(texts: Sequence[str], second: Sequence[str] | None, answers: Mapping[str, Sequence[Answer]]) -> None:
    """Show what a model says of each text."""
    for number, text in enumerate(texts):
        pair = f" | {second[number]}" if second else ""
        say(f"{text}{pair}")
        for task, found in answers.items():
            answer = found[number]
            if answer.probabilities is None:
                say(f"  {task}: {answer.score:.2f}")
                continue
            ranked = sorted(answer.probabilities.items(), key=lambda item: -item[1])
            say(
                f"  {task}: {ranked[0][0]} ({ranked[0][1]:.0%})"
                + "".join(f", {name} {p:.0%}" for name, p in ranked[1:3])
            )


def show_comparisons(comparisons: Sequence[Comparison]) -> None:
    """Show what each comparison came to, and what may be claimed of it."""
    for each in comparisons:
        say(f"A: {each.first}\nB: {each.second}")
        table = _table("dev scores", "task", "metric")
        for column in ("A", "B", "B − A", "95 % interval"):
            table.add_column(column, justify="right")
        for row in each.compared:
            table.add_row(_set(row.place), row.metric, *_compared(row))
        out.print(table)
        table = _table("how sure that is", "task", "test")
        for column in ("p", "p, Holm", "effect"):
            table.add_column(column, justify="right")
        for row in each.compared:
            found = row.difference
            table.add_row(_set(row.place), found.test, _small(found.p), _small(row.p), _effect(found.effect))
            for found in row.checks:
                table.add_row("", found.test, _small(found.p), "", _effect(found.effect))
        out.print(table)
        say(each.claim)
    for one, other in sorted({row.seeds for each in comparisons for row in each.compared if min(row.seeds) > 1}):
        least = 2 / comb(one + other, one)  # of all orders of the seeds, those two that set the sides apart
        say(f"with {one} and {other} seeds no p of Mann and Whitney can be below {least:.2g}, whatever the difference")
    say("* p < 0.05, ** p < 0.01, *** p < 0.001, after Holm's correction for all dev sets and runs shown")


def _compared(row: Compared) -> tuple[str, ...]:
    """Put two scores and their difference into words, ×100 unless it is an error."""
    from understill.evaluate.significance import stars

    times, digits = (1, 3) if row.metric == "mse" else (100, 1)
    sides = [
        f"{times * side.mean:.{digits}f}" + (f"±{times * side.spread:.{digits}f}" if len(side.values) > 1 else "")
        for side in (row.first, row.second)
    ]
    found = row.difference
    between = "–"
    if found.interval:
        between = f"{times * found.interval.low:+.{digits}f} to {times * found.interval.high:+.{digits}f}"
    return *sides, f"{times * found.delta:+.{digits}f}{stars(row.p):<3}", between


def _set(place: str) -> str:
    """Name a dev set as briefly as it can be."""
    return place.removesuffix("/dev").replace("/dev_", " ")


def _small(p: float | None) -> str:
    return "–" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def _effect(effect: float | None) -> str:
    return "–" if effect is None else f"{effect:+.2f}"


def show_submission(written: Submission) -> None:
    """Show who answers each file of a submission, what no model answers, and whether there is a zip."""
    table = _table("GLUE submission", "file", "rows", "answered by")
    table.columns[1].justify = "right"
    for filed in written.files:
        rows = f"{filed.rows:,}" if filed.rows else "missing"
        sample = f"; every row says {filed.guess}, the majority guess" if filed.guess else ""
        table.add_row(filed.name, rows, filed.model or f"{filed.lack}{sample}")
    out.print(table)
    samples = [filed.name for filed in written.files if filed.guess]
    if samples:
        say(f"samples, which no model has answered: {', '.join(samples)}")
    say(f"files: {written.folder}")
    if written.zip:
        say(f"upload: {written.zip}")
    else:
        what = f"no zip: {', '.join(written.missing)} missing, and the benchmark refuses a zip without"
        say(f"{what}; --fill writes a sample where there are training rows")


def show_runs(runs: Sequence[Kept]) -> None:
    """Show the runs of a folder, the latest first."""
    table = _table("runs", "run", "when", "state", "models", "dev mean", "size")
    for run in runs:
        models = run.facts.get("models", {})
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.started))
        state = "done" if run.state == "done" else "not finished"
        if len(runs_of := run.facts.get("cells", ())) > 1:
            state += f", {len(runs_of)} runs"
        means = [f"{role} {100 * mean:.1f}" for role, mean in run.means.items()]
        seeds = [f"mean of {len(run.cells)} seeds"] if len(run.cells) > 1 else []
        table.add_row(run.name, when, state, str(len(models)), ", ".join(means + seeds), _bytes(run.bytes))
    out.print(table)


def show_waste(waste: Sequence[Waste], removed: bool) -> None:
    """Show what was cleaned away, or would be."""
    for each in waste:
        say(f"{'removed' if removed else 'would remove'} {each.path}  ({_bytes(each.bytes)})")
    total = _bytes(sum(each.bytes for each in waste))
    if not waste:
        say("nothing to clean: every artefact belongs to a run")
    else:
        say(f"{total} freed" if removed else f"{total} could be freed; do it with --yes")


def _bytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def show_assets(assets: Sequence[AssetStatus]) -> None:
    """Show what installs by name."""
    for asset in assets:
        say(f"{asset.name}: {asset.what} ({asset.size / 1e6:.0f} MB)")
        say(
            f"  installed{f': {asset.where}' if asset.where else ''}"
            if asset.installed
            else f"  not installed: {asset.pip}"
        )


def show_yaml(text: str) -> None:
    """Show a recipe."""
    out.print(Syntax(text, "yaml", background_color="default") if sys.stdout.isatty() else text)
