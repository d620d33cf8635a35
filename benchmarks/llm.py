"""A language model as the teacher: prompts side by side, students of its answers, and a model that is refused.

    python3 benchmarks/llm.py --glue path/to/glue --endpoint http://localhost:8080/v1 --out docs/results/llm.json

Two tasks: SST-2, and the demo's `queue` of twelve labels whose messages mention the business of other desks on purpose.
No training row has a label. The server must be OpenAI-compatible and give log-probabilities.

    prompts   the same dev rows asked with plain labels and with letters, both with and without calibration: accuracy,
              log-loss, tokens and seconds
    settings  learning rate and epochs of the static network, chosen on rows of SST-2's train set that nothing else sees
    students  `--rows` texts answered by the language model, distilled into minilm; minilm into a static network, with
              all texts of the pool; the same students taught with first choices as if they were gold, for comparison
    weak      with `--weak ADDRESS`, a model that is no better than guessing: what a run says to it

Answers are kept in `--work`, so that a run that is stopped goes on where it was; seconds are those of the first time.
With --small, a stand-in for the server is started here, and its figures say nothing about any language model.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import pyarrow.parquet as pq

from _llm_stand_in import stand_in
from understill.data import demo
from understill.data.check import row_id
from understill.data.encode import all_gold
from understill.engines.study import run
from understill.errors import UserError
from understill.evaluate.calibration import calibration
from understill.pipeline.language_models import open_llm
from understill.pipeline.recipe_data import read_data
from understill.pipeline.record import read_record
from understill.recipe import Recipe, make_recipe
from understill.report import write_report

QUEUE = {
    "delivery": "a parcel is late, lost or left in the wrong place",
    "returns": "something is to be sent back",
    "refund": "money has to be paid back",
    "billing": "an invoice, a charge or a fee is wrong",
    "login": "the account or the password does not work",
    "repair": "something broke or stopped working",
    "cancel": "an order is to be stopped",
    "address": "the address has changed or is wrong",
    "stock": "whether something is available",
    "voucher": "a discount, coupon or gift card",
    "privacy": "personal data or the newsletter",
    "setup": "how to put something together or use it",
}
TASKS: dict[str, dict[str, Any]] = {
    "sst2": {
        "text": "sentence",
        "labels": ["negative", "positive"],
        "question": "Is the sentence from a movie review positive or negative?",
    },
    "queue": {
        "text": "message",
        "labels": QUEUE,
        "question": "Which desk of a shop should handle what the writer of the message wants now?",
    },
}
#: What the labels of SST-2 mean, for the weak model.
DESCRIBED = {"negative": "the reviewer did not like it", "positive": "the reviewer liked it"}
#: Texts that rows are chosen from.
POOL = 4000
LAST = {"batch": 64, "evaluate": "never", "keep": "last"}  # dev decides nothing
#: What is tried for the static network, and on how many labelled rows; the first is taken where there is no GLUE.
TRIED = [{"epochs": epochs, "lr": lr} for epochs in (30, 10) for lr in (2e-3, 5e-4, 8e-3)]
HELD_OUT = 1000
#: Trained as understill chooses for the rows at hand.
MINILM: dict[str, Any] = {"encoder": {"name": "minilm"}}
#: It has words of its training rows alone, so it is taught by minilm on all texts of the pool.
STATIC: dict[str, Any] = {
    "encoder": {"name": "static", "words": {"vectors": "potion"}},
    "unlabelled": 0.9,
}
SMALL = {"training": {"steps": 10, "batch": 16, "lr": 1e-4}}


def write_files(folder: Path, glue: str | None) -> list[str]:
    """Write the texts of each task, without labels, and its labelled dev set; return the tasks."""
    sources = {"queue": ("message", _demo("unlabelled", POOL), _demo("dev", 250))}
    if glue:
        train, dev = (_glue(Path(glue, "SST-2", f"{split}.parquet")) for split in ("train", "dev"))
        sources["sst2"] = ("sentence", train, dev)
    for name, (column, pool, dev) in sources.items():
        texts = sorted({text for text, _ in pool} - {text for text, _ in dev}, key=lambda text: row_id(name, [text]))
        _write(folder / f"{name}-pool.csv", [column], [(text,) for text in texts[:POOL]])
        _write(folder / f"{name}-dev.csv", [column, "label"], list(dict(dev).items()))
    return [name for name in TASKS if name in sources]


def choose_static(given: argparse.Namespace) -> list[dict[str, Any]]:
    """Score settings of the static network on rows of SST-2's train set that are neither in the pool nor in dev."""
    pool = {row for name in ("pool", "dev") for row in _column(given.work / f"sst2-{name}.csv")}
    rows = {text: label for text, label in _glue(Path(given.glue, "SST-2", "train.parquet")) if text not in pool}
    order = sorted(rows.items(), key=lambda row: row_id("held out", [row[0]]))
    taught, held_out, texts = order[: given.rows], order[-HELD_OUT:], order[given.rows : given.rows + POOL]
    files = {"train": taught, "dev": held_out, "unlabelled": texts}
    for split, part in files.items():
        _write(given.work / f"held-{split}.csv", ["sentence", "label"], part)
    places = {split: str(given.work / f"held-{split}.csv") for split in files}
    tried = []
    for settings in TRIED:
        student = {"distil": {"hard": 0, "soft": 1}, **STATIC, "training": {**settings, **LAST}, "baseline": False}
        made = run(make_recipe({
            "name": "llm-static-settings",
            "tasks": {"sst2": {**TASKS["sst2"], **places, "label": "label"}},
            "teachers": [{"name": "teacher", **MINILM}],
            "student": student,
            "output": {"folder": str(given.work / "runs")},
            "machine": {"device": "cpu", "threads": given.threads},
        }))  # fmt: skip
        scores = read_record(made.folder)["models"]["student"]["scores"]["sst2/dev"]
        tried.append({**settings, "rows": HELD_OUT, **scores})
    return tried


