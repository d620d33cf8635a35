"""The recipe: a whole experiment as one frozen, checked object."""

from __future__ import annotations

import glob
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr, ValidationError, field_validator, model_validator

from understill.errors import RecipeError, UserError, listed, nearest
from understill.mistakes import explain, section_at, shown
from understill.section import Every as Every
from understill.section import Fraction, Names, Positive, Section, as_list, faulty
from understill.tasks import METRICS, Kind
from understill.yamlfile import Places, dump_yaml, read_yaml, read_yaml_value


class DemoData(Section):
    """The embedded support-inbox data: made on the spot, for trying out and for tests."""

    rows: Annotated[int, Field(ge=20)] = 2000
    seed: int = 0

    @classmethod
    def short(cls, value: Any) -> Any:
        """Take `true`, or the number of rows."""
        if isinstance(value, bool) or not isinstance(value, (int, dict)):
            if value is not True:
                raise ValueError(f"{shown(value)} is not allowed → write true or the number of rows, or leave it out")
            return {}
        return {"rows": value} if isinstance(value, int) else value


class DataSpec(Section):
    """Where named tasks come from, and what to do with rows that cannot be used."""

    glue: str | None = None
    demo: DemoData | None = None
    on_bad_row: Literal["stop", "skip"] = "stop"


class HubSpec(Section):
    """A dataset of the Hugging Face hub (or a local folder in its layout)."""

    dataset: str
    config: str | None = None
    revision: str | None = None

    @classmethod
    def short(cls, value: Any) -> Any:
        """Take the name alone."""
        return {"dataset": value} if isinstance(value, str) else value


class TaskSpec(Section):
    """One task: a named one with changes, or the user's own files and columns."""

    train: Names = ()
    dev: tuple[str, ...] | float | None = None  # files, or the share of train to hold out
    test: Names = ()
    hub: HubSpec | None = None
    text: Annotated[Names, Field(max_length=2)] = ()
    label: str | None = None
    kind: Kind | None = None
    labels: Names = ()
    range: tuple[float, float] | None = None
    metrics: Names = ()
    symmetric: bool | None = None  # as the task is known; a task of your own is not
    rows: Annotated[int, Field(ge=1)] | None = None  # use only so many training rows
    weight: Positive = 1.0  # of this task's loss
    max_length: Annotated[int, Field(ge=8)] | None = None

    @field_validator("dev", mode="before")
    @classmethod
    def _dev(cls, value: Any) -> Any:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            if not 0 < value < 1:
                raise ValueError(f"{value} is no share of train to hold out → write one between 0 and 1, such as 0.1")
            return float(value)
        names = as_list(value)
        if names is not None and not all(isinstance(name, str) for name in names):
            raise ValueError(f"{shown(value)} is not allowed → name files, or the share of train to hold out: 0.1")
        return None if names is None else tuple(names)

    @field_validator("labels", mode="before")
    @classmethod
    def _labels(cls, value: Any) -> Any:
        labels = as_list(value) or []
        for label in labels:
            if not isinstance(label, (str, int, float)):
                raise ValueError(f"{shown(label)} is no label → write the labels' names, as in [yes, no]")
        # As they are found in files, where there is no True but true.
        return [str(label).lower() if isinstance(label, bool) else str(label) for label in labels]

    @property
    def own(self) -> bool:
        """Whether the user brings the data, rather than naming a known task."""
        return bool(self.train or self.hub)

    @model_validator(mode="after")
    def _whole(self) -> TaskSpec:
        faults = [*self._contradictions(), *(self._missing() if self.own else ())]
        if faults:
            raise faulty(*faults)
        return self

    def _missing(self) -> Iterator[tuple[str, str]]:
        """Yield what a task of the user's own lacks."""
        missing = [key for key in ("train", "text", "label") if not getattr(self, key)]
        if missing:
            fix = "name a split of the dataset" if missing[0] == "train" else "name the columns of your files"
            yield "", f"a task of your own needs {listed(missing, 'and')} → {fix}"
        if self.symmetric and self.text and len(self.text) != 2:
            yield "symmetric", "only a task with two text columns can be symmetric → leave it out"
        known = METRICS[self.kind or "classification"]
        for metric in self.metrics:
            if metric not in known:
                yield (
                    "metrics",
                    f'"{metric}" is no metric for {self.kind or "classification"} → {nearest(metric, known)}',
                )

    def _contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield settings that do not go together."""
        if self.kind == "ranking":
            yield "kind", "ranking tasks cannot be trained yet → use classification or regression"
        if self.kind == "regression" and self.labels:
            yield "labels", "a regression task has scores, not labels → leave labels out, or make it classification"
        if self.own and self.kind != "regression" and self.range:
            yield "range", "range is for scores → leave it out, or set kind: regression"
        if self.range and self.range[0] >= self.range[1]:
            yield "range", f"nothing lies between {self.range[0]:g} and {self.range[1]:g} → write [lowest, highest]"
        if len(self.labels) == 1:
            yield "labels", f'"{self.labels[0]}" is the only label; there is nothing to learn → name two or more'
        for label in sorted({label for label in self.labels if self.labels.count(label) > 1}):
            yield "labels", f'"{label}" is named twice → name each label once'
        columns = [*self.text, *([self.label] if self.label else [])]
        for column in sorted({column for column in columns if columns.count(column) > 1}):
            key = "label" if column == self.label else "text"
            yield key, f'the column "{column}" is used twice → each text and the label need a column of their own'


class EncoderSpec(Section):
    """The pretrained encoder: a short name, a folder or a hub id, and how it is read."""

    name: str = "minilm"
    pooling: Literal["default", "mean"] = "default"
    max_length: Annotated[int, Field(ge=8)] = 128
    dropout: Fraction | None = None  # inside the encoder; its own setting when not given

    @classmethod
    def short(cls, value: Any) -> Any:
        """Take the name alone."""
        if not isinstance(value, (str, dict)):
            raise ValueError(f"{shown(value)} is no encoder → write a name, such as minilm")
        return {"name": value} if isinstance(value, str) else value


class HeadSpec(Section):
    """The dropout in front of one task's head."""

    dropout: Fraction | None = None


