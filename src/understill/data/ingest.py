"""Ingest: read the rows of a task once, check them, and keep them in the cache."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from understill.artifact import Artifact
from understill.atomic import write_json
from understill.data.check import BadRows, Check, Rules
from understill.data.delimited import readable
from understill.data.files import BadFile, Row
from understill.data.source import Source
from understill.data.taskdata import FACTS, REJECTS, ROWS, Sample, TaskData, Writer, held_out
from understill.errors import Problem
from understill.tasks import KINDS, Task
from understill.tasks.cells import Fault

Progress = Callable[[str, int], None]
REPORT_EVERY = 8192


#: What is tried in turn where the usual share holds nothing out.
LARGER_SHARES = (0.2, 0.3, 0.5)
#: With fewer rows than this a dev set tells nothing, and a tenth of them costs a model one to two points.
FEW_ROWS = 100
#: The shares of so few rows that are tried, until one holds a row out.
SMALLER_SHARES = (0.02, 0.05)


@dataclass(frozen=True)
class SourcedTask:
    """One task as the recipe wants it: what it is and where its splits come from."""

    task: Task  # labels and range as given; empty where train shall tell
    splits: dict[str, Source]
    hold_out: float | None = None  # the share of train that becomes dev
    share_given: bool = True  # by the recipe; otherwise it may grow where it would hold nothing out
    rows: int | None = None  # use only so many training rows
    empty_text: bool = False
    goldless: bool = False  # train has texts alone, and so has what is held out of it
    formats: tuple[str, ...] = ()  # of the user's own train: of its files, or hub

    def needs_gold(self, split: str) -> bool:
        """Say whether every row of a split must have a label: not in tests, nor in diagnostic sets."""
        if self.goldless and split == "train":
            return False
        return split.startswith(("train", "dev")) and self.task.head == self.task.name


class EmptyDev(Exception):
    """A usual share of so few rows that none is held out."""


class _Unusable(Exception):
    """Rows of which something is wrong, so that nothing is kept."""


@dataclass
class Pass:
    """One reading of a source: the artefacts it makes, how it deals rows out, and what it has inferred."""

    plan: SourcedTask
    split: str
    artifacts: dict[str, Artifact]  # train, and dev where it is held out; else the one split
    rules: Rules
    skip: bool
    bad: BadRows
    progress: Progress | None = None
    rejected: int = 0
    inferred: dict[str, Any] = field(default_factory=dict)  # labels and range

    def run(self) -> bool:
        """Read, check and write; return whether the splits are now whole in the cache."""
        check, bad = Check(self.plan.task, self.rules), self.bad
        rows_before, files_before = bad.total, len(bad.files)
        with suppress(_Unusable), ExitStack() as stack:
            parts = {name: stack.enter_context(each.build()) for name, each in self.artifacts.items()}
            rows = self._write(check, parts)
            if len(bad.files) > files_before:
                raise _Unusable
            if bad.total > rows_before:
                self.inferred = check.reader.seen()  # enough to check the other splits against
                raise _Unusable
            try:
                self._conclude(check, rows)
            except Fault as fault:
                bad.files.append(Problem(f"tasks.{self.plan.task.name}", fault.what, fault.fix))
                raise _Unusable from None
            for name, part in parts.items():
                rejected = self.rejected if name == self.split else 0
                write_json(part / FACTS, {"split": name, "rows": rows[name], "rejected": rejected, **self.inferred})
            return True
        return False

    def _write(self, check: Check, work: dict[str, Path]) -> dict[str, int]:
        """Deal all rows out to the splits' files, and return how many each has got."""
        task = self.plan.task
        limit = self.plan.rows if self.split == "train" else None
        names = {name: folder / ("all.arrow" if limit else ROWS) for name, folder in work.items()}
        samples = {name: Sample(limit) for name in work} if limit else {}
        with ExitStack() as stack:
            writers = {name: Writer(path, task) for name, path in names.items()}
            for writer in writers.values():
                stack.callback(writer.close)
            rejects = work[self.split] / REJECTS
            self._deal(check, writers, samples, rejects)
        rows = {name: writer.rows for name, writer in writers.items()}
        for name, sample in samples.items():
            rows[name] = sample.choose(names[name], work[name] / ROWS, task, self.rules.by_text)
            names[name].unlink()
        return rows

    def _deal(self, check: Check, writers: dict[str, Writer], samples: dict[str, Sample], rejects: Path) -> None:
        share = self.plan.hold_out if "dev" in writers and self.split == "train" else None
        writer, sample, count = writers[self.split], samples.get(self.split), 0
        what = f"{self.plan.task.name}/{self.split}"
        for place, rows in self.plan.splits[self.split].parts():
            try:
                for row in rows:
                    count += 1
                    if self.progress and count % REPORT_EVERY == 0:
                        self.progress(what, count)
                    try:
                        if row.fault:
                            raise Fault(row.fault, row.fix)
                        name, unit, columns, gold = check(row.values)
                    except Fault as fault:
                        self._reject(place(row.number), row, fault, rejects)
                        continue
                    if share is not None:
                        side = "dev" if held_out(unit, share) else "train"
                        writer, sample = writers[side], samples.get(side)
                    if sample is None or sample.wants(unit):
                        writer.add(name, columns, gold)
            except BadFile as error:
                self.bad.files.append(error.problem)
        if self.progress:
            self.progress(what, count)

    def _reject(self, place: str, row: Row, fault: Fault, rejects: Path) -> None:
        """Note a bad row, in the rejects file or for the message."""
        if not self.skip:
            self.bad.add(place, fault)
            return
        self.rejected += 1
        values = [readable(value) if isinstance(value, str) else value for value in row.values]
        text = json.dumps({"place": place, "reason": fault.what, "values": values}, ensure_ascii=False, default=str)
        with rejects.open("ab") as file:
            file.write(text.encode("utf-8", "replace") + b"\n")

    def _conclude(self, check: Check, rows: dict[str, int]) -> None:
        """Work out labels and range from what was read, and refuse splits that hold nothing."""
        task, total = self.plan.task, sum(rows.values())
        if not total:
            raise Fault(f"no row of {self.split} can be used", "see why with data.on_bad_row: stop")
        self.inferred = {"labels": list(task.labels), "range": list(task.range) if task.range else None}
        if self.split != "train":
            return
        if not task.kind.settled(task):
            self.inferred |= check.reader.facts(check.gold)
        held = f"holding out {self.plan.hold_out:g} of {total:,} rows leaves" if self.plan.hold_out else ""
        if "dev" in rows and not rows["dev"]:
            if not self.plan.share_given and self.plan.hold_out != LARGER_SHARES[-1]:
                raise EmptyDev(f"{task.name}: {held} dev empty")
            larger = 0.5 if (self.plan.hold_out or 0) >= 0.3 else 0.3
            raise Fault(f"{held} dev empty", f"give dev a file, or a larger share such as {larger}")
        if not rows["train"]:
            raise Fault(f"{held} train empty", "give dev a file, or a smaller share")


