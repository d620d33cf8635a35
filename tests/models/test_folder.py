"""A model folder: what was saved comes back bit for bit, and what is damaged is refused in one sentence."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from helpers import STARS, TASKS, TOPIC, liven, same, some_batch, some_model, weights_of
from understill.atomic import seal, write_record
from understill.errors import UserError
from understill.models.encoder import load_tokenizer
from understill.models.folder import load_model, save_model
from understill.models.multitask import MultiTaskModel, new_model
from understill.recipe.schema import EncoderSpec, HeadsSpec
from understill.tasks import Task


def save(folder: Path, model: MultiTaskModel, tiny: Path, **scores: Any) -> Path:
    lengths = {task.name: 16 + index for index, task in enumerate(model.tasks)}
    save_model(folder, model, load_tokenizer(str(tiny)), lengths, "name: tiny\n", scores)
    return folder


@pytest.fixture
def saved(tiny: Path, tmp_path: Path) -> Path:
    """A model folder, to be damaged."""
    return save(tmp_path / "model", some_model(tiny), tiny)


@pytest.mark.parametrize("pooling", ["default", "mean", "normalised"])
@pytest.mark.parametrize("kind", ["bert", "roberta", "mpnet", "distilbert", "electra", "albert"])
def test_a_saved_model_answers_bit_for_bit_as_before(
    kind: str, pooling: str, tiny_of: Callable[[str], Path], tmp_path: Path
) -> None:
    model = some_model(tiny_of(kind), pooling=pooling)
    liven(model)
    loaded = load_model(save(tmp_path / "model", model, tiny_of(kind)))
    batch = some_batch(8)
    assert not loaded.model.training
    assert torch.equal(loaded.model(batch), model.eval()(batch))
    assert same(weights_of(loaded.model), weights_of(model))


def test_everything_travels_with_the_model(tiny: Path, tmp_path: Path) -> None:
    heads = HeadsSpec(dropout=0.25, regression="unit", tasks={"stars": {"dropout": 0.5}})  # type: ignore[dict-item]
    model = new_model(EncoderSpec(name=str(tiny), pooling="mean"), heads, TASKS, seed=0)
    loaded = load_model(save(tmp_path / "model", model, tiny, mood={"accuracy": 0.5}))
    assert loaded.tasks == TASKS
    assert loaded.model.spec == heads
    assert loaded.model.encoder.pooling == "mean"
    assert loaded.max_lengths == {"mood": 16, "topic": 17, "stars": 18}
    assert loaded.scores == {"mood": {"accuracy": 0.5}}
    assert loaded.tokenizer("The parcel never came .") == load_tokenizer(str(tiny))("The parcel never came .")
    assert (tmp_path / "model" / "recipe.yaml").read_text() == "name: tiny\n"


@pytest.mark.parametrize("name", ["type", "forward", "state_dict", "tâche-1", "任务", "हिन्दी"])
def test_names_and_labels_may_be_of_any_language(name: str, tiny: Path, tmp_path: Path) -> None:
    labels = ("да", "nein", "はい", "🙂", 'with "quotes"', "")
    tasks = (Task(name, "classification", ("texte",), "étiquette", labels), STARS)
    loaded = load_model(save(tmp_path / "model", some_model(tiny, tasks), tiny))
    assert loaded.tasks == tasks
    assert loaded.model.columns(name) == slice(0, 6)


def test_the_folder_holds_plain_files_only(saved: Path) -> None:
    assert {path.suffix for path in saved.iterdir()} == {".json", ".safetensors", ".yaml"}
    for path in saved.iterdir():
        # Neither a pickle nor a zip archive, which is what torch.save writes.
        assert not path.read_bytes().startswith((b"\x80", b"PK"))
    assert [path.name for path in saved.parent.iterdir()] == ["model"]


def test_a_model_in_training_mode_on_shared_memory_is_saved_as_it_is(tiny: Path, tmp_path: Path) -> None:
    model = some_model(tiny, (TOPIC,)).train()
    model.heads.tasks[0].out.weight = torch.nn.Parameter(torch.randn(32, 3).T)  # not contiguous
    loaded = load_model(save(tmp_path / "model", model, tiny))
    assert torch.equal(loaded.model.heads.tasks[0].out.weight, model.heads.tasks[0].out.weight)
    assert model.training


# Damaged folders -----------------------------------------------------------------------------------------------------


def manifest(**changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "understill.json"
        values = {**json.loads(path.read_text(encoding="utf-8")), **changes}
        path.write_text(json.dumps({key: value for key, value in values.items() if value is not None}))

    return change


def write(name: str, content: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(content.encode("latin-1")) and None


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def forget_a_weight(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["heads.tasks.1.out.bias"]
    save_file(weights, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut, "the weights cannot be read: .*not fully covered"),
        (write("model.safetensors", ""), "the weights cannot be read"),
        (forget_a_weight, r"the weights do not fit understill\.json and config\.json"),
        (manifest(tasks=[TOPIC.to_dict()], max_lengths={"topic": 16}), "the weights do not fit"),
        (remove("model.safetensors"), r"model\.safetensors is missing"),
        (remove("config.json"), r"config\.json is missing"),
        (remove("tokenizer.json"), r"tokenizer\.json is missing"),
        (remove("understill.json"), "this is no understill model"),
        (write("config.json", "{"), "not a valid JSON"),
        (write("config.json", '{"model_type": "zork"}'), "zork"),
        (write("tokenizer.json", "{}"), "cannot be loaded"),
        (write("understill.json", "{"), r"understill\.json: broken"),
        (write("understill.json", "[]"), r"understill\.json: broken"),
        (write("understill.json", "\xff\xfe"), r"understill\.json: broken"),
        (manifest(format=1), "format 1 is not known"),
        (manifest(format=None), "format None is not known"),
        (manifest(tasks=None), "broken: KeyError: 'tasks'"),
        (manifest(tasks=3), "broken"),
        (manifest(tasks=[{"name": "mood"}]), "broken"),
        (manifest(heads={"zork": 1}), "broken"),
        (manifest(pooling=None), "broken"),
        (manifest(max_lengths={"mood": 16}), "broken"),
        (write("scores.json", "{"), r"scores\.json: broken"),
    ],
)
def test_a_folder_that_makes_no_sense_is_refused_in_one_sentence(
    damage: Callable[[Path], None], message: str, saved: Path
) -> None:
    damage(saved)
    seal(saved)  # as if somebody had written it so
    with pytest.raises(UserError, match=message) as caught:
        load_model(saved)
    assert "\n" not in str(caught.value)
    assert str(saved) in str(caught.value)


@pytest.mark.parametrize("harm", ["flipped", "cut", "gone"])
def test_any_file_that_is_not_as_it_was_saved_is_refused_by_name(harm: str, saved: Path) -> None:
    for path in sorted(saved.iterdir()):
        content = path.read_bytes()
        middle = len(content) // 2
        if harm == "flipped":
            path.write_bytes(content[:middle] + bytes([content[middle] ^ 4]) + content[middle + 1 :])
        elif harm == "cut":
            path.write_bytes(content[:middle])
        else:
            path.unlink()
        with pytest.raises(UserError, match=rf"{path.name}(:| was changed| is missing| here)") as caught:
            load_model(saved)
        assert "\n" not in str(caught.value)
        path.write_bytes(content)
        load_model(saved)


def test_a_file_that_is_added_is_no_damage(saved: Path) -> None:
    tasks = load_model(saved).tasks
    (saved / "notes.txt").write_text("mine")
    assert load_model(saved).tasks == tasks


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such model folder"):
        load_model(tmp_path / "nothing")


# Interrupted saves ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", ["understill.models.folder.save_file", "understill.atomic.seal"])
def test_an_interrupted_save_leaves_the_old_folder_as_it_was(
    function: str, saved: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path.name: path.read_bytes() for path in saved.iterdir()}

    def fail(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(function, fail)
    with pytest.raises(KeyboardInterrupt):
        save(saved, some_model(tiny, seed=1), tiny)
    assert {path.name: path.read_bytes() for path in saved.iterdir()} == before
    assert [path.name for path in saved.parent.iterdir()] == ["model"]


def test_at_the_worst_moment_the_old_model_still_lies_beside(
    saved: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = (saved / "model.safetensors").read_bytes()
    rename = Path.rename

    def crash(path: Path, target: Path) -> Path:
        if target == saved:
            raise KeyboardInterrupt
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", crash)
    for _ in range(2):  # trying again in vain does not lose it either
        with pytest.raises(KeyboardInterrupt):
            save(saved, some_model(tiny, seed=1), tiny)
        (old,) = saved.parent.glob(".model.*.old")
        assert (old / "model.safetensors").read_bytes() == weights
        load_model(old)


def test_a_save_replaces_the_old_folder_whole_and_clears_up_after_killed_ones(saved: Path, tiny: Path) -> None:
    (saved / "old.txt").touch()
    for name in (".model.99999.part", ".model.99999.old", ".model.notes", "models"):
        (saved.parent / name).mkdir()
        os.utime(saved.parent / name, (1, 1))
    other = some_model(tiny, seed=1)
    save(saved, other, tiny)
    assert same(weights_of(load_model(saved).model), weights_of(other))
    assert not (saved / "old.txt").exists()
    assert sorted(path.name for path in saved.parent.iterdir()) == [".model.notes", "model", "models"]


# Folders from strangers -----------------------------------------------------------------------------------------------


def rewrite(path: Path, change: Callable[[dict[str, Any]], object], sealed: bool = True) -> None:
    """Change what a JSON file of a folder says, and its checksums with it."""
    values = json.loads(path.read_text(encoding="utf-8"))
    change(values)
    path.write_text(json.dumps(values), encoding="utf-8")
    if sealed:
        seal(path.parent)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda facts: facts["tasks"][0]["labels"].pop(), r"the weights do not fit understill\.json"),
        (lambda facts: facts["tasks"][0].update(name="../../x", head="../../x"), '"../../x" is no name of a task'),
        (lambda facts: facts["tasks"][0].update(labels=["a", "a"]), "a label twice"),
        (lambda facts: facts["tasks"].append(facts["tasks"][0]), "one of them twice"),
        (lambda facts: facts["max_lengths"].update(mood=0), "max_lengths lie between 1 and 65535"),
        (lambda facts: facts["max_lengths"].update(mood=float("inf")), "OverflowError"),
        (lambda facts: facts.update(tasks=5), "broken: TypeError"),
        (lambda facts: facts.update(tasks=[]), "it names no task"),
        (lambda facts: facts["tasks"][0].update(head="other"), "mood has the head of another task"),
        (lambda facts: facts["max_lengths"].update(mood=60_000), "more tokens than config.json has room for"),
    ],
)
def test_a_manifest_that_was_changed_with_its_checksums_is_held_to_the_weights(
    change: Callable[[dict[str, Any]], object], what: str, saved: Path
) -> None:
    rewrite(saved / "understill.json", change)
    with pytest.raises(UserError, match=what):
        load_model(saved)


def test_labels_in_another_order_are_noticed_by_their_checksum(saved: Path) -> None:
    rewrite(saved / "understill.json", lambda facts: facts["tasks"][0]["labels"].reverse(), sealed=False)
    with pytest.raises(UserError, match=r"understill\.json was changed or damaged"):
        load_model(saved)


@pytest.mark.parametrize("name", ["understill.json", "model.safetensors"])
def test_checksums_have_to_name_every_file_that_is_read(name: str, saved: Path) -> None:
    seal(saved, parts=[path.name for path in saved.iterdir() if path.name not in (name, "checksums.json")])
    with pytest.raises(UserError, match=rf"checksums\.json does not name {name}"):
        load_model(saved)


@pytest.mark.parametrize("change", [{"hidden_size": 10_000_000}, {"vocab_size": 10**10}, {"num_hidden_layers": 10**9}])
def test_a_config_of_a_giant_network_is_refused_before_memory_is_taken(change: dict[str, int], saved: Path) -> None:
    rewrite(saved / "config.json", lambda config: config.update(change))
    with pytest.raises(
        UserError, match=r"its config\.json describes a network of|is 1,000,000,000 in its config\.json"
    ):
        load_model(saved)


def test_a_tokeniser_that_panics_is_one_sentence(saved: Path) -> None:
    rewrite(saved / "tokenizer.json", panicking)
    with pytest.raises(UserError, match=r"the tokeniser fails: .* → copy the whole folder again"):
        load_model(saved)


def panicking(tokenizer: dict[str, Any]) -> None:
    """Make a tokeniser ask for a special token that it does not have, at which the library panics."""
    tokenizer["post_processor"]["special_tokens"] = {}


def test_checksums_that_name_a_device_are_not_read_for_ever(saved: Path) -> None:
    record = json.loads((saved / "checksums.json").read_text(encoding="utf-8"))
    write_record(saved / "checksums.json", {"files": {**record["files"], "/dev/zero": [0, "0" * 64]}})
    with pytest.raises(UserError, match="/dev/zero is missing"):
        load_model(saved)
