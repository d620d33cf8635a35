"""Encoders loaded by short name, folder or hub id: weights, config, tokeniser, and how many layers are kept."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unicodedata import normalize

import torch
from huggingface_hub import snapshot_download
from safetensors import SafetensorError
from tokenizers import normalizers
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from transformers import (
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging as hub_logging

from understill.atomic import CHECKSUMS, known_digest, refuse_damage
from understill.errors import UserError, no_panic
from understill.models.assets import locate
from understill.models.catalogue import ASSETS, refuse_misspelt
from understill.models.manifest import MANIFEST
from understill.models.transformer import Encoder, max_tokens
from understill.models.words import WordEncoder, WordsConfig, load_words, read_config, trained_weights
from understill.names import expanded
from understill.recipe.schema import EncoderSpec

hub_logging.disable_progress_bar()

#: The kinds of files that make up an encoder, and those among them that only tell of its training here.
_CONTENT = (".json", ".txt", ".model", ".safetensors")
_RECORDS = (MANIFEST, "scores.json", CHECKSUMS)
#: Settings that say how often something is built, and the most that is believed.
_COUNT, MOST_LAYERS = re.compile("layer|group|block|expert|depth|stage"), 1000
#: Numbers that a network may have without weights on disk: positions, poolers.
SPARE = 1 << 24
#: Texts of which a tokeniser that composes characters reads both forms alike.
_PROBE = "café 한국어 Ångström"


def resolve(name: str) -> str:
    """Turn a short name, a folder or a hub id into what Hugging Face's loaders take."""
    if name in ASSETS:
        return str(locate(name))
    folder = expanded(name)
    if folder.is_dir():
        if not (folder / "config.json").exists():
            models = sorted(folder.glob("models/*/config.json")) or sorted(folder.glob("model/config.json"))
            hint = f" → name a model in it, such as {models[0].parent}" if models else ""
            raise UserError(f"encoder {name}: this folder has no config.json, so it is no Hugging Face model{hint}")
        return str(folder)
    if folder.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise UserError(f"encoder {name}: no such folder")
    refuse_misspelt(name)
    return _snapshot(name)


def _snapshot(name: str) -> str:
    """Return the local folder of a hub model, fetched if need be; what is hashed is then what is loaded."""
    try:
        kinds = [f"*{suffix}" for suffix in _CONTENT]
        folder = snapshot_download(name, allow_patterns=kinds, ignore_patterns=["*/*"])
        # The one file of a folder below that is read: how a sentence encoder pools.
        snapshot_download(name, revision=Path(folder).name, allow_patterns=["*_Pooling/config.json"])
        return str(folder)
    except (OSError, ValueError) as error:
        first = "there is no such folder, and the Hugging Face hub has no such model or cannot be reached"
        names = f"short names: {', '.join(sorted(ASSETS))} (see understill assets)"
        raise UserError(f"encoder {name} cannot be loaded: {first}; {names}") from error


def identity(place: str) -> dict[str, str]:
    """Return the digest of every file that decides what an encoder computes, for fingerprints."""
    refuse_damage(Path(place))
    files = sorted(path for path in Path(place).iterdir() if path.suffix in _CONTENT and path.name not in _RECORDS)
    return {path.name: known_digest(path) for path in files}


def load_encoder(spec: EncoderSpec, source: str | None = None) -> Encoder | WordEncoder:
    """Load a recipe's encoder with its pretrained weights: from safetensors only, and without remote code."""
    place = source or resolve(spec.name)
    config = load_config(spec.name, place)
    changes = dropout_changes(spec.name, config, spec.dropout)
    if isinstance(config, WordsConfig):
        config.dropout = changes.get("dropout", config.dropout)
        return load_words(spec.name, Path(place), config)
    network = _network(spec.name, place, config, changes)
    if getattr(network.config, "is_encoder_decoder", False) or not hasattr(network.config, "hidden_size"):
        raise UserError(
            f"encoder {spec.name}: a {network.config.model_type} model is not a text encoder of the BERT family"
        )
    check_lengths(spec.name, place, {"encoder.max_length": spec.max_length})
    check_layers(spec, place)
    return _cut(spec, Encoder(network, spec.pooling))


def check_lengths(name: str, source: str, lengths: Mapping[str, int]) -> None:
    """Refuse lengths, named by their place in the recipe, that an encoder cannot read; only its config is loaded."""
    limit = max_tokens(load_config(name, source))
    for place, length in lengths.items():
        if limit is not None and length > limit:
            raise UserError(f"{place} {length} is more than {name} can read ({limit})")


def check_layers(spec: EncoderSpec, source: str) -> None:
    """Refuse to keep more layers than an encoder has; only its config is loaded."""
    total = getattr(load_config(spec.name, source), "num_hidden_layers", 0)
    if spec.layers is not None and spec.layers > total:
        raise UserError(f"encoder.layers {spec.layers} is more than {spec.name} has ({total})")


