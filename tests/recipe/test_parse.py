"""A recipe is checked as a whole, changed from the command line, frozen, and written so that it is read back."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from understill.atomic import fingerprint
from understill.data.resolve import resolve
from understill.errors import RecipeError, UserError
from understill.recipe import Recipe, load_recipe, make_recipe
from understill.recipe.messages import FAMILIAR
from understill.recipe.schema import DataSpec, DemoData, EncoderSpec, HubSpec, Sampling, TaskSpec, Training
from understill.recipe.section import Every, shown

ROOT = Path(__file__).resolve().parents[2]
RECIPES = sorted((ROOT / "recipes").glob("*.yaml"))
OWN = {"train": "a.csv", "text": "message", "label": "queue"}


def load(folder: Path, text: str, *sets: str) -> Recipe:
    """Write a recipe and load it."""
    path = folder / "recipe.yaml"
    path.write_text(text, encoding="utf-8")
    return load_recipe(path, sets)


def problems(values: dict[str, Any]) -> list[str]:
    """What is wrong with a recipe, without the places."""
    with pytest.raises(RecipeError) as error:
        make_recipe(values)
    return [f"{problem.what} → {problem.fix}" for problem in error.value.problems]


def of_task(**changes: Any) -> list[str]:
    """What is wrong with a task of the user's own."""
    return problems({"tasks": {"mine": {**OWN, **changes}}})


# What a recipe may be ------------------------------------------------------------------------------------------------


def test_the_least_recipe_is_one_line(tmp_path: Path) -> None:
    recipe = load(tmp_path, "tasks: [sst2]")
    assert recipe.tasks == {"sst2": TaskSpec()}
    assert (recipe.name, recipe.seed, recipe.models) == ("run", 0, "together")
    assert (recipe.encoder.name, recipe.output.folder) == ("minilm", "runs")
    assert (recipe.training.epochs, recipe.training.batch, recipe.training.lr) == ("auto", 32, "auto")
    assert load(tmp_path, "tasks: sst2") == recipe


def test_every_recipe_of_the_project_is_valid() -> None:
    assert {"bam", "born_again_multi", "born_again_single", "compress", "hinton"} < {path.stem for path in RECIPES}
    for path in RECIPES:
        assert load_recipe(path).name == path.stem


def test_the_users_own_task_in_one_line(tmp_path: Path) -> None:
    text = "tasks: {same: {train: a.csv, dev: [b.csv, c.csv], text: [q, c], label: same, labels: [yes, no]}}"
    task = load(tmp_path, text).tasks["same"]
    assert (task.train, task.dev, task.text) == (("a.csv",), ("b.csv", "c.csv"), ("q", "c"))
    assert task.labels == ("yes", "no")
    assert task.own


@pytest.mark.parametrize(
    ("given_labels", "labels"), [([1, 0], ("1", "0")), ([True, False], ("true", "false")), ("only", None)]
)
def test_labels_are_names_as_files_have_them(given_labels: Any, labels: tuple[str, ...] | None) -> None:
    if labels is None:
        assert of_task(labels=given_labels) == [
            'tasks.mine.labels: "only" is the only label; there is nothing to learn → name two or more'
        ]
    else:
        assert make_recipe({"tasks": {"mine": {**OWN, "labels": given_labels}}}).tasks["mine"].labels == labels


def test_yaml_words_stay_words_and_numbers_are_numbers(tmp_path: Path) -> None:
    recipe = load(tmp_path, "name: no\ntasks: {a: {train: on.csv, text: yes, label: off}}\ntraining: {lr: 1e-4}")
    assert (recipe.name, recipe.tasks["a"].text, recipe.tasks["a"].label) == ("no", ("yes",), "off")
    assert recipe.training.lr == 1e-4


