"""How good is the first model that a newcomer gets, beside what else they could have done with the same rows.

    python3 benchmarks/first_run.py --glue path/to/glue --out first_run.json

Nine real tasks and any that you add, from 8 rows a class to 8,000 rows (SST-2: 20,000): sentiment, grammar, sections of
packages, paraphrase, inference, similarity. Every method gets the same rows and is scored on the same test rows:

    default   understill with a recipe that names the task and the encoder, and nothing else
    pinned    understill with the encoder's own pooling, three epochs, batch 32, lr 1e-4
    frozen    embeddings of the encoder as it is, and a linear model of scikit-learn
    setfit    SetFit with its defaults; single texts and classes only
    trainer   Hugging Face Trainer with its defaults: three epochs, batch 8, lr 5e-5

Scores are accuracy, Matthews' correlation for CoLA, and the mean of Pearson's and Spearman's correlation where a number
is asked for; all times 100. Seconds are those of the whole program until the model is trained, imports included; with
--jobs above 1 they are those of a machine that is shared.

SetFit pairs every row with every other by default: two million pairs or more for 2,000 rows. Where that is more than
20 positive and 20 negative pairs a row (num_iterations=20, its default before 1.0), max_steps ends it there, and
at --setfit-steps at the latest.

Data: GLUE is read from --glue (train is the pool, dev the test rows), the descriptions of Debian's packages by
apt-cache. A task whose source is missing is left out. Prepared tasks are kept in --data; a task of your own is a folder
there, called by its name, with three files:

    train.parquet   the pool to draw training rows from: columns text and label, or text1, text2 and label
    test.parquet    the rows to score, with the same columns; none of their texts may be in the pool
    meta.json       {"kind": "classes" or "score", "pair": true or false,
                     "metric": "accuracy", "matthews" or "correlation"}

What is in --out already is not computed again, so a run can be stopped, and its parts run one after another. After a
change to a method, --fresh drops what there is of it: --fresh default,pinned after a change to understill.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

# Nothing is fetched; Hugging Face reads this when it is imported.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from _battery import Task, known, load, prepare, save
from _learners import FEW, METHODS, Trial, applies, rows_of, score

DATA = Path("~/.cache/understill/first_run").expanduser()
SIZES = ("8", "100", "500", "2000", "all")
#: The task of --small.
DEMO = "mood"

Result = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """One method, taught one draw of rows of one task."""

    method: str
    task: str
    size: str
    draw: int

    @property
    def title(self) -> str:
        """The job in a few words."""
        return f"{self.task}, {size_label(self.size)}, draw {self.draw}, {self.method}"


# Work ----------------------------------------------------------------------------------------------------------------


def run_job(job: Job, options: argparse.Namespace) -> Result:
    """Do a job in this process."""
    task = load(job.task, options.data)
    rows = rows_of(task, job.size, job.draw)
    assert rows is not None
    starting = (options.encoder, options.encoder_folder, options.device)
    trial = Trial(task, rows, job.draw, *starting, options.setfit_steps, options.limit)
    outcome = METHODS[job.method](trial)
    gold = [row[-1] for row in task.test]
    return {
        "score": round(score(task.meta["metric"], outcome.answers, gold), 3),
        "seconds": round(outcome.seconds, 2),
        "train_seconds": round(outcome.train_seconds, 2),
        "rows": len(rows),
        "test_rows": len(gold),
        "note": outcome.note,
    }


def run_in_process(job: Job, options: argparse.Namespace) -> Result:
    """Let a process of its own do a job, and return what it says."""
    python = options.peer_python if job.method == "setfit" else sys.executable
    command = [python, __file__, "--worker", json.dumps(asdict(job)), "--device", options.device]
    command += ["--data", str(options.data), "--encoder", options.encoder, "--encoder-folder", options.encoder_folder]
    command += ["--setfit-steps", str(options.setfit_steps), "--limit", str(options.limit)]
    shared = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // options.jobs))} if options.jobs > 1 else {}
    environment = {**os.environ, **shared}
    # A worker stops what it has started itself, so it gets a little longer.
    patience = options.limit + 60
    try:
        answer = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=patience)
        result: Result = json.loads(answer.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        result = {"error": f"not done after {patience} s"}
    except (IndexError, ValueError):
        result = {"error": answer.stderr[-600:]}
    return {**asdict(job), **result, "jobs": options.jobs}


def run_worker(options: argparse.Namespace) -> None:
    """Do one job and print the result as one line of JSON."""
    try:
        result = run_job(Job(**json.loads(options.worker)), options)
    except Exception as error:
        traceback.print_exc()
        result = {"error": f"{type(error).__name__}: {error}"[:800]}
    print("\n" + json.dumps(result), flush=True)


def run_all(jobs: Sequence[Job], options: argparse.Namespace) -> list[Result]:
    """Do the jobs that have no result yet, and return the results of all that were ever done."""
    results = [result for result in read_results(options.out) if result["method"] not in options.fresh]
    if options.fresh:
        write_results(options, results)
    finished = {Job(*(result[key] for key in ("method", "task", "size", "draw"))) for result in results}
    waiting = [job for job in jobs if job not in finished]
    print(f"{len(jobs)} jobs, {len(jobs) - len(waiting)} of them done before", flush=True)
    pool = ThreadPoolExecutor(options.jobs)
    try:
        running = {pool.submit(run_in_process, job, options): job for job in waiting}
        for number, future in enumerate(as_completed(running), 1):
            results.append(future.result())
            write_results(options, results)
            print(f"{number}/{len(waiting)} {running[future].title}: {result_line(results[-1])}", flush=True)
    finally:
        # Ctrl-C ends the workers; those that wait must not begin.
        pool.shutdown(cancel_futures=True)
    return results


def result_line(result: Result) -> str:
    """Say what came of a job."""
    if "error" in result:
        return f"failed: {(result['error'].strip().splitlines() or ['it said nothing'])[-1]}"
    return f"{result['score']:.1f} in {result['seconds']:.0f} s"


def read_results(path: Path | None) -> list[Result]:
    """Read earlier results; what failed is tried again."""
    if path is None or not path.is_file():
        return []
    results: list[Result] = json.loads(path.read_text(encoding="utf-8"))["results"]
    return [result for result in results if "error" not in result]


def write_results(options: argparse.Namespace, results: Sequence[Result]) -> None:
    """Write all results, whole or not at all."""
    if options.out is None:
        return
    whole = {"encoder": options.encoder, "device": options.device, "setfit_steps": options.setfit_steps}
    beside = options.out.with_suffix(".part")
    beside.write_text(json.dumps({**whole, "results": results}, indent=1) + "\n", encoding="utf-8")
    beside.replace(options.out)


# Tasks and jobs ------------------------------------------------------------------------------------------------------


def demo_task(data: Path) -> list[str]:
    """Make a small task of the embedded data."""
    from understill.data import demo

    def rows(split: str, count: int) -> list[tuple[str, str]]:
        made = (row for batch in demo.batches(DEMO, split, count, 0) for row in batch.to_pylist())
        return [(row["message"], row["label"]) for row in made]

    pool, test = rows("train", 200), rows("test", 100)
    meta = {"kind": "classes", "pair": False, "metric": "accuracy"}
    save(Task(DEMO, meta, pool, test), data)
    return [DEMO]


def available_tasks(options: argparse.Namespace) -> list[str]:
    """Prepare the tasks, say which have to be left out, and return the others."""
    if options.small:
        return demo_task(options.data)
    kept = []
    for name in options.tasks:
        try:
            prepare(name, options.data, options.glue)
            load(name, options.data)
            kept.append(name)
        except (OSError, subprocess.SubprocessError, KeyError, ValueError) as error:
            print(f"{name} is left out: {error}", flush=True)
    return kept


def available_methods(options: argparse.Namespace) -> list[str]:
    """Return the methods, without SetFit where it is not installed."""
    kept = list(options.methods)
    if "setfit" in kept:
        check = subprocess.run([options.peer_python, "-c", "import setfit"], capture_output=True, text=True)
        if check.returncode:
            reason = (check.stderr.strip().splitlines() or ["it cannot be imported"])[-1]
            print(f"setfit is left out: {reason} → name an interpreter that has it with --peer-python", flush=True)
            kept.remove("setfit")
    return kept


def jobs_for(tasks: Sequence[str], methods: Sequence[str], options: argparse.Namespace) -> list[Job]:
    """List all jobs, the small sizes and first draws first."""
    loaded = [load(name, options.data) for name in tasks]
    jobs = []
    for size in options.sizes:
        fitting = [task for task in loaded if rows_of(task, size, 0) is not None]
        for draw in range(options.draws):
            for task in fitting:
                jobs += [Job(method, task.name, size, draw) for method in methods if applies(method, task.meta)]
    return jobs


# Tables --------------------------------------------------------------------------------------------------------------


def size_label(size: str) -> str:
    """Say how many rows a size is."""
    if size == "all":
        return "all rows"
    return f"{size} rows a class" if int(size) < FEW else f"{size} rows"


def table(size: str, jobs: Sequence[Job], methods: Sequence[str], results: Sequence[Result]) -> str:
    """Return the table of one size: tasks down, methods across, scores with their spread over draws, and seconds."""
    wanted = {(job.task, job.method, job.draw) for job in jobs if job.size == size}
    cells: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        if result["size"] == size and (result["task"], result["method"], result["draw"]) in wanted:
            cells.setdefault((result["task"], result["method"]), []).append(result)
    tasks = list(dict.fromkeys(job.task for job in jobs if job.size == size))
    lines = [f"{size_label(size)}", f"{'task':<26}" + "".join(f"{method:>22}" for method in methods)]
    for name in tasks:
        lines.append(f"{name:<26}" + "".join(f"{cell(cells.get((name, method), [])):>22}" for method in methods))
    whole = {method: [name for name in tasks if scores(cells, name, method)] for method in methods}
    shared = [name for name in tasks if all(name in whole[method] for method in methods)]
    for names in [shared, tasks] if shared and shared != tasks else [tasks]:
        means = [mean_cell(cells, names, method) if set(names) <= set(whole[method]) else "–" for method in methods]
        what = f"mean of all {len(names)}" if names == tasks else f"mean of {len(names)} that all have"
        lines.append(f"{what:<26}" + "".join(f"{text:>22}" for text in means))
    return "\n".join(lines)


def scores(cells: dict[tuple[str, str], list[Result]], task: str, method: str) -> list[float]:
    """Return the scores of the draws that there are."""
    return [result["score"] for result in cells.get((task, method), []) if "score" in result]


def cell(results: Sequence[Result]) -> str:
    """Return mean and standard deviation of the scores, and the mean seconds."""
    done = [result for result in results if "score" in result]
    if not done:
        return "failed" if results else "–"
    values = [result["score"] for result in done]
    spread = f" ±{statistics.stdev(values):4.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):5.1f}{spread} {statistics.mean(result['seconds'] for result in done):6.0f} s"


def mean_cell(cells: dict[tuple[str, str], list[Result]], tasks: Sequence[str], method: str) -> str:
    """Return the mean over tasks of the mean over draws."""
    if not tasks:
        return "–"
    means = [statistics.mean(scores(cells, task, method)) for task in tasks]
    seconds = [result["seconds"] for task in tasks for result in cells[task, method] if "score" in result]
    return f"{statistics.mean(means):5.1f} {statistics.mean(seconds):6.0f} s"


# The program ---------------------------------------------------------------------------------------------------------


def one_of(known: Sequence[str]) -> Any:
    """Return a reader of names with commas between them, which must be known."""

    def read(text: str) -> list[str]:
        given = [name.strip() for name in text.split(",") if name.strip()]
        unknown = [name for name in given if name not in known]
        if unknown or not given:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown) or 'nothing'} → choose from {', '.join(known)}")
        return given

    return read


def sizes(text: str) -> list[str]:
    """Read sizes: whole numbers, or all."""
    given = [size.strip() for size in text.split(",")]
    if not all(size == "all" or (size.isdigit() and int(size) > 0) for size in given):
        raise argparse.ArgumentTypeError(f"{text} → write numbers of rows and all, with commas between them")
    return given


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--glue", type=Path, help="a GLUE folder, Parquet as understill reads it; without it its tasks are left out")
    add("--data", type=Path, default=DATA, help=f"where prepared tasks are, and those of your own; {DATA}")
    add("--tasks", help="names with commas between them; all that there are")
    add("--sizes", type=sizes, default=list(SIZES), help=f"{','.join(SIZES)}; below {FEW}: rows a class (scores: ×6)")
    add("--draws", type=int, default=5, help="how often rows are drawn; the draw is the seed of the training, too; 5")
    add("--methods", type=one_of(list(METHODS)), default=list(METHODS), help=f"some of {','.join(METHODS)}")
    add("--encoder", default="minilm", help="what all methods start from: short name or folder; minilm")
    add("--device", default="auto", choices=["auto", "cpu"])
    add("--jobs", type=int, default=1, help="how many run at once; 1")
    add("--limit", type=int, default=3600, help="seconds after which a job is given up; 3600")
    add("--peer-python", default=sys.executable, help="the interpreter that has SetFit; this one")
    add("--setfit-steps", type=int, default=5000, help="the most steps that SetFit may take; 5000")
    add("--out", type=Path, help="keep every result here, as JSON; what is there already is not computed again")
    add("--fresh", type=one_of(list(METHODS)), default=[], help="drop all results of these methods in --out first")
    add("--small", action="store_true", help="one task of the demo data, 8 rows a class: about a minute on two cores")
    add("--worker", help=argparse.SUPPRESS)
    add("--encoder-folder", default="", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    try:
        options.tasks = one_of(known(options.data))(options.tasks) if options.tasks else known(options.data)
    except argparse.ArgumentTypeError as error:
        parser.error(f"argument --tasks: {error}")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the options, do what is left to do, and print a table for each size."""
    options = parse(arguments)
    if options.worker:
        run_worker(options)
        return
    from understill.models.encoder import resolve

    options.encoder_folder = resolve(options.encoder)
    with tempfile.TemporaryDirectory() as place:
        if options.small:
            options.data, options.sizes, options.draws = Path(place), ["8"], 1
            options.methods = [name for name in options.methods if name in ("default", "pinned", "frozen")]
        methods = available_methods(options)
        jobs = jobs_for(available_tasks(options), methods, options)
        results = run_all(jobs, options)
    for size in options.sizes:
        if any(job.size == size for job in jobs):
            print(f"\n{table(size, jobs, methods, results)}")


if __name__ == "__main__":
    main()
