"""The schema: the parts a recipe is made of, each with its defaults and what may stand there."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, FieldSerializationInfo, field_serializer, field_validator, model_validator

from understill.errors import UserError, listed, nearest
from understill.mistakes import shown
from understill.section import Every, Fraction, Names, Positive, Section, Share, Weight, as_list, faulty
from understill.tasks import METRICS, Kind, Task

SomeSection = TypeVar("SomeSection", bound=Section)
Seed = Annotated[int, Field(ge=0, lt=2**63)]


def several_seeds(value: Any, first: int = 0) -> Any:
    """Take a number of seeds, or a list of them."""
    if isinstance(value, int):
        if isinstance(value, bool) or not 1 <= value <= 100:
            raise ValueError(f"{shown(value)} is no number of seeds → write 3, or list them: [0, 1, 2]")
        return tuple(range(first, first + value))
    seeds = as_list(value) or ()
    # However they are written: 1.0 and "1" are read as 1.
    if isinstance(seeds, (list, tuple)) and len({str(seed).removesuffix(".0") for seed in seeds}) < len(seeds):
        raise ValueError("a seed is listed twice → list each once")
    return seeds


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
    unlabelled: Names = ()  # files of texts that only teachers label
    hub: HubSpec | None = None
    text: Annotated[Names, Field(max_length=2)] = ()
    label: str | None = None
    group: str | None = None  # of a ranking task: the column that names a row's query; else the first text does
    kind: Kind | None = None
    labels: Names = ()
    range: tuple[float, float] | None = None
    metrics: Names = ()
    symmetric: bool | None = None  # as the task is known; a task of your own is not
    rows: Annotated[int, Field(ge=1)] | None = None  # use only so many training rows
    candidates: Annotated[int, Field(ge=2)] | None = None  # of a ranking task: at most so many of a query in a step
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
            yield from self._no_ranking()
        elif self.own or self.kind:
            for key in ("group", "candidates"):
                if getattr(self, key):
                    yield key, "only ranking tasks have this → leave it out, or set kind: ranking"
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
        columns = [*self.text, *(column for column in (self.label, self.group) if column)]
        for column in sorted({column for column in columns if columns.count(column) > 1}):
            key = "group" if column == self.group else "label" if column == self.label else "text"
            if key == "group" and column in self.text[:1]:
                yield key, "rows with the same first text belong together anyway → leave it out"
            else:
                yield key, f'the column "{column}" is used twice → name a column of its own for each'

    def _no_ranking(self) -> Iterator[tuple[str, str]]:
        """Yield what does not go with ranking."""
        if len(self.text) == 1:
            yield "text", "a ranking task has two texts → name the columns of query and candidate"
        if len(self.labels) > 2:
            yield "labels", "candidates are wrong or right → name two labels, the right one last"
        if self.symmetric:
            yield "symmetric", "a query and its candidate do not change places → leave it out"


class WordsSpec(Section):
    """The networks over words, `bilstm` and `static`: their sizes, their words and the vectors of these."""

    hidden: Annotated[int, Field(ge=1)] = 150  # of each direction of the BiLSTM
    dense: Annotated[int, Field(ge=1)] = 200  # of the ReLU layer in each task's head
    size: Annotated[int, Field(ge=1)] | None = None  # of a word's vector; that of the file, or 300
    vectors: Annotated[str, Field(min_length=1)] | None = None  # a file or a package; random where there is none
    channels: Literal["trainable", "static", "both"] = "trainable"
    vocabulary: Annotated[int, Field(ge=1)] = 50_000  # the most frequent words of the training text are kept
    tokenizer: Annotated[str, Field(min_length=1)] = "words"  # or an encoder, whose pieces of words are taken

    @field_validator("vectors", mode="before")
    @classmethod
    def _none(cls, value: Any) -> Any:
        return None if value == "none" else value

    @model_validator(mode="after")
    def _whole(self) -> WordsSpec:
        faults = []
        if self.vectors is None and self.channels != "trainable":
            fix = "name vectors, or write channels: trainable"
            faults.append(("channels", f"random vectors that are not trained say little → {fix}"))
        if self.vectors is not None and self.tokenizer != "words":
            faults.append(("tokenizer", "files have vectors of whole words → leave vectors out, or the tokenizer"))
        if faults:
            raise faulty(*faults)
        return self


#: The networks of our own, which are not pretrained.
NETWORKS = ("bilstm", "static")


class EncoderSpec(Section):
    """The encoder: a pretrained one by short name, folder or hub id, or a network of our own, and how it is read."""

    name: str = "minilm"
    pooling: Literal["default", "mean"] = "default"
    max_length: Annotated[int, Field(ge=8)] = 128
    dropout: Fraction | None = None  # inside the encoder; its own setting when not given
    layers: Annotated[int, Field(ge=1)] | None = None  # keep only so many of its layers
    pick: Literal["first", "spaced"] = "spaced"  # which ones: from the bottom, or evenly spaced with both ends
    words: WordsSpec = WordsSpec()  # of the networks of our own

    @classmethod
    def short(cls, value: Any) -> Any:
        """Take the name alone."""
        if not isinstance(value, (str, dict)):
            raise ValueError(f"{shown(value)} is no encoder → write a name, such as minilm")
        return {"name": value} if isinstance(value, str) else value

    @property
    def own(self) -> bool:
        """Whether it is a network of our own."""
        return self.name in NETWORKS

    def idle(self, name: str) -> Iterator[tuple[str, str]]:
        """Yield what is set here and would do nothing in an encoder of this name."""
        if name not in NETWORKS:
            if self.words != WordsSpec():
                yield "words", f"{name} has words of its own → leave it out, or name {' or '.join(NETWORKS)}"
            return
        for key in ("layers", "pick", "pooling"):
            if getattr(self, key) != type(self).model_fields[key].default:
                yield key, f"{name} has no such setting → leave it out"


class SanSpec(Section):
    """The stochastic answer network."""

    steps: Annotated[int, Field(ge=1)] = 5  # looks at the first text
    step_dropout: Fraction = 0.1  # of whole answers, while training
    authors_order: bool = False  # answer from the state before its update, as the released code does


class HeadSpec(Section):
    """What is different about one task's head."""

    dropout: Fraction | None = None
    kind: Literal["linear", "san"] | None = None