@pytest.mark.parametrize(
    ("text", "count", "unit", "again"),
    [
        ("200 steps", 200, "steps", "200 steps"), ("1 epoch", 1, "epochs", "1 epochs"), ("never", 1, "never", "never"),
        ("0.5 epochs", 0.5, "epochs", "0.5 epochs"), (" 5minutes ", 5, "minutes", "5 minutes"),
        (".25 epochs", 0.25, "epochs", "0.25 epochs"),
    ],
)  # fmt: skip
def test_intervals_are_words(text: str, count: float, unit: str, again: str) -> None:
    every = Every.model_validate(text)
    assert (every.count, every.unit, str(every)) == (count, unit, again)


@pytest.mark.parametrize(
    "value", ["often", "5", 5, "1.2.3 steps", "-1 steps", "0 steps", "two epochs", True, ["1 epoch"]]
)
def test_what_is_no_interval_is_refused_with_examples(value: Any) -> None:
    (problem,) = problems({"tasks": ["a"], "training": {"checkpoint": value}})
    assert problem.startswith(f"training.checkpoint: {shown(value)} is not an interval → write")


def test_evaluation_does_not_go_by_the_clock() -> None:
    (problem,) = problems({"tasks": ["a"], "training": {"evaluate": "5 minutes"}})
    assert problem.startswith("training.evaluate: evaluation goes by steps or epochs →")
    assert make_recipe({"tasks": ["a"], "training": {"checkpoint": "5 minutes"}}).training.checkpoint.unit == "minutes"


@given(st.floats(1e-6, 1e9, allow_nan=False), st.sampled_from(["steps", "epochs", "minutes"]))
def test_an_interval_survives_being_written_in_words(count: float, unit: str) -> None:
    every = Every.model_validate({"count": count, "unit": unit})
    assert Every.model_validate(str(every)) == every


@pytest.mark.parametrize(
    ("value", "power", "copies"),
    [("proportional", 1, False), ("uniform", 0, False), ({"power": 0.75}, 0.75, False), ({"copies": True}, 1, True)],
)
def test_sampling_has_short_forms(value: Any, power: float, copies: bool) -> None:
    sampling = make_recipe({"tasks": ["a"], "training": {"sampling": value}}).training.sampling
    assert sampling == Sampling(power=power, copies=copies)


def test_the_other_short_forms() -> None:
    recipe = make_recipe({"tasks": {"a": {**OWN, "hub": "org/name"}}, "data": {"demo": 50}, "encoder": "mpnet"})
    assert recipe.tasks["a"].hub == HubSpec(dataset="org/name")
    assert recipe.data.demo == DemoData(rows=50)
    assert recipe.encoder.name == "mpnet"
    assert make_recipe({"tasks": ["a"], "data": {"demo": True}}).data.demo == DemoData()


def test_a_recipe_can_be_built_of_its_parts() -> None:
    demo, every = DemoData(rows=30), Every(count=2, unit="steps")
    training = Training(sampling=Sampling(power=0.5), evaluate=every)
    parts = {"data": DataSpec(demo=demo), "tasks": {"mood": TaskSpec()}, "encoder": EncoderSpec(), "training": training}
    recipe = Recipe(**parts)
    assert (recipe.data.demo, recipe.training.evaluate, recipe.training.sampling.power) == (demo, every, 0.5)


def test_a_recipe_is_frozen() -> None:
    recipe = make_recipe({"tasks": ["a"]})
    for part, key in ((recipe, "seed"), (recipe.training, "lr"), (recipe.tasks["a"], "weight")):
        with pytest.raises(ValidationError, match="frozen"):
            setattr(part, key, 1)


# What it may not be --------------------------------------------------------------------------------------------------


def test_all_errors_come_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = "seed: -1\ntasks:\n  mine:\n    train: a.csv\n    lable: x\n    label: 3\ntraining:\n  batch: 0\nnmae: x\n"
    with pytest.raises(RecipeError) as error:
        load(tmp_path, text, "training.lr=fast", "encoder.pool=mean")
    assert str(error.value).splitlines() == [
        f"{tmp_path / 'recipe.yaml'} has 7 problems",
        '  --set encoder.pool=mean: encoder.pool: there is no such key → did you mean "pooling"?',
        '  --set training.lr=fast: training.lr: "fast" is not allowed → write a number',
        "  line 1: seed: -1 is not allowed → write 0 or more",
        '  line 5: tasks.mine.lable: there is no such key → did you mean "label"?',
        '  line 6: tasks.mine.label: 3 is not allowed → put it in quotes: "3"',
        "  line 8: training.batch: 0 is not allowed → write 1 or more",
        '  line 9: nmae: there is no such key → did you mean "name"?',
    ]


