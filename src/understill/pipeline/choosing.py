"""The choose stage: of candidates that are to be fine-tuned only the best go on to teach."""

from __future__ import annotations

import math

from understill.disk import write_json
from understill.evaluate.metrics import primary
from understill.events import Chosen, Watch
from understill.pipeline.model_training import read_trained
from understill.pipeline.plan import ChoicePlan, ModelPlan
from understill.targets.ensemble import best


def choose(choice: ChoicePlan, watch: Watch) -> None:
    """Choose among candidates by how they do on dev, and keep the choice."""
    if choice.chosen is None:
        figures = {name: _dev_figures(model) for name, model in choice.candidates.items()}
        with choice.artifact.build() as part:
            write_json(part / "choice.json", {"chosen": best(figures, choice.rule.count, choice.rule.by)})
        watch(Chosen(choice.chosen or (), len(choice.candidates)))


def _dev_figures(model: ModelPlan) -> dict[str, float]:
    """Return what a finished model is compared by on each dev set, higher is better; NaN where it has no score."""
    scores = read_trained(model).scores
    places = {task: scores.get(f"{task.name}/dev") for task in model.tasks}
    return {task.name: primary(task, values) if values else math.nan for task, values in places.items()}