class HeadsSpec(Section):
    """The small networks on top of the encoder, one per task."""

    dropout: Fraction = 0.1
    regression: Literal["sigmoid", "unit", "raw"] = "sigmoid"
    pairs: Literal["linear", "san"] = "linear"  # the head of tasks that sort pairs into classes
    san: SanSpec = SanSpec()
    tasks: dict[str, HeadSpec] = Field(default_factory=dict)

    def san_of(self, task: Task) -> SanSpec | None:
        """Return the settings of a task's stochastic answer network; None where its head is linear."""
        own = self.tasks.get(task.name)
        fits = task.pair and task.kind == "classification"
        if own and own.kind == "san" and not fits:
            raise UserError(f"heads.tasks.{task.name}.kind: san sorts pairs of texts into classes → write linear")
        kind = own.kind if own and own.kind else self.pairs
        return self.san if kind == "san" and fits else None

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
        # A section that is laid over another knows only its own part; the recipe looks at the whole.
        given = self.model_fields_set
        faults = [
            fault for fault in self.faults() if {"micro_batch": "batch", "patience": "evaluate"}[fault[0]] in given
        ]
        if faults:
            raise faulty(*faults)
        return self

    def faults(self) -> Iterator[tuple[str, str]]:
        """Yield settings that do not go together."""
        if self.micro_batch and self.micro_batch > self.batch:
            yield "micro_batch", f"{self.micro_batch} rows are more than the batch has → at most {self.batch}"
        if self.patience and self.evaluate.unit == "never":
            yield "patience", 'it counts evaluations, and evaluate is "never" → set evaluate: 1 epoch'


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
    fast: Literal["auto", "off"] = "auto"  # recorded steps where they are possible, or the plain loop
    together: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"  # places for models trained at once on a GPU


