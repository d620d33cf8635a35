"""The run folder: what a run is made of, written before it begins, and what came out."""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import shutil
import time
from collections.abc import Collection, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from understill.disk import read_record, seal, write_bytes, write_record
from understill.events import Scores
from understill.models.roles import RECORD
from understill.pipeline.aggregate import conclude
from understill.pipeline.floor import floor_scores, plan_floor
from understill.pipeline.model_training import TrainedModel, read_trained
from understill.pipeline.pinning import write_pinned
from understill.pipeline.plan import Plan, Study
from understill.pipeline.record import Run
from understill.pipeline.scoring import majority_scores
from understill.pipeline.verdicts import ensemble_scores, member_scores
from understill.recipe import Recipe
from understill.train.device import device_name, pick_device

log = logging.getLogger(__name__)

#: The folder of a run folder that holds the other runs of its study.
CELLS = "cells"
#: The folder of a run folder that holds what teachers say together of the dev sets, by number: runs may share it.
ANSWERS = "teachers"


def begin_record(study: Study) -> dict[str, Any]:
    """Write the record of a run before anything is made: what a killed run has made is not to be cleaned away.

    A finished record of the same artefacts stays until the end: somebody else may be reading it.
    """
    folder = study.recipe.output.path / study.recipe.name
    (folder / "models").mkdir(parents=True, exist_ok=True)
    write_bytes(folder / "recipe.yaml", study.recipe.to_yaml().encode())
    roles = {model.name: model.role for model in study.plan.models}
    record: dict[str, Any] = {"state": "running", "started": time.time(), "uses": _uses(study), "roles": roles}
    if not _finished(folder / RECORD, record["uses"]):
        write_record(folder / RECORD, record)
    return record


def _finished(record: Path, uses: Sequence[str]) -> bool:
    """Tell whether a record says that a run of these artefacts is finished."""
    try:
        facts = read_record(record)
        return bool(facts["state"] == "done" and facts["uses"] == uses)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def finish_record(study: Study, record: dict[str, Any]) -> tuple[Run, ...]:
    """Write down what came out, from what all stages have left."""
    folder = study.recipe.output.path / study.recipe.name
    known: dict[Any, _Taught] = {}
    identities: dict[str, dict[str, str]] = {}
    guesses = {id(plan.loaded): plan for _, plan in study.cells}  # runs share their data where it is the same
    majority = {data: majority_scores(plan) for data, plan in guesses.items()}
    runs = []
    for number, (cell, plan) in enumerate(study.cells):
        floor = plan_floor(plan, identities)
        teachers, members, answers = _taught(plan, known, folder / ANSWERS)
        run = Run(
            folder=folder if number == 0 else folder / CELLS / cell.name,
            models=tuple(read_trained(model) for model in plan.models),
            majority=majority[id(plan.loaded)],
            teachers=teachers,
            members=members,
            tasks={name: loaded.task for name, loaded in plan.loaded.items()},
            aid=_aid(plan),
            cell=cell,
            answers=answers,
            probe=floor_scores(floor) if floor else {},
        )
        runs.append(run)
    _clear(folder / CELLS, {each.folder.name for each in runs[1:]})
    # Those of an earlier run under this name; another process with this recipe writes the same ones.
    for old in set((folder / ANSWERS).glob("*")) - {each.answers for each in runs}:
        shutil.rmtree(old, ignore_errors=True)
    for each in runs:
        (each.folder / "models").mkdir(parents=True, exist_ok=True)
        _point_at_models(each.folder, each.models)
    write_pinned(folder, study.plan.recipe, runs[0].models)
    _write(study, record, runs)
    return tuple(runs)


def _write(study: Study, record: dict[str, Any], runs: Sequence[Run]) -> None:
    """Write the record of a finished run."""
    folder = study.recipe.output.path / study.recipe.name
    facts = [_facts(each, folder) for each in runs]
    cells = [
        {
            "name": each.cell.name,
            "variant": each.cell.variant,
            "levels": dict(each.cell.levels),
            "seed": each.cell.seed,
            **mine,
        }
        for each, mine in zip(runs, facts, strict=True)
        if each.cell
    ]
    record |= {
        "state": "done",
        "finished": time.time(),
        "made_with": _made_with(study.recipe),
        **facts[0],
        "cells": cells,
    }
    write_record(folder / RECORD, {**record, "findings": conclude(runs).facts()} if len(runs) > 1 else record)


