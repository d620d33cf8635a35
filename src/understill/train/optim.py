"""Optimisers, layer-wise rates and the schedule."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import nn

from understill.models.multitask import MultiTaskModel
from understill.recipe.schema import Training

_LAYER = re.compile(r"\.(?:layer|layers|albert_layers)\.(\d+)\.")


def depth(name: str, layers: int) -> int:
    """Return a parameter's distance from the output: head 0, pooler 1, top layer 2, …, embeddings layers + 2."""
    if name.startswith("heads."):
        return 0
    if ".pooler." in name:
        return 1
    if match := _LAYER.search(name):
        return 1 + layers - int(match[1])
    # MPNet's relative positions are read by every layer, so they count with the embeddings.
    if "embed" in name or "relative" in name:
        return layers + 2
    return 2  # a final norm stands at the top


def count_layers(names: list[str]) -> int:
    """Return how many numbered layers the parameter names show."""
    return max((int(match[1]) + 1 for name in names if (match := _LAYER.search(name))), default=0)


def parameter_groups(model: nn.Module, training: Training) -> list[dict[str, Any]]:
    """Group parameters by rate and weight decay; biases and norms are not decayed."""
    named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    layers = count_layers([name for name, _ in named])
    own = _head_rates(model, training)
    groups: dict[tuple[int, float, bool], list[nn.Parameter]] = {}
    for name, parameter in named:
        distance = depth(name, layers) if training.layer_decay < 1 else 0
        rate = next((rate for start, rate in own.items() if name.startswith(start)), training.rate)
        groups.setdefault((distance, rate, parameter.ndim > 1), []).append(parameter)
    return [
        {
            "params": parameters,
            "base_lr": rate * training.layer_decay**distance,
            "lr": rate * training.layer_decay**distance,
            "weight_decay": training.weight_decay if decayed else 0.0,
        }
        for (distance, rate, decayed), parameters in sorted(groups.items(), key=lambda item: item[0])
    ]


def _head_rates(model: nn.Module, training: Training) -> dict[str, float]:
    """Return the learning rates of heads that have their own, by the beginnings of their parameters' names."""
    rates = {}
    if isinstance(model, MultiTaskModel):
        for number, task in enumerate(model.tasks):
            own = model.spec.tasks.get(task.name)
            if own and own.lr is not None:
                rates[f"heads.tasks.{number}."] = own.lr
    return rates | ({"heads.": training.head_lr} if training.head_lr is not None else {})


def make_optimizer(model: nn.Module, training: Training) -> torch.optim.Optimizer:
    """Build the optimiser that the recipe names."""
    groups = parameter_groups(model, training)
    if training.optimizer == "adamw":
        return torch.optim.AdamW(groups, betas=training.betas, eps=training.eps, fused=True)
    if training.optimizer == "adamax":
        return torch.optim.Adamax(groups, betas=training.betas, eps=training.eps)
    return torch.optim.Adadelta(groups, rho=training.rho, eps=training.eps)


def rate_factor(step: int, total: int, training: Training) -> float:
    """Return what step number `step` (from 0) multiplies the rates by: warm-up, then linear decay to 0."""
    warmup = training.warmup * total
    if step < warmup:
        return (step + 1) / (warmup + 1)
    if training.schedule == "constant":
        return 1.0
    return (total - step) / max(1.0, total - warmup)


def set_rates(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Set every group's rate for the coming step."""
    for group in optimizer.param_groups:
        group["lr"] = group["base_lr"] * factor
