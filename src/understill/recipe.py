"""The recipe: a whole experiment as one frozen, checked object."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    field_validator,
    model_validator,
)

from understill.errors import Problem, RecipeError, UserError, nearest
from understill.tasks import METRICS, Kind
from understill.yamlfile import Places, read_yaml, read_yaml_value

#: Names people know from other tools, and what they are called here.
FAMILIAR = {
    "learning_rate": "lr",
    "batch_size": "batch",
    "per_device_train_batch_size": "batch",
    "num_train_epochs": "epochs",
    "num_epochs": "epochs",
    "max_steps": "steps",
    "warmup_ratio": "warmup",
    "max_grad_norm": "clip",
    "max_seq_length": "max_length",
    "model": "encoder",
    "model_name": "encoder",
    "model_name_or_path": "encoder",
    "validation": "dev",
    "eval": "dev",
    "optim": "optimizer",
    "output_dir": "output",
    "text_column": "text",
    "label_column": "label",
    "fp16": "precision",
    "bf16": "precision",
}

#: Parts of the schema that later versions fill; naming them now must not be silently ignored.
RESERVED = {
    "teachers": "distillation is not in this version yet",
    "student": "distillation is not in this version yet",
    "targets": "distillation is not in this version yet",
    "distil": "distillation is not in this version yet",
    "unlabelled": "unlabelled text is not in this version yet",
    "ablations": "ablations are not in this version yet",
    "seeds": "several seeds in one run are not in this version yet; use seed",
}


class Section(BaseModel):
    """A part of a recipe: frozen, and strict about its keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def _tuple(value: Any) -> Any:
    """Take one value or a list of them."""
    return value if isinstance(value, (list, tuple)) or value is None else [value]


Names = Annotated[tuple[str, ...], BeforeValidator(_tuple)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]


class Every(Section):
    """How often something happens: `200 steps`, `1 epoch`, `0.5 epochs`, `5 minutes`, or `never`."""

    count: Positive
    unit: Literal["steps", "epochs", "minutes", "never"]

    @model_validator(mode="before")
    @classmethod
    def _parse(cls, value: Any) -> Any:
        if isinstance(value, str):
            if value.strip() == "never":
                return {"count": 1, "unit": "never"}
            match = re.fullmatch(r"\s*([\d.]+)\s*(step|epoch|minute)s?\s*", value)
            if not match:
                raise ValueError(f'"{value}" is not an interval; write "200 steps", "1 epoch", "5 minutes" or "never"')
            return {"count": match[1], "unit": f"{match[2]}s"}
        return value

    def __str__(self) -> str:
        return "never" if self.unit == "never" else f"{self.count:g} {self.unit}"


