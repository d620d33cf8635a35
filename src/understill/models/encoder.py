"""Encoders: any Hugging Face encoder by short name, folder or hub id."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging as hub_logging

from understill.data.batch import Batch
from understill.errors import UserError, nearest
from understill.models import assets
from understill.recipe import EncoderSpec

log = logging.getLogger(__name__)
hub_logging.disable_progress_bar()


@dataclass(frozen=True)
class HeadShape:
    """How an architecture's own sequence classifier gets from token states to logits."""

    pooler: bool  # the encoder's pooler comes first, shared by all tasks; otherwise each head has a dense layer
    activation: str = "tanh"
    early_dropout: bool = True  # dropout before the dense layer as well as after it


#: As in each architecture's `…ForSequenceClassification`, so that a task can leave as a plain Hugging Face model.
HEAD_SHAPES: dict[str, HeadShape] = {
    "bert": HeadShape(pooler=True),
    "albert": HeadShape(pooler=True),
    "roberta": HeadShape(pooler=False),
    "xlm-roberta": HeadShape(pooler=False),
    "camembert": HeadShape(pooler=False),
    "mpnet": HeadShape(pooler=False),
    "electra": HeadShape(pooler=False, activation="gelu"),
    "deberta": HeadShape(pooler=False, activation="gelu"),
    "deberta-v2": HeadShape(pooler=False, activation="gelu"),
    "distilbert": HeadShape(pooler=False, activation="relu", early_dropout=False),
}


class Encoder(nn.Module):
    """A pretrained encoder that turns a batch into one vector per row."""

    def __init__(self, network: PreTrainedModel, pooling: str = "default") -> None:
        super().__init__()
        self.network = network
        self.pooling = pooling
        self.shape = HEAD_SHAPES.get(network.config.model_type, HeadShape(pooler=_has_pooler(network)))
        if (not self.shape.pooler or pooling == "mean") and _has_pooler(network):
            network.register_module("pooler", None)  # never read: its weights would only be carried along
        self.typed = getattr(network.config, "type_vocab_size", 0) > 1

    @property
    def config(self) -> PreTrainedConfig:
        """The Hugging Face configuration of the network."""
        return self.network.config

    @property
    def width(self) -> int:
        """The size of the vector given for each row."""
        return int(self.network.config.hidden_size)

    def forward(self, batch: Batch) -> Tensor:
        """Return one vector per row, [n, width]."""
        mask = batch.mask
        inputs: dict[str, Any] = {"input_ids": batch.ids, "attention_mask": mask.long()}
        if self.typed:
            inputs["token_type_ids"] = batch.types
        output = self.network(**inputs)
        states: Tensor = output.last_hidden_state  # [n, L, width]
        if self.pooling == "mean":
            weights = mask.unsqueeze(-1).to(states.dtype)
            return (states * weights).sum(1) / weights.sum(1)
        if self.shape.pooler:
            pooled: Tensor = output.pooler_output
            return pooled
        return states[:, 0]


def _has_pooler(network: PreTrainedModel) -> bool:
    return getattr(network, "pooler", None) is not None


def resolve(name: str) -> str:
    """Turn a short name, a folder or a hub id into what Hugging Face's loaders take."""
    if name in assets.ASSETS:
        return str(assets.locate(name))
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").exists():
            raise UserError(f"encoder {name}: this folder has no config.json, so it is no Hugging Face model")
        return str(folder)
    if folder.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise UserError(f"encoder {name}: no such folder")
    if "/" not in name and nearest(name, assets.ASSETS).startswith("did"):
        raise UserError(f"encoder {name}: {nearest(name, assets.ASSETS)}")
    return name


def identity(place: str) -> dict[str, str]:
    """Say what a place holds, for fingerprints: the digests of a folder's files, or a hub id with its commit."""
    folder = Path(place)
    if not folder.is_dir():
        commit = getattr(_from_hub(place, AutoConfig, place), "_commit_hash", None)
        return {"hub": place, "commit": str(commit)}
    wanted = ("config.json", "tokenizer.json", "vocab.txt")
    files = sorted(path for path in folder.iterdir() if path.name in wanted or path.suffix == ".safetensors")
    return {path.name: file_digest(path) for path in files}


