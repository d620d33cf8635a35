"""Results: the pages made from the kept scores, what is still to be measured, and finished runs taken in.

python benchmarks/results.py                            # make docs/results.md, the README's table and pictures anew
python benchmarks/results.py --missing                  # what is not measured yet: seeds, minutes, commands
python benchmarks/results.py --measure bam bam-finetuned --glue path/to/glue --work runs/results --together 3
python benchmarks/results.py --add runs/bam --row bam   # keep a finished run's scores as docs/results/bam.json
python benchmarks/results.py --add runs/bam --row bam --predictions   # and the answers of its models, row by row
python benchmarks/results.py --check bam --glue path/to/glue          # do kept answers give the kept scores?
python benchmarks/results.py --rows --glue path/to/glue               # how far scores of kept answers vary by rows

--measure runs what is missing of these rows, --together seeds at once, and keeps scores and answers of each as soon as
it is done; called again it goes on where it stopped. A seed has a folder of its own below --work, where later rows
find the teachers of earlier ones. Several seeds on one card need NVIDIA's MPS (nvidia-cuda-mps-control -d). Do not kill
one of them: there its fault ends the others, too.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

import _results_data as data
import _results_pages as pages
from understill.errors import UserError
from understill.pipeline.record import read_record
from understill.tasks import Task

ANSWERS = data.RESULTS / "predictions"
#: Resamples of the dev sets, from which variances by rows are taken.
RESAMPLES = 10_000


# What is missing ------------------------------------------------------------------------------------------------------


def missing() -> str:
    """Return the runs that have fewer seeds than are asked, in order, with minutes and commands."""
    lines, total = [], 0.0
    for name in data.plan()["runs"]:
        asked, there = data.seeds_asked(name), data.seeds_measured(name)
        if left := [seed for seed in asked if seed not in there]:
            minutes = len(left) * data.seed_minutes(name)
            total += minutes
            shown = [
                table
                for table in data.plan()["tables"]
                if any(model.startswith(f"{name}/") for row in pages.rows_of(table).values() for model in row.values())
            ]
            lines += [
                f"{name}: {len(there)} of {len(asked)} seeds, about {minutes:.0f} min ({total:.0f} with all before it)",
                f"  tables: {', '.join(shown) or 'none: it chooses settings'}",
                f"  {data.command(name, left)}",
            ]
    return "\n".join(lines) or "everything is measured"


# Measuring ------------------------------------------------------------------------------------------------------------


def measure(names: Sequence[str], seeds: Sequence[int], together: int, work: Path, glue: Path) -> list[str]:
    """Run what is missing of these rows, and keep what comes of it; return what failed."""
    failed, lock = list[str](), Lock()

    wanted = seeds or sorted({seed for name in names for seed in data.seeds_asked(name)})
    together = min(together, len(wanted))

    def one_seed(seed: int) -> None:
        place = work / f"seed{seed}"
        place.mkdir(parents=True, exist_ok=True)
        for name in names:
            with lock:
                wants = seed in data.seeds_asked(name) and seed not in data.seeds_measured(name)
            if wants:
                mistake = one_run(name, seed, place)
                print(mistake or f"{name}, seed {seed}: kept", file=sys.stderr, flush=True)
                failed.extend([mistake] * bool(mistake))

    def one_run(name: str, seed: int, place: Path) -> str:
        with (place / f"{name}.log").open("w", encoding="utf-8") as log:
            words = [sys.executable, "-m", *data.words(name, [seed], str(glue.resolve()), str(data.ROOT))]
            code = subprocess.run(words, cwd=place, stdout=log, stderr=subprocess.STDOUT).returncode
        if code:
            return f"{name}, seed {seed} ended with {code} → see {place / f'{name}.log'}"
        try:
            with lock:
                keep_answers(place / "runs" / name, name)  # first, since a seed with scores is not measured again
                add(place / "runs" / name, name, together)
        except Exception as error:
            return f"{name}, seed {seed} is not kept: {error}"
        return ""

    with ThreadPoolExecutor(together) as pool:
        list(pool.map(one_seed, wanted))
    return failed


# Runs taken in --------------------------------------------------------------------------------------------------------


def columns_of(cell: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the columns of one run of a study by name, each with its scores."""
    roles: dict[str, dict[str, Any]] = {}
    for name, model in cell["models"].items():
        tasks = {place.partition("/")[0] for place in model["scores"]}
        if model["role"] != "teacher":
            roles.setdefault(model["role"], {}).update(model["scores"])
        elif len(tasks) > 1:
            roles[f"candidate {name}"] = model["scores"]
    yield from roles.items()
    yield from ((name, cell[key]) for name, key in zip(data.SHARED, ("majority", "probe", "teachers"), strict=True))


