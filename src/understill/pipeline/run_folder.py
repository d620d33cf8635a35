"""The run folder: the record of what a run is made of, written before it begins, and of its results."""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import shutil
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from understill.atomic import file_digest, read_record, seal, write_bytes, write_record
from understill.code_digest import DECIDES, code_digest
from understill.data.resolve import read_column
from understill.events import Scores
from understill.models.roles import RECIPE, RECORD
from understill.pipeline.aggregate import conclude
from understill.pipeline.evaluation import majority_scores
from understill.pipeline.linear_probe import plan_probes
from understill.pipeline.model_training import read_trained
from understill.pipeline.pinned_recipe import write_pinned
from understill.pipeline.plan.parts import Plan, Study
from understill.pipeline.record import CELLS, Run
from understill.pipeline.sides import CLUSTERS, save_clusters
from understill.pipeline.soft_targets import asked_of
from understill.pipeline.teacher_selection import ensemble_scores, member_scores
from understill.recipe import Recipe
from understill.train.device import device_name, pick_device

log = logging.getLogger(__name__)

#: The folder of a run folder that holds the teachers' joint answers to the dev sets, by number: runs may share them.
ANSWERS = "teachers"


def begin_record(study: Study) -> dict[str, Any]:
    """Write the record of a run before anything is made: what a killed run has made is not to be cleaned away.

    A finished record of the same artefacts stays until the end: another process may be reading it.
    """
    folder = study.recipe.output.path / study.recipe.name
    (folder / "models").mkdir(parents=True, exist_ok=True)
    write_bytes(folder / RECIPE, study.recipe.to_yaml().encode())
    uses = sorted({path.name for _, plan in study.cells for path in _artifacts(plan)})
    roles = {model.name: model.role for model in study.plan.models}
    if change := code_change(study.recipe):
        log.warning(change)
    record: dict[str, Any] = {
        "state": "running",
        "started": time.time(),
        "recipe": file_digest(folder / RECIPE),
        "code": {artefact: code_digest(artefact) for artefact in DECIDES},
        "uses": uses,
        "roles": roles,
    }
    if not _finished(folder / RECORD, uses):
        write_record(folder / RECORD, record)
    return record


def code_change(recipe: Recipe) -> str:
    """Say that code which decides results has changed since a recipe was last run; empty where that is not so."""
    try:
        record = read_record(recipe.output.path / recipe.name / RECORD)
    except (OSError, ValueError):  # the first run, or one whose record is broken
        return ""
    known = record.get("code", {})
    if not any(known.get(artefact) != code_digest(artefact) for artefact in DECIDES):
        return ""
    models = "trains models" if known.get("model") != code_digest("model") else "makes results"
    version = f" (understill {made['understill']})" if (made := record.get("made_with")) else ""
    what = f"the code that {models} has changed since {recipe.name} was last run{version}"
    return f"{what}: results that depend on it are recomputed, and nothing made by the old code is used"


def _artifacts(plan: Plan) -> Iterator[Path]:
    """Yield the folders of the artefacts that the models, distillations and probes of a plan are made of."""
    yield from (model.folder for model in plan.all_models)
    yield from (plan.choice.artifact.folder,) if plan.choice else ()
    yield from (table.folder for table in plan.targets)
    yield from (teacher.verdict.folder for each in plan.distillations for teacher in (*each.candidates, *each.judged))
    yield from (data.path.parent for data in plan.augmented)
    probes = plan_probes(plan)
    yield from (probe.artifact.folder for probe in probes.probes) if probes else ()


def _finished(record: Path, uses: Sequence[str]) -> bool:
    """Tell whether a record says that a run of these artefacts is finished."""
    try:
        facts = read_record(record)
        return bool(facts["state"] == "done" and facts["uses"] == uses)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def finish_record(study: Study, record: dict[str, Any]) -> tuple[Run, ...]:
    """Gather the results of all stages, write them down, and return them as runs."""
    folder = study.recipe.output.path / study.recipe.name
    ensembles: dict[Any, _Ensemble] = {}
    distinct = {id(plan.loaded): plan for _, plan in study.cells}  # runs share their data where it is the same
    majority = {data: majority_scores(plan) for data, plan in distinct.items()}
    runs = []
    for number, (cell, plan) in enumerate(study.cells):
        probes, ensemble = plan_probes(plan), _ensemble(plan, ensembles, folder / ANSWERS)
        run = Run(
            folder=folder if number == 0 else folder / CELLS / cell.name,
            models=tuple(read_trained(model) for model in plan.models),
            majority=majority[id(plan.loaded)],
            teachers=ensemble.scores,
            members=ensemble.members,
            tasks={name: loaded.task for name, loaded in plan.loaded.items()},
            aid=_aid(plan),
            cell=cell,
            answers=ensemble.answers,
            probe=probes.scores() if probes else {},
        )
        runs.append(run)
    _clear(folder / CELLS, {each.folder.name for each in runs[1:]})
    # Those of an earlier run under this name; another process with this recipe writes the same ones.
    for old in set((folder / ANSWERS).glob("*")) - {each.answers for each in runs}:
        shutil.rmtree(old, ignore_errors=True)
    for each in runs:
        (each.folder / "models").mkdir(parents=True, exist_ok=True)
        _link_models(each.folder, {model.name: model.folder for model in each.models})
    write_pinned(folder, study.plan.recipe, runs[0].models)
    _write_clusters(study.plan, folder / CLUSTERS)
    runs[0] = replace(runs[0], findings=conclude(runs))
    _write(study, record, runs)
    return tuple(runs)


