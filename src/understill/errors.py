"""What can go wrong by the user's hand, in words the user can act on."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


class UserError(Exception):
    """A mistake the user can mend; the message says how, and the program exits with 2."""


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


class DataError(Problems):
    """Rows or files that cannot be used as they stand."""


class TrainingError(UserError):
    """Training cannot go on, for instance because the loss is no longer a number."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Say which known name was probably meant, or list them all when none is close."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if close:
        return f'did you mean "{close[0]}"?'
    return f"known: {', '.join(names)}" if names else ""
