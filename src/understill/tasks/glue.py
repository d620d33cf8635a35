"""GLUE as a table of tasks, with the folder and the official number of rows of each."""

from __future__ import annotations

from dataclasses import dataclass, field

from understill.tasks.classification import CLASSIFICATION
from understill.tasks.regression import REGRESSION
from understill.tasks.task import Task


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
        kind=CLASSIFICATION if labels else REGRESSION,
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
