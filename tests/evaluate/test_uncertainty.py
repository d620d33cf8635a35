"""Other rows and other seeds each count once, and intervals, p-values and ratios follow from that."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.linalg import hadamard

from understill.evaluate.bootstrap import resample
from understill.evaluate.metrics import Array
from understill.evaluate.uncertainty import SeedScores, difference, estimate, mean_of_tasks, ratio
from understill.tasks import Task

DRAWS = 20_000


def simulated(
    rng: np.random.Generator, seeds: int, by_rows: Array, by_seed: float, by_both: float, mean: float = 0.8
) -> SeedScores:
    """Scores of seeds: the same resampled rows for all, luck of each, and noise of seed × row."""
    luck = by_seed * rng.normal(size=(seeds, 1))
    scores = mean + luck[:, 0] + by_both * rng.normal(size=seeds)
    return SeedScores(scores, scores[:, None] + by_rows + by_both * rng.normal(size=(seeds, len(by_rows))))


def test_the_noise_of_seed_and_row_counts_once() -> None:
    """On average the variance is that of rows + (that of seeds + that of both) / seeds, and nothing twice."""
    rng = np.random.default_rng(0)
    totals = []
    for _ in range(300):
        side = simulated(rng, 4, 0.02 * rng.normal(size=2000), 0.03, 0.01)
        totals.append(side.by_rows.var() + side.spread.error - side.spread.by_row)
    assert np.mean(totals) == pytest.approx(0.02**2 + (0.03**2 + 0.01**2) / 4, rel=0.05)


def test_seeds_that_vary_by_their_rows_alone_add_nothing() -> None:
    rng = np.random.default_rng(1)
    sides = [simulated(rng, 5, 0.02 * rng.normal(size=2000), 0.0, 0.02) for _ in range(200)]
    added = np.mean([side.spread.error - side.spread.by_row for side in sides])
    assert abs(added) < 0.1 * 0.02**2 / 5


def test_without_variance_by_rows_it_is_welchs_test() -> None:
    rng = np.random.default_rng(2)
    one, other = (SeedScores(scores, np.repeat(scores[:, None], 50, 1)) for scores in rng.normal(0.8, 0.02, (2, 5)))
    result = difference(one, other, 500)
    known = stats.ttest_ind(one.scores, other.scores, equal_var=False)
    assert result.p == pytest.approx(known.pvalue) and result.degrees[1] == pytest.approx(known.df)
    assert result.interval == pytest.approx(known.confidence_interval())
    assert result.at(0.95) == pytest.approx(result.interval)
    low, high = result.at(0.99)
    assert low < result.interval.low and high > result.interval.high


def test_a_difference_of_the_minimal_detectable_size_is_found_four_times_of_five() -> None:
    rng = np.random.default_rng(3)
    error, rows = 0.01, 0.01 * rng.normal(size=4000)
    effect = difference(SeedScores(np.array([0.8]), 0.8 + rows[None]), SeedScores(np.array([0.8]), np.full((1, 4000), 0.8)), 400)  # fmt: skip # noqa: E501
    hits = 0
    for _ in range(400):
        delta = effect.detectable + error * rng.normal()
        one = SeedScores(np.array([0.8 + delta]), 0.8 + delta + rows[None])
        hits += difference(one, SeedScores(np.array([0.8]), np.full((1, 4000), 0.8)), 400).p < 0.05
    assert 290 < hits < 350


# Normal scores, exactly: by quadrature over how much the seeds happen to differ ---------------------------------------

#: Resamples that vary as they should and do not covary: columns of a Hadamard matrix, the constant one left out.
APART = hadamard(32)[1:].astype(np.float64)


def exactly(seeds: int, shared: float, by_both: float, spread: float, first: int) -> SeedScores:
    """A side whose scores have a squared standard error of `spread`, and whose resamples have these variances."""
    drawn = shared**0.5 * APART[0] + by_both**0.5 * APART[first : first + seeds]
    scores = np.arange(seeds) - (seeds - 1) / 2
    return SeedScores(scores * (spread * seeds / scores.var(ddof=1)) ** 0.5, drawn)


def spreads(seeds: int, nodes: int) -> Array:
    """How much the variance of so many seeds is of the true one, as often as each other."""
    return stats.chi2.ppf((np.arange(nodes) + 0.5) / nodes, seeds - 1) / (seeds - 1)


@pytest.mark.parametrize(("seeds", "least", "most"), [(2, 0.937, 0.97), (3, 0.948, 0.962), (5, 0.949, 0.955), (10, 0.949, 0.952)])  # fmt: skip # noqa: E501
def test_an_interval_of_a_score_covers_it_however_much_seeds_and_rows_matter(
    seeds: int, least: float, most: float
) -> None:
    for by_both in (0.0, 0.2, 0.7):
        for luck in (0.001, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0):
            error = luck + by_both / seeds
            sides = [exactly(seeds, 1.0, by_both, error * spread, 1) for spread in spreads(seeds, 100)]
            reaches = np.array([side.interval().high for side in sides])
            assert least < 1 - 2 * stats.norm.sf(reaches / (1 + error) ** 0.5).mean() < most, (by_both, luck)


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_no_luck_of_seeds_that_both_sides_have_alike_makes_false_positives(seeds: int) -> None:
    for by_both in (0.1, 1.0, 10.0):
        for luck in (0.0, 0.3, 1.0, 3.0, 10.0):
            error, false = luck + by_both / seeds, []
            for one, other in product(spreads(seeds, 16), repeat=2):
                sides = exactly(seeds, 1.0, by_both, error * one, 1), exactly(seeds, 0.0, by_both, error * other, 11)
                false.append(2 * stats.norm.sf(estimate(sides, [1.0, -1.0]).reach() / (1 + 2 * error) ** 0.5))
            assert np.mean(false) < 0.053, (by_both, luck)


def test_an_interval_of_one_score_covers_it_with_few_seeds_and_many() -> None:
    rng = np.random.default_rng(4)
    for seeds in (1, 2, 3, 5, 10):
        hits = 0
        for _ in range(400):
            noise = 0.02 * rng.normal(size=501)
            side = simulated(rng, seeds, noise[1:], 0.02 if seeds > 1 else 0.0, 0.01, mean=0.8 + noise[0])
            low, high = side.interval()
            hits += low <= 0.8 <= high
        # One seed stands for itself; the noise of seed × row is that of these rows too.
        assert hits >= 0.91 * 400 if seeds > 1 else hits >= 0.85 * 400, seeds


@given(st.integers(1, 5), st.integers(2, 4))
def test_the_mean_of_tasks_is_taken_seed_by_seed(seeds: int, tasks: int) -> None:
    rng = np.random.default_rng([seeds, tasks])
    sides = [SeedScores(rng.random(seeds), rng.random((seeds, 7 + number))) for number in range(tasks)]
    mean = mean_of_tasks(sides)
    assert mean.drawn.shape == (seeds, 7), "as many resamples as the task with the fewest has"
    assert mean.scores == pytest.approx(np.mean([side.scores for side in sides], axis=0))
    assert mean.drawn[-1, -1] == pytest.approx(np.mean([side.drawn[-1, 6] for side in sides]))


def test_gains_and_losses_of_a_seed_on_two_tasks_cancel() -> None:
    ups = np.array([0.1, -0.1, 0.05, -0.05])
    tasks = [SeedScores(0.8 + sign * ups, np.repeat((0.8 + sign * ups)[:, None], 9, 1)) for sign in (1, -1)]
    assert mean_of_tasks(tasks).spread.error == pytest.approx(0)
    assert estimate([tasks[0]], [1.0]).error > 0.02


# Ratios ---------------------------------------------------------------------------------------------------------------


def test_fiellers_interval_covers_the_true_ratio() -> None:
    rng = np.random.default_rng(5)
    hits = 0
    for _ in range(500):
        shared, own = 0.01 * rng.normal(size=(2, 1001))
        sides = [
            SeedScores(np.array([mean + noise[0]]), mean + noise[None, 1:])
            for mean, noise in ((0.72, shared + own), (0.8, shared))
        ]
        low, high = ratio(sides, [1.0, 0.0], [0.0, 1.0]).interval
        hits += low <= 0.9 <= high
    assert 455 < hits < 493


def test_a_denominator_that_may_be_0_has_no_bounds_and_one_that_is_has_no_ratio() -> None:
    rng = np.random.default_rng(6)
    near = [SeedScores(np.array([mean]), mean + 0.02 * rng.normal(size=(1, 500))) for mean in (0.71, 0.72, 0.70)]
    unsure = ratio(near, [1.0, 0.0, -1.0], [0.0, 1.0, -1.0])
    assert unsure.value == pytest.approx(0.5) and unsure.interval is None and unsure.keeps(0.4) is None
    assert ratio(near, [1.0, 0.0, -1.0], [0.0, 0.0, 0.0]) is None
    assert ratio(near, [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], floor=0.8) is None, "teachers below the floor"


def test_a_share_is_kept_lost_or_undecided_by_the_whole_interval() -> None:
    rng = np.random.default_rng(7)
    sides = [SeedScores(np.array([mean]), mean + 0.004 * rng.normal(size=(1, 2000))) for mean in (0.76, 0.80)]
    kept = ratio(sides, [1.0, 0.0], [0.0, 1.0])
    assert [kept.keeps(share) for share in (0.9, 0.95, 0.99)] == [True, None, False]


# Answers that are alike ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 10, 67, 1000])
def test_rows_without_a_difference_show_no_more_than_the_binomial_limit(rows: int) -> None:
    same = SeedScores(np.array([0.91]), np.linspace(0.88, 0.94, 500)[None], rows)
    share = 1 - 0.025 ** (1 / rows)  # of discordant rows, of which none is seen in one sample of forty
    compared = difference(same, same, 0)
    assert compared.delta == 0 and compared.p == 1
    assert compared.interval == pytest.approx((-share, share))
    kept = ratio([same, same], [1.0, 0.0], [0.0, 1.0])
    assert kept.value == 1 and kept.interval == pytest.approx((1 - share / 0.91, 1 + share / 0.91))
    assert kept.keeps(0.99) is (True if rows == 1000 else None), "67 rows cannot show 99 %"


def test_a_perfect_score_of_few_rows_is_no_certainty() -> None:
    perfect = SeedScores(np.ones(1), np.ones((1, 100)), 10)
    assert perfect.interval() == pytest.approx((0.025**0.1, 1.0))


def test_several_seeds_that_are_all_right_are_no_more_certain_than_one() -> None:
    perfect = SeedScores(np.ones(3), np.ones((3, 100)), 10)
    assert perfect.interval() == pytest.approx((0.025**0.1, 1.0))
    wrong = SeedScores(np.zeros(3), np.zeros((3, 100)), 10)
    assert wrong.interval() == pytest.approx((0.0, 1 - 0.025**0.1)), "no share is below 0"


def test_an_error_has_no_limit_by_counts_of_rows() -> None:
    task = Task("scores", "regression", ("a",), "label", range=(0.0, 5.0), metrics=("mse",))
    resampled = resample(task, np.array([1.0]), np.array([[3.0]]), resamples=50)
    assert resampled.seeds(0, 1).interval() == (4.0, 4.0)


def test_the_smallest_task_bounds_what_a_mean_of_tasks_can_show() -> None:
    small, large = (SeedScores(np.array([0.9]), np.linspace(0.8, 1.0, 500)[None], rows) for rows in (10, 10_000))
    mean = mean_of_tasks([small, large])
    compared = difference(mean, mean, 0)
    alone = 1 - 0.025 ** (1 / 10)
    assert compared.interval.high == pytest.approx(alone / 2, rel=0.1), "one of two tasks may be that far off"
    assert ratio([mean, mean], [1.0, 0.0], [0.0, 1.0]).keeps(0.99) is None
    assert difference(*[mean_of_tasks([small])] * 2, 0).interval.high == pytest.approx(alone)
    assert compared.alike and compared._replace(effect=None).alike, "a mean of tasks has no effect size"


def test_simultaneous_intervals_are_wider_where_nothing_varied_too() -> None:
    same = SeedScores(np.array([0.9]), np.linspace(0.8, 1.0, 500)[None], 67)
    compared = difference(same, same, 0)
    assert compared.at(0.95) == pytest.approx(compared.interval)
    assert compared.at(0.995) == pytest.approx((-(1 - 0.0025 ** (1 / 67)), 1 - 0.0025 ** (1 / 67)))
