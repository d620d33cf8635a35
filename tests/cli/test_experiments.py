"""From files to models: init, check, run and teach, again, elsewhere and two at once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from cli_cases import Desk, School, done, finish, model_folder, start, understill, write

from understill import pipeline
from understill.events import TrainingState, Waiting


def test_init_says_what_it_guessed_and_what_to_type_next(at: Desk) -> None:
    lines = at.init.out.splitlines()
    assert lines[0] == "wrote recipe.yaml, guessed from the first rows of your files; look it over:"
    assert "  tickets: classification; text: message; label: queue (2 seen: billing, delivery)" in lines
    assert "  pairs: classification; text: question and candidate; label: same (2 seen: 0, 1)" in lines
    assert any("keep one if the other is something else" in line for line in lines), "a doubt about the pairs"
    commands = [line.strip().split("   ")[0] for line in lines[lines.index("then type:") + 1 :]]
    assert commands == [
        "understill check recipe.yaml",
        "understill run recipe.yaml",
        'understill predict runs/my-tasks --text "…"',
    ]
    text = Path("recipe.yaml").read_text(encoding="utf-8")
    assert "text: [question, candidate]" in text


def test_init_writes_a_recipe_that_distils(at: Desk, deep: Path) -> None:
    done("init", "tickets.csv", "films.csv", "--distil", "--teacher", str(deep), "--out", "small.yaml")
    check = done("check", "small.yaml", "--set", "machine.device=cpu").out
    for model in ("teacher", "baseline", "student"):
        assert re.search(rf"│ {model} +│ tickets, films", check)
    assert "recipe and data are fine" in check
    assert "add --distil" in understill("init", "tickets.csv", "--teacher", "minilm", "--out", "no.yaml").err


def test_init_takes_the_columns_that_are_named(at: Desk) -> None:
    done("init", "tickets.csv", "--text", "message", "--label", "queue", "--out", "named.yaml")
    assert "as you named it" in Path("named.yaml").read_text(encoding="utf-8")
    refused = understill("init", "tickets.csv", "--label", "quue", "--out", "no.yaml")
    assert refused.code == 2 and "--label quue: no file has this column" in refused.err


def test_init_does_not_overwrite_unless_it_is_told_to(at: Desk) -> None:
    assert understill("init", "tickets.csv").code == 2
    done("init", "tickets.csv", "--out", "other.yaml")
    assert "already" in understill("init", "tickets.csv", "--out", "other.yaml").err
    done("init", "films.csv", "--out", "other.yaml", "--force")
    assert "films" in Path("other.yaml").read_text(encoding="utf-8")
    assert "there is no folder" in understill("init", "tickets.csv", "--out", "none/a.yaml").err


def test_check_shows_tasks_models_and_a_time(at: Desk) -> None:
    assert re.search(r"tickets +│ classification │ message +│ billing, delivery +│ train \d+, dev \d+", at.check.out)
    assert re.search(r"pairs +│ classification │ question, candidate", at.check.out)
    assert re.search(
        r"train +│ multi +│ tickets, films, pairs +│ to be trained +│ 6 +│ [\d.]+ (ms|s|min)", at.check.out
    )
    assert "recipe and data are fine; training would take about" in at.check.out
    assert at.check.err == ""


def test_check_prints_the_whole_recipe_when_asked(at: Desk) -> None:
    output = done("check", "recipe.yaml", *at.sets, "--full")
    assert "  layer_decay: 1.0\n" in output.out
    assert "nothing is left to train" in output.out


def test_run_ends_with_scores_and_where_the_files_are(at: Desk) -> None:
    for task in ("tickets", "films", "pairs", "mean"):
        assert re.search(rf"│ {task} +│ [a-z ]+ +│ +[\d.]+ │ +[\d.]+ │", at.run.out), task
    assert at.run.out.splitlines()[-2:] == ["run folder: runs/my-tasks", "report: runs/my-tasks/report.html"]
    assert f"model multi: {model_folder()}" in at.run.out
    assert "training multi" in at.run.err
    assert "step 6: dev mean" in at.run.err
    output = json.loads(Path("runs/my-tasks/run.json").read_text(encoding="utf-8"))
    assert Path("runs/my-tasks", output["models"]["multi"]["folder"]).resolve() == model_folder().resolve()


def test_the_same_run_again_trains_nothing(at: Desk) -> None:
    before = {path: path.stat().st_mtime_ns for path in Path("runs/artifacts").rglob("*") if path.is_file()}
    output = done("run", "recipe.yaml", *at.sets)
    assert output.err == "already trained: multi\n"
    assert output.out == at.run.out
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_the_recipe_of_a_run_is_enough_to_run_it_again(at: Desk) -> None:
    output = done("run", "runs/my-tasks/recipe.yaml")
    assert output.err == "already trained: multi\n"


def test_train_trains_only_the_named_model(at: Desk, tmp_path: Path) -> None:
    elsewhere = ["--set", f"output.folder={tmp_path / 'out'}", "--set", "models=each"]
    output = done("train", "recipe.yaml", "--model", "films", *at.sets, *elsewhere)
    (trained,) = (tmp_path / "out" / "artifacts").glob("model-*/model")
    assert trained.parent.name.startswith("model-films-")
    assert output.out.endswith(f"model: {trained}\n")
    assert re.search(r"│ films +│ accuracy +│", output.out)
    assert "mean" not in output.out
    record = json.loads((tmp_path / "out" / "my-tasks" / "run.json").read_text())
    assert record["state"] == "running" and trained.parent.name in record["uses"], "so that it is not cleaned away"
    again = done("train", "recipe.yaml", "--model", "films", *at.sets, *elsewhere)
    assert again.err == "already trained: films\n"


def test_the_old_verb_teach_works_for_one_more_release_and_names_the_new_one(tmp_path: Path) -> None:
    old, new = (understill(verb, tmp_path / "nowhere.yaml") for verb in ("teach", "train"))
    notice = "understill teach is now understill train; the old name works until the next release\n"
    assert old == (new.code, new.out, notice + new.err)


MODELS = {"large-mood": "mood", "large-similar": "similar", "baseline": "mood, similar", "student": "mood, similar"}


def states(text: str) -> dict[str, str]:
    """Read the stages of a plan: the state of each model, and of each task's soft targets."""
    trained = "(?:train|distil)"
    models = {
        name: rf"│ {trained} +│ {name} +│ {tasks} +│ (done|to be trained) +│ model-" for name, tasks in MODELS.items()
    }
    tables = {
        task: rf"│ label +│ {task}/train by large +│ +│ (done|to be written) +│ targets-"
        for task in ("mood", "similar")
    }
    result = {name: re.findall(pattern, text) for name, pattern in {**models, **tables}.items()}
    assert all(len(each) == 1 for each in result.values()), text
    return {name: state for name, (state,) in result.items()}