class HeadsSpec(Section):
    """The small networks on top of the encoder, one per task."""

    dropout: Fraction = 0.1
    regression: Literal["sigmoid", "unit", "raw"] = "sigmoid"
    tasks: dict[str, HeadSpec] = Field(default_factory=dict)

    def dropout_of(self, task: str) -> float:
        """Return the dropout in front of a task's head."""
        own = self.tasks.get(task)
        return self.dropout if own is None or own.dropout is None else own.dropout


class Sampling(Section):
    """How often each task is seen: P(task) ∝ rows^power; copies and weights give the same share by whole copies."""

    power: Annotated[float, Field(ge=0, le=1)] = 1.0
    copies: bool = False

    @classmethod
    def short(cls, value: Any) -> Any:
        """Take `proportional` or `uniform`."""
        named = {"proportional": {"power": 1.0}, "uniform": {"power": 0.0}}
        if isinstance(value, dict):
            return value
        if not isinstance(value, str) or value not in named:
            raise ValueError(f"{shown(value)} is not a sampling → write proportional, uniform or {{power: 0.75}}")
        return named[value]


class Training(Section):
    """Everything the training loop is told."""

    epochs: Positive = 3.0
    steps: Annotated[int, Field(ge=1)] | None = None  # overrides epochs
    batch: Annotated[int, Field(ge=1)] = 32
    micro_batch: Annotated[int, Field(ge=1)] | None = None  # rows per forward pass; the rest is accumulated
    lr: Positive = 1e-4
    optimizer: Literal["adamw", "adamax", "adadelta"] = "adamw"
    betas: tuple[Fraction, Fraction] = (0.9, 0.999)
    eps: Positive = 1e-6
    rho: Fraction = 0.95  # AdaDelta's
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    layer_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    warmup: Fraction = 0.1
    schedule: Literal["linear", "constant"] = "linear"
    clip: Positive | None = 1.0
    reduction: Literal["mean", "sum"] = "mean"
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    batches: Literal["mixed", "one_task"] = "mixed"
    sampling: Sampling = Sampling()
    both_orders: bool = False  # symmetric tasks are trained on both sentence orders
    window: Annotated[int, Field(ge=1)] = 16  # batches whose rows are sorted by length together
    evaluate: Every = Every(count=1, unit="epochs")
    checkpoint: Every = Every(count=5, unit="minutes")
    patience: Annotated[int, Field(ge=1)] | None = None  # evaluations without a better score before stopping
    keep: Literal["best", "last"] = "best"

    @field_validator("evaluate")
    @classmethod
    def _steps_or_epochs(cls, value: Every) -> Every:
        # A clock would make the result depend on the machine's speed.
        if value.unit == "minutes":
            raise ValueError('evaluation goes by steps or epochs → write, for instance, "200 steps" or "1 epoch"')
        return value

    @model_validator(mode="after")
    def _whole(self) -> Training:
        faults = []
        if self.micro_batch and self.micro_batch > self.batch:
            faults.append(
                ("micro_batch", f"{self.micro_batch} rows are more than the batch has → at most {self.batch}")
            )
        if self.patience and self.evaluate.unit == "never":
            faults.append(("patience", 'it counts evaluations, and evaluate is "never" → set evaluate: 1 epoch'))
        if faults:
            raise faulty(*faults)
        return self


