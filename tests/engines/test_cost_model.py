"""A plan past this machine is arithmetic on measured figures: it can be followed by hand, and the page shows it."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understill.engines import cost_model as scale
from understill.engines.cost_model import Cluster, label_cost, learn_cost, makespan, scale_plan
from understill.errors import UserError
from understill.estimate import Estimate, estimate
from understill.pipeline.plan.planner import make_study
from understill.pipeline.stage import Resources, Stage
from understill.recipe import Recipe

PAGE = Path(__file__).parents[2] / "docs" / "scale.md"
MINILM, THREE = 10_800_000, 5_400_000  # parameters that a token meets
TOKENS = 13.3


def stage(name: str, *needs: str, trains: bool = True) -> Stage:
    """A stage that takes a GPU."""
    return Stage("train", name, name, needs, lambda watch: None, resources=Resources(places=int(trains)))


def test_stages_take_a_gpu_each_and_wait_for_what_they_need() -> None:
    stages = [stage("a"), stage("b"), stage("c"), stage("student", "a", "b", "c")]
    seconds = {"a": 100.0, "b": 60.0, "c": 40.0, "student": 10.0}
    fixed = scale.STAGE + scale.STAGE + scale.START
    assert makespan(stages, seconds, 3) == 100 + 10 + fixed
    assert makespan(stages, seconds, 2) == pytest.approx(100 + 10 + fixed + scale.STAGE, abs=1)
    assert makespan(stages, seconds, 1) == 200 + 10 + 4 * scale.STAGE + scale.START


@given(st.lists(st.floats(0, 1e4), min_size=1, max_size=12), st.integers(1, 20))
def test_no_schedule_is_shorter_than_its_longest_stage_or_its_share(times: list[float], gpus: int) -> None:
    stages = [stage(str(number)) for number in range(len(times))]
    clock = makespan(stages, {str(number): time for number, time in enumerate(times)}, gpus)
    assert clock >= max(max(times), sum(times) / gpus)
    assert clock <= sum(times) / gpus + max(times) + len(times) * scale.STAGE + scale.START


def test_a_billion_sentences_take_two_gpu_hours_from_text() -> None:
    cost = label_cost(Cluster(gpus=1, rows=1e9), TOKENS, MINILM)
    assert cost.hours == pytest.approx(1e9 * TOKENS / 2.0e6 / 3600, rel=1e-2)
    assert cost.bound.startswith("tokenising")
    assert cost.what == "label 1e+09 rows in 1,000 shards"
    assert cost.bytes == 1e9 * (TOKENS * 2.9 + 5 * 4)
    wide = label_cost(Cluster(gpus=1, rows=1e9), TOKENS, 100 * MINILM)
    assert wide.bound == "multiplications" and wide.hours > cost.hours


def test_more_gpus_take_less_time_and_no_less_money() -> None:
    costs = [label_cost(Cluster(gpus=gpus, rows=1e9), TOKENS, MINILM) for gpus in (1, 8, 64)]
    assert costs[0].hours > costs[1].hours > costs[2].hours
    assert costs[0].gpu_hours <= costs[1].gpu_hours <= costs[2].gpu_hours


def test_what_does_not_fit_into_memory_is_said() -> None:
    student = Estimate(0, TOKENS, 0, inner=THREE)
    assert learn_cost(Cluster(64, 1e8), student).bound == "multiplications"
    assert learn_cost(Cluster(64, 1e11), student).bound == f"memory: {100 * scale.ROW:,.0f} GB on every machine"


def test_a_recipe_is_planned_with_all_its_models(make_tiny: Callable[..., Recipe]) -> None:
    study = make_study(make_tiny(teachers=[{"tasks": "each"}], student={}, targets={"weak": "keep"}))
    times = estimate(study)
    train, label, learn = scale_plan(study, times, Cluster(gpus=4, rows=1e6))
    assert train.what == "train 5 models"
    assert 0 < train.gpu_hours < train.hours  # five models of six steps wait for their workers
    assert label.what == "label 1e+06 rows in 1 shards" and learn.gpu_hours > 0
    assert all(math.isfinite(cost.hours) and cost.bytes > 0 for cost in (train, label, learn))


def test_what_cannot_be_planned_for_is_refused() -> None:
    assert Cluster.parse("gpus=64, rows=1e9,price=2.5") == Cluster(64, 1e9, 2.5)
    for text, message in (
        ("gpu=8", 'there is no "gpu" → did you mean "gpus"'),
        ("gpus=many", "this is no number above 0 → write gpus=64"),
        ("gpus=0", "no number above 0"),
        ("rows=inf", "no number above 0"),
    ):
        with pytest.raises(UserError, match=message):
            Cluster.parse(text)


def page_table() -> list[str]:
    """The lines of the page's table."""
    lines = [
        "| rows | GPUs | labelling | learning once | GPU hours | money | written |",
        "|---|---|---|---|---|---|---|",
    ]
    for rows, power in ((1e9, "10⁹"), (1e11, "10¹¹")):
        for gpus in (1, 8, 64):
            cluster = Cluster(gpus, rows)
            label, learn = label_cost(cluster, TOKENS, MINILM), learn_cost(cluster, Estimate(0, TOKENS, 0, inner=THREE))
            spent = label.gpu_hours + learn.gpu_hours
            written = f"{(label.bytes + learn.bytes) / 1e12:.2g} TB"
            hours = (f"{each.hours:,.3g} h" for each in (label, learn))
            lines.append(f"| {power} | {gpus} | {' | '.join(hours)} | {spent:,.0f} | {3 * spent:,.0f} | {written} |")
    return lines


def test_the_page_shows_what_the_model_gives() -> None:
    shown = PAGE.read_text(encoding="utf-8").partition("<!-- scale:begin -->\n")[2].partition("<!-- scale:end -->")[0]
    assert shown.splitlines() == page_table()
