"""A task leaves as a plain classifier, of which `pipeline()` gives the very logits of the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, pipeline

from kinds import ALIKE, BEST, FOLLOWS, KINDS, MOOD, STARS, TASKS, TEXTS, TOPIC, save_kind
from kinds import SECOND as ANY_SECOND
from understill.atomic import seal
from understill.errors import UserError
from understill.export.formats import refuse_others
from understill.export.huggingface import score_link, write_classifier
from understill.inference.loading import load
from understill.inference.torch_model import TorchModel
from understill.models.folder import load_model
from understill.models.shape import HEAD_SHAPES
from understill.tasks import Task
from understill.teachers.checkpoints import open_checkpoint

#: Hugging Face takes a pair with an empty second text for a text without one.
SECOND = [text or "bad" for text in ANY_SECOND]
PLAIN = tuple(task for task in TASKS if task is not BEST)


def opened(root: Path, network: str, tasks: tuple[Task, ...] = PLAIN, **heads: Any) -> TorchModel:
    return TorchModel(load_model(save_kind(root / "model", network, tasks, **heads)))


def raw_logits(folder: Path, pair: bool) -> np.ndarray[Any, Any]:
    """Ask a folder as anybody would, by `pipeline()`, one text after the other."""
    ask = pipeline("text-classification", str(folder), device="cpu", top_k=None, function_to_apply="none")
    given = [{"text": one, "text_pair": two} for one, two in zip(TEXTS, SECOND, strict=True)] if pair else TEXTS
    output = [ask(each, truncation=True) for each in given]
    order = [ask.model.config.id2label[number] for number in sorted(ask.model.config.id2label)]
    flat = [each[0] if each and isinstance(each[0], list) else each for each in output]
    return np.array([[{one["label"]: one["score"] for one in row}[label] for label in order] for row in flat])


@pytest.mark.parametrize("task", PLAIN, ids=lambda task: task.name)
def test_pipeline_gives_the_logits_of_the_model(task: Task, tmp_path: Path) -> None:
    predictor = opened(tmp_path, "bert", regression="raw")
    write_classifier(predictor.folder, task, tmp_path / "plain")
    result = raw_logits(tmp_path / "plain", task.pair)
    want = predictor.logits(TEXTS, SECOND if task.pair else None, [task])[task.name].logits
    np.testing.assert_allclose(result, want, rtol=0, atol=1e-5)
    assert np.ptp(want, axis=0).max() > 0.05, "rows are told apart"


@pytest.mark.parametrize("network", sorted(HEAD_SHAPES))
def test_every_architecture_whose_heads_are_known_can_leave(network: str, tmp_path: Path) -> None:
    predictor = opened(tmp_path, network, (FOLLOWS, MOOD))
    write_classifier(predictor.folder, FOLLOWS, tmp_path / "plain")
    want = predictor.logits(TEXTS, SECOND, [FOLLOWS])["follows"].logits
    result = load(tmp_path / "plain").logits(TEXTS, SECOND, [FOLLOWS])["follows"].logits
    np.testing.assert_allclose(result, want, rtol=0, atol=1e-5)


def test_labels_and_probabilities_of_pipeline_are_those_of_the_model(tmp_path: Path) -> None:
    predictor = opened(tmp_path, "bert")
    write_classifier(predictor.folder, MOOD, tmp_path / "plain")
    output = pipeline("text-classification", str(tmp_path / "plain"), device="cpu")(
        TEXTS, truncation=True, batch_size=3
    )
    for one, answer in zip(output, predictor.predict(TEXTS)["mood"], strict=True):
        assert one["label"] == answer.label
        assert one["score"] == pytest.approx((answer.probabilities or {})[one["label"]], abs=1e-5)


@pytest.mark.parametrize("regression", ["sigmoid", "unit", "raw"])
@pytest.mark.parametrize("task", [STARS, ALIKE], ids=lambda task: task.name)
def test_a_score_is_on_the_tasks_own_scale(regression: str, task: Task, tmp_path: Path) -> None:
    predictor = opened(tmp_path, "bert", regression=regression)
    write_classifier(predictor.folder, task, tmp_path / "plain")
    pairs = SECOND if task.pair else None
    want = [answer.score for answer in predictor.predict(TEXTS, pairs)[task.name]]
    assert [answer.score for answer in load(tmp_path / "plain").predict(TEXTS, pairs)[task.name]] == pytest.approx(
        want, abs=1e-5
    )
    raw, output = raw_logits(tmp_path / "plain", task.pair)[:, 0], score_link(predictor.folder, task)
    assert bool(output) == (regression == "sigmoid")
    low, high = task.range or (0, 1)
    by_hand = low + (high - low) / (1 + np.exp(-raw)) if output else raw
    np.testing.assert_allclose(by_hand.clip(low, high), want, rtol=0, atol=1e-5)


def test_the_folder_is_plain(tmp_path: Path) -> None:
    predictor = opened(tmp_path, "bert")
    write_classifier(predictor.folder, TOPIC, tmp_path / "plain")
    names = {path.name for path in (tmp_path / "plain").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"} <= names
    assert "understill.json" not in names
    network = AutoModelForSequenceClassification.from_pretrained(tmp_path / "plain")
    assert network.config.id2label == {0: "delivery", 1: "money", 2: "access"}
    assert network.config.problem_type == "single_label_classification"
    assert next(network.parameters()).dtype == torch.float32


def test_a_text_is_cut_where_the_task_cuts_it(tmp_path: Path) -> None:
    predictor = opened(tmp_path, "bert")
    write_classifier(predictor.folder, TOPIC, tmp_path / "plain")  # which reads 8 tokens
    assert load(tmp_path / "plain").predict(TEXTS)["topic"][5].label == predictor.predict(TEXTS)["topic"][5].label
    ask = pipeline("text-classification", str(tmp_path / "plain"), device="cpu")
    assert ask.tokenizer.model_max_length == 8


def test_an_exported_classifier_can_teach(tmp_path: Path) -> None:
    predictor = opened(tmp_path, "bert")
    write_classifier(predictor.folder, MOOD, tmp_path / "plain")
    teacher = open_checkpoint("old", str(tmp_path / "plain"), MOOD, {}, None, tmp_path / "cache", 8, "cpu")
    assert teacher.name == "old"


def test_a_folder_of_several_classifiers_asks_which(tmp_path: Path) -> None:
    predictor = opened(tmp_path, "bert")
    write_classifier(predictor.folder, MOOD, tmp_path / "plain" / "mood")
    assert load(tmp_path / "plain").tasks == (MOOD,)
    write_classifier(predictor.folder, TOPIC, tmp_path / "plain" / "topic")
    with pytest.raises(UserError, match=r"holds several classifiers → load one: .*mood, .*topic"):
        load(tmp_path / "plain")


def test_a_broken_classifier_is_one_sentence(tmp_path: Path) -> None:
    predictor = opened(tmp_path, "bert")
    write_classifier(predictor.folder, MOOD, tmp_path / "plain")
    (tmp_path / "plain" / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"model\.safetensors is missing → copy the whole folder again"):
        load(tmp_path / "plain")
    (tmp_path / "plain" / "model.safetensors").write_bytes(b"nothing")
    seal(tmp_path / "plain")
    with pytest.raises(UserError, match="cannot be loaded") as error:
        load(tmp_path / "plain")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("kind", "tasks", "output"),
    [
        ("bilstm", PLAIN, r"network over words → write --to onnx"),
        ("static", PLAIN, r"network over words → write --to onnx"),
        ("san", (MOOD, FOLLOWS), r"follows has a SAN head\) → leave out what is not: --task mood; or write --to onnx"),
        (
            "siamese",
            (MOOD, ALIKE),
            r"alike reads its texts apart\) → leave out what is not: --task mood; or write --to",
        ),
        ("bert", (BEST,), r"best ranks candidates\) → write --to onnx"),
    ],
)
def test_what_is_no_plain_classifier_is_told_what_to_use(
    kind: str, tasks: tuple[Task, ...], output: str, tmp_path: Path
) -> None:
    network, heads = KINDS[kind]
    predictor = opened(tmp_path, network, tasks, **heads)
    with pytest.raises(UserError, match=output):
        refuse_others(predictor.folder.path, tasks)


def test_a_classifier_whose_task_has_other_labels_than_its_outputs_is_refused(tmp_path: Path) -> None:
    predictor = opened(tmp_path, "bert")
    write_classifier(predictor.folder, MOOD, tmp_path / "plain")
    config = tmp_path / "plain" / "config.json"
    values = json.loads(config.read_text(encoding="utf-8"))
    values["understill"]["task"]["labels"].reverse()
    config.write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(UserError, match=r"config\.json was changed or damaged"):
        load(tmp_path / "plain")
    seal(tmp_path / "plain")
    with pytest.raises(UserError, match="its task has other labels than the classifier"):
        load(tmp_path / "plain")
    (tmp_path / "plain" / "checksums.json").unlink()
    with pytest.raises(UserError, match=r"checksums\.json is missing"):
        load(tmp_path / "plain")
