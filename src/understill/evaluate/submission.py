"""GLUE's submission: its files, with predictions in the benchmark's own label names, checked."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from understill.inference.predictor import Predictions
from understill.tasks import GLUE

HEADER = "index\tprediction"


class Sheet(NamedTuple):
    """One file of a submission: the task and split that it answers."""

    task: str
    split: str

    @property
    def rows(self) -> int:
        """How many answers the benchmark wants."""
        return GLUE[self.task].counts[self.split]

    @property
    def words(self) -> tuple[str, ...]:
        """What an answer can be; nothing where it is a score."""
        labels = GLUE[self.task].task.labels
        return ("0", "1") if self.task in NUMBERED else labels


#: Tasks whose labels the benchmark wants as 0 and 1, in the order of the table.
NUMBERED = ("cola", "sst2", "mrpc", "qqp", "wnli")
#: All files of a submission. The benchmark refuses one that lacks any of them.
SHEETS = {
    "CoLA.tsv": Sheet("cola", "test"),
    "SST-2.tsv": Sheet("sst2", "test"),
    "MRPC.tsv": Sheet("mrpc", "test"),
    "STS-B.tsv": Sheet("stsb", "test"),
    "QQP.tsv": Sheet("qqp", "test"),
    "MNLI-m.tsv": Sheet("mnli", "test"),
    "MNLI-mm.tsv": Sheet("mnli", "test_mismatched"),
    "QNLI.tsv": Sheet("qnli", "test"),
    "RTE.tsv": Sheet("rte", "test"),
    "WNLI.tsv": Sheet("wnli", "test"),
    "AX.tsv": Sheet("ax", "dev"),
}


def in_words(sheet: Sheet, answers: Sequence[str] | Sequence[float]) -> list[str]:
    """Write label names, or scores, as the benchmark wants them."""
    limits = GLUE[sheet.task].task.range
    if limits:
        # Adding nothing takes the sign off a zero.
        return [f"{score + 0.0:.3f}" for score in np.clip(np.asarray(answers, np.float64), *limits)]
    words = dict(zip(GLUE[sheet.task].task.labels, sheet.words, strict=True))
    return [words[str(label)] for label in answers]


def as_answers(predictions: Predictions, groups: NDArray[np.int64] | None) -> list[str] | list[float]:
    """Return label names or scores; of a ranking, the label of a right candidate for the best of each query."""
    if groups is None:
        return predictions.answers
    best_first = np.lexsort((-predictions.values, groups))  # of equal ones, the earlier row
    best = best_first[np.unique(groups[best_first], return_index=True)[1]]
    wrong, right = predictions.task.labels
    answers = [wrong] * len(groups)
    for row in best:
        answers[row] = right
    return answers


def as_text(answers: Sequence[str]) -> str:
    """Lay answers out as the content of a file."""
    return "".join(f"{line}\n" for line in (HEADER, *(f"{row}\t{answer}" for row, answer in enumerate(answers))))


def packed(texts: Mapping[str, str]) -> bytes:
    """Return a zip of files; the same files give the same bytes."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as out:
        for name, text in texts.items():
            entry = zipfile.ZipInfo(name)  # dated 1980
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            out.writestr(entry, text)
    return content.getvalue()
