"""Results: pages are what the kept scores make them, rows are runs that exist, and finished runs are taken in whole."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from understill import pipeline
from understill.errors import UserError
from understill.evaluate.significance import Interval
from understill.pipeline.aggregate import side_of
from understill.pipeline.comparison import score_side
from understill.pipeline.record import Run
from understill.recipe import Recipe, load_recipe

ROOT = Path(__file__).parents[1]


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("results")


def test_pages_and_pictures_are_what_the_kept_scores_make_them(results: Any) -> None:
    made = results.pages.pages()
    assert {path.name for path in made} >= {"README.md", "results.md", "bam.svg"}
    stale = [path.name for path, text in made.items() if path.read_text(encoding="utf-8") != text]
    assert stale == [], "run: make results"


def test_no_score_of_the_pages_is_written_by_hand(results: Any) -> None:
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert results.pages.loose_numbers(page) == []
    assert len(results.pages.NUMBER.findall(page)) > 40
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = readme.partition("## Results")[2].partition("Speed:")[0]
    assert results.pages.loose_numbers(shown) == []


@pytest.mark.parametrize("text", ["It gained 1.7.", "RTE: +13.7, which is much", "It lost 5 points."])
def test_a_score_written_by_hand_would_be_found(results: Any, text: str) -> None:
    assert results.pages.loose_numbers(text)
    assert not results.pages.loose_numbers("`lr 0.1`, seed 2, 95 %, <!--= mean(bam-raw/student) -->1.7<!--/-->")


def test_a_number_that_differs_from_its_file_is_made_anew(results: Any) -> None:
    marker = "<!--= mean(bam-raw/student; cola) -->{}<!--/-->"
    kept = json.loads((ROOT / "docs/results/bam-raw.json").read_text())["scores"]["student"]
    mean = np.mean([100 * seed["cola/dev"]["matthews"] for seed in kept.values()])
    assert results.pages.renewed(marker.format("99.9")) == marker.format(f"{mean:.1f}")


@pytest.mark.parametrize(
    "expression", ["mean(bam-raw/nobody)", "mean(nowhere/student)", "sum(bam-raw/student)", "mean"]
)
def test_an_expression_without_a_score_is_an_error(results: Any, expression: str) -> None:
    with pytest.raises(ValueError, match=r"mean|sum"):
        results.data.evaluate(expression)


def test_every_row_names_a_run_or_a_file_and_every_table_is_on_the_page(results: Any) -> None:
    plan, page = results.data.plan(), (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert [match[1] for match in results.pages.TABLE.findall(page)].count("commands") == 1
    assert {match[1] for match in results.pages.TABLE.findall(page)} == {*plan["tables"], "commands"}
    for name in plan["tables"]:
        for row in results.pages.rows_of(name).values():
            for model in row.values():
                run, _, part = model.partition("/")
                assert run in plan["runs"] or part in results.data.stored(run)["scores"], model


def test_every_run_is_a_recipe_of_its_own_that_keeps_the_protocol(results: Any) -> None:
    prints = {}
    for name, spec in results.data.plan()["runs"].items():
        recipe = load_recipe(ROOT / "recipes" / f"{spec['recipe']}.yaml", tuple(results.data.settings(name, [0, 1])))
        prints[recipe.model_dump_json(exclude={"name"})] = name
        for cell in recipe.cells:
            for part in (*cell.recipe.trained, cell.recipe.student):
                keep = cell.recipe.settings(part).training.keep
                assert keep == "last" or (keep == "best" and recipe.data.dev), name
        if name.startswith("choose-"):
            assert recipe.data.dev and min(results.data.seeds_asked(name)) >= 100
        assert f"understill run recipes/{spec['recipe']}.yaml" in results.data.command(name, [0])
    assert len(prints) == len(results.data.plan()["runs"])


def test_what_is_missing_is_named_in_order_with_seeds_minutes_and_command(results: Any) -> None:
    lines = results.missing().splitlines()
    names = [line.partition(":")[0] for line in lines[::3]]
    assert names == [name for name in results.data.plan()["runs"] if name in names]
    assert all("seeds, about" in line and "min (" in line for line in lines[::3])
    assert all(line.startswith("  understill run recipes/") for line in lines[2::3])


def test_the_program_prints_the_queue_and_refuses_half_a_request(
    results: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    results.main(["--small"])
    assert capsys.readouterr().out.strip() == results.missing()
    with pytest.raises(SystemExit) as error:
        results.main(["--add", "runs/bam"])
    assert error.value.code == 2 and "--add RUN goes with --row NAME" in capsys.readouterr().err


# A finished run -------------------------------------------------------------------------------------------------------


@pytest.fixture
def store(results: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty folder of results, and one row that any recipe may fill."""
    folder = tmp_path / "results"
    folder.mkdir()
    monkeypatch.setattr(results.data, "RESULTS", folder)
    monkeypatch.setattr(results, "ANSWERS", folder / "predictions")
    monkeypatch.setattr(results.data, "plan", lambda: {"protocol": {}, "runs": {"row": {"recipe": "bam", "seeds": 3}}})
    results.data.stored.cache_clear()
    return folder


