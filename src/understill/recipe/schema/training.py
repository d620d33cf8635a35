"""Training: hyperparameters, sampling, evaluation, output and machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from understill.names import expanded
from understill.recipe.section import Chosen, Count, Every, Fault, Fraction, Names, Positive, Section, Text, shown

#: What `auto` means where nothing is chosen by trial.
PLAIN_RATE, PLAIN_PASSES = 1e-4, 3.0


class Sampling(Section):
    """How often each task is sampled: P(task) ∝ rows^power; with `copies`, by whole copies and loss weights instead."""

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


class Contrastive(Section):
    """The stage of `start: contrastive`: its steps, and how far the encoder goes to where they end."""

    steps: Count | None = None  # none: three quarters of a step a row
    share: Annotated[float, Field(ge=0, le=1)] = 0.5


class Training(Section):
    """The hyperparameters of training."""

    epochs: Chosen = "auto"
    steps: Count | None = None  # overrides epochs
    batch: Count = 32
    micro_batch: Count | None = None  # rows per forward pass; the rest is accumulated
    lr: Chosen = "auto"  # auto: tuned on the training rows, with all that is not given here
    head_lr: Positive | None = None  # of the heads, where theirs is another
    start: Literal["auto", "fresh", "zero", "probe", "fitted", "contrastive"] = "auto"  # what heads begin with
    contrastive: Contrastive | None = None  # where it is open, as above; with lr: auto by trial on the training rows
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
    window: Count = 16  # batches whose rows are sorted by length together
    evaluate: Every = Every(count=1, unit="auto")
    checkpoint: Every = Every(count=5, unit="minutes")
    patience: Count | None = None  # evaluations without a better score before stopping
    keep: Literal["auto", "best", "last"] = "auto"  # auto: best, or last where dev has too few rows to tell

    def plain(self) -> Training:
        """Return these hyperparameters with every `auto` set to its plain default, nothing chosen by trial."""
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
        """The number of epochs."""
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

    def faults(self) -> Iterator[Fault]:
        """Yield settings that exclude each other and are both given here; the recipe checks what it overrides."""
        needed = {"micro_batch": "batch", "patience": "evaluate"}
        return (fault for fault in self.contradictions() if needed[fault[0]] in self.model_fields_set)

    def contradictions(self) -> Iterator[Fault]:
        """Yield settings that exclude each other."""
        if self.micro_batch and self.micro_batch > self.batch:
            yield "micro_batch", f"{self.micro_batch} rows are more than the batch has → at most {self.batch}"
        if self.patience and self.evaluate.unit == "never":
            yield "patience", 'it counts evaluations, and evaluate is "never" → set evaluate: 1 epoch'


class Evaluation(Section):
    """How finished models are scored."""

    batch: Count = 64
    keep: Annotated[float, Field(gt=0, le=1)] = 0.99  # the share of its teachers' score that a student should keep


class Output(Section):
    """Where results go, and which experiment trackers follow the run."""

    folder: Text = "runs"
    trackers: Names = ()  # names accelerate knows, such as tensorboard

    @property
    def path(self) -> Path:
        """The folder, with ~ spelled out."""
        return expanded(self.folder)


class Machine(Section):
    """What to run on; part of a fingerprint only through the precision it leads to."""

    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    threads: Count | None = None
    fast: Literal["auto", "off"] = "auto"  # recorded steps where they are possible, or the plain loop
    together: Count | Literal["auto"] = "auto"  # places for models trained at once on a GPU
