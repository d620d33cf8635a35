"""From label names to a student: a language model answers, and the run goes on as with any other teacher."""

from __future__ import annotations

import csv
import io
import json
import logging
import re
import shutil
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from llm_server import Answer, LlmServer, by_word, serving
from understill import cli
from understill.engines.study import run, train_students
from understill.errors import UserError
from understill.pipeline.language_models import answer_rows, show_prompts_of, unanswered
from understill.pipeline.llm_estimate import estimate_asks
from understill.pipeline.plan.planner import make_plan, make_study
from understill.pipeline.record import read_record
from understill.pipeline.soft_targets import asked_of
from understill.recipe import Recipe, load_recipe, make_recipe
from understill.report import write_report

Values = Callable[..., dict[str, Any]]
KEY = "sk-this-must-never-be-seen-0123456789"


def done(*arguments: str | Path) -> tuple[str, str]:
    """Run the program, which must succeed, and return what it printed."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as stop:
        cli.main([str(argument) for argument in arguments])
    assert not stop.value.code, err.getvalue()
    return out.getvalue(), err.getvalue()


def rows(count: int, first: int = 0) -> list[tuple[str, str]]:
    words = [("good", "positive"), ("bad", "negative")]
    return [(f"number {n}: the film was {words[n % 2][0]}", words[n % 2][1]) for n in range(first, first + count)]


def write(path: Path, lines: list[tuple[str, str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *lines])


@pytest.fixture
def values(tiny: Path, tmp_path: Path) -> Values:
    """A function that gives a recipe with texts, names of labels and a language model, as plain values."""
    for name, lines in {"pool": rows(80), "dev": rows(24, 200)}.items():
        write(tmp_path / f"{name}.csv", lines)

    def make(server: LlmServer, *, dev: bool = True, **llm: Any) -> dict[str, Any]:
        task = {"text": "text", "unlabelled": str(tmp_path / "pool.csv"), "labels": {"negative": "bad", "positive": ""}}
        labelled = {"dev": str(tmp_path / "dev.csv"), "label": "label"}
        settings = {"endpoint": server.endpoint, "model": "m", "options": "labels", **llm}
        return {
            "name": "small",
            "tasks": {"mood": {**task, **(labelled if dev else {})}},
            "encoder": {"name": str(tiny), "max_length": 24},
            "training": {"steps": 40, "batch": 16, "lr": 3e-3, "evaluate": "20 steps"},
            "teachers": [{"name": "llm", "llm": settings}],
            "student": {"distil": {"hard": 0, "soft": 1}, "baseline": False},
            "output": {"folder": str(tmp_path / "runs")},
            "machine": {"device": "cpu", "threads": 1},
        }

    return make


def test_texts_and_names_of_labels_become_a_student(values: Values, tmp_path: Path) -> None:
    with serving(by_word) as server:
        recipe = make_recipe(values(server))
        assert unanswered(recipe)
        made = run(recipe)
        asked = len(server.bodies)
        assert asked == 80 + 24
        run(make_recipe(values(server)))
        assert len(server.bodies) == asked, "a second run pays nothing"
    record = read_record(made.folder)
    assert record["teachers"]["mood/dev"]["accuracy"] == 1.0
    assert set(record["models"]) == {"student"}
    saved = yaml.safe_load((made.folder / "recipe.yaml").read_text())
    assert saved["tasks"]["mood"]["silver"] == ["train"]
    lines = [json.loads(line) for line in Path(saved["tasks"]["mood"]["train"][0]).read_text().splitlines()]
    assert {line["text"]: line["label"] for line in lines} == dict(rows(80))
    asked_facts = record["asked"]["llm"]["mood"]
    assert (asked_facts["rows"], asked_facts["silences"]) == (104, 0)
    assert asked_facts["tokens_in"] == 50 * 104
    plan = make_plan(load_recipe(made.folder / "recipe.yaml"))
    for folder in tmp_path.glob("runs/artifacts/verdict-*/"):
        shutil.rmtree(folder)
    assert asked_of(plan)["llm"]["mood"]["rows"] == 80, "what is left is counted where a verdict was removed meanwhile"


def test_without_any_hand_labelled_row_scores_are_agreement_and_said_to_be(
    values: Values, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(by_word) as server:
        recipe = make_recipe(values(server, dev=False))
        made = run(recipe)
    saved = yaml.safe_load((made.folder / "recipe.yaml").read_text())
    assert saved["tasks"]["mood"]["silver"] == ["train", "dev"]
    assert "scores only say how far models agree with llm" in caplog.text
    page = write_report(made.folder, recipe_of(made.folder), timing=False).with_suffix(".md").read_text()
    assert "no hand-labelled row" in page


def recipe_of(folder: Path) -> Recipe:
    return make_recipe(yaml.safe_load((folder / "recipe.yaml").read_text()))


def test_a_budget_is_spent_on_so_many_rows_and_dev_on_so_many_others(values: Values) -> None:
    with serving(by_word) as server:
        made = run(make_recipe(values(server, budget=30)))
        assert len(server.bodies) == 30 + 24
    saved = yaml.safe_load((made.folder / "recipe.yaml").read_text())
    lines = Path(saved["tasks"]["mood"]["train"][0]).read_text().splitlines()
    assert len(lines) == 30


@pytest.mark.parametrize("rule", ["random", "uncertainty", "diverse"])
def test_rounds_go_on_while_the_dev_score_rises(values: Values, rule: str) -> None:
    with serving(by_word) as server:
        recipe = make_recipe(values(server, budget=60, rounds=3, choose=rule))
        answered = answer_rows(recipe, lambda event: None, train_students)
        first = len(server.bodies)
        again = answer_rows(recipe, lambda event: None, train_students)
        assert len(server.bodies) == first
    assert again.tasks["mood"].train == answered.tasks["mood"].train
    lines = Path(answered.tasks["mood"].train[0]).read_text().splitlines()
    assert len(lines) in (20, 40, 60)
    assert first >= len(lines) + 24


def test_diverse_rows_are_chosen_by_the_encoder_that_a_student_is_cut_out_of(values: Values) -> None:
    with serving(by_word) as server:
        made = values(server, budget=20, choose="diverse")
        made["teachers"].append({"name": "large"})
        made["student"]["encoder"] = {"name": "large", "layers": 1}
        answered = answer_rows(make_recipe(made), lambda event: None, train_students)
    assert len(Path(answered.tasks["mood"].train[0]).read_text().splitlines()) == 20


def test_a_task_with_gold_asks_about_the_chosen_rows_only(values: Values, tmp_path: Path) -> None:
    with serving(by_word) as server:
        plain = values(server, budget=10, rows="train")
        plain["tasks"]["mood"] |= {"train": str(tmp_path / "pool.csv")}
        del plain["tasks"]["mood"]["unlabelled"]
        plain["student"] = {"baseline": False}
        run(make_recipe(plain))
        assert len(server.bodies) == 10 + 24


def test_a_language_model_that_guesses_is_refused_with_its_score(values: Values) -> None:
    def guess(prompt: str) -> Answer:
        return "negative", {"negative": 0.51, "positive": 0.49}

    with serving(guess) as server, pytest.raises(UserError) as caught:
        run(make_recipe(values(server)))
    assert "should not teach" in str(caught.value)
    assert "accuracy 50.0 on dev, where the best constant answer has" in str(caught.value)
    assert len(server.bodies) == 24, "dev is asked first, and nothing else is paid for"


def test_a_lead_over_guessing_that_may_be_chance_is_refused_too(values: Values) -> None:
    def nearly(prompt: str) -> Answer:
        known = any(f"number {number}:" in prompt for number in (201, 203, 200, 202, 204))
        return by_word(prompt) if known else ("positive", {"positive": 0.6, "negative": 0.4})

    with (
        serving(nearly) as server,
        pytest.raises(UserError, match=r"on 24 rows that is no better than guessing \(p = 0"),
    ):
        run(make_recipe(values(server)))


def test_scores_are_expected_values(values: Values, tmp_path: Path) -> None:
    def rate(prompt: str) -> Answer:
        return (
            ("5", {"5": 0.5, "4": 0.5}) if "good" in prompt.rpartition("text: ")[2] else ("0", {"0": 0.75, "2": 0.25})
        )

    with serving(rate) as server:
        plain = values(server)
        plain["tasks"]["mood"] = {
            "text": "text", "unlabelled": str(tmp_path / "pool.csv"), "kind": "regression", "range": [0, 5],
            "question": "How good is the film?", "descriptions": {"0": "awful", "5": "great"},
        }  # fmt: skip
        answered = answer_rows(make_recipe(plain), lambda event: None, train_students)
        assert "0: awful\n1\n2\n3\n4\n5: great" in next(iter(server.asked))
    lines = [json.loads(line) for line in Path(answered.tasks["mood"].train[0]).read_text().splitlines()]
    assert {round(line["label"], 2) for line in lines} == {4.5, 0.5}


# The key --------------------------------------------------------------------------------------------------------------


def test_the_key_appears_nowhere(
    values: Values, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    caplog.set_level(logging.DEBUG)
    faults = iter(["500 your key " + KEY, "429 " + KEY])
    with serving(by_word, lambda prompt, before: next(faults, "")) as server:
        path = tmp_path / "recipe.yaml"
        path.write_text(yaml.safe_dump(values(server, key="MY_KEY", dev=True)), encoding="utf-8")
        outputs = [
            done("check", path),
            done("train", path, "--show-prompts", "1"),
            done("run", path),
            done("check", path),
        ]
        assert server.keys == {f"Bearer {KEY}"}
        server.fault = lambda prompt, before: f"400 {KEY} is not allowed"
        with pytest.raises(UserError) as caught:
            run(make_recipe(values(server, key="MY_KEY", model="other")))
        server.fault = lambda prompt, before: f"401 Incorrect API key provided: {KEY}"
        with pytest.raises(UserError) as refused:
            run(make_recipe(values(server, key="MY_KEY", model="other")))
    texts = [caplog.text, str(caught.value), str(refused.value), *(out + err for out, err in outputs)]
    assert not any(KEY in text for text in texts)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.suffix == ".html" for path in files) and any(path.suffix == ".sqlite" for path in files)
    assert not [path for path in files if KEY.encode() in path.read_bytes()]


@pytest.mark.parametrize(
    "settings", [{"key": KEY}, {"endpoint": f"https://user:{KEY}@host/v1"}, {"endpoint": f"https://host/v1?key={KEY}"}]
)
def test_a_key_in_a_recipe_is_refused_without_being_repeated(values: Values, settings: dict[str, Any]) -> None:
    with serving(by_word) as server, pytest.raises(UserError) as caught:
        make_recipe(values(server, **settings))
    assert KEY not in str(caught.value) and "key: OPENAI_API_KEY" in str(caught.value)


def test_a_variable_that_is_not_set_is_named(values: Values, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with serving(by_word) as server, pytest.raises(UserError, match="the variable NO_SUCH_KEY is not set → export"):
        run(make_recipe(values(server, key="NO_SUCH_KEY")))


# The command line -----------------------------------------------------------------------------------------------------


def test_check_says_what_answers_will_take_and_prompts_can_be_looked_at(values: Values, tmp_path: Path) -> None:
    with serving(by_word) as server:
        path = tmp_path / "recipe.yaml"
        path.write_text(yaml.safe_dump(values(server, prices={"input": 1.0, "output": 2.0})), encoding="utf-8")
        output = done("check", path, "--set", "teachers.0.llm.requests_per_minute=52")[0]
        prompts = done("train", path, "--show-prompts", "2")[0]
        assert not server.bodies, "nothing is asked"
        assert re.search(r"llm +│ mood +│ 104 +│ 104 +│ 0 +│ [\d,]+ \+ 104 +│ 2 min.* │ 0\.00\d\d", output)
        done("run", path)
        assert re.search(r"llm +│ mood +│ 104 +│ 0 +│ 104 ", done("check", path)[0])
    assert prompts.count("negative: bad\npositive\n") == 2
    assert "text: number 0: the film was good\nAnswer:" in prompts


def test_check_counts_the_rows_that_a_budget_takes_of_all_files(values: Values, tmp_path: Path) -> None:
    with serving(by_word) as server:
        plain = values(server, budget=70, seed=2)
        for name, lines in {"train": rows(40, 400), "dev": rows(24, 200)}.items():
            write(tmp_path / f"{name}.csv", lines)
        plain["tasks"]["mood"]["train"] = str(tmp_path / "train.csv")
        (before,) = estimate_asks(make_recipe(plain))
        assert (before.rows, before.requests) == (70 + 24, 70 + 24)
        answer_rows(make_recipe(plain), lambda event: None, train_students)
        run(make_recipe(plain))
        assert len(server.bodies) == 70 + 24
        (after,) = estimate_asks(make_recipe(plain))
        assert (after.requests, after.kept, after.short) == (0, 70 + 24, "")


def test_check_knows_what_is_kept_of_a_run_that_stopped_and_that_a_limit_is_too_low(values: Values) -> None:
    with serving(by_word) as server:
        plain = values(server, budget=40, max_requests=44, concurrency=1)
        (before,) = estimate_asks(make_recipe(plain))
        assert (
            before.short == "llm would stop at llm.max_requests: 44, for it needs about 64 with what was spent before"
        )
        with pytest.raises(UserError, match=r"20 of 40 rows of train are answered .* with llm\.budget: 20$"):
            run(make_recipe(plain))
        (after,) = estimate_asks(make_recipe(plain))
        assert (after.requests, after.kept) == (20, 44)
        plain["teachers"][0]["llm"]["budget"] = 20
        run(make_recipe(plain))
        assert len(server.bodies) == 44, "what the message names needs no further request"


def test_check_counts_the_draws_of_a_server_without_probabilities(values: Values, tmp_path: Path) -> None:
    with serving(lambda prompt: (by_word(prompt)[0], None)) as server:
        plain = values(server, budget=10, samples=3)
        (before,) = estimate_asks(make_recipe(plain))
        assert (before.requests, before.draws) == (34, 3)
        answer_rows(make_recipe(plain), lambda event: None, train_students)
        (after,) = estimate_asks(make_recipe(plain))
        assert (after.rows, after.requests, after.kept, after.draws) == (34, 0, 3 * 34, 1)
        (more,) = estimate_asks(make_recipe(values(server, budget=20, samples=3)))
        assert (more.requests, more.kept) == (3 * 10, 3 * 34)


def test_check_counts_the_texts_without_content_that_calibration_asks_about(values: Values) -> None:
    with serving(by_word) as server:
        plain = values(server, budget=10, calibrate=True, max_requests=36) | {"targets": {"weak": "keep"}}
        (before,) = estimate_asks(make_recipe(plain))
        assert (before.rows, before.requests) == (34, 37) and "max_requests: 36" in before.short
        plain["teachers"][0]["llm"]["max_requests"] = 37
        answer_rows(make_recipe(plain), lambda event: None, train_students)
        run(make_recipe(plain))
        (after,) = estimate_asks(make_recipe(plain))
        assert (after.requests, len(server.bodies)) == (0, 37)


def test_check_does_not_take_draws_for_answers_with_probabilities(values: Values) -> None:
    with serving(by_word) as server:
        answer_rows(make_recipe(values(server, answers="samples", samples=3)), lambda event: None, train_students)
        (other,) = estimate_asks(make_recipe(values(server, answers="logprobs", samples=3)))
        assert (other.rows, other.requests, other.kept) == (104, 104, 0)


def test_another_question_is_another_teacher_in_a_study_too(values: Values) -> None:
    with serving(by_word) as server:
        plain = values(server)
        plain["ablations"] = {"q": {"tasks.mood.question": "Is the film good?"}}
        study = make_study(make_recipe(plain))
        names = [model.fingerprint for _, plan in study.cells for model in plan.models if model.role == "student"]
        assert len(set(names)) == 2


def test_no_smaller_budget_is_named_where_it_would_not_do(values: Values) -> None:
    with serving(by_word) as server:
        alone = values(server, dev=False, max_requests=20, concurrency=1)  # what is held out is asked about last
        with pytest.raises(UserError, match=r"goes on from there$"):
            run(make_recipe(alone))
        two = values(server, budget=40, model="n", max_requests=44, concurrency=1)
        two["tasks"]["again"] = two["tasks"]["mood"]
        with pytest.raises(UserError, match=r"goes on from there$"):
            run(make_recipe(two))


def test_of_texts_alone_the_unlabelled_rows_are_all_rows(values: Values) -> None:
    with serving(by_word) as server:
        answered = answer_rows(make_recipe(values(server, rows="unlabelled")), lambda event: None, train_students)
        assert len(Path(answered.tasks["mood"].train[0]).read_text().splitlines()) == 80
        made = run(make_recipe(values(server, rows="unlabelled")))
        assert len(server.bodies) == 80 + 24
    assert read_record(made.folder)["asked"]["llm"]["mood"]["rows"] == 104


def test_a_ranking_of_texts_alone_is_not_asked_for_labels(values: Values) -> None:
    with serving(by_word) as server, pytest.raises(UserError) as caught:
        plain = values(server, dev=False)
        plain["tasks"]["mood"] = {"text": ["text", "text"], "unlabelled": "pool.csv", "kind": "ranking"}
        make_recipe(plain)
    assert "name train" in str(caught.value) and "write labels" not in str(caught.value)


@pytest.mark.parametrize(
    ("dev", "said"), [(True, "no training row was labelled by hand"), (False, "no hand-labelled row")]
)
def test_the_report_that_a_run_writes_says_whose_answers_the_labels_are(
    values: Values, tmp_path: Path, dev: bool, said: str
) -> None:
    with serving(by_word) as server:
        path = tmp_path / "recipe.yaml"
        path.write_text(yaml.safe_dump(values(server, dev=dev, budget=30)), encoding="utf-8")
        done("run", path)
    page = (tmp_path / "runs" / "small" / "report.md").read_text(encoding="utf-8")
    assert said in page
    assert re.search(r"\| mood \| .* \| 30 \| ", page), "training rows are those that were answered"


def test_answers_of_the_student_agree_with_those_of_the_language_model(values: Values) -> None:
    with serving(by_word) as server:
        plain = values(server) | {"encoder": {"name": "static", "max_length": 24}}
        plain["training"] |= {"lr": 0.05, "steps": 120}
        made = run(make_recipe(plain))
    record = read_record(made.folder)
    assert record["models"]["student"]["scores"]["mood/dev"]["accuracy"] >= 0.9
    assert np.isfinite(record["asked"]["llm"]["mood"]["seconds"])


def test_of_a_diagnostic_set_there_are_no_prompts_since_another_tasks_head_answers_it(
    values: Values, tmp_path: Path
) -> None:
    for name in ("MNLI/train", "MNLI/dev_matched", "MNLI/dev_mismatched", "AX/diagnostic"):
        path = tmp_path / "glue" / f"{name}.tsv"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [f"{number}\ta {number}\tb {number}\tneutral" for number in range(30)]
        path.write_text("\n".join(["index\tsentence1\tsentence2\tlabel", *lines]), encoding="utf-8")
    with serving(by_word) as server:
        made = make_recipe(values(server) | {"tasks": ["mnli", "ax"], "data": {"glue": str(tmp_path / "glue")}})
        assert [title for title, _ in show_prompts_of(made, 1)] == ["llm, mnli/train, row 1"]
