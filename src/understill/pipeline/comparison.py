"""Comparison: tests of the mean over tasks and of each task, from the predictions kept of each row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from understill import numbers
from understill.errors import UserError, listed
from understill.evaluate.agreement import counts_hits
from understill.evaluate.bootstrap import RESAMPLES, Resampled, resample
from understill.evaluate.significance import Difference, Summary, compare_seeds, holm, mcnemar, stars, summarise
from understill.evaluate.uncertainty import POWER, Ratio, SeedScores, difference, mean_of_tasks, ratio
from understill.pipeline.sides import JoinedRows, Side, find_side, read_sides
from understill.tasks import Task
from understill.tasks.metric import is_error

#: The corrected p-value below which a difference is claimed.
CLAIMED = 0.05
#: The row that has the mean of all tasks.
MEAN = "mean"
#: Resamples where a side has several seeds: they give a variance, and no p-value is counted in them.
FOR_VARIANCE = 2_000


@dataclass(frozen=True)
class Compared:
    """One dev set, or the mean of all tasks, on which two sides were compared by primary metrics."""

    place: str  # "task/split", or MEAN
    metric: str  # empty for the mean
    first: Summary
    second: Summary
    difference: Difference  # second minus first, over rows, and over seeds too where there are several
    checks: tuple[Difference, ...]  # by other tests: McNemar of two accuracies, Mann-Whitney of several seeds each
    mixed: bool  # whether a side has different models, and not seeds of one model
    p: float | None  # of the difference, corrected for the number of comparisons of its family

    @property
    def verdict(self) -> int:
        """1 where the second is significantly better, −1 where it is worse, 0 where neither is shown."""
        if self.p is None or self.p >= CLAIMED:
            return 0
        return 1 if (self.difference.delta > 0) != is_error(self.metric) else -1

    @property
    def seeds(self) -> tuple[int, int]:
        """How many models each side has."""
        return len(self.first.values), len(self.second.values)

    @property
    def several(self) -> bool:
        """Whether both sides have several seeds, so that a claim extends to other seeds."""
        return not self.mixed and min(self.seeds) > 1

    @property
    def stars(self) -> str:
        """The stars of the corrected p-value; none where a side has one seed."""
        return stars(self.p) if self.several else ""

    @property
    def name(self) -> str:
        """What tables call it."""
        return numbers.plain_name(self.place)

    def worse_by(self, margin: float) -> bool:
        """Tell whether the second is significantly worse, and its whole interval by more than a margin."""
        interval = self.difference.interval
        if self.verdict >= 0 or interval is None:
            return False
        return interval.low > margin if is_error(self.metric) else interval.high < -margin


@dataclass(frozen=True)
class Comparison:
    """Two sides on all dev sets that both have: the mean over tasks first, then each task."""

    first: str
    second: str
    mean: Compared | None  # None where fewer than two tasks can be averaged
    compared: tuple[Compared, ...]
    averaged: int = 0  # the number of tasks that the mean is of
    taught_alike: bool = False  # whether the seeds of a side learnt from one set of teachers

    @property
    def rows(self) -> tuple[Compared, ...]:
        """All that is compared, the mean first."""
        return (self.mean, *self.compared) if self.mean else self.compared

    @property
    def primary(self) -> Compared:
        """What the claim is about first: the mean, or the first dev set where there is no mean."""
        return self.mean or self.compared[0]

    def at(self, place: str) -> Compared | None:
        """Return what is compared on one dev set; None where that is not among them."""
        return next((each for each in self.compared if each.place == place), None)

    @property
    def claims(self) -> bool:
        """Whether anything may be claimed at all."""
        return any(each.verdict for each in self.rows)

    @property
    def claim(self) -> str:
        """What may be claimed of A and B, and what may not, in plain words."""
        return self.claim_of("A", "B")

    def claim_of(self, first: str, second: str) -> str:
        """Return the claim in words, with the two sides under these names."""
        sentences = [] if self.claims else [f"No significant difference between {second} and {first}."]
        if self.mean or len(self.compared) == 1:
            sentences.append(_sentence(self.primary, first, second, self.averaged))
        if len(self.compared) > 1:
            sentences.append(_by_task(self.compared, f"{second} is"))
        if self.claims:
            sentences.append(self._scope())
        return " ".join(sentences)

    def _scope(self) -> str:
        claimed = [each for each in self.rows if each.verdict]
        if not all(each.several for each in claimed):
            both = "these two models" if all(each.seeds == (1, 1) for each in claimed) else "these very models"
            return f"This is about {both}, on other rows like these; other seeds may differ."
        if self.taught_alike:
            return (
                "This generalises to other seeds of the students with the same teachers, and to other rows like these. "
                "Other teachers may give another result, because all seeds shared one set."
            )
        return "This generalises to other seeds of the same recipes, and to other rows like these."

    def facts(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        rows = [
            {
                "place": each.place,
                "metric": each.metric,
                "first": each.first._asdict(),
                "second": each.second._asdict(),
                **each.difference._asdict(),
                "holm": each.p,
                "verdict": each.verdict,
            }
            for each in self.rows
        ]
        return {"first": self.first, "second": self.second, "claim": self.claim, "rows": plain(rows)}


def plain(value: Any) -> Any:
    """Return named tuples and what holds them as plain dictionaries and lists."""
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, (list, tuple)) else value


def _sentence(row: Compared, first: str, second: str, tasks: int) -> str:
    """Say how the second does against the first on the mean, or on the only dev set."""
    metric, result = row.metric, row.difference
    where = f"On the mean of {tasks} tasks" if tasks else f"On {row.name}"
    if result.alike:
        return f"{where} there is no difference."
    interval = numbers.interval(metric, result.interval, "+")
    figures = f"{numbers.delta(metric, result.delta)} (95 % interval {interval}, p {numbers.p_value(row.p)})"
    if row.verdict:
        return f"{where} {second} is {'better' if row.verdict > 0 else 'worse'} than {first}: {figures}."
    unseen = ""
    if result.detectable is not None:
        size = numbers.score(metric, result.detectable)
        unseen = f"; a true difference of {size} would have been found with a probability of {round(100 * POWER)} %"
    return f"{where} {second} does not differ significantly from {first}: {figures}{unseen}."


def _by_task(rows: Sequence[Compared], who: str) -> str:
    """Say how single tasks turned out, after Holm's correction."""
    alike = [each.name for each in rows if each.difference.alike]
    parts = [
        f"{who} {word} on {listed(names, 'and')}"
        for verdict, word in ((1, "better"), (-1, "worse"))
        if (names := [each.name for each in rows if each.verdict == verdict])
    ]
    if chance := [each.name for each in rows if not each.verdict and each.name not in alike]:
        parts.append(f"no significant difference on {listed(chance, 'and')}")
    if alike:
        parts.append(f"on {listed(alike, 'and')} there is no difference")
    return f"Task by task, after Holm's correction: {'; '.join(parts)}."


