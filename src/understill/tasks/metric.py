"""Metrics by name: what a metric says of itself; the functions of our own are in `evaluate.metrics`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from understill.errors import UserError
from understill.plugins import Registry

if TYPE_CHECKING:
    from understill.tasks.base import Kind


class Metric:
    """A function of gold and predicted values, and of the rows' queries where rows are grouped, that gives a score."""

    def __init__(self, function: Callable[..., float], kinds: Iterable[str], error: bool = False) -> None:
        self.__wrapped__ = function  # in its file lies what stands for a plug-in in fingerprints
        self.kinds = tuple(kinds)  # names of the kinds it can score
        self.error = error  # less is better, and it is no share of 1

    def __call__(self, *values: Any) -> float:
        """Return the score of the rows."""
        return float(self.__wrapped__(*values))


#: The functions of our own are there once `evaluate.metrics` is imported.
METRICS: Registry[Metric] = Registry(
    "metric",
    "understill.metrics",
    (
        "accuracy",
        "f1",
        "macro_f1",
        "matthews",
        "pearson_spearman",
        "pearson",
        "spearman",
        "mse",
        "precision_at_1",
        "mrr",
    ),
)
#: Our own errors, which are known without their functions.
ERRORS = frozenset({"mse"})


def metric(name: str, kinds: Iterable[str], error: bool = False) -> Callable[[Callable[..., float]], Metric]:
    """Register a metric for tasks of these kinds; `error` says that less is better.

    It is called with gold and predictions of the rows that have gold: class numbers or scores, [rows], or [rows,
    numbers] where a kind has several. Where rows belong to queries, the number of each row's query comes third.
    """

    def register(function: Callable[..., float]) -> Metric:
        return METRICS.register(name)(Metric(function, kinds, error))

    return register


def is_error(name: str) -> bool:
    """Tell whether less is better, as of an error; such a score is no share that could be shown as percent."""
    return name in ERRORS if METRICS.is_own(name) else name in METRICS and METRICS[name].error


def may_score(name: str, kind: Kind) -> bool:
    """Tell whether tasks of a kind may name a metric: one of the kind's own, or one that a plug-in declares for it."""
    return name in kind.metrics or (name in METRICS and not METRICS.is_own(name) and kind.name in METRICS[name].kinds)


def metric_names(kind: Kind) -> list[str]:
    """Return all metrics that tasks of a kind may name; a plug-in that cannot be loaded is passed over."""
    names = [*kind.metrics]
    for name in METRICS:
        with suppress(UserError):
            names += [name] if name not in names and may_score(name, kind) else []
    return names
