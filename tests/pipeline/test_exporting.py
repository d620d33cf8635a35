"""From a run folder to folders that other programs run: checked on dev rows, described, and whole or not there."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from errno import ENOSPC
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from understill import pipeline
from understill.cli import main
from understill.data.demo import TASKS as DEMO
from understill.errors import UserError, counted
from understill.inference.loading import load
from understill.inference.predictor import Predictions, Predictor
from understill.models.folder import load_model, save_scores
from understill.models.manifest import find_model
from understill.pipeline import exporting
from understill.recipe import Recipe

pytest.importorskip("onnxruntime", reason="needs onnxruntime")

TEXTS = ["The parcel never came.", "I was charged twice.", "All good, thank you"]


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> tuple[Path, Recipe]:
    """A run of a model with classes, scores, pairs and a ranking."""
    from understill.recipe import make_recipe

    values: dict[str, Any] = {
        "name": "tiny",
        "data": {"demo": {"rows": 64}},
        "tasks": ["mood", "follows", "similar", "answer"],
        "encoder": {"name": str(tiny), "max_length": 32},
        "training": {"steps": 6, "batch": 8, "lr": 1e-3, "evaluate": "3 steps"},
        "output": {"folder": str(tmp_path_factory.mktemp("exports") / "runs")},
        "machine": {"device": "cpu", "threads": 1},
    }
    recipe = make_recipe(values)
    return pipeline.run(recipe).folder, recipe


def ask(argv: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Run the program; return its exit code and what it said."""
    try:
        main(argv)
    except SystemExit as stop:
        code = int(stop.code or 0)
    else:
        code = 0
    output = capsys.readouterr()
    return code, output.out, output.err


