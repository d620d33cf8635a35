"""A run with a ranking: teachers, students and fine-tuning, beside another task, and what is left of it afterwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers import joint_targets, same, weights_of
from understill import pipeline
from understill.data.batches import Batches
from understill.data.encode import all_gold
from understill.data.groups import groups_of
from understill.errors import UserError
from understill.estimate import estimate
from understill.evaluate.metrics import score
from understill.events import silent
from understill.inference.loading import load
from understill.models.encoder import load_tokenizer
from understill.models.folder import load_model
from understill.pipeline.dataloader import Tokeniser, make_batches
from understill.pipeline.plan.parts import ModelPlan, Plan, cache_folder, epoch_of, parts_of
from understill.recipe import Recipe


@pytest.fixture
def ranking(make_tiny: Callable[..., Recipe]) -> Callable[..., Recipe]:
    """A function that makes a tiny recipe of mood and answer, with a teacher for each."""

    def make(**changes: Any) -> Recipe:
        known = {"tasks": ["mood", "answer"], "teachers": [{"tasks": "each"}], "targets": {"weak": "keep"}}
        return make_tiny(**{**known, **changes})

    return make


@pytest.mark.parametrize("mode", ["mixed", "one_task"])
def test_a_run_with_a_ranking_gives_a_student_that_scores_the_same_when_loaded(
    mode: str, ranking: Callable[..., Recipe]
) -> None:
    recipe = ranking(training={"steps": 12, "batch": 6, "lr": 1e-3, "evaluate": "6 steps", "batches": mode})
    run = pipeline.run(recipe)
    scores = {model.name: model.scores for model in run.models}
    assert list(scores) == ["teacher-mood", "teacher-answer", "baseline", "student"]
    assert run.majority["answer/dev"] == pytest.approx({"precision_at_1": 1 / 4, "mrr": 25 / 48})
    # Scores that hardly differ may tie as probabilities.
    assert run.teachers["answer/dev"] == pytest.approx(scores["teacher-answer"]["answer/dev"], abs=0.05)
    student = run.models[-1]
    again, tasks = pipeline.evaluate(student.folder, recipe)
    assert again == student.scores and tasks["answer"].kind.name == "ranking"

    kept = pq.read_table(student.folder.parent / "predictions" / "answer.dev.parquet")
    data = pipeline.make_plan(recipe).loaded["answer"].splits["dev"]
    assert kept["group"].to_pylist() == data.table()["group"].to_pylist()
    output = np.array(kept["prediction"].to_pylist())
    assert score(data.task, all_gold(data), output, groups_of(data)) == student.scores["answer/dev"]
    rows = data.table().slice(0, 5).to_pylist()
    answers = load(run.folder / "models" / "student").predict(
        [row["text1"] for row in rows], [row["text2"] for row in rows], ["answer"]
    )
    assert [answer.score for answer in answers["answer"]] == pytest.approx(output[:5].tolist(), abs=1e-5)
    assert answers["answer"][0].label is None


def test_the_soft_targets_of_a_ranking_are_distributions_over_the_candidates(ranking: Callable[..., Recipe]) -> None:
    recipe = ranking(teachers=[{"tasks": "each", "seeds": [0, 1]}], student={"distil": {"temperature": 2}})
    pipeline.run(recipe)
    plan = pipeline.make_plan(recipe)
    (lessons,) = plan.distillations
    output = joint_targets(plan, lessons)["answer", "train"]["logits"]
    groups = groups_of(plan.loaded["answer"].splits["train"])
    assert np.bincount(groups, np.exp(output[:, 0])) == pytest.approx(1, abs=1e-4)
    assert len(np.unique(output)) > len(np.unique(groups)), "teachers tell candidates apart"


def batches_of(plan: Plan, model: ModelPlan, joined: Any = None) -> Batches:
    tokenizer = load_tokenizer(model.start.name, model.start.place)
    tokens = Tokeniser(tokenizer, {"mood": 32, "answer": 32}, cache_folder(plan.recipe), silent)
    return make_batches(plan, model, tokens, joined or {})


def test_candidates_cut_queries_and_make_another_model(make_tiny: Callable[..., Recipe]) -> None:
    plans = [pipeline.make_plan(make_tiny(tasks={"mood": {}, "answer": {"candidates": most}})) for most in (None, 2, 3)]
    assert len({plan.models[0].fingerprint for plan in plans}) == 3
    for plan, most in zip(plans, (4, 2, 3), strict=True):
        batch = batches_of(plan, plan.models[0])[0]
        sizes = batch.group[batch.task == 1].unique(return_counts=True)[1]
        assert set(sizes.tolist()) == {most}
    assert pipeline.run(plans[1].recipe).models[0].scores["answer/dev"]


def test_an_epoch_and_its_time_go_by_queries(make_tiny: Callable[..., Recipe]) -> None:
    recipe = make_tiny(tasks=["mood", "answer"], training={"steps": None, "epochs": 1, "batch": 4})
    study = pipeline.make_study(recipe)
    plan = study.plan
    (model,) = plan.models
    parts = parts_of(model.tasks, plan.loaded, model.settings, {})
    rows = [plan.loaded[name].splits["train"].rows for name in ("mood", "answer")]
    assert [part.units for part in parts] == [rows[0], rows[1] // 4]
    steps = epoch_of(parts, model.settings.training)
    (foreseen,) = estimate(study).values()
    assert batches_of(plan, model).steps_per_epoch == foreseen.steps == steps == sum(part.units for part in parts) / 4


def test_folds_and_fine_tuning_keep_queries_whole(ranking: Callable[..., Recipe]) -> None:
    recipe = ranking(teachers=[{"tasks": "each", "folds": 2}], student={"finetune": {"steps": 2}})
    run = pipeline.run(recipe)
    names = {model.name: model for model in run.models}
    assert {"student", "finetuned-mood", "finetuned-answer"} <= set(names)
    before, after = (
        weights_of(load_model(names[name].folder).model.encoder) for name in ("student", "finetuned-answer")
    )
    assert before.keys() == after.keys() and not same(before, after)
    plan = pipeline.make_plan(recipe)
    folds = [model for model in plan.models if model.fold and model.tasks[0].name == "answer"]
    groups = groups_of(plan.loaded["answer"].splits["train"])
    seen = [set(groups[batches_of(plan, model).streams[0].rows].tolist()) for model in folds]
    assert not set.intersection(*seen) and set.union(*seen) == set(groups.tolist())


def test_what_teachers_say_of_unlabelled_queries_is_learnt(ranking: Callable[..., Recipe]) -> None:
    recipe = ranking(student={"unlabelled": 0.5})
    assert pipeline.run(recipe).models[-1].name == "student"
    plan = pipeline.make_plan(recipe)
    (lessons,) = plan.distillations
    batches = batches_of(plan, plan.models[-1], joint_targets(plan, lessons))
    mood, answer = (stream for stream in batches.streams if stream.share)
    assert (mood.task, answer.task) == (0, 1)
    assert mood.groups is None and answer.groups is not None and np.isnan(answer.sources[0].gold).all()


def candidates(path: Path, queries: range, places: Sequence[int] = (0, 1, 2)) -> Path:
    """Write candidates of these queries, of which the first is right."""
    rows = [(f"question {query} ?", f"answer {query} {place}", place) for query in queries for place in places]
    question, answer, number = zip(*rows, strict=True)
    right = [str(int(place == 0)) for place in number]
    pq.write_table(pa.table({"question": question, "answer": answer, "right": right, "score": number}), path)
    return path


def test_what_teachers_leave_out_of_a_ranking_is_counted_in_queries(
    ranking: Callable[..., Recipe], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train, more = candidates(tmp_path / "train.parquet", range(8)), candidates(tmp_path / "more.parquet", range(8, 12))
    whole = candidates(tmp_path / "whole.parquet", range(2))
    part = candidates(tmp_path / "part.parquet", range(2, 12), places=(1, 2))
    files = {"train": str(train), "dev": str(train), "unlabelled": str(more)}
    own = {**files, "text": ["question", "answer"], "label": "right", "kind": "ranking"}
    teacher = {"name": "llm", "predictions": [str(whole), str(part)]}
    plan = pipeline.make_plan(ranking(tasks={"answer": own}, teachers=[teacher]))
    (lessons,) = plan.distillations
    words = "answer/unlabelled: no teacher scores all candidates of any of its 4 queries → give answers for them"
    with pytest.raises(UserError, match=words):
        joint_targets(plan, lessons)
    warning = "answer/train: no teacher scores all candidates of 6 of 8 queries; they train on gold labels alone"
    assert warning in caplog.messages


def test_a_model_is_not_scored_where_the_other_label_is_right(make_tiny: Callable[..., Recipe], tmp_path: Path) -> None:
    recipe = make_tiny(tasks=["answer"])
    (model,) = pipeline.run(recipe).models
    path = tmp_path / "own.parquet"
    pq.write_table(pipeline.make_plan(recipe).loaded["answer"].splits["dev"].table(), path)
    files = {"train": str(path), "dev": str(path), "text": ["text1", "text2"], "label": "label", "group": "group"}

    def scores(labels: list[str]) -> Any:
        own = make_tiny(tasks={"answer": {**files, "kind": "ranking", "labels": labels}})
        return pipeline.evaluate(model.folder, own)[0]

    assert scores(["0", "1"])["answer/dev"]["precision_at_1"] == model.scores["answer/dev"]["precision_at_1"]
    with pytest.raises(UserError, match='answer does not fit the model, which takes "1" to be right → turn the labels'):
        scores(["1", "0"])