@pytest.mark.parametrize(
    ("changes", "result"),
    [
        ({"kind": "regression", "labels": ["a", "b"]}, "labels: a regression task has scores, not labels"),
        ({"range": [0, 5]}, "range: range is for scores"),
        ({"kind": "regression", "range": [5, 5]}, "range: nothing lies between 5 and 5"),
        ({"kind": "ranking"}, "text: a ranking task has two texts → name the columns of query and candidate"),
        ({"kind": "ranking", "text": ["a", "b"], "labels": [0, 1, 2]}, "labels: candidates are wrong or right"),
        ({"kind": "ranking", "text": ["a", "b"], "symmetric": True}, "symmetric: a query and its candidate do not"),
        ({"kind": "ranking", "text": ["a", "b"], "group": "a"}, "group: rows with the same first text belong together"),
        ({"kind": "ranking", "text": ["a", "b"], "group": "b"}, 'group: the column "b" is used twice'),
        ({"kind": "ranking", "text": ["a", "b"], "group": "queue"}, 'group: the column "queue" is used twice'),
        ({"kind": "ranking", "text": ["a", "b"], "metrics": "f1"}, 'metrics: "f1" is no metric for ranking'),
        ({"kind": "ranking", "text": ["a", "b"], "candidates": 1}, "candidates: 1 is not allowed → write 2 or more"),
        ({"group": "id"}, "group: only ranking tasks have this → leave it out, or set kind: ranking"),
        ({"candidates": 3}, "candidates: only ranking tasks have this"),
        ({"labels": ["a", "b", "a"]}, 'labels: "a" is named twice'),
        ({"labels": [["a"], "b"]}, "labels: a list is no label"),
        ({"labels": [None, "b"]}, "labels: nothing is no label"),
        ({"text": "queue"}, 'label: the column "queue" is used twice'),
        ({"text": ["a", "a"]}, 'text: the column "a" is used twice'),
        ({"text": ["a", "b", "c"]}, "text: these are too many → name at most 2"),
        ({"symmetric": True}, "symmetric: only a task with two text columns can be symmetric"),
        ({"metrics": "mse"}, 'metrics: "mse" is no metric for classification → known: accuracy, f1'),
        ({"metrics": "accurracy"}, 'metrics: "accurracy" is no metric for classification → did you mean "accuracy"?'),
        ({"dev": 1.5}, "dev: 1.5 is no share of train to hold out"),
        ({"dev": True}, "dev: true is not allowed → name files"),
        ({"weight": True}, "weight: true is not allowed → write a number"),
        ({"rows": True}, "rows: true is not allowed → write a number"),
        ({"range": [1]}, "range: one number is not enough"),
    ],
)
def test_settings_that_contradict_each_other_are_refused_before_any_data_is_read(
    changes: dict[str, Any], result: str
) -> None:
    (problem,) = of_task(**changes)
    assert problem.startswith(f"tasks.mine.{result}")


def test_a_task_without_texts_may_contradict_itself_too() -> None:
    (problem,) = problems({"tasks": {"answer": {"kind": "ranking", "label": "right", "group": "right"}}})
    assert problem.startswith('tasks.answer.group: the column "right" is used twice')


def test_what_a_task_lacks_is_said_in_one_sentence() -> None:
    assert problems({"tasks": {"mine": {"train": "a.csv"}}}) == [
        "tasks.mine: a task of your own needs text and label → name the columns of your files"
    ]
    assert problems({"tasks": {"mine": {"hub": "a/b", "text": "t", "label": "l"}}}) == [
        "tasks.mine: a task of your own needs train → name a split of the dataset"
    ]