def refused(run: Path, to: str, out: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Return what is said of an export that is refused, and leaves nothing behind."""
    there = set(out.parent.iterdir())
    code, _, output = ask(["export", str(run), "--to", to, "--out", str(out)], capsys)
    assert code == 2 and "Traceback" not in output
    assert set(out.parent.iterdir()) == there
    return output


def test_a_run_leaves_as_onnx_and_answers_alike(
    run_folder: tuple[Path, Recipe], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, _ = run_folder
    out = tmp_path / "shipped"
    code, output, _ = ask(["export", str(run), "--to", "onnx", "--out", str(out)], capsys)
    assert code == 0
    assert f"wrote {out}" in output
    assert sorted(path.name for path in out.iterdir()) == [
        "README.md",
        "checksums.json",
        "model.onnx",
        "recipe.yaml",
        "tokenizer.json",
        "understill.json",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["shipped"], "nothing else is left"
    reported = [ask(["predict", str(place), "--text", TEXTS[0], "--task", "mood"], capsys) for place in (out, run)]
    assert reported[0] == reported[1]
    one, other = load(out), load(run)
    for name, answers in other.predict(TEXTS, TEXTS[::-1]).items():
        for mine, theirs in zip(one.predict(TEXTS, TEXTS[::-1])[name], answers, strict=True):
            assert mine.label == theirs.label
            assert mine.score == pytest.approx(theirs.score, abs=1e-4)


def test_files_are_answered_by_an_export_too(
    run_folder: tuple[Path, Recipe], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, recipe = run_folder
    pipeline.export(run, recipe, "onnx", out=tmp_path / "onnx")
    (tmp_path / "in.csv").write_text("text\n" + "\n".join(f'"{text}"' for text in TEXTS) + "\n", encoding="utf-8")
    asked = ["--file", str(tmp_path / "in.csv"), "--columns", "text", "--task", "mood"]
    for name, place in (("a", tmp_path / "onnx"), ("b", run)):
        code, _, output = ask(["predict", str(place), *asked, "--out", str(tmp_path / f"{name}.csv")], capsys)
        assert code == 0, output
    labels = [
        [line.split(",")[-2] for line in (tmp_path / f"{name}.csv").read_text().splitlines()] for name in ("a", "b")
    ]
    assert labels[0] == labels[1]


def test_the_card_tells_data_method_scores_size_speed_and_limits(
    run_folder: tuple[Path, Recipe], tmp_path: Path
) -> None:
    run, recipe = run_folder
    made = pipeline.export(run, recipe, "int8", out=tmp_path / "int8", limit=100)
    card = (tmp_path / "int8" / "README.md").read_text(encoding="utf-8")
    for title in ("Use", "Data", "Method", "Scores", "Size and speed", "Limits"):
        assert f"## {title}\n" in card
    scores = load_scores(card)
    assert set(scores) == {"mood/dev", "follows/dev", "similar/dev", "answer/dev"}
    for place, (value, low, high) in scores.items():
        assert low <= value <= high, place
    after = {each.place: each.after for each in reversed(made.rounded)}  # the first metric of each
    for each in made.rounded:
        assert f"| {each.place} | {each.metric} | {each.before:.4f} | {each.after:.4f} |" in card
    assert {place: value for place, (value, _, _) in scores.items()} == pytest.approx(after, abs=1e-4)
    assert "MB on disk" in card and "rounding may turn one into the other" in card and "train 64" in card


def load_scores(card: str) -> dict[str, tuple[float, float, float]]:
    """Read the table of scores with intervals."""
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in card.splitlines()
        if " to " in line and "/dev" in line
    ]
    return {row[0]: (float(row[3]), *(float(end) for end in row[4].split(" to "))) for row in rows}  # type: ignore[misc]


def test_int8_is_smaller_and_its_scores_before_are_those_of_evaluate(
    run_folder: tuple[Path, Recipe], tmp_path: Path
) -> None:
    run, recipe = run_folder
    made = pipeline.export(run, recipe, "int8", out=tmp_path / "int8", limit=100)
    pipeline.export(run, recipe, "onnx", out=tmp_path / "onnx")
    sizes = [(tmp_path / name / "model.onnx").stat().st_size for name in ("int8", "onnx")]
    assert sizes[0] < sizes[1]
    scores, tasks = pipeline.evaluate(pipeline.find_model(run), recipe)
    assert [(each.place, each.metric) for each in made.rounded] == [
        (place, metric) for place in scores for metric in tasks[place.split("/")[0]].metrics
    ]
    for each in made.rounded:
        assert each.before == pytest.approx(scores[each.place][each.metric])
    export, model = load(tmp_path / "int8"), load(run)
    apart = [each.logits(TEXTS, None, each.choose(["mood"], False))["mood"].logits for each in (export, model)]
    assert 0 < np.abs(apart[0] - apart[1]).max() < 0.5


def test_a_loss_above_the_limit_is_refused_and_nothing_is_left(
    run_folder: tuple[Path, Recipe],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = exporting.Exporter._ask

    def worse(self: Any, model: Predictor, who: str, rows: Any) -> Predictions:
        result = real(self, model, who, rows)
        if who != "int8" or result.task.kind.name != "classification":
            return result
        right = np.eye(result.task.outputs, dtype=np.float32)[rows.gold.astype(int)]
        return Predictions(result.task, -right)

    monkeypatch.setattr(exporting.Exporter, "_ask", worse)
    output = refused(run_folder[0], "int8", tmp_path / "int8", capsys)
    assert "int8 loses more than 1 points" in output and "--limit" in output


def test_a_loss_by_a_later_metric_is_refused_too(
    run_folder: tuple[Path, Recipe],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = exporting.score

    def later(task: Any, *given: Any) -> dict[str, float]:
        result = real(task, *given)
        asked.append(task.name)
        if asked.count(task.name) == 3:  # of the rounded model, after twice the model itself
            result[list(result)[-1]] -= 0.5
        return result

    asked: list[str] = []
    monkeypatch.setattr(exporting, "score", later)
    tasks = [task for task in load(run_folder[0]).tasks if len(task.metrics) > 1]
    output = refused(run_folder[0], "int8", tmp_path / "int8", capsys)
    assert tasks and all(f"{task.name}/dev {task.metrics[-1]}" in output for task in tasks)


def test_a_rounded_model_whose_answers_are_no_numbers_is_refused(
    run_folder: tuple[Path, Recipe],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = exporting.OnnxModel.logits

    def broken(self: Any, *given: Any) -> dict[str, Predictions]:
        result = real(self, *given)
        factor = np.float32(np.nan if self.weights == "int8" else 1)
        return {name: Predictions(each.task, each.logits * factor) for name, each in result.items()}

    monkeypatch.setattr(exporting.OnnxModel, "logits", broken)
    assert "rows of mood/dev → write --to onnx" in refused(run_folder[0], "int8", tmp_path / "int8", capsys)


def test_a_model_that_does_not_score_what_its_folder_says_is_refused(
    run_folder: tuple[Path, Recipe], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, _ = run_folder
    copy = Path(shutil.copytree(find_model(run), tmp_path / "model"))
    scores, scored_on = load_model(copy).scores, load_model(copy).scored_on
    assert set(scored_on) == set(scores), "every score has the rows that it was worked out on"
    wrong = {**scores, "mood/dev": {**scores["mood/dev"], "accuracy": 0.999}}
    save_scores(copy, wrong, scored_on)  # as if other weights had been scored
    assert "mood/dev: accuracy is 0." in (output := refused(copy, "onnx", tmp_path / "out", capsys))
    assert "its folder says 0.9990 for the same rows → these are not the weights that were scored" in output
    save_scores(copy, wrong, {**scored_on, "mood/dev": "of other rows"})
    assert ask(["export", str(copy), "--to", "onnx", "--out", str(tmp_path / "out")], capsys)[0] == 0


def test_an_export_that_says_something_else_is_refused_and_nothing_is_left(
    run_folder: tuple[Path, Recipe],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = exporting.OnnxModel.logits

    def off(self: Any, *given: Any) -> dict[str, Predictions]:
        result = real(self, *given)
        return {name: Predictions(each.task, each.logits + np.float32(0.01)) for name, each in result.items()}

    monkeypatch.setattr(exporting.OnnxModel, "logits", off)
    assert "logits differ from the model's" in refused(run_folder[0], "onnx", tmp_path / "onnx", capsys)


def test_classifiers_lie_in_the_run_folder_one_per_task(run_folder: tuple[Path, Recipe]) -> None:
    run, recipe = run_folder
    made = pipeline.export(run, recipe, "huggingface", tasks=["mood", "similar"])
    assert made.folder == run / "export" / "huggingface"
    assert made.parts == (made.folder / "mood", made.folder / "similar")
    assert all(each.worst <= 1e-4 for each in made.parity)
    mood, similar = (part.joinpath("README.md").read_text(encoding="utf-8") for part in made.parts)
    assert "pipeline_tag: text-classification" in mood and "text_pair" not in mood
    assert "text_pair" in similar
    with pytest.raises(UserError, match=r"is there already → choose another folder with --out, or remove it"):
        pipeline.export(run, recipe, "huggingface", tasks=["mood"])


def test_one_classifier_lies_straight_in_its_folder(run_folder: tuple[Path, Recipe], tmp_path: Path) -> None:
    run, recipe = run_folder
    made = pipeline.export(run, recipe, "huggingface", tasks=["follows"], out=tmp_path / "follows-classifier")
    assert made.parts == (made.folder,) == (tmp_path / "follows-classifier",)
    assert {"config.json", "model.safetensors", "tokenizer.json", "README.md"} <= {
        path.name for path in made.folder.iterdir()
    }
    assert [task.name for task in load(made.folder).tasks] == ["follows"]
    beside = pipeline.export(run, recipe, "huggingface", tasks=["follows"])
    assert beside.folder == run / "export" / "huggingface" / "follows"


def test_tasks_that_cannot_leave_stay_behind_and_are_named(
    run_folder: tuple[Path, Recipe], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, output, _ = ask(["export", str(run_folder[0]), "--to", "huggingface", "--out", str(tmp_path / "out")], capsys)
    assert code == 0 and sorted(path.name for path in (tmp_path / "out").iterdir()) == ["follows", "mood", "similar"]
    assert "not exported: answer ranks candidates → --to onnx takes every task" in output


def test_a_run_with_mean_pooling_leaves_for_sentence_transformers(
    make_tiny: Callable[..., Recipe], tmp_path: Path
) -> None:
    recipe = make_tiny(encoder={"pooling": "mean"})
    run = pipeline.run(recipe).folder
    made = pipeline.export(run, recipe, "huggingface", out=tmp_path / "out")
    assert {part.name for part in made.parts} == {"mood", "follows", "similar"} and not made.left
    assert len(made.parity) == 3 and all(each.worst <= 1e-4 for each in made.parity)
    cards = {part.name: (part / "README.md").read_text(encoding="utf-8") for part in made.parts}
    assert "library_name: sentence-transformers" in cards["mood"]
    assert "for mood, as a sentence-transformers folder." in cards["mood"]
    assert 'model.encode(["…"])' in cards["mood"] and "from transformers import pipeline" not in cards["mood"]
    assert 'model.predict([("…", "…")])' in cards["follows"] and "needs sentence-transformers 6" in cards["follows"]
    assert "The vector that it gives is the score." in cards["similar"] and "sigmoid" not in cards["similar"]
    assert ", by understill: one text takes" in cards["mood"]
    for name in ("mood", "similar"):
        pairs = TEXTS[::-1] if name == "similar" else None
        one, other = (load(each).predict(TEXTS, pairs, [name])[name] for each in (tmp_path / "out" / name, run))
        assert [each.label for each in one] == [each.label for each in other]
        assert [each.score for each in one] == pytest.approx([each.score for each in other], abs=1e-4)


def test_the_speed_on_a_card_is_that_of_what_it_tells_to_use(run_folder: tuple[Path, Recipe], tmp_path: Path) -> None:
    import torch

    run, recipe = run_folder
    timed = []
    real = exporting.time_answers

    def noted(ask: Any, texts: Any) -> Any:
        timed.append((getattr(ask, "__self__", None), len(texts)))
        return real(ask, texts[:4])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exporting, "time_answers", noted)
        for to in ("huggingface", "onnx"):
            pipeline.export(run, recipe, to, tasks=["mood"], out=tmp_path / to)
    assert type(timed[0][0]).__name__ == "Pipeline" and timed[1][0] is None
    cards = [(tmp_path / to / "README.md").read_text(encoding="utf-8") for to in ("huggingface", "onnx")]
    cores = len(os.sched_getaffinity(0))
    on = f"From text to answer, for mood, on {counted(cores, 'CPU core')} with"
    threads = counted(torch.get_num_threads(), "thread")
    assert f"{on} {threads}, by pipeline() in batches of 32: one text takes" in cards[0]
    assert f"{on} {counted(cores, 'thread')}: one text takes" in cards[1]


def test_the_card_names_teachers_and_what_was_read_without_labels(make_tiny: Callable[..., Recipe]) -> None:
    recipe = make_tiny(
        tasks={"mood": {}, "queue": {"unlabelled": ["logs.jsonl"]}, "follows": {}},
        teachers=[
            {"name": "large", "encoder": {"name": "mpnet"}, "tasks": "together"},
            {"name": "llm", "predictions": ["llm.jsonl"], "tasks": ["queue"]},
            {"name": "other", "checkpoint": "ours", "tasks": ["follows"]},
        ],
        student={"unlabelled": 0.25},
    )
    chosen = [DEMO[name] for name in ("mood", "queue")]
    output = exporting._method(recipe, "student", chosen, True)
    assert (
        "distilled from 2 teachers: large (mpnet, trained by the recipe, one model for all its tasks); llm (" in output
    )
    assert "llm.jsonl" in output and "ours" not in output
    read = exporting._unlabelled(recipe, chosen)
    assert "25% of such a task's rows" in read and "mood (texts of the demo), queue (logs.jsonl)" in read
    assert "distilled" not in exporting._method(recipe, "baseline", chosen, False)


# Places ---------------------------------------------------------------------------------------------------------------


def test_a_folder_that_appears_meanwhile_is_left_alone(
    run_folder: tuple[Path, Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = exporting.as_markdown

    def take(card: Any) -> str:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "letter.txt").write_text("dear", encoding="utf-8")
        return real(card)

    monkeypatch.setattr(exporting, "as_markdown", take)
    code, _, output = ask(["export", str(run_folder[0]), "--to", "onnx", "--out", str(tmp_path / "out")], capsys)
    assert code == 2 and "out is there already → choose another folder" in output and "Traceback" not in output
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["letter.txt"]


def test_an_export_that_is_told_to_end_leaves_nothing(
    run_folder: tuple[Path, Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def end(*_: object) -> None:
        assert len(list(tmp_path.iterdir())) == 1
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(exporting, "write_onnx", end)
    code, _, _ = ask(["export", str(run_folder[0]), "--to", "onnx", "--out", str(tmp_path / "out")], capsys)
    assert code == 143 and not list(tmp_path.iterdir())
    assert signal.getsignal(signal.SIGTERM) is before


def test_what_a_killed_export_left_goes_with_the_next(run_folder: tuple[Path, Recipe], tmp_path: Path) -> None:
    run, recipe = run_folder
    old, new, other = (tmp_path / name for name in (".out.1.part", ".out.2.part", ".out.txt"))
    for folder in (old, new, other):
        folder.mkdir()
    for folder in (old, other):
        os.utime(folder, (0, 0))
    pipeline.export(run, recipe, "onnx", tasks=["mood"], out=tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} == {".out.2.part", ".out.txt", "out"}


def test_data_that_is_not_there_says_where_to_export_from(
    run_folder: tuple[Path, Recipe], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, _ = run_folder
    own = "tasks.mood={train: here.csv, text: text, label: label}"
    more = ["--set", own, "--task", "mood", "--out", str(tmp_path / "out")]
    code, _, output = ask(["export", str(run), "--to", "onnx", *more], capsys)
    assert code == 2 and "no dev rows to check the export with: here.csv: no such file" in output
    assert "→ export from where the recipe was run, or name files with --set" in output


@pytest.mark.parametrize(
    ("more", "output"),
    [
        (["--to", "onnx", "--out", "{run}"], "is there already"),
        (["--to", "onnx", "--task", "moood"], "did you mean"),
        (["--to", "huggingface", "--task", "answer"], "answer ranks candidates"),
        (["--to", "onxn"], "write huggingface, onnx or int8"),
    ],
)
def test_a_mistake_is_told_before_anything_heavy_is_imported(
    run_folder: tuple[Path, Recipe], more: list[str], output: str
) -> None:
    program = "import sys; from understill.cli import main\ntry:\n    main(sys.argv[1:])\nexcept SystemExit: pass\n"
    program += "print(*[name for name in ('torch', 'transformers', 'pyarrow', 'scipy') if name in sys.modules])"
    given = [part.format(run=run_folder[0]) for part in more]
    command = [sys.executable, "-c", program, "export", str(run_folder[0]), *given]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert output in done.stderr and done.stdout.strip() == ""


@pytest.mark.parametrize(
    ("more", "output"),
    [
        (["--to", "onxn"], '--to "onxn": write huggingface, onnx or int8'),
        (["--to", "onnx", "--task", "moood"], 'no task "moood"; did you mean "mood"?'),
        (
            ["--to", "huggingface", "--task", "mood", "--task", "answer"],
            "answer ranks candidates) → leave out what is not: --task mood",
        ),
        (["--to", "onnx", "--recipe", "nowhere.yaml"], "nowhere.yaml"),
    ],
)
def test_a_mistake_is_one_sentence(
    run_folder: tuple[Path, Recipe], more: list[str], output: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run, _ = run_folder
    code, _, reported = ask(["export", str(run), *more, "--out", str(tmp_path / "out")], capsys)
    assert code == 2
    assert output in reported and "Traceback" not in reported
    assert not (tmp_path / "out").exists()


def test_a_full_disk_is_one_sentence_and_nothing_is_left(
    run_folder: tuple[Path, Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fill(*_: object) -> None:
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr("understill.pipeline.exporting.write_onnx", fill)
    output = refused(run_folder[0], "onnx", tmp_path / "out", capsys)
    assert f"error: {tmp_path / 'out'}: No space left on device → make room" in output


def test_a_place_where_no_folder_can_be_made_is_one_sentence(
    run_folder: tuple[Path, Recipe], capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, output = ask(["export", str(run_folder[0]), "--to", "onnx", "--out", "/proc/here/out"], capsys)
    assert code == 2 and "Traceback" not in output
    assert "/proc/here/out: no folder can be made there: " in output and "→ choose another place with --out" in output


def test_a_task_that_is_named_twice_leaves_once(run_folder: tuple[Path, Recipe], tmp_path: Path) -> None:
    run, recipe = run_folder
    pipeline.export(run, recipe, "onnx", tasks=("mood", "mood"), out=tmp_path / "onnx")
    assert [task.name for task in load(tmp_path / "onnx").tasks] == ["mood"]


def test_a_folder_that_is_there_is_left_alone(
    run_folder: tuple[Path, Recipe], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, _ = run_folder
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear", encoding="utf-8")
    code, _, output = ask(["export", str(run), "--to", "onnx", "--out", str(tmp_path / "mine")], capsys)
    assert (code, (tmp_path / "mine" / "letter.txt").read_text(encoding="utf-8")) == (2, "dear")
    assert "is there already" in output


def test_a_model_folder_stays_as_it_is(run_folder: tuple[Path, Recipe], capsys: pytest.CaptureFixture[str]) -> None:
    folder = pipeline.find_model(run_folder[0])
    code, _, output = ask(["export", str(folder), "--to", "onnx"], capsys)
    assert code == 2 and "say where to write with --out" in output


def test_a_task_without_dev_rows_cannot_be_checked(
    run_folder: tuple[Path, Recipe], tmp_path: Path, make_tiny: Callable[..., Recipe]
) -> None:
    run, _ = run_folder
    with pytest.raises(UserError, match="no dev rows of mood to check the export with"):
        pipeline.export(run, make_tiny(tasks=["similar"]), "onnx", tasks=["mood"], out=tmp_path / "onnx")
