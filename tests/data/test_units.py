"""Queries are drawn whole and equally often, beside rows of other kinds; of many candidates the right ones stay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from helpers import MOOD, chosen, padding_of, some_queries, some_tokens
from understill.data.batch import Batch, Stream
from understill.data.batches import Batches
from understill.data.sampling import Part, shares
from understill.data.tokens import Tokens
from understill.data.units import queries_of, spans
from understill.recipe.schema import Sampling

MODES: list[Literal["mixed", "one_task"]] = ["mixed", "one_task"]
SIZES = st.lists(st.integers(2, 7), min_size=1, max_size=12)


def batches(
    candidates: Sequence[int], *, most: int | None = None, rows: int = 30, batch: int = 4, **changes: object
) -> Batches:
    """Return batches of queries whose rows lie scattered, and of as many rows of another task."""
    tokens, groups = some_queries(candidates, shuffled=True)
    streams = [Stream(1, [tokens], groups=groups, most=most)]
    if rows:
        streams.insert(0, Stream(0, [some_tokens(MOOD, rows)]))
    return Batches(streams, **{"batch": batch, "seed": 0, "window": 2, **changes})  # type: ignore[arg-type]


def queries_in(source: Batches, step: int) -> list[tuple[int, tuple[int, ...]]]:
    """Return the queries of a step: which, and which rows of it."""
    rows, groups = source.rows(step), source.streams[-1].groups
    assert groups is not None
    result = []
    for unit in np.unique(rows.group):
        here = rows.group == unit
        if source.streams[rows.stream[here][0]].groups is not None:
            (query,) = set(groups[rows.row[here]].tolist())
            result.append((query, tuple(rows.row[here].tolist())))
    return result


@settings(max_examples=60)
@given(sizes=SIZES, batch=st.integers(1, 6), mode=st.sampled_from(MODES), rows=st.sampled_from([0, 1, 17]))
def test_queries_come_whole_and_equally_often_and_every_batch_has_its_units(
    sizes: list[int], batch: int, mode: Literal["mixed", "one_task"], rows: int
) -> None:
    source = batches(sizes, batch=batch, mode=mode, rows=rows)
    groups = source.streams[-1].groups
    assert groups is not None
    count: Counter[int] = Counter()
    for step in range(2 * source.steps_per_epoch):
        drawn = source.rows(step)
        assert len(np.unique(drawn.group)) == batch
        assert (np.diff(drawn.group) >= 0).all(), "rows of a query stand side by side"
        for query, mine in queries_in(source, step):
            assert list(mine) == np.flatnonzero(groups == query).tolist()
            count[query] += 1
    often = [count[query] for query in range(len(sizes))]
    assert max(often) - min(often) <= 1 and sum(often) == 2 * source.draws[-1]


@settings(max_examples=40)
@given(sizes=SIZES, rows=st.integers(1, 40), power=st.sampled_from([0.0, 0.5, 1.0]), copies=st.booleans())
def test_tasks_are_sampled_by_queries_not_by_candidates(
    sizes: list[int], rows: int, power: float, copies: bool
) -> None:
    sampling = Sampling(power=power, copies=copies)
    source = batches(sizes, rows=rows, sampling=sampling)
    expected = shares([Part(0, rows), Part(1, len(sizes))], 4, "mixed", sampling)
    assert source.draws.tolist() == expected.draws.tolist()


def test_a_batch_says_which_rows_belong_together_and_other_rows_are_alone() -> None:
    source = batches([3, 2, 5, 4], rows=12)
    groups = source.streams[1].groups
    assert groups is not None
    for step in range(3 * source.steps_per_epoch):
        batch = source[step]
        assert batch.group.dtype == torch.int64 and len(batch.group) == len(batch)
        for unit in batch.group.unique():
            here = batch.group == unit
            if batch.task[here][0] == 1:
                assert len(set(groups[batch.row[here].numpy()])) == 1 and here.sum() >= 2
            else:
                assert here.sum() == 1
        assert (
            batch.gold[batch.task == 1].tolist()
            == source.streams[1].sources[0].gold[batch.row[batch.task == 1].numpy()].tolist()
        )


def pieces(batch: Batch, units: int) -> list[Batch]:
    return [batch.part(rows) for rows in batch.cut(units)]


@given(sizes=SIZES, batch=st.integers(1, 8), units=st.integers(1, 9), step=st.integers(0, 20))
@settings(max_examples=60)
def test_cutting_a_batch_never_cuts_a_query(sizes: list[int], batch: int, units: int, step: int) -> None:
    whole = batches(sizes, batch=batch)[step]
    parts = pieces(whole, units)
    assert torch.equal(torch.cat([part.row for part in parts]), whole.row)
    assert [len(part.group.unique()) for part in parts[:-1]] == [units] * (len(parts) - 1)
    assert sum(len(part.group.unique()) for part in parts) == batch
    assert 1 <= len(parts[-1].group.unique()) <= units


def test_without_queries_a_batch_is_cut_by_rows() -> None:
    batch = Batches([Stream(0, [some_tokens(MOOD, 20)])], batch=7, seed=0)[0]
    assert batch.cut(3) == [slice(0, 3), slice(3, 6), slice(6, 7)]
    assert batch.cut(7) == batch.cut(50) == [slice(0, 7)]


# Lengths -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_a_query_is_as_long_as_its_longest_candidate(mode: Literal["mixed", "one_task"]) -> None:
    source = batches([4] * 20, rows=40, mode=mode, sizes=range(1, 33))
    for step in range(source.steps_per_epoch):
        batch = source[step]
        assert batch.ids.shape[1] == batch.lengths.max()
        assert source.padding_share(step, step + 1) == pytest.approx(padding_of(batch))


def test_where_queries_are_cut_the_padding_is_known_about() -> None:
    source = batches([30] * 20, rows=0, most=5)
    cells = sum(source[step].ids.numel() for step in range(source.steps_per_epoch))
    tokens = sum(int(source[step].lengths.sum()) for step in range(source.steps_per_epoch))
    assert source.padding_share(0, source.steps_per_epoch) == pytest.approx(1 - tokens / cells, abs=0.05)


def test_queries_are_sorted_by_length_in_a_window() -> None:
    def share(window: int) -> float:
        tokens, groups = some_queries([2] * 400)
        lengths = np.repeat(np.random.default_rng(0).integers(6, 60, 400), 2)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        tokens = replace(tokens, ids=np.full(offsets[-1], 9, np.uint16), offsets=offsets, max_length=64)
        source = Batches([Stream(0, [tokens], groups=groups)], batch=8, seed=0, window=window)
        return source.padding_share(0, source.steps_per_epoch)

    assert share(16) < 0.5 * share(1)


# Some candidates only ------------------------------------------------------------------------------------------------


@settings(max_examples=100)
@given(
    right=st.lists(st.lists(st.booleans(), min_size=1, max_size=9), min_size=1, max_size=8),
    most=st.integers(2, 6),
    step=st.integers(0, 5),
)
def test_of_too_many_candidates_the_right_ones_stay_and_one_wrong_one_at_least(
    right: list[list[bool]], most: int, step: int
) -> None:
    right = [[True, *each, False] for each in right]  # there is a choice in each
    sizes = [len(each) for each in right]
    tokens, groups = some_queries(sizes)
    tokens = replace(tokens, gold=np.concatenate(right).astype(np.float32))
    source = Batches([Stream(0, [tokens], groups=groups, most=most)], batch=3, seed=0)
    for query, rows in queries_in(source, step):
        gold = tokens.gold[list(rows)]
        assert len(rows) == len(set(rows)) == min(sizes[query], most)
        assert gold.sum() == min(sum(right[query]), len(rows) - 1 if sizes[query] > most else sizes[query])
        assert list(rows) == sorted(rows)


def test_wrong_candidates_are_drawn_anew_each_time_and_all_have_their_turn() -> None:
    source = batches([8, 8, 8], most=3, rows=0, batch=3)
    drawn: dict[int, list[tuple[int, ...]]] = {query: [] for query in range(3)}
    for step in range(200 * source.steps_per_epoch):
        for query, rows in queries_in(source, step):
            drawn[query].append(rows)
    gold, groups = source.streams[0].sources[0].gold, source.streams[0].groups
    for query, draws in drawn.items():
        wrong = np.flatnonzero((groups == query) & (gold == 0))
        count = Counter(row for rows in draws for row in rows if not gold[row])
        expected = sum(count.values()) / len(wrong)
        assert set(count) == set(wrong.tolist())
        assert all(abs(often - expected) < 5 * expected**0.5 for often in count.values())


def test_which_candidates_take_part_follows_from_seed_and_step_alone() -> None:
    source = batches([9] * 6, most=3)
    steps = list(range(4 * source.steps_per_epoch))
    forward = [queries_in(source, step) for step in steps]
    again = batches([9] * 6, most=3)
    assert [queries_in(again, step) for step in steps[::-1]] == forward[::-1]
    assert [queries_in(batches([9] * 6, most=3, seed=1), step) for step in steps] != forward


def test_without_labels_any_candidates_are_drawn() -> None:
    tokens, groups = some_queries([6] * 5)
    unknown = replace(tokens, gold=np.full(len(tokens), np.nan, np.float32))
    source = Batches([Stream(0, [unknown], groups=groups, most=4)], batch=5, seed=0)
    seen = {row for step in range(100) for _, rows in queries_in(source, step) for row in rows}
    assert seen == set(range(30)) and all(len(rows) == 4 for _, rows in queries_in(source, 3))


# Rows and their order ------------------------------------------------------------------------------------------------


def test_of_some_rows_only_their_queries_are_drawn() -> None:
    tokens, groups = some_queries([3, 4, 2, 5], shuffled=True)
    kept = np.flatnonzero(np.isin(groups, [0, 3]))
    source = Batches([Stream(0, [tokens], kept, groups=groups)], batch=2, seed=0)
    assert source.draws.tolist() == [2]
    assert {query for step in range(6) for query, _ in queries_in(source, step)} == {0, 3}


def mixed_up(tokens: Tokens, groups: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows with those of each query in another order, in the places that the query has."""
    order = np.arange(len(groups))
    for query in np.unique(groups):
        here = np.flatnonzero(groups == query)
        order[here] = here[::-1]
    return order


