"""Resampled scores are those of real resamples; p-values are even under the null and small under a shift."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from understill.evaluate import bootstrap
from understill.evaluate.bootstrap import PLAIN_RESAMPLES, resample
from understill.evaluate.metrics import Array, score
from understill.evaluate.significance import Difference, compare_seeds, mcnemar
from understill.evaluate.uncertainty import difference
from understill.evaluate.weighted import weighted
from understill.tasks import GLUE, KINDS, METRICS, Metric, Task

TWO = Task("two", "classification", ("text",), "label", ("no", "yes"), metrics=KINDS["classification"].metrics)
THREE = replace(TWO, name="three", labels=("a", "b", "c"))
SCORES = Task("scores", "regression", ("a", "b"), "label", range=(0.0, 5.0), metrics=KINDS["regression"].metrics)
RANKED = Task("ranked", "ranking", ("a", "b"), "label", ("wrong", "right"), metrics=KINDS["ranking"].metrics)

Rows = list[tuple[float, float, float]]
CLASSES = st.lists(st.tuples(*[st.integers(0, 2)] * 3), min_size=1, max_size=25)
#: Few values, so that all three columns tie often, and thirds, so that their sums are rounded.
NUMBERS = st.lists(st.tuples(*[st.integers(-4, 4).map(lambda value: value / 3)] * 3), min_size=1, max_size=25)


def compare_models(task: Task, gold: Array, ones: Array, others: Array, **options: Any) -> Difference:
    """Compare two sides of several seeds each: the ones' mean minus the others'."""
    resampled = resample(task, gold, np.concatenate([ones, others]), **options)
    sides = resampled.seeds(0, len(ones)), resampled.seeds(len(ones), len(others))
    return difference(*sides, resampled.discordant)


def paired_bootstrap(task: Task, gold: Array, one: Array, other: Array, **options: Any) -> Difference:
    """Compare two models of one seed each."""
    return compare_models(task, gold, one[None], other[None], **options)


def limit(rows: int) -> float:
    """Return the largest share of rows that differ of which none is seen with a probability of 2.5 %."""
    return float(stats.beta.ppf(0.975, 1, rows))


def each_resample(task: Task, rows: Rows, picks: list[int]) -> None:
    """Check every metric of a resample, given by its rows, against the score of the rows written out."""
    gold, *predicted = np.array(rows, dtype=np.float64).T
    rows_picked = np.array(picks) % len(rows)
    _, kind = np.unique(np.stack([gold, *predicted]), axis=1, return_inverse=True)
    for metric in task.metrics:
        if metric in ("accuracy", "mse"):
            continue  # they sort rows into kinds by what they add, not by their values
        times, measure, _, _ = weighted(task, metric, gold, np.stack(predicted))
        counts = np.bincount(kind.reshape(-1)[rows_picked], minlength=len(times))
        result = measure(np.stack([times, counts]))
        for model, each in enumerate(predicted):
            assert result[model, 0] == pytest.approx(score(task, gold, each)[metric], abs=1e-9)
            again = score(task, gold[rows_picked], each[rows_picked])[metric]
            assert result[model, 1] == pytest.approx(again, abs=1e-9)


@settings(max_examples=15)
@given(CLASSES, st.lists(st.integers(0, 24), min_size=1, max_size=25))
def test_classes_of_a_resample_are_scored_as_the_rows_written_out(rows: Rows, picks: list[int]) -> None:
    each_resample(THREE, rows, picks)
    each_resample(TWO, [(min(a, 1), min(b, 1), min(c, 1)) for a, b, c in rows], picks)


@settings(max_examples=40)
@given(NUMBERS, st.lists(st.integers(0, 24), min_size=1, max_size=25))
def test_scores_of_a_resample_are_correlated_as_the_rows_written_out(rows: Rows, picks: list[int]) -> None:
    each_resample(SCORES, rows, picks)


@pytest.mark.parametrize("rows", [300, 70_000])
def test_ranks_of_resamples_are_those_of_scipy(rows: int) -> None:
    """Numbers of rows whose squares do not fit 32 bits included."""
    rng = np.random.default_rng(0)
    gold = np.round(rng.uniform(0, 5, rows), 1)
    predicted = np.stack([gold + rng.normal(size=rows), gold > 4.5])
    _, measure, _, _ = weighted(SCORES, "spearman", gold, predicted)
    order = np.lexsort((predicted[1], predicted[0], gold))
    picks = rng.integers(0, rows, size=(3, rows))
    result = measure(np.stack([np.bincount(each, minlength=rows) for each in picks]))
    for place, each in enumerate(picks):
        for model in range(2):
            known = stats.spearmanr(gold[order][each], predicted[model][order][each]).statistic
            assert result[model, place] == pytest.approx(known, abs=1e-10)


@given(st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=8, unique=True), st.integers(1, 9))
def test_a_resample_of_one_row_alone_correlates_with_nothing(values: list[float], times: int) -> None:
    gold = np.array(sorted(values))
    for metric in ("pearson", "spearman", "pearson_spearman"):
        _, measure, _, _ = weighted(SCORES, metric, gold, gold[None] / 3)
        assert not measure(times * np.eye(len(gold), dtype=np.int64)).any()


def test_ranks_of_many_rows_of_few_kinds_do_not_overflow() -> None:
    gold, answers = np.array([1.0, 2.0, 3.0]), np.array([2.0, 1.0, 3.0])
    times = np.array([70_000, 60_000, 90_000])
    _, measure, _, _ = weighted(SCORES, "spearman", gold, answers[None])
    known = stats.spearmanr(np.repeat(gold, times), np.repeat(answers, times)).statistic
    assert measure(times[None])[0, 0] == pytest.approx(known)


@pytest.mark.parametrize("metric", ["accuracy", "mse"])
def test_means_over_rows_move_as_the_rows_written_out_do(metric: str) -> None:
    rng = np.random.default_rng(1)
    task = TWO if metric == "accuracy" else SCORES
    gold, one = rng.integers(0, 2, (2, 400)).astype(float)
    result = resample(task, gold, one[None], metric=metric, resamples=4000)
    picks = rng.integers(0, 400, size=(4000, 400))
    known = (gold == one)[picks].mean(axis=1)  # of classes 0 and 1, the squared error is a mistake
    assert result.scores[0] == pytest.approx(score(task, gold, one)[metric])
    assert result.drawn.std() == pytest.approx(known.std(), rel=0.05)


def test_rankings_are_drawn_by_query() -> None:
    # Three queries of a right and a wrong candidate, one of two right ones that leaves no choice.
    groups = np.array([0, 0, 1, 1, 2, 2, 3, 3])
    gold = np.array([1, 0, 1, 0, 1, 0, 1, 1], dtype=float)
    good = np.array([2, 1, 2, 1, 1, 2, 0, 0], dtype=float)
    for metric, value, step in (("precision_at_1", 2 / 3, 1 / 3), ("mrr", 5 / 6, 1 / 6), ("accuracy", 2 / 3, 1 / 3)):
        result = resample(RANKED, gold, good[None], groups, metric=metric, resamples=500)
        assert result.units == 3
        assert result.scores[0] == pytest.approx(value) == pytest.approx(score(RANKED, gold, good, groups)[metric])
        possible = 1 - np.arange(4) * step
        assert np.abs(result.drawn[0][:, None] - possible).min(axis=1).max() < 1e-12


def test_rows_without_gold_are_not_drawn() -> None:
    gold, one = np.array([0, 1, np.nan, 1]), np.array([0, 1, 0, 0], dtype=float)
    assert resample(TWO, gold, one[None]).units == 3
    with pytest.raises(ValueError, match="no row with gold"):
        resample(TWO, np.full(4, np.nan), one[None])


# P-values -------------------------------------------------------------------------------------------------------------

Simulated = tuple[Task, Array, Array, Array]


def classes(rng: np.random.Generator, rows: int = 900, second: float = 0.75) -> Simulated:
    """Return gold of uneven classes, and two models that are right so often, independently."""
    gold = (rng.random(rows) < 0.65).astype(float)
    one, other = (np.where(rng.random(rows) < right, gold, 1 - gold) for right in (0.75, second))
    return TWO, gold, one, other


def numbers(rng: np.random.Generator, rows: int = 200, second: float = 1.0) -> Simulated:
    gold = np.round(rng.uniform(0, 5, rows), 1)
    return SCORES, gold, gold + rng.normal(size=rows), gold + second * rng.normal(size=rows)


@pytest.mark.parametrize(
    ("make", "metric"),
    [
        *((classes, metric) for metric in KINDS["classification"].metrics),
        *((numbers, metric) for metric in KINDS["regression"].metrics),
    ],
)
def test_p_values_are_even_where_models_do_not_differ(
    make: Callable[[np.random.Generator], Simulated], metric: str
) -> None:
    rng = np.random.default_rng(1)
    ps = [paired_bootstrap(*make(rng), metric=metric, resamples=400, seed=number).p for number in range(500)]
    assert stats.kstest(ps, "uniform").pvalue > 0.01
    # Where it matters, at a twentieth: four standard deviations about 25.
    assert 5 < sum(p < 0.05 for p in ps) < 45


@pytest.mark.parametrize(
    ("make", "metric", "second"), [(classes, "accuracy", 0.68), (classes, "matthews", 0.68), (numbers, "spearman", 1.5)]
)
def test_a_known_shift_is_found(make: Callable[..., Simulated], metric: str, second: float) -> None:
    rng = np.random.default_rng(11)
    result = [
        paired_bootstrap(*make(rng, second=second), metric=metric, resamples=600, seed=number) for number in range(60)
    ]
    assert sum(each.p < 0.05 for each in result) > 48
    assert all(each.delta > 0 for each in result if each.p < 0.05)


def test_few_rows_apart_are_judged_about_as_mcnemar_does_by_half() -> None:
    """Discrete scores: with 12 wins and 4 losses, exact p is 0.077 and the middle of its step 0.049."""
    gold = np.ones(300)
    one, other = np.ones(300), np.ones(300)
    other[:12], one[12:16] = 0, 0
    result = paired_bootstrap(TWO, gold, one, other)
    exact = mcnemar(one == gold, other == gold).p
    middle = exact - stats.binom.pmf(4, 16, 0.5)
    assert exact == pytest.approx(0.0768, abs=1e-4)
    assert result.p == pytest.approx(middle, abs=0.012)


def test_p_is_bounded_below_by_a_sign_test_on_the_discordant_rows() -> None:
    """Four discordant rows that all go one way have p = 1/8, among however many others."""
    for rows in (4, 5, 40, 1000):
        one, other = np.ones(rows), np.ones(rows)
        other[:4] = 0
        assert paired_bootstrap(TWO, np.ones(rows), one, other, metric="accuracy", resamples=300).p >= 0.125
        assert mcnemar(one == 1, other == 1).p == 0.125
    gold = np.arange(40) % 2.0
    one, other = gold.copy(), gold.copy()
    other[:4] = 1 - gold[:4]
    for metric in ("f1", "matthews"):
        assert paired_bootstrap(TWO, gold, one, other, metric=metric, resamples=300).p >= 0.125


@pytest.mark.parametrize(("rows", "apart"), [(5, 0.6), (6, 0.6), (20, 0.5), (50, 0.2)])
def test_few_rows_do_not_make_differences_of_chance(rows: int, apart: float) -> None:
    rng = np.random.default_rng(19)
    ps = []
    for number in range(300):
        differ, wins = rng.random((2, rows)) < [[apart], [0.5]]
        one, other = np.where(differ, wins, True), np.where(differ, ~wins, True)
        ps.append(paired_bootstrap(TWO, np.ones(rows), one, other, resamples=200, seed=number).p)
    assert sum(p < 0.05 for p in ps) < 31  # four standard deviations above 15


def test_coarse_steps_make_p_values_neither_larger_nor_smaller() -> None:
    """A hundred rows give few scores; that the delta lies on a step of its own must not shift p-values."""
    rng = np.random.default_rng(2)
    ps = [paired_bootstrap(*classes(rng, rows=100), resamples=400, seed=number).p for number in range(500)]
    assert np.mean(ps) == pytest.approx(0.5, abs=0.039)  # three standard deviations; whole steps would add 0.06


def test_a_model_does_not_differ_from_itself() -> None:
    """Its interval is as wide as so many equal rows leave it: an exact limit of 97.5 % on either side."""
    gold, one, _ = classes(np.random.default_rng(0))[1:]
    delta, interval, p, effect, test, *_ = paired_bootstrap(TWO, gold, one, one)
    assert (delta, p, effect, test) == (0.0, 1.0, 0.0, "paired bootstrap")
    assert interval == pytest.approx((-limit(len(gold)), limit(len(gold))))


def test_constant_answers_and_one_class_are_compared_without_a_word(recwarn: pytest.WarningsRecorder) -> None:
    gold = np.array([0, 1] * 50, dtype=float)
    for task, metric in [(TWO, metric) for metric in TWO.metrics] + [(SCORES, metric) for metric in SCORES.metrics]:
        for truth in (gold, np.ones(100)):
            result = paired_bootstrap(task, truth, gold, np.ones(100), metric=metric, resamples=200)
            assert np.isfinite(result.delta) and result.interval is not None and np.isfinite(result.interval).all()
    assert not recwarn.list


def test_the_effect_on_accuracy_is_the_mean_difference_in_its_standard_deviations() -> None:
    _, gold, one, other = classes(np.random.default_rng(3), second=0.65)
    apart = (one == gold).astype(float) - (other == gold)
    result = paired_bootstrap(TWO, gold, one, other)
    assert result.effect == pytest.approx(apart.mean() / apart.std(), rel=0.05)
    low, high = result.interval
    reach = 1.96 * apart.std() / 30
    assert (low, high) == pytest.approx((result.delta - reach, result.delta + reach), abs=0.004)
    assert low < result.delta < high and (result.p < 0.05) == (low > 0 or high < 0)


def test_sides_change_places_and_nothing_else_changes() -> None:
    data = numbers(np.random.default_rng(5), second=1.2)
    there, back = paired_bootstrap(*data), paired_bootstrap(*data[:2], data[3], data[2])
    assert back.delta == pytest.approx(-there.delta)
    assert back.p == pytest.approx(there.p, abs=0.03)


def test_the_same_seed_gives_the_same_and_however_many_are_held_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    data = numbers(np.random.default_rng(5))
    first = paired_bootstrap(*data, resamples=500)
    monkeypatch.setattr(bootstrap, "AT_ONCE", 1000)
    again = paired_bootstrap(*data, resamples=500)
    assert again.p == first.p and again.interval == pytest.approx(first.interval)
    assert paired_bootstrap(*data, resamples=500, seed=1) != first


def test_the_interval_of_one_score_is_about_that_of_a_share() -> None:
    gold = np.ones(1000)
    low, high = resample(TWO, gold, np.append(np.ones(800), np.zeros(200))[None]).seeds(0, 1).interval()
    assert (low, high) == pytest.approx((0.8 - 1.96 * 0.4 / 1000**0.5, 0.8 + 1.96 * 0.4 / 1000**0.5), abs=0.002)


def test_glue_names_no_metric_that_can_not_be_resampled() -> None:
    rng = np.random.default_rng(0)
    for entry in GLUE.values():
        make = numbers if entry.task.kind.name == "regression" else classes
        for metric in entry.task.metrics:
            _, *data = make(rng, rows=60)
            assert paired_bootstrap(entry.task, *data, metric=metric, resamples=50).p is not None


# Seeds and rows -------------------------------------------------------------------------------------------------------


def seeds(
    rng: np.random.Generator, count: int, ability: float = 0.75, rows: int = 400, luck: float = 0.15
) -> tuple[Array, Array, Array]:
    """Return gold and two sides of seeds, each with luck of its own: the second is as able as asked."""
    gold = (rng.random(rows) < 0.5).astype(float)
    hard = rng.normal(size=rows)  # rows are hard for all
    sides = []
    for mean in (0.75, ability):
        right = (
            stats.norm.ppf(mean) * 2**0.5 + luck * rng.normal(size=(count, 1)) + hard + rng.normal(size=(count, rows))
        )
        sides.append(np.where(right > 0, gold, 1 - gold))
    return gold, sides[0], sides[1]


@pytest.mark.parametrize(("count", "luck"), [(3, 0.15), (2, 0.6), (3, 0.6), (5, 0.6)])
def test_seeds_and_rows_together_are_not_more_sure_than_they_may_be(count: int, luck: float) -> None:
    """Also where seeds differ far more than other rows would have it, so that all hangs on a few numbers."""
    rng = np.random.default_rng(13)
    ps = [compare_models(TWO, *seeds(rng, count, luck=luck), resamples=300, seed=number).p for number in range(300)]
    assert sum(p < 0.05 for p in ps) < 31  # four standard deviations above 15


def test_the_interval_of_seeds_on_many_rows_is_welchs() -> None:
    rng = np.random.default_rng(3)
    gold, ones, others = seeds(rng, 5, rows=20_000, luck=0.8)
    result = compare_models(TWO, gold, ones, others)
    known = compare_seeds(*([score(TWO, gold, each)["accuracy"] for each in side] for side in (ones, others)))
    assert result.delta == pytest.approx(known.delta)
    assert result.interval == pytest.approx(known.interval, abs=0.1 * (known.interval.high - known.interval.low))


def test_rows_alone_are_too_sure_of_seeds_that_differ_by_luck() -> None:
    rng = np.random.default_rng(13)
    result = [seeds(rng, 3) for _ in range(200)]
    alone = sum(paired_bootstrap(TWO, gold, one[0], other[0], resamples=300).p < 0.05 for gold, one, other in result)
    both = sum(compare_models(TWO, gold, one, other, resamples=300).p < 0.05 for gold, one, other in result)
    assert alone > 20 > both


def test_seeds_that_are_better_are_found_so() -> None:
    rng = np.random.default_rng(17)
    result = [compare_models(TWO, *seeds(rng, 3, ability=0.6), resamples=400) for _ in range(20)]
    assert sum(each.p < 0.05 for each in result) > 16
    gold, ones, others = seeds(rng, 3)
    one = compare_models(TWO, gold, ones, others)
    means = [np.mean([score(TWO, gold, each)["accuracy"] for each in side]) for side in (ones, others)]
    assert one.delta == pytest.approx(means[0] - means[1])


def test_the_effect_of_seeds_that_all_answer_alike_is_that_of_one() -> None:
    gold, ones, others = seeds(np.random.default_rng(1), 1)
    nested = compare_models(TWO, gold, np.repeat(ones, 3, axis=0), np.repeat(others, 3, axis=0))
    assert nested.effect == pytest.approx(paired_bootstrap(TWO, gold, ones[0], others[0]).effect)


def test_models_that_differ_by_the_same_on_any_rows_are_judged_by_how_many_there_are() -> None:
    for rows, p in ((4, 2 / 16), (50, 1 / 10_001)):
        result = paired_bootstrap(TWO, np.ones(rows), np.ones(rows), np.zeros(rows))
        assert result.interval == pytest.approx((1.0 - limit(rows), 1.0)), "no share is above 1"
        assert (result.delta, result.p, result.effect) == (1.0, pytest.approx(p), None)


def test_one_seed_each_is_the_paired_bootstrap() -> None:
    gold, ones, others = seeds(np.random.default_rng(1), 1)
    nested, paired = compare_models(TWO, gold, ones, others), paired_bootstrap(TWO, gold, ones[0], others[0])
    assert nested[:4] == paired[:4]


# Metrics of plug-ins --------------------------------------------------------------------------------------------------


@pytest.fixture
def plugged(no_plugins: None) -> None:
    """Register functions of our own under other names, so that they have no fast form."""
    for name in ("pearson", "accuracy", "mrr"):
        own = METRICS[name]
        METRICS.register(f"own_{name}")(Metric(own.__wrapped__, own.kinds))


@pytest.mark.usefixtures("plugged")
@pytest.mark.parametrize(("task", "metric"), [(SCORES, "pearson"), (TWO, "accuracy"), (RANKED, "mrr")])
def test_a_metric_known_only_as_a_function_is_resampled_row_by_row_to_the_same_scores(task: Task, metric: str) -> None:
    rng = np.random.default_rng(3)
    gold, groups = rng.integers(0, 2, 60).astype(np.float64), np.repeat(np.arange(15), 4)
    predicted = (gold + rng.normal(size=(2, 60))).round(1) if task is not TWO else rng.integers(0, 2, (2, 60)) + 0.0
    gold[5] = np.nan
    queries = groups if task is RANKED else None
    fast, plain = (resample(task, gold, predicted, queries, metric=name) for name in (metric, f"own_{metric}"))
    assert plain.scores == pytest.approx(fast.scores) and plain.units == fast.units
    assert plain.drawn.shape == (2, PLAIN_RESAMPLES) and fast.drawn.shape == (2, 10_000)
    assert plain.drawn.mean(axis=1) == pytest.approx(fast.drawn.mean(axis=1), abs=0.02)
    assert plain.drawn.std(axis=1) == pytest.approx(fast.drawn.std(axis=1), rel=0.15)


@pytest.mark.usefixtures("plugged")
def test_models_of_several_seeds_are_compared_by_a_metric_of_a_plug_in() -> None:
    rng = np.random.default_rng(4)
    gold = rng.normal(size=50)
    better, worse = gold + rng.normal(size=(3, 50)) / 4, gold + 2 * rng.normal(size=(3, 50))
    result = compare_models(SCORES, gold, better, worse, metric="own_pearson")
    assert result.delta > 0.2 and result.p < 0.05