class DemoData(Section):
    """The embedded support-inbox data: made on the spot, for trying out and for tests."""

    rows: Annotated[int, Field(ge=20)] = 2000
    seed: int = 0

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        if value is True:
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

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
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
    symmetric: bool = False
    rows: Annotated[int, Field(ge=1)] | None = None  # use only so many training rows
    weight: Positive = 1.0  # of this task's loss
    max_length: Annotated[int, Field(ge=8)] | None = None

    @field_validator("dev", mode="before")
    @classmethod
    def _dev(cls, value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError("dev takes file names, or the share of train to hold out, such as 0.1")
        if isinstance(value, (int, float)):
            if not 0 < value < 1:
                raise ValueError(f"the share of train to hold out must lie between 0 and 1, not {value}")
            return float(value)
        names = _tuple(value)
        if names is not None and not all(isinstance(name, str) for name in names):
            raise ValueError("dev takes file names, or the share of train to hold out, such as 0.1")
        return None if names is None else tuple(names)

    @field_validator("labels", mode="before")
    @classmethod
    def _labels(cls, value: Any) -> Any:
        return [str(label) for label in _tuple(value) or []]

    @property
    def own(self) -> bool:
        """Whether the user brings the data, rather than naming a known task."""
        return bool(self.train or self.hub)

    @model_validator(mode="after")
    def _whole(self) -> TaskSpec:
        if not self.own:
            return self
        for key in ("train", "text", "label"):
            if not getattr(self, key):
                raise ValueError(f"a task of your own needs {key}")
        if self.kind == "ranking":
            raise ValueError("ranking tasks cannot be trained yet; use classification or regression")
        known = METRICS[self.kind or "classification"]
        for metric in self.metrics:
            if metric not in known:
                raise ValueError(f'metric "{metric}" does not fit; {nearest(metric, known)}')
        if self.symmetric and len(self.text) != 2:
            raise ValueError("only a task with two text columns can be symmetric")
        if self.range and self.range[0] >= self.range[1]:
            raise ValueError(f"range {list(self.range)} is empty; write [lowest, highest]")
        return self


class EncoderSpec(Section):
    """The pretrained encoder: a short name, a folder or a hub id, and how it is read."""

    name: str = "minilm"
    pooling: Literal["default", "mean"] = "default"
    max_length: Annotated[int, Field(ge=8)] = 128
    dropout: Fraction | None = None  # inside the encoder; its own setting when not given

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value


class HeadSpec(Section):
    """The dropout in front of one task's head."""

    dropout: Fraction | None = None


class HeadsSpec(Section):
    """The small networks on top of the encoder, one per task."""

    dropout: Fraction = 0.1
    regression: Literal["sigmoid", "unit", "raw"] = "sigmoid"
    tasks: dict[str, HeadSpec] = Field(default_factory=dict)


class Sampling(Section):
    """How often each task is seen: P(task) ∝ rows^power; copies and weights give the same share by whole copies."""

    power: Annotated[float, Field(ge=0, le=1)] = 1.0
    copies: bool = False

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        named = {"proportional": {"power": 1.0}, "uniform": {"power": 0.0}}
        if isinstance(value, str):
            if value not in named:
                raise ValueError(f'"{value}" is not a sampling; write proportional, uniform or {{power: 0.75}}')
            return named[value]
        return value


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
            raise ValueError('evaluation goes by steps or epochs, for instance "200 steps" or "1 epoch"')
        return value

    @model_validator(mode="after")
    def _whole(self) -> Training:
        if self.micro_batch and self.micro_batch > self.batch:
            raise ValueError(f"micro_batch {self.micro_batch} is larger than batch {self.batch}")
        if self.patience and self.evaluate.unit == "never":
            raise ValueError("patience needs evaluations; evaluate is never")
        return self


class Evaluation(Section):
    """How finished models are scored."""

    batch: Annotated[int, Field(ge=1)] = 64


class Output(Section):
    """Where results go, and who else is told about progress."""

    folder: str = "runs"
    trackers: Names = ()  # names accelerate knows, such as tensorboard


class Machine(Section):
    """What to run on; never part of a fingerprint."""

    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    threads: Annotated[int, Field(ge=1)] | None = None


class Recipe(Section):
    """The whole experiment."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")] = "run"
    seed: Annotated[int, Field(ge=0)] = 0
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
        if isinstance(value, (list, tuple)):
            for name in value:
                if not isinstance(name, str):
                    raise ValueError("tasks is a list of names, or a mapping from name to settings")
            return {name: {} for name in value}
        if isinstance(value, dict):
            return {name: {} if spec is None else spec for name, spec in value.items()}
        return value

    @field_validator("tasks")
    @classmethod
    def _task_names(cls, value: dict[str, TaskSpec]) -> dict[str, TaskSpec]:
        for name in value:
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
                raise ValueError(f'"{name}" cannot be a task name; use letters, digits, - and _')
        return value

    @model_validator(mode="after")
    def _heads(self) -> Recipe:
        for name in self.heads.tasks:
            if name not in self.tasks:
                raise ValueError(f'heads.tasks names "{name}", which is not a task; {nearest(name, self.tasks)}')
        return self

    def find(self, path: str) -> Path:
        """Return a path of the recipe as seen from the working folder or, failing that, from the recipe's folder."""
        here = Path(path).expanduser()
        there = self._folder / here
        return there if not here.exists() and there.exists() else here

    def roots(self) -> tuple[Path, ...]:
        """Return the folders that relative paths are looked up in, in this order."""
        return (Path(), self._folder)

    def to_yaml(self) -> str:
        """Return the whole recipe, defaults included."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def fingerprint(values: Any) -> str:
    """Return the digest of plain values; the same values give the same digest on every machine."""
    text = json.dumps(values, sort_keys=True, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def load_recipe(path: Path, sets: tuple[str, ...] = ()) -> Recipe:
    """Read a recipe file, apply `key=value` changes, and report everything that is wrong at once."""
    values, places = read_yaml(path)
    if not isinstance(values, dict):
        raise UserError(f"{path}: a recipe is a mapping of keys to values; this file holds {_what(values)}")
    for change in sets:
        _apply(values, places, change)
    recipe = make_recipe(values, places)
    recipe._folder = path.parent
    return recipe


def make_recipe(values: dict[str, Any], places: Places | None = None) -> Recipe:
    """Check plain values and build the recipe."""
    places = places or Places("recipe")
    try:
        return Recipe.model_validate(values)
    except ValidationError as error:
        problems = [_problem(detail, places) for detail in error.errors()]
        raise RecipeError(f"{places.file}: {_count(len(problems))}", problems) from None


def _count(number: int) -> str:
    return "1 problem" if number == 1 else f"{number} problems"


def _what(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"


def _apply(values: dict[str, Any], places: Places, change: str) -> None:
    """Write one `a.b=value` into the plain values."""
    key, equals, text = change.partition("=")
    path = tuple(key.strip().split("."))
    if not equals or not all(path):
        raise UserError(f'--set "{change}": write key=value, for instance --set training.lr=3e-5')
    target: Any = values
    for depth, part in enumerate(path[:-1]):
        value = target.get(part)
        if value is None:
            value = target[part] = {}
        elif depth == 0 and part == "tasks" and isinstance(value, list):
            value = target[part] = {name: {} for name in value}
        elif part == "encoder" and isinstance(value, str):
            value = target[part] = {"name": value}
        if not isinstance(value, dict):
            raise UserError(f'--set "{change}": {".".join(path[: depth + 1])} is {_what(value)}, it has no keys')
        target = value
    target[path[-1]] = read_yaml_value(text, f'--set "{change}"')
    places.override(path, f"--set {change}")


def _problem(detail: Any, places: Places) -> Problem:
    """Turn one pydantic error into place, fault and remedy."""
    path = tuple(detail["loc"])
    where = ".".join(str(part) for part in path)
    place = places.of(path)
    key = str(path[-1]) if path else ""
    if detail["type"] == "extra_forbidden":
        if key in RESERVED:
            return Problem(place, f"{where}: {RESERVED[key]}", "leave it out")
        fix = f'did you mean "{FAMILIAR[key]}"?' if key in FAMILIAR else nearest(key, _keys_at(path[:-1]))
        return Problem(place, f"{where}: there is no such key", fix)
    message = detail["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    if detail["type"] == "missing":
        return Problem(place, f"{where} is missing")
    if detail["type"] == "value_error":
        return Problem(place, f"{where}: {message}" if where else message)
    given = detail.get("input")
    shown = f"{given!r}" if isinstance(given, (str, int, float, bool, type(None))) else _what(given)
    return Problem(place, f"{where}: {shown} is not allowed", f"it should be {message}")


def _keys_at(path: tuple[Any, ...]) -> list[str]:
    """Return the keys that are allowed at a place of the schema."""
    annotation: Any = Recipe
    for part in path:
        if get_origin(annotation) is dict:
            annotation = get_args(annotation)[1]
        else:
            section = _section(annotation)
            found = section.model_fields.get(part) if section else None
            annotation = found.annotation if found else None
    section = _section(annotation)
    return list(section.model_fields) if section else []


def _section(annotation: Any) -> type[Section] | None:
    """Find the section in an annotation such as `DemoData | None`."""
    options = (annotation, *get_args(annotation))
    return next((option for option in options if isinstance(option, type) and issubclass(option, Section)), None)
