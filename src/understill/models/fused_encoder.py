"""A network of BERT's kind as it answers on CUDA: packed rows, few kernels, and nothing computed that nobody reads."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from understill import kernels
from understill.data.packed import Packed
from understill.models.attention import attend


def fits(network: PreTrainedModel) -> bool:
    """Tell whether a network that reads packed rows can be fused where it is."""
    return network.device.type == "cuda" and network.config.hidden_act == "gelu" and not kernels.fault()


class Fused(nn.Module):
    """The same network in a lower precision, to answer with only: layer norms and sums are always in float32.

    It shares the embeddings and the layer norms with the network, and copies all else.
    """

    def __init__(self, network: PreTrainedModel, dtype: torch.dtype) -> None:
        super().__init__()
        self.config, self.dtype = network.config, dtype
        self.heads, self.eps = int(network.config.num_attention_heads), float(network.config.layer_norm_eps)
        self.pooler = copy.deepcopy(getattr(network, "pooler", None))
        if self.pooler is not None:
            self.pooler.to(dtype)
        body: Any = network
        of = body.embeddings
        self.tables = of.word_embeddings.weight, of.position_embeddings.weight, of.token_type_embeddings.weight
        self.norm = of.LayerNorm.weight, of.LayerNorm.bias
        wider = getattr(network, "embeddings_project", None)
        self.project = self._joined(wider) if wider is not None else None
        self.layers = [self._layer(layer) for layer in body.encoder.layer]

    def _layer(self, layer: Any) -> tuple[tuple[Tensor, Tensor], ...]:
        """Return weight and bias of a layer's products and norms, in the order of use."""
        own, out = layer.attention.self, layer.attention.output
        return (
            self._joined(own.query, own.key, own.value),
            self._joined(out.dense),
            (out.LayerNorm.weight, out.LayerNorm.bias),
            self._joined(layer.intermediate.dense),
            self._joined(layer.output.dense),
            (layer.output.LayerNorm.weight, layer.output.LayerNorm.bias),
        )

    def _joined(self, *parts: nn.Linear) -> tuple[Tensor, Tensor]:
        """Return the weights of linear layers of one input as those of one layer."""
        weight, bias = (torch.cat([getattr(part, name).detach() for part in parts]) for name in ("weight", "bias"))
        return weight.to(self.dtype), bias.to(self.dtype)

    def forward(self, batch: Packed, positions: Tensor, types: Tensor, whole: bool) -> Tensor:
        """Return the states of all tokens, [tokens, width], or only those of each row's first, [n, width]."""
        from understill.kernels.layer_norm import add_norm, embed_norm

        states = embed_norm(self.tables, batch.ids, positions, types, *self.norm, self.eps, self.dtype)
        if self.project is not None:
            states = functional.linear(states, *self.project)
        for number, (three, out, norm, inner, outer, last) in enumerate(self.layers, 1):
            attended = self._attended(functional.linear(states, *three), batch)
            if number == len(self.layers) and not whole:
                firsts = batch.starts[:-1]
                attended, states = attended[firsts], states[firsts]
            states = add_norm(functional.linear(attended, *out), states, *norm, self.eps)
            states = add_norm(functional.linear(gelu_linear(states, *inner), *outer), states, *last, self.eps)
        return states

    def _attended(self, three: Tensor, batch: Packed) -> Tensor:
        """Return attention of queries, keys and values that lie side by side."""
        query, key, value = three.view(1, len(three), 3, self.heads, -1).transpose(1, 3).unbind(2)
        attended, _ = attend(self, query, key, value, None, starts=batch.starts, longest=batch.longest)
        return attended[0].flatten(1)


def gelu_linear(states: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return GELU(states·weightᵀ + bias) in one kernel: on CUDA its tanh form, a tenth of bfloat16's own error away."""
    return torch._addmm_activation(bias, states, weight.t(), use_gelu=True)
