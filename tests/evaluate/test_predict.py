"""Predictions stand in the rows' order, do not depend on the batches, and are kept one by one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.special import expit

from understill import pipeline
from understill.data.taskdata import TaskData, Writer
from understill.data.tokens import Tokens, encode
from understill.errors import UserError
from understill.evaluate.metrics import score
from understill.evaluate.predict import predict, predict_all, read_kept, save_predictions
from understill.inference.loading import load
from understill.inference.predictor import Predictions
from understill.inference.torch_model import TorchModel
from understill.recipe import Recipe
from understill.tasks import GLUE, Task

#: Neither shortest nor longest first, so that sorting by length moves nearly every row.
TEXTS = [
    "not bad at all",
    "I was charged twice for one order and nobody listens , please reset the password of my account !",
    "the film",
    "A small man plays the guitar while nobody listens .",
    "",
    "My account is locked , please reset the password",
    "good",
]


def tokens_of(predictor: TorchModel, texts: list[Any], length: int = 32) -> Tokens:
    return encode(texts, predictor.folder.tokenizer, length)


def test_logits_come_back_in_the_order_of_the_rows(predictor: TorchModel) -> None:
    lengths = tokens_of(predictor, TEXTS).lengths.tolist()
    assert lengths not in (sorted(lengths), sorted(lengths, reverse=True))
    together = predict_all(predictor.model, tokens_of(predictor, TEXTS), predictor.tasks, 3)
    for number, text in enumerate(TEXTS):
        alone = predict_all(predictor.model, tokens_of(predictor, [text]), predictor.tasks, 1)
        for task in predictor.tasks:
            np.testing.assert_allclose(together[task.name].logits[number], alone[task.name].logits[0], atol=5e-5)
    rows = together["topic"].logits
    gaps = np.abs(rows[:, None] - rows[None]).max(axis=2) + np.eye(len(rows))
    assert gaps.min() > 1e-2  # the texts are told apart, so a wrong order would have shown


def test_many_texts_are_answered_in_parts_as_at_once(predictor: TorchModel, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = predictor.logits(TEXTS, None, predictor.tasks[:1])
    for name, value in (("workers_for", lambda rows: 2), ("BLOCK_ROWS", 4), ("PART_BLOCKS", 2)):
        monkeypatch.setattr(f"understill.data.tokens.{name}", value)
    parts = predictor.logits(TEXTS, None, predictor.tasks[:1])
    for name, predictions in whole.items():
        np.testing.assert_allclose(parts[name].logits, predictions.logits, atol=5e-5, rtol=0)


def test_the_batch_size_does_not_change_the_logits(predictor: TorchModel) -> None:
    tokens = tokens_of(predictor, TEXTS)
    whole = predict_all(predictor.model, tokens, predictor.tasks, 64)
    for batch in (1, 2, 5, 7):
        cut = predict_all(predictor.model, tokens, predictor.tasks, batch)
        for name, predictions in whole.items():
            np.testing.assert_allclose(cut[name].logits, predictions.logits, atol=5e-5, rtol=0)


def test_all_tasks_at_once_are_the_tasks_one_by_one(predictor: TorchModel) -> None:
    pairs = [(text, TEXTS[-number]) for number, text in enumerate(TEXTS)]
    for tokens in (tokens_of(predictor, TEXTS), tokens_of(predictor, pairs)):
        together = predict_all(predictor.model, tokens, predictor.tasks, 4)
        assert list(together) == [task.name for task in predictor.tasks]
        for task in predictor.tasks:
            alone = predict(predictor.model, tokens, task, 4)
            assert alone.logits.shape == (len(TEXTS), task.outputs)
            np.testing.assert_array_equal(alone.logits, together[task.name].logits)


def test_regression_answers_on_the_tasks_own_scale(make_model: Callable[..., Path]) -> None:
    task = Task("stars", "regression", ("text",), "label", range=(1.0, 5.0))
    actual = {
        kind: predict(model.model, tokens_of(model, TEXTS), task, 4).values
        for kind in ("raw", "unit", "sigmoid")
        for model in [load(make_model((task,), regression=kind))]
    }
    # The weights are the same three times, so the raw outputs tell what the other two must be.
    np.testing.assert_allclose(actual["unit"], 1 + 4 * actual["raw"], rtol=1e-5)
    np.testing.assert_allclose(actual["sigmoid"], 1 + 4 * expit(actual["raw"]), rtol=1e-5)
    assert np.ptp(actual["raw"]) > 0.1
    assert np.all((actual["sigmoid"] > 1) & (actual["sigmoid"] < 5))


def test_logits_become_labels_probabilities_and_scores() -> None:
    classes = Task("c", "classification", ("text",), "label", labels=("no", "yes"))
    actual = Predictions(classes, np.array([[0.0, np.log(3)], [2.0, -1.0]], np.float32))
    assert actual.answers == ["yes", "no"]
    assert actual.values.tolist() == [1.0, 0.0]
    np.testing.assert_allclose(actual.probabilities[0], [0.25, 0.75], rtol=1e-6)
    scores = Task("s", "regression", ("text",), "label", range=(0.0, 5.0))
    assert Predictions(scores, np.array([[2.5], [0.5]], np.float32)).answers == [2.5, 0.5]


def test_texts_are_padded_with_the_tokenisers_own_token(predictor: TorchModel) -> None:
    import copy

    tokenizer = copy.deepcopy(predictor.folder.tokenizer)
    tokenizer.pad_token = "[MASK]"
    assert tokenizer.pad_token_id != 0
    assert encode(["good"], tokenizer, 16).pad == tokenizer.pad_token_id


def test_kept_predictions_give_the_scores_again_and_are_those_of_the_saved_model(
    make_tiny: Callable[..., Recipe],
) -> None:
    plan = pipeline.make_plan(make_tiny())
    (trained,) = pipeline.run(plan.recipe).models
    model = load(trained.folder)
    assert [task.name for task in model.tasks] == ["mood", "follows", "similar"]
    for task in model.tasks:
        data = plan.loaded[task.name].splits["dev"].table()
        kept = pq.read_table(trained.folder.parent / "predictions" / f"{task.name}.dev.parquet")
        assert kept["id"].to_pylist() == data["id"].to_pylist()
        assert kept["gold"].to_pylist() == data["label"].to_pylist()
        assert Task.from_dict(json.loads(kept.schema.metadata[b"task"])) == task
        texts = data["text1"].to_pylist()
        again = model.predict(texts, data["text2"].to_pylist() if task.pair else None, [task.name])[task.name]
        if task.kind.name == "classification":
            assert kept["prediction"].to_pylist() == [answer.label for answer in again]
            gold, guess = (
                [task.labels.index(name) for name in kept[column].to_pylist()] for column in ("gold", "prediction")
            )
        else:
            assert kept["prediction"].to_pylist() == pytest.approx([answer.score for answer in again], abs=1e-5)
            gold, guess = kept["gold"].to_pylist(), kept["prediction"].to_pylist()
        logits = np.array(kept["logits"].to_pylist())
        assert logits.shape == (len(texts), task.outputs)
        measured = score(task, np.array(gold, float), np.array(guess, float))
        assert measured == pytest.approx(trained.scores[f"{task.name}/dev"], abs=1e-6)


# Diagnostic sets ------------------------------------------------------------------------------------------------------

START = ["index", "promptID", "pairID", "genre", "s1b", "s2b", "s1p", "s2p", "sentence1", "sentence2"]
LABELS = ("neutral", "entailment", "contradiction")


def nli_rows(count: int, word: str) -> list[tuple[str, str, str]]:
    return [(f"the {word} man has {n} parcels", f"he has {n * 7 % 5} parcels", LABELS[n % 3]) for n in range(count)]


def write_glue(folder: Path, diagnostic_labels: bool = True) -> Path:
    """Write MNLI and the diagnostic set, in small, as the official files have them."""
    sizes = {"train": ("small", 24), "dev_matched": ("old", 12), "dev_mismatched": ("tall", 9)}
    (folder / "MNLI").mkdir(parents=True)
    for split, (word, count) in sizes.items():
        votes = ["label1"] if split == "train" else [f"label{n}" for n in range(1, 6)]
        lines = [[*START, *votes, "gold_label"]]
        for number, (first, second, label) in enumerate(nli_rows(count, word)):
            lines.append([str(number), "1", "1e", "fiction", *"----", first, second, *["neutral"] * len(votes), label])
        (folder / "MNLI" / f"{split}.tsv").write_text("".join("\t".join(line) + "\n" for line in lines))
    (folder / "AX").mkdir()
    lines = [["Lexical Semantics", "Logic", "Knowledge", "Domain", "Premise", "Hypothesis", "Label"]]
    lines += [["", "", "", "news", *row] for row in nli_rows(10, "blue")]
    name = "diagnostic-full.tsv"
    if not diagnostic_labels:
        lines = [
            ["index", "sentence1", "sentence2"],
            *([str(n), *row[:2]] for n, row in enumerate(nli_rows(10, "blue"))),
        ]
        name = "diagnostic.tsv"
    (folder / "AX" / name).write_text("".join("\t".join(line) + "\n" for line in lines))
    return folder


def test_a_diagnostic_set_is_scored_by_the_head_of_its_task(make_tiny: Callable[..., Recipe], tmp_path: Path) -> None:
    glue = write_glue(tmp_path / "glue")
    result = pipeline.run(make_tiny(data={"glue": str(glue), "demo": None}, tasks=["mnli", "ax"]))
    (model,) = result.models
    assert [task.name for task in load(model.folder).tasks] == ["mnli"]
    assert {place: list(actual) for place, actual in model.scores.items()} == {
        "mnli/dev": ["accuracy"],
        "mnli/dev_mismatched": ["accuracy"],
        "ax/dev": ["matthews", "accuracy"],
    }
    assert set(result.majority) == set(model.scores)
    kept = pq.read_table(model.folder.parent / "predictions" / "ax.dev.parquet")
    rows = nli_rows(10, "blue")
    assert kept["gold"].to_pylist() == [label for _, _, label in rows]
    answers = load(model.folder).predict([first for first, _, _ in rows], [second for _, second, _ in rows])["mnli"]
    assert kept["prediction"].to_pylist() == [answer.label for answer in answers]


def test_a_diagnostic_set_without_labels_is_predicted_but_not_scored(
    make_tiny: Callable[..., Recipe], tmp_path: Path
) -> None:
    glue = write_glue(tmp_path / "glue", diagnostic_labels=False)
    result = pipeline.run(make_tiny(data={"glue": str(glue), "demo": None}, tasks=["mnli", "ax"]))
    (model,) = result.models
    assert set(model.scores) == set(result.majority) == {"mnli/dev", "mnli/dev_mismatched"}
    kept = pq.read_table(model.folder.parent / "predictions" / "ax.dev.parquet")
    assert kept["gold"].null_count == len(kept) == 10
    assert set(kept["prediction"].to_pylist()) <= set(LABELS)


def test_a_diagnostic_set_is_joined_by_label_name_when_the_users_own_task_orders_them_otherwise(
    make_tiny: Callable[..., Recipe], tmp_path: Path
) -> None:
    glue, own = write_glue(tmp_path / "glue"), tmp_path / "own.jsonl"
    rows = [{"premise": a, "claim": b, "verdict": label} for a, b, label in nli_rows(24, "small")]
    own.write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec = {"train": str(own), "dev": str(own), "text": ["premise", "claim"], "label": "verdict"}
    result = pipeline.run(make_tiny(data={"glue": str(glue), "demo": None}, tasks={"mnli": spec, "ax": {}}))
    (model,) = result.models
    labels = load(model.folder).tasks[0].labels
    assert labels == tuple(sorted(LABELS)) != GLUE["ax"].task.labels
    kept = pq.read_table(model.folder.parent / "predictions" / "ax.dev.parquet")
    right = [
        gold == output for gold, output in zip(kept["gold"].to_pylist(), kept["prediction"].to_pylist(), strict=True)
    ]
    assert model.scores["ax/dev"]["accuracy"] == pytest.approx(np.mean(right))
    answers = load(model.folder).predict(*map(list, zip(*[row[:2] for row in nli_rows(10, "blue")], strict=True)))
    assert kept["prediction"].to_pylist() == [answer.label for answer in answers["mnli"]]
    commonest = [label for _, _, label in nli_rows(10, "blue")].count(labels[0])
    assert result.majority["ax/dev"]["accuracy"] == pytest.approx(commonest / 10)


def kept(path: Path, task: Task, rows: list[tuple[Any, ...]], logits: Any) -> Path:
    """Keep predictions of made-up rows: id, texts (and group), gold."""
    writer = Writer(path / "data.arrow", task)
    for name, *texts, gold in rows:
        writer.add(name, texts, gold)
    writer.close()
    data = TaskData(task, "dev", path / "data.arrow", "", len(rows))
    save_predictions(path / "kept.parquet", data, Predictions(task, np.array(logits, dtype=np.float32)))
    return path / "kept.parquet"


def test_kept_classes_are_read_back_by_the_names_of_their_labels(tmp_path: Path) -> None:
    task = Task("topic", "classification", ("text",), "label", ("a", "b", "c"))
    logits = [[1.0, 2.0, 3.0], [6.0, 5.0, np.nan]]
    path = kept(tmp_path, task, [("x", "one", "c"), ("y", "two", None)], logits)
    actual = read_kept(path, task)
    assert actual.ids.tolist() == ["x", "y"] and actual.groups is None
    np.testing.assert_array_equal(actual.gold, [2, np.nan])
    np.testing.assert_array_equal(actual.predictions.logits, np.array(logits, dtype=np.float32))
    turned = read_kept(path, Task("topic", "classification", ("text",), "label", ("c", "a", "b")))
    assert turned.gold[0] == 0 and turned.predictions.logits[0].tolist() == [3, 1, 2]
    assert turned.take(np.array([1])).ids.tolist() == ["y"]
    with pytest.raises(UserError, match="its labels"):
        read_kept(path, Task("topic", "classification", ("text",), "label", ("a", "b")))


def test_kept_scores_and_rankings_are_read_back(tmp_path: Path) -> None:
    task = Task("near", "regression", ("text",), "label")
    actual = read_kept(kept(tmp_path, task, [("x", "one", 2.5), ("y", "two", None)], [[2.0], [3.0]]), task)
    np.testing.assert_array_equal(actual.gold, [2.5, np.nan])
    assert actual.predictions.values.tolist() == [2, 3]
    task = Task("rank", "ranking", ("q", "c"), "label", ("wrong", "right"))
    rows = [("x", "q", "c", "g2", "right"), ("y", "q", "d", "g1", "wrong"), ("z", "p", "d", "g2", "wrong")]
    actual = read_kept(kept(tmp_path, task, rows, [[1.0], [2.0], [3.0]]), task)
    assert actual.gold.tolist() == [1, 0, 0] and actual.groups is not None and actual.groups.tolist() == [0, 1, 0]
