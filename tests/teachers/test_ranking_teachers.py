"""Teachers of rankings: scores of candidates are joined query by query, and whoever ranks badly is found."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from helpers import ANSWER, MOOD, liven, some_model
from understill.atomic import replacing
from understill.data.files import data_file
from understill.data.groups import groups_of
from understill.data.taskdata import TaskData
from understill.errors import UserError
from understill.models.encoder import load_tokenizer
from understill.models.folder import ModelFolder
from understill.targets.ensemble import Rule, join
from understill.targets.store import BadTargets, TeacherFacts, read_targets, write_targets
from understill.teachers.checkpoints import open_checkpoint
from understill.teachers.folds import FoldedTeacher, fold_of
from understill.teachers.predictions import PredictionsTeacher, read_predictions
from understill.teachers.trained import ModelTeacher
from understill.teachers.verdict import examine

Stand = Callable[..., TaskData]
RULES: tuple[Rule, ...] = get_args(Rule)
WORDS = ["parcel", "order", "account", "password", "film", "guitar", "man", "please", "twice", "locked"]
#: Queries of two to four candidates, whose rows do not stand side by side.
PAIRS = [(f"my {one} ?", f"the {two} is {one}") for two in WORDS[:4] for one in WORDS if (len(one) + len(two)) % 5]
GOLD = ["right" if len(two) % 2 else "wrong" for _, two in PAIRS]


# Joining -------------------------------------------------------------------------------------------------------------


def joined(logits: Any, groups: NDArray[np.int64] | None = None, **rule: Any) -> NDArray[np.float32]:
    logits = np.asarray(logits, np.float32)
    known: dict[str, Any] = {"combine": "mean_probabilities", "form": "log_probabilities", "temperature": 1.0}
    weights = np.arange(1, len(logits) + 1) / np.arange(1, len(logits) + 1).sum()
    return join(logits, False, weights=weights, groups=groups, **{**known, **rule})


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=6),
    st.integers(1, 3),
    st.sampled_from(RULES),
    st.sampled_from(["log_probabilities", "logits"]),
    st.sampled_from([0.5, 1.0, 3.0]),
    st.integers(0, 2**30),
)
def test_the_candidates_of_a_query_are_joined_as_the_classes_of_a_row_are(
    sizes: list[int], teachers: int, combine: Rule, form: str, temperature: float, seed: int
) -> None:
    random = np.random.default_rng(seed)
    groups = random.permutation(np.repeat(np.arange(len(sizes)), sizes))
    logits = random.normal(0, 3, (teachers, len(groups), 1)).astype(np.float32)
    rule = {"combine": combine, "form": form, "temperature": temperature}
    result = joined(logits, groups, **rule)
    assert result.shape == (len(groups), 1)
    for query in range(len(sizes)):
        here = groups == query
        np.testing.assert_allclose(result[here, 0], joined(logits[:, None, here, 0], **rule)[0], rtol=1e-5, atol=1e-6)
        if form == "log_probabilities":
            assert np.exp(result[here]).sum() == pytest.approx(1, abs=1e-5)


def test_a_query_joined_by_hand() -> None:
    # At temperature 2 odds of 16 to 1 become 4 to 1; (4/5 + 1/2) / 2 = 0.65.
    logits = np.log([[[16.0], [3.0], [1.0]], [[5.0], [3.0], [5.0]]])
    groups = np.array([4, 0, 4])
    result = join(logits, False, combine="mean_probabilities", weights=np.array([0.5, 0.5]), form="log_probabilities",
                 temperature=2.0, groups=groups)  # fmt: skip
    assert np.exp(result[:, 0]) == pytest.approx([0.65, 1.0, 0.35], rel=1e-5)
    assert logits[0, 0, 0] == np.log(16.0), "what teachers said stays as it is"


def test_a_teacher_that_leaves_out_a_candidate_has_no_say_in_the_query() -> None:
    one, two = [[1.0], [2.0], [np.nan], [0.5]], [[0.0], [1.0], [3.0], [np.nan]]
    groups = np.array([0, 1, 0, 1])
    result = joined([one, two], groups)
    alone_two, alone_one = joined([two], groups), joined([one], groups)
    np.testing.assert_allclose(result[[0, 2]], alone_two[[0, 2]], rtol=1e-6)
    np.testing.assert_allclose(result[[1, 3]], alone_one[[1, 3]], rtol=1e-6)
    assert np.isnan(joined([one], groups)[[0, 2]]).all()


# The verdict ---------------------------------------------------------------------------------------------------------


def exam(right: float, queries: int = 60, size: int = 4) -> tuple[Any, Any, Any]:
    """Return gold, scores and groups of queries of which such a share has its right candidate on top."""
    random = np.random.default_rng(0)
    groups = np.repeat(np.arange(queries), size)
    gold = np.tile([1.0, *[0.0] * (size - 1)], queries)
    output = random.normal(size=len(gold))
    best = output.reshape(-1, size).max(axis=1) + 1
    top = random.random(queries) < right
    output[::size] = np.where(top, best, -best)
    return gold, output.astype(np.float32)[:, None], groups


def test_a_good_teacher_is_scored_over_its_queries() -> None:
    gold, output, groups = exam(0.8)
    verdict = examine(ANSWER, gold, output, gold, groups=groups)
    tops = output.reshape(-1, 4).argmax(axis=1)
    assert verdict.score == verdict.scores["precision_at_1"] == (tops == 0).mean()
    assert verdict.guess == 0.25 and not verdict.fault


def test_a_teacher_no_better_than_any_order_is_refused() -> None:
    gold, output, groups = exam(0.25)
    output = np.random.default_rng(3).normal(size=output.shape).astype(np.float32)
    constant = examine(ANSWER, gold, np.zeros_like(output), gold, groups=groups)
    assert (constant.score, constant.guess) == (0, 0.25)
    assert constant.fault.startswith("precision_at_1 0.0 on dev, where a random order has 25.0: it has not learnt")
    assert "inverted" not in examine(ANSWER, gold, output, gold, groups=groups).fault


def test_a_ranking_must_beat_random_orders_beyond_chance() -> None:
    gold, output, groups = exam(0.5)
    assert not examine(ANSWER, gold, output, gold, groups=groups, surely=True).fault
    random = np.random.default_rng(4)
    orders = [random.normal(size=output.shape).astype(np.float32) for _ in range(20)]
    faults = [examine(ANSWER, gold, order, gold, groups=groups, surely=True).fault for order in orders]
    assert sum(map(bool, faults)) >= 18 and any("no better than guessing (p = 0" in fault for fault in faults)


def test_scores_of_which_the_lowest_is_best_are_found() -> None:
    gold, output, groups = exam(0.9)
    reach = 100 * examine(ANSWER, gold, output, gold, groups=groups).scores["precision_at_1"]
    fault = examine(ANSWER, gold, -output, gold, groups=groups).fault
    assert f"inverted; negated they would score {reach:.1f}: higher must mean better" in fault


def test_queries_of_which_something_is_missing_are_not_scored() -> None:
    gold, output, groups = exam(1.0)
    gold[0], output[5], gold[8] = np.nan, np.nan, 0.0  # nothing but wrong ones in the third
    output[4] = output[6:8].min() - 1
    verdict = examine(ANSWER, gold, output, gold, groups=groups)
    assert verdict.score == 1.0
    assert examine(ANSWER, gold, np.full_like(output, np.nan), gold, groups=groups).score is None
    assert examine(ANSWER, np.zeros_like(gold), output, gold, groups=groups).score is None


# Models, folds and files ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folders(tiny: Path) -> list[ModelFolder]:
    """Three models that rank, with other weights."""
    made = []
    for seed in range(3):
        model = some_model(tiny, (MOOD, ANSWER), seed=seed).eval()
        liven(model)
        for weight in model.heads.parameters():
            weight.data *= seed + 1
        made.append(ModelFolder(tiny, model, load_tokenizer(str(tiny)), {"mood": 32, "answer": 32}, {}, False))
    return made


def teacher_of(folder: ModelFolder, cache: Path) -> ModelTeacher:
    return ModelTeacher("old", "0" * 32, folder, cache, 7, "cpu")


def test_a_model_gives_its_raw_scores(folders: list[ModelFolder], stand: Stand, tmp_path: Path) -> None:
    output = teacher_of(folders[0], tmp_path).logits(stand(ANSWER, PAIRS))
    assert output.shape == (len(PAIRS), 1) and output.std() > 0.01
    assert output.min() < 0 or output.max() > 1, "no sigmoid"


def test_a_model_that_takes_the_other_label_to_be_right_is_refused(
    folders: list[ModelFolder], stand: Stand, tmp_path: Path
) -> None:
    turned = replace(ANSWER, labels=ANSWER.labels[::-1])
    with pytest.raises(UserError, match='teacher old: it takes "right" to be right → turn the labels round'):
        teacher_of(folders[0], tmp_path).logits(stand(turned, PAIRS))


def test_folds_answer_whole_queries(folders: list[ModelFolder], stand: Stand, tmp_path: Path) -> None:
    train, data = stand(ANSWER, PAIRS), stand(ANSWER, [*PAIRS, ("my parcel ?", "no")], split="unlabelled")
    openers = [lambda folder=folder: teacher_of(folder, tmp_path) for folder in folders]
    folded = FoldedTeacher("folds", "0" * 32, openers, train)
    each = np.stack([teacher_of(folder, tmp_path).logits(data) for folder in folders])
    folds, groups = fold_of(data, 3), groups_of(data)
    assert len(set(folds.tolist())) == 3
    # The last row is new, but its query is not: its scores must be of one kind.
    np.testing.assert_allclose(folded.logits(data), each[folds, np.arange(data.rows)], atol=1e-5)
    assert groups[-1] in groups[:-1]
    others = stand(ANSWER, [("another", "a"), ("another", "b")], split="dev")
    each = np.stack([teacher_of(folder, tmp_path).logits(others) for folder in folders])
    np.testing.assert_allclose(folded.logits(others), each.mean(axis=0), atol=1e-5)


def test_a_training_row_in_another_group_is_answered_by_the_fold_that_has_not_seen_it(
    folders: list[ModelFolder], stand: Stand, tmp_path: Path
) -> None:
    task = replace(ANSWER, group="ticket")
    train = stand(task, PAIRS, groups=[f"old {question}" for question, _ in PAIRS])
    data = stand(task, PAIRS, split="unlabelled", groups=[f"new {question}" for question, _ in PAIRS])
    openers = [lambda folder=folder: teacher_of(folder, tmp_path) for folder in folders]
    folded = FoldedTeacher("folds", "0" * 32, openers, train)
    each = np.stack([teacher_of(folder, tmp_path).logits(data) for folder in folders])
    left_out = fold_of(train, 3)  # by the model that trained without the row
    np.testing.assert_allclose(folded.logits(data), each[left_out, np.arange(data.rows)], atol=1e-5)


def cross_encoder(folder: Path, encoder: Path, outputs: int) -> Path:
    shutil.copytree(encoder, folder)
    config = AutoConfig.from_pretrained(folder, num_labels=outputs)
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_config(config)
    liven(model)
    model.save_pretrained(folder)
    return folder


def opened(folder: Path, cache: Path) -> Any:
    return open_checkpoint("old", str(folder), ANSWER, {}, None, cache, 4, "cpu")


def test_a_cross_encoder_with_one_output_can_teach(tiny: Path, stand: Stand, tmp_path: Path) -> None:
    folder = cross_encoder(tmp_path / "one", tiny, 1)
    output = opened(folder, tmp_path).logits(stand(ANSWER, PAIRS))
    model, tokenizer = (
        AutoModelForSequenceClassification.from_pretrained(folder).eval(),
        AutoTokenizer.from_pretrained(folder),
    )
    with torch.no_grad():
        own = [model(**tokenizer(*pair, return_tensors="pt")).logits[0].numpy() for pair in PAIRS]
    np.testing.assert_allclose(output, np.stack(own), atol=1e-5)
    with pytest.raises(UserError, match="it gives 2 classes, but answer is a ranking task"):
        opened(cross_encoder(tmp_path / "two", tiny, 2), tmp_path)


@pytest.mark.parametrize("column", ["answer_predicted", "score", "answer"])
def test_a_file_with_a_column_of_scores_can_teach(column: str, stand: Stand, tmp_path: Path) -> None:
    task = replace(ANSWER, text=("question", "reply")) if column == "answer" else ANSWER
    scores = np.random.default_rng(0).normal(size=len(PAIRS)).round(3)
    names = task.text
    columns = {names[0]: [one for one, _ in PAIRS], names[1]: [two for _, two in PAIRS], column: scores, "label": GOLD}
    path = tmp_path / "said.parquet"
    pq.write_table(pa.table(columns).slice(1), path)
    output = read_predictions("llm", [data_file(path)], task, {}, "auto").logits(stand(task, PAIRS))
    assert np.isnan(output[0, 0])
    np.testing.assert_allclose(output[1:, 0], scores[1:], rtol=1e-6)


def test_a_file_must_score_all_candidates_of_some_query(stand: Stand, tmp_path: Path) -> None:
    pairs = [(f"my {query} ?", f"{answer} it is") for query in ("parcel", "order") for answer in ("a", "b", "c")]
    data = stand(ANSWER, [*pairs, ("alone ?", "a")], ["right", "wrong", "wrong"] * 2 + ["right"])

    def teacher(rows: list[tuple[str, str]]) -> PredictionsTeacher:
        columns = {"question": [one for one, _ in rows], "answer": [two for _, two in rows], "score": [0.5] * len(rows)}
        pq.write_table(pa.table(columns), tmp_path / "said.parquet")
        return read_predictions("llm", [data_file(tmp_path / "said.parquet")], ANSWER, {}, "auto")

    part = [pair for pair in pairs if not pair[1].startswith("c")]
    words = "llm: it scores 4 of the 6 candidates of answer to learn from, but of no query all"
    for rows in (part, [*part, ("alone ?", "a")]):  # a query without a choice teaches nothing
        with pytest.raises(UserError, match=words):
            teacher(rows).must_match([data])
    with pytest.raises(UserError, match="none of its 1 predictions is about a row of answer to learn from"):
        teacher([("alone ?", "a")]).must_match([data])
    teacher([*part, pairs[2]]).must_match([data])
    unlabelled = stand(ANSWER, [*pairs[:2], pairs[3]], split="unlabelled")
    teacher(part).must_match([data, unlabelled])


def test_labels_are_not_taken_for_scores(tmp_path: Path) -> None:
    path = tmp_path / "said.parquet"
    columns = {"question": [one for one, _ in PAIRS], "answer": [two for _, two in PAIRS], "label": [0] * len(PAIRS)}
    pq.write_table(pa.table(columns), path)
    with pytest.raises(
        UserError, match=r'no scores; the columns are: question, answer, label.*name one of them "score"'
    ):
        read_predictions("llm", [data_file(path)], ANSWER, {}, "auto")


# The store -----------------------------------------------------------------------------------------------------------


def test_scores_come_back_as_they_went_in_unless_another_label_is_the_right_one(stand: Stand, tmp_path: Path) -> None:
    data, folder = stand(ANSWER, PAIRS), tmp_path / "targets"
    logits = np.random.default_rng(0).normal(size=(len(PAIRS), 1)).astype(np.float32)
    with replacing(folder) as part:
        write_targets(part, data, [TeacherFacts("one", "d", 0.5)], {"logits": [logits]}, dtype="float32", rule={})
    np.testing.assert_array_equal(read_targets(folder, data, {"one": "d"}).logits[0], logits)
    turned = replace(data, task=replace(ANSWER, labels=ANSWER.labels[::-1]))
    with pytest.raises(
        BadTargets, match="its labels are wrong and right, and those of task answer are right and wrong"
    ):
        read_targets(folder, turned, {"one": "d"})
