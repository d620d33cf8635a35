"""A kind of task is one module: here one whose answers are two numbers, from its recipe to the report."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

import understill
from understill import cli, pipeline
from understill.errors import RecipeError, UserError
from understill.evaluate.metrics import pearson
from understill.pipeline.comparison import compare
from understill.recipe import make_recipe
from understill.report.build import build
from understill.report.html import to_html
from understill.report.markdown import to_markdown
from understill.report.sections import sections
from understill.serve.schemas import Reply
from understill.tasks import KINDS, Kind, Task, metric
from understill.tasks.cells import Fault, as_score

# The kind, all of it --------------------------------------------------------------------------------------------------

NAMES = ("valence", "arousal")


class AffectReader:
    """Reads cells such as "0.3 0.7"."""

    def __init__(self, limits: tuple[float, float] | None) -> None:
        self.limits, self.values = limits, set[float]()

    def __call__(self, value: Any) -> tuple[float, ...] | None:
        """Return both numbers."""
        if value is None or not str(value).strip():
            return None
        numbers = tuple(as_score(part) or 0.0 for part in str(value).split())
        if len(numbers) != len(NAMES):
            raise Fault(f'"{value}" is not two numbers', "write valence and arousal, as in 0.3 0.7")
        for number in numbers:
            if self.limits and not self.limits[0] <= number <= self.limits[1]:
                raise Fault(f"{number:g} lies outside {self.limits[0]:g} to {self.limits[1]:g}")
        self.values.update(numbers)
        return numbers

    def facts(self, rows: int) -> dict[str, Any]:
        """Return the range of both."""
        return {"range": [min(self.values), max(self.values)]}

    def seen(self) -> dict[str, Any]:
        """Return nothing."""
        return {}


class Affect(Kind):
    """How pleasant and how excited a text is: two scores on one scale."""

    name = "valence_arousal"
    metrics = ("mean_correlation",)
    hard = "squared_error"
    soft = MappingProxyType({"cross_entropy": "soft_squared_error", "logits": "soft_squared_error"})
    settings = frozenset({"range"})
    noun = "feeling"
    probe = "ridge"

    def outputs(self, task: Task) -> int:
        """Both."""
        return len(NAMES)

    def gold_numbers(self, task: Task) -> int:
        """Both."""
        return len(NAMES)

    def reader(self, task: Task, known: frozenset[str] | None, limits: tuple[float, float] | None) -> AffectReader:
        """Read both out of one cell."""
        return AffectReader(limits)

    def in_json(self, task: Task, logits: Any) -> list[dict[str, Any]]:
        """Give them names."""
        return [{"scores": dict(zip(NAMES, answer, strict=True))} for answer in self.answers(task, logits)]

    def answer_columns(self, task: Task) -> dict[str, type]:
        """Have a column for each."""
        return dict.fromkeys(NAMES, float)

    def answer_cells(self, task: Task, logits: Any) -> list[Sequence[Any]]:
        """Fill them."""
        return [list(column) for column in zip(*self.answers(task, logits), strict=True)]

    def differ(self, task: Task, one: Mapping[str, Any], other: Mapping[str, Any], apart: float) -> bool:
        """Go by the number that differs most."""
        assert task.range is not None
        most = max(abs(one["scores"][name] - other["scores"][name]) for name in NAMES)
        return bool(most > apart * (task.range[1] - task.range[0]))

    def summary(self, task: Task) -> str:
        """Name it."""
        return "valence and arousal"

    def answers_with(self, task: Task) -> str:
        """Name it."""
        return "valence and arousal"


def mean_correlation(gold: Any, predicted: Any) -> float:
    """Return the mean of both correlations."""
    return float(np.mean([pearson(one, other) for one, other in zip(gold.T, predicted.T, strict=True)]))


@pytest.fixture(autouse=True)
def registered(no_plugins: None) -> None:
    """Register both, as importing a plug-in would."""
    KINDS.register(Affect.name)(Affect())
    metric("mean_correlation", kinds=[Affect.name])(mean_correlation)


# Runs -----------------------------------------------------------------------------------------------------------------

WORDS = {"awful": (0.0, 0.8), "dull": (0.2, 0.0), "fine": (0.6, 0.2), "lovely": (0.9, 0.5), "wow": (1.0, 1.0)}


def write_rows(path: Path, count: int) -> str:
    texts = [(word, both) for word, both in WORDS.items()]
    rows = [(f"{texts[number % 5][0]} {path.stem} {number}", texts[number % 5][1]) for number in range(count)]
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("text", "feeling"), *((text, f"{one} {two}") for text, (one, two) in rows)])
    return str(path)


@pytest.fixture
def values(recipe_values: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    files = {"train": write_rows(tmp_path / "train.csv", 60), "dev": write_rows(tmp_path / "dev.csv", 25)}
    task = {**files, "text": "text", "label": "feeling", "kind": "valence_arousal"}
    training = {"steps": 20, "batch": 8, "lr": 1e-5, "start": "probe", "evaluate": "10 steps"}
    return {**recipe_values, "tasks": {"feeling": task, "mood": {}}, "training": training}


def test_it_runs_from_recipe_to_report(values: dict[str, Any], tmp_path: Path) -> None:
    encoder = {"name": values["encoder"]["name"]}
    recipe = make_recipe({**values, "teachers": [{"name": "teacher", "encoder": encoder}], "targets": {"weak": "keep"}})
    run = pipeline.run(recipe)
    student = next(model for model in run.models if model.name == "student")
    scores = student.scores["feeling/dev"]
    assert list(scores) == ["mean_correlation"] and scores["mean_correlation"] > 0.7
    assert run.majority["feeling/dev"] == {"mean_correlation": 0.0}
    assert run.teachers["feeling/dev"]["mean_correlation"] > 0.7

    facts = build(run.folder, recipe, timing=False)
    page, text = to_html("tiny", sections(facts)), to_markdown("tiny", sections(facts))
    for report in (page, text):
        assert "valence and arousal, one text" in report and "mean_correlation" in report.replace("\\", "")
    (place,) = [place for place in facts.places if place.task.name == "feeling"]
    assert place.agreement and place.agreement.correlation is not None and place.agreement.same is None
    assert all(len(example.answers[0].split(", ")) == 2 for example in place.examples.shown)

    (comparison,) = compare([str(run.folder), str(run.folder)])
    (compared,) = [each for each in comparison.compared if each.place == "feeling/dev"]
    assert compared.difference.delta == 0


def test_its_models_are_evaluated_asked_and_exported(values: dict[str, Any], tmp_path: Path) -> None:
    run = pipeline.run(make_recipe(values))
    (model,) = run.models
    again, _ = pipeline.evaluate(model.folder, make_recipe(values))
    assert again["feeling/dev"] == model.scores["feeling/dev"]
    loaded = understill.load(model.folder)
    (answer,) = loaded.predict(["lovely day"], tasks=["feeling"])["feeling"]
    assert answer.scores is not None and list(answer.scores) == ["valence", "arousal"]
    assert all(0 <= score <= 1 for score in answer.scores.values()) and answer.score is None
    assert Reply.model_validate({"model": "m", "answers": [{"feeling": answer.plain()}], "milliseconds": 1.0})

    out = tmp_path / "answers.parquet"
    with pytest.raises(SystemExit) as stop:
        cli.main(["predict", str(model.folder), "--file", str(tmp_path / "dev.csv"), "--task", "feeling",
                  "--out", str(out)])  # fmt: skip
    assert stop.value.code == 0
    assert pq.read_table(out).column_names == ["text", "feeling", "feeling_valence", "feeling_arousal"]

    made = pipeline.export(model.folder, make_recipe(values), "onnx", out=tmp_path / "onnx")
    assert {each.place for each in made.parity} == {"feeling/dev", "mood/dev"}
    (same,) = understill.load(tmp_path / "onnx").predict(["lovely day"], tasks=["feeling"])["feeling"]
    assert same.scores == pytest.approx(answer.scores, abs=1e-4)
    with pytest.raises(UserError, match="feeling has a kind of its own"):
        pipeline.export(model.folder, make_recipe(values), "huggingface", tasks=["feeling"])


def test_a_file_of_its_answers_teaches_a_student(values: dict[str, Any], tmp_path: Path) -> None:
    with (tmp_path / "said.csv").open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file)
        out.writerow(["text", "feeling_valence", "feeling_arousal"])
        for name in ("train", "dev"):
            with (tmp_path / f"{name}.csv").open(encoding="utf-8") as rows:
                out.writerows([row["text"], *row["feeling"].split()] for row in csv.DictReader(rows))
    teacher = {"name": "file", "predictions": str(tmp_path / "said.csv"), "tasks": ["feeling"]}
    run = pipeline.run(make_recipe({**values, "teachers": [teacher]}))
    assert run.teachers["feeling/dev"] == {"mean_correlation": pytest.approx(1.0)}


def test_cells_that_are_not_two_numbers_are_listed(values: dict[str, Any], tmp_path: Path) -> None:
    with (tmp_path / "train.csv").open("a", encoding="utf-8") as file:
        file.write("three of them,0.1 0.2 0.3\nwords,so so\n")
    with pytest.raises(UserError) as error:
        pipeline.make_plan(make_recipe(values))
    assert '"0.1 0.2 0.3" is not two numbers → write valence and arousal' in str(error.value)
    assert '"so" is not a number' in str(error.value)


def test_a_recipe_is_told_of_kinds_and_of_what_they_do_not_have(values: dict[str, Any]) -> None:
    task = values["tasks"]["feeling"]
    for change, reported in (
        ({"kind": "valence_arousel"}, 'did you mean "valence_arousal"?'),
        ({"labels": ["a", "b"]}, "a valence_arousal task has scores, not labels"),
        ({"metrics": ["accuracy"]}, '"accuracy" is no metric for valence_arousal → known: mean_correlation'),
        ({"decimal": ","}, "decimal is for scores"),
    ):
        with pytest.raises(RecipeError, match=reported.replace("?", r"\?")):
            make_recipe({**values, "tasks": {"feeling": {**task, **change}}})


def test_a_changed_kind_makes_its_models_anew(values: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    before = [model.fingerprint for model in pipeline.make_plan(make_recipe(values)).models]
    assert before == [model.fingerprint for model in pipeline.make_plan(make_recipe(values)).models]
    monkeypatch.setattr(KINDS, "facts", lambda name: {"source": "other"} if name == "valence_arousal" else {})
    assert before != [model.fingerprint for model in pipeline.make_plan(make_recipe(values)).models]


def test_tasks_of_it_are_written_with_what_made_them() -> None:
    task = Task("feeling", KINDS["valence_arousal"], ("text",), "feeling", range=(0.0, 1.0))
    facts = json.loads(json.dumps(task.to_dict()))
    assert [each["plugin"] for each in facts["plugins"]] == ["valence_arousal", "mean_correlation"]
    assert Task.from_dict(facts) == task and yaml.safe_dump(facts)