def refuse_another(run: Path, name: str) -> None:
    """Refuse a run whose recipe is not that of its row."""
    from understill.recipe import load_recipe

    own = {"name", "seed", "seeds", "output", "machine", "evaluation"}
    asked = load_recipe(
        data.ROOT / "recipes" / f"{data.plan()['runs'][name]['recipe']}.yaml", tuple(data.settings(name))
    )
    made = load_recipe(run / "recipe.yaml")
    both = [each.model_dump(mode="json", exclude=own) for each in (asked, made)]
    for each in both:
        each["data"].pop("glue")
    if apart := sorted(key for key in both[0] if both[0][key] != both[1].get(key)):
        what = f"its {', '.join(apart)} is not what results.yaml says of {name}"
        raise UserError(f"{run}: {what} → run: {data.command(name, data.seeds_asked(name))}")


def add(run: Path, name: str, together: int = 1) -> Path:
    """Keep the scores of a finished run beside those of its other seeds, and return the file.

    Where several runs shared the GPU, each took the time of all of them.
    """
    record = read_record(run)
    refuse_another(run, name)
    kept = dict(data.stored(name)) or {"about": f"recipe {data.plan()['runs'][name]['recipe']}, by the protocol"}
    scores = kept.pop("scores", {})
    for cell in record["cells"]:
        variant = f"{cell['variant']}/" if cell["variant"] else ""
        for column, values in columns_of(cell):
            mine = scores.setdefault(variant + column, {})
            if values and not (column in data.SHARED and rounded(values) in mine.values()):  # one for all seeds
                mine[str(cell["seed"])] = rounded(values)
    made = record["made_with"]
    versions = ", ".join(f"{part} {made[part]}" for part in ("torch", "transformers", "python"))
    seeds = sorted({cell["seed"] for cell in record["cells"]})
    kept |= {
        "command": data.command(name, data.seeds_asked(name)),
        "date": time.strftime("%Y-%m-%d", time.gmtime(record["finished"])),
        "machine": f"one {made['device']}; {versions}",
        "minutes": {
            **kept.get("minutes", {}),
            flat(seeds): round((record["finished"] - record["started"]) / 60 / together, 1),
        },
        "scores": {column: values for column, values in scores.items() if values},
    }
    path = data.RESULTS / f"{name}.json"
    path.write_text(written(kept), encoding="utf-8")
    data.stored.cache_clear()
    return path


def flat(seeds: list[int]) -> str:
    """Write seeds as a key."""
    return " ".join(map(str, seeds))


