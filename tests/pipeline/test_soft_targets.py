"""A distillation run: teachers first, soft targets once, a student and its baseline, and only what must be rerun."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from helpers import joint_targets, same, weights_of
from understill import pipeline
from understill.data import demo
from understill.errors import UserError
from understill.events import Labelling, TrainingState
from understill.inference.loading import load
from understill.losses.fused import FusedObjective
from understill.models.encoder import load_encoder, load_tokenizer
from understill.models.folder import load_model
from understill.pipeline import train_models
from understill.pipeline.plan.parts import ModelPlan, Plan
from understill.pipeline.teacher_selection import select_teachers
from understill.recipe import Recipe, load_recipe, make_recipe
from understill.teachers.folds import fold_of

ROOT = Path(__file__).parents[2]
KEEP = {"weak": "keep"}  # after six steps no tiny teacher is better than the majority guess


@pytest.fixture
def distil(make_tiny: Callable[..., Recipe]) -> Callable[..., Recipe]:
    """A function that makes a tiny recipe with a teacher for each task."""

    def make(**changes: Any) -> Recipe:
        return make_tiny(**{"teachers": [{"tasks": "each"}], "targets": KEEP, **changes})

    return make


def named(plan: Plan, name: str) -> ModelPlan:
    (model,) = pipeline.pick_models(plan, (name,))
    return model


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return weights_of(load_model(folder).model)


def rows_file(path: Path, rows: Sequence[Sequence[Any]], *header: str) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def mood_rows(split: str, count: int) -> list[tuple[str, str]]:
    (batch,) = demo.batches("mood", split, count, 0)
    labels = batch.column("label").to_pylist() if split != "unlabelled" else [""] * count
    return list(zip(batch.column("message").to_pylist(), labels, strict=True))


# What a run does ------------------------------------------------------------------------------------------------------


def test_a_run_trains_teachers_baseline_and_student_and_says_how_each_does(distil: Callable[..., Recipe]) -> None:
    run = pipeline.run(distil())
    roles = [(model.name, model.role) for model in run.models]
    assert roles == [
        ("teacher-mood", "teacher"),
        ("teacher-follows", "teacher"),
        ("teacher-similar", "teacher"),
        ("baseline", "baseline"),
        ("student", "student"),
    ]
    teachers = {place: values for model in run.models[:3] for place, values in model.scores.items()}
    assert {place: pytest.approx(values, abs=1e-6) for place, values in run.teachers.items()} == teachers
    record = json.loads((run.folder / "run.json").read_text())
    assert record["state"] == "done"
    assert record["models"]["student"]["role"] == "student"
    kinds = sorted(name.split("-")[0] for name in record["uses"])
    assert kinds == ["model"] * 5 + ["probe"] * 3 + ["targets"] * 3 + ["verdict"] * 3


def test_a_second_run_trains_and_labels_nothing(distil: Callable[..., Recipe]) -> None:
    first = pipeline.run(distil())
    events: list[object] = []
    assert pipeline.run(distil(), events.append).models == first.models
    assert {event.state for event in events if isinstance(event, TrainingState)} == {"done"}
    assert not any(isinstance(event, Labelling) for event in events)


def test_another_rate_of_the_student_retrains_only_the_student(distil: Callable[..., Recipe]) -> None:
    pipeline.run(distil())
    plan = pipeline.make_plan(distil(student={"training": {"lr": 2e-3}}))
    todo = [model.name for model in plan.models if not model.done]
    assert todo == ["baseline", "student"], "the baseline is the same student without teachers"
    assert all(targets.done for targets in plan.targets)
    events: list[object] = []
    pipeline.run(plan.recipe, events.append)
    assert [event.model for event in events if isinstance(event, TrainingState) and event.state == "new"] == todo
    assert not any(isinstance(event, Labelling) for event in events)


@pytest.mark.parametrize(
    "change",
    [
        {"student": {"distil": {"temperature": 3}}},
        {"student": {"distil": {"anneal": 0.5}}},
        {"student": {"distil": {"loss": "logits", "anneal": "none"}}},
        {"student": {"distil": {"tasks": {"mood": {"soft": 2}}}}},
        {"targets": {**KEEP, "combine": "geometric_mean"}},
        {"targets": {**KEEP, "weights": "dev"}},
        {"targets": {**KEEP, "best": {"count": 1}}},
        {"targets": {"weak": "leave_out"}},
    ],
    ids=str,
)
def test_one_table_serves_every_rule_and_temperature(distil: Callable[..., Recipe], change: dict[str, Any]) -> None:
    usual, changed = pipeline.make_plan(distil()), pipeline.make_plan(distil(**change))
    assert [targets.folder for targets in changed.targets] == [targets.folder for targets in usual.targets]
    assert named(changed, "student").folder != named(usual, "student").folder
    assert named(changed, "baseline").folder == named(usual, "baseline").folder
    assert named(changed, "teacher-mood").folder == named(usual, "teacher-mood").folder


@pytest.mark.parametrize(
    "change",
    [
        {"teachers": [{"tasks": "each", "training": {"lr": 2e-3}}]},
        {"teachers": [{"tasks": "together"}]},
        {"teachers": [{"tasks": "each", "seeds": [1]}]},
        {"teachers": [{"tasks": "each", "seeds": 2}]},
        {"teachers": [{"tasks": "each", "folds": 2}]},
        {"targets": {**KEEP, "dtype": "float32"}},
    ],
    ids=str,
)
def test_other_teachers_or_another_precision_make_other_tables(
    distil: Callable[..., Recipe], change: dict[str, Any]
) -> None:
    usual, changed = pipeline.make_plan(distil()), pipeline.make_plan(distil(**change))
    assert not {targets.folder for targets in changed.targets} & {targets.folder for targets in usual.targets}
    assert named(changed, "baseline").folder == named(usual, "baseline").folder


def test_recipes_that_ask_for_the_same_model_share_it(
    distil: Callable[..., Recipe], make_tiny: Callable[..., Recipe]
) -> None:
    plain, single = pipeline.make_plan(make_tiny()), pipeline.make_plan(make_tiny(models="each"))
    plan = pipeline.make_plan(distil())
    assert named(plan, "baseline").folder == named(plain, "multi").folder
    assert named(plan, "teacher-mood").folder == named(single, "mood").folder


def test_a_baseline_can_be_turned_off(distil: Callable[..., Recipe]) -> None:
    plan = pipeline.make_plan(distil(student={"baseline": False}))
    assert [model.role for model in plan.models] == ["teacher"] * 3 + ["student"]


# Bit for bit ----------------------------------------------------------------------------------------------------------


def test_with_all_weight_on_gold_the_student_is_its_baseline_bit_for_bit(distil: Callable[..., Recipe]) -> None:
    run = pipeline.run(distil(student={"distil": {"anneal": 1}}, training={"keep": "last"}))
    folders = {model.name: model.folder for model in run.models}
    assert same(weights(folders["student"]), weights(folders["baseline"]))
    other = pipeline.run(distil(student={"distil": {"anneal": 0.9}}, training={"keep": "last"}))
    assert not same(weights(other.models[-1].folder), weights(folders["baseline"]))


def test_with_no_weight_on_gold_the_labels_do_not_matter(tmp_path: Path, recipe_values: dict[str, Any]) -> None:
    """Two students with opposite gold labels and the same teacher: pure distillation makes them equal bit for bit."""
    rows = mood_rows("train", 40)
    output = rows_file(
        tmp_path / "said.csv", [(text, 0.2 + index % 7 / 10) for index, (text, _) in enumerate(rows)], "t", "a"
    )
    turn = {"calm": "upset", "upset": "calm"}
    kept = []
    for number, turned in enumerate((False, True)):
        mine = [(text, turn[label] if turned else label) for text, label in rows]
        train = rows_file(tmp_path / f"train{number}.csv", mine, "t", "label")
        dev = rows_file(tmp_path / "dev.csv", mood_rows("dev", 20), "t", "label")
        values = {
            **recipe_values,
            "tasks": {"mood": {"train": str(train), "dev": str(dev), "text": "t", "label": "label"}},
            "training": {"steps": 5, "batch": 8, "lr": 1e-3, "keep": "last"},
            "teachers": [{"predictions": str(output), "labels": {"a": "calm", "b": "upset"}}],
            "targets": KEEP,
            "student": {"distil": {"anneal": 0, "temperature": 2}, "baseline": False},
        }
        said_rows = [(text, score, 1 - score) for (text, _), score in zip(rows, _scores(output), strict=True)]
        rows_file(tmp_path / "said.csv", said_rows, "t", "a", "b")
        kept.append(weights(pipeline.run(make_recipe(values)).models[-1].folder))
    assert same(*kept)


def _scores(path: Path) -> list[float]:
    with path.open(encoding="utf-8", newline="") as file:
        return [float(row["a"]) for row in csv.DictReader(file)]


def test_a_float16_table_reproduces_training_within_rounding(distil: Callable[..., Recipe]) -> None:
    # With a large eps a step is as long as its gradient. Adam would make full steps of what is nothing but rounding.
    student = {"distil": {"anneal": 0}, "baseline": False, "training": {"eps": 1.0, "lr": 1.0}}
    runs = [pipeline.run(distil(targets={**KEEP, "dtype": dtype}, student=student)) for dtype in ("float16", "float32")]
    half, full = (weights(run.models[-1].folder) for run in runs)
    assert not same(half, full)
    start = weights_of(load_encoder(distil().encoder))
    apart = sum(float((half[f"encoder.{name}"] - full[f"encoder.{name}"]).square().sum()) for name in start)
    moved = sum(float((full[f"encoder.{name}"] - value).square().sum()) for name, value in start.items())
    assert (apart / moved) ** 0.5 < 0.002


def test_a_student_that_was_stopped_goes_on_to_the_same_bits(
    distil: Callable[..., Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = distil(training={"steps": 6, "checkpoint": "1 steps"}, student={"baseline": False})
    whole = weights(pipeline.run(recipe).models[-1].folder)
    again = recipe.model_copy(
        update={"output": recipe.output.model_copy(update={"folder": str(recipe.output.path.with_name("again"))})}
    )
    plan = pipeline.make_plan(again)
    for model in plan.models[:-1]:
        train_models(plan, [model])
    usual, count = FusedObjective.forward, 0

    def fails(self: FusedObjective, *args: Any, **settings: Any) -> Any:
        nonlocal count
        count += 1
        if count == 4:
            raise KeyboardInterrupt
        return usual(self, *args, **settings)

    monkeypatch.setattr(FusedObjective, "forward", fails)
    with pytest.raises(KeyboardInterrupt):
        train_models(plan, plan.models[-1:])
    monkeypatch.undo()
    assert plan.models[-1].started and not plan.models[-1].done
    assert same(weights(pipeline.run(again).models[-1].folder), whole)


# Teachers -------------------------------------------------------------------------------------------------------------


def test_shuffling_the_training_file_leaves_each_rows_targets_as_they_were(
    tmp_path: Path, recipe_values: dict[str, Any], tiny: Path
) -> None:
    rows = mood_rows("train", 50)
    dev = rows_file(tmp_path / "dev.csv", mood_rows("dev", 20), "t", "label")
    output = rows_file(
        tmp_path / "said.csv", [(text, index, -index) for index, (text, _) in enumerate(rows)], "t", "calm", "upset"
    )
    result = []
    for order in (range(50), np.random.default_rng(0).permutation(50)):
        train = rows_file(tmp_path / "train.csv", [rows[place] for place in order], "t", "label")
        values = {
            **recipe_values,
            "tasks": {"mood": {"train": str(train), "dev": str(dev), "text": "t", "label": "label"}},
            "teachers": [{"predictions": str(output)}],
            "targets": {**KEEP, "dtype": "float32"},
        }
        plan = pipeline.make_plan(make_recipe(values))
        lessons = named(plan, "student").distillation
        assert lessons
        texts = plan.loaded["mood"].splits["train"].table().column("text1").to_pylist()
        result.append(dict(zip(texts, joint_targets(plan, lessons)["mood", "train"]["logits"].tolist(), strict=True)))
    assert result[0] == result[1]
    assert len(result[0]) == 50


def test_a_model_of_a_fold_never_sees_the_rows_it_labels(distil: Callable[..., Recipe], tmp_path: Path) -> None:
    plan = pipeline.make_plan(distil(teachers=[{"tasks": "each", "folds": 3}]))
    data = plan.loaded["mood"].splits["train"]
    folds = fold_of(data, 3)
    for number in range(3):
        model = named(plan, f"teacher-mood-fold{number + 1}")
        tokenizer = load_tokenizer(model.start.name, model.start.place)
        tokens = pipeline.Tokeniser(tokenizer, {"mood": 32}, tmp_path, lambda event: None)
        batches = pipeline.make_batches(plan, model, tokens, {})
        seen = {int(row) for step in range(3 * batches.steps_per_epoch) for row in batches.rows(step).row}
        assert seen == set(np.flatnonzero(folds != number).tolist())


def test_folds_do_not_begin_with_a_teacher_that_has_seen_all_rows(distil: Callable[..., Recipe]) -> None:
    def plan(**second: Any) -> Plan:
        teachers = [{"name": "one", "tasks": ["mood"]}, {"name": "two", "encoder": {"name": "one"}, **second}]
        return pipeline.make_plan(distil(teachers=teachers))

    with pytest.raises(UserError, match=r"teacher two: its folds .* and one has seen all of mood → leave folds out"):
        plan(folds=2, tasks=["mood", "follows"])
    assert len(plan(folds=2, tasks=["follows"]).targets) == 2, "which rows of other tasks it has seen does not matter"
    assert len(plan(folds=2, tasks=["mood", "follows"], teaches=["follows"]).targets) == 2
    plan(tasks=["mood"])


def test_out_of_fold_targets_are_those_of_the_model_that_has_not_seen_the_row(distil: Callable[..., Recipe]) -> None:
    recipe = distil(tasks=["mood"], teachers=[{"folds": 2}], targets={**KEEP, "dtype": "float32"})
    pipeline.run(recipe)
    plan = pipeline.make_plan(recipe)
    (targets,) = plan.targets
    data = plan.loaded["mood"].splits["train"]
    table = pq.read_table(targets.folder / "targets.parquet")
    stored = dict(zip(table["id"].to_pylist(), table["logits_0"].to_pylist(), strict=True))
    folds, rows = fold_of(data, 2), data.table()
    for number in range(2):
        predictor = load(named(plan, _fold(plan, number)).folder / "model")
        mine = np.flatnonzero(folds == number)
        texts = [rows["text1"][int(row)].as_py() for row in mine]
        answers = predictor.logits(texts, None, predictor.tasks)["mood"].logits
        for row, answer in zip(mine, answers, strict=True):
            assert stored[rows["id"][int(row)].as_py()] == pytest.approx(answer.tolist(), abs=1e-5)


def _fold(plan: Plan, number: int) -> str:
    return next(model.name for model in plan.models if model.fold and model.fold.number == number)


def test_weak_teachers_stop_the_run_with_their_scores_and_nothing_is_labelled(distil: Callable[..., Recipe]) -> None:
    recipe = distil(targets={"weak": "stop"}, training={"steps": 1, "lr": 1e-9}, tasks=["mood", "follows"])
    with pytest.raises(UserError, match=r"teachers should not teach; targets\.weak: leave_out") as reported:
        pipeline.run(recipe)
    assert "  teacher of mood: " in str(reported.value) and "the best constant answer has " in str(reported.value)
    assert not any(targets.done for targets in pipeline.make_plan(recipe).targets)


def test_a_task_whose_teachers_are_left_out_learns_from_gold(
    distil: Callable[..., Recipe], caplog: pytest.LogCaptureFixture
) -> None:
    still = {"training": {"steps": 1, "lr": 1e-9}}
    mine = {"models": "each", "targets": {"weak": "leave_out"}, "training": {"keep": "last"}}
    with pytest.raises(UserError, match="no teacher is left"):
        pipeline.run(distil(**mine, teachers=[still], tasks=["mood"]))
    assert "is left out" in caplog.text
    teachers = [{**still, "tasks": ["follows"]}, {"tasks": ["mood"], "training": {"lr": 1e-2, "steps": 60}}]
    plan = pipeline.make_plan(distil(targets={"weak": "leave_out"}, teachers=teachers, tasks=["mood", "follows"]))
    lessons = named(plan, "student").distillation
    assert lessons
    for model in (model for teacher in lessons.teachers for model in teacher.models):
        train_models(plan, [model])
    assert list(joint_targets(plan, lessons)) == [("mood", "train")]


def test_the_best_teachers_are_chosen_by_the_named_tasks(distil: Callable[..., Recipe]) -> None:
    recipe = distil(
        teachers=[{"tasks": "together", "seeds": 3}],
        targets={**KEEP, "best": {"count": 2, "by": ["follows", "similar"]}, "weights": {"teacher": 2}},
    )
    run = pipeline.run(recipe)
    plan = pipeline.make_plan(recipe)
    lessons = named(plan, "student").distillation
    assert lessons
    scores = {
        model.name: (model.scores["follows/dev"]["accuracy"] + model.scores["similar/dev"]["pearson_spearman"]) / 2
        for model in run.models
        if model.role == "teacher"
    }
    wanted = sorted(scores, key=lambda name: (-scores[name], name))[:2]
    chosen = select_teachers(lessons)
    for mine in chosen.values():
        assert sorted(teacher.name for teacher in mine.teachers) == sorted(wanted)
        assert mine.weights.tolist() == [0.5, 0.5]


def test_a_checkpoint_of_another_kind_teaches_with_its_own_tokeniser(
    distil: Callable[..., Recipe], tmp_path: Path, tiny_of: Callable[[str], Path]
) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    other = tiny_of("distilbert")
    names = {0: "UPSET", 1: "CALM"}
    model = AutoModelForSequenceClassification.from_pretrained(
        other, num_labels=2, id2label=names, label2id={name: number for number, name in names.items()}
    )
    model.save_pretrained(tmp_path / "theirs")
    AutoTokenizer.from_pretrained(other).save_pretrained(tmp_path / "theirs")
    recipe = distil(
        tasks=["mood", "similar"],
        teachers=[{"checkpoint": str(tmp_path / "theirs"), "tasks": ["mood"]}],
        targets={**KEEP, "dtype": "float32"},
    )
    run = pipeline.run(recipe)
    assert [model.name for model in run.models] == ["baseline", "student"]
    assert list(run.teachers) == ["mood/dev"]
    plan = pipeline.make_plan(recipe)
    lessons = named(plan, "student").distillation
    assert lessons
    joined = joint_targets(plan, lessons)
    assert list(joined) == [("mood", "train")]
    text = plan.loaded["mood"].splits["train"].table().column("text1")[0].as_py()
    tokenizer = AutoTokenizer.from_pretrained(other)
    with torch.no_grad():
        output = model.eval()(**tokenizer([text], return_tensors="pt")).logits[0]
    # "calm" comes first in the task and second in the checkpoint.
    assert joined["mood", "train"]["logits"][0] == pytest.approx(output.flip(0).log_softmax(0).tolist(), abs=1e-4)


def test_a_teacher_may_be_a_model_of_another_run(
    distil: Callable[..., Recipe], make_tiny: Callable[..., Recipe]
) -> None:
    before = pipeline.run(make_tiny(name="before"))
    run = pipeline.run(distil(teachers=[{"checkpoint": str(before.folder)}]))
    assert {place: pytest.approx(values, abs=1e-6) for place, values in run.teachers.items()} == before.models[0].scores


# Students -------------------------------------------------------------------------------------------------------------


def test_unlabelled_rows_make_up_their_share_and_the_baseline_gets_as_many_steps(
    distil: Callable[..., Recipe],
) -> None:
    training = {"steps": None, "epochs": 2, "evaluate": "never"}
    recipe = distil(student={"unlabelled": 0.5}, training=training, tasks=["mood", "similar"])
    run = pipeline.run(recipe)
    plan = pipeline.make_plan(recipe)
    baseline, student = named(plan, "baseline"), named(plan, "student")
    assert student.distillation and student.distillation.unlabelled == {"mood": 0.5, "similar": 0.5}
    assert {(targets.task, targets.split) for targets in plan.targets} == {
        (task, split) for task in ("mood", "similar") for split in ("train", "unlabelled")
    }
    logs = [[json.loads(line) for line in (model.folder / "log.jsonl").open()] for model in (baseline, student)]
    assert logs[0][-1]["step"] == logs[1][-1]["step"] == 2 * 2 * (64 + 64) / 8
    assert {"mood", "mood/hard", "mood/soft"} <= set(logs[1][-1]["parts"])
    assert 0 < logs[1][-1]["lambda"] < 1
    assert len(run.models) == 4


def test_a_student_can_be_cut_out_of_its_teacher_and_finetuned_afterwards(distil: Callable[..., Recipe]) -> None:
    recipe = distil(
        teachers=[{"name": "large", "tasks": "together"}],
        student={"encoder": {"name": "large", "layers": 1}, "training": {"lr": 1e-12}, "finetune": {"lr": 1e-12}},
    )
    run = pipeline.run(recipe)
    folders = {model.name: model.folder for model in run.models}
    assert list(folders) == [
        "large",
        "baseline", "baseline-finetuned-mood", "baseline-finetuned-follows", "baseline-finetuned-similar",
        "student", "finetuned-mood", "finetuned-follows", "finetuned-similar",
    ]  # fmt: skip
    large, student, tuned = (weights(folders[name]) for name in ("large", "student", "finetuned-follows"))
    word = "encoder.network.embeddings.word_embeddings.weight"
    # A rate of next to nothing leaves every model where it started.
    assert torch.allclose(student[word], large[word], atol=1e-6)
    assert not any("layer.1." in name for name in student)
    assert torch.allclose(tuned["heads.tasks.0.out.weight"], student["heads.tasks.1.out.weight"], atol=1e-6)
    for model in run.models:
        if model.role == "finetuned":
            assert list(model.scores) == [f"{model.name.removeprefix('finetuned-')}/dev"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"student": {"encoder": {"name": "teacher"}}}, "encoder teacher: this teacher is 3 models"),
        ({"student": {"encoder": {"layers": 9}}}, "layers"),
        ({"teachers": [{"checkpoint": "./nowhere"}]}, "teacher teacher: ./nowhere: no such folder"),
        ({"teachers": [{"predictions": "none.csv"}]}, "none.csv"),
        (
            {"teachers": [{"name": "a"}, {"name": "a-mood", "tasks": ["mood"], "models": "together"}]},
            "2 of model a-mood",
        ),
        ({"teachers": [{"name": "t", "seeds": 2}, {"name": "t-seed1", "seeds": [7]}]}, "2 of model t-seed1-mood"),
        ({"teachers": [{"name": "minilm"}]}, 'there is an encoder "minilm" already'),
        ({"targets": {**KEEP, "best": {"count": 9}}}, "at most 1"),
        ({"tasks": {"mood": {"unlabelled": "none.csv"}}}, "none.csv"),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_said_in_a_sentence(
    distil: Callable[..., Recipe], change: dict[str, Any], words: str
) -> None:
    with pytest.raises(UserError) as reported:
        pipeline.run(distil(**change))
    assert words in str(reported.value)


# Keeping --------------------------------------------------------------------------------------------------------------


def test_runs_are_listed_and_what_nothing_refers_to_is_cleaned(distil: Callable[..., Recipe]) -> None:
    recipe = distil(tasks=["mood"])
    pipeline.run(recipe)
    pipeline.run(distil(tasks=["mood"], student={"training": {"lr": 2e-3}}))  # the same name: the first is replaced
    folder = recipe.output.path
    (kept,) = pipeline.list_runs(folder)
    assert (kept.name, kept.state) == ("tiny", "done")
    assert kept.bytes == sum(
        path.stat().st_size for name in kept.facts["uses"] for path in (folder / "artifacts" / name).rglob("*.*")
    )
    shown = pipeline.clean(folder, remove=False)
    assert len(shown) == 1, "the old student; the old baseline was trained like the teacher, so it is the teacher"
    assert shown[0].path.exists()
    assert pipeline.clean(folder) == shown
    assert not any(waste.path.exists() for waste in shown)
    plan = pipeline.make_plan(distil(tasks=["mood"], student={"training": {"lr": 2e-3}}))
    assert all(model.done for model in plan.models) and all(targets.done for targets in plan.targets)
    assert pipeline.clean(folder) == []
    (folder / "artifacts" / "mine").mkdir()
    (folder / "cache" / "notes").mkdir()
    assert [waste.path.name for waste in pipeline.clean(folder, cache=True)] == ["cache"]
    assert [path.name for path in (folder / "cache").iterdir()] == ["notes"]
    assert (folder / "artifacts" / "mine").exists(), "what others put there is not ours to remove"


def test_what_a_run_that_was_stopped_has_made_is_kept(
    distil: Callable[..., Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = distil(tasks=["mood"])
    monkeypatch.setattr("understill.pipeline.model_training.join_targets", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        pipeline.run(recipe)
    (kept,) = pipeline.list_runs(recipe.output.path)
    assert kept.state == "running"
    assert pipeline.clean(recipe.output.path) == []
    assert named(pipeline.make_plan(recipe), "teacher-mood").done


def test_a_record_that_cannot_be_read_stops_cleaning(distil: Callable[..., Recipe]) -> None:
    run = pipeline.run(distil(tasks=["mood"]))
    (run.folder / "run.json").write_text("{}")
    with pytest.raises(UserError, match=r"run\.json cannot be read"):
        pipeline.clean(run.folder.parent)


# The project's recipes in miniature -----------------------------------------------------------------------------------


def in_miniature(name: str, glue: Path, encoder: Path, runs: Path, *sets: str) -> Recipe:
    """Return a recipe of the project with its structure as it is, made small."""
    values = load_recipe(ROOT / "recipes" / f"{name}.yaml", sets).model_dump(mode="json")
    quick = {"steps": 3, "batch": 8, "epochs": 1}
    values |= {
        "data": {"glue": str(glue)},
        "tasks": {"rte": {"unlabelled": "STS-B/train.parquet"} if name == "compress" else {}, "stsb": {}},
        "encoder": {**values["encoder"], "name": str(encoder), "max_length": 32},
        "training": {**values["training"], **quick},
        "targets": {**values["targets"], "weak": "keep"},
        "output": {"folder": str(runs)},
        "machine": {"device": "cpu", "threads": 1},
    }
    for part in (*values["teachers"], values["student"]):
        part["training"] = {**(part["training"] or {}), **quick}
    return make_recipe(values)


@pytest.mark.parametrize("name", ["bam", "born_again_single", "born_again_multi", "hinton", "compress", "bilstm_multi"])
def test_the_projects_recipes_run_in_miniature(name: str, small_glue: Path, deep: Path, tmp_path: Path) -> None:
    run = pipeline.run(in_miniature(name, small_glue, deep, tmp_path / "runs"))
    assert {model.role for model in run.models} == {"teacher", "baseline", "student"}
    assert set(run.teachers) == {"rte/dev", "stsb/dev"}
    student = {place for model in run.models if model.role == "student" for place in model.scores}
    assert student == {"rte/dev", "stsb/dev"}


@pytest.mark.parametrize(
    "change",
    [
        "student.distil.anneal=0",
        "student.distil.anneal=0.5",
        "student.training.sampling=proportional",
        "student.distil.temperature=4",
        "teachers.0.folds=null",
    ],
)
def test_the_ablations_of_bam_are_a_set_away(change: str, small_glue: Path, deep: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    usual = pipeline.run(in_miniature("bam", small_glue, deep, runs))
    other = pipeline.run(in_miniature("bam", small_glue, deep, runs, change, "name=other"))
    one, two = ({model.role: model.folder for model in run.models} for run in (usual, other))
    assert one["student"] != two["student"]
    assert (one["teacher"] == two["teacher"]) == (not change.startswith("teachers")), "teachers are trained only once"
