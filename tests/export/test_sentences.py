"""A task of a model with mean pooling leaves as a folder of which sentence-transformers gives the very logits."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file

from kinds import ALIKE, FOLLOWS, MOOD, STARS, TEXTS, TOPIC, save_kind
from kinds import SECOND as ANY_SECOND
from tiny import WORDS
from understill.atomic import seal
from understill.errors import UserError
from understill.export.huggingface import write_classifier
from understill.export.sentences import lines_of
from understill.inference.loading import load
from understill.inference.torch_model import TorchModel
from understill.models.folder import load_model
from understill.models.pooling import own_pooling
from understill.models.shape import HEAD_SHAPES
from understill.tasks import Task

PLAIN = (MOOD, TOPIC, STARS, FOLLOWS, ALIKE)
_words = WORDS.split()
#: Fifty of many lengths, some longer than is read.
MANY = [*TEXTS, *(" ".join(_words[at : at + 1 + 3 * (at % 17)]) for at in range(50 - len(TEXTS)))]
SECOND = [*(text or "bad" for text in ANY_SECOND), *MANY[: len(TEXTS) - 1 : -1]]


def written(
    root: Path, network: str, task: Task, tasks: tuple[Task, ...] = PLAIN, pooling: Any = "mean", **heads: Any
) -> TorchModel:
    predictor = TorchModel(load_model(save_kind(root / "model", network, tasks, pooling=pooling, **heads)))
    (root / "plain").mkdir()
    write_classifier(predictor.folder, task, root / "plain")
    return predictor


def logits(model: Any, task: Task) -> np.ndarray[Any, Any]:
    result: np.ndarray[Any, Any] = model.logits(MANY, SECOND if task.pair else None, [task])[task.name].logits
    return result


@pytest.mark.parametrize("network", ["bert", "roberta", "mpnet", "distilbert"])
@pytest.mark.parametrize(
    ("task", "regression"),
    [
        *((task, "sigmoid") for task in PLAIN if task.kind.name == "classification"),
        *((task, link) for task in (STARS, ALIKE) for link in ("sigmoid", "unit", "raw")),
    ],
)
def test_sentence_transformers_gives_the_logits_of_the_model(
    task: Task, regression: str, network: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    library = pytest.importorskip("sentence_transformers")
    predictor = written(tmp_path, network, task, regression=regression)
    want = logits(predictor, task)
    assert np.ptp(want, axis=0).max() > 0.05, "rows are told apart"
    if task.pair:
        model = library.CrossEncoder(str(tmp_path / "plain"), device="cpu")
        result = model.predict(list(zip(MANY, SECOND, strict=True)), batch_size=7, show_progress_bar=False)
    else:
        model = library.SentenceTransformer(str(tmp_path / "plain"), device="cpu")
        result = model.encode(MANY, batch_size=7, show_progress_bar=False)
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    np.testing.assert_allclose(result.reshape(want.shape), want, rtol=0, atol=1e-4)
    np.testing.assert_allclose(logits(load(tmp_path / "plain"), task), want, rtol=0, atol=1e-5)


@pytest.mark.parametrize("network", ["bert", "roberta"])
@pytest.mark.parametrize("task", [TOPIC, STARS, FOLLOWS])
def test_normalised_vectors_leave_with_a_module_that_normalises(task: Task, network: str, tmp_path: Path) -> None:
    library = pytest.importorskip("sentence_transformers")
    predictor = written(tmp_path, network, task, pooling="normalised")
    want = logits(predictor, task)
    assert np.ptp(want, axis=0).max() > 0.05, "rows are told apart"
    kind = library.CrossEncoder if task.pair else library.SentenceTransformer
    model = kind(str(tmp_path / "plain"), device="cpu")
    rows = list(zip(MANY, SECOND, strict=True)) if task.pair else MANY
    result = (model.predict if task.pair else model.encode)(rows, batch_size=7, show_progress_bar=False)
    np.testing.assert_allclose(result.reshape(want.shape), want, rtol=0, atol=2e-4)
    np.testing.assert_allclose(logits(load(tmp_path / "plain"), task), want, rtol=0, atol=1e-4)
    assert own_pooling(str(tmp_path / "plain")) == "normalised"


@pytest.mark.parametrize("network", [*sorted(HEAD_SHAPES), "modernbert"])
def test_every_architecture_can_leave(network: str, tmp_path: Path) -> None:
    predictor = written(tmp_path, network, FOLLOWS, (FOLLOWS, MOOD))
    np.testing.assert_allclose(logits(load(tmp_path / "plain"), FOLLOWS), logits(predictor, FOLLOWS), rtol=0, atol=1e-5)


@pytest.mark.parametrize("task", [MOOD, FOLLOWS])
def test_the_lines_of_the_card_give_the_labels(task: Task, tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers")
    predictor = written(tmp_path, "bert", task)
    given = ", ".join(map(repr, zip(TEXTS, SECOND, strict=False))) if task.pair else ", ".join(map(repr, TEXTS))
    *lines, last = lines_of(task)
    text = "\n".join([*lines, f"found = {last}"]).replace("path/to/this/folder", str(tmp_path / "plain"))
    names: dict[str, Any] = {}
    exec(text.replace('("…", "…")' if task.pair else '"…"', given), names)
    answers = predictor.predict(TEXTS, SECOND[: len(TEXTS)] if task.pair else None, [task.name])[task.name]
    assert names["found"] == [answer.label for answer in answers]


def test_the_folder_holds_plain_files_and_no_pooler(tmp_path: Path) -> None:
    written(tmp_path, "roberta", STARS)
    plain = tmp_path / "plain"
    files = {str(path.relative_to(plain)) for path in plain.rglob("*") if path.is_file()}
    assert files == {
        "1_Pooling/config.json", "2_Dense/config.json", "2_Dense/model.safetensors", "3_Dense/config.json",
        "3_Dense/model.safetensors", "4_Dense/config.json", "4_Dense/model.safetensors", "checksums.json",
        "config.json",
        "config_sentence_transformers.json", "model.safetensors", "modules.json", "sentence_bert_config.json",
        "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip
    assert not [name for name in load_file(plain / "model.safetensors") if "pooler" in name]
    assert own_pooling(str(plain)) == "mean", "and it can be an encoder to begin with"


@pytest.mark.parametrize(
    ("damage", "output"),
    [
        (lambda folder: (folder / "modules.json").unlink(), "modules.json"),
        (lambda folder: (folder / "2_Dense" / "model.safetensors").write_bytes(b"0"), "cannot be loaded"),
        (lambda folder: (folder / "2_Dense" / "config.json").write_text(json.dumps({})), "activation_function"),
    ],
)
def test_a_damaged_folder_is_refused_in_one_sentence(
    damage: Callable[[Path], Any], output: str, tmp_path: Path
) -> None:
    written(tmp_path, "bert", MOOD)
    damage(tmp_path / "plain")
    with pytest.raises(UserError, match=r"(was changed or damaged|is missing) → copy the whole folder again"):
        load(tmp_path / "plain")
    seal(tmp_path / "plain")  # as if somebody had written it so
    with pytest.raises(UserError, match=output) as error:
        load(tmp_path / "plain")
    assert "\n" not in str(error.value)