class Anneal(Section):
    """Teacher annealing: λ, the weight of the gold label, over the run; the teacher has 1 − λ."""

    start: Share = 0.0
    end: Share = 1.0
    shape: Literal["linear", "cosine", "quadratic"] = "linear"

    @classmethod
    def short(cls, value: Any) -> Any:
        """Take `linear` or another shape, or one λ for the whole run."""
        if isinstance(value, str):
            return {"shape": value}
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return {"start": value, "end": value}
        if not isinstance(value, dict):
            raise ValueError(f"{shown(value)} is not allowed → write linear, one λ such as 0.5, or none")
        return value

    def at(self, progress: float) -> float:
        """Return λ after this share of the run."""
        bend = {"linear": progress, "cosine": (1 - math.cos(math.pi * progress)) / 2, "quadratic": progress**2}
        return self.start + (self.end - self.start) * bend[self.shape]


class TaskDistil(Section):
    """What one task's distillation does differently."""

    loss: Literal["cross_entropy", "logits"] | None = None
    temperature: Positive | None = None
    hard: Weight | None = None
    soft: Weight | None = None
    anneal: Anneal | None = None


class Distil(Section):
    """How a student learns from gold labels and teachers: hard·λ and soft·(1 − λ), or hard and soft without λ."""

    loss: Literal["cross_entropy", "logits"] = "cross_entropy"  # of the soft part
    temperature: Positive = 1.0
    hard: Weight = 1.0
    soft: Weight = 1.0
    anneal: Anneal | None = Anneal()  # teacher annealing needs no weights to be found
    tasks: dict[str, TaskDistil] = Field(default_factory=dict)

    @classmethod
    def short(cls, value: Any) -> Any:
        """Take weights for what they are: whoever gives them does not want them multiplied by λ unasked."""
        weighed = isinstance(value, dict) and "anneal" not in value and ("hard" in value or "soft" in value)
        return {**value, "anneal": None} if weighed else value

    @field_validator("anneal", mode="before")
    @classmethod
    def _none(cls, value: Any) -> Any:
        return None if value == "none" else value

    @model_validator(mode="after")
    def _whole(self) -> Distil:
        faults = []
        for place, mine in (("", self), *((f"tasks.{name}.", self.of(name)) for name in self.tasks)):
            ends = [(1.0, 1.0)]
            if mine.anneal is not None:
                ends = [(mix, 1 - mix) for mix in (mine.anneal.start, mine.anneal.end)]
            if not mine.hard and not mine.soft:
                faults.append((f"{place}soft", "both weights are 0, so nothing is learnt → give hard or soft a weight"))
            elif any(not mine.hard * hard and not mine.soft * soft for hard, soft in ends):
                what = "with these weights nothing is learnt at one end of the run"
                steady = "anneal: 0.5" if place else "anneal: none"
                faults.append((f"{place}soft", f"{what} → give hard or soft a weight there, or write {steady}"))
        if faults:
            raise faulty(*faults)
        return self

    def of(self, task: str) -> Distil:
        """Return the settings of one task."""
        own = self.tasks.get(task)
        given = {key: value for key, value in own if value is not None} if own else {}
        return self.model_copy(update={**given, "tasks": {}})


class Best(Section):
    """Only the best teachers take part."""

    count: Annotated[int, Field(ge=1)]
    by: Names = ()  # the tasks whose dev scores count; all that a teacher answers, where none is named


