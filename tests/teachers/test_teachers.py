"""Teachers answer in the order of the task's labels, folds keep to rows they have not seen, and bad ones are found."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import MOOD, STARS, TASKS, TOPIC, liven, some_model
from understill.data.augment import AugmentRules, write_augmented
from understill.data.taskdata import TaskData
from understill.data.tokens import encode
from understill.errors import UserError
from understill.evaluate.predict import predict
from understill.models.encoder import load_tokenizer
from understill.models.folder import ModelFolder
from understill.tasks import Task
from understill.teachers.folds import FoldedTeacher, fold_of
from understill.teachers.label_map import by_name, match_labels
from understill.teachers.trained import ModelTeacher, NetworkTeacher
from understill.teachers.verdict import examine

Stand = Callable[..., TaskData]
WORDS = ["parcel", "order", "account", "password", "film", "guitar", "man", "please", "twice", "locked", "good", "long"]
TEXTS = [f"the {one} and my {two} are {three}" for one in WORDS for two in WORDS[:2] for three in ("good", "locked !")]
PAIRS = [(text, TEXTS[-number]) for number, text in enumerate(TEXTS)]


@pytest.fixture(scope="module")
def models(tiny: Path) -> list[ModelFolder]:
    """Three models with the same tasks and other weights."""
    made = []
    for seed in range(3):
        model = some_model(tiny, seed=seed).eval()
        liven(model)
        for weight in model.heads.parameters():
            weight.data *= seed + 1
        made.append(
            ModelFolder(tiny, model, load_tokenizer(str(tiny)), {"mood": 32, "topic": 24, "stars": 16}, {}, False)
        )
    return made


def teacher_of(folder: ModelFolder, cache: Path, **changes: Any) -> ModelTeacher:
    return ModelTeacher("old", "0" * 32, folder, cache, 7, "cpu", **changes)


def expected(folder: ModelFolder, task: Task, texts: list[Any]) -> np.ndarray[Any, Any]:
    tokens = encode(texts, folder.tokenizer, folder.max_lengths[task.name])
    return predict(folder.model, tokens, task, len(texts)).logits


# Models --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("task", "texts"), [(MOOD, TEXTS), (TOPIC, PAIRS), (STARS, TEXTS)])
def test_a_model_says_what_it_predicts(
    task: Task, texts: list[Any], models: list[ModelFolder], stand: Stand, tmp_path: Path
) -> None:
    done: list[int] = []
    output = teacher_of(models[0], tmp_path).logits(stand(task, texts), done.append)
    assert output.dtype == np.float32 and output.std(axis=0).min() > 0.01
    np.testing.assert_allclose(output, expected(models[0], task, texts), atol=1e-5)
    assert sum(done) == len(texts) and len(done) > 1


def test_labels_are_joined_by_name(models: list[ModelFolder], stand: Stand, tmp_path: Path) -> None:
    turned = replace(TOPIC, labels=("access", "delivery", "money"))
    teacher = teacher_of(models[0], tmp_path)
    one, two = teacher.logits(stand(TOPIC, PAIRS)), teacher.logits(stand(turned, PAIRS))
    np.testing.assert_array_equal(two, one[:, [2, 0, 1]])
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(two, one, atol=0.1)


def test_a_diagnostic_set_is_answered_by_its_tasks_head(
    models: list[ModelFolder], stand: Stand, tmp_path: Path
) -> None:
    probe = replace(TOPIC, name="probe", head="topic", labels=TOPIC.labels[::-1])
    teacher = teacher_of(models[0], tmp_path)
    np.testing.assert_array_equal(teacher.logits(stand(probe, PAIRS)), teacher.logits(stand(TOPIC, PAIRS))[:, ::-1])


def test_scores_are_on_the_scale_the_model_was_trained_with(
    models: list[ModelFolder], stand: Stand, tmp_path: Path
) -> None:
    wider = replace(STARS, range=(0.0, 100.0))  # the range that other rows have shown
    output = teacher_of(models[0], tmp_path).logits(stand(wider, TEXTS))
    np.testing.assert_allclose(output, expected(models[0], STARS, TEXTS), atol=1e-5)


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (replace(MOOD, name="tone", head="tone"), "no task tone, only mood, topic and stars"),
        (replace(MOOD, labels=("calm", "angry")), "it has calm, upset, mood has calm, angry .* labels: {calm: calm"),
        (replace(MOOD, labels=("calm", "upset", "glad")), "its labels are not those of the task"),
        (replace(TOPIC, labels=("money", "access")), "its labels are not those of the task"),
        (replace(STARS, name="mood", head="mood"), "its mood is a classification task, here it is regression"),
        (replace(MOOD, text=("one", "two")), "it reads 1 text, mood has 2"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(
    task: Task, words: str, models: list[ModelFolder], stand: Stand, tmp_path: Path
) -> None:
    texts: list[Any] = PAIRS if task.pair else TEXTS
    with pytest.raises(UserError, match=words):
        teacher_of(models[0], tmp_path).logits(stand(task, texts))


def test_a_model_can_be_told_which_label_is_which(models: list[ModelFolder], stand: Stand, tmp_path: Path) -> None:
    own = stand(replace(TOPIC, labels=("post", "bank")), PAIRS)
    output = teacher_of(models[0], tmp_path, labels={"money": "bank", "delivery": "post"}).logits(own)
    plain = teacher_of(models[0], tmp_path).logits(stand(TOPIC, PAIRS))
    np.testing.assert_array_equal(output, plain[:, [0, 1]])


def test_numbers_that_are_not_finite_are_refused(tiny: Path, stand: Stand, tmp_path: Path) -> None:
    model = some_model(tiny).eval()
    model.heads.tasks[0].out.bias.data[0] = float("nan")
    folder = ModelFolder(tiny, model, load_tokenizer(str(tiny)), {task.name: 32 for task in TASKS}, {}, False)
    with pytest.raises(UserError, match="not finite for 48 rows of mood/dev"):
        teacher_of(folder, tmp_path).logits(stand(MOOD, TEXTS, split="dev"))


# Names ---------------------------------------------------------------------------------------------------------------


def test_names_match_as_written_before_they_match_loosely() -> None:
    assert by_name(["not_entailment", "Entailment"], ["ENTAILMENT", "not entailment"]) == {
        "not_entailment": 1,
        "Entailment": 0,
    }
    assert by_name(["ab", "AB"], ["AB", "a-b"]) == {"AB": 0, "ab": 1}
    assert by_name(["ab"], ["A-B", "a_b"]) == {}  # either could be meant
    assert by_name(["a b", "a-b"], ["AB"]) == {}


@given(st.permutations(["delivery", "money", "access"]), st.sampled_from([str.upper, str.title, "{}".format]))
def test_any_order_of_a_teachers_labels_is_put_right(names: list[str], spell: Callable[[str], str]) -> None:
    outputs = [spell(name) for name in names]
    places = match_labels("old", outputs, TOPIC, {})
    assert [names[place] for place in places] == list(TOPIC.labels)
    for keys in (outputs, [f"LABEL_{number}" for number in range(3)], ["0", "1", "2"]):
        assert match_labels("old", outputs, TOPIC, dict(zip(keys, names, strict=True))) == places
    numbered = ["LABEL_0", "LABEL_1", "LABEL_2"]
    assert match_labels("old", numbered, TOPIC, dict(zip("012", names, strict=True))) == places


@pytest.mark.parametrize(
    "labels",
    [
        {"x": "calm", "y": "upset", "z": "calm"},
        {"x": "calm"},
        {"x": "calm", "q": "upset"},
        {"x": "calm", "0": "upset"},
        {"x": "calm", "y": "angry"},
        {"x": "calm", "y": "upset", "z": "glad"},
    ],
)
def test_a_map_must_name_one_output_for_each_label(labels: dict[str, str]) -> None:
    with pytest.raises(UserError, match=r"teacher old: labels must .* it has x, y, z, mood has calm, upset"):
        match_labels("old", ["x", "y", "z"], MOOD, labels)


# Folds ---------------------------------------------------------------------------------------------------------------


def test_the_fold_goes_by_the_text_alone(stand: Stand) -> None:
    folds = fold_of(stand(MOOD, TEXTS), 3)
    assert np.bincount(folds, minlength=3).min() >= 8
    again = fold_of(stand(MOOD, [*TEXTS[::-1], *TEXTS], split="dev"), 3)
    np.testing.assert_array_equal(again, [*folds[::-1], *folds])


def folded(models: list[ModelFolder], cache: Path, opened: list[int], train: TaskData) -> FoldedTeacher:
    def opener(number: int) -> Callable[[], NetworkTeacher]:
        def open_model() -> NetworkTeacher:
            opened.append(number)
            return teacher_of(models[number], cache)

        return open_model

    return FoldedTeacher("folds", "0" * 32, [opener(number) for number in range(len(models))], train)


@pytest.mark.parametrize(("task", "texts"), [(MOOD, TEXTS), (TOPIC, PAIRS), (STARS, TEXTS)])
def test_each_training_row_is_answered_by_the_model_of_its_fold(
    task: Task, texts: list[Any], models: list[ModelFolder], stand: Stand, tmp_path: Path
) -> None:
    data, opened, done = stand(task, texts), [], []
    output = folded(models, tmp_path, opened, data).logits(data, done.append)
    each = np.stack([expected(model, task, texts) for model in models])
    np.testing.assert_allclose(output, each[fold_of(data, 3), np.arange(len(texts))], atol=1e-5)
    assert np.abs(each - each[0]).max() > 0.1 and opened == [0, 1, 2]
    assert sum(done) == len(texts)  # no model reads rows of another's fold


def test_a_fold_without_rows_needs_no_model(models: list[ModelFolder], stand: Stand, tmp_path: Path) -> None:
    data, opened = stand(MOOD, TEXTS[:1]), []
    output = folded(models, tmp_path, opened, data).logits(data)
    assert opened == fold_of(data, 3).tolist() and np.isfinite(output).all()


@pytest.mark.parametrize("task", [MOOD, STARS])
def test_other_rows_are_answered_by_the_mean_of_all_models(
    task: Task, models: list[ModelFolder], stand: Stand, tmp_path: Path
) -> None:
    done: list[int] = []
    data = stand(task, TEXTS, split="dev")
    train = stand(task, ["another text", "and a third"])
    output = folded(models, tmp_path, [], train).logits(data, done.append)
    each = np.stack([expected(model, task, TEXTS) for model in models])
    np.testing.assert_allclose(output, each.mean(axis=0), atol=1e-5)
    assert sum(done) == len(TEXTS)


def test_a_training_row_is_answered_by_its_fold_in_whatever_split_it_turns_up(
    models: list[ModelFolder], stand: Stand, tmp_path: Path
) -> None:
    data, train = stand(MOOD, TEXTS, split="unlabelled"), stand(MOOD, TEXTS[::2])
    output = folded(models, tmp_path, [], train).logits(data)
    each = np.stack([expected(model, MOOD, TEXTS) for model in models])
    own = each[fold_of(data, 3), np.arange(len(TEXTS))]
    np.testing.assert_allclose(output[::2], own[::2], atol=1e-5)
    np.testing.assert_allclose(output[1::2], each.mean(axis=0)[1::2], atol=1e-5)


def test_what_is_made_of_a_training_row_is_answered_by_the_rows_fold(
    models: list[ModelFolder], stand: Stand, tmp_path: Path
) -> None:
    train, path = stand(MOOD, TEXTS), tmp_path / "augmented.arrow"
    rows = write_augmented(train, path, AugmentRules(mask=0.2, pos=0.0, ngram=0.25, times=3, seed=0), None, 1)
    data = TaskData(MOOD, "augmented", path, "1" * 32, rows)
    output = folded(models, tmp_path, [], train).logits(data)
    table = data.table()
    each = np.stack([expected(model, MOOD, table["text1"].to_pylist()) for model in models])
    folds = dict(zip(train.table()["id"].to_pylist(), fold_of(train, 3), strict=True))
    own = [folds[source] for source in table["source"].to_pylist()]
    assert rows > 2 * len(TEXTS)
    np.testing.assert_allclose(output, each[own, np.arange(rows)], atol=1e-5)


@pytest.mark.parametrize("symmetric", [True, False])
def test_a_pair_turned_round_falls_into_the_same_fold_of_any_task(stand: Stand, symmetric: bool) -> None:
    other = replace(TOPIC, name="other", head="other", symmetric=symmetric)
    turned = [(two, one) for one, two in PAIRS]
    np.testing.assert_array_equal(fold_of(stand(TOPIC, PAIRS), 5), fold_of(stand(other, turned), 5))


def test_a_training_pair_turned_round_is_answered_by_the_model_that_has_not_seen_it(
    models: list[ModelFolder], stand: Stand, tmp_path: Path
) -> None:
    turned = [(two, one) for one, two in PAIRS]
    data, train = stand(TOPIC, turned, split="unlabelled"), stand(TOPIC, PAIRS)
    each = np.stack([expected(model, TOPIC, turned) for model in models])
    own = each[fold_of(data, 3), np.arange(len(turned))]
    np.testing.assert_allclose(folded(models, tmp_path, [], train).logits(data), own, atol=1e-5)


# The verdict ---------------------------------------------------------------------------------------------------------


def votes(numbers: Any, task: Task) -> np.ndarray[Any, np.dtype[np.float32]]:
    return (np.eye(task.outputs)[np.asarray(numbers)] * 4).astype(np.float32)


def gold_and_guess(task: Task, rows: int, right: float) -> tuple[Any, Any]:
    """Return gold and answers of which so many are right."""
    random = np.random.default_rng(0)
    gold = random.integers(0, task.outputs, rows)
    wrong = (gold + random.integers(1, task.outputs, rows)) % task.outputs
    return gold.astype(np.float64), np.where(random.random(rows) < right, gold, wrong)


def test_a_good_teacher_has_its_scores_and_no_fault() -> None:
    gold, output = gold_and_guess(TOPIC, 200, 0.8)
    verdict = examine(TOPIC, gold, votes(output, TOPIC), gold)
    assert verdict.score == verdict.scores["accuracy"] == (gold == output).mean()
    assert verdict.guess == np.bincount(gold.astype(int)).max() / 200
    assert verdict.fault == ""


def test_rows_without_gold_or_answer_do_not_count() -> None:
    gold, output = gold_and_guess(MOOD, 100, 0.9)
    logits = votes(output, MOOD)
    wrong = 1 - gold[:20].astype(int)
    logits[:20] = votes(wrong, MOOD)
    logits[:10], gold[10:20] = np.nan, np.nan
    verdict = examine(MOOD, gold, logits, gold)
    assert verdict.score == (gold[20:] == output[20:]).mean()
    silent = examine(MOOD, gold, np.full_like(logits, np.nan), gold)
    assert (silent.score, silent.scores, silent.guess, silent.fault) == (None, {}, None, "")
    assert examine(MOOD, np.full(100, np.nan), logits, gold).score is None


def test_a_teacher_no_better_than_the_majority_is_refused_with_both_scores() -> None:
    gold = np.array([0.0] * 60 + [1.0] * 40)
    verdict = examine(MOOD, gold, votes([0] * 100, MOOD), gold)
    assert verdict.score == verdict.guess == 0.6
    assert verdict.fault.startswith(
        "accuracy 60.0 on dev, where the best constant answer has 60.0: it has not learnt the"
    )


def test_the_guess_is_the_best_constant_answer_to_the_very_dev_rows() -> None:
    gold = np.array([0.0] * 60 + [1.0] * 40)
    for train in (np.ones(5), np.full(5, np.nan)):
        verdict = examine(MOOD, gold, votes([0] * 50 + [1] * 50, MOOD), train)
        assert verdict.guess == 0.6 and not verdict.fault
    f1 = examine(replace(MOOD, metrics=("f1",)), gold, votes([0] * 50 + [1] * 50, MOOD), gold)
    assert f1.guess == pytest.approx(80 / 140) and f1.score == pytest.approx(80 / 90)


def answers_of(gold: Any, wins: int, losses: int) -> Any:
    """Return the commonest class of two, but on so many rows of the other class, and so many of its own, not."""
    commonest = float(gold.mean() > 0.5)
    output = np.full(len(gold), commonest)
    output[np.flatnonzero(gold != commonest)[:wins]] = output[np.flatnonzero(gold == commonest)[:losses]] = (
        1 - commonest
    )
    return votes(output.astype(int), MOOD)


def test_dev_rows_of_one_label_tell_nothing_of_a_trained_teacher_and_do_not_prove_another() -> None:
    gold = np.zeros(4)
    logits = np.tile(np.array([[2.0, 1.0]], np.float32), (4, 1))
    assert examine(MOOD, gold, logits, gold).fault == ""
    assert "no better than guessing" in examine(MOOD, gold, logits, gold, surely=True).fault


@pytest.mark.parametrize(
    ("wins", "losses", "right", "p"),
    [(95, 88, 0.54, 0.33), (14, 7, 0.54, 0.095), (20, 10, 0.555, 0.049), (1, 2, 0.5, 0.875), (84, 15, 0.85, 0.0)],
)
def test_a_lead_of_two_hundred_rows_over_the_best_constant_is_judged_by_a_sign_test(
    wins: int, losses: int, right: float, p: float
) -> None:
    gold = np.array([0.0] * 101 + [1.0] * 99)
    verdict = examine(MOOD, gold, answers_of(gold, wins, losses), gold, surely=True)
    discordant = wins + losses
    exact = sum(math.comb(discordant, count) for count in range(wins, discordant + 1)) / 2**discordant
    assert verdict.score == pytest.approx(right) and exact == pytest.approx(p, abs=0.01)
    assert bool(verdict.fault) == (exact >= 0.05)
    if verdict.fault:
        assert verdict.fault == (
            f"accuracy {100 * right:.1f} on dev, where the best constant answer has 50.5: on 200 rows that is no "
            f"better than guessing (p = {exact:.2f}, one-sided); try another model or prompt or, if you think it is "
            "good, show it with more labelled rows"
        )
    learnt_here = examine(MOOD, gold, answers_of(gold, wins, losses), gold)
    assert bool(learnt_here.fault) == (wins <= losses)


def test_few_rows_cannot_show_much_and_the_message_says_so() -> None:
    gold = np.arange(8) % 2.0
    assert "on 8 rows that is no better" in examine(MOOD, gold, votes(gold.astype(int), MOOD), gold, surely=True).fault
    gold = np.arange(10) % 2.0
    assert not examine(MOOD, gold, votes(gold.astype(int), MOOD), gold, surely=True).fault


@pytest.mark.parametrize("metric", ["accuracy", "matthews", "f1", "macro_f1"])
@pytest.mark.parametrize("task", [MOOD, TOPIC])
def test_every_metric_of_classes_tells_a_teacher_that_knows_from_one_that_guesses(task: Task, metric: str) -> None:
    task, random = replace(task, metrics=(metric,)), np.random.default_rng(5)
    refused = 0
    for _ in range(8):
        gold = random.integers(0, task.outputs, 60).astype(np.float64)
        knows = np.where(random.random(60) < 0.85, gold, random.integers(0, task.outputs, 60)).astype(int)
        assert not examine(task, gold, votes(knows, task), gold, surely=True).fault
        guess = votes(random.integers(0, task.outputs, 60), task)
        refused += bool(examine(task, gold, guess, gold, surely=True).fault)
    assert refused >= 7  # of 8, at a level of 5 %


@pytest.mark.parametrize("metric", ["pearson_spearman", "mse"])
def test_scores_must_go_with_gold_beyond_chance(metric: str) -> None:
    task, random = replace(STARS, metrics=(metric,)), np.random.default_rng(6)
    gold = random.uniform(1, 5, 40)
    near = (gold + random.normal(0, 1, 40)).astype(np.float32)[:, None]
    assert not examine(task, gold, near, gold, surely=True).fault
    faults = [examine(STARS, gold, random.uniform(1, 5, (40, 1)), gold, surely=True).fault for _ in range(20)]
    assert sum(map(bool, faults)) >= 18 and any("no better than guessing (p = 0" in fault for fault in faults)


@given(st.permutations(range(3)))
def test_labels_in_the_wrong_order_are_found_with_the_map_to_write(order: list[int]) -> None:
    gold, output = gold_and_guess(TOPIC, 150, 0.85)
    mixed = np.array(order)[output]  # output order[k] is what it gives for label k
    fault = examine(TOPIC, gold, votes(mixed, TOPIC), gold).fault
    if list(order) == [0, 1, 2]:
        assert not fault
    else:
        names = ", ".join(f"{TOPIC.labels[out]}: {TOPIC.labels[order.index(out)]}" for out in range(3))
        assert f"permuted; with the mapping below it would score {100 * (gold == output).mean():.1f}" in fault
        assert f"labels: {{{names}}}" in fault


def test_two_of_five_labels_mixed_up_are_found_although_the_score_is_fair() -> None:
    task = replace(TOPIC, labels=tuple("abcde"))
    gold, output = gold_and_guess(task, 300, 0.9)
    verdict = examine(task, gold, votes(np.array([0, 1, 2, 4, 3])[output], task), gold)
    assert verdict.score is not None and verdict.guess is not None and verdict.score > verdict.guess + 0.2
    assert "labels: {a: a, b: b, c: c, d: e, e: d}" in verdict.fault


@given(st.integers(0, 2**32 - 1), st.sampled_from([20, 100, 1000]))
def test_chance_is_not_taken_for_labels_that_are_mixed_up(seed: int, rows: int) -> None:
    random = np.random.default_rng(seed)
    gold, output = random.integers(0, 3, rows), random.integers(0, 3, rows)
    assert "mixed up" not in examine(TOPIC, gold.astype(float), votes(output, TOPIC), gold.astype(float)).fault


def test_a_constant_answer_is_not_taken_for_labels_that_are_mixed_up() -> None:
    gold = np.array([0.0] * 90 + [1.0] * 10)
    assert "has not learnt" in examine(MOOD, gold, votes([1] * 100, MOOD), gold).fault


def scores_of(low: float, high: float, noise: float) -> tuple[Any, Any]:
    random = np.random.default_rng(1)
    gold = random.uniform(1, 5, 200)
    output = low + (gold - 1) / 4 * (high - low) + random.normal(0, noise, 200) * (high - low)
    return gold, output.astype(np.float32)[:, None]


def test_scores_on_another_scale_are_found_although_they_correlate() -> None:
    gold, output = scores_of(0, 1, 0.05)
    verdict = examine(STARS, gold, output, gold)
    assert verdict.score is not None and verdict.score > 0.9
    assert verdict.fault.endswith("in a file of predictions") and "on another scale" in verdict.fault
    assert f"from {output.min():g} to {output.max():g}, those of the task from {gold.min():g} to" in verdict.fault
    assert examine(STARS, *scores_of(1, 5, 0.05), gold).fault == ""


def test_scores_that_go_with_nothing_are_refused() -> None:
    gold, _ = scores_of(1, 5, 0)
    output = np.random.default_rng(2).uniform(1, 5, (200, 1)).astype(np.float32)
    verdict = examine(STARS, gold, np.full_like(output, 3.0), gold)
    assert verdict.score == verdict.guess == 0 and "pearson_spearman 0.0 " in verdict.fault
    measured = replace(STARS, metrics=("mse",))
    verdict = examine(measured, gold, output, gold)
    assert verdict.score is not None and verdict.guess is not None and verdict.score < verdict.guess < 0
    assert "has not learnt" in verdict.fault
