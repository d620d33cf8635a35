"""Encoders of every architecture: loaded whole or not at all, and blind to padding and to their neighbours."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any
from unicodedata import normalize

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models
from transformers import AutoConfig, AutoModel

from helpers import TASKS, liven, same, some_batch, some_batches, some_model, weights_of, wider
from understill import pipeline
from understill.data.tokens import encode
from understill.errors import UserError
from understill.models.encoder import check_layers, identity, kept_layers, load_encoder, load_tokenizer, resolve
from understill.models.folder import load_model, save_model
from understill.models.transformer import Encoder, max_tokens
from understill.recipe import Recipe
from understill.recipe.schema import EncoderSpec

KINDS = ("bert", "roberta", "mpnet", "distilbert", "electra", "albert")


@pytest.fixture
def broken(tiny: Path, tmp_path: Path) -> Path:
    """A copy of the tiny encoder, to be damaged."""
    return Path(shutil.copytree(tiny, tmp_path / "broken"))


def load(folder: Path, **settings: Any) -> Encoder:
    return load_encoder(EncoderSpec(name=str(folder), **{"max_length": 32, **settings}))


def change_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


# What goes in and comes out ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pooling", ["default", "mean", "normalised"])
@pytest.mark.parametrize("kind", KINDS)
def test_logits_do_not_depend_on_padding_or_on_other_rows(
    kind: str, pooling: str, tiny_of: Callable[[str], Path]
) -> None:
    model = some_model(tiny_of(kind), pooling=pooling).eval()
    liven(model)
    with torch.no_grad():
        batch = some_batch(9)
        assert len(set(batch.lengths.tolist())) > 2
        together = model(batch)
        assert together.std(dim=0).min() > 0.1
        torch.testing.assert_close(model(wider(batch, 32)), together, rtol=0, atol=1e-5)
        torch.testing.assert_close(model(wider(batch, 61)), together, rtol=0, atol=1e-5)
        backwards = batch.map(lambda tensor: tensor.flip(0))
        torch.testing.assert_close(model(backwards).flip(0), together, rtol=0, atol=1e-5)
        for row in range(len(batch)):
            only = batch.part(slice(row, row + 1))
            alone = replace(only, ids=only.ids[:, : int(only.lengths[0])])
            torch.testing.assert_close(model(alone)[0], together[row], rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_mean_pooling_is_the_mean_over_the_real_tokens(kind: str, tiny_of: Callable[[str], Path]) -> None:
    encoder = load(tiny_of(kind), pooling="mean").eval()
    batch = some_batch(4)
    types = {"token_type_ids": batch.types} if encoder.typed else {}
    with torch.no_grad():
        states = encoder.network(input_ids=batch.ids, attention_mask=batch.mask.long(), **types).last_hidden_state
        for row, length in enumerate(batch.lengths.tolist()):
            torch.testing.assert_close(encoder(batch)[row], states[row, :length].mean(0), rtol=1e-5, atol=1e-6)


def test_the_second_text_is_told_apart_where_the_encoder_can(tiny_of: Callable[[str], Path]) -> None:
    batch = some_batch(4)
    without = replace(batch, second=batch.lengths)
    assert not torch.equal(batch.types, without.types)
    for kind, reported in (("bert", True), ("distilbert", False)):
        encoder = load(tiny_of(kind)).eval()
        assert torch.equal(encoder(batch), encoder(without)) != reported


@pytest.mark.parametrize(
    ("kind", "pooling", "kept"), [("bert", "default", True), ("bert", "mean", False), ("roberta", "default", False)]
)
def test_a_pooler_that_is_never_read_is_not_carried_along(
    kind: str, pooling: str, kept: bool, tiny_of: Callable[[str], Path]
) -> None:
    names = [name for name, _ in load(tiny_of(kind), pooling=pooling).named_parameters()]
    assert any("pooler" in name for name in names) == kept


# Settings ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_encoder_dropout_reaches_every_layer(kind: str, tiny_of: Callable[[str], Path]) -> None:
    encoder = load(tiny_of(kind), dropout=0.25)
    assert {module.p for module in encoder.modules() if isinstance(module, torch.nn.Dropout)} == {0.25}
    off = load(tiny_of(kind), dropout=0.0).train()
    batch = some_batch(4)
    assert torch.equal(off(batch), off(batch))
    encoder.train()
    assert not torch.equal(encoder(batch), encoder(batch))


def test_encoder_dropout_is_its_own_when_not_given(tiny: Path) -> None:
    assert load(tiny).config.hidden_dropout_prob == AutoConfig.from_pretrained(tiny).hidden_dropout_prob == 0.1


def test_encoder_dropout_is_refused_where_there_is_no_such_setting(broken: Path) -> None:
    small = {"hidden_size": 8, "state_size": 4, "num_hidden_layers": 1, "vocab_size": 40}
    (broken / "config.json").write_text(json.dumps({"model_type": "mamba", **small}))
    with pytest.raises(UserError, match=r"encoder\.dropout: .* has no such setting \(mamba\)"):
        load(broken, dropout=0.2)


@pytest.mark.parametrize(("kind", "limit"), [("bert", 130), ("distilbert", 130), ("roberta", 129), ("mpnet", 128)])
def test_rows_as_long_as_the_encoder_can_read_work_and_longer_ones_are_refused(
    kind: str, limit: int, tiny_of: Callable[[str], Path]
) -> None:
    encoder = load(tiny_of(kind), max_length=limit).eval()
    assert max_tokens(encoder.config) == limit
    batch = replace(some_batch(1), ids=torch.full((1, limit), 7), lengths=torch.tensor([limit]))
    assert encoder(batch).isfinite().all()
    with pytest.raises((IndexError, RuntimeError)):
        encoder(replace(batch, ids=torch.full((1, limit + 1), 7), lengths=torch.tensor([limit + 1])))
    with pytest.raises(UserError, match=rf"encoder\.max_length {limit + 1} is more than .* can read \({limit}\)"):
        load(tiny_of(kind), max_length=limit + 1)


def test_the_usual_roberta_reads_two_tokens_less_than_it_has_positions() -> None:
    for kind in ("roberta", "xlm-roberta", "camembert", "mpnet"):
        assert max_tokens(AutoConfig.for_model(kind, max_position_embeddings=514, pad_token_id=1)) == 512
    assert max_tokens(AutoConfig.for_model("bert", max_position_embeddings=512)) == 512


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder": {"max_length": 131}}, r"encoder\.max_length 131"),
        ({"tasks": {"mood": {"max_length": 200}}}, r"tasks\.mood\.max_length 200"),
    ],
)
def test_a_length_beyond_the_encoder_is_found_before_any_work(
    changes: dict[str, Any], message: str, make_tiny: Callable[..., Recipe]
) -> None:
    with pytest.raises(UserError, match=message + r" is more than .* can read \(130\)"):
        pipeline.make_plan(make_tiny(**changes))


# Names and folders ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("minilmm", 'did you mean "minilm"'),
        ("./nothing/here", "no such folder"),
        ("/nothing/here", "no such folder"),
        ("~nobody", "no such folder"),
        ("one/two/three", "no such folder"),
    ],
)
def test_an_unknown_name_is_refused(name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        resolve(name)


@pytest.mark.parametrize("name", ["zork", "someone/something"])
def test_a_hub_id_that_cannot_be_had_names_what_can(name: str) -> None:
    with pytest.raises(UserError, match=rf"encoder {name} cannot be loaded: .*short names: bge, minilm, mpnet"):
        load_encoder(EncoderSpec(name=name))


def test_a_folder_that_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no config\.json"):
        resolve(str(tmp_path))


def test_the_identity_of_a_folder_follows_its_content(tiny: Path, broken: Path) -> None:
    assert identity(str(broken)) == identity(str(tiny))
    assert set(identity(str(tiny))) == {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    change_weights(broken, lambda weights: weights["pooler.dense.bias"].add_(1))
    differing = {name for name, digest in identity(str(broken)).items() if digest != identity(str(tiny))[name]}
    assert differing == {"model.safetensors"}


@pytest.mark.parametrize("kind", KINDS)
def test_loaded_weights_are_those_of_the_file(kind: str, tiny_of: Callable[[str], Path]) -> None:
    held = load_file(tiny_of(kind) / "model.safetensors")
    loaded = weights_of(load(tiny_of(kind)).network)
    assert loaded.keys() - held.keys() <= {"embeddings.position_ids"}
    assert all("pooler" in name for name in held.keys() - loaded.keys())
    assert same(loaded, {name: held[name] for name in loaded})


def test_weights_in_half_precision_are_trained_in_fp32(broken: Path) -> None:
    AutoModel.from_pretrained(broken).half().save_pretrained(broken)
    assert load_file(broken / "model.safetensors")["pooler.dense.bias"].dtype == torch.float16
    assert {value.dtype for value in load(broken).parameters()} == {torch.float32}


def test_a_missing_pooler_is_made_anew_by_the_seed(broken: Path) -> None:
    def drop(weights: dict[str, torch.Tensor]) -> None:
        for name in [name for name in weights if "pooler" in name]:
            del weights[name]

    change_weights(broken, drop)
    one, two, other = (weights_of(some_model(broken, seed=seed)) for seed in (0, 0, 1))
    assert same(one, two)
    name = "encoder.network.pooler.dense.weight"
    assert not torch.equal(one[name], other[name])


# Damaged folders -----------------------------------------------------------------------------------------------------


def drop_a_layer(folder: Path) -> None:
    def drop(weights: dict[str, torch.Tensor]) -> None:
        for name in [name for name in weights if "layer.0." in name]:
            del weights[name]

    change_weights(folder, drop)


def resize(folder: Path) -> None:
    change_weights(folder, lambda weights: weights.update({"encoder.layer.0.output.dense.weight": torch.zeros(3, 3)}))


def pickle(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (drop_a_layer, r"16 weights are missing from its file, such as encoder\.layer\.0\."),
        (resize, r"1 weights have another size than its config\.json says, such as encoder\.layer\.0\.output\.dense"),
        (pickle, "no safetensors weights; save it again with save_pretrained"),
        (lambda folder: (folder / "model.safetensors").unlink(), "no safetensors weights"),
        (cut, "cannot be loaded: .*file not fully covered"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"hello"), "cannot be loaded: .*header"),
        (lambda folder: (folder / "config.json").write_text("{"), "cannot be loaded: .*not a valid JSON"),
        (lambda folder: (folder / "config.json").write_text('{"model_type": "zork"}'), "cannot be loaded: .*zork"),
    ],
)
def test_a_damaged_encoder_is_refused_in_one_sentence(
    damage: Callable[[Path], None], message: str, broken: Path
) -> None:
    damage(broken)
    with pytest.raises(UserError, match=message) as caught:
        load(broken)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["t5", "gpt2"])
def test_what_is_no_text_encoder_is_refused(kind: str, broken: Path) -> None:
    (broken / "config.json").write_text(f'{{"model_type": "{kind}"}}')
    with pytest.raises(UserError, match="encoder "):
        load(broken)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "tokenizer.json").write_text("{"), "cannot be loaded"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "encoder "),
        (
            lambda folder: [(folder / name).unlink() for name in ("tokenizer.json", "tokenizer_config.json")],
            "knows no words",
        ),
    ],
)
def test_a_damaged_tokeniser_is_refused(damage: Callable[[Path], Any], message: str, broken: Path) -> None:
    damage(broken)
    with pytest.raises(UserError, match=message):
        load_tokenizer(str(broken))


def test_a_tokeniser_without_padding_is_refused(broken: Path) -> None:
    tokenizer = load_tokenizer(str(broken))
    tokenizer.pad_token = None
    tokenizer.save_pretrained(broken)
    with pytest.raises(UserError, match="no padding token"):
        load_tokenizer(str(broken))


# A model of ours as the encoder of another ---------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "pooling"), [("bert", "default"), ("bert", "mean"), ("mpnet", "default")])
def test_a_model_folder_works_as_an_encoder(
    kind: str, pooling: str, tiny_of: Callable[[str], Path], tmp_path: Path
) -> None:
    model = some_model(tiny_of(kind), pooling=pooling)
    liven(model)
    lengths = {task.name: 32 for task in TASKS}
    save_model(tmp_path / "model", model, load_tokenizer(str(tiny_of(kind))), lengths, "{}", {})
    again = load(tmp_path / "model", pooling=pooling, dropout=0.2)
    assert same(weights_of(again), weights_of(model.encoder))
    assert {module.p for module in again.modules() if isinstance(module, torch.nn.Dropout)} == {0.2}
    batch = some_batches()[0]
    assert torch.equal(again.eval()(batch), model.eval().encoder(batch))


@pytest.mark.parametrize("damage", [drop_a_layer, cut, lambda folder: (folder / "model.safetensors").unlink()])
def test_a_damaged_model_folder_is_refused_as_an_encoder(
    damage: Callable[[Path], None], tiny: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    save_model(folder, some_model(tiny), load_tokenizer(str(tiny)), {task.name: 32 for task in TASKS}, "{}", {})
    damage(folder)
    with pytest.raises(UserError, match=r"encoder .*model"):
        load(folder)


def test_a_hub_id_stands_for_the_files_its_commit_has(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / "models--someone--tiny"
    for commit in ("a" * 40, "b" * 40):
        shutil.copytree(tiny, repository / "snapshots" / commit)
    change_weights(repository / "snapshots" / ("b" * 40), lambda weights: weights["pooler.dense.bias"].add_(1))
    (repository / "refs").mkdir()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    result = []
    for commit in ("a" * 40, "b" * 40):
        (repository / "refs" / "main").write_text(commit)
        place = resolve("someone/tiny")
        assert Path(place) == repository / "snapshots" / commit
        result.append(identity(place))
    assert result[0] == identity(str(tiny)) != result[1]


def test_the_identity_covers_how_a_tokeniser_is_set_up(tiny: Path, broken: Path) -> None:
    settings = broken / "tokenizer_config.json"
    settings.write_text(settings.read_text(encoding="utf-8").replace("{", '{"truncation_side": "left", ', 1))
    assert identity(str(broken)) != identity(str(tiny))


# Fewer layers --------------------------------------------------------------------------------------------------------


@given(total=st.integers(1, 100), share=st.floats(0, 1), pick=st.sampled_from(["first", "spaced"]))
def test_kept_layers_rise_and_spaced_ones_have_both_ends_and_even_gaps(total: int, share: float, pick: str) -> None:
    count = max(1, round(share * total))
    kept = kept_layers(total, count, pick)
    assert len(kept) == count and kept[0] == 0 and kept[-1] < total
    gaps = [two - one for one, two in pairwise(kept)]
    assert all(gap >= 1 for gap in gaps)
    if pick == "first":
        assert kept == list(range(count))
    elif count > 1:
        assert kept[-1] == total - 1
        even = Fraction(total - 1, count - 1)
        assert all(abs(number - index * even) <= Fraction(1, 2) for index, number in enumerate(kept))


def test_ties_between_layers_go_to_the_even_one() -> None:
    assert kept_layers(6, 3, "spaced") == [0, 2, 5]
    assert kept_layers(12, 6, "spaced") == [0, 2, 4, 7, 9, 11]
    assert kept_layers(4, 3, "spaced") == [0, 2, 3]
    assert kept_layers(12, 1, "spaced") == [0]


@pytest.fixture
def deep_of(tiny_of: Callable[[str], Path], tmp_path: Path) -> Callable[..., Path]:
    """A function that writes a six-layer encoder whose layers all differ."""

    def folder(kind: str, **changes: Any) -> Path:
        if kind == "modernbert":
            changes["layer_types"] = ["full_attention", "sliding_attention", "full_attention"] * 2
        config = AutoConfig.from_pretrained(tiny_of(kind), num_hidden_layers=6, **changes)
        network = AutoModel.from_config(config)
        liven(network)
        network.save_pretrained(tmp_path / kind)
        load_tokenizer(str(tiny_of(kind))).save_pretrained(tmp_path / kind)
        return tmp_path / kind

    return folder


def skipping(encoder: Encoder, kept: list[int]) -> Encoder:
    """Make layers pass on what they are given."""

    def pass_on(layer: Any, given: tuple[Any, ...], named: dict[str, Any], output: Any) -> Any:
        states = given[0] if given else named["hidden_states"]
        return states if isinstance(output, torch.Tensor) else (states, *output[1:])

    (layers,) = (part for part in encoder.modules() if isinstance(part, torch.nn.ModuleList) and len(part) == 6)
    for number, layer in enumerate(layers):
        if number not in kept:
            layer.register_forward_hook(pass_on, with_kwargs=True)
    return encoder


def numbers_of(network: torch.nn.Module) -> list[int]:
    """Return the places that layers believe they have."""
    return [int(part.layer_idx) for part in network.modules() if hasattr(part, "layer_idx")]


@pytest.mark.parametrize(
    ("count", "pick", "kept"), [(3, "spaced", [0, 2, 5]), (2, "first", [0, 1]), (1, "spaced", [0])]
)
@pytest.mark.parametrize("kind", [kind for kind in (*KINDS, "deberta", "deberta-v2", "modernbert") if kind != "albert"])
def test_an_encoder_of_some_layers_is_the_whole_one_without_the_others(
    kind: str, count: int, pick: str, kept: list[int], deep_of: Callable[..., Path], tmp_path: Path
) -> None:
    folder = deep_of(kind)
    expected = skipping(load(folder).eval(), kept)
    cut = load(folder, layers=count, pick=pick).eval()
    batch = some_batch(6)
    with torch.no_grad():
        assert expected(batch).std(dim=0).max() > 0.1
        torch.testing.assert_close(cut(batch), expected(batch))
        assert not torch.allclose(cut(batch), load(folder).eval()(batch))
    assert cut.config.num_hidden_layers == count
    assert sum(value.numel() for value in cut.parameters()) < sum(value.numel() for value in expected.parameters())
    assert all(number < count for number in numbers_of(cut))


@pytest.mark.parametrize("count", [1, 4])
def test_an_encoder_that_repeats_one_layer_repeats_it_less_often(count: int, deep_of: Callable[..., Path]) -> None:
    folder = deep_of("albert")
    whole, cut = load(folder, pooling="mean").eval(), load(folder, pooling="mean", layers=count).eval()
    batch = some_batch(6)
    with torch.no_grad():
        inputs = {"input_ids": batch.ids, "attention_mask": batch.mask.long(), "token_type_ids": batch.types}
        states = whole.network(**inputs, output_hidden_states=True).hidden_states
        torch.testing.assert_close(cut.network(**inputs).last_hidden_state, states[count])
    assert same(weights_of(cut), weights_of(whole))


@pytest.mark.parametrize("kind", [*KINDS, "deberta", "deberta-v2", "modernbert"])
def test_a_cut_encoder_survives_saving_and_can_be_cut_out_of_a_model(
    kind: str, deep_of: Callable[..., Path], tmp_path: Path
) -> None:
    folder, lengths, batch = deep_of(kind), {task.name: 32 for task in TASKS}, some_batch(6)
    tokenizer = load_tokenizer(str(folder))
    model = some_model(folder, layers=4, pick="first").eval()
    liven(model)
    save_model(tmp_path / "model", model, tokenizer, lengths, "{}", {})
    again = load_model(tmp_path / "model").model
    with torch.no_grad():
        assert torch.equal(again(batch), model(batch))
        student = load(tmp_path / "model", layers=2, pick="first").eval()
        fewer = some_model(folder, layers=2, pick="first").eval()
        known = model.encoder.state_dict()
        fewer.encoder.load_state_dict({name: known[name] for name in fewer.encoder.state_dict()})
        assert torch.equal(student(batch), fewer.encoder(batch))
    assert numbers_of(again) == numbers_of(model)


def test_dropout_pooling_and_precision_hold_for_a_cut_encoder(deep_of: Callable[..., Path]) -> None:
    folder = deep_of("bert")
    AutoModel.from_pretrained(folder).half().save_pretrained(folder)
    cut = load(folder, layers=2, dropout=0.25, pooling="mean")
    assert {module.p for module in cut.modules() if isinstance(module, torch.nn.Dropout)} == {0.25}
    assert cut.pooling == "mean" and not any("pooler" in name for name, _ in cut.named_parameters())
    assert {value.dtype for value in cut.parameters()} == {torch.float32}
    assert same(weights_of(load(folder, layers=6)), weights_of(load(folder)))


def test_more_layers_than_there_are_is_found_before_any_work(tiny: Path, make_tiny: Callable[..., Recipe]) -> None:
    check_layers(EncoderSpec(name=str(tiny), layers=2), str(tiny))
    check_layers(EncoderSpec(name=str(tiny)), str(tiny))
    message = r"encoder\.layers 3 is more than .* has \(2\)"
    for refuses in (
        lambda: load(tiny, layers=3),
        lambda: check_layers(EncoderSpec(name=str(tiny), layers=3), str(tiny)),
        lambda: pipeline.make_plan(make_tiny(encoder={"layers": 3})),
    ):
        with pytest.raises(UserError, match=message):
            refuses()


def test_layers_that_are_shared_in_several_groups_cannot_be_cut(deep_of: Callable[..., Path]) -> None:
    folder = deep_of("albert", num_hidden_groups=2)
    with pytest.raises(UserError, match=r"encoder\.layers: .* has no single stack of layers \(albert\); leave it out"):
        load(folder, layers=2)


def test_code_in_a_folder_is_never_run(broken: Path, tmp_path: Path) -> None:
    witness = tmp_path / "ran"
    (broken / "evil.py").write_text(f"open({str(witness)!r}, 'w').close()\nclass Evil: ...\n", encoding="utf-8")
    for name, classes in (
        ("config.json", {"AutoConfig": "evil.Evil", "AutoModel": "evil.Evil"}),
        ("tokenizer_config.json", {"AutoTokenizer": ["evil.Evil", "evil.Evil"]}),
    ):
        values = json.loads((broken / name).read_text(encoding="utf-8"))
        (broken / name).write_text(json.dumps({**values, "auto_map": classes}), encoding="utf-8")
    load(broken)
    load_tokenizer(str(broken))
    config = json.loads((broken / "config.json").read_text(encoding="utf-8"))
    (broken / "config.json").write_text(json.dumps({**config, "model_type": "evil"}), encoding="utf-8")
    with pytest.raises(UserError, match="cannot be loaded"):
        load(broken)
    assert not witness.exists()


def test_a_tokeniser_that_reads_decomposed_characters_otherwise_composes_them(broken: Path, tiny: Path) -> None:
    own = load_tokenizer(str(tiny))
    assert own("café")["input_ids"] == own("cafe\u0301")["input_ids"]
    backend = Tokenizer.from_file(str(broken / "tokenizer.json"))
    backend.normalizer = None
    backend.model = models.WordPiece({**backend.get_vocab(), "한국": 2000, "é": 2001}, unk_token="[UNK]")
    backend.save(str(broken / "tokenizer.json"))
    config = json.loads((broken / "config.json").read_text(encoding="utf-8"))
    (broken / "config.json").write_text(json.dumps({**config, "vocab_size": 3000}), encoding="utf-8")
    tokenizer = load_tokenizer(str(broken))
    assert tokenizer(normalize("NFD", "한국 é"))["input_ids"] == tokenizer("한국 é")["input_ids"] == [2, 2000, 2001, 3]
    assert encode([normalize("NFD", "한국")], tokenizer, 16).ids.tolist() == [2, 2000, 3]
    tokenizer.save_pretrained(broken)
    assert load_tokenizer(str(broken))(normalize("NFD", "é"))["input_ids"] == [2, 2001, 3]
