from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from understill.evaluate.significance import (
    Difference,
    Interval,
    compare_seeds,
    factor_effects,
    holm,
    mcnemar,
    stars,
    summarise,
)

SCORES = st.lists(st.floats(-100, 100).map(lambda value: round(value, 3)), min_size=2, max_size=6)


def test_seeds_are_summed_up_as_a_textbook_does():
    result = summarise([80.0, 82.0, 84.0, 90.0])
    assert (result.median, result.mean) == (83.0, 84.0)
    assert result.spread == pytest.approx((56 / 3) ** 0.5)
    # t of 3 degrees of freedom at 97.5 % is 3.182446
    assert result.interval == pytest.approx((84 - 3.182446 * result.spread / 2, 84 + 3.182446 * result.spread / 2))


def test_one_seed_has_no_interval():
    assert summarise([81.5]) == ((81.5,), 81.5, 81.5, 0.0, None)
    with pytest.raises(ValueError, match="nothing"):
        summarise([])


def test_three_seeds_against_three_can_not_get_below_a_tenth():
    """Of the 20 orders of six seeds, two are as far apart as these."""
    difference = compare_seeds([3.0, 4.0, 5.0], [0.0, 1.0, 2.0])
    assert difference.delta == 3.0
    assert difference.p == pytest.approx(0.1)
    assert difference.effect == 1.0


@given(SCORES, SCORES)
def test_untied_seeds_are_compared_as_scipy_does(ones, others):
    others = [value + 1e-5 for value in others]
    ones = [*dict.fromkeys(ones), 200.0]
    others = [*dict.fromkeys(others), 300.0]
    result = compare_seeds(ones, others)
    assert result.p == pytest.approx(stats.mannwhitneyu(ones, others, method="exact").pvalue)
    welch = stats.ttest_ind(ones, others, equal_var=False).confidence_interval(0.95)
    assert result.interval == pytest.approx(tuple(welch), abs=1e-9)
    back = compare_seeds(others, ones)
    assert (back.delta, back.effect, back.p) == pytest.approx((-result.delta, -result.effect, result.p))


def test_tied_seeds_get_the_exact_p_of_all_orders():
    """The p-value of tied seeds, counted by hand over the six orders of two and two."""
    result = compare_seeds([1.0, 1.0], [1.0, 2.0])
    # The 2 is on either side in three orders of six, and those are all the outcomes there are.
    assert result.p == pytest.approx(1.0)
    assert result.effect == -0.5
    assert compare_seeds([1.0, 1.0, 1.0], [2.0, 2.0, 2.0]).p == pytest.approx(0.1)
    assert compare_seeds([5.0, 5.0], [5.0, 5.0])[:5] == (0.0, (0.0, 0.0), 1.0, 0.0, "Mann-Whitney U over seeds")


def test_many_tied_seeds_are_compared_all_the_same():
    result = compare_seeds([1.0, 2.0, 3.0] * 10, [2.0, 3.0, 4.0] * 10)
    assert result.p is not None and result.p < 0.001


def test_a_single_seed_gives_a_delta_and_no_verdict():
    difference = compare_seeds([3.0], [1.0, 2.0])
    assert (difference.delta, difference.interval, difference.p) == (1.5, None, None)
    with pytest.raises(ValueError, match="both sides"):
        compare_seeds([], [1.0])


# Factors --------------------------------------------------------------------------------------------------------------

TWO = {"labels": ["hard", "soft"], "augmentation": ["none", "rules"]}


def test_effects_of_a_two_by_two_design_are_those_worked_by_hand():
    cells = {
        ("hard", "none"): [69.0, 71.0],
        ("hard", "rules"): [71.0, 73.0],
        ("soft", "none"): [73.0, 75.0],
        ("soft", "rules"): [79.0, 81.0],
    }
    result = factor_effects(cells, TWO)
    assert list(result) == ["labels", "augmentation", "labels × augmentation"]
    # Means 70, 72, 74, 80; the variance within a cell is 2, with 4 degrees of freedom.
    assert result["labels"].delta == pytest.approx((74 + 80) / 2 - (70 + 72) / 2)
    assert result["augmentation"].delta == pytest.approx((72 + 80) / 2 - (70 + 74) / 2)
    assert result["labels × augmentation"].delta == pytest.approx((80 - 74) - (72 - 70))
    assert "not halved" in result["labels × augmentation"].test
    # A main effect is a difference of two means of four, so its variance is 2 · (1/4 + 1/4) = 1; t(4) is 2.776445.
    assert result["labels"].interval == pytest.approx((6 - 2.776445, 6 + 2.776445), abs=1e-5)
    assert result["labels"].p == pytest.approx(2 * stats.t.sf(6, 4))
    assert result["labels"].effect == pytest.approx(6 / 2**0.5)
    # The interaction is a sum of four means of two, each of variance 1.
    assert result["labels × augmentation"].p == pytest.approx(2 * stats.t.sf(4 / 2, 4))


def test_one_factor_of_two_levels_is_the_t_test_of_students():
    ones, others = [70.0, 72.0, 75.0], [74.0, 79.0]
    result = factor_effects({("a",): ones, ("b",): others}, {"labels": ["a", "b"]})["labels"]
    known = stats.ttest_ind(others, ones)
    assert result.delta == pytest.approx(np.mean(others) - np.mean(ones))
    assert result.p == pytest.approx(known.pvalue)
    assert result.interval == pytest.approx(tuple(known.confidence_interval(0.95)))


