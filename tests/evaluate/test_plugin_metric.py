"""A metric that is one file elsewhere is named in a recipe, chosen by, evaluated, compared by and reported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from plugins import within_one
from understill import numbers, pipeline
from understill.errors import RecipeError, UserError
from understill.evaluate.agreement import retention
from understill.evaluate.metrics import majority, primary, score
from understill.pipeline.comparison import compare
from understill.recipe import Recipe
from understill.report.build import build
from understill.report.html import to_html
from understill.report.sections import sections
from understill.tasks import KINDS, METRICS, Metric, Task, metric
from understill.tasks.metric import is_error

RANKED = Task("ranked", "ranking", ("a", "b"), "label", ("wrong", "right"), metrics=("accuracy", "last_right"))


@pytest.fixture(autouse=True)
def plugged(no_plugins: None) -> None:
    METRICS.register("within_one")(within_one.within_one)


def test_it_scores_a_run_from_recipe_to_report(make_tiny: Callable[..., Recipe]) -> None:
    recipe = make_tiny(tasks={"similar": {"metrics": ["within_one", "pearson"]}})
    run = pipeline.run(recipe)
    (model,) = run.models
    scores = model.scores["similar/dev"]
    assert list(scores) == ["within_one", "pearson"] and 0 <= scores["within_one"] <= 1
    again, _ = pipeline.evaluate(model.folder, recipe)
    assert again["similar/dev"] == scores
    (comparison,) = compare([str(run.folder), str(run.folder)])
    assert comparison.compared[0].metric == "within_one" and comparison.compared[0].difference.delta == 0
    page = to_html("tiny", sections(build(run.folder, recipe, timing=False)))
    assert "within_one" in page and numbers.score("within_one", scores["within_one"]) in page


def test_it_is_refused_for_kinds_it_does_not_score(make_tiny: Callable[..., Recipe]) -> None:
    with pytest.raises(UserError, match='"within_one" is no metric for classification'):
        pipeline.make_plan(make_tiny(tasks={"mood": {"metrics": ["within_one"]}}))
    own = {"train": "a.csv", "text": "text", "label": "score", "kind": "regression"}
    with pytest.raises(RecipeError, match='"within_ten" is no metric for regression → did you mean "within_one"'):
        make_tiny(tasks={"stars": {**own, "metrics": ["within_ten"]}})
    assert make_tiny(tasks={"stars": {**own, "metrics": ["within_one"]}}).tasks["stars"].metrics == ("within_one",)


def test_its_source_is_part_of_what_names_a_model(make_tiny: Callable[..., Recipe]) -> None:
    named = [pipeline.make_plan(make_tiny(tasks={"similar": {"metrics": ["within_one"]}})).models[0].fingerprint]
    other: Any = Metric(lambda gold, predicted: 0.0, ["regression"])
    METRICS.register("within_one")(other)  # of another file: this one
    named.append(pipeline.make_plan(make_tiny(tasks={"similar": {"metrics": ["within_one"]}})).models[0].fingerprint)
    assert len(set(named)) == 2


def test_one_that_is_an_error_is_better_when_it_is_less() -> None:
    off = Metric(lambda gold, predicted: float(abs(gold - predicted).mean()), ["regression"], error=True)
    METRICS.register("off")(off)
    task = Task("stars", KINDS["regression"], ("text",), "label", range=(0.0, 5.0), metrics=("off",))
    scores = score(task, np.array([1.0, 2.0]), np.array([2.0, 4.0]))
    assert (scores, primary(task, scores), is_error("off")) == ({"off": 1.5}, -1.5, True)
    assert numbers.score("off", 1.5) == "1.500"
    assert retention(scores, scores) == {}


def test_one_for_rankings_gets_the_queries_and_chance_is_a_mean_over_orders() -> None:
    def last_right(gold: Any, predicted: Any, groups: Any) -> float:
        """Return how often the candidate with the lowest score is right."""
        ends = [np.flatnonzero(groups == number) for number in np.unique(groups)]
        return float(np.mean([gold[rows[predicted[rows].argmin()]] for rows in ends]))

    metric("last_right", kinds=["ranking"])(last_right)
    gold, groups = np.array([1.0, 0, 0, 1, 0, np.nan]), np.array([7, 7, 3, 3, 5, 5])
    result = score(RANKED, gold, np.array([1.0, 2, 3, 4, 5, 6]), groups)
    assert result == {"accuracy": 0.5, "last_right": 0.5}, "queries without a choice, or without gold, do not count"
    guess = majority(RANKED, gold, gold, groups)
    assert guess["accuracy"] == 0.5 and guess["last_right"] == pytest.approx(0.5, abs=0.15)


def test_a_name_of_ours_is_taken() -> None:
    with pytest.raises(UserError, match='understill has a metric "accuracy" of its own'):
        metric("accuracy", kinds=["regression"])(lambda gold, predicted: 1.0)
