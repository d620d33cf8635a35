"""Every number of a report is the one that the run, or the function that it stands for, gives."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from report_cases import EVIL, STUDENT, notes

from understill import pipeline
from understill.errors import UserError
from understill.evaluate.agreement import agreement, interval_of
from understill.evaluate.calibration import calibration
from understill.evaluate.predict import KeptRows, read_kept
from understill.recipe import Recipe
from understill.report import dev_sets
from understill.report.build import build
from understill.report.facts import Facts


@pytest.fixture(scope="module")
def kept(taught: pipeline.Run) -> dict[str, KeptRows]:
    """What student and teachers said, read as anybody would."""
    task = taught.tasks["note"]
    student = next(model for model in taught.models if model.role == "student")
    assert taught.answers
    files = {"student": student.folder.parent / "predictions", "teachers": taught.answers}
    return {name: read_kept(folder / "note.dev.parquet", task) for name, folder in files.items()}


def test_scores_are_those_of_the_run(facts: Facts, taught: pipeline.Run) -> None:
    columns = taught.columns
    assert facts.columns == tuple(columns) == ("majority", "linear probe", "teachers", "baseline", "student")
    (row,) = facts.scores
    assert {name: score.mean for name, score in row.scores.items()} == pytest.approx(
        {name: scores["note/dev"]["accuracy"] for name, scores in columns.items()}
    )


def test_intervals_and_calibration_and_agreement_are_those_of_the_kept_rows(
    facts: Facts, kept: dict[str, KeptRows], taught: pipeline.Run
) -> None:
    student, teachers, task = kept["student"], kept["teachers"], taught.tasks["note"]
    (place,), (row,) = facts.places, facts.scores
    assert row.scores["student"].interval == interval_of(task, student.gold, student.predictions.values[None])
    assert place.calibrations["teachers"] == calibration(teachers.gold, teachers.predictions.logits)
    assert place.agreement == agreement(task, student.predictions.logits, teachers.predictions.logits)
    assert place.retention["accuracy"] == pytest.approx(row.scores["student"].mean / row.scores["teachers"].mean)
    assert place.confusion is not None and place.confusion.sum() == len(student.gold) == 48
    assert np.trace(place.confusion) == round(48 * row.scores["student"].mean)


def test_what_is_kept_of_the_teachers_and_what_was_tried_beside_the_run_are_counted(
    facts: Facts, taught: pipeline.Run, made: Callable[..., Recipe]
) -> None:
    (row,) = facts.scores
    kept = facts.retention.kept
    assert kept.value == pytest.approx(row.scores["student"].mean / row.scores["teachers"].mean)
    assert taught.findings.retention == facts.retention
    assert [each.claim for each in taught.findings.comparisons] == [each.claim for each in facts.versus]
    again = made("taught-longer", teachers="file", student=STUDENT, training={"steps": 5, "batch": 8, "lr": 1e-3})
    pipeline.run(again)
    tried = build(taught.folder, made("taught", teachers="file", student=STUDENT), timing=False).tried
    assert tried >= 2, "another student and another baseline"


def test_comparisons_are_corrected_together_and_are_those_of_compare(facts: Facts, taught: pipeline.Run) -> None:
    assert [(each.first, each.second) for each in facts.versus] == [("baseline", "student"), ("teachers", "student")]
    folder = taught.folder
    alone = [pipeline.compare([f"{folder}:{each.first}", str(folder)])[0].compared[0] for each in facts.versus]
    for each, one in zip(facts.versus, alone, strict=True):
        assert each.compared[0].difference == one.difference
    least = min(one.difference.p or 1 for one in alone)
    assert min(each.compared[0].p or 1 for each in facts.versus) == pytest.approx(min(1, 2 * least))


def test_the_rows_on_which_student_and_teacher_differ_are_all_found_the_clearest_first(
    facts: Facts, kept: dict[str, KeptRows]
) -> None:
    result = facts.places[0].examples
    student, teachers = (kept[name].predictions for name in ("student", "teachers"))
    sure = student.probabilities.max(axis=1) * teachers.probabilities.max(axis=1)
    differ = np.flatnonzero(student.values != teachers.values)
    order = differ[np.argsort(-sure[differ].astype(np.float64), kind="stable")]
    assert result.total == len(result.shown) == len(order) > 1
    rows = notes("dev", 48)
    assert sorted(example.texts[0] for example in result.shown) == sorted(rows[row][0] for row in order)
    assert all(EVIL in example.texts[0] for example in result.shown), "texts come as they are"
    sure_of = {rows[row][0]: sure[row] for row in order}
    shown = [sure_of[example.texts[0]] for example in result.shown]
    assert shown == pytest.approx(sorted(shown, reverse=True)) and shown[0] > shown[-1]
    labels = student.task.labels
    for example in result.shown:
        row = next(number for number, each in enumerate(rows) if each[0] == example.texts[0])
        text = [labels[int(each.values[row])] for each in (student, teachers)]
        assert [answer.split(" (")[0] for answer in example.answers] == text and example.gold == rows[row][1]


def test_a_column_of_the_users_own_parts_the_rows(facts: Facts) -> None:
    cuts = {cut.by: cut.slices for cut in facts.places[0].cuts}
    assert {part.name: part.rows for part in cuts["column region"]} == {"north": 16, "south": 16, "east": 16}
    assert {part.name: part.rows for part in cuts["label"]} == {"bad": 24, "fine": 24}
    for parts in cuts.values():
        assert sum(part.rows for part in parts) == 48


def test_numbers_that_are_missing_are_a_part_of_their_own() -> None:
    column = [None if n % 5 == 0 else str(n) for n in range(100)]
    parts = dev_sets._by_column(column)
    assert [int(mine.sum()) for mine in parts.values()] == [20, 20, 20, 20, 20]
    assert list(parts)[-1] == "none" and parts["none"].tolist() == [value is None for value in column]


def test_of_a_very_long_text_the_beginning_is_shown() -> None:
    assert dev_sets._beginning("x" * dev_sets.LONG) == "x" * dev_sets.LONG
    assert dev_sets._beginning("x" * 100_000) == f"{'x' * dev_sets.LONG} … (100,000 characters)"


def test_a_column_that_is_not_there_is_said(taught: pipeline.Run, recipe: Recipe) -> None:
    with pytest.raises(UserError, match="--by regoin: no dev set comes from files of yours with such a column"):
        build(taught.folder, recipe, timing=False, by="regoin")


def test_data_that_has_changed_is_said(made: Callable[..., Recipe], tmp_path: Path) -> None:
    recipe = made("moved", tasks=["mood"])
    folder = pipeline.run(recipe).folder
    other = recipe.model_copy(update={"data": made("x", data={"demo": {"rows": 48, "seed": 5}}).data})
    with pytest.raises(UserError, match="mood/dev: the data has changed since the run → run the recipe again"):
        build(folder, other, timing=False)
    (folder / "run.json").write_text(json.dumps({"state": "running"}), encoding="utf-8")
    with pytest.raises(UserError, match="the run is not finished"):
        build(folder, recipe, timing=False)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("predictions/note.dev.parquet", "note.dev.parquet was changed or damaged → run the recipe again"),
        ("log.jsonl", "log.jsonl was changed or damaged → run the recipe again"),
    ],
)
def test_a_broken_file_of_a_run_is_one_sentence(
    name: str, text: str, taught: pipeline.Run, recipe: Recipe, tmp_path: Path
) -> None:
    root = shutil.copytree(taught.folder.parent, tmp_path / "runs", symlinks=True)
    for file in (root / "artifacts").glob(f"*/{name}"):
        file.write_text("{", encoding="utf-8")
    with pytest.raises(UserError, match=text):
        build(root / taught.folder.name, recipe, timing=False)


def test_a_teacher_that_is_silent_on_rows_is_compared_on_the_others(made: Callable[..., Recipe]) -> None:
    recipe = made("silent", teachers="file", student={**STUDENT, "baseline": False})
    file = Path(recipe.teachers[0].predictions[0])
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    shorter = file.with_name("shorter.csv")
    shorter.write_text("".join(lines[:-20]), encoding="utf-8")
    teacher = recipe.teachers[0].model_copy(update={"predictions": (str(shorter),)})
    recipe = recipe.model_copy(update={"teachers": (teacher,)})
    run = pipeline.run(recipe)
    result = build(run.folder, recipe, timing=False)
    assert result.places[0].agreement is not None and result.places[0].agreement.rows == 28
    assert result.places[0].calibrations["teachers"].rows == 28
    assert len(result.places[0].examples.shown) <= 28
    (versus,) = result.versus
    (compared,) = versus.compared
    task = run.tasks["note"]
    student = read_kept(run.models[-1].folder.parent / "predictions" / "note.dev.parquet", task)
    assert compared.first.mean == run.teachers["note/dev"]["accuracy"]
    assert compared.second.mean == (student.predictions.values == student.gold)[:28].mean()


def test_seeds_share_the_answers_of_teachers_that_they_share(made: Callable[..., Recipe]) -> None:
    student = {**STUDENT, "baseline": False}
    shared, own = (
        pipeline.run_study(made(name, tasks=["mood"], teachers=[{"tasks": "each", **more}], student=student, seeds=2))
        for name, more in (("shared", {}), ("own", {"seeds": "student"}))
    )
    assert len({run.answers for run in shared}) == 1 and len({run.answers for run in own}) == 2
    kept = [sorted(path.name for path in runs[0].folder.glob("teachers/*")) for runs in (shared, own)]
    assert kept == [["0"], ["0", "1"]]
    pipeline.run(made("own", tasks=["mood"], teachers=[{"tasks": "each"}], student=student))
    assert [path.name for path in own[0].folder.glob("teachers/*")] == ["0"], "those of an earlier run are gone"