class TargetsSpec(Section):
    """How the teachers' logits are kept, and how several teachers become one target."""

    combine: Literal["mean_probabilities", "geometric_mean", "mean_logits"] = "mean_probabilities"
    weights: Literal["equal", "dev"] | dict[str, Weight] = "equal"
    best: Best | None = None
    dtype: Literal["float16", "float32"] = "float16"
    weak: Literal["stop", "leave_out", "keep"] = "stop"  # teachers that are no better than the majority guess

    @field_validator("weights", mode="before")
    @classmethod
    def _weights(cls, value: Any) -> Any:
        if value not in ("equal", "dev") and not (isinstance(value, dict) and value):
            fix = "write equal, dev, or a weight for each teacher: {teacher: 2, teacher2: 1}"
            raise ValueError(f"{shown(value)} is not allowed → {fix}")
        weights = value if isinstance(value, dict) else {}
        wrong = [
            (str(name), f"{shown(each)} is no weight → write a number, 0 or more")
            for name, each in weights.items()
            if isinstance(each, bool) or not isinstance(each, (int, float)) or not 0 <= each < math.inf
        ]
        if wrong:
            raise faulty(*wrong)
        return value


class Partial(Section):
    """A part of the recipe whose sections hold only what differs from the top of the recipe."""

    encoder: EncoderSpec | None = None
    heads: HeadsSpec | None = None
    training: Training | None = None
    finetune: Training | None = None  # afterwards, on each task alone: what differs from the training before

    @field_validator("finetune", mode="before")
    @classmethod
    def _finetune(cls, value: Any) -> Any:
        return {} if value is True else None if value is False else value

    @field_serializer("encoder", "heads", "training", "finetune")
    def _given(self, value: Section | None, info: FieldSerializationInfo) -> Any:
        # Were defaults written out, a copy would no longer follow the top of the recipe.
        return None if value is None else value.model_dump(mode=info.mode, exclude_unset=True)


class TeacherSpec(Partial):
    """A teacher: models trained here, a checkpoint that is there already, or a file of predictions."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")] | None = None
    tasks: Names = ()  # all, where none is named
    teaches: Names | None = None  # those of its tasks that it teaches; all, where the recipe does not say
    models: Literal["each", "together"] = "each"
    seeds: tuple[Seed, ...] | Literal["student"] = ()  # of its own, or that of the student, with which it changes
    folds: Annotated[int, Field(ge=2, le=100)] | None = None  # each row is labelled by a model that has not seen it
    grid: dict[str, Any] = Field(default_factory=dict)  # a teacher for each combination; taken apart before
    checkpoint: str | None = None
    predictions: Names = ()
    labels: dict[str, str] = Field(default_factory=dict)  # the teacher's names to the task's
    max_length: Annotated[int, Field(ge=8)] | None = None
    values: Literal["auto", "probabilities", "logits"] = "auto"

    @classmethod
    def short(cls, value: Any) -> Any:
        """Take `tasks: each` and `tasks: together` for all tasks."""
        if isinstance(value, dict) and value.get("tasks") in ("each", "together"):
            if "models" in value:
                raise ValueError(f"tasks: {value['tasks']} says it already → leave models out, or list the tasks")
            return {**{key: given for key, given in value.items() if key != "tasks"}, "models": value["tasks"]}
        return value

    @field_validator("seeds", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        return value if value == "student" else several_seeds(value)

    @field_validator("labels", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        # In YAML a label or a class number may look like a number or a truth value.
        plain = {True: "true", False: "false"}
        if isinstance(value, dict):
            return {_text(key, plain): _text(name, plain) for key, name in value.items()}
        return value

    def teaches_task(self, name: str) -> bool:
        """Tell whether it teaches a task."""
        return name in self.teaches if self.teaches is not None else not self.tasks or name in self.tasks

    @property
    def trained(self) -> bool:
        """Whether it is trained by the run."""
        return self.checkpoint is None and not self.predictions

    @model_validator(mode="after")
    def _whole(self) -> TeacherSpec:
        faults = []
        if self.checkpoint is not None and self.predictions:
            faults.append(("predictions", "a teacher is a checkpoint or a file of predictions → make it two teachers"))
        where = "a checkpoint" if self.checkpoint is not None else "a file of predictions"
        taught = ("models", "encoder", "heads", "training", "finetune", "teaches", "seeds", "folds")
        alien = taught if not self.trained else ("labels", "max_length", "values")
        if self.checkpoint is not None:
            alien = (*alien, "values")
        elif self.predictions:
            alien = (*alien, "max_length")
        for key in alien:
            if getattr(self, key) != type(self).model_fields[key].get_default(call_default_factory=True):
                what = f"{where} is not trained here" if key in taught else "it does not go with this kind of teacher"
                faults.append((key, f"{what} → leave it out"))
        if self.finetune is not None and self.models == "each":
            faults.append(("finetune", "a model of one task has been trained on it alone → write tasks: together"))
        for at, name in enumerate(self.teaches or ()):
            if self.tasks and name not in self.tasks:
                faults.append((f"teaches.{at}", f'it does not learn "{name}" itself → name one of its tasks'))
        if faults:
            raise faulty(*faults)
        return self


def _text(value: Any, plain: Mapping[Any, str]) -> Any:
    return plain[value] if isinstance(value, bool) else str(value) if isinstance(value, (int, float)) else value


class TaskAugment(Section):
    """What one task's augmentation does differently."""

    times: Annotated[int, Field(ge=1)] | None = None


