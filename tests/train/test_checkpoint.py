"""Checkpoints: what was saved comes back bit for bit, and what is damaged is passed over without a trace."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from helpers import TASKS, same, some_batch, some_model, weights_of
from understill.atomic import seal
from understill.losses.fused import FusedObjective
from understill.models.multitask import MultiTaskModel
from understill.recipe.schema import Training
from understill.train import checkpoint
from understill.train.checkpoint import load_checkpoint, load_weights, save_checkpoint, save_weights
from understill.train.optim import make_optimizer

KEYS = ("step", "note")


def update(model: MultiTaskModel, optimizer: torch.optim.Optimizer) -> None:
    batch = some_batch(8)
    FusedObjective(TASKS, "sigmoid")(model(batch), batch).total.backward()
    optimizer.step()
    optimizer.zero_grad()


def fresh(tiny: Path, kind: str = "adamw", seed: int = 0) -> tuple[MultiTaskModel, torch.optim.Optimizer]:
    model = some_model(tiny, dropout=0.0, seed=seed)
    return model, make_optimizer(model, Training(optimizer=kind, lr=1e-2, layer_decay=0.9))  # type: ignore[arg-type]


def state_of(optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    slots = optimizer.state_dict()["state"].items()
    return {f"{number}.{slot}": value.clone() for number, values in slots for slot, value in values.items()}


@pytest.fixture
def two(tiny: Path, tmp_path: Path) -> tuple[Path, dict[int, dict[str, torch.Tensor]]]:
    """A folder with the states after steps 3 and 6, and the weights of both."""
    model, optimizer = fresh(tiny)
    weights = {}
    for step in (3, 6):
        update(model, optimizer)
        save_checkpoint(tmp_path / "work", step, model, optimizer, {"note": f"after {step}"})
        weights[step] = weights_of(model)
        shutil.copytree(tmp_path / "work" / f"checkpoint-{step}", tmp_path / f"checkpoint-{step}")
    shutil.copytree(tmp_path / "checkpoint-3", tmp_path / "work" / "checkpoint-3")
    return tmp_path / "work", weights


@pytest.mark.parametrize("kind", ["adamw", "adamax", "adadelta"])
def test_weights_and_optimiser_come_back_bit_for_bit(kind: str, tiny: Path, tmp_path: Path) -> None:
    model, optimizer = fresh(tiny, kind)
    for _ in range(3):
        update(model, optimizer)
    save_checkpoint(tmp_path, 3, model, optimizer, {"note": "x"})
    other, its = fresh(tiny, kind, seed=1)
    assert load_checkpoint(tmp_path, other, its, KEYS) == {"step": 3, "note": "x"}
    assert same(weights_of(other), weights_of(model))
    assert state_of(optimizer) and same(state_of(its), state_of(optimizer))
    assert [group["lr"] for group in its.param_groups] == [group["lr"] for group in optimizer.param_groups]
    for each, its_optimizer in ((model, optimizer), (other, its)):
        update(each, its_optimizer)
    assert same(weights_of(other), weights_of(model))


def test_a_checkpoint_is_plain_files(tiny: Path, tmp_path: Path) -> None:
    model, optimizer = fresh(tiny)
    save_checkpoint(tmp_path, 3, model, optimizer, {})
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == [
        "checkpoint-3",
        "checkpoint-3/checksums.json",
        "checkpoint-3/state.json",
        "checkpoint-3/state.safetensors",
    ]


def test_without_a_checkpoint_nothing_happens(tiny: Path, tmp_path: Path) -> None:
    model, optimizer = fresh(tiny)
    before = weights_of(model)
    assert load_checkpoint(tmp_path / "nothing", model, optimizer, KEYS) is None
    assert same(weights_of(model), before)


def test_the_newest_is_taken_by_number(two: tuple[Path, Any], tiny: Path) -> None:
    folder, weights = two
    (folder / "checkpoint-6").rename(folder / "checkpoint-10")  # "10" is smaller than "3" as text
    model, optimizer = fresh(tiny, seed=1)
    facts = load_checkpoint(folder, model, optimizer, KEYS)
    assert facts is not None and facts["note"] == "after 6"
    assert same(weights_of(model), weights[6])


def test_a_new_checkpoint_replaces_the_old_ones_and_the_leftovers(two: tuple[Path, Any], tiny: Path) -> None:
    folder, _ = two
    (folder / ".checkpoint-5.4242").mkdir()
    (folder / "best-3.safetensors").touch()
    model, optimizer = fresh(tiny)
    save_checkpoint(folder, 9, model, optimizer, {})
    assert sorted(path.name for path in folder.iterdir()) == ["best-3.safetensors", "checkpoint-9"]


# Damage --------------------------------------------------------------------------------------------------------------


def cut(folder: Path) -> None:
    path = folder / "state.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


def facts(text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / "state.json").write_text(text) and None


def change(update: Callable[[dict[str, torch.Tensor]], Any]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        tensors = load_file(folder / "state.safetensors")
        update(tensors)
        save_file(tensors, folder / "state.safetensors")

    return damage


LAST = "model.heads.tasks.2.out.bias"
DAMAGE = [
    cut,
    change(lambda tensors: tensors.pop(LAST)),  # found only after other weights would have been taken over
    change(lambda tensors: tensors.update({LAST: torch.zeros(2)})),
    change(lambda tensors: tensors.update({"model.more": torch.zeros(2)})),
    change(lambda tensors: tensors.update({"optimizer.exp_avg.more": torch.zeros(2)})),
    lambda folder: (folder / "state.safetensors").write_bytes(b""),
    lambda folder: (folder / "state.safetensors").unlink(),
    lambda folder: (folder / "state.json").unlink(),
    facts(""),
    facts('{"step": 6, "no'),
    facts("[]"),
    facts("3"),
    facts('{"step": 6}'),
    facts('{"step": 6, "note": "x", "from": "another version"}'),
]


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_gives_way_to_an_older_one(
    damage: Callable[[Path], None], sealed: bool, two: tuple[Path, Any], tiny: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, weights = two
    damage(folder / "checkpoint-6")
    if sealed:  # as if somebody had written it so
        seal(folder / "checkpoint-6")
    model, optimizer = fresh(tiny, seed=1)
    with caplog.at_level(logging.WARNING):
        result = load_checkpoint(folder, model, optimizer, KEYS)
    assert result == {"step": 3, "note": "after 3"}
    assert same(weights_of(model), weights[3])
    assert len(caplog.records) == 1 and "checkpoint-6 cannot be read" in caplog.text


@pytest.mark.parametrize("damage", DAMAGE)
def test_when_all_are_damaged_the_model_is_as_it_was(
    damage: Callable[[Path], None], two: tuple[Path, Any], tiny: Path
) -> None:
    folder, _ = two
    for step in (3, 6):
        damage(folder / f"checkpoint-{step}")
    model, optimizer = fresh(tiny, seed=1)
    before = weights_of(model)
    assert load_checkpoint(folder, model, optimizer, KEYS) is None
    assert same(weights_of(model), before)
    assert not state_of(optimizer)


@pytest.mark.parametrize(
    "name", ["checkpoint-6/state.safetensors", "checkpoint-6/checksums.json", "best-2.safetensors"]
)
def test_a_flipped_bit_in_a_checkpoint_or_in_what_it_stands_on_gives_way_to_an_older_one(
    name: str, two: tuple[Path, Any], tiny: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, weights = two
    (folder / "best-2.safetensors").write_bytes(b"the best")
    seal(folder / "checkpoint-6", beside=[folder / "best-2.safetensors"])
    content = bytearray((folder / name).read_bytes())
    content[-5] ^= 1
    (folder / name).write_bytes(content)
    model, optimizer = fresh(tiny, seed=1)
    assert load_checkpoint(folder, model, optimizer, KEYS) == {"step": 3, "note": "after 3"}
    assert same(weights_of(model), weights[3])
    assert f"{Path(name).name} was changed or damaged" in caplog.text


@pytest.mark.parametrize("name", [".checkpoint-9.4242", "checkpoint-9.old", "checkpoint-", "checkpoint-x"])
def test_leftovers_of_a_crash_are_not_read(name: str, two: tuple[Path, Any], tiny: Path) -> None:
    folder, _ = two
    shutil.copytree(folder / "checkpoint-6", folder / name)
    (folder / name / "state.json").write_text(json.dumps({"step": 9, "note": "leftover"}))
    facts = load_checkpoint(folder, *fresh(tiny), KEYS)
    assert facts is not None and facts["note"] == "after 6"


@pytest.mark.parametrize("moment", ["save_file", "_tensors"])
def test_a_crash_while_saving_leaves_the_last_state(
    moment: str, two: tuple[Path, Any], tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, weights = two

    def crash(*_: Any, **__: Any) -> None:
        (next(folder.glob(".checkpoint-9.*")) / "state.safetensors").write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, moment, crash)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(folder, 9, *fresh(tiny), {"note": "never"})
    model, optimizer = fresh(tiny, seed=1)
    facts = load_checkpoint(folder, model, optimizer, KEYS)
    assert facts is not None and facts["step"] == 6
    assert same(weights_of(model), weights[6])


def test_weights_alone_come_back_bit_for_bit_and_are_written_whole(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "deep" / "best-3.safetensors"
    model, other = some_model(tiny), some_model(tiny, seed=1)
    save_weights(path, model.state_dict())
    load_weights(path, other)
    assert same(weights_of(other), weights_of(model))
    content = path.read_bytes()

    def crash(target: Path) -> None:
        target.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr("understill.atomic.sync", crash)
    with pytest.raises(KeyboardInterrupt):
        save_weights(path, other.state_dict())
    assert path.read_bytes() == content
