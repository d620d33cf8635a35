"""Batches are full, fair, the same whenever they are asked for, and hold what the tokens hold."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from helpers import padding_of
from understill.data.batch import PADDED, Batch, Stream, assemble, in_order, padded, sizes_on, sizes_up_to
from understill.data.batches import Batches
from understill.data.sampling import apportion
from understill.data.tokens import Tokens
from understill.recipe.schema import Sampling

PAD = 7


def make(rows: int, seed: int = 0, longest: int = 40, max_length: int = 64) -> Tokens:
    """Make up rows whose ids tell where they come from."""
    random = np.random.default_rng(seed)
    lengths = random.integers(3, longest + 1, rows)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ids = (np.arange(offsets[-1]) % 5000 + 100).astype(np.uint16)
    second = np.minimum(lengths, random.integers(2, longest + 1, rows)).astype(np.uint16)
    gold = random.integers(0, 3, rows).astype(np.float32)
    gold[::5] = np.nan
    return Tokens(Path("nowhere"), ids, offsets, second, gold, max_length, PAD)


def streams(tasks: list[list[Tokens]]) -> list[Stream]:
    return [Stream(task, sources) for task, sources in enumerate(tasks)]


def batches(sizes: list[int], *, both: bool = False, **options: Any) -> Batches:
    tasks = [[make(size, 2 * task + order) for order in range(1 + both)] for task, size in enumerate(sizes)]
    return Batches(streams(tasks), **{"batch": 4, "seed": 0, "mode": "mixed", "window": 4, **options})


def equal(one: Batch, two: Batch) -> bool:
    first, second = ({**vars(each), **each.columns, "columns": torch.tensor(len(each.columns))} for each in (one, two))
    return all(torch.equal(first[name].nan_to_num(-1), second[name].nan_to_num(-1)) for name in first | second)


def seen(source: Batches, steps: range) -> Counter[tuple[int, int, int]]:
    """Count how often each row of each task was drawn, in either order."""
    count: Counter[tuple[int, int, int]] = Counter()
    for step in steps:
        rows = source.rows(step)
        count.update(zip(rows.stream.tolist(), rows.source.tolist(), rows.row.tolist(), strict=True))
    return count


TASK_SIZES = st.lists(st.integers(1, 60), min_size=1, max_size=5)
POWERS = st.sampled_from([0.0, 0.5, 0.75, 1.0])
MODES: list[Literal["mixed", "one_task"]] = ["mixed", "one_task"]


@given(shares=st.lists(st.floats(0.001, 1000), min_size=1, max_size=8), extra=st.integers(0, 1000))
def test_shares_are_within_one_of_their_target_and_never_none(shares: list[float], extra: int) -> None:
    total = len(shares) + extra
    counts = apportion(np.array(shares), total)
    targets = np.array(shares) / sum(shares) * total
    assert counts.sum() == total and counts.min() >= 1
    if targets.min() >= 1:
        assert np.abs(counts - targets).max() < 1 + 1e-5


@settings(max_examples=60, deadline=None)
@given(sizes=TASK_SIZES, batch=st.integers(1, 9), power=POWERS, copies=st.booleans(), mode=st.sampled_from(MODES))
def test_every_batch_is_full_and_an_epoch_has_the_rows_it_says(
    sizes: list[int], batch: int, power: float, copies: bool, mode: Literal["mixed", "one_task"]
) -> None:
    source = batches(sizes, batch=batch, mode=mode, sampling=Sampling(power=power, copies=copies))
    drawn: Counter[int] = Counter()
    for step in range(source.steps_per_epoch):
        rows = source.rows(step)
        assert len(rows.stream) == len(rows.row) == batch
        drawn.update(rows.stream.tolist())
    assert [drawn[task] for task in range(len(sizes))] == source.draws.tolist()
    assert source.draws.sum() >= sum(sizes)


@settings(max_examples=60, deadline=None)
@given(sizes=TASK_SIZES, batch=st.integers(1, 9), power=POWERS)
def test_mixed_batches_give_each_task_its_share_within_one(sizes: list[int], batch: int, power: float) -> None:
    source = batches(sizes, batch=batch, sampling=Sampling(power=power))
    total = -(-sum(sizes) // batch) * batch
    mass = np.array(sizes, float) ** power
    targets = mass / mass.sum() * total
    assert source.draws.sum() == total
    if targets.min() >= 1:
        assert np.abs(source.draws - targets).max() < 1 + 1e-5


@settings(max_examples=60, deadline=None)
@given(
    sizes=TASK_SIZES, power=POWERS, copies=st.booleans(), both=st.booleans(), mode=st.sampled_from(MODES),
    epochs=st.integers(1, 4),
)  # fmt: skip
def test_the_rows_of_a_task_are_seen_equally_often(
    sizes: list[int], power: float, copies: bool, both: bool, mode: Literal["mixed", "one_task"], epochs: int
) -> None:
    source = batches(sizes, both=both, mode=mode, sampling=Sampling(power=power, copies=copies))
    count = seen(source, range(epochs * source.steps_per_epoch))
    for task, size in enumerate(sizes):
        often = [count[task, order, row] for order in range(1 + both) for row in range(size)]
        assert max(often) - min(often) <= 1
        assert sum(often) == epochs * source.draws[task]


@settings(max_examples=40, deadline=None)
@given(sizes=TASK_SIZES, batch=st.integers(1, 6))
def test_one_task_batches_hold_one_task_and_leave_none_out(sizes: list[int], batch: int) -> None:
    source = batches(sizes, batch=batch, mode="one_task")
    tasks = [set(source.rows(step).stream.tolist()) for step in range(source.steps_per_epoch)]
    assert all(len(task) == 1 for task in tasks)
    assert set.union(*tasks) == set(range(len(sizes)))


@settings(max_examples=60, deadline=None)
@given(sizes=TASK_SIZES, batch=st.integers(1, 6), power=POWERS, mode=st.sampled_from(MODES))
def test_copies_and_weights_give_exactly_the_share_of_the_power(
    sizes: list[int], batch: int, power: float, mode: Literal["mixed", "one_task"]
) -> None:
    source = batches(sizes, batch=batch, mode=mode, sampling=Sampling(power=power, copies=True))
    weight = np.zeros(len(sizes))
    for step in range(source.steps_per_epoch):
        np.add.at(weight, source.rows(step).stream, source.weights[source.rows(step).stream])
    mass = np.array(sizes, float) ** power
    np.testing.assert_allclose(weight / weight.sum(), mass / mass.sum())
    np.testing.assert_allclose(weight.sum(), source.draws.sum())  # the mean weight is 1


def test_copies_are_whole_and_weights_make_up_the_rest() -> None:
    source = batches([16, 64], sampling=Sampling(power=0.5, copies=True), weights=[1.0, 3.0])
    # Target masses 80/3 and 160/3: two copies of the first (32 draws), one of the second (64 draws).
    assert source.copies is not None
    assert source.copies.tolist() == [2, 1]
    assert source.draws.tolist() == [32, 64]
    np.testing.assert_allclose(source.weights, [96 / 3 / 32, 3 * 96 * 2 / 3 / 64])


def test_both_orders_make_a_task_count_twice() -> None:
    tasks = [[make(10, 0), make(10, 1)], [make(20, 2)]]
    source = Batches(streams(tasks), batch=8, seed=0, window=2)
    assert source.draws.tolist() == [20, 20]
    assert set(seen(source, range(source.steps_per_epoch)).values()) == {1}


@pytest.mark.parametrize("mode", MODES)
def test_a_batch_is_the_same_whenever_and_in_whatever_order_it_is_asked_for(mode: Literal["mixed", "one_task"]) -> None:
    source = batches([30, 50, 7], mode=mode)
    steps = list(range(5 * source.steps_per_epoch))
    forward = [source[step] for step in steps]
    fresh = batches([30, 50, 7], mode=mode)
    shuffled = np.random.default_rng(1).permutation(steps).tolist()
    assert all(equal(fresh[step], forward[step]) for step in shuffled)
    assert equal(batches([30, 50, 7], mode=mode)[40], forward[40])


def test_the_stream_of_rows_is_the_same_on_every_machine() -> None:
    """Written down once: a change here changes every run that is repeated or resumed."""
    tokens = make(300)
    offsets = np.concatenate([[0], np.cumsum(3 + np.arange(300) * 7 % 30)])
    tokens = replace(tokens, offsets=offsets)
    rows = Batches(streams([[tokens], [tokens]]), batch=8, seed=3, window=4, sampling=Sampling(power=0.75)).rows(1234)
    assert rows.stream.tolist() == [1, 0, 1, 1, 0, 1, 1, 0]
    assert rows.row.tolist() == [270, 270, 236, 266, 249, 202, 181, 254]


@pytest.mark.parametrize("mode", MODES)
def test_seeds_and_epochs_differ(mode: Literal["mixed", "one_task"]) -> None:
    def first(seed: int, epoch: int) -> list[list[int]]:
        source = batches([40, 40], seed=seed, mode=mode)
        start = epoch * source.steps_per_epoch
        return [source.rows(start + step).row.tolist() for step in range(source.steps_per_epoch)]

    plans = [first(0, 0), first(1, 0), first(0, 1), first(0, 2)]
    assert all(one != two for one, two in pairwise(plans))
    packed = [{frozenset(rows) for rows in plan} for plan in plans]
    assert all(one != two for one, two in pairwise(packed)), "the same batches in another order"


def test_a_step_before_the_first_is_refused() -> None:
    with pytest.raises(IndexError, match="count from 0"):
        batches([5])[-1]


@pytest.mark.parametrize("tasks", [[[]], [[make(0)]], [[make(3), make(4)]], [[make(3)] * 3]])
def test_a_task_needs_rows_in_one_or_both_orders(tasks: list[list[Tokens]]) -> None:
    with pytest.raises(ValueError, match="a task needs rows"):
        Batches(streams(tasks), batch=2, seed=0)


def test_a_tiny_task_beside_a_large_one_is_walked_through_many_times() -> None:
    source = batches([3, 20_000], batch=50, sampling=Sampling(power=0.0))
    count = seen(source, range(source.steps_per_epoch))
    assert source.draws.tolist() == [10_025, 10_025]
    assert sorted(count[0, 0, row] for row in range(3)) == [3341, 3342, 3342]


@pytest.mark.parametrize("mode", MODES)
def test_a_batch_holds_what_the_tokens_hold(mode: Literal["mixed", "one_task"]) -> None:
    source = batches([30, 50], both=True, mode=mode, weights=[1.0, 0.5], batch=8)
    for step in range(3 * source.steps_per_epoch):
        rows, batch = source.rows(step), source[step]
        assert batch.ids.shape == (8, rows.length)
        assert rows.length == padded(int(batch.lengths.max()), source.sizes)
        for place, (task, order, row) in enumerate(zip(rows.stream, rows.source, rows.row, strict=True)):
            tokens = source.streams[task].sources[order]
            ids = tokens.ids[tokens.offsets[row] : tokens.offsets[row + 1]].tolist()
            assert batch.ids[place].tolist() == ids + [PAD] * (rows.length - len(ids))
            assert batch.mask[place].tolist() == [True] * len(ids) + [False] * (rows.length - len(ids))
            start = tokens.second[row]
            assert batch.types[place].tolist() == [int(start <= cell < len(ids)) for cell in range(rows.length)]
            facts = (batch.lengths, batch.second, batch.task, batch.row, batch.weight)
            assert [float(fact[place]) for fact in facts] == [len(ids), start, task, row, [1.0, 0.5][task]]
            np.testing.assert_equal(float(batch.gold[place]), float(tokens.gold[row]))


def test_tensors_have_the_agreed_types_and_parts_are_views() -> None:
    batch = batches([20])[0]
    kinds = {name: getattr(batch, name).dtype for name in ("ids", "lengths", "second", "task", "row", "types")}
    assert set(kinds.values()) == {torch.int64}
    assert batch.gold.dtype == batch.weight.dtype == torch.float32
    assert batch.mask.dtype == torch.bool
    part = batch.part(slice(1, 3))
    assert len(part) == 2 and part.ids.data_ptr() == batch.ids[1].data_ptr()
    assert equal(batch.to("cpu"), batch)
    assert batch.to("meta").types.device.type == "meta"


@pytest.mark.parametrize("rows", [1, 10, 33])
def test_in_order_goes_through_every_row_once_longest_first(rows: int) -> None:
    tokens = make(rows)
    pieces = list(in_order(tokens, 2, 8))
    order = torch.cat([piece.row for piece in pieces])
    assert sorted(order.tolist()) == list(range(rows))
    assert [len(piece) for piece in pieces[:-1]] == [8] * (len(pieces) - 1)
    lengths = torch.cat([piece.lengths for piece in pieces]).tolist()
    assert lengths == sorted(lengths, reverse=True) == tokens.lengths[order.numpy()].tolist()
    assert all((piece.task == 2).all() and (piece.weight == 1).all() for piece in pieces)
    last = pieces[-1]
    assert last.ids[-1].tolist()[: lengths[-1]] == tokens.ids[tokens.offsets[order[-1]] :][: lengths[-1]].tolist()
    assert not list(in_order(make(0), 0, 8))


def test_lengths_are_padded_to_a_few_sizes_and_never_past_the_longest_allowed() -> None:
    assert [padded(length) for length in (1, 16, 17, 100, 512, 513, 1025)] == [16, 16, 24, 128, 512, 640, 1152]
    assert sizes_up_to(0) == PADDED
    assert sizes_up_to(40) == (16, 24, 32, 40)
    assert sizes_up_to(128) == (16, 24, 32, 48, 64, 96, 128)
    source = Batches(streams([[make(200, longest=40, max_length=40)]]), batch=4, seed=0)
    assert {source.rows(step).length for step in range(source.steps_per_epoch)} <= {16, 24, 32, 40}


def test_a_processor_pads_to_the_longest_row_and_a_gpu_to_a_few_sizes() -> None:
    assert sizes_on("cuda", 40) == sizes_up_to(40)
    assert sizes_on("cuda", 40, light=True) == sizes_on("cpu", 40)
    assert [padded(length, sizes_on("cpu", 0)) for length in (1, 17, 512, 513)] == [1, 17, 512, 640]
    source = Batches(streams([[make(200, longest=40)]]), batch=4, seed=0, sizes=sizes_on("cpu", 40))
    for step in range(source.steps_per_epoch):
        assert source[step].ids.shape[1] == source[step].lengths.max()


@pytest.mark.parametrize("mode", MODES)
def test_sorting_by_length_in_a_window_saves_padding(mode: Literal["mixed", "one_task"]) -> None:
    def share(window: int) -> float:
        source = batches([2000, 500], batch=16, mode=mode, window=window)
        return source.padding_share(0, source.steps_per_epoch)

    assert share(16) < 0.6 * share(1)


def test_the_padding_share_is_that_of_the_batches() -> None:
    source = batches([40, 30], batch=4)
    steps = range(3, 2 * source.steps_per_epoch + 2)
    cells = sum(source[step].ids.numel() for step in steps)
    tokens = sum(int(source[step].lengths.sum()) for step in steps)
    assert source.padding_share(steps.start, steps.stop) == pytest.approx(1 - tokens / cells)
    assert padding_of(source[5]) == pytest.approx(source.padding_share(5, 6))
    assert source.padding_share(4, 4) == 0


def test_rows_alone_are_enough_to_make_the_batch() -> None:
    source = batches([40, 30])
    assert equal(assemble(source.streams, source.rows(9), source.weights, source.pad), source[9])


# Some rows only, unlabelled rows, and what teachers say --------------------------------------------------------------


SUBSETS = st.lists(st.sets(st.integers(0, 29), min_size=1), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(subsets=SUBSETS, both=st.booleans(), mode=st.sampled_from(MODES), epochs=st.integers(1, 3))
def test_of_some_rows_only_these_are_drawn_and_equally_often(
    subsets: list[set[int]], both: bool, mode: Literal["mixed", "one_task"], epochs: int
) -> None:
    parts = [
        Stream(task, [make(30, 2 * task + order) for order in range(1 + both)], rows=np.array(sorted(some)))
        for task, some in enumerate(subsets)
    ]
    source = Batches(parts, batch=4, seed=0, mode=mode, window=2)
    count = seen(source, range(epochs * source.steps_per_epoch))
    for task, some in enumerate(subsets):
        drawn = {(order, row) for stream, order, row in count if stream == task}
        assert {row for _, row in drawn} <= some
        often = [count[task, order, row] for order in range(1 + both) for row in some]
        assert max(often) - min(often) <= 1
        assert sum(often) == epochs * source.draws[task]
    assert source.draws.sum() >= sum(len(some) * (1 + both) for some in subsets)


def test_some_rows_come_as_they_are_in_all_of_them_and_their_lengths_are_their_own() -> None:
    tokens, chosen = make(300), np.arange(7, 300, 11)
    source = Batches([Stream(0, [tokens], rows=chosen)], batch=4, seed=0, window=4)
    for step in range(source.steps_per_epoch):
        batch = source[step]
        assert set(batch.row.tolist()) <= set(chosen.tolist())
        assert batch.lengths.tolist() == tokens.lengths[batch.row.numpy()].tolist()
        assert source.padding_share(step, step + 1) == pytest.approx(padding_of(batch))
        for place, row in enumerate(batch.row.tolist()):
            ids = tokens.ids[tokens.offsets[row] : tokens.offsets[row + 1]].tolist()
            assert batch.ids[place, : len(ids)].tolist() == ids
    with pytest.raises(ValueError, match="a task needs rows"):
        Batches([Stream(0, [tokens], rows=chosen[:0])], batch=4, seed=0)


SHARED = st.lists(st.tuples(st.integers(20, 80), st.floats(0.1, 0.8) | st.none()), min_size=1, max_size=4)


def with_unlabelled(tasks: list[tuple[int, float | None]]) -> list[Stream]:
    """Return the labelled rows of each task, and 35 unlabelled ones of those that have a share of them."""
    labelled = [Stream(task, [make(size, task)]) for task, (size, _) in enumerate(tasks)]
    more = [Stream(task, [make(35, 50 + task)], share=share) for task, (_, share) in enumerate(tasks) if share]
    return [*labelled, *more]


@settings(max_examples=150, deadline=None)
@given(
    tasks=SHARED, batch=st.integers(1, 9), power=POWERS, copies=st.booleans(), mode=st.sampled_from(MODES)
)  # fmt: skip
def test_unlabelled_rows_make_up_their_share_of_a_task_and_come_on_top_of_its_labelled_ones(
    tasks: list[tuple[int, float | None]], batch: int, power: float, copies: bool, mode: Literal["mixed", "one_task"]
) -> None:
    parts, sampling = with_unlabelled(tasks), Sampling(power=power, copies=copies)
    source = Batches(parts, batch=batch, seed=0, mode=mode, sampling=sampling)
    alone = Batches(parts[: len(tasks)], batch=batch, seed=0, mode=mode, sampling=sampling)
    sizes = np.array([size for size, _ in tasks])
    mass = sizes**power / (sizes**power).sum() * sizes.sum()
    wanted = np.maximum(1, np.rint(mass / sizes)) * sizes if copies else mass
    unit = batch if mode == "one_task" else 1  # what is rounded to
    assume(min(wanted) >= 10 * unit)
    drawn: Counter[int] = Counter()
    for step in range(source.steps_per_epoch):
        drawn.update(source.rows(step).stream.tolist())
    assert [drawn[stream] for stream in range(len(parts))] == source.draws.tolist()
    for both, labelled in ((source, wanted), (alone, wanted)):
        # The last batch is filled up, by less than one batch for all streams together.
        most = labelled * (1 + batch / labelled.sum())
        assert (both.draws[: len(tasks)] > labelled - unit - 1e-3).all()
        assert (both.draws[: len(tasks)] < most + unit + 1e-3).all()
    for place in range(len(tasks), len(parts)):
        task, share = parts[place].task, parts[place].share
        both_kinds = drawn[task] + drawn[place]
        assert abs(drawn[place] - share * both_kinds) < unit + 1e-3


@settings(max_examples=60, deadline=None)
@given(tasks=SHARED, power=POWERS, mode=st.sampled_from(MODES))
def test_with_copies_the_weights_give_unlabelled_rows_exactly_their_share(
    tasks: list[tuple[int, float | None]], power: float, mode: Literal["mixed", "one_task"]
) -> None:
    parts = with_unlabelled(tasks)
    source = Batches(parts, batch=4, seed=0, mode=mode, sampling=Sampling(power=power, copies=True))
    weight = source.weights * source.draws
    for place in range(len(tasks), len(parts)):
        total = weight[place] + weight[parts[place].task]
        np.testing.assert_allclose(weight[place] / total, parts[place].share)
    mass = np.array([size for size, _ in tasks], float) ** power
    np.testing.assert_allclose(weight[: len(tasks)] / weight[: len(tasks)].sum(), mass / mass.sum())
    np.testing.assert_allclose(weight.sum(), source.draws.sum())


@pytest.mark.parametrize("mode", MODES)
def test_unlabelled_rows_are_seen_equally_often_and_carry_the_number_and_weight_of_their_task(
    mode: Literal["mixed", "one_task"],
) -> None:
    parts = with_unlabelled([(40, None), (60, 0.5), (30, 0.25)])
    source = Batches(parts, batch=5, seed=0, mode=mode, weights=[1.0, 2.0, 3.0])
    count = seen(source, range(3 * source.steps_per_epoch))
    for stream, part in enumerate(parts):
        often = [count[stream, 0, row] for row in range(len(part))]
        assert max(often) - min(often) <= 1
    for step in range(source.steps_per_epoch):
        rows, batch = source.rows(step), source[step]
        assert batch.task.tolist() == [[0, 1, 2, 1, 2][stream] for stream in rows.stream]
        assert batch.weight.tolist() == [[1, 2, 3][task] for task in batch.task]
        assert mode == "mixed" or len(set(rows.stream.tolist())) == 1


def teacher_logits(rows: int, outputs: int, seed: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return what a teacher might say: some rows it has not seen."""
    values = np.random.default_rng(seed).normal(size=(rows, outputs)).astype(np.float32)
    values[::7] = np.nan
    return values


