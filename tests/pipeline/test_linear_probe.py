"""The floor: what a linear head on the frozen encoder reaches, made once, fitted to training rows alone."""

from __future__ import annotations

import csv
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from helpers import ANSWER, MOOD, STARS
from understill import pipeline
from understill.atomic import read_record, write_record
from understill.errors import UserError
from understill.evaluate.metrics import primary, score
from understill.events import Asking
from understill.pipeline import linear_probe
from understill.pipeline.linear_probe import DECAYS, FOLDS, answers, fit_best, plan_probes, sample_rows
from understill.recipe import Recipe
from understill.report.build import build
from understill.report.sections import sections
from understill.train.probe import MOST, fit_probe

ALL = ["mood", "follows", "similar", "answer"]


def vectors(rows: int, width: int = 8, seed: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(seed).normal(size=(rows, width)).astype(np.float32)


# Fitting --------------------------------------------------------------------------------------------------------------


def test_classes_that_a_line_parts_are_all_told_apart() -> None:
    own = vectors(400)
    own[:, 0] = np.sign(own[:, 0]) * (abs(own[:, 0]) + 1)  # a gap between the classes
    gold = (own[:, 0] > 0).astype(np.float32)
    probe = fit_best(own[:200], gold[:200], MOOD)
    assert score(MOOD, gold[200:].astype(float), answers(probe, own[200:], MOOD))["accuracy"] == 1


def test_scores_along_a_line_are_found_on_the_tasks_own_scale_and_stay_within_its_range() -> None:
    own = vectors(300)
    gold = (3 + 0.2 * own[:, 0]).astype(np.float32)
    probe = fit_best(own, gold, STARS)
    np.testing.assert_allclose(answers(probe, own, STARS), gold, atol=0.01)
    assert answers(probe, 100 * own, STARS).min() == 1 and answers(probe, 100 * own, STARS).max() == 5


def test_right_candidates_that_lie_ahead_of_wrong_ones_are_ranked_first() -> None:
    groups, own = np.repeat(np.arange(40), 4), vectors(160)
    gold = np.tile([1, 0, 0, 0], 40).astype(np.float32)
    own[:, 0] = 3 * gold
    result = score(ANSWER, gold.astype(float), answers(fit_best(own, gold, ANSWER, groups), own, ANSWER), groups)
    assert set(result.values()) == {1.0}


@pytest.mark.parametrize("seed", range(6))
def test_the_decay_is_the_one_that_does_best_on_training_rows_held_out(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = vectors(60, 40, seed)
    gold = (own[:, 0] + vectors(60, 1, seed + 100)[:, 0] > 0).astype(np.float32)
    reached = {}
    for decay in DECAYS:
        values = np.empty(60)
        for part in range(FOLDS):
            rows = np.arange(60) % FOLDS == part
            values[rows] = answers(fit_probe(own[~rows], gold[~rows], MOOD, decay), own[rows], MOOD)
        reached[decay] = primary(MOOD, score(MOOD, gold.astype(float), values))
    fitted: list[tuple[int, float]] = []

    def fit(own: Any, gold: Any, task: Any, decay: float) -> Any:
        fitted.append((len(gold), decay))
        return fit_probe(own, gold, task, decay)

    monkeypatch.setattr(linear_probe, "fit_probe", fit)
    fit_best(own, gold, MOOD)
    assert fitted[-1] == (60, max(DECAYS, key=reached.__getitem__))
    assert {count for count, _ in fitted[:-1]} == {48}


def test_a_handful_of_rows_is_enough() -> None:
    own, gold = vectors(3), np.array([0, 1, 1], np.float32)
    assert answers(fit_best(own, gold, MOOD), own, MOOD).tolist() == [0, 1, 1]


def test_many_rows_are_sampled_and_the_candidates_of_a_query_stay_together() -> None:
    gold = np.zeros(3 * MOST, np.float32)
    gold[::2] = np.nan
    rows = sample_rows(gold, None)
    assert len(rows) == len(set(rows.tolist())) == MOST and (rows % 2 == 1).all()
    groups = np.arange(3 * MOST) % (MOST // 2)
    drawn = groups[sample_rows(np.zeros(3 * MOST, np.float32), groups)]
    starts = np.flatnonzero(np.diff(drawn)) + 1
    assert len(starts) + 1 == len(set(drawn.tolist())), "no query comes twice"
    assert set(np.diff(starts).tolist()) == {6}


# In a run -------------------------------------------------------------------------------------------------------------


def test_every_task_of_a_run_has_a_probe_in_the_run_its_record_and_its_report(make_tiny: Callable[..., Recipe]) -> None:
    recipe = make_tiny(tasks=ALL)
    run = pipeline.run(recipe)
    assert {place: list(values) for place, values in run.probe.items()} == {
        place: list(values) for place, values in run.majority.items()
    }
    assert list(run.columns) == ["majority", "linear probe", "multi"]
    record = json.loads((run.folder / "run.json").read_text())
    assert record["probe"] == record["cells"][0]["probe"] == run.probe
    kept = [name for name in record["uses"] if name.startswith("probe-")]
    assert [name.split("-")[1] for name in kept] == sorted(ALL)
    assert pipeline.clean(recipe.output.path) == []
    facts = build(run.folder, recipe, timing=False)
    assert facts.columns == ("majority", "linear probe", "multi")
    shown = {row.place: row.scores["linear probe"].mean for row in facts.scores if row.metric != "mrr"}
    assert shown == {place: next(iter(values.values())) for place, values in run.probe.items()}


def test_a_second_run_reads_the_scores_and_asks_nobody(
    make_tiny: Callable[..., Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[object] = []
    first = pipeline.run(make_tiny(), events.append)
    asked = {event.what for event in events if isinstance(event, Asking) and event.who == "linear probe"}
    assert asked == {f"{task}/{split}" for task in ("mood", "follows", "similar") for split in ("train", "dev")}
    monkeypatch.setattr(linear_probe, "probe_scores", None)  # not to be called
    again = pipeline.run(make_tiny(name="other", training={"lr": 2e-3}), events.append)
    assert again.probe == first.probe and again.models != first.models


def test_what_decides_the_scores_names_the_artefact(make_tiny: Callable[..., Recipe], deep: Path) -> None:
    def names(**changes: Any) -> set[str]:
        result = plan_probes(pipeline.make_plan(make_tiny(**changes)))
        assert result
        return {probe.artifact.folder.name for probe in result.probes}

    usual = names()
    assert names(training={"lr": 2e-3}, seed=4) == names(encoder={"layers": 1}) == usual
    assert names(heads={"pairs": "linear"}) == usual
    for change in ({"encoder": {"name": str(deep)}}, {"encoder": {"max_length": 16}}, {"data": {"demo": {"rows": 65}}}):
        assert not names(**change) & usual


def labelled(path: Path, turned: bool) -> str:
    """Rows whose labels are partly chance."""
    dice = np.random.default_rng(1 if path.stem == "train" else 2)
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "label"])
        for number in range(120):
            words = " ".join(dice.choice(["good", "long", "film", "parcel", "guitar", "order", "bad"], 6))
            label = ("good" in words) != (dice.random() < 0.2)
            rows.writerow([f"{words} {number}", ["no", "yes"][label != turned]])
    return str(path)


def test_dev_labels_have_no_part_in_the_fit(make_tiny: Callable[..., Recipe], tmp_path: Path) -> None:
    train, result = labelled(tmp_path / "train.csv", False), []
    for turned in (False, True):
        own = {"train": train, "dev": labelled(tmp_path / f"dev{turned}.csv", turned), "text": "text", "label": "label"}
        result.append(pipeline.run(make_tiny(tasks={"note": own})).probe["note/dev"]["accuracy"])
    assert sum(result) == pytest.approx(1), "the same answers, once right where they were wrong before"


def test_without_the_encoder_a_run_is_whole_and_says_what_it_lacks(
    make_tiny: Callable[..., Recipe], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def gone(*_: object) -> None:
        raise UserError("encoder x cannot be loaded")

    monkeypatch.setattr(linear_probe, "load_tokenizer", gone)
    with caplog.at_level(logging.WARNING):
        run = pipeline.run(make_tiny(tasks=["mood"]))
    assert run.models[0].scores and list(run.columns) == ["majority", "multi"]
    assert "mood has no linear probe: encoder x cannot be loaded" in caplog.text


def test_a_student_over_words_has_the_floor_of_its_teachers_encoder_or_none(
    make_tiny: Callable[..., Recipe], tiny: Path
) -> None:
    words = {"name": "static", "words": {"dense": 8, "size": 10}}
    assert pipeline.run(make_tiny(tasks=["mood"], encoder=words)).probe == {}
    own = {"encoder": words, "training": {"lr": 1e-2}, "baseline": False}
    taught = make_tiny(tasks=["mood"], teachers=[{"name": "large"}], targets={"weak": "keep"}, student=own)
    result = plan_probes(pipeline.make_plan(taught))
    assert result and Path(result.start.place) == tiny
    assert pipeline.run(taught).probe == pipeline.run(make_tiny(tasks=["mood"])).probe != {}


def test_a_student_cut_out_of_its_teacher_has_the_floor_of_what_the_teacher_began_with(
    make_tiny: Callable[..., Recipe], tiny: Path
) -> None:
    student = {"encoder": {"name": "large", "layers": 1}}
    plan = pipeline.make_plan(make_tiny(tasks=["mood"], teachers=[{"name": "large"}], student=student))
    result = plan_probes(plan)
    assert result and Path(result.start.place) == tiny


def test_a_run_of_an_earlier_version_has_a_report_without_the_column(make_tiny: Callable[..., Recipe]) -> None:
    recipe = make_tiny(tasks=["mood"])
    path = pipeline.run(recipe).folder / "run.json"
    record = read_record(path)
    del record["probe"], record["cells"][0]["probe"]
    write_record(path, record)
    facts = build(path.parent, recipe, timing=False)
    assert facts.columns == ("majority", "multi") and sections(facts)


def test_what_the_system_refuses_ends_a_run_that_would_lack_its_probe(
    make_tiny: Callable[..., Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, real = make_tiny(tasks=["mood"]), linear_probe.probe_scores
    for error in (OSError(28, "No space left on device"), MemoryError()):
        monkeypatch.setattr(linear_probe, "probe_scores", Mock(side_effect=error))
        with pytest.raises(type(error)):
            pipeline.run(recipe)
    monkeypatch.setattr(linear_probe, "probe_scores", real)
    failing = OSError(5, "Input/output error")

    def load(*_: object) -> None:
        raise UserError("encoder x cannot be loaded") from failing

    for name, broken in (("load_tokenizer", load), ("identity", Mock(side_effect=failing))):
        with monkeypatch.context() as patch, pytest.raises((UserError, OSError), match=r"loaded|output error"):
            patch.setattr(linear_probe, name, broken)
            pipeline.run(recipe)
    assert "mood/dev" in pipeline.run(recipe).probe