def test_several_contradictions_of_several_tasks_come_together() -> None:
    values = {"a": {**OWN, "range": [5, 1], "symmetric": True}, "b": {**OWN, "labels": ["x", "x"]}}
    result = problems({"tasks": values, "training": {"batch": 8, "micro_batch": 9, "evaluate": "never", "patience": 1}})
    assert [problem.split(":")[0] for problem in result] == [
        "tasks.a.range",
        "tasks.a.range",
        "tasks.a.symmetric",
        "tasks.b.labels",
        "training.micro_batch",
        "training.patience",
    ]


@pytest.mark.parametrize(
    ("values", "result"),
    [
        ({}, "tasks is missing → add it"),
        ({"tasks": []}, "tasks: nothing is named → name at least 1"),
        ({"tasks": ["a", "a"]}, 'tasks: "a" is named twice'),
        ({"tasks": [{"a": {}}]}, "tasks: a mapping is no name"),
        ({"tasks": {"a b": None}}, 'tasks: "a b" cannot be a task name'),
        ({"tasks": {1: {}}}, 'tasks.1: 1 is not allowed → put it in quotes: "1"'),
        ({"tasks": ["a"], "heads": {"tasks": {"b": {}}}}, 'heads.tasks.b: there is no task "b" → known: a'),
        ({"tasks": ["a"], "seed": 2**63}, "seed: 9223372036854775808 is not allowed → write less than 9.22337e+18"),
        ({"tasks": ["a"], "output": {"folder": ""}}, 'output.folder: "" is not allowed → write text'),
        (
            {"tasks": ["a"], "training": {"optimizer": "adam"}},
            'training.optimizer: "adam" is not allowed → did you mean',
        ),
        ({"tasks": ["a"], "training": {"keep": 3}}, "training.keep: 3 is not allowed → write auto, best or last"),
        ({"tasks": ["a"], "machine": {"device": "gpu"}}, 'machine.device: "gpu" is not allowed → did you mean "cuda"?'),
        ({"tasks": ["a"], "training": None}, "training: there is no value → write keys under it: epochs, steps"),
        ({"tasks": ["a"], "data": {"demo": False}}, "data.demo: false is not allowed → write true"),
    ],
)
def test_wrong_values_come_with_what_to_write(values: dict[str, Any], result: str) -> None:
    (problem,) = problems(values)
    assert problem.startswith(result)


@pytest.mark.parametrize(
    ("values", "result"),
    [
        ({"training": {"learning_rate": 1}}, 'training.learning_rate: there is no such key → did you mean "lr"?'),
        ({"learning_rate": 1}, 'learning_rate: there is no such key → did you mean "training.lr"?'),
        ({"epochs": 1}, 'epochs: there is no such key → did you mean "training.epochs"?'),
        ({"max_length": 1}, 'max_length: there is no such key → did you mean "encoder.max_length"?'),
        ({"training": {"weight": 1}}, 'training.weight: there is no such key → did you mean "weight_decay"?'),
        (
            {"machine": {"symmetric": 1}},
            'machine.symmetric: there is no such key → did you mean "tasks.NAME.symmetric"?',
        ),
        ({"model": 1}, 'model: there is no such key → did you mean "encoder"?'),
        ({"machine": {"colour": 1}}, "machine.colour: there is no such key → known: device, fast, threads, together"),
        ({"data": {"demo": {"row": 1}}}, 'data.demo.row: there is no such key → did you mean "rows"?'),
        ({"teachers": [{"model": 1}]}, 'teachers.0.model: there is no such key → did you mean "encoder"?'),
        ({"student": {"distill": {}}}, 'student.distill: there is no such key → did you mean "distil"?'),
        ({"distil": {}}, 'distil: there is no such key → did you mean "student.distil"?'),
    ],
)
def test_unknown_keys_come_with_the_nearest_one(values: dict[str, Any], result: str) -> None:
    assert problems({"tasks": ["a"], **values}) == [result]


