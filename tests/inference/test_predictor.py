"""A model folder answers in one line, and says what is wrong with a question."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import understill
from tiny import WORDS
from understill.atomic import write_record
from understill.errors import UserError
from understill.inference.classifier import HuggingFaceModel
from understill.inference.loading import load
from understill.inference.onnx import OnnxModel
from understill.inference.predictor import Answer, Predictions, Predictor, refuse_no_numbers
from understill.inference.stream import predict_file
from understill.inference.torch_model import TorchModel
from understill.models.folder import load_model
from understill.models.manifest import find_model
from understill.tasks import Task

TEXTS = ["The parcel never came .", "good", "I was charged twice for one order !", "not bad at all", "the film ?"]
SECOND = ["nobody listens", "far too long", "My account is locked", "bad", "a small man plays"]


def test_one_line_in_a_fresh_process_is_enough(model_folder: Path, tmp_path: Path) -> None:
    moved = tmp_path / "model"
    shutil.copytree(model_folder, moved)  # nothing outside the folder is needed
    line = "import understill; print(understill.load('model').predict(['good', 'bad'])['mood'][0].label)"
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH") if name in os.environ}
    environment = {**kept, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", line], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == load(model_folder).predict(["good"])["mood"][0].label


def test_every_task_that_reads_so_many_texts_answers(predictor: TorchModel) -> None:
    single, pairs = predictor.predict(TEXTS), predictor.predict(TEXTS, SECOND)
    assert set(single) == {"mood", "topic", "stars"}
    assert set(pairs) == {"follows", "alike"}
    assert all(len(answers) == len(TEXTS) for answers in (*single.values(), *pairs.values()))


@pytest.mark.parametrize("broken", [np.nan, -np.inf])
def test_answers_that_are_no_numbers_are_refused_with_their_count(predictor: TorchModel, broken: float) -> None:
    mood = predictor.tasks[0]
    refuse_no_numbers("it", "mood/dev", Predictions(mood, np.array([[0, 1]], np.float32)))
    with pytest.raises(UserError, match=r"it gives NaN or infinite outputs for 1 of 2 rows of mood/dev → mend it"):
        refuse_no_numbers("it", "mood/dev", Predictions(mood, np.array([[0, 1], [0, broken]], np.float32)), "mend it")


def test_a_model_that_answers_with_no_number_is_refused_for_texts_and_for_files(
    model_folder: Path, tmp_path: Path
) -> None:
    model = load(model_folder)
    assert isinstance(model, TorchModel)
    model.model.heads.tasks[0].get_submodule("out").bias.data[:] = float("nan")
    refusal = r"model gives NaN or infinite outputs for 2 of 2 rows of mood → its weights are broken"
    assert model.predict(["good", "bad"], tasks=["topic"])
    with pytest.raises(UserError, match=refusal):
        model.predict(["good", "bad"])
    (tmp_path / "in.csv").write_text("text\ngood\nbad\n", encoding="utf-8")
    with pytest.raises(UserError, match=refusal):
        predict_file(model, tmp_path / "in.csv", tmp_path / "out.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


def test_answers_come_in_the_models_order_of_tasks(predictor: TorchModel) -> None:
    assert list(predictor.predict(TEXTS)) == ["mood", "topic", "stars"]
    assert list(predictor.predict(TEXTS, tasks=["stars", "mood"])) == ["stars", "mood"]


def test_a_label_is_the_likeliest_and_probabilities_sum_to_one(predictor: TorchModel) -> None:
    for answer in predictor.predict(TEXTS)["topic"]:
        assert answer.probabilities is not None
        assert list(answer.probabilities) == ["delivery", "money", "access"]
        assert sum(answer.probabilities.values()) == pytest.approx(1, abs=1e-5)
        assert answer.label == max(answer.probabilities, key=lambda name: answer.probabilities[name])
        assert answer.score is None
    assert len({answer.label for answer in predictor.predict(WORDS.split())["topic"]}) > 1


def test_a_score_lies_in_the_tasks_range(predictor: TorchModel) -> None:
    answers = predictor.predict(TEXTS)["stars"]
    assert all(answer == Answer(score=answer.score) and 1 <= answer.score <= 5 for answer in answers)  # type: ignore[operator]
    values = predictor.logits(TEXTS, None, predictor.choose(["stars"], False))["stars"].values
    assert values.min() < 1 or values.max() > 5, "a line goes on past the ends of the scale"
    assert len(set(values)) == len(TEXTS)


def test_tasks_asked_together_answer_as_each_alone(predictor: TorchModel) -> None:
    for texts in ((TEXTS, None), (TEXTS, SECOND)):
        together = predictor.predict(*texts)
        for name, answers in together.items():
            alone = predictor.predict(*texts, tasks=[name])[name]
            for one, other in zip(answers, alone, strict=True):
                assert one.label == other.label
                assert one.score == pytest.approx(other.score, abs=1e-5)


def test_the_order_of_a_pair_matters(predictor: TorchModel) -> None:
    alike = predictor.choose(["alike"], True)
    there, back = (predictor.logits(*texts, alike)["alike"].values for texts in ((TEXTS, SECOND), (SECOND, TEXTS)))
    assert np.abs(there - back).min() > 1e-4


def test_each_task_reads_as_many_tokens_as_it_was_trained_on(predictor: TorchModel) -> None:
    start = "good not bad but far too long and I was charged twice for one order"  # more than 16 tokens
    short, long = start, start + " please reset the password"
    assert len(predictor.folder.tokenizer(short).input_ids) >= 16
    result = predictor.logits([short, long], None, predictor.choose(["mood", "topic"], False))
    np.testing.assert_allclose(result["topic"].logits[0], result["topic"].logits[1], atol=1e-5)
    assert np.abs(result["mood"].logits[0] - result["mood"].logits[1]).max() > 1e-3


def test_no_texts_get_no_answers(predictor: TorchModel) -> None:
    assert predictor.predict([]) == {"mood": [], "topic": [], "stars": []}
    assert predictor.predict([], []) == {"follows": [], "alike": []}


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "\n\t",
        "🙂🙃",
        "日本語のテキスト",
        "נוסח עברי",
        "é" * 3,
        "a\0b",
        "[SEP] [CLS]",
        "good " * 50_000,
        "x" * 100_000,
    ],
    ids=lambda text: repr(text[:8]),
)
def test_any_text_gets_an_answer(predictor: TorchModel, text: str) -> None:
    single, pair = predictor.predict([text, "good"]), predictor.predict([text, "good"], ["good", text])
    for answers in (*single.values(), *pair.values()):
        assert len(answers) == 2
        assert all(answer.label is not None or np.isfinite(answer.score) for answer in answers)  # type: ignore[arg-type]
    beside = predictor.predict(["good"])["stars"][0].score
    assert single["stars"][1].score == pytest.approx(beside, abs=1e-5)


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (("good",), "predict takes a list of texts; put the text in brackets"),
        ((["good"], "bad"), "predict takes a list of second texts; put the second text in brackets"),
        ((["good"], None, "mood"), 'tasks is a list of names; write ["mood"]'),
        ((["a", "b"], ["c"]), "2 texts and 1 second texts do not make pairs"),
        ((["a"], None, ["moods"]), 'the model has no task "moods"; did you mean "mood"?'),
        ((["a"], None, ["mood", "xyz"]), 'the model has no task "xyz"; known: alike, follows, mood, stars, topic'),
        ((["a"], None, ["follows"]), "task follows reads two texts"),
        ((["a"], ["b"], ["mood"]), "task mood reads one text"),
        ((["a", None],), "text 2 is a NoneType, not a string"),
        ((["a"], [3.0]), "second text 1 is a float, not a string"),
        (([("a", "b")],), "text 1 is a tuple, not a string; give the second texts of pairs as a list of their own"),
        (({"text": ["good"]},), "predict takes a list of texts, not a mapping → give it one of the values"),
        (
            (np.full((2, 3), "a", object),),
            "the texts are a table of 3 columns; predict takes one of texts, or two of pairs → "
            'choose them by name, such as frame[["text"]]',
        ),
        (
            (["a"], np.full((1, 2), "a", object)),
            "the second texts are a table of 2 columns; predict takes one of second texts → "
            'choose them by name, such as frame[["text"]]',
        ),
        ((np.array([["a", None]], object),), "second text 1 is a NoneType, not a string"),
        ((["\ud800"],), "text 1 holds half a character, which no encoding has; mend the text"),
    ],
)
def test_a_wrong_question_is_answered_with_one_clear_sentence(
    predictor: TorchModel, asked: tuple[Any, ...], sentence: str
) -> None:
    with pytest.raises(UserError) as error:
        predictor.predict(*asked)
    assert str(error.value) == sentence


@pytest.mark.parametrize("library", ["pandas", "pyarrow", "polars"])
def test_the_columns_of_a_frame_are_its_texts_and_not_their_names(predictor: TorchModel, library: str) -> None:
    module = pytest.importorskip(library)
    frame = (module.table if library == "pyarrow" else module.DataFrame)({"text": TEXTS, "other": SECOND})
    one = frame.select(["text"]) if library == "pyarrow" else frame[["text"]]
    expected, pairs = predictor.predict(TEXTS), predictor.predict(TEXTS, SECOND)
    assert predictor.predict(one) == predictor.predict(frame["text"]) == expected
    assert predictor.predict(frame) == predictor.predict(frame["text"], frame["other"]) == pairs
    assert predictor.predict(one[:0]) == predictor.predict([])


def test_texts_that_come_one_by_one_are_all_answered(predictor: TorchModel) -> None:
    assert predictor.predict(text for text in TEXTS) == predictor.predict(TEXTS)


@pytest.mark.parametrize("kind", [TorchModel, HuggingFaceModel, OnnxModel])
def test_models_of_every_form_check_texts_alike(kind: type[Predictor]) -> None:
    assert kind.predict is Predictor.predict


def test_a_model_without_such_tasks_says_so(make_model: Callable[..., Path]) -> None:
    model = load(make_model((Task("mood", "classification", ("text",), "label", labels=("a", "b")),)))
    with pytest.raises(UserError, match=r"^the model has no task that reads two texts$"):
        model.predict(["a"], ["b"])


def test_a_model_loads_from_its_folder_or_from_a_run_folder_with_one_model(model_folder: Path, tmp_path: Path) -> None:
    assert understill.load(str(model_folder)).tasks == load_model(model_folder).tasks
    (tmp_path / "models").mkdir()
    with pytest.raises(UserError, match="holds no model yet"):
        load(tmp_path)
    (tmp_path / "models" / "one").symlink_to(model_folder)
    assert load(tmp_path).tasks == load_model(model_folder).tasks
    (tmp_path / "models" / "two").symlink_to(model_folder)
    with pytest.raises(UserError, match=r"holds several models; give one of them: .*one, .*two$"):
        load(tmp_path)
    for main, role in {"one": "model", "two": "student"}.items():  # what a run is made for, whatever else it holds
        write_record(tmp_path / "run.json", {"roles": {"one": "teacher", "two": "baseline", main: role}})
        assert find_model(tmp_path) == tmp_path / "models" / main


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such model folder"):
        load(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"no understill\.json here, so this is no understill model"):
        load(tmp_path)


def test_a_model_that_was_saved_and_loaded_answers_the_same(predictor: TorchModel, model_folder: Path) -> None:
    again = load(model_folder)
    assert again.predict(TEXTS) == predictor.predict(TEXTS)
    assert not again.model.training
