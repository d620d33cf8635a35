"""Datasets: where the data of tasks comes from, and what a task is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from understill.errors import listed, nearest
from understill.recipe.section import Count, Fault, Names, Positive, Section, as_list, as_text, one_of, repeated, shown
from understill.tasks import CLASSIFICATION, KINDS, Kind
from understill.tasks.metric import may_score, metric_names


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

    paths: ClassVar[tuple[str, ...]] = ("glue",)

    glue: str | None = None
    dev: Annotated[float, Field(gt=0, lt=1)] | None = None  # of GLUE's train, to choose by; its dev sets only report
    demo: DemoData | None = None
    on_bad_row: Literal["stop", "skip"] = "stop"


class HubSpec(Section):
    """A dataset of the Hugging Face hub (or a local folder in its layout)."""

    paths: ClassVar[tuple[str, ...]] = ("dataset",)

    dataset: str
    config: str | None = None
    revision: str | None = None

    @classmethod
    def short(cls, value: Any) -> Any:
        """Take the name alone."""
        return {"dataset": value} if isinstance(value, str) else value


class TaskSpec(Section):
    """One task: a named one with changes, or the user's own files and columns."""

    written: ClassVar[tuple[str, ...]] = ("silver",)

    train: Names = ()
    dev: tuple[str, ...] | float | None = None  # files, or the share of train to hold out
    test: Names = ()
    unlabelled: Names = ()  # files of texts that only teachers label
    hub: HubSpec | None = None
    text: Annotated[Names, Field(max_length=2)] = ()
    label: str | None = None
    group: str | None = None  # of a ranking task: the column that names a row's query; else the first text does
    cluster: str | None = None  # the column of your files whose equal values are drawn together in tests of scores
    kind: str | None = None
    labels: Names = ()
    question: str | None = None  # what a language model is asked about a text
    descriptions: dict[str, str] = Field(default_factory=dict)  # of labels, or of some scores, for a language model
    silver: Names = ()  # splits whose labels are a language model's answers; a run writes it
    encoding: str | None = None  # of the files, where they are not UTF-8
    separator: str | None = None  # of .csv and .tsv files; detected where it is not given
    decimal: Literal[",", "."] | None = None  # of scores, likewise
    range: tuple[float, float] | None = None
    metrics: Names = ()
    symmetric: bool | None = None  # as the task is known; a task of your own is not
    rows: Count | None = None  # use only so many training rows
    candidates: Annotated[int, Field(ge=2)] | None = None  # of a ranking task: at most so many of a query in a step
    weight: Positive = 1.0  # of this task's loss
    max_length: Annotated[int, Field(ge=8)] | None = None

    @classmethod
    def short(cls, value: Any) -> Any:
        """Take labels with what each means."""
        if isinstance(value, dict) and isinstance(meant := value.get("labels"), dict):
            return {**value, "labels": list(meant), "descriptions": {**meant, **value.get("descriptions", {})}}
        return value

    @field_validator("descriptions", mode="before")
    @classmethod
    def _described(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            raise ValueError(f"{shown(value)} is not allowed → write what each label means: {{yes: it does}}")
        return {as_text(label).strip(): as_text(meant or "") for label, meant in value.items()}

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
        return [as_text(label).strip() for label in labels]

    @field_validator("encoding")
    @classmethod
    def _encoding(cls, value: str | None) -> str | None:
        try:
            "".encode(value or "utf-8")
        except LookupError:
            fix = nearest(value or "", ("utf-8", "utf-16-le", "cp949", "cp1252", "latin-1", "shift_jis", "gb18030"))
            raise ValueError(f'there is no encoding "{value}" → {fix}') from None
        return value

    @field_validator("separator")
    @classmethod
    def _separator(cls, value: str | None) -> str | None:
        if value == "tab":
            return "\t"
        if value is not None and (len(value) != 1 or value.isalnum() or value in ' "\r\n'):
            raise ValueError(f'{shown(value)} cannot separate cells → write a sign such as ";" or "|", or tab')
        return value

    @field_validator("kind")
    @classmethod
    def _kind(cls, value: str | None) -> str | None:
        return None if value is None else str(one_of(value, KINDS))

    @property
    def task_kind(self) -> Kind:
        """The kind of a task of the user's own; of a known one, only where it is given."""
        return KINDS[self.kind or CLASSIFICATION.name]

    @property
    def own(self) -> bool:
        """Whether the user brings the data, rather than naming a known task."""
        return bool(self.train or self.hub or self.goldless)

    @property
    def goldless(self) -> bool:
        """Whether there are texts and names of labels only, so that a language model has to label them."""
        return bool(self.unlabelled and self.text and not self.train and not self.hub)

    def path_keys(self) -> tuple[str, ...]:
        """Return the keys whose values are paths; of a hub dataset, splits have names."""
        return ("unlabelled",) if self.hub else ("train", "dev", "test", "unlabelled")

    def faults(self) -> Iterator[Fault]:
        """Yield settings that exclude each other, and what a task of the user's own lacks."""
        yield from self._contradictions()
        if self.own:
            yield from self._missing()

    def _missing(self) -> Iterator[Fault]:
        """Yield what a task of the user's own lacks."""
        missing = [key for key in ("train", "text", "label") if not getattr(self, key)]
        if self.goldless:
            yield from self._unlabelled_faults()
        elif missing:
            fix = "name a split of the dataset" if missing[0] == "train" else "name the columns of your files"
            yield "", f"a task of your own needs {listed(missing, 'and')} → {fix}"
        if self.symmetric and self.text and len(self.text) != 2:
            yield "symmetric", "only a task with two text columns can be symmetric → leave it out"
        kind = self.task_kind
        for metric in self.metrics:
            if not may_score(metric, kind):
                yield "metrics", f'"{metric}" is no metric for {kind} → {nearest(metric, metric_names(kind))}'

    def _unlabelled_faults(self) -> Iterator[Fault]:
        """Yield what a language model has to be told where no row has a label."""
        key = "labels" if self.task_kind.named else "range"
        if not getattr(self, key) and not self.task_kind.grouped:
            fix = "[0, 5]" if key == "range" else "{billing: money was charged, login: the password fails}"
            yield "", f"no row has a label, and it does not say which there are → write {key}: {fix}, or name train"
        if self.task_kind.grouped:
            yield "", "a ranking needs queries whose right candidates are known → name train"
        if (isinstance(self.dev, tuple) or self.test) and not self.label:
            yield "", "dev and test have labels → name their column: label: label"

    def _contradictions(self) -> Iterator[Fault]:
        """Yield settings that exclude each other."""
        if self.own or self.kind:
            yield from self.task_kind.contradictions(self)
        for key in ("encoding", "separator", "cluster"):
            if getattr(self, key) and not (self.unlabelled or (self.train and not self.hub)):
                yield key, "only files of your own have this → leave it out, or name your files"
        if self.range and self.range[0] >= self.range[1]:
            yield "range", f"nothing lies between {self.range[0]:g} and {self.range[1]:g} → write [lowest, highest]"
        if len(self.labels) == 1:
            yield "labels", f'"{self.labels[0]}" is the only label; there is nothing to learn → name two or more'
        for label in self.descriptions if self.labels else ():
            if label not in self.labels:
                yield "descriptions", f'"{label}" is no label of this task → {nearest(label, self.labels)}'
        for label in repeated(self.labels):
            yield "labels", f'"{label}" is named twice → name each label once'
        columns = [*self.text, *(column for column in (self.label, self.group) if column)]
        for column in repeated(columns):
            key = "group" if column == self.group else "label" if column == self.label else "text"
            if key == "group" and column in self.text[:1]:
                yield key, "rows with the same first text belong together anyway → leave it out"
            else:
                yield key, f'the column "{column}" is used twice → name a column of its own for each'
