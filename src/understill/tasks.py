"""Tasks: what a model is asked, and GLUE as a table of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

Kind = Literal["classification", "regression", "ranking"]
KINDS: tuple[str, ...] = get_args(Kind)

#: The metrics a task may name, by kind; the first of a kind is its default.
METRICS: dict[str, tuple[str, ...]] = {
    "classification": ("accuracy", "f1", "macro_f1", "matthews"),
    "regression": ("pearson_spearman", "pearson", "spearman", "mse"),
    "ranking": ("precision_at_1", "mrr", "accuracy"),
}


@dataclass(frozen=True)
class Task:
    """One question asked of a text or a pair of texts; everything here travels with the model."""

    name: str
    kind: Kind
    text: tuple[str, ...]
    label: str | None
    labels: tuple[str, ...] = ()  # class names in the order of the logits, or wrong and right; empty until inferred
    range: tuple[float, float] | None = None  # the scores a regression task can take
    metrics: tuple[str, ...] = ()  # the first is primary
    symmetric: bool = False  # the order of the two texts does not matter
    head: str = ""  # the task whose head answers this one; itself unless it is a diagnostic set
    group: str | None = None  # of a ranking task: the column that names a row's query; None: the first text does

    def __post_init__(self) -> None:
        if not self.metrics:
            object.__setattr__(self, "metrics", METRICS[self.kind][:1])
        if not self.head:
            object.__setattr__(self, "head", self.name)

    @property
    def outputs(self) -> int:
        """How many numbers the head gives for one text."""
        return len(self.labels) if self.kind == "classification" else 1

    @property
    def pair(self) -> bool:
        """Whether the task reads two texts."""
        return len(self.text) == 2

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that every row has, with a label or without."""
        return (*self.text, *((self.group,) if self.group else ()))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "name": self.name,
            "kind": self.kind,
            "text": list(self.text),
            "label": self.label,
            "labels": list(self.labels),
            "range": list(self.range) if self.range else None,
            "metrics": list(self.metrics),
            "symmetric": self.symmetric,
            "head": self.head,
            # Other kinds keep the form, and so the fingerprints, they had before there was ranking.
            **({"group": self.group} if self.kind == "ranking" else {}),
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Task:
        """Read back what `to_dict` wrote."""
        return cls(
            name=values["name"],
            kind=values["kind"],
            text=tuple(values["text"]),
            label=values["label"],
            labels=tuple(values["labels"]),
            range=tuple(values["range"]) if values["range"] else None,
            metrics=tuple(values["metrics"]),
            symmetric=values["symmetric"],
            head=values["head"],
            group=values.get("group"),
        )


#: The label of GLUE's pairs by which the second text is a right candidate for the first.
RIGHT = ("entailment", "paraphrase")


def as_ranking(task: Task) -> Task | None:
    """Return a task of GLUE as one of ranking second texts by the first; None unless its pairs have two labels."""
    right = [label for label in task.labels if label in RIGHT]
    wrong = [label for label in task.labels if label not in RIGHT]
    if not task.pair or not len(right) == len(wrong) == 1:
        return None
    return replace(task, kind="ranking", labels=(*wrong, *right), metrics=METRICS["ranking"], symmetric=False)


@dataclass(frozen=True)
class GlueTask:
    """A GLUE task with the folder it lives in and the official number of rows of each split."""

    task: Task
    folder: str
    counts: dict[str, int] = field(default_factory=dict)


def _glue(
    name: str,
    folder: str,
    counts: dict[str, int],
    *,
    labels: tuple[str, ...] = (),
    metrics: tuple[str, ...],
    pair: bool = True,
    symmetric: bool = False,
    head: str = "",
) -> GlueTask:
    task = Task(
        name=name,
        kind="classification" if labels else "regression",
        text=("sentence1", "sentence2") if pair else ("sentence",),
        label="label",
        labels=labels,
        range=None if labels else (0.0, 5.0),
        metrics=metrics,
        symmetric=symmetric,
        head=head,
    )
    return GlueTask(task, folder, counts)


_NLI2 = ("entailment", "not_entailment")
_NLI3 = ("entailment", "neutral", "contradiction")

#: GLUE. The order of the labels is that of the widely used id encoding; joins go by name all the same.
#: MRPC and QQP report accuracy first, as the BAM paper's table does.
GLUE: dict[str, GlueTask] = {
    entry.task.name: entry
    for entry in (
        _glue("cola", "CoLA", {"train": 8551, "dev": 1043, "test": 1063},
              labels=("unacceptable", "acceptable"), metrics=("matthews", "accuracy"), pair=False),
        _glue("sst2", "SST-2", {"train": 67349, "dev": 872, "test": 1821}, labels=("negative", "positive"),
              metrics=("accuracy",), pair=False),
        _glue("mrpc", "MRPC", {"train": 3668, "dev": 408, "test": 1725},
              labels=("not_paraphrase", "paraphrase"), metrics=("accuracy", "f1"), symmetric=True),
        _glue("stsb", "STS-B", {"train": 5749, "dev": 1500, "test": 1379},
              metrics=("pearson_spearman", "pearson", "spearman"), symmetric=True),
        _glue("qqp", "QQP", {"train": 363846, "dev": 40430, "test": 390965},
              labels=("not_paraphrase", "paraphrase"), metrics=("accuracy", "f1"), symmetric=True),
        _glue("mnli", "MNLI",
              {"train": 392702, "dev": 9815, "dev_mismatched": 9832, "test": 9796, "test_mismatched": 9847},
              labels=_NLI3, metrics=("accuracy",)),
        _glue("qnli", "QNLI", {"train": 104743, "dev": 5463, "test": 5463}, labels=_NLI2,
              metrics=("accuracy",)),
        _glue("rte", "RTE", {"train": 2490, "dev": 277, "test": 3000}, labels=_NLI2,
              metrics=("accuracy",)),
        _glue("wnli", "WNLI", {"train": 635, "dev": 71, "test": 146},
              labels=("not_entailment", "entailment"), metrics=("accuracy",)),
        _glue("ax", "AX", {"dev": 1104}, labels=_NLI3, metrics=("matthews", "accuracy"), head="mnli"),
    )
}  # fmt: skip
