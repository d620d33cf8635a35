"""A teacher that answers by rule: a label is as likely as its words are frequent in a text."""

from typing import Any

import numpy as np

from understill.errors import UserError
from understill.plugins import TEACHERS
from understill.teachers import PluginTeacher, TeacherSpec


@TEACHERS.register("keywords")
class Keywords(PluginTeacher):
    """Counts the words of each label."""

    class Spec(TeacherSpec):
        """What may stand beside `type: keywords` in a recipe."""

        words: dict[str, tuple[str, ...]]  # by label
        weight: float = 2.0  # of a word, as a logit

        def describe(self) -> str:
            """Say what it is, for reports."""
            return f"words counted for {', '.join(self.words)}"

    def __init__(self, spec: Any, opening: Any) -> None:
        super().__init__(spec, opening)
        for label in spec.words:
            if label not in self.task.labels:
                raise UserError(f'teacher {self.name}: words of "{label}", which is no label → {self.task.labels}')

    def logits(self, data: Any, progress: Any = None) -> Any:
        """Return the counts of every row, [rows, labels]; NaN, for "no answer", where a text has none of the words."""
        answers = []
        for rows in data.batches():
            texts = [text.lower() for text in rows.column("text1").to_pylist()]
            words = [self.spec.words.get(label, ()) for label in data.task.labels]
            answers.append([[sum(text.count(word) for word in each) for each in words] for text in texts])
            if progress:
                progress(rows.num_rows)
        counts = np.concatenate(answers).astype(np.float32) * self.spec.weight
        counts[~counts.any(axis=1)] = np.nan
        return counts