@pytest.mark.parametrize("mode", MODES)
def test_what_a_teacher_says_of_a_row_arrives_with_that_row(mode: Literal["mixed", "one_task"]) -> None:
    chosen, margin = np.arange(3, 40, 2), np.linspace(0, 1, 25, dtype=np.float32)
    parts = [
        Stream(0, [make(40, 0), make(40, 1)], rows=chosen, columns={"logits": teacher_logits(40, 2, 0)}),
        Stream(1, [make(30, 2)], columns={"logits": teacher_logits(30, 3, 1).astype(np.float16)}),
        Stream(2, [make(20, 3)]),
        Stream(0, [make(25, 4)], columns={"logits": teacher_logits(25, 2, 2), "margin": margin}, share=0.5),
    ]
    source = Batches(parts, batch=8, seed=0, mode=mode)
    for step in range(2 * source.steps_per_epoch):
        rows, batch = source.rows(step), source[step]
        assert batch.columns["logits"].shape == (8, 3) and batch.columns["margin"].shape == (8,)
        for place, (stream, row) in enumerate(zip(rows.stream, rows.row, strict=True)):
            teacher = parts[stream].columns.get("logits")
            own = np.zeros(0) if teacher is None else teacher[row].astype(np.float32)
            expected = np.concatenate([own, np.full(3 - len(own), np.nan)])
            np.testing.assert_array_equal(batch.columns["logits"][place].numpy(), expected)
            np.testing.assert_array_equal(
                batch.columns["margin"][place].numpy(), margin[row] if stream == 3 else np.nan
            )
        assert batch.part(slice(2, 5)).columns["logits"].shape == (3, 3)


def test_a_teacher_adds_its_column_and_changes_nothing_else() -> None:
    tokens = [make(40, 0), make(30, 1)]
    without = Batches(streams([[each] for each in tokens]), batch=4, seed=0)
    taught = Batches(
        [Stream(task, [each], columns={"logits": teacher_logits(len(each), 2, 0)}) for task, each in enumerate(tokens)],
        batch=4,
        seed=0,
    )
    for step in range(2 * without.steps_per_epoch):
        assert without[step].columns == {}
        assert taught[step].columns["logits"].shape == (4, 2)
        assert equal(replace(taught[step], columns={}), without[step])
    assert next(in_order(tokens[0], 0, 8)).columns == {}


def test_a_task_keeps_its_number_when_it_is_the_only_one() -> None:
    assert set(Batches([Stream(5, [make(9)])], batch=3, seed=0)[0].task.tolist()) == {5}