def rounded(values: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Return scores to six decimals."""
    return {place: {metric: round(value, 6) for metric, value in own.items()} for place, own in values.items()}


def written(facts: dict[str, Any]) -> str:
    """Write the file of a run: a line for each fact and for each seed of a model."""
    scores = ",\n".join(
        f"  {json.dumps(model, ensure_ascii=False)}: {{\n"
        + ",\n".join(
            f'   "{seed}": {json.dumps(own)}' for seed, own in sorted(seeds.items(), key=lambda one: int(one[0]))
        )
        + "\n  }"
        for model, seeds in facts["scores"].items()
    )
    others = [
        f" {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}"
        for key, value in facts.items()
        if key != "scores"
    ]
    return "{\n" + ",\n".join([*others, f' "scores": {{\n{scores}\n }}']) + "\n}\n"


# Answers row by row ---------------------------------------------------------------------------------------------------


def answers_at(name: str) -> Path:
    """Return where the answers of a run are kept."""
    return ANSWERS / f"{name}.npz"


def answers_of(run: Path) -> Iterator[tuple[str, int, str, np.ndarray]]:
    """Yield column, seed, place and answers, in the order of the dev set's rows: class numbers, or scores."""
    from understill.evaluate.predict import kept_at, kept_task, read_kept

    for cell in read_record(run)["cells"]:
        variant = f"{cell['variant']}/" if cell["variant"] else ""
        for model in cell["models"].values():
            folder = (run / model["folder"]).parent / "predictions"
            for place in model["scores"] if model["role"] != "teacher" else ():
                path = kept_at(folder, place)
                logits = read_kept(path, kept_task(path, ())).predictions.logits
                one = logits.argmax(1).astype(np.uint8) if logits.shape[1] > 1 else logits[:, 0].astype(np.float32)
                yield f"{variant}{model['role']}", cell["seed"], place, one


def keep_answers(run: Path, name: str) -> Path:
    """Keep the answers of a run's models: an array for each column and dev set, a row for each row, by seed."""
    path = answers_at(name)
    arrays: dict[str, dict[int, np.ndarray]] = {}
    for key, seed, one in kept_answers(name):
        arrays.setdefault(key, {})[seed] = one
    for column, seed, place, one in answers_of(run):
        arrays.setdefault(f"{column}:{place}", {})[seed] = one
    # Seeds of a row stand side by side: they mostly agree, which packs well.
    stacked = {
        f"{key}:{flat(sorted(own))}": np.stack([own[seed] for seed in sorted(own)], 1) for key, own in arrays.items()
    }
    path.parent.mkdir(exist_ok=True)
    np.savez_compressed(path, **stacked)  # type: ignore[arg-type]
    return path


def kept_answers(name: str) -> Iterator[tuple[str, int, np.ndarray]]:
    """Yield what is kept of a run: "column:place", seed, and answers in the order of the dev set's rows."""
    path = answers_at(name)
    if path.exists():
        with np.load(path, allow_pickle=False) as arrays:
            for key in arrays.files:
                what, _, seeds = key.rpartition(":")
                yield from ((what, int(seed), arrays[key][:, at]) for at, seed in enumerate(seeds.split()))


def scored_answers(name: str, glue: Path) -> Iterator[tuple[str, str, int, Task, np.ndarray, np.ndarray]]:
    """Yield what is kept of a run with GLUE's own labels: column, place, seed, task, gold and answers."""
    from understill.data.encode import all_gold
    from understill.data.load import load_tasks
    from understill.recipe import load_recipe

    recipe = data.ROOT / "recipes" / f"{data.plan()['runs'][name]['recipe']}.yaml"
    with tempfile.TemporaryDirectory() as cache:
        tasks = load_tasks(load_recipe(recipe, (*data.settings(name), f"data.glue={glue}")), Path(cache))
        for what, seed, one in kept_answers(name):
            column, _, place = what.rpartition(":")
            task, _, split = place.partition("/")
            yield column, place, seed, tasks[task].task, all_gold(tasks[task].splits[split]), one.astype(np.float64)


def check(name: str, glue: Path) -> tuple[int, float]:
    """Score kept answers by GLUE's own labels; return how many scores, and how far the worst is from the kept one."""
    from understill.evaluate.metrics import score

    count, worst = 0, 0.0
    for column, place, seed, task, gold, one in scored_answers(name, glue):
        mine = score(task, gold, one)
        kept = data.stored(name)["scores"][column][str(seed)][place]
        apart = [abs(mine[metric] - value) for metric, value in kept.items()]
        count, worst = count + len(apart), max(worst, *apart)
    return count, worst


def measure_rows(glue: Path) -> Path:
    """Keep how far the means over seeds of all models with kept answers vary by rows, together, on each task."""
    from understill.evaluate.bootstrap import resample

    answers: dict[str, dict[str, list[np.ndarray]]] = {}
    known: dict[str, tuple[Task, np.ndarray]] = {}
    seeds: dict[str, set[int]] = {}
    for name in (name for name in data.plan()["runs"] if answers_at(name).exists()):
        for column, place, seed, task, gold, one in sorted(scored_answers(name, glue), key=lambda each: each[2]):
            model, there = f"{name}/{column}", data.stored(name)["scores"][column][str(seed)]
            if task.name in data.GLUE and place == data.dev_set(task.name, there):
                answers.setdefault(task.name, {}).setdefault(model, []).append(one)
                known[task.name] = task, gold
                seeds.setdefault(model, set()).add(seed)
    tasks = {}
    for place, models in answers.items():
        stacked = np.concatenate([np.stack(own) for own in models.values()])
        resampled = resample(*known[place], stacked, resamples=RESAMPLES)
        starts = np.cumsum([0, *map(len, models.values())]).tolist()
        sides = [resampled.seeds(start, len(own)) for start, own in zip(starts, models.values(), strict=False)]
        covariance = 1e4 * np.atleast_2d(np.cov([side.by_rows for side in sides], ddof=0))
        tasks[place] = {
            "rows": resampled.units,
            "models": list(models),
            "seed_by_row": [float(f"{1e4 * side.spread.by_row:.4g}") for side in sides],
            "covariance": [[float(f"{value:.4g}") for value in row] for row in covariance],
        }
    facts = {
        "about": f"variances by rows of means over seeds, points squared, by {RESAMPLES:,} resamples of kept answers",
        "command": "python benchmarks/results.py --rows --glue path/to/glue",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "seeds": {model: sorted(own) for model, own in seeds.items()},
    }
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in facts.items()]
    each = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in tasks.items())
    path = data.RESULTS / "rows.json"
    path.write_text("{\n" + ",\n".join([*lines, f' "tasks": {{\n{each}\n }}']) + "\n}\n", encoding="utf-8")
    return path