class Evaluation(Section):
    """How finished models are scored."""

    batch: Annotated[int, Field(ge=1)] = 64


class Output(Section):
    """Where results go, and who else is told about progress."""

    folder: Annotated[str, Field(min_length=1)] = "runs"
    trackers: Names = ()  # names accelerate knows, such as tensorboard

    @property
    def path(self) -> Path:
        """The folder, with ~ spelled out."""
        return Path(self.folder).expanduser()


class Machine(Section):
    """What to run on; part of a fingerprint only through the precision it leads to."""

    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    threads: Annotated[int, Field(ge=1)] | None = None


class Recipe(Section):
    """The whole experiment."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")] = "run"
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    data: DataSpec = DataSpec()
    tasks: Annotated[dict[str, TaskSpec], Field(min_length=1)]
    models: Literal["together", "each"] = "together"  # one model for all tasks, or one for each
    encoder: EncoderSpec = EncoderSpec()
    heads: HeadsSpec = HeadsSpec()
    training: Training = Training()
    evaluation: Evaluation = Evaluation()
    output: Output = Output()
    machine: Machine = Machine()
    _folder: Path = PrivateAttr(default_factory=Path)

    @field_validator("tasks", mode="before")
    @classmethod
    def _names(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = [value]
        if isinstance(value, (list, tuple)):
            for name in value:
                if not isinstance(name, str):
                    raise ValueError(f"{shown(name)} is no name → write [mood, queue], or a mapping: name to settings")
                if value.count(name) > 1:
                    raise ValueError(f'"{name}" is named twice → name each task once')
            return {name: {} for name in value}
        if isinstance(value, dict):
            return {name: {} if spec is None else spec for name, spec in value.items()}
        return value

    @field_validator("tasks")
    @classmethod
    def _task_names(cls, value: dict[str, TaskSpec]) -> dict[str, TaskSpec]:
        for name in value:
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
                raise ValueError(f'"{name}" cannot be a task name → use letters, digits, - and _')
        return value

    @model_validator(mode="after")
    def _heads(self) -> Recipe:
        strange = [name for name in self.heads.tasks if name not in self.tasks]
        if strange:
            raise faulty(
                *((f"heads.tasks.{name}", f"there is no such task → {nearest(name, self.tasks)}") for name in strange)
            )
        return self

    def find(self, path: str) -> Path:
        """Return a path of the recipe as seen from the working folder or, failing that, from the recipe's folder."""
        here = Path(path).expanduser()
        there = self._folder / here
        return there if not here.exists() and there.exists() else here

    def roots(self) -> tuple[Path, ...]:
        """Return the folders that relative paths are looked up in, in this order."""
        return (Path(), self._folder)

    def located(self) -> Recipe:
        """Return the recipe with paths that only its own folder has spelled out, so that a copy finds them too."""

        def move(name: str) -> str:
            here, there = Path(name).expanduser(), self._folder / name
            return str(there) if not there_is(here) and there_is(there) else name

        tasks = {}
        for name, spec in self.tasks.items():
            changes: dict[str, Any] = {}
            if spec.hub:
                changes["hub"] = spec.hub.model_copy(update={"dataset": move(spec.hub.dataset)})
            else:
                given = {"train": spec.train, "dev": spec.dev, "test": spec.test}
                changes = {key: tuple(map(move, value)) for key, value in given.items() if isinstance(value, tuple)}
            tasks[name] = spec.model_copy(update=changes)
        data = self.data.model_copy(update={"glue": move(self.data.glue)}) if self.data.glue else self.data
        encoder = self.encoder.model_copy(update={"name": move(self.encoder.name)})
        return self.model_copy(update={"tasks": tasks, "data": data, "encoder": encoder})

    def to_yaml(self) -> str:
        """Return the whole recipe, defaults included."""
        return dump_yaml(self.model_dump(mode="json"))


