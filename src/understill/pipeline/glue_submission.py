"""The GLUE submission: the answers of a run's models to the test sets, as the files that the benchmark takes."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from understill.atomic import write_bytes
from understill.data import glue_files
from understill.data.encode import all_gold
from understill.data.groups import grouping
from understill.data.ingest import SourcedTask
from understill.data.load import LoadedTask, read_tasks
from understill.data.taskdata import TaskData
from understill.errors import Collector, Problem, UserError, listed, nearest
from understill.evaluate.predict import predict
from understill.evaluate.submission import SHEETS, Sheet, as_answers, as_text, in_words, packed
from understill.events import Reading, Watch, silent
from understill.inference.predictor import refuse_no_numbers
from understill.models.folder import load_model
from understill.models.manifest import MANIFEST, model_tasks
from understill.pipeline.dataloader import tokeniser_of
from understill.pipeline.plan.parts import cache_folder
from understill.pipeline.recipe_data import as_trained, writable
from understill.pipeline.record import read_record
from understill.recipe import Recipe
from understill.tasks import GLUE, Kind, Task
from understill.train.device import pick_device

log = logging.getLogger(__name__)

ZIP = "submission.zip"


@dataclass(frozen=True)
class SubmissionFile:
    """One file of a submission, and who answers it: a model, a constant guess, or nobody."""

    name: str
    rows: int  # 0 where the file is not written
    model: str = ""
    guess: str = ""  # the answer to every row where no model answers
    lack: str = ""  # why no model answers


@dataclass(frozen=True)
class Submission:
    """What was written for the benchmark."""

    folder: Path
    files: tuple[SubmissionFile, ...]
    zip: Path | None  # None where a file is missing

    @property
    def missing(self) -> tuple[str, ...]:
        """The files that have no answers."""
        return tuple(file.name for file in self.files if not file.rows)


@dataclass(frozen=True)
class SubmittedModel:
    """A finished model that may answer."""

    name: str
    role: str
    folder: Path


def submit(
    path: Path,
    recipe: Recipe,
    *,
    parts: Sequence[str] = (),
    folder: Path | None = None,
    out: Path | None = None,
    fill: bool = False,
    watch: Watch = silent,
) -> Submission:
    """Let the models of a run, or one model, answer GLUE's test sets, and write the files and, if whole, the zip.

    `parts` are names of models or of parts played in the run, the preferred first. WNLI without a model, and with
    `fill` whatever else has none, gets the commonest answer of its training rows.
    """
    out = _target(path, out)
    data = Benchmark(_glue_folder(recipe, folder), recipe, watch)
    owners = _owners(path, parts)
    by_file = {name: owners[_head(sheet)] for name, sheet in SHEETS.items() if _head(sheet) in owners}
    loaded = data.read({name: task for name, (_, task) in by_file.items() if data.has(SHEETS[name])})
    if not loaded:
        folders = listed([GLUE[task].folder for task in owners], "and")
        raise UserError(f"{data.folder} has no test rows of {folders} → name another folder with --glue")
    texts: dict[str, str] = {}
    for model in dict.fromkeys(by_file[name][0] for name in loaded):
        texts |= _answer(model, {name: loaded[name] for name in loaded if by_file[name][0] == model}, recipe, watch)
    files = []
    for name, sheet in SHEETS.items():
        if name in texts:
            files.append(SubmissionFile(name, sheet.rows, model=by_file[name][0].name))
        else:
            lack = f"{data.folder} has no test rows of it" if name in by_file else f"no model answers {_head(sheet)}"
            files.append(data.stand_in(name, lack, guess=fill or (sheet.task == "wnli" and name not in by_file)))
            if files[-1].guess:
                texts[name] = as_text([files[-1].guess] * sheet.rows)
    return Submission(out, tuple(files), _write(out, {name: texts[name] for name in SHEETS if name in texts}))


def _target(path: Path, out: Path | None) -> Path:
    """Return the folder to write in, when that can be done."""
    if out is None and (path / MANIFEST).exists():
        raise UserError(f"{path} is a model folder, which stays as it is → say where to write with --out")
    out = out or path / "submission"
    if out.exists() and not out.is_dir():
        raise UserError(f"--out {out}: this is a file → name a folder")
    return out


def _glue_folder(recipe: Recipe, folder: Path | None) -> Path:
    if folder is None and recipe.data.glue is None:
        raise UserError("the run's recipe has no data.glue → name the GLUE folder with --glue")
    folder = folder or recipe.find(str(recipe.data.glue))
    if not folder.is_dir():
        raise UserError(f"{folder}: there is no such folder → name the folder of CoLA, SST-2 and so on with --glue")
    return folder


def _head(sheet: Sheet) -> str:
    """Name the task whose head answers a file."""
    return GLUE[sheet.task].task.head


# Who answers ----------------------------------------------------------------------------------------------------------


def _owners(path: Path, parts: Sequence[str]) -> dict[str, tuple[SubmittedModel, Task]]:
    """Return for each task of GLUE the model that answers it, with the task as it was trained."""
    models = _models(path)
    roles = {model.role for model in models}
    owners: dict[str, tuple[SubmittedModel, Task]] = {}
    for part in parts or (("student",) if "student" in roles else ("model",)):
        mine = [model for model in models if part in (model.name, model.role)]
        if not mine:
            raise UserError(f"--models {part}: {path} has none; {nearest(part, {*roles, *(m.name for m in models)})}")
        answers: dict[str, list[tuple[SubmittedModel, Task]]] = {}
        for model in mine:
            for task in model_tasks(model.folder):
                if task.name in GLUE:
                    answers.setdefault(task.name, []).append((model, task))
        for name, several in answers.items():
            if name not in owners and len(several) > 1:
                names = listed([model.name for model, _ in several], "and")
                raise UserError(f"--models {part}: {names} all answer {name} → name one of them with --models")
            owners.setdefault(name, several[0])
    if not owners:
        raise UserError(f"{path}: its models answer no task of GLUE ({', '.join(GLUE)}); there is nothing to submit")
    return owners


def _models(path: Path) -> list[SubmittedModel]:
    """Return the finished models of a run folder, or the one that is a model folder."""
    if (path / MANIFEST).exists():
        return [SubmittedModel(path.name, "model", path)]
    facts = read_record(path)["models"]
    return [SubmittedModel(name, str(model["role"]), path / model["folder"]) for name, model in facts.items()]


def _answer(model: SubmittedModel, sets: Mapping[str, TaskData], recipe: Recipe, watch: Watch) -> dict[str, str]:
    """Return a model's answers to test sets, as the content of their files."""
    folder = load_model(model.folder)
    network = folder.model.to(pick_device(recipe.machine))
    tokens = tokeniser_of(folder, recipe, watch)
    texts = {}
    for name, data in sets.items():
        predictions = predict(network, tokens(data), data.task, recipe.evaluation.batch)
        refuse_no_numbers(model.name, name, predictions)
        groups = grouping(data)
        if groups is not None and (lone := int((np.bincount(groups) == 1).sum())):
            counts, right = f"{lone:,} of {groups.max() + 1:,}", data.task.labels[1]
            log.warning('%s: %s queries have one candidate, which a ranking always calls "%s"', name, counts, right)
        texts[name] = as_text(in_words(SHEETS[name], as_answers(predictions, groups)))
    return texts


