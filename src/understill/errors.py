"""Errors that the user can fix, with messages that say how."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType


class UserError(Exception):
    """A mistake the user can fix; the message says how, and the program exits with 2."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: where, what, and what to write instead."""

    place: str
    what: str
    fix: str = ""

    def __str__(self) -> str:
        tail = f" → {self.fix}" if self.fix else ""
        return f"{self.place}: {self.what}{tail}"


class Problems(UserError):
    """Several problems, reported together."""

    SHOWN = 20

    def __init__(self, title: str, problems: Sequence[Problem], total: int | None = None) -> None:
        self.title = title
        self.problems = tuple(problems)
        self.total = len(self.problems) if total is None else total
        super().__init__(str(self))

    def __str__(self) -> str:
        shown = [f"  {problem}" for problem in self.problems[: self.SHOWN]]
        rest = self.total - len(shown)
        if rest > 0:
            shown.append(f"  … and {rest:,} more")
        return "\n".join([self.title, *shown])


class RecipeError(Problems):
    """The recipe cannot be used as it stands."""

    SHOWN = 100

    def __init__(self, file: str, problems: Sequence[Problem]) -> None:
        self.file = file
        super().__init__(f"{file} has {len(problems)} problems", problems)

    def __str__(self) -> str:
        if len(self.problems) != 1:
            return super().__str__()
        (problem,) = self.problems
        return f"{self.file}, {problem}" if problem.place.startswith("line ") else str(problem)


class DataError(Problems):
    """Rows or files that cannot be used as they stand."""


class ModelError(Exception):
    """A model fails on texts that it should answer: for whoever runs it to mend, and no fault of who asks."""


class TrainingError(UserError):
    """Training cannot continue, for instance because the loss is NaN."""


class ProcessLost(UserError):
    """Another process of the same run has ended before its time."""


class Interrupted(KeyboardInterrupt):
    """A signal ends the program, which then exits with 128 and its number."""

    def __init__(self, number: int, message: str = "") -> None:
        self.number = number
        super().__init__(message)


class Collector:
    """Lets several checks run to their end, and raises all their errors together."""

    def __init__(self) -> None:
        self.errors: list[UserError] = []

    def __enter__(self) -> Collector:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, UserError):
            return False
        if str(error) not in map(str, self.errors):  # several parts of a recipe may want the same
            self.errors.append(error)
        return True

    def raise_if_any(self) -> None:
        """Raise the only error as it is, or all of them as one."""
        if len(self.errors) == 1:
            raise self.errors[0]
        if self.errors:
            problems = [part for error in self.errors for part in getattr(error, "problems", (error,))]
            lines = [f"  {line}" for part in problems for line in str(part).splitlines()]
            raise UserError("\n".join([f"{len(problems)} problems", *lines]))


@contextmanager
def no_panic(place: object, kind: type[Exception] = UserError) -> Iterator[None]:
    """Word the failure of a tokeniser, even a panic, which Python takes for no Exception, as a fault of its file."""
    try:
        yield
    except BaseException as error:
        # The library raises nothing narrower than Exception, and the class of its panics cannot be imported.
        if type(error) is not Exception and type(error).__name__ != "PanicException":
            raise
        raise kind(f"{place}: the tokeniser fails: {str(error)[:200]} → copy the whole folder again") from None


def listed(words: Sequence[str], last: str = "or") -> str:
    """Join words as in a sentence: a, b or c."""
    return f" {last} ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def counted(count: int, noun: str) -> str:
    """Write how many there are of something: 1 row, 2 rows."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def nearest(word: str, known: Iterable[str], otherwise: str | None = None) -> str:
    """Say which known name was probably meant; when none is close, what is given for that, or else list them all."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if close:
        return f'did you mean "{close[0]}"?'
    if otherwise is not None:
        return otherwise
    return f"known: {', '.join(names)}" if names else ""
