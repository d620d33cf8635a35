"""The training: batches, rates, lengths, and how, where and on what it runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from understill.recipe.mistakes import shown
from understill.recipe.section import Chosen, Every, Fraction, Names, Positive, Section, faulty

#: What stands for `auto` where nothing is chosen by trial.
PLAIN_RATE, PLAIN_PASSES = 1e-4, 3.0


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

    epochs: Chosen = "auto"
    steps: Annotated[int, Field(ge=1)] | None = None  # overrides epochs
    batch: Annotated[int, Field(ge=1)] = 32
    micro_batch: Annotated[int, Field(ge=1)] | None = None  # rows per forward pass; the rest is accumulated
    lr: Chosen = "auto"  # auto: chosen for the rows at hand, with all that is not given here
    head_lr: Positive | None = None  # of the heads, where theirs is another
    start: Literal["auto", "fresh", "zero", "probe", "contrastive"] = "auto"  # what heads begin with
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
    evaluate: Every = Every(count=1, unit="auto")
    checkpoint: Every = Every(count=5, unit="minutes")
    patience: Annotated[int, Field(ge=1)] | None = None  # evaluations without a better score before stopping
    keep: Literal["auto", "best", "last"] = "auto"  # auto: best, or last where dev has too few rows to tell

    def plain(self) -> Training:
        """Return the same with what is left open as it is where nothing is chosen for the rows at hand."""
        every = Every(count=1, unit="epochs") if self.evaluate.unit == "auto" else self.evaluate
        return self.model_copy(
            update={
                "lr": self.rate,
                "epochs": self.passes,
                "start": "fresh" if self.start == "auto" else self.start,
                "evaluate": every,
                "keep": "last" if self.keep == "last" else "best",
            }
        )

    @property
    def rate(self) -> float:
        """The learning rate; that of small encoders where none was given or chosen."""
        return PLAIN_RATE if self.lr == "auto" else self.lr

    @property
    def passes(self) -> float:
        """How often the rows are seen."""
        return PLAIN_PASSES if self.epochs == "auto" else self.epochs

    @property
    def keeps_best(self) -> bool:
        """Whether the weights with the best dev score are kept, rather than the last."""
        return self.keep != "last"

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