def test_a_run_is_kept_with_every_seed_metric_and_answer_and_further_seeds_join_it(
    results: Any, store: Path, monkeypatch: pytest.MonkeyPatch, make_tiny: Callable[..., Recipe]
) -> None:
    monkeypatch.setattr(results, "refuse_another", lambda run, name: None)
    runs = [
        pipeline.run_study(make_tiny(tasks=["mood", "similar"], name=f"s{first}", seeds=seeds))
        for first, seeds in ((0, [0, 1]), (2, [2]))
    ]
    for study in runs:
        results.add(study[0].folder, "row")
        results.keep_answers(study[0].folder, "row")
    kept = json.loads((store / "row.json").read_text())
    (own,) = {name: own for name, own in kept["scores"].items() if name not in results.data.SHARED}.values()
    assert list(own) == ["0", "1", "2"] and list(kept["scores"]["majority"]) == ["0"], "which is that of all seeds"
    assert kept["minutes"].keys() == {"0 1", "2"} and kept["command"].startswith("understill run recipes/bam.yaml")
    for run in (run for study in runs for run in study):
        (model,) = (each for each in run.models if each.role == "model")
        assert run.cell and own[str(run.cell.seed)] == results.rounded(model.scores)
    answers = {(what, seed): one for what, seed, one in results.kept_answers("row")}
    assert {seed for _, seed in answers} == {0, 1, 2}
    assert answers["model:mood/dev", 1].dtype == np.uint8 and answers["model:similar/dev", 1].dtype == np.float32


def test_a_run_of_its_row_is_taken_in_and_its_kept_answers_give_its_kept_scores(
    results: Any, store: Path, monkeypatch: pytest.MonkeyPatch, tiny: Path, small_glue: Path, tmp_path: Path
) -> None:
    given = {"tasks": ["rte", "stsb"], "encoder": {"name": str(tiny), "max_length": 32}, "data.dev": 0.3}
    row = {"recipe": "multi", "seeds": 2, "set": {**given, "training.steps": 3}}
    monkeypatch.setattr(results.data, "plan", lambda: {"protocol": {"training.keep": "last"}, "runs": {"row": row}})
    place = (f"data.glue={small_glue}", f"output.folder={tmp_path / 'runs'}", "machine.device=cpu")
    recipe = load_recipe(ROOT / "recipes" / "multi.yaml", (*results.data.settings("row", [0, 1]), *place))
    study = pipeline.run_study(recipe)
    results.add(study[0].folder, "row")
    results.keep_answers(study[0].folder, "row")
    count, worst = results.check("row", small_glue)
    assert count == 2 * (2 * 1 + 2 * 3) and worst < 1e-5, "of two seeds, on held-out rows and on GLUE's own dev sets"
    own = results.data.stored("row")["scores"]["model"]["0"]
    assert results.data.scores("row/model", "rte") == pytest.approx(
        {
            int(seed): 100 * each["rte/dev_official"]["accuracy"]
            for seed, each in results.data.stored("row")["scores"]["model"].items()
        }
    )
    assert set(own) == {"rte/dev", "rte/dev_official", "stsb/dev", "stsb/dev_official"}
    alone = results.data.summary("row/model", "rte").interval
    results.measure_rows(small_glue)
    results.data.stored.cache_clear()
    for task in ("rte", "stsb"):
        both = results.data.summary("row/model", task).interval
        assert (100 * np.array(compared(study, f"{task}/dev_official"))) == pytest.approx(tuple(both), abs=1.5), (
            "as `compare`"
        )
    assert results.data.summary("row/model", "rte").interval != alone
    assert results.data.row_variance(["row/model"], "mean") is None, "six tasks are not there"


def test_what_is_missing_is_measured_seeds_side_by_side_and_a_failure_keeps_the_others(
    results: Any, store: Path, monkeypatch: pytest.MonkeyPatch, tiny: Path, small_glue: Path, tmp_path: Path
) -> None:
    given = {"tasks": ["rte"], "encoder": {"name": str(tiny), "max_length": 32}, "training.steps": 2}
    runs = {
        "row": {"recipe": "multi", "seeds": 2, "set": given},
        "torn": {"recipe": "multi", "seeds": [1], "set": {"tasks": ["none"]}},
    }
    monkeypatch.setattr(results.data, "plan", lambda: {"protocol": {}, "runs": runs})
    work = tmp_path / "work"
    (failed,) = results.measure(["torn", "row"], [], 2, work, small_glue)
    assert failed.startswith("torn, seed 1 ended with 2 → see ") and "none" in (work / "seed1/torn.log").read_text()
    assert results.data.seeds_measured("row") == [0, 1]
    assert {seed for _, seed, _ in results.kept_answers("row")} == {0, 1}
    before = results.written(results.data.stored("row"))
    assert results.measure(["row"], [], 1, work, small_glue) == []
    assert results.written(results.data.stored("row")) == before, "nothing is measured twice"


def compared(study: Sequence[Run], place: str) -> Interval:
    """The interval that `compare` has of a model's seeds."""
    interval = score_side(side_of(study, "model"))[place].interval
    assert interval is not None
    return interval


def test_a_run_of_another_recipe_is_refused(results: Any, store: Path, make_tiny: Callable[..., Recipe]) -> None:
    (run,) = pipeline.run_study(make_tiny())
    with pytest.raises(UserError, match=r"is not what results.yaml says of row → run: understill run recipes/bam.yaml"):
        results.add(run.folder, "row")
    assert list(store.iterdir()) == []
