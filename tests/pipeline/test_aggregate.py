"""Several runs of one recipe: what they share, what is kept of them, and a plain recipe as a study of one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from understill import pipeline
from understill.cli import main
from understill.errors import UserError
from understill.estimate import estimate
from understill.events import Labelling, TrainingState
from understill.models.manifest import find_model
from understill.pipeline.record import CELLS
from understill.recipe import Recipe, load_recipe, make_recipe

ROOT = Path(__file__).parents[2]
STUDENT = {"encoder": {"layers": 1}}
HALF = {"half": {"student.distil.anneal": 0.5}}
FACTORS = {
    "labels": {
        "hard": {"student.distil": {"hard": 1, "soft": 0}},
        "soft": {"student.distil": {"hard": 0, "soft": 1}},
    },
    "augmentation": {"without": None, "with": {"student.augment": {"times": 2, "tagger": "none"}}},
}


TAUGHT = {"tasks": ["mood"], "teachers": [{"tasks": "each"}], "targets": {"weak": "keep"}, "student": STUDENT}


class Done(NamedTuple):
    """A study that was run to the end."""

    recipe: Recipe
    runs: tuple[pipeline.Run, ...]
    events: list[Any]


@pytest.fixture(scope="module")
def done(tiny_values: Callable[[Path], dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Done:
    """Two seeds of a recipe with a teacher, and of a variant of it; whoever changes it takes a copy."""
    values = tiny_values(tmp_path_factory.mktemp("study") / "runs")
    recipe, events = make_recipe({**values, **TAUGHT, "seeds": 2, "ablations": HALF}), []
    return Done(recipe, pipeline.run_study(recipe, events.append), events)


@pytest.fixture
def study(make_tiny: Callable[..., Recipe]) -> Callable[..., Recipe]:
    """A function that makes a recipe with a teacher and what makes a study of it."""

    def make(**changes: Any) -> Recipe:
        return make_tiny(**{**TAUGHT, **changes})

    return make


def taught(events: list[Any]) -> list[str]:
    return [event.model for event in events if isinstance(event, TrainingState) and event.state == "new"]


def record(recipe: Recipe) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((recipe.output.path / recipe.name / "run.json").read_text(encoding="utf-8"))
    return result


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


# What is shared -------------------------------------------------------------------------------------------------------


def test_one_set_of_teachers_and_soft_targets_serves_all_seeds_and_variants(done: Done) -> None:
    _, runs, events = done
    assert taught(events) == [
        "teacher-mood",
        "seed0/baseline",
        "seed0/student",
        "seed1/baseline",
        "seed1/student",
        "half-seed0/student",
        "half-seed1/student",
    ]
    labelled = [event.what for event in events if isinstance(event, Labelling) and event.rows == event.total]
    assert sorted(labelled) == ["mood/dev", "mood/train"], "the teacher answers once"
    names = [[model.name for model in run.models] for run in runs]
    assert names == [["teacher-mood", "baseline", "student"]] * 4
    assert len({run.models[0].folder for run in runs}) == 1
    assert runs[0].models[1].folder == runs[2].models[1].folder, "the baseline knows no annealing"
    assert len({run.models[2].folder for run in runs}) == 4


def test_data_is_read_and_digests_are_taken_once_for_all_runs(
    study: Callable[..., Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    from understill.pipeline.plan import recipe_inputs

    calls: list[str] = []
    for name in ("identity", "read_tasks", "resolve_tasks", "augment_tasks"):
        whole = getattr(recipe_inputs, name)

        def counted(*given: Any, whole: Any = whole, name: str = name) -> Any:
            calls.append(name)
            return whole(*given)

        counted.__name__ = name
        monkeypatch.setattr(recipe_inputs, name, counted)
    reading: list[Any] = []
    plans = pipeline.make_study(study(seeds=3, factors=FACTORS), reading.append)
    assert len(plans.cells) == 12
    assert sorted(calls) == ["augment_tasks", "augment_tasks", "identity", "read_tasks", "resolve_tasks"]
    assert len({id(plan.loaded) for _, plan in plans.cells}) == 2, "with augmentation and without"


def test_teachers_and_new_rows_follow_the_seed_where_the_recipe_says_so(study: Callable[..., Recipe]) -> None:
    augment = {"times": 2, "tagger": "none", "seed": "student"}
    plans = pipeline.make_study(
        study(seeds=2, teachers=[{"tasks": "each", "seeds": "student"}], student={**STUDENT, "augment": augment})
    )
    (_, one), (_, two) = plans.cells
    assert [model.name for model in one.models] == ["teacher-mood", "baseline", "student"]
    assert [one.models[0].seed, two.models[0].seed] == [0, 1]
    assert not {model.folder for model in one.models} & {model.folder for model in two.models}
    assert not {table.folder for table in one.targets} & {table.folder for table in two.targets}
    assert one.augmented[0].fingerprint != two.augmented[0].fingerprint
    usual = pipeline.make_plan(study(student={**STUDENT, "augment": {**augment, "seed": 0}}))
    assert [model.folder for model in usual.models] == [model.folder for model in one.models], "which has seed 0"


def test_an_ensemble_that_follows_the_seed_shares_no_model_with_that_of_another(study: Callable[..., Recipe]) -> None:
    plans = pipeline.make_study(study(seeds=2, teachers=[{"tasks": "each", "seeds": {"student": 3}}]))
    teachers = [[model for model in plan.models if model.role == "teacher"] for _, plan in plans.cells]
    assert [[model.seed for model in mine] for mine in teachers] == [[0, 1, 2], [3, 4, 5]]
    assert teachers[1][0].name == "teacher-seed3-mood"
    alone = pipeline.make_plan(study(seed=1, teachers=[{"tasks": "each", "seeds": [3, 4, 5]}]))
    assert [each.folder for each in alone.models] == [each.folder for each in plans.cells[1][1].models]


def test_candidates_of_all_runs_are_trained_before_any_choice_is_made(study: Callable[..., Recipe]) -> None:
    teachers = [{"name": "c", "tasks": "together", "grid": {"heads": {"dropout": [0.0, 0.1]}}, "finetune": True}]
    best = {"best": {"count": 1, "by": ["mood"]}, "weak": "keep"}
    change = {"teachers": [{**teachers[0], "training": {"lr": 1e-2}}]}
    events: list[Any] = []
    runs = pipeline.run_study(study(teachers=teachers, targets=best, ablations={"quick": change}), events.append)
    begun = taught(events)
    assert [name.partition("/")[2] or name for name in begun[:4]] == ["c-0.0", "c-0.1"] * 2
    assert all(sum("finetuned" in model.name for model in run.models) == 1 for run in runs)


def test_what_only_a_variant_cannot_do_is_told_with_its_name(study: Callable[..., Recipe]) -> None:
    with pytest.raises(UserError, match=r"^with cut: encoder.layers: teacher teacher has only 1 layers$"):
        pipeline.make_study(
            study(
                seeds=2,
                teachers=[{"tasks": "together", "encoder": {"layers": 1}}],
                student={"encoder": "teacher"},
                ablations={"cut": {"student.encoder.layers": 2}},
            )
        )


# What is kept ---------------------------------------------------------------------------------------------------------


def test_a_study_of_one_is_the_plain_run_bit_for_bit(make_tiny: Callable[..., Recipe], tmp_path: Path) -> None:
    plain = pipeline.run(make_tiny(tasks=["mood"], seed=1))
    one = pipeline.run(make_tiny(tasks=["mood"], seed=0, seeds=[1], output={"folder": str(tmp_path / "other")}))
    assert [model.name for model in one.models] == [model.name for model in plain.models]
    for mine, theirs in zip(one.models, plain.models, strict=True):
        assert mine.folder.parent.name == theirs.folder.parent.name, "the same fingerprint"
        assert weights(mine.folder) == weights(theirs.folder)
    files = [{path.relative_to(run.folder) for path in run.folder.rglob("*")} for run in (plain, one)]
    assert files[0] == files[1] and Path(CELLS) not in files[0]


def test_the_runs_of_a_study_are_those_that_its_recipes_make_alone(
    done: Done, study: Callable[..., Recipe], tmp_path: Path
) -> None:
    runs = done.runs
    alone = pipeline.run(
        study(
            seed=1,
            student={**STUDENT, "distil": {"anneal": 0.5}},
            name="alone",
            output={"folder": str(tmp_path / "alone")},
        )
    )
    assert [model.folder.parent.name for model in runs[3].models] == [
        model.folder.parent.name for model in alone.models
    ]
    assert weights(runs[3].models[-1].folder) == weights(alone.models[-1].folder)
    assert runs[3].models[-1].scores == alone.models[-1].scores


def test_the_record_has_the_first_run_as_ever_and_lists_all_of_them(done: Done) -> None:
    whole, runs, _ = done
    kept, folder = record(whole), whole.output.path / whole.name
    assert [(cell["variant"], cell["seed"]) for cell in kept["cells"]] == [("", 0), ("", 1), ("half", 0), ("half", 1)]
    for cell, run in zip(kept["cells"], runs, strict=True):
        for model in run.models:
            facts = cell["models"][model.name]
            assert (folder / facts["folder"]).resolve() == model.folder.resolve()
            assert (facts["role"], facts["scores"]) == (model.role, model.scores)
            assert (run.folder / "models" / model.name).resolve() == model.folder.resolve()
    assert kept["models"] == kept["cells"][0]["models"]
    assert find_model(folder) == folder / "models" / "student"
    assert find_model(folder / CELLS / "half-seed1").resolve() == runs[3].models[-1].folder.resolve()
    assert sorted(path.name for path in (folder / CELLS).iterdir()) == ["half-seed0", "half-seed1", "seed1"]
    assert set(kept["uses"]) >= {model.folder.parent.name for run in runs for model in run.models}
    result = kept["findings"]
    scores = [cell["models"]["student"]["scores"]["mood/dev"]["accuracy"] for cell in kept["cells"]]
    assert result["summaries"]["half"]["student"]["mood"]["values"] == scores[2:]
    delta = result["deltas"]["student"]["half"]["mood"]
    assert delta["difference"]["delta"] == pytest.approx(sum(scores[2:]) / 2 - sum(scores[:2]) / 2)
    again = load_recipe(folder / "recipe.yaml")
    assert [cell.recipe.model_dump() for cell in again.cells] == [cell.recipe.model_dump() for cell in whole.cells]


def test_cleaning_leaves_what_any_run_uses_and_a_smaller_study_forgets_the_rest(
    done: Done, study: Callable[..., Recipe]
) -> None:
    whole = study(seeds=2, ablations=HALF)
    shutil.copytree(done.recipe.output.path, whole.output.path, symlinks=True)
    again: list[Any] = []
    runs = pipeline.run_study(whole, again.append)
    assert taught(again) == []
    assert pipeline.clean(whole.output.path) == []
    assert all(model.folder.exists() for run in runs for model in run.models)
    events: list[Any] = []
    pipeline.run_study(study(seeds=2), events.append)
    assert taught(events) == []
    assert [path.name for path in (runs[0].folder / CELLS).iterdir()] == ["seed1"]
    gone = {waste.path.name for waste in pipeline.clean(whole.output.path)}
    assert gone == {run.models[-1].folder.parent.name for run in runs[2:]}
    pipeline.run(study())
    assert not (runs[0].folder / CELLS).exists()


class Stop(Exception):
    """What stops a study; that a killed process leaves no less behind is shown where runs are resumed."""


def test_a_study_that_was_stopped_goes_on_and_ends_with_the_same_bits(
    make_tiny: Callable[..., Recipe], tmp_path: Path
) -> None:
    training = {"steps": 9, "batch": 8, "lr": 1e-3, "evaluate": "never", "checkpoint": "3 steps"}
    recipe, whole = (
        make_tiny(tasks=["mood"], training=training, seeds=2, output={"folder": str(tmp_path / name)})
        for name in ("stopped", "whole")
    )

    def stop_second(event: Any) -> None:
        work = list(recipe.output.path.glob("artifacts/model-*/work/checkpoint-*"))
        finished = list(recipe.output.path.glob("artifacts/model-*/done.json"))
        if finished and any(path.parents[1] != finished[0].parent for path in work):
            raise Stop

    with pytest.raises(Stop):
        pipeline.run_study(recipe, stop_second)
    assert pipeline.clean(recipe.output.path) == [], "what a stopped study has made is kept for it"
    with pytest.raises(UserError, match="the run is not finished"):
        pipeline.compare([str(recipe.output.path / recipe.name)] * 2)
    events: list[Any] = []
    runs = pipeline.run_study(recipe, events.append)
    states = {event.model: event.state for event in events if isinstance(event, TrainingState)}
    assert states == {"seed0/multi": "done", "seed1/multi": "resumed"}
    for run, other in zip(runs, pipeline.run_study(whole), strict=True):
        assert weights(run.models[0].folder) == weights(other.models[0].folder)


# The verbs ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def file(recipe_values: dict[str, Any], tmp_path: Path) -> Path:
    """A study as a file."""
    changes = {"tasks": ["mood"], "ablations": {"low": {"training.lr": 1e-5}}}
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump({**recipe_values, **changes}), encoding="utf-8")
    return path


def reported(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    assert stop.value.code in (0, None)
    return capsys.readouterr().out


def test_check_and_a_dry_run_say_how_many_runs_there_are(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checked = reported(capsys, "check", str(file), "--set", "seeds=2")
    assert "4 runs: 2 variants × 2 seeds; what they have in common is made once" in checked
    assert all(name in checked for name in ("seed0/multi", "seed1/multi", "low-seed0/multi", "low-seed1/multi"))
    dry = reported(capsys, "run", str(file), "--seeds", "3", "--dry-run")
    assert "6 runs: 2 variants × 3 seeds" in dry
    assert "6 of 6 models are to be trained" in dry


def test_the_time_of_a_study_is_that_of_all_its_models(
    study: Callable[..., Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("understill.estimate._step_seconds", lambda *_: 0.5)
    plain, seeds = (estimate(pipeline.make_study(study(**given)), timed=True) for given in ({}, {"seeds": 3}))
    one, three = ({name: each.seconds for name, each in times.items()} for times in (plain, seeds))
    teacher = one.pop("teacher-mood")
    assert three.pop("teacher-mood") == teacher >= 6 * 0.5, "the teacher is trained once"
    assert sum(three.values()) == pytest.approx(3 * sum(one.values())) and len(three) == 6


def test_teach_trains_a_model_in_all_runs_or_in_one(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = reported(capsys, "train", str(file), "--model", "low-seed0/multi")
    assert one.count("model: ") == 1 and "low-seed0/multi" in one
    both = reported(capsys, "train", str(file), "--model", "multi")
    assert both.count("model: ") == 2


def test_run_with_seeds_shows_them_together(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = reported(capsys, "run", str(file), "--seeds", "2", "--set", "ablations=null")
    assert "dev scores, mean ± standard deviation over 2 seeds" in shown
    listed = reported(capsys, "runs", str(load_recipe(file).output.path))
    assert "2 runs" in listed


# The recipes ----------------------------------------------------------------------------------------------------------


def in_miniature(name: str, tiny: Path, runs: Path, **changes: Any) -> Recipe:
    """Return a recipe of the project with its study as it is, made small."""
    values = load_recipe(ROOT / "recipes" / f"{name}.yaml").model_dump(mode="json")
    quick = {"steps": 3, "batch": 8, "evaluate": "never"}
    values |= {
        "data": {"demo": {"rows": 64}},
        "tasks": {"mood": {}, "similar": {}},
        "encoder": {**values["encoder"], "name": str(tiny), "max_length": 32},
        "targets": {**values["targets"], "weak": "keep"},
        "output": {"folder": str(runs)},
        "machine": {"device": "cpu", "threads": 1},
        **changes,
    }
    for part in (values, *values["teachers"], values["student"]):
        part["training"] = {**(part["training"] or {}), **quick}
    return make_recipe(values)


def test_the_ablations_of_bam_run_in_miniature(tiny: Path, tmp_path: Path) -> None:
    events: list[Any] = []
    recipe = in_miniature("ablations", tiny, tmp_path / "runs")
    assert len(recipe.cells) == 5 * 3
    runs = pipeline.run_study(recipe.model_copy(update={"seeds": (0,)}), events.append)
    assert len({run.models[-1].folder for run in runs}) == len(runs) == 5
    assert len(taught(events)) == 2 * 3 + 5 + 3, "folds of teachers once; baselines with three kinds of training"
    result = record_of(runs[0])["findings"]["deltas"]["student"]
    assert list(result) == ["lambda_0", "lambda_half", "flat_rates", "by_rows"]


def test_the_proof_of_bilstm_soft_runs_in_miniature(tiny: Path, tmp_path: Path) -> None:
    recipe = in_miniature("bilstm_soft", tiny, tmp_path / "runs", tasks={"mood": {}})
    assert set(recipe.factors["augmentation"]["with"]) == {"student.augment"}
    recipe.factors["augmentation"]["with"]["student.augment"] |= {"times": 2, "tagger": "none"}
    recipe = make_recipe(recipe.model_dump(mode="json"))
    plans = pipeline.make_study(recipe)
    students = {cell.name: plan.models[-1] for cell, plan in plans.cells}
    assert len(students) == 12
    assert {student.settings.training.steps for student in students.values()} == {3}
    assert {cell.levels["augmentation"] for cell, plan in plans.cells if plan.models[-1].augmented} == {"with"}
    rows = {plan.augmented[0].fingerprint for _, plan in plans.cells if plan.augmented}
    assert len(rows) == 1, "hard labels and soft ones have the same rows"
    runs = pipeline.run_study(recipe.model_copy(update={"seeds": (0,)}))
    assert {model.role for run in runs for model in run.models} == {"teacher", "student"}
    effects = record_of(runs[0])["findings"]["effects"]["student"]["mood"]
    assert list(effects) == ["labels", "augmentation", "labels × augmentation"]


def record_of(run: pipeline.Run) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((run.folder / "run.json").read_text(encoding="utf-8"))
    return result
