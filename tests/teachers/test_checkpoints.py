"""A checkpoint made elsewhere says exactly what transformers' own call says, or it is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from helpers import MOOD, STARS, TOPIC, liven, some_model
from understill.atomic import seal
from understill.data.taskdata import TaskData
from understill.errors import UserError
from understill.models.encoder import load_tokenizer
from understill.models.folder import load_model, save_model
from understill.tasks import Task
from understill.teachers.checkpoints import checkpoint_digest, locate, open_checkpoint
from understill.teachers.trained import ModelTeacher, NetworkTeacher

Stand = Callable[..., TaskData]
NAMES = {1: ("LABEL_0",), 2: ("Upset", "Calm"), 3: ("money", "access", "delivery")}
TEXTS = [
    "not bad at all",
    "I was charged twice for one order and nobody listens , please reset the password of my account !",
    "the film",
    "a long story " * 60,  # longer than any of these models reads
    "My account is locked , please reset the password",
    "good",
]
PAIRS = list(zip(TEXTS, [*TEXTS[2:], *TEXTS[:2]], strict=True))


def change(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def save_classifier(folder: Path, encoder: Path, names: tuple[str, ...]) -> Path:
    """Write a tiny sequence classifier with its tokeniser, as anybody's training script does."""
    shutil.copytree(encoder, folder)
    change(folder / "tokenizer_config.json", model_input_names=["input_ids", "token_type_ids", "attention_mask"])
    config = AutoConfig.from_pretrained(folder, num_labels=len(names))
    config.id2label, config.label2id = dict(enumerate(names)), {name: number for number, name in enumerate(names)}
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_config(config)
    liven(model)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def classifier(tiny_of: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A function that gives a tiny classifier, written once each."""
    root = tmp_path_factory.mktemp("classifiers")

    def folder(kind: str = "bert", outputs: int = 2) -> Path:
        place = root / f"{kind}-{outputs}"
        return place if place.exists() else save_classifier(place, tiny_of(kind), NAMES[outputs])

    return folder


@pytest.fixture
def broken(classifier: Callable[..., Path], tmp_path: Path) -> Path:
    """A copy of a classifier of two labels, to be damaged."""
    return Path(shutil.copytree(classifier(), tmp_path / "broken"))


def open_(place: Path | str, task: Task, cache: Path, **changes: Any) -> NetworkTeacher:
    settings: dict[str, Any] = {"labels": {}, "max_length": None, "cache": cache, "batch": 4, "device": "cpu"}
    return open_checkpoint("old", str(place), task, **{**settings, **changes})


@torch.no_grad()
def own_logits(folder: Path, texts: list[Any], length: int) -> np.ndarray[Any, Any]:
    """Ask transformers row by row, without padding."""
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    rows = []
    for text in texts:
        pair = text if isinstance(text, tuple) else (text,)
        inputs = tokenizer(*pair, truncation=True, max_length=length, return_tensors="pt")
        if model.config.model_type in ("distilbert", "mpnet"):
            inputs.pop("token_type_ids", None)
        rows.append(model(**inputs).logits[0].numpy())
    return np.stack(rows)


# What it says --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert", "mpnet", "electra", "albert"])
def test_logits_are_those_of_transformers_own_call(
    kind: str, classifier: Callable[..., Path], stand: Stand, tmp_path: Path
) -> None:
    limit = {"roberta": 129, "mpnet": 128}.get(kind, 130)
    folder = classifier(kind, 2)
    output = open_(folder, MOOD, tmp_path).logits(stand(MOOD, TEXTS))
    own = own_logits(folder, TEXTS, limit)
    assert own.std(axis=0).min() > 0.01
    np.testing.assert_allclose(output, own[:, ::-1], atol=1e-5)  # its labels are "Upset", "Calm"
    folder = classifier(kind, 3)
    output = open_(folder, TOPIC, tmp_path).logits(stand(TOPIC, PAIRS))
    np.testing.assert_allclose(output, own_logits(folder, PAIRS, limit)[:, [2, 0, 1]], atol=1e-5)


@pytest.mark.parametrize("length", [8, 20])
def test_no_more_is_read_than_asked_for(
    length: int, classifier: Callable[..., Path], stand: Stand, tmp_path: Path
) -> None:
    output = open_(classifier(), MOOD, tmp_path, max_length=length).logits(stand(MOOD, TEXTS))
    own = own_logits(classifier(), TEXTS, length)[:, ::-1]
    np.testing.assert_allclose(output, own, atol=1e-5)
    assert np.abs(own_logits(classifier(), TEXTS, 130)[:, ::-1] - own).max() > 1e-3


def test_no_more_is_read_than_the_tokeniser_says(broken: Path, stand: Stand, tmp_path: Path) -> None:
    change(broken / "tokenizer_config.json", model_max_length=12)
    output = open_(broken, MOOD, tmp_path).logits(stand(MOOD, TEXTS))
    np.testing.assert_allclose(output, own_logits(broken, TEXTS, 12)[:, ::-1], atol=1e-5)


def test_scores_are_taken_as_they_are(classifier: Callable[..., Path], stand: Stand, tmp_path: Path) -> None:
    folder = classifier("bert", 1)
    output = open_(folder, STARS, tmp_path).logits(stand(STARS, TEXTS))
    np.testing.assert_allclose(output, own_logits(folder, TEXTS, 130), atol=1e-5)


def test_token_types_are_those_of_the_tokeniser(broken: Path, stand: Stand, tmp_path: Path) -> None:
    task = replace(TOPIC, labels=MOOD.labels)
    with_types = open_(broken, task, tmp_path).logits(stand(task, PAIRS))
    np.testing.assert_allclose(with_types, own_logits(broken, PAIRS, 130)[:, ::-1], atol=1e-5)
    # The network knows types, but its tokeniser gives none, so it was trained without.
    change(broken / "tokenizer_config.json", model_input_names=["input_ids", "attention_mask"])
    without = open_(broken, task, tmp_path).logits(stand(task, PAIRS))
    np.testing.assert_allclose(without, own_logits(broken, PAIRS, 130)[:, ::-1], atol=1e-5)
    assert np.abs(with_types - without).max() > 1e-3


def test_a_model_that_pads_otherwise_is_refused(tiny: Path, tmp_path: Path) -> None:
    folder = tmp_path / "xlnet"
    tokenizer = load_tokenizer(str(tiny))
    config = AutoConfig.for_model(
        "xlnet", vocab_size=len(tokenizer), d_model=32, n_layer=1, n_head=2, d_inner=64, num_labels=2, pad_token_id=0,
        id2label={0: "calm", 1: "upset"},
    )  # fmt: skip
    model = AutoModelForSequenceClassification.from_config(config)  # it reads the last cell
    liven(model)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    with pytest.raises(
        UserError, match=r"teacher old: this xlnet model cannot be asked: it reads padded rows in a way of"
    ):
        open_(folder, MOOD, tmp_path)


def test_a_model_that_fails_at_its_first_rows_is_refused(tiny: Path, tmp_path: Path) -> None:
    folder = tmp_path / "gpt"
    tokenizer = load_tokenizer(str(tiny))
    names = {0: "calm", 1: "upset"}
    config = AutoConfig.for_model("gpt2", vocab_size=len(tokenizer), n_embd=32, n_layer=1, n_head=2, id2label=names)
    AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    with pytest.raises(
        UserError, match=r"this gpt2 model cannot be asked: Cannot handle batch sizes > 1 .* predictions:"
    ):
        open_(folder, MOOD, tmp_path)


# Labels --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [("Upset", "Calm"), ("LABEL_0", "LABEL_1"), ("0", "1")])
def test_labels_can_be_mapped(
    keys: tuple[str, str], classifier: Callable[..., Path], stand: Stand, tmp_path: Path
) -> None:
    task = replace(MOOD, labels=("no", "yes"))
    output = open_(classifier(), task, tmp_path, labels={keys[0]: "yes", keys[1]: "no"}).logits(stand(task, TEXTS))
    np.testing.assert_allclose(output, own_logits(classifier(), TEXTS, 130)[:, ::-1], atol=1e-5)


def test_classes_the_task_does_not_have_are_left_out_only_by_a_map(
    classifier: Callable[..., Path], stand: Stand, tmp_path: Path
) -> None:
    task = replace(MOOD, labels=("access", "money"))
    with pytest.raises(UserError, match="it has money, access, delivery, mood has access, money → say which is which"):
        open_(classifier(outputs=3), task, tmp_path)
    teacher = open_(classifier(outputs=3), task, tmp_path, labels={"money": "money", "access": "access"})
    own = own_logits(classifier(outputs=3), TEXTS, 130)
    np.testing.assert_allclose(teacher.logits(stand(task, TEXTS)), own[:, [1, 0]], atol=1e-5)


def test_labels_without_names_are_never_matched_by_their_place(tiny: Path, tmp_path: Path) -> None:
    folder = save_classifier(tmp_path / "nameless", tiny, ("LABEL_0", "LABEL_1"))
    with pytest.raises(UserError, match=r"it has LABEL_0, LABEL_1, mood has calm, upset .* {LABEL_0: calm, LABEL_1: "):
        open_(folder, MOOD, tmp_path)


@pytest.mark.parametrize(
    ("outputs", "task", "words"),
    [
        (1, MOOD, "gives one score, but mood is a classification task"),
        (2, STARS, "gives 2 classes, but stars is a reg"),
    ],
)
def test_the_kind_of_task_must_be_the_same(
    outputs: int, task: Task, words: str, classifier: Callable[..., Path], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=f"teacher old: it {words}"):
        open_(classifier(outputs=outputs), task, tmp_path)


def test_several_labels_at_once_are_refused(broken: Path, tmp_path: Path) -> None:
    change(broken / "config.json", problem_type="multi_label_classification")
    with pytest.raises(UserError, match="several labels at once"):
        open_(broken, MOOD, tmp_path)


# What cannot be loaded -----------------------------------------------------------------------------------------------


def drop_weights(folder: Path, part: str) -> None:
    weights = load_file(folder / "model.safetensors")
    kept = {key: value for key, value in weights.items() if part not in key}
    assert len(kept) < len(weights)
    save_file(kept, folder / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert"])
def test_a_plain_encoder_is_no_teacher(kind: str, tiny_of: Callable[[str], Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_of(kind), tmp_path / "plain"))
    change(folder / "config.json", id2label={"0": "calm", "1": "upset"}, label2id={"calm": 0, "upset": 1})
    with pytest.raises(UserError, match=r"teacher old: it has no trained classifier \(.*bias is not in its file\)"):
        open_(folder, MOOD, tmp_path)


def test_a_classifier_of_another_size_is_no_trained_one(broken: Path, tmp_path: Path) -> None:
    change(broken / "config.json", id2label={"0": "a", "1": "b", "2": "c"}, label2id={"a": 0, "b": 1, "c": 2})
    with pytest.raises(UserError, match="no trained classifier"):
        open_(broken, replace(MOOD, labels=("a", "b", "c")), tmp_path)


def test_missing_weights_are_refused(broken: Path, tmp_path: Path) -> None:
    drop_weights(broken, "layer.1.attention.output.dense")
    with pytest.raises(UserError, match=r"teacher old: 2 weights are missing from its file, such as bert\.encoder"):
        open_(broken, MOOD, tmp_path)


def test_a_missing_pooler_is_refused_because_the_classifier_reads_it(broken: Path, tmp_path: Path) -> None:
    drop_weights(broken, "pooler")
    with pytest.raises(UserError, match="2 weights are missing"):
        open_(broken, MOOD, tmp_path)


def test_only_safetensors_are_read(broken: Path, tmp_path: Path) -> None:
    torch.save(load_file(broken / "model.safetensors"), broken / "pytorch_model.bin")
    (broken / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"teacher old: .*no safetensors weights"):
        open_(broken, MOOD, tmp_path)


def test_damaged_weights_are_one_sentence(broken: Path, tmp_path: Path) -> None:
    (broken / "model.safetensors").write_bytes(b"nonsense" * 20)
    with pytest.raises(UserError, match="teacher old: it cannot be loaded"):
        open_(broken, MOOD, tmp_path)


def test_a_folder_without_a_tokeniser_is_refused(broken: Path, tmp_path: Path) -> None:
    for path in broken.glob("tokenizer*"):
        path.unlink()
    with pytest.raises(UserError, match=r"teacher old: checkpoint .* its tokeniser knows no words"):
        open_(broken, MOOD, tmp_path)


def test_what_is_not_there_is_said_of_the_teacher(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"teacher old: checkpoint .*nowhere: no such folder"):
        open_(tmp_path / "nowhere", MOOD, tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"teacher old: checkpoint .*no config.json"):
        open_(tmp_path / "empty", MOOD, tmp_path)


def test_an_architecture_without_classifiers_is_refused(broken: Path, tmp_path: Path) -> None:
    settings = {
        "_name_or_path": "",
        "architectures": None,
        "vocab_size": 400,
        "hidden_size": 8,
        "state_size": 4,
        "num_hidden_layers": 1,
    }
    labels = {"id2label": {"0": "calm", "1": "upset"}, "label2id": {"calm": 0, "upset": 1}}
    (broken / "config.json").write_text(json.dumps({"model_type": "mamba", **settings, **labels}))
    with pytest.raises(UserError, match="a mamba model has no sequence classifier"):
        open_(broken, MOOD, tmp_path)


def test_a_length_the_model_cannot_read_is_refused(classifier: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"teacher old: max_length 131 is more than it can read \(130\)"):
        open_(classifier(), MOOD, tmp_path, max_length=131)
    with pytest.raises(UserError, match=r"more than it can read \(129\)"):
        open_(classifier("roberta"), MOOD, tmp_path, max_length=130)


# Digests, and models of our own --------------------------------------------------------------------------------------


def test_the_digest_changes_with_all_that_decides(broken: Path, tmp_path: Path) -> None:
    names = {"Upset": "upset", "Calm": "calm"}
    seen = [checkpoint_digest(str(broken), {}, None)]
    assert open_(broken, MOOD, tmp_path).digest == seen[0]
    seen.append(checkpoint_digest(str(broken), names, None))
    seen.append(checkpoint_digest(str(broken), names, 32))
    assert open_(broken, MOOD, tmp_path, labels=names, max_length=32).digest == seen[2]
    change(broken / "config.json", id2label={"0": "calm", "1": "upset"})
    seen.append(checkpoint_digest(str(broken), {}, None))
    weights = load_file(broken / "model.safetensors")
    save_file({key: value * 1.5 for key, value in weights.items()}, broken / "model.safetensors", {"format": "pt"})
    seen.append(checkpoint_digest(str(broken), {}, None))
    assert len(set(seen)) == 5


@pytest.fixture
def run(tiny: Path, tmp_path: Path) -> Path:
    """The folder of a run with one model."""
    model = some_model(tiny).eval()
    liven(model)
    lengths = {"mood": 32, "topic": 24, "stars": 16}
    save_model(tmp_path / "run" / "models" / "all", model, load_tokenizer(str(tiny)), lengths, "{}\n", {})
    return tmp_path / "run"


def test_a_model_of_another_run_teaches_too(run: Path, stand: Stand, tmp_path: Path) -> None:
    folder = run / "models" / "all"
    assert locate(str(run)) == locate(str(folder)) == str(folder)
    plain = ModelTeacher("old", "", load_model(folder), tmp_path, 4, "cpu")
    for place in (run, folder):
        for task, texts in ((MOOD, TEXTS), (TOPIC, PAIRS), (STARS, TEXTS)):
            data = stand(task, texts)
            np.testing.assert_array_equal(open_(place, task, tmp_path).logits(data), plain.logits(data))
    task = replace(MOOD, labels=("no", "yes"))
    mapped = open_(run, task, tmp_path, labels={"calm": "yes", "upset": "no"}).logits(stand(task, TEXTS))
    np.testing.assert_array_equal(mapped, plain.logits(stand(MOOD, TEXTS))[:, ::-1])
    with pytest.raises(UserError, match="teacher old: it has no task tone, only mood, topic and stars"):
        open_(run, replace(MOOD, name="tone", head="tone"), tmp_path)


def test_a_models_own_length_can_be_changed(run: Path, stand: Stand, tmp_path: Path) -> None:
    short, usual, long = (open_(run, MOOD, tmp_path, max_length=length) for length in (8, None, 32))
    data = stand(MOOD, TEXTS)
    np.testing.assert_array_equal(usual.logits(data), long.logits(data))
    assert np.abs(usual.logits(data) - short.logits(data)).max() > 1e-3
    with pytest.raises(UserError, match="more than it can read"):
        open_(run, MOOD, tmp_path, max_length=512)


def test_the_digest_of_a_model_covers_its_tasks(run: Path) -> None:
    folder = run / "models" / "all"
    before = checkpoint_digest(str(folder), {}, None)
    manifest = json.loads((folder / "understill.json").read_text())
    manifest["tasks"][0]["labels"] = ["upset", "calm"]
    (folder / "understill.json").write_text(json.dumps(manifest))
    with pytest.raises(UserError, match=r"understill\.json was changed or damaged"):
        checkpoint_digest(str(folder), {}, None)
    seal(folder)
    assert checkpoint_digest(str(folder), {}, None) != before