def test_a_dry_run_shows_what_would_be_made_and_makes_nothing(pupil: School) -> None:
    written = {"mood": "to be written", "similar": "to be written"}
    assert states(pupil.before.out) == {**dict.fromkeys(MODELS, "to be trained"), **written}
    assert pupil.before.out.endswith("nothing was run; 4 of 4 models are to be trained\n")
    assert "training" not in pupil.before.err


def test_after_a_run_a_dry_run_says_what_is_there(pupil: School) -> None:
    output = done("run", "small.yaml", "--dry-run")
    assert set(states(output.out).values()) == {"done"}
    assert output.out.endswith("nothing was run; 0 of 4 models are to be trained\n")
    warmer = states(done("run", "small.yaml", "--dry-run", "--set", "student.distil.temperature=2").out)
    assert [name for name, state in warmer.items() if state != "done"] == ["student"]


def test_a_run_shows_the_student_beside_its_teachers_and_baseline(pupil: School) -> None:
    columns = ("majority", "linear probe", "teachers", "baseline", "student")
    head = rf"│ task +│ metric +│ {' +│ '.join(columns)} +│"
    assert re.search(head, pupil.run.out.replace("┃", "│"))
    assert re.search(r"^student against the same student without teachers: [+−][\d.]+", pupil.run.out, re.MULTILINE)
    assert "teachers: 2 models in runs/small/models" in pupil.run.out
    assert "understill predict runs/small " in pupil.run.out


def test_train_trains_a_student_with_all_that_it_needs_and_nothing_else(pupil: School, tmp_path: Path) -> None:
    elsewhere = ("--set", f"output.folder={tmp_path / 'out'}")
    output = done("train", "small.yaml", "--model", "student", *elsewhere)
    begun = [line.removeprefix("training ") for line in output.err.splitlines() if line.startswith("training ")]
    assert begun == ["large-mood", "large-similar", "student"]
    plan = states(done("run", "small.yaml", "--dry-run", *elsewhere).out)
    assert [name for name, state in plan.items() if state != "done"] == ["baseline"]
    (folder,) = re.findall(r"^model: (.*)$", output.out, re.MULTILINE)
    mine, theirs = (Path(place, "model.safetensors").read_bytes() for place in (folder, "runs/small/models/student"))
    assert mine == theirs, "the same student as the run's"
    assert "to clean: every artefact belongs to a run" in done("clean", tmp_path / "out").out