# Tests ----------------------------------------------------------------------------------------------------------------


def compare(names: Sequence[str]) -> list[Comparison]:
    """Compare runs or models, the later ones each with the first, on the dev sets that both have."""
    if len(names) < 2:
        raise UserError("there is nothing to compare it with → name two runs or models, or more")
    sides = [find_side(name) for name in names]
    return compare_sides([(sides[0], other) for other in sides[1:]])


def compare_sides(pairs: Sequence[tuple[Side, Side]]) -> list[Comparison]:
    """Compare the second of each pair with the first: means are one family of Holm's correction, tasks another."""
    return correct([compare_pair(first, second) for first, second in pairs])


def correct(raw: Sequence[Comparison]) -> list[Comparison]:
    """Correct the p-values of comparisons that are shown together."""
    means = iter(holm([each.mean.difference.p if each.mean else None for each in raw]))
    tasks = iter(holm([row.difference.p for each in raw for row in each.compared]))
    corrected = []
    for each in raw:
        p = next(means)
        mean = replace(each.mean, p=p) if each.mean else None
        compared = tuple(replace(row, p=next(tasks)) for row in each.compared)
        corrected.append(replace(each, mean=mean, compared=compared))
    return corrected


def better_than_all(comparisons: Sequence[Comparison]) -> float | None:
    """Return the p-value of the first side being better than every other: the largest of theirs, without correction.

    None where it is not ahead of each of them.
    """
    firsts = [each.primary for each in comparisons]
    if any((row.difference.delta < 0) == is_error(row.metric) for row in firsts):
        return None
    ps = [row.difference.p for row in firsts if row.difference.p is not None]
    return max(ps) if len(ps) == len(firsts) > 1 else None


def _common(sides: Sequence[Side]) -> list[str]:
    both = [place for place in sides[0].places if all(place in side.places for side in sides)]
    if not both:
        have = " and ".join(", ".join(side.places) or "none" for side in sides)
        raise UserError(f"{' and '.join(side.name for side in sides)} have no dev set in common: {have}")
    return both


class _Sampled(NamedTuple):
    """Sides on one dev set, resampled together."""

    joined: JoinedRows
    resampled: Resampled
    sides: tuple[SeedScores, ...]  # each file once

    @property
    def task(self) -> Task:
        return self.joined.task


def _sample(place: str, sides: Sequence[Side]) -> _Sampled:
    joined = read_sides(place, sides)
    kept = [each for rows in joined.rows for each in rows]
    resampled = resample(
        joined.task,
        kept[0].gold,
        np.stack([each.predictions.values for each in kept]),
        kept[0].groups,
        joined.clusters,
        resamples=RESAMPLES if len(kept) == len(sides) else FOR_VARIANCE,
        seed=crc32(place.encode()),  # dev sets of one size are not to be drawn alike
    )
    starts = np.cumsum([0, *(len(rows) for rows in joined.rows)])
    own = tuple(resampled.seeds(int(start), len(rows)) for start, rows in zip(starts, joined.rows, strict=False))
    return _Sampled(joined, resampled, own)


