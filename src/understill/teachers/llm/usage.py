"""Usage: what a language model's answers took, what could not be read, and what further ones would take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from understill.recipe.schema import LlmServer
from understill.teachers.llm.cache import LlmReply

#: Examples of unreadable answers that are kept, and characters of each.
KEPT, CUT = 10, 300


#: What is added up over splits.
_COUNTS = ("rows", "requests", "tokens_in", "tokens_out", "seconds", "cost", "probabilities", "silences")


def merged(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Add up what was asked about several splits."""
    sums = {name: sum(part[name] for part in parts) if parts[0][name] is not None else None for name in _COUNTS}
    examples = [example for part in parts for example in part["examples"]][:KEPT]
    return {"model": parts[0]["model"], **sums, "examples": examples}


@dataclass
class Usage:
    """What was asked for some rows, whether it was paid for now or before."""

    rows: int = 0
    requests: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0  # of all requests, added up
    probabilities: int = 0  # rows whose answer came with log-probabilities
    silences: int = 0
    examples: list[list[Any]] = field(default_factory=list)  # texts of a row, and what was answered

    def add(self, replies: Sequence[LlmReply], answered: bool = True) -> None:
        """Count the requests about one row."""
        self.rows += answered
        self.requests += len(replies)
        self.tokens_in += sum(reply.tokens_in for reply in replies)
        self.tokens_out += sum(reply.tokens_out for reply in replies)
        self.seconds += sum(reply.seconds for reply in replies)
        self.probabilities += bool(replies[-1].tops) and answered

    def silent(self, texts: Sequence[str], reply: str) -> None:
        """Count a row whose answer cannot be read, or that got none, and keep the first few."""
        self.silences += 1
        if len(self.examples) < KEPT:
            self.examples.append([[text[:CUT] for text in texts], reply[:CUT]])

    def facts(self, settings: LlmServer) -> dict[str, Any]:
        """Return it as plain values, for the record of a run."""
        return {
            "model": settings.model,
            "rows": self.rows,
            "requests": self.requests,
            "tokens_in": self.tokens_in,
            "tokens_out": self.tokens_out,
            "seconds": self.seconds / settings.concurrency,  # so many at a time
            "cost": settings.cost(self.tokens_in, self.tokens_out),
            "probabilities": self.probabilities,
            "silences": self.silences,
            "examples": [*self.examples],
        }
