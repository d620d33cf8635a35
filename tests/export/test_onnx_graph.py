"""Every kind of student leaves as one ONNX graph, and the light runtime says of it what the model says."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kinds import ALIKE, BEST, FOLLOWS, KINDS, SECOND, TASKS, TEXTS, save_kind
from understill.atomic import seal
from understill.errors import UserError
from understill.export import formats
from understill.export.onnx_graph import write_onnx
from understill.inference.loading import load
from understill.inference.onnx import OnnxModel
from understill.inference.torch_model import TorchModel
from understill.models.folder import load_model
from understill.models.manifest import find_model
from understill.models.shape import HEAD_SHAPES
from understill.tasks import Task

pytest.importorskip("onnxruntime", reason="needs onnxruntime")
pytest.importorskip("onnxscript", reason="needs onnxscript")


@pytest.fixture(scope="module", params=KINDS)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[TorchModel, OnnxModel]:
    """A model of each kind, and its export."""
    network, heads = KINDS[request.param]
    root = tmp_path_factory.mktemp(request.param)
    predictor = TorchModel(load_model(save_kind(root / "model", network, **heads)))
    (root / "onnx").mkdir()
    write_onnx(predictor.folder, predictor.tasks, root / "onnx")
    return predictor, OnnxModel(root / "onnx", threads=1)


def test_the_export_says_what_the_model_says(both: tuple[TorchModel, OnnxModel]) -> None:
    predictor, export = both
    told_apart = 0
    for pair in (False, True):
        tasks, pairs = predictor.choose(None, pair), SECOND if pair else None
        want, result = predictor.logits(TEXTS, pairs, tasks), export.logits(TEXTS, pairs, tasks)
        assert list(want) == list(result)
        for name, predictions in want.items():
            np.testing.assert_allclose(result[name].logits, predictions.logits, rtol=0, atol=1e-4)
            assert result[name].task == predictions.task
            told_apart += np.ptp(predictions.logits, axis=0).max() > 0.05
    assert told_apart >= 5, "rows are told apart"


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("tokens", [1, 40, 10_000])
def test_rows_may_come_in_any_number_and_order(
    both: tuple[TorchModel, OnnxModel], tokens: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, export = both
    tasks = export.choose(None, True)
    want = export.logits(TEXTS, SECOND, tasks)
    monkeypatch.setattr("understill.inference.onnx.TOKENS", tokens)
    monkeypatch.setattr(export, "threads", threads)
    result = export.logits(TEXTS[::-1], SECOND[::-1], tasks)
    for name in want:
        np.testing.assert_allclose(result[name].logits[::-1], want[name].logits, rtol=0, atol=1e-4)


def test_answers_are_those_of_the_model(both: tuple[TorchModel, OnnxModel]) -> None:
    predictor, export = both
    for pairs in (None, SECOND):
        want, result = predictor.predict(TEXTS, pairs), export.predict(TEXTS, pairs)
        for name, answers in want.items():
            assert [answer.label for answer in result[name]] == [answer.label for answer in answers]
            for one, other in zip(result[name], answers, strict=True):
                assert one.score == pytest.approx(other.score, abs=1e-4)
                assert one.probabilities == (other.probabilities and pytest.approx(other.probabilities, abs=1e-4))


def test_short_texts_are_answered_for_all_tasks_in_one_pass(
    both: tuple[TorchModel, OnnxModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a text that some task cuts shorter than others costs another pass, and no answer changes by a bit."""
    _, export = both
    tasks, short = export.choose(None, False), ["good", "not bad at all"]
    assert len({export.max_lengths[task.name] for task in tasks}) > 1
    session, rows = export.session, Counter[int]()

    class Counted:
        def run(self, names: list[str], feed: Any) -> Any:
            rows[len(names)] += len(next(iter(feed.values())))
            return session.run(names, feed)

    cases = ((short, {len(tasks): 2}), ([*short, TEXTS[5]], {len(tasks) - 1: 3, 1: 3}))
    for texts, passed in cases:
        alone = {task.name: export.logits(texts, None, [task])[task.name].logits for task in tasks}
        rows.clear()
        with monkeypatch.context() as patch:
            patch.setattr(export, "session", Counted())
            together = export.logits(texts, None, tasks)
        assert rows == passed, "rows, by how many tasks are answered"
        for name, logits in alone.items():
            assert np.array_equal(together[name].logits, logits)