class AugmentSpec(Section):
    """What is made of training rows for the student: words masked or swapped for others of their part of speech."""

    mask: Share = 0.1  # of words
    pos: Share = 0.1  # of words; never a masked one
    ngram: Share = 0.25  # of texts: only one n-gram is kept
    times: Annotated[int, Field(ge=1)] = 20  # for each row; what comes out twice is dropped
    tagger: str = "auto"  # spacy, textblob, package.module:function, or none
    seed: Seed | Literal["student"] = 0  # of its own: one set serves all seeds of the student
    baseline: bool = False  # the baseline is trained on it too
    tasks: dict[str, TaskAugment] = Field(default_factory=dict)

    @classmethod
    def short(cls, value: Any) -> Any:
        """Take `true` for the defaults."""
        if value is not True and not isinstance(value, dict):
            raise ValueError(f"{shown(value)} is not allowed → write true, or what differs: {{times: 10}}")
        return {} if value is True else value

    @model_validator(mode="after")
    def _whole(self) -> AugmentSpec:
        if self.mask + self.pos > 1:
            what = f"{self.mask:g} of the words are masked, so no {self.pos:g} are left to be swapped"
            raise faulty(("pos", f"{what} → at most {1 - self.mask:g}"))
        if not (self.mask or self.swaps or self.ngram):
            raise faulty(("", "nothing is changed about any row → give mask, pos or ngram a share, or leave it out"))
        return self

    @property
    def swaps(self) -> bool:
        """Whether words are swapped, for which a tagger is needed."""
        return self.pos > 0 and self.tagger != "none"

    def times_of(self, task: str) -> int:
        """Return how often each row of a task is gone through."""
        own = self.tasks.get(task)
        return self.times if own is None or own.times is None else own.times


class StudentSpec(Partial):
    """The model that is wanted; what is not given here is as at the top of the recipe."""

    tasks: Names = ()  # all, where none is named
    models: Literal["together", "each"] | None = None
    distil: Distil = Distil()
    unlabelled: Share | None = None  # of each task's rows in a batch; half, where a task names unlabelled files
    augment: AugmentSpec | None = None  # it is trained on rows made of the training rows too
    baseline: bool = True  # the same student without teachers is trained too

    @field_validator("augment", mode="before")
    @classmethod
    def _none(cls, value: Any) -> Any:
        return None if value is False else value

    @field_validator("unlabelled")
    @classmethod
    def _some_gold(cls, value: float | None) -> float | None:
        if value == 1:
            raise ValueError("there would be no labelled row → write a share below 1")
        return value


class Settings(Section):
    """Everything that decides a model besides its tasks and data."""

    encoder: EncoderSpec
    heads: HeadsSpec
    training: Training


def over(base: SomeSection, given: SomeSection | None) -> SomeSection:
    """Return a section with another's given values laid over it."""
    if given is None:
        return base
    changes = {key: getattr(given, key) for key in given.model_fields_set}
    if "epochs" in changes and "steps" not in changes:
        changes["steps"] = None  # they would go before the epochs that are asked for
    return base.model_copy(update=changes)
