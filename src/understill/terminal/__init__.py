"""The terminal: progress while something is made, and tables at the end."""

from understill.terminal.comparisons import show_comparisons
from understill.terminal.console import say
from understill.terminal.listings import (
    show_assets,
    show_counts,
    show_data,
    show_runs,
    show_tasks,
    show_verified,
    show_waste,
    show_yaml,
)
from understill.terminal.outputs import (
    show_answers,
    show_bench,
    show_export,
    show_labelled,
    show_predicted,
    show_submission,
)
from understill.terminal.plans import show_asks, show_draft, show_plan, show_scale
from understill.terminal.progress import LiveProgress, counter
from understill.terminal.scores import say_shortfalls, show_run, show_scores
from understill.terminal.studies import show_study

__all__ = [
    "LiveProgress",
    "counter",
    "say",
    "say_shortfalls",
    "show_answers",
    "show_asks",
    "show_assets",
    "show_bench",
    "show_comparisons",
    "show_counts",
    "show_data",
    "show_draft",
    "show_export",
    "show_labelled",
    "show_plan",
    "show_predicted",
    "show_run",
    "show_runs",
    "show_scale",
    "show_scores",
    "show_study",
    "show_submission",
    "show_tasks",
    "show_verified",
    "show_waste",
    "show_yaml",
]