def _mean(sides: Sequence[Side], samples: Mapping[str, _Sampled]) -> list[SeedScores] | None:
    """Return the mean over tasks of each seed of each side; None where there are fewer than two tasks, or no seeds."""
    places = [place for place, sample in samples.items() if averages(place, sample.task)]
    if len(places) < 2 or any(side.mixed for side in sides):
        return None
    means = []
    for number, side in enumerate(sides):
        chosen = np.array(side.places_of(places)).T  # [tasks, seeds]
        tasks = zip([samples[place].sides[number] for place in places], chosen, strict=True)
        means.append(mean_of_tasks([task.of(own) for task, own in tasks]))
    return means


def averages(place: str, task: Task) -> bool:
    """Tell whether a dev set takes part in the mean: a task's first, with its own head, by no error."""
    return task.head == task.name and place.endswith("/dev") and not is_error(task.metrics[0])


def compare_pair(first: Side, second: Side) -> Comparison:
    """Compare two sides, without a correction for others."""
    sides = (first, second)
    samples = {place: _sample(place, sides) for place in _common(sides)}
    compared = tuple(_compared(place, sides, sample) for place, sample in samples.items())
    taught_alike = first.taught_alike or second.taught_alike
    if not (means := _mean(sides, samples)):
        return Comparison(first.name, second.name, None, compared, taught_alike=taught_alike)
    own = [sample.resampled for place, sample in samples.items() if averages(place, sample.task)]
    result = difference(means[1], means[0], sum(each.discordant for each in own))
    result = result._replace(effect=None)  # rows of different tasks have no common deviation
    mean = Compared(MEAN, "", _summary(means[0]), _summary(means[1]), result, _by_seeds(means), False, None)
    return Comparison(first.name, second.name, mean, compared, len(own), taught_alike)


def _compared(place: str, sides: tuple[Side, Side], sample: _Sampled) -> Compared:
    task, (one, other) = sample.task, sample.sides
    result = difference(other, one, sample.resampled.discordant)
    checks = _by_seeds((one, other))
    if one.count == other.count == 1 and counts_hits(task) and sample.joined.clusters is None:
        (before,), (after,) = sample.joined.rows
        known = ~np.isnan(before.gold)
        hits = [(each.predictions.values == each.gold)[known] for each in (after, before)]
        checks = (mcnemar(*hits),)
    mixed = any(side.mixed for side in sides)
    return Compared(place, task.metrics[0], _summary(one), _summary(other), result, checks, mixed, None)


def _summary(side: SeedScores) -> Summary:
    return summarise(side.scores.tolist())._replace(interval=side.interval())


def _by_seeds(sides: Sequence[SeedScores]) -> tuple[Difference, ...]:
    """Return the Mann-Whitney test over seeds, where both sides have several."""
    one, other = (side.scores.tolist() for side in sides)
    return (compare_seeds(other, one),) if min(len(one), len(other)) > 1 else ()


# Scores of one side ---------------------------------------------------------------------------------------------------


def score_side(side: Side) -> dict[str, Summary]:
    """Return the primary score of each dev set and their mean, each with its interval over rows and seeds."""
    samples = {place: _sample(place, [side]) for place in side.places}
    scores = {place: _summary(sample.sides[0]) for place, sample in samples.items()}
    mean = _mean([side], samples)
    return {**scores, **({MEAN: _summary(mean[0])} if mean else {})}


#: Whether a student keeps its share, by the interval.
_RETAINED = {True: "{least} is kept", False: "{least} is not kept", None: "whether {least} is kept is undecided"}


class Retention(NamedTuple):
    """What a student keeps of its teachers, on the mean over tasks or on the only one, each with its interval."""

    kept: Ratio  # its score by theirs
    above: Ratio | None  # the same above the majority guess; None where the teachers are not above it
    distilled: Ratio | None  # (student − baseline) / (teachers − baseline): the distillation ratio

    def sentence(self, share: float) -> str:
        """Say whether a share of the teachers' score is kept."""
        kept = f"The student keeps {numbers.percent(self.kept.value)} of its teachers' score"
        least = f"at least {numbers.percent(share)} (evaluation.keep)"
        kept += f" (95 % interval {numbers.percents(self.kept.interval)})"
        return f"{kept}: {_RETAINED[self.kept.keeps(share)].format(least=least)}."


def retention(
    student: Side, teachers: Side, baseline: Side | None, majority: Mapping[str, Mapping[str, float]]
) -> Retention | None:
    """Return what a student keeps of its teachers; None where no task has both, or the teachers score nothing."""
    sides = [student, teachers, *([baseline] if baseline else [])]
    samples = {place: _sample(place, sides) for place in _common(sides)}
    samples = {place: sample for place, sample in samples.items() if averages(place, sample.task)}
    means = _mean(sides, samples) or (list(next(iter(samples.values())).sides) if len(samples) == 1 else None)
    if not means:
        return None
    floor = float(np.mean([majority[place][sample.task.metrics[0]] for place, sample in samples.items()]))
    others = [0.0] * (len(sides) - 2)
    over, under = [1.0, 0.0, *others], [0.0, 1.0, *others]
    kept = ratio(means, over, under)
    if kept is None:
        return None
    distilled = ratio(means, [1.0, 0.0, -1.0], [0.0, 1.0, -1.0]) if baseline else None
    return Retention(kept, ratio(means, over, under, floor), distilled)