def ingest(plan: SourcedTask, cache: Path, skip: bool, bad: BadRows, progress: Progress | None) -> dict[str, TaskData]:
    """Return all splits of a task, from the cache where they are there; what is wrong is added to the bad rows."""
    task, done = plan.task, {}
    for split in sorted(plan.splits, key=lambda name: (name != "train", name)):
        names = ["train", "dev"] if split == "train" and plan.hold_out else [split]
        facts_of = _facts(plan, task, split)
        artifacts = {name: Artifact("data", "", {**facts_of, "split": name}, cache) for name in names}
        facts = {name: each.read(FACTS) for name, each in artifacts.items()}
        fresh = any(fact is None or (fact["rejected"] and not skip) for fact in facts.values())
        inferred: dict[str, Any] = facts[split] or {}
        if fresh:
            known = frozenset(task.labels) if task.labels else None
            by_text = len(names) == 2
            rules = Rules(plan.needs_gold(split), known, plan.task.range, plan.empty_text, by_text)
            reading = Pass(replace(plan, task=task), split, artifacts, rules, skip, bad, progress)
            whole = reading.run()
            inferred = reading.inferred
            facts = {name: each.read(FACTS) for name, each in artifacts.items()} if whole else {}
        if split == "train":
            task = _filled(task, inferred)
        for name, fact in facts.items():
            if fact is not None:
                folder, print_of = artifacts[name].folder, artifacts[name].fingerprint
                done[name] = TaskData(task, name, folder / ROWS, print_of, fact["rows"], fact["rejected"])
    return done


def _filled(task: Task, inferred: dict[str, Any]) -> Task:
    """Return the task with the labels and range that train has shown."""
    labels = task.labels or tuple(inferred.get("labels") or ())
    return replace(task, labels=labels, range=task.range or tuple(inferred.get("range") or ()) or None)


def _facts(plan: SourcedTask, task: Task, split: str) -> dict[str, Any]:
    """Return everything that determines the content of one split; `task` has the labels that train has shown."""
    if split == "unlabelled":  # no label is read there, whatever labels there are
        task = replace(task, label=None, labels=())
    limits = None if split == "unlabelled" else plan.task.range
    return {
        "task": task.name,
        "kind": task.kind.name,
        **KINDS.facts(task.kind.name),
        "text": list(task.text),
        "label": task.label,
        "labels": list(task.labels),
        "range": list(limits) if limits else None,
        "source": plan.splits[split].identity(),
        "hold_out": plan.hold_out if split == "train" else None,
        "rows": plan.rows if split == "train" else None,
        "needs_gold": plan.needs_gold(split),
        "empty_text": plan.empty_text,
        # Which rows make a query, and which are held out, sampled and dealt into folds together.
        **({"group": task.group, "together": task.text[0]} if task.kind.grouped else {}),
    }
