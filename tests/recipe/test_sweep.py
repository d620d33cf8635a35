"""A recipe that stands for several runs: what it stands for, and what is wrong with it."""

from __future__ import annotations

import copy
import itertools
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from understill.errors import RecipeError, UserError
from understill.recipe import Recipe, load_recipe, make_recipe
from understill.recipe.overrides import differences
from understill.recipe.schema import Anneal
from understill.recipe.sweep import variants

BASE = {"data": {"demo": 40}, "tasks": ["mood", "queue"], "teachers": [{"tasks": "each"}]}


def recipe(**study: Any) -> Recipe:
    return make_recipe(copy.deepcopy({**BASE, **study}))


def problems(**study: Any) -> list[str]:
    with pytest.raises(RecipeError) as error:
        recipe(**study)
    return [str(problem) for problem in error.value.problems]


# Seeds ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "seeds"),
    [
        ({}, [0]),
        ({"seed": 5}, [5]),
        ({"seeds": 3}, [0, 1, 2]),
        ({"seeds": 3, "seed": 5}, [5, 6, 7]),
        ({"seeds": [7, 0]}, [7, 0]),
        ({"seeds": [7, 0], "seed": 5}, [7, 0]),
        ({"seeds": None, "seed": 5}, [5]),
    ],
)
def test_a_count_of_seeds_begins_at_the_seed_and_a_list_is_taken_as_it_is(
    given: dict[str, Any], seeds: list[int]
) -> None:
    whole = recipe(**given)
    assert [cell.seed for cell in whole.cells] == [cell.recipe.seed for cell in whole.cells] == seeds
    assert whole.seed == seeds[0]


@pytest.mark.parametrize(
    ("given", "seeds"),
    [
        (None, (0,)),
        (2, (0, 1)),
        ([7, 0], (7, 0)),
        ("student", (5,)),
        ({"student": 1}, (5,)),
        ({"student": 2}, (10, 11)),
    ],
)
def test_teachers_have_seeds_of_their_own_or_follow_the_student(given: Any, seeds: tuple[int, ...]) -> None:
    (teacher,) = recipe(teachers=[{"tasks": "each", **({"seeds": given} if given else {})}]).trained
    assert teacher.seeds_for(5) == seeds


@pytest.mark.parametrize("given", ["teacher", {"me": 2}, {"student": [1, 2]}, {"student": 2, "me": 1}])
def test_seeds_of_a_teacher_that_mean_nothing_are_refused_with_what_to_write(given: Any) -> None:
    (problem,) = problems(teachers=[{"tasks": "each", "seeds": given}])
    assert problem.endswith("is not allowed → write 3, [0, 7], student, or {student: 3}")


def test_the_runs_of_a_study_have_plain_recipes_that_differ_in_what_they_are_to_differ_in() -> None:
    whole = recipe(seeds=2, ablations={"half": {"student.distil.anneal": 0.5}})
    assert [cell.name for cell in whole.cells] == ["seed0", "seed1", "half-seed0", "half-seed1"]
    for cell in whole.cells:
        assert (cell.recipe.seeds, cell.recipe.ablations, cell.recipe.factors) == ((), {}, {})
        assert [each.recipe for each in cell.recipe.cells] == [cell.recipe], "and stand for one run"
    plain = recipe(seed=1, student={"distil": {"anneal": 0.5}})
    assert whole.cells[3].recipe == plain
    assert whole.cells[0].recipe == recipe()


def test_every_combination_of_levels_is_a_variant_and_the_first_levels_are_the_recipe() -> None:
    levels = {
        "labels": {"hard": {"student.distil": {"hard": 1, "soft": 0}}, "soft": {}},
        "rate": {"low": {"training.lr": 1e-5}, "high": None},
    }
    whole = recipe(factors=levels)
    assert [(cell.variant, dict(cell.levels)) for cell in whole.cells] == [
        ("hard-low", {"labels": "hard", "rate": "low"}),
        ("hard-high", {"labels": "hard", "rate": "high"}),
        ("soft-low", {"labels": "soft", "rate": "low"}),
        ("soft-high", {"labels": "soft", "rate": "high"}),
    ]
    assert [cell.recipe.training.lr for cell in whole.cells] == [1e-5, "auto", 1e-5, "auto"]
    assert [cell.recipe.student.distil.soft for cell in whole.cells] == [0, 0, 1, 1]
    assert whole.training.lr == 1e-5
    assert whole.cells[3].recipe == recipe()