def there_is(path: Path) -> bool:
    """Say whether a path, or anything that fits a pattern, exists."""
    return path.exists() or (
        glob.has_magic(str(path)) and next(glob.iglob(str(path), recursive=True), None) is not None
    )


def fingerprint(values: Any) -> str:
    """Return the digest of plain values; the same values give the same digest on every machine."""
    text = json.dumps(values, sort_keys=True, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def load_recipe(path: Path, sets: tuple[str, ...] = ()) -> Recipe:
    """Read a recipe file, apply `key=value` changes, and report everything that is wrong at once."""
    values, places = read_yaml(path)
    if not isinstance(values, dict):
        what = "the file is empty" if values is None else f"the file holds {shown(values)}"
        raise UserError(f"{path}: {what} → a recipe has keys and values, for instance tasks: [mood, queue]")
    for change in sets:
        _apply(values, places, change)
    recipe = make_recipe(values, places)
    recipe._folder = path.parent
    return recipe.located()


def make_recipe(values: dict[str, Any], places: Places | None = None) -> Recipe:
    """Check plain values and build the recipe."""
    places = places or Places("recipe")
    try:
        return Recipe.model_validate(values)
    except ValidationError as error:
        raise RecipeError(places.file, explain(error, Recipe, places)) from None


def _apply(values: dict[str, Any], places: Places, change: str) -> None:
    """Write one `a.b=value` into the plain values."""
    key, equals, text = change.partition("=")
    path = tuple(key.strip().split("."))
    if not equals or not all(path):
        raise UserError(f'--set "{change}": not key=value → write, for instance, --set training.lr=3e-5')
    target: Any = values
    for depth, part in enumerate(path[:-1], 1):
        target[part] = _spelled_out(target.get(part), path[:depth])
        target = target[part]
        if not isinstance(target, dict):
            name = ".".join(path[:depth])
            raise UserError(f'--set "{change}": {name} is {shown(target)}, which has no keys → write --set {name}=…')
    target[path[-1]] = read_yaml_value(text, f'--set "{change}"')
    places.override(path, f"--set {change}")


def _spelled_out(value: Any, path: tuple[str, ...]) -> Any:
    """Return a value of the recipe as a mapping where it has such a form."""
    if value is None:
        return {}
    if path == ("tasks",) and isinstance(value, (str, list)):
        return {name: {} for name in as_list(value)}
    section = section_at(Recipe, path)
    try:
        return section.short(value) if section is not None and issubclass(section, Section) else value
    except ValueError:  # a short form with a mistake in it, which is about to be written over
        return {}
