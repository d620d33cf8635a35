"""The verdict on a teacher: how well it does on rows with gold, and what seems to be wrong with it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from understill.evaluate.metrics import best_constant, primary, score
from understill.evaluate.predict import settled
from understill.inference.predictor import Predictions
from understill.tasks import METRICS, Task
from understill.tasks.metric import is_error
from understill.teachers.guess_test import p_against_guess
from understill.teachers.protocol import Floats, Logits

#: A correlation from here on means that the scores are about the right thing.
CORRELATED = 0.5
#: From this p-value on, a lead over guessing may be chance.
SURE = 0.05
GUESSES = (
    "on {rows:,} rows that is no better than guessing (p = {p:.2f}, one-sided); "
    "try another model or prompt or, if you think it is good, show it with more labelled rows"
)


@dataclass(frozen=True)
class Verdict:
    """How well a teacher knows a task."""

    score: float | None  # by the task's first metric, higher is better; None where no row could be scored
    scores: dict[str, float]
    guess: float | None  # the same of the best constant answer to these rows; of rankings, of a random order
    fault: str  # what is wrong with it; empty where it is fine


def examine(
    task: Task,
    gold: NDArray[np.floating],
    logits: Logits,
    train_gold: NDArray[np.floating],
    split: str = "dev",
    groups: NDArray[np.int64] | None = None,
    *,
    surely: bool = False,
) -> Verdict:
    """Score a teacher on the rows with gold that it answers; it must beat the best guess there, `surely` beyond chance.

    A ranking's `groups` are the numbers of its rows' queries; a query counts where all its rows are answered.
    """
    known = task.kind.counted(settled(gold.astype(np.float64), logits), groups)
    groups = None if groups is None else groups[known]
    if not known.any():
        return Verdict(None, {}, None, "")
    true, predicted = gold[known].astype(np.float64), Predictions(task, logits[known]).values
    train = true if np.isnan(train_gold).all() else train_gold.astype(np.float64)
    scores, (constant, guess) = score(task, true, predicted, groups), best_constant(task, true, groups)
    reached, floor = primary(task, scores), primary(task, guess)
    if groups is not None:
        reason = _upside_down(task, true, predicted, groups, floor)
    elif task.kind.has_classes:
        reason = _mixed_up(task, true, predicted, floor)
    else:
        reason = _strange_scale(true, predicted, train) if true.ndim == 1 else ""
    if not reason and surely:
        p = p_against_guess(task, true, predicted, constant, groups)
        reason = GUESSES.format(rows=len(true), p=p) if p >= SURE or reached <= floor else ""
    elif not reason and reached <= floor and (true != constant).any():  # rows of one answer tell nothing
        reason = "it has not learnt the task: train it longer, or check that it is a model for this task"
    name, what = task.metrics[0], "a random order" if task.kind.grouped else "the best constant answer"
    fault = f"{name} {_shown(name, scores)} on {split}, where {what} has {_shown(name, guess)}: {reason}"
    return Verdict(reached, scores, floor, fault if reason else "")


def _shown(metric: str, scores: dict[str, float]) -> str:
    """Show a score as the tables do: ×100, save for an error."""
    return f"{scores[metric]:.3f}" if is_error(metric) else f"{100 * scores[metric]:.1f}"


def _by_chance(count: int) -> float:
    """Return how much better some other reading of a mere guesser's outputs may fit."""
    return float(max(0.1, 3.5 / np.sqrt(count)))


def _mixed_up(task: Task, gold: Floats, predicted: Floats, floor: float) -> str:
    """Say which labels seem to stand for which others, where another order of the outputs fits far better."""
    counts = np.zeros((task.outputs, task.outputs), np.int64)  # [predicted, gold]
    np.add.at(counts, (predicted.astype(np.int64), gold.astype(np.int64)), 1)
    meant = linear_sum_assignment(counts, maximize=True)[1]
    gain = (counts[np.arange(task.outputs), meant].sum() - np.trace(counts)) / len(gold)
    turned = score(task, gold, meant[predicted.astype(np.int64)].astype(np.float64))
    if gain <= _by_chance(len(gold)) or primary(task, turned) <= floor:
        return ""
    pairs = ", ".join(f"{task.labels[here]}: {task.labels[there]}" for here, there in enumerate(meant))
    reach = _shown(task.metrics[0], turned)
    return (
        f"its labels seem to be permuted; with the mapping below it would score {reach}; if its names are wrong, "
        f"write labels: {{{pairs}}}, with its own name on the left of each colon"
    )


def _upside_down(task: Task, gold: Floats, predicted: Floats, groups: NDArray[np.int64], floor: float) -> str:
    """Say that a ranking seems to be meant the other way round, where that would fit far better."""
    upright, turned = score(task, gold, predicted, groups), score(task, gold, -predicted, groups)
    gain = primary(task, turned) - primary(task, upright)
    if gain <= _by_chance(len(np.unique(groups))) or primary(task, turned) <= floor:
        return ""
    reach = _shown(task.metrics[0], turned)
    return f"its scores seem to be inverted; negated they would score {reach}: higher must mean better"


def _strange_scale(gold: Floats, predicted: Floats, train: Floats) -> str:
    """Say that scores are on another scale, where they go with the gold but lie further off than the mean does."""
    mse, mean = METRICS["mse"], np.full(len(gold), np.nanmean(train), np.float64)
    if mse(gold, predicted) <= mse(gold, mean) or METRICS["pearson"](gold, predicted) < CORRELATED:
        return ""
    return (
        f"its scores go from {predicted.min():g} to {predicted.max():g}, those of the task from {gold.min():g} to "
        f"{gold.max():g}: they seem to be on another scale; bring them onto the task's, in a file of predictions"
    )