# Changes --------------------------------------------------------------------------------------------------------------

#: Values of a recipe that may be changed, with the forms in which the recipe may have them before.
CHANGES: dict[str, tuple[list[Any], list[Any]]] = {
    "training.lr": ([1e-3, 1e-5], [{}, {"training": {"lr": 1e-2}}]),
    "encoder": (["bilstm", "mpnet"], [{}, {"encoder": "bge"}]),
    "student.encoder.layers": ([2, None], [{}, {"student": {"encoder": "minilm"}}]),
    "student.distil.anneal": ([0.5, "none", "cosine"], [{}, {"student": {"distil": {"anneal": "linear"}}}]),
    "student.distil.soft": ([0.5, 2], [{}, {"student": {"distil": {"hard": 1}}}]),
    "student.training.sampling.power": ([0.75], [{}, {"student": {"training": {"sampling": "uniform"}}}]),
    "student.augment.times": ([2], [{}, {"student": {"augment": True}}]),
    "tasks.mood.rows": ([30], [{}, {"tasks": {"mood": {"rows": 20}, "queue": {}}}]),
    "teachers.0.folds": ([2, None], [{}, {"teachers": [{"tasks": "together", "folds": 3}]}]),
}


def nested(path: str, value: Any) -> dict[str, Any]:
    for key in reversed(path.split(".")):
        value = {key: value}
    return value