def test_no_texts_get_no_answers(both: tuple[TorchModel, OnnxModel]) -> None:
    predictor, export = both
    assert export.predict([]) == predictor.predict([])


def test_the_graph_is_one_for_all_tasks_and_asks_for_tokens_alone(both: tuple[TorchModel, OnnxModel]) -> None:
    _, export = both
    assert [each.name for each in export.session.get_outputs()] == [f"logits_{task.name}" for task in TASKS]
    assert set(export.asks) <= {"ids", "lengths", "second"}
    files = ["checksums.json", "model.onnx", "tokenizer.json", "understill.json"]
    assert sorted(path.name for path in export.source.iterdir()) == files


@pytest.mark.parametrize("network", sorted(set(HEAD_SHAPES) - {"bert", "roberta"}))
def test_every_architecture_whose_heads_are_known_leaves_as_a_graph(network: str, tmp_path: Path) -> None:
    predictor = TorchModel(load_model(save_kind(tmp_path / "model", network, (FOLLOWS, ALIKE))))
    (tmp_path / "onnx").mkdir()
    write_onnx(predictor.folder, predictor.tasks, tmp_path / "onnx")
    result, want = (model.logits(TEXTS, SECOND, predictor.tasks) for model in (load(tmp_path / "onnx"), predictor))
    for name in want:
        np.testing.assert_allclose(result[name].logits, want[name].logits, rtol=0, atol=1e-4)


def test_some_tasks_alone_can_leave(tmp_path: Path) -> None:
    predictor = TorchModel(load_model(save_kind(tmp_path / "model", "bert")))
    (tmp_path / "onnx").mkdir()
    write_onnx(predictor.folder, [BEST], tmp_path / "onnx")
    export = load(tmp_path / "onnx")
    assert export.tasks == (BEST,)
    want = predictor.logits(TEXTS, SECOND, [BEST])["best"].logits
    np.testing.assert_allclose(export.logits(TEXTS, SECOND, [BEST])["best"].logits, want, rtol=0, atol=1e-4)
    with pytest.raises(UserError, match="no task that reads one text"):
        export.predict(["good"])


def test_tasks_may_have_the_names_of_inputs(tmp_path: Path) -> None:
    named = tuple(Task(name, "classification", ("text",), "label", labels=("a", "b")) for name in ("ids", "lengths"))
    predictor = TorchModel(load_model(save_kind(tmp_path / "model", "static", named)))
    (tmp_path / "onnx").mkdir()
    write_onnx(predictor.folder, named, tmp_path / "onnx")
    result, want = (model.predict(["good", "bad"])["ids"] for model in (load(tmp_path / "onnx"), predictor))
    assert [answer.label for answer in result] == [answer.label for answer in want]


def test_an_export_is_no_model_to_train_or_score(both: tuple[TorchModel, OnnxModel]) -> None:
    _, export = both
    with pytest.raises(UserError, match=r"is an ONNX export, which answers .* → name the model that it was made of"):
        find_model(export.source)


def test_missing_libraries_are_named_with_the_line_that_installs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r'onnx, onnxruntime and onnxscript → pip install "understill\[onnx\]"'):
        formats.need_libraries()


# Folders that are not whole -------------------------------------------------------------------------------------------


@pytest.fixture
def export_folder(tmp_path: Path) -> Path:
    predictor = TorchModel(load_model(save_kind(tmp_path / "model", "static")))
    (tmp_path / "onnx").mkdir()
    write_onnx(predictor.folder, predictor.tasks, tmp_path / "onnx")
    return tmp_path / "onnx"


