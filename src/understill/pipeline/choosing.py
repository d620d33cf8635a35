"""The choose stage: of candidates that are to be fine-tuned only the best go on to teach."""

from __future__ import annotations

import json
import math

from understill.disk import write_json
from understill.evaluate.metrics import primary
from understill.events import Chosen, Watch, silent
from understill.pipeline.locking import alone
from understill.pipeline.plan import ChoicePlan, ModelPlan
from understill.targets.ensemble import best
from understill.tasks import Task


def choose(choice: ChoicePlan, watch: Watch = silent) -> None:
    """Choose among candidates by how they do on dev, and keep the choice."""
    with alone(choice.folder, f"the choice of {choice.rule.count} teachers", watch):
        if choice.chosen is None:
            figures = {
                name: {task.name: dev_figure(model, task) for task in model.tasks}
                for name, model in choice.candidates.items()
            }
            names = best(figures, choice.rule.count, choice.rule.by)
            choice.folder.mkdir(parents=True, exist_ok=True)
            write_json(choice.folder / "choice.json", {"chosen": names})
            watch(Chosen(tuple(name for name in choice.candidates if name in names), len(choice.candidates)))


def dev_figure(model: ModelPlan, task: Task) -> float:
    """Return what a finished model is compared by on a task's dev set, higher is better; NaN where it has no score."""
    facts = json.loads((model.folder / "done.json").read_text(encoding="utf-8"))
    scores = facts["scores"].get(f"{task.name}/dev")
    return primary(task, scores) if scores else math.nan