@st.composite
def changed(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """A recipe, and changes of it by dotted names."""
    keys = draw(st.lists(st.sampled_from(sorted(CHANGES)), min_size=1, max_size=4, unique=True))
    values: dict[str, Any] = dict(BASE)
    for key in keys:
        for name, before in draw(st.sampled_from(CHANGES[key][1])).items():
            both = name == "student" and name in values
            values[name] = {**values[name], **before} if both else before
    return values, {key: draw(st.sampled_from(CHANGES[key][0])) for key in keys}


def merged(one: Any, other: Any) -> Any:
    if not isinstance(one, dict) or not isinstance(other, dict):
        return other
    return {**one, **{key: merged(one.get(key), value) for key, value in other.items()}}


@settings(max_examples=40)
@given(changed())
def test_a_variant_is_the_recipe_with_its_changes_set_whether_they_are_dotted_or_nested(
    tmp_path_factory: pytest.TempPathFactory, both: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    values, changes = both
    file = tmp_path_factory.getbasetemp() / "recipe.yaml"
    file.write_text(yaml.safe_dump(values), encoding="utf-8")
    by_hand = [
        f"{key}={yaml.safe_dump(value, default_flow_style=True).split(chr(10))[0]}" for key, value in changes.items()
    ]
    deep: dict[str, Any] = {}
    for key, value in changes.items():
        deep = merged(deep, nested(key, value))
    try:
        wanted = load_recipe(file, tuple(by_hand))
    except UserError:
        for study in (changes, deep):
            with pytest.raises(UserError):
                make_recipe(copy.deepcopy({**values, "ablations": {"other": study}}))
        return
    assume(wanted.model_dump() != make_recipe(copy.deepcopy(values)).model_dump())
    for study in (changes, deep):
        whole = make_recipe(copy.deepcopy({**values, "ablations": {"other": study}}))
        assert whole.cells[1].recipe.model_dump() == wanted.model_dump()
        file.write_text(whole.to_yaml(), encoding="utf-8")
        again = load_recipe(file)
        assert again.model_dump() == whole.model_dump(), "a copy with all defaults stands for the same"
        assert [cell.recipe.model_dump() for cell in again.cells] == [cell.recipe.model_dump() for cell in whole.cells]


#: Changes of which several may be of the same section, or of all that another is a part of.
LEVELS: list[dict[str, Any]] = [
    {},
    {"student.distil": {"hard": 0, "soft": 1}},
    {"student": {"distil": {"hard": 1, "soft": 0.5}}},
    {"student.distil.anneal": 0.5},
    {"student.distil": {"temperature": 2}},
    {"student.training.lr": 1e-3},
    {"student.training": {"epochs": 2}},
    {"student": {"training": {"epochs": 3, "batch": 8}}},
    {"student.augment": {"times": 2}},
    {"student.augment.times": 3},
    {"student.encoder": "bilstm", "training.lr": 2e-3},
    {"teachers": [{"tasks": "each", "training": {"epochs": 7}}, {"tasks": "together"}]},
    {"teachers.0.training.lr": 1e-3},
    {"tasks": ["mood"]},
    {"tasks.mood.max_length": 20},
]


@settings(max_examples=100)
@given(st.lists(st.lists(st.sampled_from(LEVELS), min_size=2, max_size=3), min_size=2, max_size=3))
def test_the_saved_copy_of_a_factorial_design_stands_for_the_same_runs(levels: list[list[dict[str, Any]]]) -> None:
    factors = {f"f{at}": {f"l{n}": given for n, given in enumerate(each)} for at, each in enumerate(levels)}
    try:
        whole = recipe(factors=factors)
    except RecipeError:
        return
    again = make_recipe(yaml.safe_load(whole.to_yaml()))
    runs, copies = ([cell.recipe.model_dump() for cell in each.cells] for each in (whole, again))
    assert runs == copies
    assert all(one != other for one, other in itertools.combinations(runs, 2))


def test_two_factors_may_change_the_same_section() -> None:
    for weights in (nested("student.distil", {"hard": 0, "soft": 1}), {"student.distil": {"hard": 0, "soft": 1}}):
        half = {"student.distil.anneal": 0.5, "student.training.lr": 1e-3}
        rows = {"student.training.epochs": 2}
        levels = {
            "labels": {"both": {}, "soft": weights},
            "anneal": {"usual": {}, "half": half},
            "long": {"no": {}, "yes": rows},
        }
        whole = recipe(factors=levels)
        last = make_recipe(yaml.safe_load(whole.to_yaml())).cells[-1].recipe.student
        assert (last.distil.hard, last.distil.anneal) == (0, Anneal(start=0.5, end=0.5))
        assert last.training and (last.training.lr, last.training.epochs) == (1e-3, 2)


def test_a_mapping_under_a_dotted_key_takes_the_place_of_what_is_there_as_set_does() -> None:
    student = {"distil": {"temperature": 2, "hard": 0.5}}
    weights = {"hard": 0, "soft": 1}
    whole = recipe(
        student=student, ablations={"set": {"student.distil": weights}, "merged": {"student": {"distil": weights}}}
    )
    _, replaced, kept = (cell.recipe.student.distil for cell in whole.cells)
    assert (replaced.temperature, kept.temperature) == (1, 2)
    assert (replaced.hard, replaced.soft) == (kept.hard, kept.soft) == (0, 1)


def test_the_recipes_own_values_stay_as_they_are_whatever_variants_change() -> None:
    values = {**BASE, "student": {"distil": {"anneal": 0.1}}, "ablations": {"a": {"student.distil.anneal": 0.2}}}
    before = copy.deepcopy(values)
    make_recipe(values)
    assert values == before


def test_a_saved_study_with_fewer_tasks_or_another_encoder_is_read_back(tmp_path: Path) -> None:
    ablations = {
        "one": {"tasks": ["mood"]},
        "words": {"student.encoder": "bilstm"},
        "weights": {"targets.weights.teacher": 2},
    }
    whole = recipe(ablations=ablations, student={"encoder": {"name": "minilm", "layers": 2}})
    (tmp_path / "recipe.yaml").write_text(whole.to_yaml(), encoding="utf-8")
    again = load_recipe(tmp_path / "recipe.yaml")
    assert [cell.recipe.model_dump() for cell in again.cells] == [cell.recipe.model_dump() for cell in whole.cells]
    assert list(again.cells[1].recipe.tasks) == ["mood"]
    assert again.cells[2].recipe.student.encoder == whole.cells[2].recipe.student.encoder


def test_names_with_dots_in_them_are_replaced_with_what_is_around_them() -> None:
    one, other = {"targets": {"weights": {"c-0.3": 1}}}, {"targets": {"weights": {"c-0.3": 2}}}
    assert differences(one, other) == {"targets.weights": {"c-0.3": 2}}


def test_what_has_not_the_form_of_a_study_stands_for_nothing() -> None:
    for odd in (3, "half", [1], {"half": 3}, None):
        assert len(variants({"ablations": odd})) == (2 if isinstance(odd, dict) else 1)
        assert len(variants({"factors": odd})) == 1


def test_set_reaches_into_a_study(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(
        yaml.safe_dump({**BASE, "ablations": {"half": {"student.distil.anneal": 0.5}}}), encoding="utf-8"
    )
    sets = ("ablations.half.student.distil.anneal=0.3", "ablations.quick.training.lr=1e-3", "seeds=2")
    whole = load_recipe(tmp_path / "recipe.yaml", sets)
    assert [cell.name for cell in whole.cells][2:] == ["half-seed0", "half-seed1", "quick-seed0", "quick-seed1"]
    assert whole.cells[2].recipe.student.distil.anneal == Anneal(start=0.3, end=0.3)
    assert whole.cells[4].recipe.training.lr == 1e-3
    assert len(load_recipe(tmp_path / "recipe.yaml", ("ablations=null",)).cells) == 1


# Mistakes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("study", "result"),
    [
        ({"seeds": 0}, "seeds: 0 is no number of seeds → write 3, or list them: [0, 1, 2]"),
        ({"seeds": [1, 1]}, "seeds: a seed is listed twice → list each once"),
        ({"seeds": [-1]}, "seeds.0: -1 is not allowed → write 0 or more"),
        ({"ablations": 3}, "ablations: 3 is not allowed → write keys under it"),
        ({"ablations": {"half": 3}}, "ablations.half: 3 is not allowed → write keys under it"),
        ({"ablations": {"a b": {"training.lr": 1e-3}}}, "ablations.a b"),
        ({"ablations": {"half": {}}}, "ablations.half: nothing is changed → name what is different, or leave it out"),
        ({"ablations": {"half": {"seed": 3}}}, "ablations.half.seed: all runs have the same seed"),
        ({"ablations": {"half": {"output": {"folder": "x"}}}}, "ablations.half.output.folder: all runs have the same"),
        ({"factors": {"labels": {"hard": {}}}}, "factors.labels: a factor has two levels or more"),
        ({"factors": {"labels": ["hard", "soft"]}}, "factors.labels: a list is not allowed → write keys under it"),
        (
            {"factors": {"a": {"x": {}, "y": {}}}, "ablations": {"b": {"training.lr": 1}}},
            "factors: a recipe has ablations or factors → make it two recipes",
        ),
        (
            {"factors": {"a": {"x": {}, "x-y": {}}, "b": {"y-z": {}, "z": {}}}},
            'factors: two combinations would have the name "x-y-z" → rename a level',
        ),
        ({"seeds": [1, 1.0]}, "seeds: a seed is listed twice → list each once"),
        (
            {"factors": {"a": {"x": {}, "y": {"training.lr": 1}}, "b": {"x": {}, "y": {"training.lr": 2}}}},
            "factors: x-y and y-y would be the same run → let each level change what no later factor writes over",
        ),
        (
            {
                "factors": {
                    "anneal": {"usual": {}, "half": {"student.distil.anneal": 0.5}},
                    "labels": {"both": {}, "soft": {"student.distil": {"hard": 0}}},
                }
            },
            "factors: usual-soft and half-soft would be the same run",
        ),
        (
            {
                "factors": {
                    "anneal": {"half": {"student.distil.anneal": 0.5}, "usual": {}},
                    "labels": {"both": {}, "soft": {"student": {"distil": {"hard": 1, "soft": 0.5}}}},
                }
            },
            "factors: what a level means for student.distil.anneal depends on the other factors, as usual-soft shows",
        ),
    ],
)  # fmt: skip
def test_a_study_that_cannot_be_is_told_apart_from_its_runs(study: dict[str, Any], result: str) -> None:
    (problem,) = problems(**study)
    assert problem.removeprefix("recipe: ").startswith(result)


def test_a_mistake_of_the_recipe_is_told_once_however_many_variants_have_it() -> None:
    assert problems(training={"lr": 0}, ablations={"a": {"seed": 1}, "b": {"training.batch": 3}}) == [
        "recipe: training.lr: 0 is not allowed → write more than 0"
    ]
    levels = {"a": {"x": {"training.lr": 0}, "y": {}}, "b": {"x": {}, "y": {}}}
    assert problems(factors=levels) == ["factors.a.x.training.lr: training.lr: 0 is not allowed → write more than 0"]


def test_a_variant_that_is_the_recipe_itself_is_refused() -> None:
    assert problems(ablations={"usual": {"student.distil.anneal": "linear"}, "other": {"training.lr": 1}}) == [
        "recipe: ablations.usual: the recipe has these values already → change others, or leave it out"
    ]


def test_a_strange_key_of_a_variant_is_told_where_it_is_written(tmp_path: Path) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text(f"{yaml.safe_dump(BASE)}student: {{}}\nablations:\n  a: {{student.distill.anneal: 1}}\n")
    with pytest.raises(RecipeError) as error:
        load_recipe(file)
    (problem,) = error.value.problems
    assert problem.place == f"line {len(file.read_text().splitlines())}"


def test_what_only_a_variant_makes_wrong_names_the_variant() -> None:
    assert problems(training={"micro_batch": 8}, ablations={"small": {"training.batch": 4}}) == [
        "recipe: with small: training.micro_batch: 8 rows are more than the batch has → at most 4"
    ]


# Limits ---------------------------------------------------------------------------------------------------------------


def levels(count: int, key: str, start: int = 1) -> dict[str, Any]:
    return {f"{key}{number}": {f"training.{key}": start + number} for number in range(count)}


@pytest.mark.parametrize(
    ("study", "what"),
    [
        (
            {"factors": {f"f{number}": levels(8, "epochs") for number in range(8)}},
            "factors: these are 16,777,216 variants → at most 256 can be run as one study",
        ),
        ({"ablations": levels(300, "epochs")}, "ablations: these are 300 variants → at most 256"),
        ({"seeds": list(range(101))}, "seeds: there are 101 seeds → list at most 100"),
        ({"teachers": [{}] * 300}, "teachers: there are more than 256 teachers → name fewer"),
        (
            {"teachers": [{"grid": {"training": {f"k{axis}": list(range(10)) for axis in range(7)}}}]},
            "grid: it stands for 10,000,000 teachers → vary less, at most 256 have room",
        ),
        ({"tasks": [f"t{number}" for number in range(1001)]}, "tasks: these are too many → name at most 1000"),
        (
            {"seeds": 100, "factors": {"e": levels(16, "epochs"), "b": levels(16, "batch")}, "teachers": []},
            "25,600 models would be trained, more than 10,000 → make it several recipes",
        ),
    ],
)
def test_a_study_of_too_many_runs_is_refused_before_it_is_expanded(study: dict[str, Any], what: str) -> None:
    assert any(what in problem for problem in problems(**study)), problems(**study)


def test_of_thousands_of_mistakes_some_are_put_into_words() -> None:
    assert len(problems(**{f"unknown{number}": 1 for number in range(5000)})) == 200
    assert len(problems(student={"tasks": [f"u{number}" for number in range(5000)]})) == 200


@pytest.mark.parametrize(
    ("teacher", "count"),
    [
        ({}, 2),
        ({"tasks": "together"}, 1),
        ({"seeds": 3}, 6),
        ({"seeds": "student", "folds": 4}, 8),
        ({"seeds": {"student": 3}}, 6),
        ({"tasks": ["mood"], "folds": 5, "seeds": [1, 2]}, 10),
    ],
)
def test_the_models_of_a_run_are_counted_as_they_are_trained(teacher: dict[str, Any], count: int) -> None:
    assert recipe(teachers=[teacher]).model_count == count + 1
    assert recipe(teachers=[teacher], models="each").model_count == count + 2