def test_train_begins_a_record_that_cannot_be_read_anew(pupil: School, tmp_path: Path) -> None:
    elsewhere = ("--set", f"output.folder={tmp_path / 'out'}", "--set", "tasks=[mood]")
    (tmp_path / "out" / "small").mkdir(parents=True)
    record = tmp_path / "out" / "small" / "run.json"
    record.write_text('{"state": "run', encoding="utf-8")
    done("train", "small.yaml", "--model", "large-mood", *elsewhere)
    assert json.loads(record.read_text())["state"] == "running"


def test_check_opens_teachers_that_were_made_elsewhere(pupil: School, tmp_path: Path) -> None:
    from understill.data import demo

    (batch,) = demo.batches("mood", "train", 40, 0)
    rows = list(zip(batch.column("message").to_pylist(), batch.column("label").to_pylist(), strict=True))
    file = tmp_path / "said.csv"
    sets = ("--set", "tasks=[mood]", "--set", f"teachers=[{{name: llm, predictions: {file}}}]")
    write(file, ["message", "label"], rows)
    assert "recipe and data are fine" in done("check", "small.yaml", *sets).out
    write(file, ["message", "label"], [*rows[:5], (rows[5][0], "angry"), *rows[6:]])
    output = understill("check", "small.yaml", *sets)
    assert output.code == 2
    assert f'{file}:7: unknown label "angry" → known: calm, upset' in output.err


def test_two_processes_with_the_same_recipe_give_one_model(at: Desk, tmp_path: Path) -> None:
    command = ["-m", "understill", "run", "recipe.yaml", *at.sets, "--set", f"output.folder={tmp_path / 'out'}"]
    both = [finish(process) for process in [start(*command), start(*command)]]
    assert [output.code for output in both] == [0, 0], [output.err for output in both]
    lines = [line for output in both for line in output.err.splitlines()]
    assert lines.count("training multi") == 1
    assert lines.count("already trained: multi") == 1
    (model,) = (tmp_path / "out" / "artifacts").glob("model-*/done.json")
    folder = tmp_path / "out" / "my-tasks"
    ends = [f"run folder: {folder}", f"report: {folder / 'report.html'}"]
    assert [output.out.splitlines()[-2:] for output in both] == [ends, ends]
    first, second = (output.out for output in both)
    assert first == second
    assert not list(model.parent.glob("work")) and not list((tmp_path / "out" / "cache").glob(".*"))


def test_a_run_and_its_report_warn_of_the_data_once(at: Desk, tmp_path: Path) -> None:
    rows = "".join(f"a parcel of number {number},{'yes' if number % 2 else 'no'}\n" for number in range(60))
    (tmp_path / "rows.csv").write_text("text,late\n" + rows + "a row without a label,\n", encoding="utf-8")
    lines = ["tasks: {late: {train: rows.csv, text: text, label: late}}", "data: {on_bad_row: skip}"]
    (tmp_path / "recipe.yaml").write_text("\n".join(lines), encoding="utf-8")
    output = finish(start("-m", "understill", "run", "recipe.yaml", *at.sets, folder=tmp_path))
    assert output.code == 0, output.err
    assert "report: " in output.out
    assert output.err.count("bad rows left out") == 1


def test_one_process_waits_while_another_trains(at: Desk, tmp_path: Path, make_tiny: Callable[..., object]) -> None:
    import threading
    import time

    from filelock import FileLock

    plan = pipeline.make_plan(make_tiny())  # type: ignore[arg-type]
    (model,) = plan.models
    model.folder.parent.mkdir(parents=True)
    events: list[object] = []
    with FileLock(f"{model.folder}.lock"):
        thread = threading.Thread(target=pipeline.train_models, args=(plan, [model], events.append))
        thread.start()
        while Waiting(model.name) not in events:
            time.sleep(0.01)
        assert not any(isinstance(event, TrainingState) for event in events), "its tokens are made by then, and no more"
        assert not model.done
    thread.join(60)
    assert model.done
