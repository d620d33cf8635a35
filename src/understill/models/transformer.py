"""The transformer encoder: a Hugging Face network that turns padded or packed rows into one vector each."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedConfig, PreTrainedModel

from understill.data.batch import Batch
from understill.data.packed import Packed, pack
from understill.models import attention
from understill.models.dropout import exchange_dropout
from understill.models.fused_encoder import Fused, fits
from understill.models.pooling import POOLED
from understill.models.shape import HEAD_SHAPES, HeadShape

#: Architectures whose positions are counted from after the padding token's number.
_SHIFTED = frozenset(
    {"roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "mpnet", "longformer", "data2vec-text", "ibert"}
)


#: Architectures that can read packed rows: they take positions, and attend by a function that can be exchanged.
_PACKABLE = frozenset({"bert", "electra", "roberta", "xlm-roberta", "camembert"})


#: While training on a CPU, which takes as long for padding as for words, batches with a larger share of it are packed.
_PADDING = 1 / 3


@dataclass(frozen=True, eq=False)
class TokenStates:
    """The state of each token, and which text it belongs to; a row's first token belongs to none."""

    states: Tensor  # [n, L, width]
    first: Tensor  # bool [n, L]
    second: Tensor  # bool [n, L]

    def to(self, kind: torch.dtype) -> TokenStates:
        """Return the states in another precision."""
        return replace(self, states=self.states.to(kind))


class Encoder(nn.Module):
    """A pretrained encoder that turns a batch into one vector per row."""

    light = False

    def __init__(self, network: PreTrainedModel, pooling: str = "default") -> None:
        super().__init__()
        self.network = network
        self.pooling = pooling
        self.shape = HEAD_SHAPES.get(network.config.model_type, HeadShape(pooler=_has_pooler(network)))
        if pooling == "normalised":  # heads are linear, as on any sentence encoder
            self.shape = HeadShape(pooler=True)
        if (not self.shape.pooler or pooling in POOLED) and _has_pooler(network):
            network.register_module("pooler", None)  # never read: its weights would only be carried along
        self.typed = getattr(network.config, "type_vocab_size", 0) > 1
        exchange_dropout(network)
        self.packable = network.config.model_type in _PACKABLE
        if self.packable:
            network.set_attn_implementation(attention.NAME)

    def packs_on(self, device: torch.device) -> bool:
        """Tell whether it reads packed rows on a device; on CUDA it does so in bfloat16."""
        if not self.packable or device.type != "cuda":
            return self.packable
        heads = int(self.config.num_attention_heads)
        with torch.inference_mode(False), torch.enable_grad(), torch.cuda.device(device):
            return torch.cuda.is_bf16_supported(including_emulation=False) and attention.works(
                heads, self.width // heads, min(self.config.max_position_embeddings, attention.LONGEST)
            )

    def rounded(self, dtype: torch.dtype) -> Encoder:
        """Return the encoder in a lower precision, to answer with; fused where that can be done."""
        if not (self.packable and fits(self.network)):
            return copy.deepcopy(self).to(dtype)
        twin = copy.copy(self)
        twin._modules = {**self._modules, "network": Fused(self.network, dtype)}
        return twin

    @property
    def config(self) -> PreTrainedConfig:
        """The Hugging Face configuration of the network."""
        return self.network.config

    @property
    def width(self) -> int:
        """The size of the vector given for each row."""
        return int(self.network.config.hidden_size)

    def forward(self, batch: Batch | Packed) -> Tensor:
        """Return one vector per row, [n, width]."""
        return self._read(batch, tokens=False)[0]

    def read(self, batch: Batch | Packed) -> tuple[Tensor, TokenStates]:
        """Return one vector per row, [n, width], and the states of its tokens."""
        vectors, tokens = self._read(batch, tokens=True)
        assert tokens is not None
        return vectors, tokens

    def _read(self, batch: Batch | Packed, tokens: bool) -> tuple[Tensor, TokenStates | None]:
        if isinstance(batch, Batch) and (
            isinstance(self.network, Fused) or (self.training and self.packable and _wasteful(batch))
        ):
            batch = pack(batch)
        return self._packed(batch, tokens) if isinstance(batch, Packed) else self._padded(batch, tokens)

    def _packed(self, batch: Packed, tokens: bool) -> tuple[Tensor, TokenStates | None]:
        """Read rows that lie one after the other."""
        positions = batch.position + _first_position(self.config)
        whole = tokens or self.pooling in POOLED
        if isinstance(self.network, Fused):
            types = batch.types if self.typed else torch.zeros_like(batch.types)
            states: Tensor = self.network(batch, positions, types, whole)
        else:
            inputs: dict[str, Any] = {"input_ids": batch.ids[None], "position_ids": positions[None]}
            if self.typed:
                inputs["token_type_ids"] = batch.types[None]
            output = self.network(**inputs, starts=batch.starts, longest=batch.longest)
            states = output.last_hidden_state[0]
        by_token = _unpack(states, batch) if tokens else None
        if self.pooling in POOLED:
            full = states.to(torch.promote_types(states.dtype, torch.float32))  # sums of many small numbers
            sums = full.new_zeros(len(batch) + 1, full.shape[1]).index_add(0, batch.home, full)
            return self._scaled(sums[:-1] / batch.lengths.unsqueeze(1)), by_token
        first = states[batch.starts[:-1]] if whole or not isinstance(self.network, Fused) else states
        if self.shape.pooler:
            pooler: nn.Module = self.network.get_submodule("pooler")
            return pooler(first.unsqueeze(1)), by_token
        return first, by_token

    def _padded(self, batch: Batch, tokens: bool) -> tuple[Tensor, TokenStates | None]:
        mask = batch.mask
        inputs: dict[str, Any] = {"input_ids": batch.ids, "attention_mask": mask.long()}
        if self.typed:
            inputs["token_type_ids"] = batch.types
        output = self.network(**inputs)
        states: Tensor = output.last_hidden_state  # [n, L, width]
        by_token = _sides(states, mask, batch.types) if tokens else None
        if self.pooling in POOLED:
            weights = mask.unsqueeze(-1).to(states.dtype)
            return self._scaled((states * weights).sum(1) / weights.sum(1)), by_token
        if self.shape.pooler:
            return output.pooler_output, by_token
        return states[:, 0], by_token

    def _scaled(self, means: Tensor) -> Tensor:
        """Return vectors whose numbers have a mean square of 1, where they are to be normalised."""
        return functional.normalize(means, dim=1) * math.sqrt(self.width) if self.pooling == "normalised" else means


