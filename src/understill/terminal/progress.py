"""Progress of what is being made: one live bar on a terminal, plain lines now and then in a file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import singledispatchmethod

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from understill.events import (
    Asking,
    Augmenting,
    Checking,
    Chosen,
    Evaluated,
    Examined,
    Expected,
    Fitted,
    Labelling,
    Measuring,
    Reading,
    Report,
    Resumed,
    Scored,
    Teaching,
    Tokenising,
    Tuned,
    Turn,
    Waiting,
    Watch,
)
from understill.numbers import duration
from understill.terminal import console

#: Seconds between two lines where the output is a file and nothing can be redrawn.
QUIET = 15.0


class LiveProgress:
    """Watches a run: one live bar on a terminal, plain lines now and then in a file."""

    def __init__(self) -> None:
        self.live = console.err.is_terminal
        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(24), MofNCompleteColumn(),
                   TextColumn("{task.fields[detail]}", markup=False), TimeElapsedColumn())  # fmt: skip
        self.bars = Progress(*columns, console=console.err, transient=True, disable=not self.live)
        self.bar: TaskID | None = None
        self.what = ""
        self.spoke = time.monotonic()
        self.model = ""
        self.parts: dict[str, float] = {}

    def __enter__(self) -> Watch:
        self.bars.start()
        return self.watch

    def __exit__(self, *_: object) -> None:
        self.bars.stop()

    @singledispatchmethod
    def watch(self, event: object) -> None:
        """Show one event; one that is not known here is passed over."""

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

    @watch.register
    def _reading(self, event: Reading) -> None:
        self._show(f"reading {event.what}", event.rows, None)

    @watch.register
    def _checking(self, event: Checking) -> None:
        self._show(event.what, event.done, event.total)

    @watch.register
    def _augmenting(self, event: Augmenting) -> None:
        self._show(f"{event.what} {event.task}", event.rows, event.total)

    @watch.register
    def _tokenising(self, event: Tokenising) -> None:
        self._show(f"tokenising {event.what}", event.rows, event.total)

    @watch.register
    def _teaching(self, event: Teaching) -> None:
        self.model, self.parts = event.model, {}
        if event.state == "resumed":
            self._show(f"going on with {event.model}", 0, None)  # from which step, its checkpoint tells
        else:
            self._line(f"{'training' if event.state == 'new' else 'already trained:'} {event.model}")

    @watch.register
    def _tuned(self, event: Tuned) -> None:
        for reason in event.reasons:
            self._line(f"  {event.model}: {reason}")

    @watch.register
    def _resumed(self, event: Resumed) -> None:
        self._line(f"{self.model}: going on from step {event.step:,} of {event.total:,}")

    @watch.register
    def _turn(self, event: Turn) -> None:
        self.model, self.parts = event.model, {}

    @watch.register
    def _waiting(self, event: Waiting) -> None:
        self._line(f"another process is making {event.what}; waiting for it")

    @watch.register
    def _labelling(self, event: Labelling) -> None:
        self._show(f"{event.teacher} answers {event.what}", event.rows, event.total)

    @watch.register
    def _asking(self, event: Asking) -> None:
        self._show(f"{event.who} answers {event.what}", event.rows, event.total)

    @watch.register
    def _measuring(self, event: Measuring) -> None:
        self._show("measuring", event.turn, event.total, f"{event.what}: {event.who}")

    @watch.register
    def _expected(self, event: Expected) -> None:
        self._line(f"measuring takes about {duration(event.seconds)}")

    @watch.register
    def _examined(self, event: Examined) -> None:
        score = "not scored" if event.score is None else f"dev {100 * event.score:.1f}"
        self._line(f"  teacher {event.teacher} of {event.task}: {score}{' (weak)' if event.fault else ''}")

    @watch.register
    def _chosen(self, event: Chosen) -> None:
        self._line(f"the best of {event.candidates} candidates teach: {', '.join(event.teachers)}")

    @watch.register
    def _report(self, event: Report) -> None:
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

    @watch.register
    def _evaluated(self, event: Evaluated) -> None:
        best = " (best so far)" if event.best else ""
        self._line(f"  step {event.step}: dev mean {100 * event.score:.1f}{best}")

    @watch.register
    def _fitted(self, event: Fitted) -> None:
        if event.early:
            self._line(f"  stopped at step {event.step} of {event.total}: the dev score no longer rises")

    @watch.register
    def _scored(self, event: Scored) -> None:
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
    with Progress(*columns, console=console.err, transient=True, disable=not console.err.is_terminal) as bars:
        bar = bars.add_task(what, total=None)
        yield lambda rows: bars.advance(bar, rows)