def kept_layers(total: int, count: int, pick: str) -> list[int]:
    """Return which layers are kept, counted from 0: the bottom ones, or evenly spaced ones with the first and the last.

    Spaced layer i is round(i·(total − 1) / (count − 1)), where Python rounds ties to even: three of six are 0, 2 and 5.
    A single one is the first, on which the layers above it would build.
    """
    if pick == "first" or count == 1:
        return list(range(count))
    return [round(index * (total - 1) / (count - 1)) for index in range(count)]


def _cut(spec: EncoderSpec, encoder: Encoder) -> Encoder:
    """Return the encoder with as many layers as are wanted, built anew so that each has the index of its new place."""
    config = copy.deepcopy(encoder.config)
    if spec.layers is None or spec.layers == config.num_hidden_layers:
        return encoder
    kept = kept_layers(config.num_hidden_layers, spec.layers, spec.pick)
    weights = _of_layers(spec.name, encoder, kept)
    config.num_hidden_layers = len(kept)
    if getattr(config, "layer_types", None):  # architectures whose layers differ list what each is
        config.layer_types = [config.layer_types[number] for number in kept]
    smaller = Encoder(AutoModel.from_config(config), encoder.pooling)
    smaller.load_state_dict(weights)
    return smaller


def _of_layers(name: str, encoder: Encoder, kept: list[int]) -> dict[str, Tensor]:
    """Return the weights of the kept layers under their new numbers, and those outside the layers."""
    weights, total = encoder.state_dict(), encoder.config.num_hidden_layers
    groups = getattr(encoder.config, "num_hidden_groups", None)
    if groups == 1:  # ALBERT's layers are one layer, gone through again and again
        return weights
    stacks = [key for key, part in encoder.named_modules() if isinstance(part, nn.ModuleList) and len(part) == total]
    if groups or len(stacks) != 1:
        raise UserError(
            f"encoder.layers: {name} has no single stack of layers ({encoder.config.model_type}); leave it out"
        )
    numbered = re.compile(rf"({re.escape(stacks[0])}\.)(\d+)(\..+)")
    renamed = {}
    for key, value in weights.items():
        match = numbered.fullmatch(key)
        if match is None:
            renamed[key] = value
        elif int(match[2]) in kept:
            renamed[f"{match[1]}{kept.index(int(match[2]))}{match[3]}"] = value
    return renamed


def load_config(name: str, source: str) -> PreTrainedConfig:
    """Load a model's configuration; one of a far larger network than the weights beside it is refused."""
    config: PreTrainedConfig = read_config(Path(source)) or _from_hub(name, AutoConfig, source)
    weights = sum(path.stat().st_size for path in Path(source).glob("*.safetensors"))
    if weights and (fault := _excess(config, weights)):
        raise UserError(f"encoder {name} cannot be loaded: {fault} → copy the whole folder again")
    return config


_sound: set[tuple[str, int]] = set()  # configs that were looked at, with the size of the weights


def _excess(config: PreTrainedConfig, weights: int) -> str:
    """Say what a config claims that so many bytes of weights cannot hold, before memory is taken for it."""
    seen = config.to_json_string(), weights
    if seen in _sound:
        return ""
    for key, value in config.to_dict().items():
        if _COUNT.search(key) and isinstance(value, int) and value > MOST_LAYERS:
            return f"{key} is {value:,} in its config.json"
    try:
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            network = build_encoder(config, "default")
        count = sum(part.numel() for part in (*network.parameters(), *network.buffers()))
        count += (network.shape.dense or 0) * network.width  # of heads
    except Exception:  # whoever builds it says what is wrong with it
        return ""
    if count > weights + SPARE:
        return f"its config.json describes a network of {count:,} numbers, and its weights have {weights:,} bytes"
    _sound.add(seen)
    return ""


def _network(name: str, place: str, config: PreTrainedConfig, changes: dict[str, float]) -> PreTrainedModel:
    """Load the network with its weights, from an understill model's folder too."""
    if (Path(place) / MANIFEST).exists():
        for key, value in changes.items():
            setattr(config, key, value)
        own = Encoder(AutoModel.from_config(config)).network
        try:
            weights = trained_weights(Path(place), "encoder.network.")
            missing = own.load_state_dict(weights, strict=False).missing_keys
        except (OSError, SafetensorError, RuntimeError) as error:
            raise UserError(f"encoder {name} cannot be loaded: {str(error).splitlines()[0]}") from error
    else:
        settings = {"use_safetensors": True, "dtype": torch.float32, **changes}
        # Sizes that do not fit are refused below, in our own words.
        loaded = _from_hub(name, AutoModel, place, output_loading_info=True, ignore_mismatched_sizes=True, **settings)
        own, missing = loaded[0], loaded[1]["missing_keys"]
        _refuse_odd(
            name, "have another size than its config.json says", [key[0] for key in loaded[1]["mismatched_keys"]]
        )
    # A fresh pooler is usual. Were anything else missing, training would silently start from random weights.
    strange = [key for key in missing if "pooler" not in key and not key.endswith("position_ids")]
    _refuse_odd(name, "are missing from its file", strange)
    network: PreTrainedModel = own
    return network