def _unpack(states: Tensor, batch: Packed) -> TokenStates:
    """Put the states of packed rows, [tokens, width], below each other."""
    cells = torch.arange(batch.longest, device=states.device)
    places = (batch.starts[:-1].unsqueeze(1) + cells).clamp(max=len(states) - 1)
    return _sides(states[places], cells < batch.lengths.unsqueeze(1), batch.types[places])


def _sides(states: Tensor, there: Tensor, types: Tensor) -> TokenStates:
    """Say which text each token belongs to."""
    first = there & (types == 0)
    first[:, 0] = False  # what stands for the whole row
    return TokenStates(states, first, there & (types == 1))


def _wasteful(batch: Batch) -> bool:
    """Tell whether a CPU would spend much of its time on the padding of a batch."""
    return not batch.ids.is_cuda and int(batch.lengths.sum()) < (1 - _PADDING) * batch.ids.numel()


def _has_pooler(network: PreTrainedModel) -> bool:
    return getattr(network, "pooler", None) is not None


def max_tokens(config: PreTrainedConfig) -> int | None:
    """Return how many tokens an encoder can read; None where it has no limit."""
    limit = getattr(config, "max_position_embeddings", None)
    return int(limit) - _first_position(config) if limit else None


def _first_position(config: PreTrainedConfig) -> int:
    """Return the number of the first position: 0, or in some architectures the one after the padding token's."""
    if config.model_type not in _SHIFTED:
        return 0
    return 1 + (1 if config.model_type == "mpnet" else getattr(config, "pad_token_id", 1) or 0)