# The program ----------------------------------------------------------------------------------------------------------


def write() -> list[Path]:
    """Write the pages and pictures that are not what they have to be, and return them."""
    stale = [
        path for path, text in pages.pages().items() if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    for path in stale:
        path.write_text(pages.pages()[path], encoding="utf-8")
    return stale


def main(arguments: list[str] | None = None) -> None:
    """Do what the options say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--missing", "--small", action="store_true", help="print what is not measured yet")
    parser.add_argument("--measure", nargs="+", metavar="NAME", choices=data.plan()["runs"], help="run what is missing")
    parser.add_argument("--seeds", type=int, nargs="+", default=[], metavar="N", help="of these seeds alone")
    parser.add_argument("--work", type=Path, default=Path("runs/results"), help="where --measure works; runs/results")
    parser.add_argument("--add", type=Path, metavar="RUN", help="the folder of a finished run")
    parser.add_argument("--row", metavar="NAME", choices=data.plan()["runs"], help="which run of results.yaml it is")
    parser.add_argument("--predictions", action="store_true", help="keep the answers of its models too")
    parser.add_argument("--together", type=int, default=1, metavar="N", help="so many runs shared the GPU")
    parser.add_argument("--check", metavar="NAME", choices=data.plan()["runs"], help="score the kept answers of a run")
    parser.add_argument("--rows", action="store_true", help="measure how far scores of kept answers vary by rows")
    parser.add_argument("--glue", type=Path, default=Path("path/to/glue"), help="the folder of GLUE")
    given = parser.parse_args(arguments)
    if bool(given.add) != bool(given.row):
        parser.error("--add RUN goes with --row NAME")
    try:
        if given.missing:
            print(missing())
        elif given.measure:
            if failed := measure(given.measure, given.seeds, given.together, given.work, given.glue):
                parser.exit(1, "".join(f"error: {each}\n" for each in failed))
        elif given.check:
            count, worst = check(given.check, given.glue)
            print(f"{count} scores of kept answers, at most {100 * worst:.3f} points from the kept scores")
        else:
            made = [add(given.add, given.row, given.together)] if given.add else []
            made += [measure_rows(given.glue)] if given.rows else []
            made += [keep_answers(given.add, given.row)] if given.add and given.predictions else []
            for path in [*made, *([] if made else write())]:
                print(f"written: {path.relative_to(data.ROOT)}, {path.stat().st_size:,} bytes", file=sys.stderr)
    except (UserError, ValueError) as error:
        parser.exit(2, f"error: {error}\n")


if __name__ == "__main__":
    main()