def _write_clusters(plan: Plan, folder: Path) -> None:
    """Keep which rows of the dev sets are drawn together, where tasks name a column for it."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, loaded in plan.loaded.items():
        column = plan.recipe.tasks[name].cluster
        for data in loaded.splits.values() if column else ():
            if data.split.startswith("dev") and (names := read_column(plan.recipe, data, column or "")):
                save_clusters(folder, data.place, data.table()["id"], names)
    if folder.is_dir():
        seal(folder)


def _write(study: Study, record: dict[str, Any], runs: Sequence[Run]) -> None:
    """Write the record of a finished run."""
    folder = runs[0].folder
    facts = [_facts(each, folder) for each in runs]
    cells = [
        {"name": cell.name, "variant": cell.variant, "levels": dict(cell.levels), "seed": cell.seed, **mine}
        for (cell, _), mine in zip(study.cells, facts, strict=True)
    ]
    made_with = _made_with(study.recipe)
    record |= {"state": "done", "finished": time.time(), "made_with": made_with, **facts[0], "cells": cells}
    record |= {"asked": asked} if (asked := asked_of(study.plan)) else {}
    findings = runs[0].findings
    write_record(folder / RECORD, {**record, "findings": findings.facts() if findings else {}})


class _Ensemble(NamedTuple):
    """How the teachers of a plan do on dev, together and by themselves, and where their joint answers are kept."""

    scores: Scores
    members: dict[str, Scores]
    answers: Path | None


def _ensemble(plan: Plan, known: dict[Any, _Ensemble], folder: Path) -> _Ensemble:
    """Score the teachers of a plan on dev; runs with the same ones have the same scores and answers."""
    key = tuple(
        (*(teacher.verdict.folder for teacher in (*each.teachers, *each.judged)), each.rule.model_dump_json())
        for each in plan.distillations
    )
    if key not in known:
        scores: Scores = {}
        members: dict[str, Scores] = {}
        answers = folder / str(len(known))
        for distillation in plan.distillations:
            scores |= ensemble_scores(plan, distillation, answers)
            for name, own in member_scores(distillation).items():
                members.setdefault(name, {}).update(own)
        if answers.exists():
            seal(answers)
        known[key] = _Ensemble(scores, members, answers if scores else None)
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
    """Name what students have and baselines have not."""
    more = plan.augmented and not any(model.augmented for model in plan.models if model.role == "baseline")
    before = any(model.start.model for model in plan.models if model.role == "student")
    had = ["teachers"] if plan.distillations else ["what came before"] if before else []
    return " and ".join([*had, *(["augmentation"] if more else [])])


# Links ----------------------------------------------------------------------------------------------------------------


def _clear(folder: Path, kept: Collection[str]) -> None:
    """Forget the runs of an earlier study under this name, which are links to models and nothing else."""
    for each in folder.iterdir() if folder.is_dir() else ():
        if each.name not in kept and (each / "models").is_dir():
            _link_models(each, {})
            with contextlib.suppress(OSError):  # it holds something else
                (each / "models").rmdir()
                each.rmdir()
    with contextlib.suppress(OSError):
        folder.rmdir()


def _link_models(folder: Path, models: dict[str, Path]) -> None:
    """Link a run folder to its models, by name, and no longer to those of an earlier run under this name.

    Where links are not allowed, run.json still says where models are.
    """
    for link in (folder / "models").iterdir():
        if link.is_symlink() and link.name not in models:
            link.unlink()
    for name, target in models.items():
        fresh = folder / "models" / f".{name}.{os.getpid()}"
        try:
            fresh.unlink(missing_ok=True)
            fresh.symlink_to(os.path.relpath(target, fresh.parent), target_is_directory=True)
            fresh.replace(folder / "models" / name)
        except OSError as error:
            log.info("no link %s: %s", name, error)