def test_every_familiar_name_leads_to_a_key_that_exists_and_hides_none() -> None:
    for typed, ours in FAMILIAR.items():
        (problem,) = problems({"tasks": ["a"], typed: 1})
        assert problem.endswith(f'{ours}"?'), typed
    top = set(Recipe.model_fields)
    assert not top & set(FAMILIAR)


@pytest.mark.parametrize("text", ["", "# nothing\n", "- a\n- b\n", "just words", "3"])
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(UserError, match="a recipe has keys and values"):
        load(tmp_path, text)


# --set ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "change", "place", "value"),
    [
        ("tasks: [a]", "seed=3", "seed", 3),
        ("tasks: [a]\ntraining: {lr: 1}", "training.lr=3e-5", "training.lr", 3e-5),
        ("tasks: [a]", "training.sampling.power=0.5", "training.sampling.power", 0.5),
        (
            "tasks: [a]\ntraining: {sampling: uniform}",
            "training.sampling.copies=true",
            "training.sampling.copies",
            True,
        ),
        ("tasks: [a]\ntraining: {sampling: odd}", "training.sampling.power=0.5", "training.sampling.power", 0.5),
        ("tasks: [a, b]", "tasks.b.weight=2", "tasks.b.weight", 2.0),
        ("tasks: a", "tasks.a.rows=20", "tasks.a.rows", 20),
        ("tasks: [a]", "tasks=[b, c]", "tasks.c.weight", 1.0),
        (
            "tasks: {b: {train: x.csv, text: t, label: l}}",
            "tasks.b.dev=[y.csv, z.csv]",
            "tasks.b.dev",
            ("y.csv", "z.csv"),
        ),
        ("tasks: [a]\nencoder: mpnet", "encoder.max_length=64", "encoder.name", "mpnet"),
        ("tasks: [a]\ndata: {demo: 50}", "data.demo.seed=1", "data.demo.rows", 50),
        ("tasks: [a]\ndata: {demo: true}", "data.demo.seed=1", "data.demo.seed", 1),
        ("tasks: [a]", "encoder=mpnet", "encoder.name", "mpnet"),
        ("tasks: [a]\nstudent: {finetune: true}", "student.finetune.lr=0.5", "student.finetune.lr", 0.5),
        ("tasks: [a]", "training.clip=", "training.clip", None),
        ("tasks: [a]", "training.evaluate=50 steps", "training.evaluate", Every(count=50, unit="steps")),
    ],
)
def test_values_are_changed_from_the_command_line(
    tmp_path: Path, text: str, change: str, place: str, value: Any
) -> None:
    result: Any = load(tmp_path, text, change)
    for part in place.split("."):
        result = result[part] if isinstance(result, dict) else getattr(result, part)
    assert result == value


def test_only_the_first_equals_sign_parts_key_and_value(tmp_path: Path) -> None:
    assert load(tmp_path, "tasks: [a]", " output.folder = x=y ").output.folder == "x=y"