def _refuse_odd(name: str, what: str, keys: list[str]) -> None:
    if keys:
        raise UserError(f"encoder {name}: {len(keys)} weights {what}, such as {min(keys)}")


def load_tokenizer(name: str, source: str | None = None) -> PreTrainedTokenizerFast:
    """Load a model's own fast tokeniser."""
    place = source or resolve(name)
    # Of a network of our own Hugging Face knows no tokeniser to choose.
    own = read_config(Path(place)) is not None
    with no_panic(f"encoder {name}"):
        tokenizer = _from_hub(name, PreTrainedTokenizerFast if own else AutoTokenizer, place, use_fast=True)
    if not tokenizer.is_fast:
        raise UserError(f"encoder {name}: its tokeniser has no fast version, which understill needs")
    if len(tokenizer) <= len(tokenizer.all_special_tokens):
        raise UserError(f"encoder {name}: its tokeniser knows no words; is tokenizer.json missing?")
    if tokenizer.pad_token_id is None:
        raise UserError(f"encoder {name}: its tokeniser has no padding token")
    largest, room = max(tokenizer.get_vocab().values()), getattr(load_config(name, place), "vocab_size", None)
    if room is not None and largest >= room:
        raise UserError(f"encoder {name}: its tokeniser has ids up to {largest}, its weights only {room} words")
    try:
        with no_panic(f"encoder {name}"):
            _compose(tokenizer)
            tokenizer("a", "a")
    except (TypeError, ValueError, AttributeError, KeyError) as error:  # of settings that were changed
        raise UserError(f"encoder {name}: its tokeniser cannot be used: {error}") from None
    loaded: PreTrainedTokenizerFast = tokenizer
    return loaded


def _compose(tokenizer: PreTrainedTokenizerFast) -> None:
    """Let a tokeniser that reads decomposed characters otherwise compose them (NFC) before all else."""
    backend = tokenizer.backend_tokenizer
    own, decomposed = backend.normalizer, normalize("NFD", _PROBE)
    if own is None:
        backend.normalizer = normalizers.NFC()
    elif own.normalize_str(_PROBE) != own.normalize_str(decomposed):
        backend.normalizer = normalizers.Sequence([normalizers.NFC(), own])


def build_encoder(config: PreTrainedConfig, pooling: str) -> Encoder | WordEncoder:
    """Build an encoder without weights, to be filled from a model folder."""
    with _Unfilled():
        if isinstance(config, WordsConfig):
            return WordEncoder(config)
        return Encoder(AutoModel.from_config(config), pooling)


class _Unfilled(TorchFunctionMode):
    """Sets zeros where random weights would be drawn, which takes most of the time of loading."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function of torch; one that draws does not."""
        options = kwargs or {}
        if getattr(func, "__name__", "") in ("normal_", "uniform_", "kaiming_uniform_", "xavier_uniform_"):
            tensor: Tensor = args[0] if args else options["tensor"]
            with torch.no_grad():
                return tensor.zero_()
        return func(*args, **options)


def dropout_changes(name: str, config: PreTrainedConfig, rate: float | None) -> dict[str, float]:
    """Return the dropout settings of an architecture, attention included, at a rate; none where none is given."""
    if rate is None:
        return {}
    inside = ("hidden_dropout_prob", "attention_probs_dropout_prob", "dropout", "attention_dropout")
    changes = {key: rate for key in (*inside, "embedding_dropout", "mlp_dropout") if hasattr(config, key)}
    if not changes:
        raise UserError(f"encoder.dropout: {name} has no such setting ({config.model_type}); leave it out")
    return changes


def _from_hub(name: str, loader: Any, place: str, **settings: Any) -> Any:
    """Load with a Hugging Face class and turn its many errors into one sentence."""
    try:
        return loader.from_pretrained(place, trust_remote_code=False, **settings)
    except Exception as error:  # whatever the library makes of files that were changed
        raise UserError(f"encoder {name} cannot be loaded: {loading_fault(error)}") from error


def loading_fault(error: Exception) -> str:
    """Say in a sentence why a Hugging Face class cannot load a model."""
    if "file named" in str(error):  # and not a file that the system refuses to open
        return "it has no safetensors weights; save it again with save_pretrained(folder)"
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
