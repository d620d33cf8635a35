"""Two runs are compared row by row, by what was kept of them, and no more is claimed than that allows."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import understill
from understill import cli, numbers, pipeline
from understill.atomic import read_record, write_record
from understill.data.taskdata import TaskData, Writer
from understill.errors import UserError
from understill.evaluate.metrics import Array, score
from understill.evaluate.predict import save_predictions
from understill.evaluate.significance import holm
from understill.inference.predictor import Predictions
from understill.pipeline import compare
from understill.pipeline.comparison import better_than_all, retention, score_side
from understill.pipeline.sides import find_side, save_clusters
from understill.recipe import Recipe
from understill.tasks import Task

MOOD = Task("mood", "classification", ("text",), "label", ("calm", "upset"), metrics=("accuracy", "f1"))
STARS = Task("stars", "regression", ("text",), "label", metrics=("mse",))
ROWS = 400


#: The text of each row; some texts are there twice, and some of those labelled differently.
TEXT = np.where(np.arange(ROWS) < 40, np.arange(ROWS) // 2, np.arange(ROWS))


def gold_of(task: Task) -> Array:
    random = np.random.default_rng(len(task.name))
    if task.kind.name == "regression":
        return random.uniform(0, 5, ROWS)[TEXT]
    gold = random.integers(0, 2, ROWS).astype(float)[TEXT]
    gold[1:40:4] = 1 - gold[:40:4]
    return gold


def answers(task: Task, skill: float, seed: int) -> Array:
    """Return answers that are right so often, or so far off; the same text gets the same."""
    random, gold = np.random.default_rng(seed), gold_of(task)
    _, first, place = np.unique(TEXT, return_index=True, return_inverse=True)
    if task.kind.name == "regression":
        output = gold + skill * random.normal(size=ROWS)
    else:
        output = np.where(random.random(ROWS) < skill, gold, 1 - gold)
    return output[first][place]


def made_model(
    root: Path, name: str, output: Mapping[Task, Array], order: Sequence[int], ids: str = "r"
) -> dict[str, Any]:
    """Keep the answers of a model as a run does, and return what its record says of it."""
    scores = {}
    for task, values in output.items():
        gold = gold_of(task)
        data = root / "artifacts" / name / "data.arrow"
        data.parent.mkdir(parents=True, exist_ok=True)
        writer = Writer(data, task)
        for row in order:
            label = MOOD.labels[int(gold[row])] if task.labels else float(gold[row])
            writer.add(f"{ids}{TEXT[row]:023d}", ["a text"], label)
        writer.close()
        logits = np.stack([1 - values, values], axis=1) if task.labels else values[:, None]
        kept = data.parent / "predictions" / f"{task.name}.dev.parquet"
        split = TaskData(task, "dev", data, "", len(order))
        save_predictions(kept, split, Predictions(task, logits[list(order)].astype(np.float32)))
        scores[f"{task.name}/dev"] = score(task, gold, values)
    return {"folder": f"../artifacts/{name}/model", "scores": scores}


def made_run(root: Path, name: str, seeds: Sequence[Mapping[Task, Array]], role: str = "student", **more: Any) -> Path:
    """Write a finished run of several seeds, each with its rows in an order of its own."""
    cells = []
    for seed, output in enumerate(seeds):
        order = np.random.default_rng(seed).permutation(ROWS).tolist()
        model = {"role": role, **made_model(root, f"{name}-{seed}", output, order, **more)}
        cells.append({"variant": "as it is", "seed": seed, "models": {role: model}})
    (root / name).mkdir()
    write_record(root / name / "run.json", {"state": "done", **cells[0], "cells": cells})
    return root / name


def run_of(root: Path, name: str, skills: Sequence[float], task: Task = MOOD, first: int = 0, **more: Any) -> str:
    seeds = [{task: answers(task, skill, first + seed)} for seed, skill in enumerate(skills)]
    return str(made_run(root, name, seeds, **more))


def test_a_better_model_is_found_better_and_the_same_worse_the_other_way(tmp_path: Path) -> None:
    weak, strong = run_of(tmp_path, "weak", [0.7]), run_of(tmp_path, "strong", [0.85], first=9)
    (actual,) = compare([weak, strong])
    (row,) = actual.compared
    assert (row.place, row.metric) == ("mood/dev", "accuracy")
    (check,) = row.checks
    assert check.test == "McNemar, chi-square" and check.p < 0.001
    assert check.delta == pytest.approx(row.difference.delta)
    assert row.difference.delta == pytest.approx(row.second.mean - row.first.mean)
    assert row.verdict == 1 and row.p == row.difference.p < 0.001
    assert actual.claim.startswith("On mood B is better than A: +") and "This is about these two models" in actual.claim
    assert row.stars == "", "one seed a side"
    assert compare([strong, weak])[0].claim.startswith("On mood B is worse than A: −")


def test_rows_are_joined_whatever_their_order(tmp_path: Path) -> None:
    """The seeds have their rows in different orders, yet a model that answers the same differs in nothing."""
    same = {MOOD: answers(MOOD, 0.8, 0)}
    one, two = made_run(tmp_path, "one", [same, same]), made_run(tmp_path, "two", [same])
    ((row,),) = (each.compared for each in compare([str(one), str(two)]))
    assert (row.difference.delta, row.difference.p, row.verdict) == (0.0, 1.0, 0)
    assert compare([str(one), str(two)])[0].claim == (
        "No significant difference between B and A. On mood there is no difference."
    )


def test_seeds_are_drawn_too_and_compared_by_themselves(tmp_path: Path) -> None:
    weak = run_of(tmp_path, "weak", [0.7, 0.71, 0.69])
    strong = run_of(tmp_path, "strong", [0.85, 0.84, 0.86], first=9)
    (actual,) = compare([weak, strong])
    (row,) = actual.compared
    assert row.difference.test == "bootstrap, Welch's t" and len(row.first.values) == 3 and row.stars == "*"
    (check,) = row.checks
    assert check.p == pytest.approx(0.1) and check.effect == 1
    assert "other seeds of the same recipes" in actual.claim


def test_all_that_is_shown_together_is_corrected_together(tmp_path: Path) -> None:
    first = run_of(tmp_path, "first", [0.75])
    others = [run_of(tmp_path, f"other{number}", [0.8], first=5 + number) for number in range(3)]
    alone = [compare([first, other])[0].compared[0].difference.p for other in others]
    together = [each.compared[0].p for each in compare([first, *others])]
    assert min(together) == pytest.approx(min(1, 3 * min(alone)))
    assert all(corrected >= p for corrected, p in zip(together, alone, strict=True))


def test_a_smaller_error_is_better(tmp_path: Path) -> None:
    near, far = run_of(tmp_path, "near", [0.5], STARS), run_of(tmp_path, "far", [1.0], STARS, first=9)
    (actual,) = compare([near, far])
    assert actual.compared[0].difference.delta > 0 and actual.compared[0].verdict == -1


def test_models_that_may_be_alike_are_not_told_apart(tmp_path: Path) -> None:
    names = [run_of(tmp_path, "one", [0.8]), run_of(tmp_path, "two", [0.8], first=9)]
    claim = compare(names)[0].claim
    assert claim.startswith(
        "No significant difference between B and A. On mood B does not differ significantly from A: +"
    )
    assert "a true difference of 8.4 would have been found with a probability of 80 %" in claim


def test_a_part_is_named_after_a_colon(tmp_path: Path) -> None:
    run = made_run(tmp_path, "run", [{MOOD: answers(MOOD, 0.8, 0)}])
    record = read_record(run / "run.json")
    models = record["cells"][0]["models"]
    taught = made_model(tmp_path, "t", {MOOD: answers(MOOD, 0.95, 5)}, range(ROWS))
    models["teacher-mood"] = {"role": "teacher", **taught}
    record["cells"][0] |= {"answers": "../artifacts/t/predictions", "teachers": taught["scores"]}
    write_record(run / "run.json", record)
    for part in ("teachers", "teacher", "teacher-mood"):
        (actual,) = compare([f"{run}:{part}", str(run)])
        assert actual.compared[0].verdict == -1
    with pytest.raises(UserError, match='no "baseline"; known: student, teacher'):
        compare([f"{run}:baseline", str(run)])


def test_several_teachers_of_a_run_are_no_seeds_of_each_other(tmp_path: Path) -> None:
    """A weak and a strong one say nothing of what other seeds of either would do, however far both are from B."""
    run = made_run(tmp_path, "run", [{MOOD: answers(MOOD, 0.6, seed)} for seed in range(2)])
    record = read_record(run / "run.json")
    for number, skill in enumerate((0.93, 0.95)):
        taught = made_model(tmp_path, f"t{number}", {MOOD: answers(MOOD, skill, 5 + number)}, range(ROWS))
        for cell in record["cells"]:
            cell["models"][f"teacher-{number}"] = {"role": "teacher", **taught}
    write_record(run / "run.json", record)
    (actual,) = compare([str(run), f"{run}:teacher"])
    assert actual.compared[0].verdict == 1 and len(actual.compared[0].second.values) == 2
    assert "about these very models" in actual.claim


def test_other_variants_of_a_study_do_not_count_as_seeds(tmp_path: Path) -> None:
    run = made_run(tmp_path, "run", [{MOOD: answers(MOOD, 0.8, seed)} for seed in range(3)])
    record = read_record(run / "run.json")
    record["cells"][2]["variant"] = "no_annealing"
    write_record(run / "run.json", record)
    assert len(compare([str(run), str(run)])[0].compared[0].first.values) == 2


def test_a_variant_is_named_after_a_colon_and_its_part_after_a_stroke(tmp_path: Path) -> None:
    run = made_run(tmp_path, "run", [{MOOD: answers(MOOD, skill, seed)} for seed, skill in enumerate((0.7, 0.7, 0.95))])
    record = read_record(run / "run.json")
    record["cells"][2]["variant"] = "soft-with"
    write_record(run / "run.json", record)
    for name in ("soft-with", "soft-with/student"):
        (actual,) = compare([str(run), f"{run}:{name}"])
        assert actual.compared[0].second.mean > 0.9 > actual.compared[0].first.mean
        assert [len(side.values) for side in (actual.compared[0].first, actual.compared[0].second)] == [2, 1]
    with pytest.raises(UserError, match='no "soft-wiht"; did you mean "soft-with"'):
        compare([str(run), f"{run}:soft-wiht"])
    with pytest.raises(UserError, match='no "baseline"; known: as it is, soft-with, student'):
        compare([str(run), f"{run}:soft-with/baseline"])


def test_what_cannot_be_compared_is_said(tmp_path: Path) -> None:
    one = run_of(tmp_path, "one", [0.8])
    with pytest.raises(UserError, match="nothing to compare"):
        compare([one])
    with pytest.raises(UserError, match="no dev set in common: mood/dev and stars/dev"):
        compare([one, run_of(tmp_path, "scores", [0.5], STARS)])
    other = Task("mood", "regression", ("text",), "label", metrics=("mse",))
    with pytest.raises(UserError, match=r"^mood/dev: a classification task for .*one, a regression task for .*graded$"):
        compare([one, run_of(tmp_path, "graded", [0.5], other)])
    with pytest.raises(UserError, match=r"the dev sets of .*one and .*else differ: 760 rows are in one only"):
        compare([one, run_of(tmp_path, "else", [0.8], ids="s")])
    with pytest.raises(UserError, match="no such model folder"):
        compare([one, str(tmp_path / "nowhere")])
    with pytest.raises(UserError, match=r"no run\.json here, so it has no student"):
        compare([one, f"{tmp_path}/nowhere:student"])
    for file in (tmp_path / "artifacts" / "one-0" / "predictions").iterdir():
        file.unlink()
    with pytest.raises(UserError, match="were not kept"):
        compare([one, one])
    for broken in ('{"state": "running"}', '{"models": {"student": {}}}', "[]", "{"):
        (tmp_path / "one" / "run.json").write_text(broken, encoding="utf-8")
        with pytest.raises(UserError, match="not finished"):
            compare([one, one])


def test_labels_that_differ_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = run_of(tmp_path, "one", [0.8])
    turned = 1 - gold_of(MOOD)
    monkeypatch.setitem(globals(), "gold_of", lambda task: turned)
    with pytest.raises(UserError, match="different labels for the same rows"):
        compare([one, run_of(tmp_path, "two", [0.8])])


def test_real_runs_and_models_are_compared_on_the_terminal(
    make_tiny: Callable[..., Recipe], capsys: pytest.CaptureFixture[str]
) -> None:
    """Two seeds of a real recipe, and one of its model folders; tables fit 80 columns."""
    runs = [pipeline.run(make_tiny(name=f"seed{seed}", seed=seed)) for seed in (0, 1)]
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        cli.main(["compare", str(runs[0].folder), str(runs[1].folder), str(runs[1].models[0].folder)])
    assert not stop.value.code
    out = capsys.readouterr().out
    shown = [line for line in out.splitlines() if line.startswith(("│", "┃"))]
    assert max(map(len, shown)) <= 80
    for task in ("mood", "follows", "similar"):
        assert sum(line.startswith(f"│ {task} ") for line in shown) == 4
    scores = runs[1].models[0].scores["mood/dev"]["accuracy"] - runs[0].models[0].scores["mood/dev"]["accuracy"]
    assert numbers.delta("accuracy", scores) in next(line for line in shown if line.startswith("│ mood "))
    assert all(word in out for word in ("paired bootstrap", "McNemar", "Holm"))


def test_what_so_few_seeds_cannot_show_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weak = run_of(tmp_path, "weak", [0.7, 0.71, 0.69])
    strong = run_of(tmp_path, "strong", [0.85, 0.84, 0.86], first=9)
    for names, output in (((weak, strong), True), ((weak, run_of(tmp_path, "one", [0.8])), False)):
        with pytest.raises(SystemExit):
            cli.main(["compare", *names])
        reported = " ".join(capsys.readouterr().out.split())
        assert ("with 3 seeds each the smallest possible p of a Mann-Whitney test is 0.1" in reported) == output


def test_a_mistake_in_the_names_ends_with_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["compare", str(tmp_path / "a"), str(tmp_path / "b")])
    assert stop.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


# The mean over tasks --------------------------------------------------------------------------------------------------

TOPIC = Task("topic", "classification", ("text",), "label", ("calm", "upset"), metrics=("accuracy",))


#: The rows of MOOD, since the name is as long.
AGAIN = Task("mode", "classification", ("text",), "label", ("calm", "upset"), metrics=("accuracy",))


def both(skill: float, seed: int) -> dict[Task, Array]:
    """The answers of one multi-task model."""
    return {MOOD: answers(MOOD, skill, seed), TOPIC: answers(TOPIC, skill, 50 + seed)}


def test_the_mean_over_tasks_is_tested_first_and_by_itself(tmp_path: Path) -> None:
    """Six points on each of two tasks are no proof of either task, and one on the mean."""
    one = made_run(tmp_path, "one", [both(0.80, seed) for seed in range(3)])
    two = made_run(tmp_path, "two", [both(0.86, 9 + seed) for seed in range(3)])
    (result,) = compare([str(one), str(two)])
    mean = result.mean
    assert mean is not None and [row.place for row in result.rows] == ["mean", "mood/dev", "topic/dev"]
    assert mean.difference.delta == pytest.approx(np.mean([row.difference.delta for row in result.compared]))
    assert mean.difference.error < min(row.difference.error for row in result.compared)
    assert mean.p == mean.difference.p, "a family of its own"
    assert [row.p for row in result.compared] == holm([row.difference.p for row in result.compared])
    assert result.claim.startswith("On the mean of 2 tasks B is better than A: +")
    assert "Task by task, after Holm's correction: " in result.claim


def test_a_diagnostic_set_has_its_row_and_no_part_in_the_mean(tmp_path: Path) -> None:
    """It has no head of its own, so it is no task that is averaged or counted."""
    diagnostic = Task("axes", "classification", ("text",), "label", MOOD.labels, metrics=("accuracy",), head="mood")
    runs = []
    for start, (name, skill) in enumerate((("one", 0.7), ("two", 0.9))):
        extra = {diagnostic: answers(diagnostic, 1 - skill, start)}
        runs.append(str(made_run(tmp_path, name, [{**both(skill, 9 * start), **extra}])))
    (result,) = compare(runs)
    assert [row.name for row in result.rows] == ["mean", "mood", "topic", "axes"]
    assert result.mean.difference.delta == pytest.approx(np.mean([row.difference.delta for row in result.compared[:2]]))
    assert result.claim.startswith("On the mean of 2 tasks B is better")


def test_dev_sets_of_one_size_are_not_drawn_alike(tmp_path: Path) -> None:
    """Of tasks with the very same answers the mean's variance is half of one's, and not all of it."""
    runs = []
    for name, skill, seed in (("one", 0.7, 0), ("two", 0.8, 3)):
        same = answers(MOOD, skill, seed)
        runs.append(str(made_run(tmp_path, name, [{MOOD: same, AGAIN: same}])))
    (result,) = compare(runs)
    by_task = [row.difference.error**2 for row in result.compared]
    assert result.mean.difference.error**2 == pytest.approx(sum(by_task) / 4, rel=0.1)


def test_a_seed_of_a_multi_task_model_is_one_unit(tmp_path: Path) -> None:
    """Seeds that gain on one task what they lose on the other leave the mean as it is."""
    skills = [(0.6, 0.9), (0.9, 0.6), (0.75, 0.75)]
    runs = []
    for start, name in ((0, "one"), (40, "two")):
        seeds = [
            {MOOD: answers(MOOD, a, start + i), TOPIC: answers(TOPIC, b, start + 7 + i)}
            for i, (a, b) in enumerate(skills)
        ]
        runs.append(str(made_run(tmp_path, name, seeds)))
    (result,) = compare(runs)
    rows, first, second = result.mean.difference.parts
    assert max(first, second) < rows < min(sum(row.difference.parts[1:]) for row in result.compared) / 4


def test_what_is_better_than_all_others_has_the_largest_of_their_p_values(tmp_path: Path) -> None:
    best, middle, worst = (run_of(tmp_path, name, [skill], first=9 * place) for place, (name, skill) in
                           enumerate((("best", 0.9), ("middle", 0.84), ("worst", 0.6))))  # fmt: skip
    result = compare([best, middle, worst])
    assert better_than_all(result) == max(each.primary.difference.p for each in result)
    assert better_than_all(compare([middle, best, worst])) is None


def test_one_set_of_teachers_for_all_seeds_limits_the_claim(tmp_path: Path) -> None:
    weak = run_of(tmp_path, "weak", [0.7, 0.71, 0.69])
    strong = Path(run_of(tmp_path, "strong", [0.85, 0.84, 0.86], first=9))
    for answers_of, shared in ((["t0"] * 3, True), (["t0", "t1", "t2"], False)):
        record = read_record(strong / "run.json")
        for cell, each in zip(record["cells"], answers_of, strict=True):
            cell["answers"] = each
        write_record(strong / "run.json", record)
        claim = compare([weak, str(strong)])[0].claim
        assert ("with the same teachers" in claim) == shared
        assert ("other seeds of the same recipes" in claim) != shared


def test_rows_of_a_cluster_are_drawn_together(tmp_path: Path) -> None:
    """Each row ten times over: as sure as a tenth of the rows, once the tool knows of it."""
    one, two = run_of(tmp_path, "one", [0.78]), run_of(tmp_path, "two", [0.86], first=9)
    alone = compare([one, two])[0].compared[0]
    ids = [f"r{TEXT[row]:023d}" for row in range(ROWS)]
    save_clusters(Path(one) / "clusters", "mood/dev", ids, [str(TEXT[row] // 20) for row in range(ROWS)])
    together = compare([one, two])[0].compared[0]
    assert together.difference.delta == alone.difference.delta
    assert together.difference.error != alone.difference.error and not together.checks, "McNemar knows of no clusters"


def test_what_a_student_keeps_of_its_teachers_has_intervals(tmp_path: Path) -> None:
    sides = {
        name: find_side(str(made_run(tmp_path, name, [both(skill, place)])))
        for place, (name, skill) in enumerate((("student", 0.85), ("teachers", 0.9), ("baseline", 0.7)))
    }
    majority = {"mood/dev": {"accuracy": 0.5}, "topic/dev": {"accuracy": 0.5}}
    result = retention(*sides.values(), majority)
    means = {name: score_side(side)["mean"].mean for name, side in sides.items()}
    assert result.kept.value == pytest.approx(means["student"] / means["teachers"])
    assert result.above.value == pytest.approx((means["student"] - 0.5) / (means["teachers"] - 0.5))
    gains = [means[name] - means["baseline"] for name in ("student", "teachers")]
    assert result.distilled.value == pytest.approx(gains[0] / gains[1])
    for each in result:
        assert each.interval.low < each.value < each.interval.high
    widths = [each.interval.high - each.interval.low for each in result]
    assert widths[0] < widths[1] < widths[2], "the smaller the denominator, the less is known"
    assert "whether at least 90.0 % (evaluation.keep) is kept is undecided" in result.sentence(0.9)
    assert ": at least 50.0 % (evaluation.keep) is kept" in result.sentence(
        0.5
    ) and ": at least 99.0 % (evaluation.keep) is not kept" in result.sentence(0.99)


def compared_on_the_terminal(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as stop:
        cli.main(["compare", *arguments])
    return int(stop.value.code or 0), capsys.readouterr().out


def test_scripts_learn_by_the_exit_status_whether_something_is_worse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weak, strong = run_of(tmp_path, "weak", [0.7]), run_of(tmp_path, "strong", [0.85], first=9)
    for arguments, status in (
        ((strong, weak), 0),
        ((strong, weak, "--fail-if", "worse"), 3),
        ((weak, strong, "--fail-if", "worse"), 0),
        ((strong, weak, "--fail-if", "worse", "--margin", "5"), 3),
        ((strong, weak, "--fail-if", "worse", "--margin", "40"), 0),
        ((strong, weak, "--fail-if", "better"), 2),
        ((strong, weak, "--margin", "1"), 2),
    ):
        assert compared_on_the_terminal(capsys, *arguments)[0] == status


def test_all_figures_are_printed_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = made_run(tmp_path, "one", [both(0.7, seed) for seed in range(2)])
    two = made_run(tmp_path, "two", [both(0.8, 9 + seed) for seed in range(2)])
    _, out = compared_on_the_terminal(capsys, str(one), str(two), "--json")
    (facts,) = json.loads(out)
    (result,) = understill.compare([str(one), str(two)])
    assert [row["place"] for row in facts["rows"]] == ["mean", "mood/dev", "topic/dev"]
    assert facts["rows"][0]["p"] == result.mean.difference.p and facts["claim"] == result.claim
    assert set(facts["rows"][0]["interval"]) == {"low", "high"}
