"""The estimate goes by sizes or takes real steps, counts as the loop counts, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from understill import estimate as estimating
from understill import pipeline
from understill.data.batch import Rows
from understill.estimate import Speed, estimate
from understill.events import Checking
from understill.models.encoder import load_encoder, load_tokenizer
from understill.pipeline.plan.parts import max_length
from understill.recipe import Recipe
from understill.train.loop import total_steps


def files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize(
    "training",
    [
        {"steps": 6},
        {"steps": None, "epochs": 2},
        {"steps": None, "epochs": 0.3, "batch": 7},
        {"steps": None, "epochs": 1, "batches": "one_task", "batch": 100},
        {"steps": None, "epochs": 1, "batches": "one_task", "sampling": {"power": 0.5}},
        {"steps": None, "epochs": 3, "sampling": "uniform"},
        {"steps": None, "epochs": 1, "sampling": {"power": 0.5, "copies": True}},
        {"steps": None, "epochs": 1, "both_orders": True},
        {"steps": None, "epochs": 1, "batch": 2, "micro_batch": 1},
    ],
    ids=str,
)
def test_the_steps_are_those_the_loop_takes(
    make_tiny: Callable[..., Recipe], training: dict[str, Any], timed: bool, tmp_path: Path
) -> None:
    tasks = {"mood": {}, "follows": {"rows": 20}, "similar": {"rows": 50}}
    study = pipeline.make_study(make_tiny(tasks=tasks, training=training))
    plan = study.plan
    (model,) = plan.models
    result = estimate(study, timed=timed)["multi"]
    tokenizer = load_tokenizer(model.start.name, model.start.place)
    lengths = {task.name: max_length(plan.recipe, model.settings, task.name) for task in model.tasks}
    tokens = pipeline.Tokeniser(tokenizer, lengths, tmp_path, lambda event: None)
    batches = pipeline.make_batches(plan, model, tokens, {})
    assert result.steps == total_steps(plan.recipe.training, batches.steps_per_epoch)
    assert 0 < result.seconds < 600 and result.timed == timed
    assert 8 <= result.tokens <= 32


def test_each_model_has_its_own_estimate_and_a_finished_one_none(make_tiny: Callable[..., Recipe]) -> None:
    recipe = make_tiny(models="each", tasks=["mood", "similar"])
    study = pipeline.make_study(recipe)
    assert list(estimate(study)) == ["mood", "similar"]
    pipeline.train_models(study.plan, study.plan.models[:1])
    assert list(estimate(pipeline.make_study(recipe))) == ["similar"]


def test_nothing_is_kept_of_an_estimate(make_tiny: Callable[..., Recipe]) -> None:
    recipe = make_tiny()
    study = pipeline.make_study(recipe)
    before = files(recipe.output.path)
    estimate(study)
    estimate(study, timed=True)
    assert files(recipe.output.path) == before
    assert not (recipe.output.path / "artifacts").exists()


def test_twice_the_steps_take_twice_as_long(make_tiny: Callable[..., Recipe], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("understill.estimate._step_seconds", lambda *_: 0.25)
    monkeypatch.setattr("understill.estimate._rows_read", lambda *_, **__: 0)
    short, long, pieces = (
        estimate(pipeline.make_study(make_tiny(training=training)), timed=True)["multi"].seconds
        for training in ({"steps": 6}, {"steps": 12}, {"steps": 6, "micro_batch": 2})
    )
    assert (short, long) == (6 * 0.25, 12 * 0.25)
    assert pieces == 6 * 0.25 * 8 / 2  # four passes of two rows make a batch of eight


def test_a_batch_that_does_not_fit_is_timed_in_halves(
    make_tiny: Callable[..., Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    study, sizes = pipeline.make_study(make_tiny(tasks=["mood"], training={"batch": 16})), list[int]()

    def seconds(_plan: object, _model: object, _tokens: object, rows: Rows) -> float:
        sizes.append(len(rows.row))
        if sizes[-1] > 4:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return 0.25

    monkeypatch.setattr(estimating, "_rows_read", lambda *_, **__: 0)
    monkeypatch.setattr(estimating, "_step_seconds", seconds)
    (result,) = estimate(study, timed=True).values()
    assert sizes == [16, 8, 4]
    monkeypatch.setattr(estimating, "_step_seconds", lambda *_: 1.0)
    (whole,) = estimate(study, timed=True).values()
    assert result.seconds == pytest.approx(whole.seconds), "four quarters take as long as the whole"


def test_looks_at_dev_and_the_linear_probe_count_a_third_of_a_trained_row(
    make_tiny: Callable[..., Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("understill.estimate._step_seconds", lambda *_: 0.25)
    looks = {"steps": 6, "batch": 8, "evaluate": "2 steps"}
    study = pipeline.make_study(make_tiny(tasks=["mood"], training=looks))
    (result,) = estimate(study, timed=True).values()
    splits = study.plan.loaded["mood"].splits
    read = (3 + 1) * splits["dev"].rows + splits["train"].rows
    assert result.seconds == pytest.approx(0.25 * (6 + read / 3 / 8))


def test_without_timing_no_weights_are_loaded_and_the_machine_is_measured_once(
    make_tiny: Callable[..., Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def quickest(step: Callable[[], Any], device: str, seconds: float) -> float:
        calls.append(device)
        assert seconds <= 1
        step()
        return 0.5

    monkeypatch.setattr(estimating, "new_model", None)
    monkeypatch.setattr(estimating, "_quickest", quickest)
    estimating._speed.cache_clear()
    times = estimate(pipeline.make_study(make_tiny(models="each", tasks=["mood", "follows", "similar"])))
    estimating._speed.cache_clear()
    assert len(times) == 3 and not any(each.timed for each in times.values())
    assert calls == ["cpu", "cpu"], "a step and its update"


def test_a_rough_time_is_steps_times_tokens_times_parameters(
    make_tiny: Callable[..., Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimating, "_speed", lambda *_: Speed(1e-6, 1e-5))
    monkeypatch.setattr(estimating, "_rows_read", lambda *_, **__: 0)
    study = pipeline.make_study(make_tiny(tasks=["mood"], training={"steps": 6, "batch": 8}))
    encoder = load_encoder(study.plan.models[0].settings.encoder)
    whole = sum(each.numel() for each in encoder.parameters())
    inner = whole - sum(value.numel() for name, value in encoder.named_parameters() if "_embeddings" in name)
    (result,) = estimate(study).values()
    step = 8 * result.tokens * inner * 1e-6 + whole * 1e-5
    assert result.seconds == pytest.approx(6 * (estimating.OVERHEAD + step))


def test_fewer_layers_are_foreseen_to_take_less(
    make_tiny: Callable[..., Recipe], tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimating, "_speed", lambda *_: Speed(1e-6, 0))
    one, two = (
        estimate(pipeline.make_study(make_tiny(encoder={"name": str(tiny), "layers": layers})))["multi"].seconds
        for layers in (1, 2)
    )
    assert one < two < 2.1 * one


@pytest.mark.parametrize("timed", [False, True])
def test_what_is_looked_at_is_told(make_tiny: Callable[..., Recipe], timed: bool) -> None:
    events: list[Any] = []
    estimate(pipeline.make_study(make_tiny(models="each", tasks=["mood", "similar"])), events.append, timed=timed)
    what = "timing" if timed else "estimating"
    assert events == [Checking(f"{what} mood", 0, 2), Checking(f"{what} similar", 1, 2)]


def test_an_encoder_that_does_not_know_the_language_of_a_task_is_warned_about(
    make_tiny: Callable[..., Recipe], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [f"환불은 언제 되나요 {'가나다라마'[n % 5] * (n + 1)},{'결제' if n % 2 else '배송'}" for n in range(60)]
    (tmp_path / "문의.csv").write_text("\n".join(["내용,분류", *rows]), encoding="utf-8")
    own = {"train": str(tmp_path / "문의.csv"), "text": "내용", "label": "분류"}
    estimate(pipeline.make_study(make_tiny(tasks={"분류": own})))
    (warning,) = [message for message in caplog.messages if "letters of" in message]
    assert warning.startswith("100% of the letters of 분류 are unknown to ")


def test_rows_that_are_cut_are_warned_about_once_with_the_key_that_raises_it(
    make_tiny: Callable[..., Recipe], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def said(file: str, **changes: Any) -> list[str]:
        caplog.clear()
        own = {"train": str(tmp_path / file), "text": "text", "label": "label", **changes}
        estimate(pipeline.make_study(make_tiny(tasks={"queue": own}, models="each")))
        return [message for message in caplog.messages if "cut at" in message]

    (tmp_path / "long.csv").write_text(lines(long=30), encoding="utf-8")
    (tmp_path / "even.csv").write_text(lines(long=0), encoding="utf-8")
    (tmp_path / "rare.csv").write_text(lines(long=1), encoding="utf-8")
    (warning,) = said("long.csv", dev=str(tmp_path / "long.csv"))
    what = "queue: 30 of 100 rows looked at are cut at 32 tokens, which is all that is read"
    assert warning == f"{what} → raise tasks.queue.max_length, to at most 130"
    (warning,) = said("long.csv", dev=str(tmp_path / "long.csv"), max_length=16)
    assert "cut at 16 tokens" in warning and "→ raise tasks.queue.max_length" in warning
    assert said("even.csv") == said("rare.csv") == [], "what fills the length is whole, and few that are cut are left"


def lines(long: int) -> str:
    """Return rows of which so many are longer than 32 tokens, and the others as long, with [CLS] and [SEP]."""
    rows = []
    for n in range(100):
        words = ["good"] * (31 if n < long else 30)
        words[n // 30], words[n % 30] = "the", "film"  # no row is like another
        rows.append(f"{' '.join(words)},{n % 2}")
    return "\n".join(["text,label", *rows])