def file_digest(path: Path) -> str:
    """Return the sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def load_encoder(spec: EncoderSpec, source: str | None = None) -> Encoder:
    """Load the pretrained network of a recipe; safetensors only, and no code from the model's folder."""
    place = source or resolve(spec.name)
    config = _from_hub(spec.name, AutoConfig, place)
    changes = _dropout_changes(config, spec.dropout) if spec.dropout is not None else {}
    network = _network(spec.name, place, config, changes)
    if getattr(network.config, "is_encoder_decoder", False) or not hasattr(network.config, "hidden_size"):
        raise UserError(
            f"encoder {spec.name}: a {network.config.model_type} model is not a text encoder of the BERT family"
        )
    limit = getattr(network.config, "max_position_embeddings", None)
    if limit and spec.max_length > limit:
        raise UserError(f"encoder.max_length {spec.max_length} is more than {spec.name} can read ({limit})")
    return Encoder(network, spec.pooling)


def _network(name: str, place: str, config: PreTrainedConfig, changes: dict[str, float]) -> PreTrainedModel:
    """Load the network with its weights, from an understill model's folder too."""
    if (Path(place) / "understill.json").exists():
        for key, value in changes.items():
            setattr(config, key, value)
        own = build_encoder(config, "default").network
        prefix = "encoder.network."
        held = load_file(Path(place) / "model.safetensors")
        weights = {key.removeprefix(prefix): value for key, value in held.items() if key.startswith(prefix)}
        missing = own.load_state_dict(weights, strict=False).missing_keys
    else:
        loaded = _from_hub(
            name, AutoModel, place, use_safetensors=True, dtype=torch.float32, output_loading_info=True, **changes
        )
        own, missing = loaded[0], loaded[1]["missing_keys"]
    # A fresh pooler is usual. Were anything else missing, training would start from noise without a word.
    foreign = [key for key in missing if "pooler" not in key and not key.endswith("position_ids")]
    if foreign:
        raise UserError(
            f"encoder {name}: {len(foreign)} weights are missing from its file, such as {sorted(foreign)[0]}"
        )
    network: PreTrainedModel = own
    return network


def load_tokenizer(name: str, source: str | None = None) -> PreTrainedTokenizerFast:
    """Load a model's own fast tokeniser."""
    tokenizer = _from_hub(name, AutoTokenizer, source or resolve(name), use_fast=True)
    if not tokenizer.is_fast:
        raise UserError(f"encoder {name}: its tokeniser has no fast version, which understill needs")
    if tokenizer.pad_token_id is None:
        raise UserError(f"encoder {name}: its tokeniser has no padding token")
    loaded: PreTrainedTokenizerFast = tokenizer
    return loaded


def build_encoder(config: PreTrainedConfig, pooling: str) -> Encoder:
    """Build an encoder without weights, to be filled from a model folder."""
    return Encoder(AutoModel.from_config(config), pooling)


def _dropout_changes(config: PreTrainedConfig, rate: float) -> dict[str, float]:
    """Name the dropout settings of an architecture, attention included."""
    names = ("hidden_dropout_prob", "attention_probs_dropout_prob", "dropout", "attention_dropout")
    return {name: rate for name in names if hasattr(config, name)}


def _from_hub(name: str, loader: Any, place: str, **settings: Any) -> Any:
    """Load with a Hugging Face class and turn its many errors into one sentence."""
    try:
        return loader.from_pretrained(place, trust_remote_code=False, **settings)
    except (OSError, ValueError, KeyError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        if "safetensors" in str(error):
            first = "it has no safetensors weights; save it again with save_pretrained(folder)"
        known = f"; short names: {', '.join(sorted(assets.ASSETS))} (see understill assets)"
        raise UserError(f"encoder {name} cannot be loaded: {first}{'' if Path(place).is_dir() else known}") from error