def test_the_last_change_wins(tmp_path: Path) -> None:
    assert load(tmp_path, "tasks: [a]\nseed: 1", "seed=2", "seed=3").seed == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("training.lr", "not key=value"),
        ("=3", "not key=value"),
        ("training..lr=3", "not key=value"),
        ("seed.first=1", "seed is 3, which has no keys"),
        ("seed=[1", "not valid YAML: the bracket that is opened here is never closed"),
        ("training.lr=fast", 'training.lr: "fast" is not allowed'),
        ("trainign.lr=1", 'trainign: there is no such key → did you mean "training"?'),
    ],
)
def test_wrong_changes_are_told_as_they_were_typed(tmp_path: Path, change: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        load(tmp_path, "tasks: [a]\nseed: 3", change)
    assert message in str(error.value)
    assert str(error.value).startswith("--set")
    assert change in str(error.value)


# Written and read back -----------------------------------------------------------------------------------------------

FULL = {
    "name": "1e5",
    "data": {"demo": {"rows": 40, "seed": 3}, "glue": "glue"},
    "tasks": {
        "yes": {
            "train": ["a.csv", "1e3.csv"],
            "dev": 0.2,
            "text": ["no", "2"],
            "label": "on",
            "labels": [1, "1e4", True],
        },
        "mood": {"weight": 0.3},
        "similar": None,
        "score": {"train": "a.csv", "text": "t", "label": "s", "kind": "regression", "range": [0, 5], "dev": "b.csv"},
        "hub": {"hub": "org/name", "train": "train", "text": "t", "label": "l"},
    },
    "heads": {"tasks": {"mood": {"dropout": 0.2}}},
    "training": {"sampling": "uniform", "evaluate": "0.3 epochs", "checkpoint": "never", "lr": 3e-5, "clip": None},
    "output": {"trackers": "tensorboard"},
}


@pytest.mark.parametrize("values", [FULL, {"tasks": ["a"]}], ids=["full", "least"])
def test_the_whole_recipe_is_written_and_read_back(tmp_path: Path, values: dict[str, Any]) -> None:
    recipe = make_recipe(copy.deepcopy(values))
    text = recipe.to_yaml()
    again = load(tmp_path, text)
    assert again.model_dump() == recipe.model_dump()
    assert again.to_yaml() == text


def test_a_path_may_be_a_string() -> None:
    assert load_recipe(str(RECIPES[0])) == load_recipe(RECIPES[0])
    with pytest.raises(UserError, match="nowhere"):
        load_recipe("nowhere.yaml")


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_the_projects_recipes_are_written_and_read_back(tmp_path: Path, path: Path) -> None:
    recipe = load_recipe(path)
    assert load(tmp_path, recipe.to_yaml()).model_dump() == recipe.model_dump()


@given(
    labels=st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=2, max_size=5, unique=True),
    column=st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
)
def test_any_label_and_column_is_written_and_read_back(
    tmp_path_factory: pytest.TempPathFactory, labels: list[str], column: str
) -> None:
    recipe = make_recipe({"tasks": {"a": {"train": "x.csv", "text": column, "label": column + "2", "labels": labels}}})
    assert load(tmp_path_factory.mktemp("r"), recipe.to_yaml()).tasks == recipe.tasks


def test_a_known_task_stays_as_it_is_known_when_its_recipe_is_read_back(tmp_path: Path) -> None:
    from understill.data.load import load_tasks

    recipe = make_recipe({"data": {"demo": 20}, "tasks": ["similar"]})
    again = load(tmp_path, recipe.to_yaml())
    first, second = (load_tasks(each, tmp_path / "cache")["similar"] for each in (recipe, again))
    assert first.task == second.task
    assert first.task.symmetric


def test_a_copy_of_a_recipe_finds_the_files_of_the_recipes_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    there = Path("sub")
    for name in ("a.csv", "part-1.csv", "glue/x", "my-encoder/config.json"):
        (there / name).parent.mkdir(parents=True, exist_ok=True)
        (there / name).write_text("x", encoding="utf-8")
    Path("here.csv").write_text("x", encoding="utf-8")
    text = (
        "data: {glue: glue}\nencoder: ./my-encoder\n"
        "tasks: {a: {train: [a.csv, here.csv], dev: part-*.csv, test: nowhere.csv, text: t, label: l}}"
    )
    for recipe in (load(there, text), load(Path(), load(there, text).to_yaml())):
        assert recipe.data.glue == "sub/glue"
        assert recipe.encoder.name == "sub/my-encoder"
        task = recipe.tasks["a"]
        assert (task.train, task.dev, task.test) == (("sub/a.csv", "here.csv"), ("sub/part-*.csv",), ("nowhere.csv",))


def test_the_home_folder_is_spelled_out_for_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/somewhere")
    recipe = make_recipe({"tasks": ["a"], "output": {"folder": "~/runs"}})
    assert recipe.output.path == Path("/somewhere/runs")
    assert "~/runs" in recipe.to_yaml()