def _column(path: Path) -> list[str]:
    with path.open(encoding="utf-8", newline="") as file:
        return [row[0] for row in csv.reader(file)][1:]


def _demo(split: str, rows: int) -> list[tuple[str, str]]:
    batches = [batch.to_pylist() for batch in demo.batches("queue", split, rows, 0)]
    return [(row["message"], row.get("label", "")) for batch in batches for row in batch]


def _glue(path: Path) -> list[tuple[str, str]]:
    table = pq.read_table(path).to_pydict()
    return [
        (text, TASKS["sst2"]["labels"][label]) for text, label in zip(table["sentence1"], table["label"], strict=True)
    ]


def _write(path: Path, head: list[str], rows: Sequence[tuple[str, ...]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([head, *rows])


def recipe_of(name: str, given: argparse.Namespace, student: dict[str, Any], **llm: Any) -> Recipe:
    """Return the recipe of one task: texts, names of labels, and a language model."""
    files = {"unlabelled": str(given.work / f"{name}-pool.csv"), "dev": str(given.work / f"{name}-dev.csv")}
    settings = {"endpoint": given.endpoint, "model": given.model, "concurrency": given.concurrency}
    return make_recipe({
        "name": f"llm-{name}-{student.get('encoder', {}).get('name', 'none')}",
        "tasks": {name: {**TASKS[name], **files, "label": "label"}},
        "teachers": [{"name": "llm", "llm": {**settings, "dev": given.dev, **llm}}],
        "student": {"distil": {"hard": 0, "soft": 1}, **student},
        "output": {"folder": str(given.work / "runs")},
        "machine": {"device": "cpu", "threads": given.threads},
    })  # fmt: skip


# Prompts --------------------------------------------------------------------------------------------------------------


def prompts(name: str, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Ask about the same dev rows in four ways."""
    for stand_ins in ("labels", "letters"):
        for calibrate in (False, True):
            recipe = recipe_of(name, options, {}, options=stand_ins, calibrate=calibrate)
            loaded = read_data(recipe)[name]
            teacher = open_llm(recipe, recipe.teachers[0], loaded)  # type: ignore[arg-type]
            logits, gold = teacher.logits(loaded.splits["dev"]), all_gold(loaded.splits["dev"])
            known = ~np.isnan(logits[:, 0])
            measured = calibration(gold[known], logits[known])
            assert measured
            asked = teacher.asked()
            yield {
                "task": name,
                "prompt": stand_ins,
                "calibrated": calibrate,
                "rows": int(known.sum()),
                "accuracy": float((logits[known].argmax(1) == gold[known]).mean()),
                "log_loss": measured.log_loss,
                "calibration_error": measured.error,
                "silent": asked["silences"],
                "tokens_per_row": (asked["tokens_in"] + asked["tokens_out"]) / max(asked["rows"], 1),
                "seconds_per_row": asked["seconds"] / max(asked["rows"], 1),
            }


# Students -------------------------------------------------------------------------------------------------------------


def students(name: str, given: argparse.Namespace, static: dict[str, Any], **llm: Any) -> Iterator[dict[str, Any]]:
    """Distil the answers into minilm, and minilm into a static network with all texts of the pool."""
    made = run(recipe_of(name, given, {**MINILM, **(SMALL if given.small else {})}, budget=given.rows, **llm))
    saved = _yaml(made.folder / "recipe.yaml")
    asked = read_record(made.folder)["asked"]["llm"][name]
    yield {
        **_figures(name, "minilm", made.folder),
        "labelled_rows": given.rows,
        "settings": llm,
        "asked": {key: value for key, value in asked.items() if key != "examples"},
        "cost": _table(made.folder / "report.md", "Score against the cost of 1,000 answers"),
    }
    task = {**saved["tasks"][name], "unlabelled": [str(given.work / f"{name}-pool.csv")], "silver": ["train"]}
    small = {**SMALL, "encoder": {"name": "static"}} if given.small else {}
    student = {"distil": {"hard": 0, "soft": 1}, **STATIC, "training": {**static, **LAST}, **small}
    teachers = [{"name": "minilm", "checkpoint": str(made.folder)}]
    chain = {**saved, "name": f"llm-{name}-static", "tasks": {name: task}, "teachers": teachers, "student": student}
    yield {**_figures(name, "static", run(make_recipe(chain)).folder), "texts": POOL}


def _figures(name: str, student: str, folder: Path) -> dict[str, Any]:
    """Write the report of a run, and return what is kept of it."""
    write_report(folder, make_recipe(_yaml(folder / "recipe.yaml")))
    record, place = read_record(folder), f"{name}/dev"
    return {
        "task": name,
        "student": student,
        "teacher": record["teachers"][place],
        "scores": {each: facts["scores"][place] for each, facts in record["models"].items()},
        "majority": record["majority"][place],
        "probe": record["probe"].get(place),
        "speed": _table(folder / "report.md", "Cost of a text"),
    }


def _yaml(path: Path) -> Any:
    import yaml

    return yaml.safe_load(path.read_text(encoding="utf-8"))


def _table(page: Path, caption: str) -> list[list[str]]:
    """Return the cells of one table of a report in Markdown."""
    lines = page.read_text(encoding="utf-8").split(caption, 1)[1].partition("\n")[2].strip().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[: lines.index("")]]
    return [row for row in rows if not set(row[0]) <= {"-", ":"}]


def weak(name: str, given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Let a smaller model apply as a teacher: with plain labels, with descriptions of them, and with letters."""
    for prompt in ("labels", "descriptions", "letters"):
        options = "letters" if prompt == "letters" else "labels"
        llm = {"endpoint": given.weak, "model": given.weak_model, "options": options}
        recipe = recipe_of(name, given, {**MINILM, **SMALL, "baseline": False}, budget=20, **llm)
        if prompt == "descriptions":
            task = recipe.tasks[name].model_copy(update={"descriptions": DESCRIBED})
            recipe = recipe.model_copy(update={"tasks": {name: task}})
        try:
            run(recipe.model_copy(update={"name": "llm-weak"}))
            refused = None
        except UserError as error:
            refused = str(error)
        yield {"task": name, "model": given.weak_model, "prompt": prompt, "rows": given.dev, "refused": refused}


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the options, measure, print and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--glue", help="folder with GLUE as Parquet; without it, the demo task alone")
    parser.add_argument("--endpoint", help="address of the server, as in http://localhost:8080/v1")
    parser.add_argument("--model", default="qwen2.5-coder-0.5b-instruct-q4_k_m")
    parser.add_argument("--weak", help="address of a second server, whose model should be refused")
    parser.add_argument("--weak-model", default="smollm2-135m-instruct-q4_1")
    parser.add_argument("--students", default="sst2,queue", help="the tasks that students are trained for")
    parser.add_argument("--rows", type=int, default=400, help="texts that are answered for students")
    parser.add_argument("--dev", type=int, default=200, help="dev rows that the language model is asked about")
    parser.add_argument("--concurrency", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2, help="of the students' training")
    parser.add_argument("--work", type=Path, help="where files, answers and runs are kept")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--small", action="store_true", help="a stand-in for the server, few rows, the demo task alone")
    options = parser.parse_args(arguments)
    with ExitStack() as stack:
        if options.small:
            options.endpoint, options.model, options.glue = stack.enter_context(stand_in()), "stand-in", None
            options.rows, options.dev, options.concurrency = 60, 60, 8
        elif not options.endpoint:
            parser.error("--endpoint: name the address of a server, or write --small")
        options.work = options.work or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        options.work.mkdir(parents=True, exist_ok=True)
        for figures in measure(options):  # after each part, so that a run that is stopped has shown something
            text = json.dumps(figures, indent=1, ensure_ascii=False)
            if options.out:
                options.out.write_text(text + "\n", encoding="utf-8")
    print(text)


def measure(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield all figures so far."""
    names = write_files(options.work, None if options.small else options.glue)
    figures: dict[str, Any] = {
        "command": " ".join(["python3 benchmarks/llm.py", *(sys.argv[1:])]),
        "model": options.model,
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, load {os.getloadavg()[0]:.0f} at the start",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }
    figures["weak"] = list(weak(names[0], options)) if options.weak else []
    tried = choose_static(options) if "sst2" in names else []
    figures |= {"static_settings": tried, "prompts": [], "students": []}
    static = max(tried, key=lambda row: row["accuracy"]) if tried else TRIED[0]
    for name in names:
        mine = list(prompts(name, options))
        figures["prompts"] += mine
        yield figures
        if name in options.students.split(","):
            best = min(mine, key=lambda row: row["log_loss"])
            chosen = {key: static[key] for key in TRIED[0]}
            figures["students"] += students(name, options, chosen, options=best["prompt"], calibrate=best["calibrated"])
            yield figures
    yield figures | {"load": os.getloadavg()[0]}


if __name__ == "__main__":
    main()
