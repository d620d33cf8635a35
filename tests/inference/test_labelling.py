"""Every shard is labelled once and whole, whatever fails, is killed or comes again."""

from __future__ import annotations

import json
import multiprocessing
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from understill.errors import Problems, UserError
from understill.events import Event, ShardsLabelled
from understill.inference import labelling, shards
from understill.inference.labelling import label_shards
from understill.inference.shards import LabelJob
from understill.inference.stream import Predicted
from understill.inference.torch_model import TorchModel

WORDS = [
    "the",
    "parcel",
    "never",
    "came",
    "and",
    "nobody",
    "listens",
    "please",
    "reset",
    "my",
    "password",
    "it",
    "was",
    "charged",
    "twice",
]


def texts(shard: int, rows: int) -> list[str]:
    """Texts that differ from row to row and from shard to shard."""
    return [" ".join(WORDS[(shard + row * step) % len(WORDS)] for step in range(1, 7)) for row in range(rows)]


@pytest.fixture
def job(model_folder: Path, tmp_path: Path) -> LabelJob:
    """Five shards in three formats, one of them in a folder of its own and one empty."""
    source = tmp_path / "shards"
    (source / "day=2").mkdir(parents=True)
    for number, name in enumerate(("a.parquet", "b.parquet", "day=2/a.parquet")):
        rows = texts(number, 30)
        pq.write_table(pa.table({"nr": range(number * 30, number * 30 + 30), "text": rows}), source / name)
    lines = [json.dumps({"nr": 90 + row, "text": text, "more": [row]}) for row, text in enumerate(texts(3, 30))]
    (source / "c.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (source / "d.jsonl").write_bytes(b"")
    (source / "_SUCCESS").write_bytes(b"")
    return LabelJob(model_folder, source, tmp_path / "labelled", ("mood", "stars"), device="cpu")


def outputs(job: LabelJob) -> dict[str, list[dict[str, Any]]]:
    """The rows of every output, by its name."""
    rows = {}
    for path in sorted(job.target.rglob("*")):
        name = path.relative_to(job.target).as_posix()
        if path.is_file() and not name.startswith(shards.DONE):
            lines = path.read_text(encoding="utf-8").splitlines() if path.suffix == ".jsonl" else []
            rows[name] = [json.loads(line) for line in lines] if lines else []
            if path.suffix == ".parquet":
                rows[name] = pq.ParquetFile(path).read().to_pylist()
    return rows


def times(job: LabelJob) -> dict[str, int]:
    """When each output was written."""
    return {name: (job.target / name).stat().st_mtime_ns for name in outputs(job)}


def test_every_shard_has_an_output_with_answers_and_logits_in_its_own_format(
    job: LabelJob, predictor: TorchModel
) -> None:
    result = label_shards(job)
    assert (result.shards, result.skipped, result.rows, result.unanswered) == (5, 0, 120, 0)
    rows = outputs(job)
    assert list(rows) == ["a.parquet", "b.parquet", "c.jsonl", "d.jsonl", "day=2/a.parquet"]
    assert sorted(row["nr"] for each in rows.values() for row in each) == list(range(120))
    assert rows["c.jsonl"][7]["more"] == [7]
    for each in rows.values():
        logits = predictor.logits([row["text"] for row in each], None, predictor.choose(["mood", "stars"], None))
        for number, row in enumerate(each):
            mood = logits["mood"].logits[number]
            np.testing.assert_allclose([row["mood_logit_calm"], row["mood_logit_upset"]], mood, atol=1e-5)
            assert row["mood_predicted"] == ("calm", "upset")[int(mood.argmax())]
            assert 1.0 <= row["stars_predicted"] <= 5.0
            assert not {"stars_logit_", "stars_probability"} & set(row)


def test_finished_shards_are_skipped_and_what_has_changed_is_labelled_again(job: LabelJob) -> None:
    label_shards(job)
    before = times(job)
    assert label_shards(job).skipped == 5
    assert times(job) == before
    (job.source / "a.parquet").touch()  # of the same content
    pq.write_table(pa.table({"nr": [0], "text": ["another text"]}), job.source / "b.parquet")
    (job.target / "day=2/a.parquet").unlink()
    (job.target / "c.jsonl").write_bytes((job.target / "c.jsonl").read_bytes()[:-100])
    assert label_shards(job).skipped == 2
    after = times(job)
    assert {name for name in before if after[name] != before[name]} == {"b.parquet", "c.jsonl", "day=2/a.parquet"}
    assert [row["text"] for row in outputs(job)["b.parquet"]] == ["another text"]


def test_an_output_whose_record_was_lost_is_written_again(job: LabelJob) -> None:
    label_shards(job)
    (job.target / shards.DONE / "a.parquet.json").unlink()
    assert label_shards(job).rows == 30
    assert sorted(row["nr"] for each in outputs(job).values() for row in each) == list(range(120))


def test_what_another_model_or_other_options_labelled_is_not_mixed(
    job: LabelJob, make_model: Callable[..., Path]
) -> None:
    label_shards(job)
    with pytest.raises(UserError, match="labelled by another model, with other options"):
        label_shards(replace(job, tasks=("mood",)))
    with pytest.raises(UserError, match="name another folder"):
        label_shards(replace(job, model=make_model(regression="raw")))


def test_a_shard_that_fails_is_tried_again_and_then_named_while_the_others_are_labelled(
    job: LabelJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job.source / "b.parquet").write_bytes(b"PAR1 broken")
    tried: list[str] = []
    predict = shards.predict_file

    def failing(predictor: Any, source: Path, *rest: Any, **more: Any) -> Predicted:
        tried.append(source.name)
        if source.name == "c.jsonl" and tried.count("c.jsonl") < 3:
            raise OSError(5, "Input/output error")
        return predict(predictor, source, *rest, **more)

    monkeypatch.setattr(shards, "predict_file", failing)
    with pytest.raises(Problems) as error:
        label_shards(job, retries=2)
    assert tried.count("c.jsonl") == tried.count("b.parquet") == 3
    assert tried.count("a.parquet") == 2  # two files of this name
    assert str(error.value).startswith("4 of 5 shards labelled; the same command tries the others again:\n")
    assert len(error.value.problems) == 1
    assert "b.parquet: not a readable Parquet file" in str(error.value)
    assert "b.parquet" not in outputs(job)
    pq.write_table(pa.table({"nr": range(30, 60), "text": texts(1, 30)}), job.source / "b.parquet")
    assert label_shards(job).rows == 30
    assert sorted(row["nr"] for each in outputs(job).values() for row in each) == list(range(120))


def test_a_broken_model_is_reported_once(job: LabelJob, tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(job.model, model)
    weights = (model / "model.safetensors").read_bytes()
    (model / "model.safetensors").write_bytes(weights[:-1] + bytes([weights[-1] ^ 1]))
    with pytest.raises(UserError, match=r"model.safetensors was changed or damaged"):
        label_shards(replace(job, model=model))


def test_mistakes_are_refused_before_the_model_is_loaded(job: LabelJob, tmp_path: Path) -> None:
    for changes, message in (
        ({"source": tmp_path / "none"}, "there are no files"),
        ({"target": job.source / "labelled"}, "lies in the folder that is read"),
        ({"tasks": ("mod",)}, 'the model has no task "mod"; did you mean "mood"'),
        ({"columns": ("body",)}, 'reads "body", which is not a column of the file'),
    ):
        with pytest.raises(UserError, match=message):
            label_shards(replace(job, **changes))
    (job.source / "a.jsonl").write_text('{"text": "a"}\n')
    (job.source / "a.jsonl.gz").write_bytes(b"")
    with pytest.raises(UserError, match=r"would both become a.jsonl → rename one"):
        label_shards(job)


def test_a_second_call_is_refused_while_one_is_at_work(job: LabelJob) -> None:
    with shards.held(job.target), pytest.raises(UserError, match="another call is labelling there"):
        label_shards(job)


def test_a_pattern_names_some_of_the_shards_and_left_over_outputs_are_named(
    job: LabelJob, caplog: pytest.LogCaptureFixture
) -> None:
    assert label_shards(replace(job, source=job.source / "*.parquet")).shards == 2
    (job.source / "a.parquet").unlink()
    label_shards(replace(job, source=job.source / "*.parquet"))
    assert "a.parquet is of a shard that is no longer there" in caplog.text


def test_a_row_without_text_is_kept_without_labels_and_named(job: LabelJob) -> None:
    pq.write_table(pa.table({"nr": [0, 1], "text": ["good", ""]}), job.source / "a.parquet")
    result = label_shards(job)
    assert (result.unanswered, len(result.faults)) == (1, 1)
    empty = outputs(job)["a.parquet"][1]
    assert empty == {
        "nr": 1, "text": "", "mood_predicted": None, "mood_probability": None, "mood_logit_calm": None,
        "mood_logit_upset": None, "stars_predicted": None,
    }  # fmt: skip


def test_a_parquet_shard_without_rows_has_an_output_with_all_columns(job: LabelJob) -> None:
    pq.write_table(
        pa.table({"nr": pa.array([], pa.int64()), "text": pa.array([], pa.string())}), job.source / "a.parquet"
    )
    label_shards(job)
    assert pq.read_schema(job.target / "a.parquet") == pq.read_schema(job.target / "b.parquet")


def test_progress_counts_shards_and_rows(job: LabelJob) -> None:
    events: list[Event] = []
    label_shards(job, watch=events.append)
    reports = [event for event in events if isinstance(event, ShardsLabelled)]
    assert [event.shards for event in reports] == sorted(event.shards for event in reports)
    last = reports[-1]
    assert (last.shards, last.total, last.rows, last.seconds_left) == (5, 5, 120, 0.0)


@pytest.mark.slow
def test_processes_label_the_same_though_one_of_them_is_killed(job: LabelJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labelling, "LOOK", 0.05)
    for number in range(4):
        rows = {"nr": range(1000 * number, 1000 * number + 400), "text": texts(number, 400)}
        pq.write_table(pa.table(rows), job.source / f"{number}.parquet")
    alone = replace(job, target=job.target.with_name("alone"))
    label_shards(alone)
    killed = threading.Event()

    def watch(event: Event) -> None:
        if isinstance(event, ShardsLabelled) and event.rows and not killed.is_set():
            killed.set()
            multiprocessing.active_children()[0].kill()

    result = label_shards(job, processes=2, watch=watch)
    assert killed.is_set()
    assert result.rows == 1720
    assert outputs(job) == outputs(alone)


def test_shards_go_to_new_processes_though_one_finished_as_another_was_killed(
    job: LabelJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    pools: list[Pool] = []

    class Pool:
        """The first one breaks: of its two shards one is lost, and the other is labelled all the same."""

        def __init__(self, *_: object) -> None:
            self.breaks, self.futures = not pools, list[Future[Predicted]]()
            pools.append(self)

        def submit(self, *_: object) -> Future[Predicted]:
            if self.breaks and len(self.futures) == 2:
                raise BrokenProcessPool
            future: Future[Predicted] = Future()
            if self.breaks and not self.futures:
                future.set_exception(BrokenProcessPool())
            else:
                future.set_result(Predicted(1, 0, job.tasks))
            self.futures.append(future)
            return future

        def shutdown(self, *, cancel_futures: bool) -> None:
            assert cancel_futures

    monkeypatch.setattr(labelling, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr(labelling, "wait", lambda running, *_: SimpleNamespace(done=list(running)))
    outcomes = list(labelling.in_processes(job, shards.find_shards(job), lambda rows: None, 2))
    assert [isinstance(outcome, Predicted) for _, outcome in outcomes] == [False, True, True, True, True]
    assert len(pools) == 2