@pytest.mark.parametrize(
    ("name", "content", "output"),
    [
        ("understill.json", "{", r"understill.json: broken"),
        ("understill.json", "[]", r"understill.json: broken"),
        ("understill.json", '{"format": 99}', "format 99 is not known"),
        ("model.onnx", "no graph", r"model.onnx cannot be read"),
        ("tokenizer.json", "{}", r"tokenizer.json cannot be read"),
    ],
)
def test_a_broken_file_is_one_sentence(export_folder: Path, name: str, content: str, output: str) -> None:
    (export_folder / name).write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=rf"{name} was changed or damaged → copy the whole folder again"):
        load(export_folder)
    seal(export_folder)  # as if somebody had written it so
    with pytest.raises(UserError, match=output) as error:
        load(export_folder)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json", "checksums.json"])
def test_a_file_that_is_missing_is_named(export_folder: Path, name: str) -> None:
    (export_folder / name).unlink()
    with pytest.raises(UserError, match=rf"onnx: {name} is missing → copy the whole folder again"):
        load(export_folder)


@pytest.mark.parametrize("threads", [0, -1])
def test_no_threads_are_too_few(export_folder: Path, threads: int) -> None:
    assert OnnxModel(export_folder, threads=1).threads == 1
    with pytest.raises(UserError, match=rf"threads={threads}: a model needs at least one"):
        load(export_folder, threads=threads)


def test_a_model_says_what_it_is(export_folder: Path) -> None:
    names = "mood, topic, stars, follows, alike, best"
    assert repr(load(export_folder)) == f"<OnnxModel of {export_folder} for {names}>"
    model = export_folder.with_name("model")
    assert repr(load(model)) == f"<TorchModel of {model} for {names}>"


@pytest.mark.parametrize("split", [False, True])
def test_special_tokens_in_a_text_are_read_as_the_manifest_says(tmp_path: Path, split: bool) -> None:
    folder = load_model(save_kind(tmp_path / "model", "bert", (FOLLOWS,)))
    folder.tokenizer.split_special_tokens = split
    (tmp_path / "onnx").mkdir()
    write_onnx(folder, folder.tasks, tmp_path / "onnx")
    export = OnnxModel(tmp_path / "onnx")
    ids = export.tokenise(["good [SEP] bad"], 32).ids.tolist()
    assert ids == TorchModel(folder).encode(["good [SEP] bad"], 32).ids.tolist()
    assert ids.count(folder.tokenizer.sep_token_id) == (1 if split else 2)


def test_a_manifest_without_a_fact_is_broken(export_folder: Path) -> None:
    path = export_folder / "understill.json"
    facts = json.loads(path.read_text(encoding="utf-8"))
    del facts["max_lengths"]
    path.write_text(json.dumps(facts), encoding="utf-8")
    seal(export_folder)
    with pytest.raises(UserError, match="broken: KeyError: 'max_lengths'"):
        load(export_folder)


def test_an_export_runs_on_the_cpu(export_folder: Path) -> None:
    assert load(export_folder, "auto").predict(["good"]) == load(export_folder).predict(["good"])
    with pytest.raises(UserError, match="runs on the CPU → leave out the device cuda"):
        load(export_folder, "cuda")


# Exports from strangers -----------------------------------------------------------------------------------------------


@pytest.fixture
def export(tmp_path: Path) -> Path:
    """An export, to be changed."""
    (tmp_path / "onnx").mkdir()
    write_onnx(load_model(save_kind(tmp_path / "model", "bert")), TASKS, tmp_path / "onnx")
    return tmp_path / "onnx"


