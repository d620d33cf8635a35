"""Progress of what is being made: one live bar on a terminal, plain lines now and then in a file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TaskID,
    TextColumn,
)
from rich.progress import Task as Bar
from rich.text import Text

from understill import events
from understill.numbers import duration, percent, score
from understill.terminal import console

#: Seconds between two lines where the output is a file and nothing can be redrawn.
QUIET = 15.0


def _shards(event: events.ShardsLabelled) -> str:
    left = "" if event.seconds_left is None else f" · {duration(event.seconds_left, whole=True)} left"
    return f"shards · {event.rows:,} rows · {event.rows_per_second:,.0f} rows/s{left}"


#: Events that move a bar: what it is about, how much is done, of how much, and perhaps a detail.
BARS: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    events.Reading: lambda event: (f"reading {event.what}", event.rows, None),
    events.Checking: lambda event: (event.what, event.done, event.total),
    events.Augmenting: lambda event: (f"{event.what} {event.task}", event.rows, event.total),
    events.Tokenising: lambda event: (f"tokenising {event.what}", event.rows, event.total),
    events.Labelling: lambda event: (f"{event.teacher} labels {event.what}", event.rows, event.total, event.detail),
    events.ShardsLabelled: lambda event: (f"labelling {event.what}", event.shards, event.total, _shards(event)),
    events.Asking: lambda event: (f"{event.who} predicts {event.what}", event.rows, event.total),
    events.Measuring: lambda event: ("measuring", event.turn, event.total, f"{event.what}: {event.who}"),
}


def _examined(event: events.Examined) -> str:
    dev = "not scored" if event.score is None else f"dev {score('', event.score)}"
    return f'  teacher "{event.teacher}" on {event.task}: {dev}{" (weak)" if event.fault else ""}'


def _timed(event: events.Timed) -> str:
    parts = sorted(event.seconds.items(), key=lambda part: -part[1])
    spent = "; ".join(f"{what} {duration(seconds)}" for what, seconds in parts if seconds >= 1)
    return f"took {duration(sum(event.seconds.values()))} ({spent})" if spent else ""


#: Events that are worth lines of their own.
LINES: dict[type, Callable[[Any], str]] = {
    events.Tuned: lambda event: "\n".join(f"  {event.model}: {reason}" for reason in event.reasons),
    events.Waiting: lambda event: f"another process is making {event.what}; waiting for it",
    events.Expected: lambda event: f"measuring takes about {duration(event.seconds)}",
    events.Examined: _examined,
    events.Timed: _timed,
    events.RoundDone: lambda event: (
        f"  round {event.number}: {event.rows:,} rows of {event.teacher}, dev mean {score('', event.score)}"
    ),
    events.Chosen: lambda event: f"the best of {event.candidates} candidates teach: {', '.join(event.teachers)}",
    events.Evaluated: lambda event: (
        f"  step {event.step}: dev mean {score('', event.score)}{' (best so far)' if event.best else ''}"
    ),
    events.Fitted: lambda event: (
        f"  early stopping at step {event.step} of {event.total}: no improvement on dev" if event.early else ""
    ),
}


class LiveProgress:
    """Watches a run: one live bar on a terminal, plain lines now and then in a file."""

    def __init__(self) -> None:
        self.live = console.err.is_terminal
        self.bars = _bars(BarColumn(24), MofNCompleteColumn(), TextColumn("{task.fields[detail]}", markup=False))
        self.bar: TaskID | None = None
        self.what = ""
        self.spoke = time.monotonic()
        self.model = ""
        self.losses: dict[str, float] = {}

    def __enter__(self) -> events.Watch:
        self.bars.start()
        return self.watch

    def __exit__(self, *_: object) -> None:
        self.bars.stop()

    def watch(self, event: object) -> None:
        """Show one event; one that is not known here is passed over."""
        if bar := BARS.get(type(event)):
            self._show(*bar(event))
        elif line := LINES.get(type(event)):
            self._line(line(event))
        match event:
            case events.TrainingState(model, state):
                self.model, self.losses = model, {}
                if state == "resumed":
                    self._show(f"resuming {model}", 0, None)  # from which step, its checkpoint tells
                else:
                    self._line(f"{'training' if state == 'new' else 'already trained:'} {model}")
            case events.Turn(model):
                self.model, self.losses = model, {}
            case events.Resumed(step, total):
                self._line(f"{self.model}: resuming from step {step:,} of {total:,}")
            case events.Report():
                self._report(event)
            case events.Scored() if self.bar is not None:
                self.bars.remove_task(self.bar)
                self.bar = None

    def _line(self, text: str) -> None:
        if text:
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

    def _report(self, event: events.Report) -> None:
        # A task that was not drawn lately keeps its last loss.
        self.losses |= {name: loss for name, loss in event.parts.items() if not name.endswith(("/hard", "/soft"))}
        losses = " ".join(f"{name} {loss:.3f}" for name, loss in list(self.losses.items())[:5])
        by_task = f"{losses} " if len(self.losses) > 1 else ""
        mix = "" if event.mix is None else f"· λ {event.mix:.2f} "
        left = "" if event.seconds_left is None else f" · {duration(event.seconds_left, whole=True)} left"
        speed = f"{event.rows_per_second:,.0f} rows/s · padding {percent(event.padding)}"
        self._show(
            f"training {self.model}", event.step, event.total, f"loss {event.loss:.3f} {by_task}{mix}· {speed}{left}"
        )


class Elapsed(ProgressColumn):
    """The time since a bar began, written as the time left is."""

    def render(self, task: Bar) -> Text:
        """Return it in whole seconds."""
        return Text(duration(task.elapsed or 0.0, whole=True), style="progress.elapsed")


def _bars(*columns: ProgressColumn) -> Progress:
    """Return bars that are gone at the end, and are not drawn where the output is a file."""
    what = (SpinnerColumn(), TextColumn("{task.description}", markup=False))
    live = console.err.is_terminal
    return Progress(*what, *columns, Elapsed(), console=console.err, transient=True, disable=not live)


@contextmanager
def counter(what: str) -> Iterator[Callable[[int], None]]:
    """Show a running count."""
    with _bars(TextColumn("{task.completed:,.0f} rows")) as bars:
        bar = bars.add_task(what, total=None)
        yield lambda rows: bars.advance(bar, rows)
