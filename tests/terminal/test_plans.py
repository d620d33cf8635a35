"""A plan says what would run, how long it takes, and what can be exported."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from terminal_cases import rows

from understill.data.recipe_draft import Draft
from understill.estimate import Estimate
from understill.pipeline import make_study, train_models
from understill.recipe import Recipe
from understill.terminal import plans


def test_a_plan_says_what_would_run_and_how_long(make_tiny: Callable[..., Recipe], shown: io.StringIO) -> None:
    recipe = make_tiny(tasks=["mood", "similar"], models="each")
    plan = make_study(recipe).plan
    train_models(plan, plan.models[:1])
    study = make_study(recipe)
    plans.show_plan(study, {"similar": Estimate(1234, 32.0, 125.0)})
    stages = [
        ["tokenise", "mood", "", "done", "", ""],
        ["train", "mood", "mood", "done", "", ""],
        ["evaluate", "mood", "", "done", "", ""],
        ["tokenise", "similar", "", "to be made", "", ""],
        ["train", "similar", "similar", "to be trained", "1,234", "2 min 05 s"],
        ["evaluate", "similar", "", "to be scored", "", ""],
    ]
    assert rows(shown)[2:8] == stages and rows(shown)[8][0] == "probe"
    message = "recipe and data are fine; training would take about 2 min 05 s here"
    assert shown.getvalue().endswith(f"{message} (estimated from sizes; --time measures real steps)\n")
    assert "┃ about" in shown.getvalue()
    plans.show_plan(study, {"similar": Estimate(1234, 32.0, 125.0, timed=True)})
    assert shown.getvalue().endswith(f"{message} (measured on real steps of each model)\n")
    assert "┃ timed" in shown.getvalue()
    plans.show_plan(study, {})
    assert shown.getvalue().endswith("nothing is left to train\n")
    plans.show_plan(study)
    table = shown.getvalue()[shown.getvalue().rindex("stages") :]
    assert re.search(rf"│ train +│ similar +│ similar +│ to be trained +│ {plan.models[1].folder.name} ", table)
    assert table.endswith("nothing was run; 1 of 2 models are to be trained\n")


@pytest.mark.parametrize(("pairs", "texts"), [(False, '--text "…"'), (True, '--text "…" --second "…"')])
def test_a_draft_says_how_its_model_is_asked(pairs: bool, texts: str, shown: io.StringIO) -> None:
    plans.show_draft(Path("recipe.yaml"), Draft("faq", "", (), (), pairs))
    assert shown.getvalue().endswith(f"  understill predict runs/faq {texts}\n")


def test_a_checked_recipe_says_what_its_model_can_be_exported_to(
    make_tiny: Callable[..., Recipe], shown: io.StringIO
) -> None:
    plain = "export --to onnx: all tasks\nexport --to int8: all tasks\n"
    for changes, message in (
        ({}, "mood, follows, similar, for transformers.pipeline()"),
        ({"encoder": {"pooling": "mean"}}, "mood, follows, similar, for sentence-transformers"),
        (
            {"heads": {"pairs": "siamese"}},
            "mood, for transformers.pipeline(); not follows, which reads its texts apart, "
            "nor similar, which reads its texts apart",
        ),
        ({"encoder": {"name": "static"}}, "no task, since it has no classifier for a network over words"),
    ):
        shown.truncate(0)
        plans.show_plan(make_study(make_tiny(**changes)), {})
        assert f"export --to huggingface: {message}\n{plain}" in shown.getvalue()