def test_the_order_of_candidates_does_not_change_which_queries_a_step_has() -> None:
    tokens, groups = some_queries([4, 3, 6, 2, 5])
    order = mixed_up(tokens, groups)
    one = Batches([Stream(0, [tokens], groups=groups)], batch=2, seed=0)
    two = Batches([Stream(0, [chosen(tokens, order)], groups=groups)], batch=2, seed=0)
    for step in range(10):
        first, second = one[step], two[step]
        assert sorted(first.ids.tolist()) == sorted(second.ids.tolist())
        assert first.ids.tolist() != second.ids.tolist()


def test_what_teachers_say_stays_with_its_candidate() -> None:
    tokens, groups = some_queries([4, 3, 6], shuffled=True)
    teacher_logits = np.arange(13, dtype=np.float32)[:, None]
    source = Batches([Stream(0, [tokens], columns={"logits": teacher_logits}, groups=groups, most=3)], batch=3, seed=0)
    for step in range(5):
        assert torch.equal(source[step].columns["logits"][:, 0].long(), source[step].row)


def test_both_orders_of_the_texts_are_two_units() -> None:
    tokens, groups = some_queries([3, 4])
    other = replace(tokens, ids=tokens.ids[::-1].copy())
    source = Batches([Stream(0, [tokens, other], groups=groups)], batch=4, seed=0)
    rows = source.rows(0)
    assert source.draws.tolist() == [4]
    assert sorted(zip(rows.source.tolist(), rows.row.tolist(), strict=True)) == [
        (s, r) for s in (0, 1) for r in range(7)
    ]


def test_queries_keep_the_order_of_their_numbers() -> None:
    result = queries_of(np.array([2, 0, 2, 1, 0]), None, np.zeros(5, bool), None)
    assert result.rows.tolist() == [1, 4, 3, 0, 2] and result.starts.tolist() == [0, 2, 3, 5]
    assert spans(np.array([5, 0]), np.array([2, 3])).tolist() == [5, 6, 0, 1, 2]