# What is answered -----------------------------------------------------------------------------------------------------


class Benchmark:
    """The test sets of a GLUE folder, and the majority labels of its training sets."""

    def __init__(self, folder: Path, recipe: Recipe, watch: Watch) -> None:
        self.folder = folder
        self.recipe = recipe
        self.watch = watch
        writable(recipe.output.path)

    def has(self, sheet: Sheet) -> bool:
        """Tell whether the rows of a file are there."""
        return sheet.split in glue_files.find_files(self.folder, sheet.task)

    def read(self, trained: Mapping[str, Task]) -> dict[str, TaskData]:
        """Read the rows of files, each for the task that a model was trained on; they have to be the official ones."""
        sheets, problems = {}, Collector()
        for name, task in trained.items():
            sheet = SHEETS[name]
            with problems:
                if strange := set(task.labels) - set(GLUE[sheet.task].task.labels):
                    what = f"labels the benchmark does not know: {', '.join(sorted(strange))}"
                    raise UserError(f"task {task.name} of the model has {what} → leave that model out with --models")
                loaded = as_trained(self._load(sheet.task, sheet.split, task.kind), task)
                self._check(sheet, loaded.splits[sheet.split].rows)
                sheets[name] = loaded.splits[sheet.split]
        problems.raise_if_any()
        return sheets

    def stand_in(self, name: str, lack: str, *, guess: bool) -> SubmissionFile:
        """Return a file that no model answers: with the commonest answer of its training rows, if that is wanted."""
        sheet = SHEETS[name]
        head = _head(sheet)
        if not guess:
            return SubmissionFile(name, 0, lack=lack)
        if "train" not in glue_files.find_files(self.folder, head):
            return SubmissionFile(name, 0, lack=f"{lack}, and {self.folder} has no training rows to guess by")
        data = self._load(head, "train").splits["train"]
        value = data.task.kind.simplest(data.task, all_gold(data))
        answer = [data.task.labels[int(value)]] if data.task.kind.named else [value]
        return SubmissionFile(name, sheet.rows, guess=in_words(sheet, answer)[0], lack=lack)

    def _load(self, name: str, split: str, kind: Kind | None = None) -> LoadedTask:
        task = GLUE[name].task
        task = (kind and kind.recast(task)) or task
        rows = SourcedTask(task, {split: glue_files.find(self.folder, name)[split]}, empty_text=True)
        # Without a row there would be an answer less, so bad ones are never skipped.
        return read_tasks([rows], False, cache_folder(self.recipe), lambda *done: self.watch(Reading(*done)))[name]

    def _check(self, sheet: Sheet, rows: int) -> None:
        files = glue_files.find_files(self.folder, sheet.task)[sheet.split]
        place = str(files[0].path)
        if rows != sheet.rows:
            what = f"{rows:,} rows where the benchmark has {sheet.rows:,}"
            raise UserError(str(Problem(place, what, "fetch the official file")))
        if not glue_files.numbered_in_order(files):
            raise UserError(str(Problem(place, "the rows are not in the order of their index", "sort them by it")))


def _write(out: Path, texts: Mapping[str, str]) -> Path | None:
    """Write the files, and the zip when none is missing; what is left of an earlier submission goes."""
    out.mkdir(parents=True, exist_ok=True)
    for name in (ZIP, *SHEETS):
        if name not in texts:
            (out / name).unlink(missing_ok=True)
    for name, text in texts.items():
        write_bytes(out / name, text.encode())
    if len(texts) < len(SHEETS):
        return None
    write_bytes(out / ZIP, packed(texts))
    return out / ZIP