def test_more_levels_are_each_set_against_the_first():
    cells = {
        (rule, student): [base + gain]
        for rule, base in (("none", 60), ("mask", 63), ("swap", 58))
        for student, gain in (("small", 0), ("large", 5))
    }
    result = factor_effects(cells, {"rule": ["none", "mask", "swap"], "student": ["small", "large"]})
    assert {name: each.delta for name, each in result.items()} == pytest.approx(
        {"rule: mask": 3, "rule: swap": -2, "student": 5}
    )
    # One seed a cell leaves nothing to judge by.
    assert all((each.interval, each.p, each.effect) == (None, None, None) for each in result.values())


def test_three_factors_have_three_pairs_averaged_over_the_third():
    factors = {"a": ["0", "1"], "b": ["0", "1"], "c": ["0", "1"]}
    cells = {
        (a, b, c): [2 * int(a) + 3 * int(a) * int(b) + 8 * int(a) * int(b) * int(c)]
        for a in "01"
        for b in "01"
        for c in "01"
    }
    result = factor_effects(cells, factors)
    assert list(result) == ["a", "b", "c", "a × b", "a × c", "b × c"]
    assert result["a × b"].delta == pytest.approx(3 + 8 / 2)
    assert result["a"].delta == pytest.approx(2 + 3 / 2 + 8 / 4)


def test_seeds_that_all_agree_have_no_p():
    result = factor_effects({("a",): [1.0, 1.0], ("b",): [2.0, 2.0]}, {"labels": ["a", "b"]})["labels"]
    assert result == Difference(1.0, Interval(1.0, 1.0), None, None, "t")
    # The mean of three equal scores is another number where they have no end in binary.
    result = factor_effects({("a",): [0.02] * 3, ("b",): [0.025] * 3}, {"labels": ["a", "b"]})["labels"]
    assert (result.p, result.effect) == (None, None)


def test_a_missing_cell_is_named():
    with pytest.raises(ValueError, match="soft"):
        factor_effects({("hard", "none"): [1.0], ("hard", "rules"): [1.0], ("soft", "none"): [1.0]}, TWO)


def test_factor_tests_are_as_sure_as_they_say():
    """Under no effect, a fifth of the p-values is below a fifth."""
    rng = np.random.default_rng(3)
    low = 0
    for _ in range(400):
        cells = {name: rng.normal(size=3) for name in [(a, b) for a in TWO["labels"] for b in TWO["augmentation"]]}
        low += factor_effects(cells, TWO)["labels × augmentation"].p < 0.2
    assert 50 < low < 112  # four standard deviations about 80


# Corrections ----------------------------------------------------------------------------------------------------------


def test_holm_gives_the_values_worked_by_hand():
    # 0.01 · 4, then 0.02 · 3, then 0.03 · 2 which may not fall behind, then 0.6 · 1.
    assert holm([0.03, 0.01, 0.6, 0.02]) == pytest.approx([0.06, 0.04, 0.6, 0.06])


def test_holm_leaves_out_what_has_no_p():
    assert holm([None, 0.02, None, 0.03]) == [None, pytest.approx(0.04), None, pytest.approx(0.04)]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_keeps_the_order_and_never_helps(ps):
    result = holm(ps)
    assert all(p <= corrected <= 1 for p, corrected in zip(ps, result, strict=True))
    assert min(result) == pytest.approx(min(1, min(ps) * len(ps)))
    assert sorted(range(len(ps)), key=lambda place: (result[place], ps[place])) == sorted(
        range(len(ps)), key=lambda place: ps[place]
    )


def test_stars_are_given_below_a_twentieth_a_hundredth_and_a_thousandth():
    assert [stars(p) for p in (None, 0.05, 0.049, 0.01, 0.009, 0.001, 0.0009)] == ["", "", "*", "*", "**", "**", "***"]


# McNemar --------------------------------------------------------------------------------------------------------------


def rows(both: int, one: int, other: int, none: int) -> tuple[list[bool], list[bool]]:
    return (
        [True] * both + [True] * one + [False] * other + [False] * none,
        [True] * both + [False] * one + [True] * other + [False] * none,
    )


def test_few_rows_apart_are_counted_exactly():
    result = mcnemar(*rows(80, 8, 2, 10))
    # 2 · (1 + 10 + 45) / 1024
    assert result.p == pytest.approx(2 * 56 / 1024)
    assert (result.delta, result.effect, result.test) == (pytest.approx(0.06), pytest.approx(0.6), "McNemar, exact")


def test_many_rows_apart_take_the_corrected_chi_square():
    result = mcnemar(*rows(100, 59, 86, 55))
    assert result.p == pytest.approx(stats.chi2.sf((27 - 1) ** 2 / 145, 1))
    assert result.test == "McNemar, chi-square"
    assert result.interval is not None and result.interval.low < -27 / 300 < result.interval.high


def test_models_that_are_right_together_do_not_differ():
    assert mcnemar(*rows(7, 0, 0, 3))[:5] == (0.0, (0.0, 0.0), 1.0, 0.0, "McNemar, exact")
    assert mcnemar(*rows(7, 20, 20, 3)).p == 1.0
    with pytest.raises(ValueError, match="same rows"):
        mcnemar([True], [True, False])
