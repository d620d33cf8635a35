"""MT-DNN, MT-DNN-KD and STILTs: candidates and the choice among them, fine-tuned teachers, recipes in miniature."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from scipy.special import softmax

from helpers import weights_of
from understill import pipeline
from understill.data import demo
from understill.errors import RecipeError, UserError
from understill.events import Chosen, TrainingState
from understill.models.encoder import load_encoder
from understill.models.folder import load_model
from understill.pipeline.plan.parts import Plan
from understill.pipeline.teacher_selection import choose_candidates
from understill.recipe import Recipe, load_recipe, make_recipe
from understill.recipe.schema import EncoderSpec

ROOT = Path(__file__).parents[2]
GRID = ("c-1e_09", "c-0.01")
WORD = "encoder.network.embeddings.word_embeddings.weight"


@pytest.fixture
def kd(make_tiny: Callable[..., Recipe]) -> Callable[..., Recipe]:
    """A function that makes a tiny MT-DNN-KD: of four candidates the best two teach two of three tasks."""

    def make(**changes: Any) -> Recipe:
        usual = {
            "teachers": [
                {
                    "name": "c",
                    "tasks": "together",
                    "teaches": ["mood", "follows"],
                    "grid": {"encoder": {"dropout": [0.0, 0.3]}, "training": {"lr": [1e-3, 1e-2]}},
                    "finetune": {"steps": 3},
                }
            ],
            "targets": {"weak": "keep", "best": {"count": 2, "by": ["mood", "similar"]}},
            "student": {"distil": {"hard": 0, "soft": 1}},
        }
        return make_tiny(**{**usual, **changes})

    return make


def scores_of(model: Any) -> dict[str, dict[str, float]]:
    result: dict[str, dict[str, float]] = json.loads((model.folder.parent / "scores.json").read_text())["scores"]
    return result


def named(run: pipeline.Run) -> dict[str, Any]:
    return {model.name: model for model in run.models}


def taught_by(plan: Plan) -> set[str]:
    return {teacher.name for lessons in plan.distillations for teacher in lessons.teachers}


# The choice -----------------------------------------------------------------------------------------------------------


def test_only_the_best_candidates_are_fine_tuned_and_teach(kd: Callable[..., Recipe]) -> None:
    events: list[Any] = []
    run = pipeline.run(kd(), events.append)
    models = {model.name: model for model in run.models}
    names = [f"c-{dropout}-{rate}" for dropout in ("0.0", "0.3") for rate in ("0.001", "0.01")]
    figures = {
        name: np.mean([scores["mood/dev"]["accuracy"], scores["similar/dev"]["pearson_spearman"]])
        for name in names
        for scores in [scores_of(models[name])]
    }
    best = set(sorted(names, key=lambda name: (-figures[name], name))[:2])
    assert len(set(figures.values())) > 1, "else any choice would do"
    tuned = {name for name in models if "-finetuned-" in name and not name.startswith("baseline")}
    assert tuned == {f"{name}-finetuned-{task}" for name in best for task in ("mood", "follows")}
    assert [set(event.teachers) for event in events if isinstance(event, Chosen)] == [best]
    plan = pipeline.make_plan(kd())
    assert taught_by(plan) == best == set(run.members) and not plan.candidates
    # The tables hold what the fine-tuned models say, and nobody else.
    for targets in plan.targets:
        for teacher in targets.teachers:
            assert [model.name for model in teacher.models] == [f"{teacher.name}-finetuned-{targets.task}"]
    assert set(run.teachers) == {"mood/dev", "follows/dev"}
    assert {event.model for event in events if isinstance(event, TrainingState)} == set(models)


def test_what_is_chosen_does_not_depend_on_interruptions(kd: Callable[..., Recipe], tmp_path: Path) -> None:
    whole = pipeline.run(kd())
    elsewhere = kd(output={"folder": str(tmp_path / "other")})
    study = pipeline.make_study(elsewhere)
    plan = study.plan
    assert [model.name for model in plan.candidates] == [
        f"c-{a}-{b}" for a in ("0.0", "0.3") for b in ("0.001", "0.01")
    ]
    pipeline.train_some(study, ("c-0.3-0.001", "c-0.0-0.01"))
    pipeline.train_some(pipeline.make_study(elsewhere), ("student",))
    again = pipeline.run(elsewhere)
    assert [model.name for model in again.models] == [model.name for model in whole.models]
    one, two = (weights_of(load_model(run.models[-1].folder).model) for run in (whole, again))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_a_candidate_that_was_removed_meanwhile_is_not_taken_for_one_without_a_score(
    kd: Callable[..., Recipe],
) -> None:
    pipeline.run(kd())
    plan = pipeline.make_plan(kd())
    choice = plan.choice
    assert choice
    shutil.rmtree(choice.artifact.folder)
    shutil.rmtree(next(iter(choice.candidates.values())).folder)
    with pytest.raises(UserError, match=r"the scores of c-.* are gone or damaged → run again"):
        choose_candidates(choice, lambda _: None)
    assert choice.chosen is None


def test_a_second_run_trains_nothing(kd: Callable[..., Recipe]) -> None:
    pipeline.run(kd())
    events: list[Any] = []
    pipeline.run(kd(), events.append)
    assert {event.state for event in events if isinstance(event, TrainingState)} == {"done"}
    assert not any(isinstance(event, Chosen) for event in events)


def test_without_a_choice_all_teachers_are_fine_tuned_from_where_they_stand(kd: Callable[..., Recipe]) -> None:
    teachers = [{"name": "t", "tasks": "together", "seeds": 2, "finetune": {"lr": 1e-12}}]
    run = pipeline.run(kd(teachers=teachers, targets={"weak": "keep"}))
    folders = {model.name: model.folder for model in run.models}
    for seed in (0, 1):
        base, tuned = (
            weights_of(load_model(folders[f"t-seed{seed}{end}"]).model) for end in ("", "-finetuned-follows")
        )
        assert torch.allclose(tuned[WORD], base[WORD], atol=1e-6)
        assert torch.allclose(tuned["heads.tasks.0.out.weight"], base["heads.tasks.1.out.weight"], atol=1e-6)
    assert set(run.members) == {"t-seed0", "t-seed1"}
    assert set(run.teachers) == {"mood/dev", "follows/dev", "similar/dev"}


def test_folds_are_fine_tuned_without_the_rows_they_do_not_see(kd: Callable[..., Recipe]) -> None:
    teachers = [{"name": "t", "tasks": "together", "folds": 2, "finetune": {"steps": 2}, "teaches": ["mood"]}]
    plan = pipeline.make_plan(kd(teachers=teachers, targets={"weak": "keep"}))
    tuned = [model for model in plan.models if "-finetuned-" in model.name and model.role == "teacher"]
    assert [(model.name, model.fold and model.fold.number) for model in tuned] == [
        ("t-fold1-finetuned-mood", 0),
        ("t-fold2-finetuned-mood", 1),
    ]
    assert [model.start.model and model.start.model.name for model in tuned] == ["t-fold1", "t-fold2"]


def test_the_ensemble_is_scored_as_the_mean_of_its_members_probabilities(kd: Callable[..., Recipe]) -> None:
    run = pipeline.run(kd())
    plan = pipeline.make_plan(kd())
    for task in ("mood", "follows"):
        teachers = {
            teacher.name: teacher
            for lessons in plan.distillations
            for teacher in lessons.teachers
            if teacher.task == task
        }
        tables = [pq.read_table(teacher.verdict.folder / f"{task}.dev.parquet") for teacher in teachers.values()]
        logits = [np.array(table.column("logits").to_pylist()) for table in tables]
        mean = np.mean([softmax(each, axis=1) for each in logits], axis=0)
        labels = plan.loaded[task].task.labels
        gold = [labels.index(label) for label in plan.loaded[task].splits["dev"].table().column("label").to_pylist()]
        assert run.teachers[f"{task}/dev"]["accuracy"] == pytest.approx(np.mean(mean.argmax(1) == gold))
        for (name, _), each in zip(teachers.items(), logits, strict=True):
            assert run.members[name][f"{task}/dev"]["accuracy"] == pytest.approx(np.mean(each.argmax(1) == gold))


def test_tasks_without_a_teacher_are_learnt_from_gold_and_the_others_without_it(kd: Callable[..., Recipe]) -> None:
    run = pipeline.run(kd())
    (student,) = (model for model in run.models if model.role == "student")
    last = json.loads((student.folder.parent / "log.jsonl").read_text().splitlines()[-1])["parts"]
    assert "similar/soft" not in last and last["similar"] > 0
    for task in ("mood", "follows"):
        assert last[task] == pytest.approx(last[f"{task}/soft"]), "the hard part has no weight"


def test_a_student_knows_the_tasks_by_whose_scores_its_teachers_are_chosen(make_tiny: Callable[..., Recipe]) -> None:
    def of(**changes: Any) -> dict[str, str]:
        teachers = [{"name": name, "tasks": "each", "training": {"lr": lr}} for name, lr in (("x", 1e-3), ("y", 2e-3))]
        targets = {"weak": "keep", "best": {"count": 1, "by": ["similar"]}}
        tasks = {"mood": {}, "similar": changes}
        plan = pipeline.make_plan(make_tiny(models="each", teachers=teachers, targets=targets, tasks=tasks))
        return {model.name: model.fingerprint for model in plan.models}

    plain, other = of(), of(max_length=8)
    assert plain["x-mood"] == other["x-mood"] and plain["student-mood"] != other["student-mood"]


def test_the_choice_takes_the_lowest_error_where_that_is_what_counts(kd: Callable[..., Recipe]) -> None:
    teachers = [
        {"name": "c", "tasks": "together", "grid": {"training": {"lr": [1e-9, 1e-2]}}, "finetune": {"steps": 1}}
    ]
    changes = {"tasks": {"mood": {}, "similar": {"metrics": ["mse"]}}, "teachers": teachers}
    targets = {"weak": "keep", "best": {"count": 1, "by": ["similar"]}}
    events: list[Any] = []
    run = pipeline.run(kd(**changes, targets=targets), events.append)
    errors = {name: scores_of(model)["similar/dev"]["mse"] for name, model in named(run).items() if name in GRID}
    assert errors["c-0.01"] != errors["c-1e_09"]
    assert [event.teachers for event in events if isinstance(event, Chosen)] == [(min(errors, key=errors.__getitem__),)]


def test_nothing_of_a_run_is_waste_when_others_than_the_first_were_chosen(kd: Callable[..., Recipe]) -> None:
    plan = pipeline.make_plan(kd())
    assert plan.choice and plan.choice.chosen is None and len(plan.candidates) == 4
    tuned = {model.name for model in plan.models if model.choice}
    pipeline.run(kd())
    assert set(plan.choice.chosen or ()) != set(list(plan.choice.candidates)[:2])
    assert {model.name for model in plan.models if model.choice} < tuned, "of those that might have been, some are"
    assert pipeline.clean(kd().output.path) == []


def test_a_model_that_does_not_hang_on_the_choice_is_trained_without_the_candidates(kd: Callable[..., Recipe]) -> None:
    study = pipeline.make_study(kd())
    events: list[Any] = []
    pipeline.train_some(study, ("baseline",), events.append)
    assert [event.model for event in events if isinstance(event, TrainingState)] == ["baseline"]
    for name in ("c-0.0-0.001-finetuned-mood", "c-0.3-0.01-finetuned-mood"):
        with pytest.raises(UserError, match="is known when they are trained"):
            pipeline.train_some(study, (name,), events.append)
    assert len([event for event in events if isinstance(event, TrainingState)]) == 1


def test_a_teacher_may_lend_its_encoder_beside_the_choice(kd: Callable[..., Recipe]) -> None:
    lend = {"name": "lend", "tasks": ["similar"], "models": "together", "teaches": []}
    grid = {"name": "c", "tasks": "together", "grid": {"training": {"lr": [1e-3, 1e-2]}}, "finetune": {"steps": 1}}
    best = {"count": 1, "by": ["mood"]}
    plan = pipeline.make_plan(
        kd(teachers=[lend, grid], targets={"weak": "keep", "best": best}, student={"encoder": {"name": "lend"}})
    )
    assert [model.name for model in plan.candidates] == ["c-0.001", "c-0.01"]
    (student,) = (model for model in plan.models if model.role == "student")
    assert student.start.model and student.start.model.name == "lend"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"targets": {"best": {"count": 5, "by": ["mood"]}}}, "targets.best.count: 5 is more than there are teachers"),
        (
            {"teachers": [{"name": "a", "tasks": "together", "finetune": True}, {"name": "b", "tasks": "together"}]},
            "targets.best.by: teacher b is not fine-tuned as the others are",
        ),
        (
            {"teachers": [{"name": "a", "tasks": ["mood", "follows"], "models": "together", "finetune": True}]},
            "targets.best.count: 2 is more than there are teachers",
        ),
        (
            {
                "teachers": [
                    {"name": "a", "tasks": "together", "finetune": True},
                    {"name": "b", "tasks": ["mood", "follows"], "models": "together", "finetune": True},
                ]
            },
            "targets.best.by: teacher b does not learn similar",
        ),
        (
            {
                "teachers": [
                    {"name": "a", "tasks": "together", "finetune": True, "grid": {"finetune": {"lr": [1e-3, 1e-2]}}}
                ]
            },
            "teachers a-0.001 and a-0.01 differ only in their fine-tuning",
        ),
        (
            {"targets": {"best": {"count": 1, "by": ["mood"]}, "weights": {"c-0.0-0.001": 1}}},
            "targets.weights: teacher c-0.0-0.01 has no weight",
        ),
    ],
)
def test_a_choice_that_cannot_be_made_is_refused_before_training(
    kd: Callable[..., Recipe], change: dict[str, Any], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        pipeline.make_plan(kd(**change))


@pytest.mark.parametrize(
    ("teacher", "words"),
    [
        ({"finetune": True}, "finetune: a model of one task has been trained on it alone"),
        ({"tasks": ["mood"], "models": "together", "teaches": ["follows"]}, 'it does not learn "follows" itself'),
        ({"tasks": "together", "teaches": ["moods"]}, 'there is no task "moods"'),
        ({"tasks": "together", "grid": {"encoder": {"dropout": 0.1}}}, "grid: encoder.dropout is 0.1"),
        ({"tasks": "together", "grid": {"encoder": {"dropout": []}}}, "grid: encoder.dropout is"),
        ({"tasks": "together", "grid": {"seeds": [1, 2]}}, "grid: seeds cannot vary"),
        ({"tasks": "together", "grid": ["encoder"]}, "is no grid"),
        ({"tasks": "together", "grid": {"training": [{"lr": 1}]}}, "grid: training is a whole section"),
        ({"tasks": "together", "encoder": 5, "grid": {"encoder": {"dropout": [0.1]}}}, "grid: encoder is 5"),
        (
            {"tasks": "together", "training": 5, "grid": {"training": {"lr": [1]}}},
            "training is 5, which has no keys",
        ),
        ({"checkpoint": "there", "grid": {"encoder": ["a"]}}, "grid: a checkpoint is not trained here"),
        ({"tasks": ["mood"], "models": "together", "teaches": []}, "it teaches none of the student's tasks"),
        ({"tasks": "together", "grid": {"encoder": {"drop": [1, 2]}}}, "drop"),
        ({"checkpoint": "there", "finetune": True}, "a checkpoint is not trained here"),
    ],
)
def test_teachers_that_make_no_sense_are_refused_by_the_recipe(
    recipe_values: dict[str, Any], teacher: dict[str, Any], words: str
) -> None:
    with pytest.raises(RecipeError) as error:
        make_recipe({**recipe_values, "teachers": [teacher]})
    assert words in str(error.value)


def test_a_grid_stands_for_every_combination_and_is_saved_spelled_out(recipe_values: dict[str, Any]) -> None:
    grid = {"encoder": {"name": ["minilm", "some/where"], "dropout": [0.1, 0.2]}, "training": {"lr": [1e-3]}}
    teacher = {"tasks": "together", "encoder": "mpnet", "training": {"epochs": 2}, "grid": grid}
    recipe = make_recipe({**recipe_values, "teachers": [{"name": "first"}, teacher]})
    first, *others = recipe.teachers
    assert first.name == "first"
    assert [each.name for each in others] == [
        "teacher-minilm-0.1-0.001", "teacher-minilm-0.2-0.001", "teacher-where-0.1-0.001", "teacher-where-0.2-0.001",
    ]  # fmt: skip
    settings = [recipe.settings(each) for each in others]
    assert [(each.encoder.name, each.encoder.dropout) for each in settings] == [
        ("minilm", 0.1), ("minilm", 0.2), ("some/where", 0.1), ("some/where", 0.2),
    ]  # fmt: skip
    assert {(each.training.lr, each.training.epochs) for each in settings} == {(1e-3, 2.0)}
    assert make_recipe(recipe.model_dump(mode="json")) == recipe


def test_a_grid_leaves_the_rest_of_its_sections_as_they_are(recipe_values: dict[str, Any]) -> None:
    teacher = {"tasks": "together", "encoder": {"dropout": 0.3}, "finetune": True}
    grid = {"encoder": ["minilm", "mpnet"], "finetune": {"lr": [1e-4]}}
    recipe = make_recipe({**recipe_values, "teachers": [{**teacher, "grid": grid}]})
    assert [
        (each.encoder and each.encoder.name, each.encoder and each.encoder.dropout) for each in recipe.teachers
    ] == [
        ("minilm", 0.3),
        ("mpnet", 0.3),
    ]
    assert [recipe.finetuning(each).training.lr for each in recipe.teachers] == [1e-4, 1e-4]


def test_what_is_wrong_behind_a_grid_is_reported_where_it_stands(recipe_values: dict[str, Any]) -> None:
    grid = {"tasks": "together", "grid": {"encoder": {"dropout": [0.1, 0.2]}}, "traning": {}}
    with pytest.raises(RecipeError) as error:
        make_recipe({**recipe_values, "teachers": [grid, {"encoder": {"dropuot": 1}}]})
    lines = str(error.value).splitlines()[1:]
    assert len(lines) == 2 and "teachers.0.traning" in lines[0] and "teachers.1.encoder.dropuot" in lines[1]


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"student": {"distil": {"temperature": 2}, "encoder": {"name": "t"}}}, "student.distil"),
        ({"student": {"unlabelled": 0.5, "encoder": {"name": "t"}}}, "student.unlabelled"),
        ({"targets": {"weak": "keep"}, "student": {"encoder": {"name": "t"}}}, "targets"),
    ],
)
def test_settings_for_lessons_that_nobody_gives_are_refused(
    recipe_values: dict[str, Any], changes: dict[str, Any], place: str
) -> None:
    teacher = {"name": "t", "tasks": "together", "teaches": []}
    make_recipe({**recipe_values, "teachers": [teacher], "student": {"encoder": {"name": "t"}}})
    with pytest.raises(RecipeError, match=f"{place}: there is no teacher"):
        make_recipe({**recipe_values, "teachers": [teacher], **changes})


# The recipes in miniature ---------------------------------------------------------------------------------------------


@pytest.fixture
def glue(tmp_path: Path) -> Path:
    """Five GLUE tasks, each with some rows of the demo data in its form."""
    folder = tmp_path / "glue"
    shapes = {"CoLA": 1, "MNLI": 3, "RTE": 2, "MRPC": 2, "STS-B": 0}
    for name, classes in shapes.items():
        (folder / name).mkdir(parents=True)
        splits = ("train", "dev_matched", "dev_mismatched") if name == "MNLI" else ("train", "dev")
        for split in splits:
            (batch,) = demo.batches("similar", split.partition("_")[0], 48 if split == "train" else 24, len(split))
            scores = batch.column("label").to_pylist()
            label = scores if not classes else [int(score * max(classes, 2) / 5.01) for score in scores]
            columns = {
                "sentence1": batch.column("first"),
                "sentence2": batch.column("second"),
                "label": pa.array(label),
            }
            if classes == 1:
                del columns["sentence2"]
            pq.write_table(pa.table(columns), folder / name / f"{split}.parquet")
    return folder


def in_miniature(name: str, glue: Path, encoder: Path, runs: Path, *sets: str) -> Recipe:
    """Return a recipe of the project, its structure as it is, with small tasks, a tiny encoder and few steps."""
    given = [*sets, f"data.glue={glue}", f"output.folder={runs}", "machine.device=cpu"]
    recipe = load_recipe(ROOT / "recipes" / f"{name}.yaml", tuple(given))
    values = recipe.model_dump(mode="json")
    quick = {"steps": 4, "batch": 8}
    there = {"cola", "mnli", "rte", "mrpc", "stsb"}
    values["tasks"] = {task: spec for task, spec in values["tasks"].items() if task in there}
    values["training"] |= quick
    if any(teacher["teaches"] != [] for teacher in values["teachers"]):
        values["targets"]["weak"] = "keep"
    values["machine"]["threads"] = 1
    values["heads"]["tasks"] = {task: spec for task, spec in values["heads"]["tasks"].items() if task in there}
    for part in (values, *values["teachers"], values["student"]):
        if part["encoder"] and part["encoder"].get("name") in ("minilm", "bge"):
            part["encoder"] |= {"name": str(encoder), "max_length": 32}
        if part.get("finetune"):
            part["finetune"] |= quick
        if part.get("teaches"):
            part["teaches"] = [task for task in part["teaches"] if task in there]
    return make_recipe(values)


def test_mtdnn_runs_in_miniature_and_is_fine_tuned(glue: Path, tiny: Path, tmp_path: Path) -> None:
    run = pipeline.run(in_miniature("mtdnn", glue, tiny, tmp_path / "runs"))
    assert [model.role for model in run.models] == ["model", *["finetuned"] * 5]
    heads = load_model(run.models[0].folder).model.heads.tasks
    assert [type(head).__name__ for head in heads] == ["Head", "San", "Head", "San", "San"]  # cola mrpc stsb mnli rte


@pytest.mark.parametrize(
    "sets",
    [
        (),
        ("student.distil={hard: 0.5, soft: 0.5}",),
        ("teachers.0.teaches=null",),
        ("student.encoder.layers=1",),
        ("tasks.mnli.unlabelled=RTE/train.parquet",),
    ],
    ids=["as published", "both losses", "a teacher for every task", "a smaller student", "unlabelled text"],
)
def test_mtdnn_kd_runs_in_miniature(sets: tuple[str, ...], glue: Path, tiny: Path, deep: Path, tmp_path: Path) -> None:
    # The second encoder stands where the recipe has bge.
    recipe = in_miniature("mtdnn_kd", glue, tmp_path / "none", tmp_path / "runs", *sets)
    values = recipe.model_dump(mode="json")
    values["encoder"]["name"] = str(tiny)
    for teacher in values["teachers"]:
        teacher["encoder"]["name"] = str(deep if "bge" in teacher["name"] else tiny)
    run = pipeline.run(make_recipe(values))
    roles = [model.role for model in run.models]
    taught = ["mnli", "rte"] if "teachers.0.teaches=null" not in sets else ["cola", "mrpc", "stsb", "mnli", "rte"]
    assert roles.count("teacher") == 6 + 3 * len(taught)
    assert roles.count("baseline") == roles.count("student") == 1
    assert roles.count("finetuned") == roles.count("finetuned baseline") == 5
    assert {place.partition("/")[0] for place in run.teachers} == set(taught)
    assert len(run.members) == 3
    record = json.loads((run.folder / "run.json").read_text())
    assert set(record["members"]) == set(run.members)


def test_stilts_begins_where_the_intermediate_task_ended(glue: Path, tiny: Path, tmp_path: Path) -> None:
    still = ("student.training.lr=1e-12", "student.training.weight_decay=0")
    run = pipeline.run(in_miniature("stilts", glue, tiny, tmp_path / "runs", *still))
    assert [(model.name, model.role) for model in run.models] == [
        ("intermediate", "teacher"),
        ("baseline-rte", "baseline"), ("student-rte", "student"),
        ("baseline-mrpc", "baseline"), ("student-mrpc", "student"),
        ("baseline-stsb", "baseline"), ("student-stsb", "student"),
    ]  # fmt: skip
    assert not run.teachers and not list((tmp_path / "runs" / "artifacts").glob("targets-*"))
    folders = {model.name: model.folder for model in run.models}
    pretrained = load_encoder(EncoderSpec(name=str(tiny), max_length=32)).state_dict()[WORD.removeprefix("encoder.")]
    between = weights_of(load_model(folders["intermediate"]).model)[WORD]
    assert not torch.allclose(between, pretrained, atol=1e-5)
    for task in ("rte", "mrpc", "stsb"):
        assert torch.allclose(weights_of(load_model(folders[f"student-{task}"]).model)[WORD], between, atol=1e-6)
        assert torch.allclose(weights_of(load_model(folders[f"baseline-{task}"]).model)[WORD], pretrained, atol=1e-6)


def test_a_model_folder_is_the_starting_point_of_any_training(make_tiny: Callable[..., Recipe], tmp_path: Path) -> None:
    (first,) = pipeline.run(make_tiny(tasks=["mood"])).models
    recipe = make_tiny(tasks=["follows"], name="second", encoder={"name": str(first.folder)}, training={"lr": 1e-12})
    (second,) = pipeline.run(recipe).models
    one, two = (weights_of(load_model(model.folder).model) for model in (first, second))
    assert torch.allclose(one[WORD], two[WORD], atol=1e-6)
    runs = tmp_path / "runs"
    for folder in (runs / "tiny", first.folder.parent):
        with pytest.raises(UserError, match=r"no config.json.* → name a model in it, such as .*(multi|model)$"):
            pipeline.make_plan(make_tiny(tasks=["follows"], encoder={"name": str(folder)}))
    # Other weights under the same path are another model.
    before = pipeline.make_plan(recipe).models[0].folder
    pipeline.run(make_tiny(tasks=["mood"], seed=1, name="third"))
    (third,) = pipeline.make_plan(make_tiny(tasks=["mood"], seed=1, name="third")).models
    other = pipeline.make_plan(make_tiny(tasks=["follows"], encoder={"name": str(third.folder / "model")}))
    assert other.models[0].folder != before


def test_a_student_may_have_fewer_tasks_than_its_teachers(kd: Callable[..., Recipe]) -> None:
    run = pipeline.run(kd(student={"tasks": ["mood"], "finetune": None}))
    by_role = {model.role: model for model in run.models}
    assert set(by_role["student"].scores) == set(by_role["baseline"].scores) == {"mood/dev"}
    with pytest.raises(RecipeError, match="student"):
        kd(student={"tasks": ["nothing"]})