def rewrite(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change what a JSON file of a folder says, and its checksums with it."""
    values = json.loads(path.read_text(encoding="utf-8"))
    change(values)
    path.write_text(json.dumps(values), encoding="utf-8")
    seal(path.parent)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (
            lambda facts: facts["tasks"][0]["labels"].append("x"),
            "mood has 3 outputs in understill.json, and 2 outputs in",
        ),
        (lambda facts: facts["tasks"][1]["labels"].pop(), "topic has 2 outputs in understill.json, and 3 outputs in"),
        (lambda facts: facts["tasks"][0].update(name="../../x"), '"../../x" is no name of a task'),
        (lambda facts: facts["tasks"][0].update(kind="regression"), "mood has 1 outputs in understill.json"),
        (lambda facts: facts["max_lengths"].update(mood=-1), "max_lengths lie between 1 and 65535"),
        (lambda facts: facts.update(pad=float("inf")), "broken: OverflowError"),
        (lambda facts: facts.update(format=[]), "format [] is not known"),
    ],
)
def test_a_manifest_that_was_changed_with_its_checksums_is_held_to_the_graph(
    change: Callable[[dict[str, Any]], object], what: str, export: Path
) -> None:
    rewrite(export / "understill.json", change)
    with pytest.raises(UserError, match=re.escape(what)):
        load(export)


def test_a_task_of_another_name_is_none_of_the_graph(export: Path) -> None:
    rewrite(export / "understill.json", lambda facts: facts["tasks"][0].update(name="other", head="other"))
    rewrite(export / "understill.json", lambda facts: facts["max_lengths"].update(other=8))
    with pytest.raises(UserError, match=r"other has 2 outputs in understill\.json, and none in model\.onnx"):
        load(export)


def test_labels_in_another_order_are_noticed_by_their_checksum(export: Path) -> None:
    path = export / "understill.json"
    path.write_text(path.read_text(encoding="utf-8").replace("calm", "x").replace("upset", "calm"), encoding="utf-8")
    with pytest.raises(UserError, match=r"understill\.json was changed or damaged"):
        load(export)


def test_a_graph_that_cannot_answer_is_one_sentence(export: Path) -> None:
    rewrite(export / "understill.json", lambda facts: facts["max_lengths"].update(mood=60_000))
    with pytest.raises(UserError, match=r"model\.onnx cannot answer: "):
        load(export).predict(["the film " * 300], tasks=["mood"])


def test_a_tokeniser_that_panics_is_one_sentence(export: Path) -> None:
    rewrite(export / "tokenizer.json", lambda facts: facts["post_processor"].update(special_tokens={}))
    with pytest.raises(UserError, match=r"the tokeniser fails: "):
        load(export)


def test_a_task_in_any_script_leaves_as_a_graph(tmp_path: Path) -> None:
    task = Task("첫실험", "classification", ("내용",), "분류", labels=("환불", "배송"))
    (tmp_path / "onnx").mkdir()
    write_onnx(load_model(save_kind(tmp_path / "model", "bert", (task,))), (task,), tmp_path / "onnx")
    assert load(tmp_path / "onnx").predict(["good"])["첫실험"][0].label in task.labels


def test_a_tokeniser_with_ids_that_no_graph_has_is_refused(export: Path) -> None:
    rewrite(export / "tokenizer.json", lambda facts: facts["model"]["vocab"].update(zebra=2**31))
    with pytest.raises(UserError, match="it has ids that no graph has"):
        load(export)


def test_a_graph_that_reads_outside_its_folder_is_refused(export: Path) -> None:
    onnx = pytest.importorskip("onnx")
    graph = onnx.load(str(export / "model.onnx"))
    weight = next(each for each in graph.graph.initializer if each.raw_data)
    (export.parent / "secret").write_bytes(weight.raw_data)
    weight.ClearField("raw_data")
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="../secret")
    (export / "model.onnx").write_bytes(graph.SerializeToString())
    seal(export)
    with pytest.raises(UserError, match=r"model\.onnx cannot be read: .*[Ee]xternal data path"):
        load(export)
