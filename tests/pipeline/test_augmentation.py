"""A run with augmentation: rows made once, labelled by teachers, learnt by the student in place of train."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from understill import pipeline
from understill.data.check import row_id
from understill.data.taggers import Tagger
from understill.data.taskdata import TaskData, source_rows
from understill.errors import UserError
from understill.estimate import estimate
from understill.events import Augmenting, Labelling, TrainingState
from understill.models.encoder import load_tokenizer
from understill.pipeline import augmentation
from understill.pipeline.dataloader import Tokeniser, make_batches
from understill.pipeline.plan.parts import ModelPlan, Plan, cache_folder
from understill.pipeline.runs import clean
from understill.recipe import Recipe
from understill.targets.store import LOGITS
from understill.teachers.folds import fold_of

RULES = {"times": 3, "tagger": "letters"}

pytestmark = pytest.mark.usefixtures("letters")


@pytest.fixture
def recipe(make_tiny: Callable[..., Recipe]) -> Callable[..., Recipe]:
    """A function that makes a tiny recipe whose student reads augmented rows."""

    def make(augment: Any = RULES, **changes: Any) -> Recipe:
        student = {"augment": augment, **changes.pop("student", {})}
        usual = {"teachers": [{"tasks": "each"}], "targets": {"weak": "keep"}, "training": {"steps": None, "epochs": 1}}
        return make_tiny(**{**usual, "student": student, **changes})

    return make


def named(plan: Plan, name: str) -> ModelPlan:
    (model,) = pipeline.pick_models(plan, (name,))
    return model


def rows_of(data: TaskData) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = data.table().to_pylist()
    return result


def words_of(data: TaskData) -> set[str]:
    texts = ("text1", "text2")
    return {word for row in rows_of(data) for name in texts for word in (row.get(name) or "").split()}


def test_a_run_labels_augmented_rows_and_names_them_among_what_it_uses(recipe: Callable[..., Recipe]) -> None:
    events: list[object] = []
    run = pipeline.run(recipe(tasks=["mood", "follows"]), events.append)
    assert [model.name for model in run.models] == ["teacher-mood", "teacher-follows", "baseline", "student"]
    assert run.aid == "teachers and augmentation"
    assert [(event.task, event.what, event.rows, event.total) for event in events if isinstance(event, Augmenting)] == [
        (task, what, 64, 64) for task in ("mood", "follows") for what in ("tagging", "augmenting")
    ]
    uses = json.loads((run.folder / "run.json").read_text())["uses"]
    kinds = sorted("-".join(name.split("-")[:-1]) for name in uses if name.startswith(("augmented", "targets")))
    assert kinds == ["augmented-follows", "augmented-mood", "targets-follows-augmented", "targets-mood-augmented"]
    folder = run.folder.parent
    assert clean(folder) == []
    events.clear()
    assert pipeline.run(recipe(tasks=["mood", "follows"]), events.append).models == run.models
    assert {event.state for event in events if isinstance(event, TrainingState)} == {"done"}
    assert not any(isinstance(event, Labelling) for event in events)
    assert not any(isinstance(event, Augmenting) for event in events)
    (run.folder / "run.json").unlink()
    assert {"augmented"} < {waste.path.name.split("-")[0] for waste in clean(folder)}


def test_the_split_holds_the_training_rows_and_what_is_made_of_them(recipe: Callable[..., Recipe]) -> None:
    plan = pipeline.make_plan(recipe())
    for name, loaded in plan.loaded.items():
        train, data = loaded.splits["train"], loaded.splits["augmented"]
        rows, labels = rows_of(data), {row["id"]: row["label"] for row in rows_of(train)}
        own = [row for row in rows if row["id"] == row["source"]]
        assert [row["id"] for row in own] == [row["id"] for row in rows_of(train)]
        assert data.rows == len(rows) > 2 * train.rows
        assert all(row["label"] == labels[row["source"]] for row in rows)
        texts = ["text1", "text2"] if loaded.task.pair else ["text1"]
        assert all(row["id"] == row_id(name, [row[text] for text in texts]) for row in rows)
        assert [rows[at]["id"] for at in source_rows(data)] == [row["source"] for row in rows]


def test_no_word_comes_from_anywhere_but_the_training_rows(recipe: Callable[..., Recipe]) -> None:
    plan = pipeline.make_plan(recipe({**RULES, "pos": 0.9}))
    for loaded in plan.loaded.values():
        assert words_of(loaded.splits["augmented"]) == words_of(loaded.splits["train"]) | {"[MASK]"}
        assert words_of(loaded.splits["dev"]) - words_of(loaded.splits["augmented"]), "dev has words of its own"


def test_the_student_reads_the_augmented_rows_with_their_sources_gold(
    recipe: Callable[..., Recipe], tiny: Path
) -> None:
    plan = pipeline.make_plan(recipe(tasks=["mood"]))
    student, baseline = named(plan, "student"), named(plan, "baseline")
    tokens = Tokeniser(load_tokenizer(str(tiny)), {"mood": 32}, cache_folder(plan.recipe), lambda event: None)
    data, train = (plan.loaded["mood"].splits[split] for split in ("augmented", "train"))
    answers = np.zeros((data.rows, 2), np.float32)
    batches = make_batches(plan, student, tokens, {("mood", "augmented"): {LOGITS: answers}})
    mine = batches.streams[0].sources[0]
    assert len(mine) == data.rows
    golds = [plan.loaded["mood"].task.labels.index(row["label"]) for row in rows_of(data)]
    np.testing.assert_array_equal(mine.gold, golds)
    assert len(make_batches(plan, baseline, tokens, {}).streams[0].sources[0]) == train.rows


@pytest.mark.parametrize("teachers", [[{"tasks": "each"}], []])
def test_the_baseline_takes_as_many_steps_on_the_rows_as_they_are(
    recipe: Callable[..., Recipe], teachers: list[Any]
) -> None:
    changes = {"teachers": teachers, **({} if teachers else {"targets": {}}), "tasks": ["mood"]}
    study = pipeline.make_study(recipe(**changes, training={"steps": None, "epochs": 2, "evaluate": "1 epoch"}))
    plan = study.plan
    student, baseline = plan.models[-1], named(plan, "baseline")
    assert (student.augmented, baseline.augmented) == (("mood",), ())
    epoch = plan.loaded["mood"].splits["augmented"].rows // 8
    assert baseline.settings.training.steps in (2 * epoch, 2 * epoch + 2)
    assert baseline.settings.training.evaluate.unit == "steps"
    times = estimate(study)
    assert times[student.name].steps == times["baseline"].steps == baseline.settings.training.steps


def test_the_baseline_may_read_the_same_rows(recipe: Callable[..., Recipe]) -> None:
    plan = pipeline.make_plan(recipe({**RULES, "baseline": True}))
    student, baseline = named(plan, "student"), named(plan, "baseline")
    assert student.augmented == baseline.augmented == ("mood", "follows", "similar")
    assert baseline.settings == student.settings
    alone = pipeline.make_plan(recipe({**RULES, "baseline": True}, teachers=[], targets={}))
    assert [model.name for model in alone.models] == ["multi"], "without teachers it would be the model itself"


def test_augmentation_works_without_teachers(recipe: Callable[..., Recipe], capsys: pytest.CaptureFixture[str]) -> None:
    from understill.terminal.scores import show_run

    run = pipeline.run(recipe(teachers=[], targets={}, tasks=["mood"], models="each"))
    assert [(model.name, model.role) for model in run.models] == [("baseline-mood", "baseline"), ("mood", "model")]
    show_run(run)
    assert "mood against the same without augmentation" in capsys.readouterr().out


def test_teachers_and_models_without_augmentation_stay_what_they_are(recipe: Callable[..., Recipe]) -> None:
    plain, more = pipeline.make_plan(recipe(False)), pipeline.make_plan(recipe())
    assert "augmented" not in plain.loaded["mood"].splits
    for name in ("teacher-mood", "teacher-follows", "teacher-similar"):
        assert named(plain, name).folder == named(more, name).folder
    assert named(plain, "student").folder != named(more, "student").folder
    assert [table.split for table in plain.targets] == ["train"] * 3
    assert [table.split for table in more.targets] == ["augmented"] * 3


@pytest.mark.parametrize(
    "change",
    [{"mask": 0.2}, {"pos": 0.2}, {"ngram": 0.5}, {"times": 4}, {"seed": 1}, {"tagger": "none"},
     {"tasks": {"mood": {"times": 4}}}],
    ids=str,
)  # fmt: skip
def test_every_setting_makes_another_set(recipe: Callable[..., Recipe], change: dict[str, Any]) -> None:
    one, two = (pipeline.make_plan(recipe({**RULES, **each}, tasks=["mood"])) for each in ({}, change))
    assert one.augmented[0].fingerprint != two.augmented[0].fingerprint
    assert one.augmented[0].path != two.augmented[0].path
    assert one.models[-1].folder != two.models[-1].folder
    assert one.targets[0].folder != two.targets[0].folder


def test_other_rows_or_another_version_of_the_tagger_make_another_set(
    recipe: Callable[..., Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    (one,) = pipeline.make_plan(recipe(tasks=["mood"])).augmented
    (more,) = pipeline.make_plan(recipe(tasks=["mood"], data={"demo": {"rows": 65}})).augmented
    monkeypatch.setattr(augmentation, "find_tagger", lambda name: Tagger(name, "a new version"))
    (again,) = pipeline.make_plan(recipe(tasks=["mood"])).augmented
    assert len({data.path for data in (one, more, again)}) == 3
    assert len({data.fingerprint for data in (one, more, again)}) == 3


def test_another_seed_of_the_student_learns_from_the_same_set(recipe: Callable[..., Recipe]) -> None:
    one, two = pipeline.make_plan(recipe()), pipeline.make_plan(recipe(seed=1))
    assert [data.path for data in one.augmented] == [data.path for data in two.augmented]
    assert [table.folder for table in one.targets] == [table.folder for table in two.targets]


def test_without_a_tagger_the_other_two_rules_do_the_work(recipe: Callable[..., Recipe]) -> None:
    plan = pipeline.make_plan(recipe({"times": 3, "tagger": "none", "ngram": 0.0}))
    rows = rows_of(plan.loaded["mood"].splits["augmented"])
    texts = {row["id"]: row["text1"].split() for row in rows}
    for row in rows:
        pairs = zip(texts[row["source"]], row["text1"].split(), strict=True)
        assert all(new in (old, "[MASK]") for old, new in pairs)


def test_ranking_tasks_are_not_augmented_and_it_is_said_once(
    recipe: Callable[..., Recipe], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        plan = pipeline.make_plan(recipe(tasks=["mood", "answer"], teachers=[], targets={}))
    assert plan.models[-1].augmented == ("mood",)
    assert [record.message for record in caplog.records if "augmented" in record.message] == [
        "ranking tasks are not augmented; the student learns answer as it is"
    ]
    with pytest.raises(UserError, match="ranking tasks are not augmented, and there are no others → leave it out"):
        pipeline.make_plan(recipe(tasks=["answer"], teachers=[], targets={}))


def test_files_that_say_nothing_of_the_new_rows_are_refused_before_training(
    recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    def answers(name: str, rows: list[dict[str, Any]]) -> str:
        lines = [f"{name},{label}\n" for name, label in {row["id"]: row["label"] for row in rows}.items()]
        (tmp_path / name).write_text("id,label\n" + "".join(lines), encoding="utf-8")
        return str(tmp_path / name)

    (data,) = pipeline.make_plan(recipe(tasks=["mood"])).augmented
    rows = rows_of(data)
    old = {"predictions": answers("old.csv", [row for row in rows if row["id"] == row["source"]]), "name": "old"}
    made = len(rows) - 64
    with pytest.raises(UserError, match=rf"no teacher of mood answers any of the {made} augmented rows"):
        pipeline.make_plan(recipe(tasks=["mood"], teachers=[old]))
    pipeline.make_plan(recipe(tasks=["mood"], teachers=[old, {"tasks": "each"}]))
    new = {"predictions": answers("new.csv", rows), "name": "new"}
    pipeline.make_plan(recipe(tasks=["mood"], teachers=[old, new]))
    pipeline.make_plan(recipe(False, tasks=["mood"], teachers=[old]))


def test_only_the_tasks_of_the_student_are_augmented(recipe: Callable[..., Recipe]) -> None:
    plan = pipeline.make_plan(recipe(student={"tasks": ["mood"]}))
    assert [name for name, task in plan.loaded.items() if "augmented" in task.splits] == ["mood"]


@pytest.mark.parametrize("task", ["mood", "similar"])  # of the second the order of texts does not matter
def test_what_is_made_of_a_row_is_in_its_fold(recipe: Callable[..., Recipe], task: str) -> None:
    loaded = pipeline.make_plan(recipe(tasks=[task])).loaded[task]
    train, data = loaded.splits["train"], loaded.splits["augmented"]
    folds = dict(zip((row["id"] for row in rows_of(train)), fold_of(train, 3), strict=True))
    assert fold_of(data, 3).tolist() == [folds[row["source"]] for row in rows_of(data)]


def test_a_damaged_set_is_made_again(recipe: Callable[..., Recipe]) -> None:
    (data,) = pipeline.make_plan(recipe(tasks=["mood"])).augmented
    whole = data.path.read_bytes()
    data.path.write_bytes(whole[:100])
    (again,) = pipeline.make_plan(recipe(tasks=["mood"])).augmented
    assert again == data and data.path.read_bytes() == whole


def test_true_takes_the_published_settings(recipe: Callable[..., Recipe]) -> None:
    spec = recipe(True).student.augment
    assert spec is not None
    assert (spec.mask, spec.pos, spec.ngram, spec.times, spec.tagger) == (0.1, 0.1, 0.25, 20, "auto")
    assert recipe(False).student.augment is None