class _Taught(NamedTuple):
    """How the teachers of a plan do on dev, together and by themselves, and where their joint answers are kept."""

    teachers: Scores
    members: dict[str, Scores]
    answers: Path | None


def _taught(plan: Plan, known: dict[Any, _Taught], folder: Path) -> _Taught:
    """Score the teachers of a plan on dev; runs with the same ones have the same scores and answers."""
    key = tuple(
        (*(teacher.verdict.folder for teacher in (*each.teachers, *each.judged)), each.rule.model_dump_json())
        for each in plan.distillations
    )
    if key not in known:
        teachers: Scores = {}
        members: dict[str, Scores] = {}
        answers = folder / str(len(known))
        for distillation in plan.distillations:
            teachers |= ensemble_scores(plan, distillation, answers)
            for name, scores in member_scores(distillation).items():
                members.setdefault(name, {}).update(scores)
        if answers.exists():
            seal(answers)
        known[key] = _Taught(teachers, members, answers if teachers else None)
    return known[key]


def _facts(run: Run, folder: Path) -> dict[str, Any]:
    """Return what is kept of a run, with places as seen from the folder of its study."""
    models = {
        model.name: {
            "role": model.role,
            "folder": os.path.relpath(model.folder, folder),
            "scores": model.scores,
            "seconds": model.seconds,
            **({"chosen": model.chosen} if model.chosen else {}),
        }
        for model in run.models
    }
    scores = {"majority": run.majority, "probe": run.probe, "teachers": run.teachers, "members": dict(run.members)}
    answers = os.path.relpath(run.answers, folder) if run.answers else None
    return {**scores, "models": models, "answers": answers, "aid": run.aid}


def _made_with(recipe: Recipe) -> dict[str, str]:
    """Name the versions and the machine that a run was made with."""
    return {
        **{name: _version(name) for name in ("understill", "torch", "transformers")},
        "python": platform.python_version(),
        "system": platform.system(),
        "device": device_name(pick_device(recipe.machine)),
    }


def _version(package: str) -> str:
    """Return the version of a package; it may be used out of a folder, without having been installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _aid(plan: Plan) -> str:
    """Say what students have and baselines have not."""
    more = plan.augmented and not any(model.augmented for model in plan.models if model.role == "baseline")
    before = any(model.start.model for model in plan.models if model.role == "student")
    had = ["teachers"] if plan.distillations else ["what came before"] if before else []
    return " and ".join([*had, *(["augmentation"] if more else [])])


def _uses(study: Study) -> list[str]:
    """Name the artefacts that the models, distillations and floors of all runs are made of."""
    identities: dict[str, dict[str, str]] = {}
    return sorted({folder.name for _, plan in study.cells for folder in _made(plan, identities)})


def _made(plan: Plan, identities: dict[str, dict[str, str]]) -> Iterator[Path]:
    yield from (model.folder for model in plan.all_models)
    yield from (plan.choice.artifact.folder,) if plan.choice else ()
    yield from (table.folder for table in plan.targets)
    yield from (teacher.verdict.folder for each in plan.distillations for teacher in (*each.candidates, *each.judged))
    yield from (data.path.parent for data in plan.augmented)
    floor = plan_floor(plan, identities)
    yield from (probe.artifact.folder for probe in floor.probes) if floor else ()


def _clear(folder: Path, kept: Collection[str]) -> None:
    """Forget the runs of an earlier study under this name, which are links to models and nothing else."""
    for each in folder.iterdir() if folder.is_dir() else ():
        if each.name not in kept and (each / "models").is_dir():
            _point_at_models(each, ())
            with contextlib.suppress(OSError):  # somebody has put something there
                (each / "models").rmdir()
                each.rmdir()
    with contextlib.suppress(OSError):
        folder.rmdir()


def _point_at_models(folder: Path, trained: tuple[TrainedModel, ...]) -> None:
    """Let the run folder point at its models, and no longer at those of an earlier run under this name."""
    for link in (folder / "models").iterdir():
        if link.is_symlink() and link.name not in {model.name for model in trained}:
            link.unlink()
    for model in trained:
        _point(folder / "models" / model.name, Path(os.path.relpath(model.folder, folder / "models")))


def _point(link: Path, target: Path) -> None:
    """Let a run folder point at a model; where links are not allowed, run.json still says where it is."""
    try:
        fresh = link.with_name(f".{link.name}.{os.getpid()}")
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(target, target_is_directory=True)
        fresh.replace(link)
    except OSError as error:
        log.info("no link %s: %s", link, error)