# Fingerprints --------------------------------------------------------------------------------------------------------

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(st.dictionaries(st.text(), PLAIN, max_size=5))
def test_a_fingerprint_does_not_depend_on_the_order_of_keys(values: dict[str, Any]) -> None:
    backwards = dict(reversed(values.items()))
    assert fingerprint(backwards) == fingerprint(values)
    assert len(fingerprint(values)) == 32


@given(PLAIN, PLAIN)
def test_other_values_have_another_fingerprint(one: Any, two: Any) -> None:
    # 0 and 0.0 are equal in Python, but not the same JSON; their fingerprints may differ.
    if one != two:
        assert fingerprint(one) != fingerprint(two)


def test_fingerprints_stay_as_they_are_from_release_to_release() -> None:
    assert fingerprint({"b": [1, 2.5, None, True], "a": "ä"}) == "7b0493c38021d1c3f0287ce1d34dab3d"


def test_what_is_no_plain_value_has_no_fingerprint() -> None:
    for value in (float("nan"), {"a": object()}):
        with pytest.raises((ValueError, TypeError)):
            fingerprint(value)


# Names and texts in one form ------------------------------------------------------------------------------------------


def test_a_run_a_task_and_a_teacher_may_have_names_of_any_script() -> None:
    recipe = make_recipe(
        {"name": "첫실험", "tasks": {"분류": {"train": "문의.csv", "text": "내용", "label": "분류"}},
         "teachers": [{"name": "선생님"}]}
    )  # fmt: skip
    assert (recipe.name, list(recipe.tasks), recipe.teachers[0].name) == ("첫실험", ["분류"], "선생님")


@pytest.mark.parametrize("name", ["cache", "artifacts", "Cache"])
def test_a_run_cannot_be_named_like_a_folder_beside_the_runs(name: str) -> None:
    with pytest.raises(RecipeError, match=f'the output folder has a folder "{name}" of its own'):
        make_recipe({"name": name, "tasks": ["mood"]})


def test_names_in_a_recipe_are_composed_wherever_they_come_from(tmp_path: Path) -> None:
    text = 'tasks: {분류: {train: a.csv, text: 내용, label: 분류2, labels: [환불, "\\u1112\\u1161\\u11ab"]}}\n'
    recipe = load(tmp_path, normalize("NFD", text), "tasks." + normalize("NFD", "분류") + ".weight=2")
    spec = recipe.tasks["분류"]
    assert (spec.text, spec.label, spec.labels, spec.weight) == (("내용",), "분류2", ("환불", "한"), 2.0)


def test_a_file_whose_name_is_decomposed_on_disk_is_found(tmp_path: Path) -> None:
    (tmp_path / normalize("NFD", "문의.csv")).write_text("a,b\n", encoding="utf-8")
    recipe = load(tmp_path, "tasks: {a: {train: 문의.csv, text: a, label: b}}\n")
    assert Path(recipe.tasks["a"].train[0]).exists()


@pytest.mark.parametrize("name", ["x" * 300 + ".csv", "/".join(["y" * 200] * 30), "a\0b.csv"])
def test_a_path_that_no_file_can_have_is_a_file_that_is_not_there(name: str) -> None:
    recipe = make_recipe({"tasks": {"a": {"train": name, "text": "t", "label": "l"}}})
    with pytest.raises(UserError, match="no such file"):
        resolve(recipe)


@pytest.mark.parametrize("change", ["teachers.0.0.x=1", "seeds.0.0=1", "student.tasks.0.0.0=x", "teachers.².x=1"])
def test_a_set_into_a_list_in_a_list_is_one_sentence(tmp_path: Path, change: str) -> None:
    with pytest.raises(UserError, match=f"--set .?{re.escape(change)}|seeds.0: a list is not allowed"):
        load(tmp_path, "tasks: [mood]\nteachers: [[1, [2]]]\nseeds: [[1]]\nstudent: {tasks: [[a, [b]]]}\n", change)


def test_half_a_character_is_refused() -> None:
    with pytest.raises(UserError, match=r"there is half a character, \\ud83d → write the character itself"):
        make_recipe({"tasks": {"a": {"train": "x.csv", "text": "\ud83d", "label": "l"}}})
