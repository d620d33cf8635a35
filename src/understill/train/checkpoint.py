"""Checkpoints: the whole state of training in safetensors and JSON, written so that a crash cannot spoil it."""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save, save_file
from torch import Tensor, nn

from understill.atomic import fault_of, raise_exhausted, replacing, write_bytes

log = logging.getLogger(__name__)

_NAME = re.compile(r"checkpoint-(\d+)")


def save_checkpoint(
    folder: Path,
    step: int,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    facts: dict[str, Any],
    beside: Collection[Path] = (),
) -> None:
    """Write the state after `step`, which stands on files that lie beside it, then drop older states."""
    final = folder / f"checkpoint-{step}"
    with replacing(final, beside) as part:
        save_file(_tensors(model, optimizer), part / "state.safetensors")
        (part / "state.json").write_text(json.dumps({"step": step, **facts}), encoding="utf-8")
    for path in folder.glob("*checkpoint-*"):
        if path != final:
            shutil.rmtree(path, ignore_errors=True)


def load_checkpoint(
    folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, keys: Iterable[str]
) -> dict[str, Any] | None:
    """Put the newest whole state into model and optimiser, and return its facts, which must have these keys.

    None when there is no whole state; then model and optimiser are as they were.
    """
    states = [(int(match[1]), path) for path in folder.glob("checkpoint-*") if (match := _NAME.fullmatch(path.name))]
    for _, path in sorted(states, reverse=True):
        try:
            if fault := fault_of(path):
                raise ValueError(fault)
            facts: dict[str, Any] = json.loads((path / "state.json").read_text(encoding="utf-8"))
            if set(facts) != {"step", *keys}:
                raise ValueError("state.json is not of this version")
            _restore(load_file(path / "state.safetensors"), model, optimizer)
            return facts
        except (OSError, ValueError, TypeError, SafetensorError) as error:
            raise_exhausted(error)
            log.warning("%s cannot be read (%s): looking for an older one", path, error)
    return None


def save_weights(path: Path, weights: Mapping[str, Tensor]) -> None:
    """Write the weights alone, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, save({name: value.detach().cpu().contiguous() for name, value in weights.items()}))


def load_weights(path: Path, model: nn.Module) -> None:
    """Read back what `save_weights` wrote."""
    model.load_state_dict(load_file(path))


def _names(model: nn.Module) -> dict[int, str]:
    return {id(parameter): name for name, parameter in model.named_parameters()}


def _tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Name every tensor of the state: `model.…` for weights, `optimizer.<slot>.<parameter>` for the rest."""
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    names = _names(model)
    for parameter, slots in optimizer.state.items():
        for slot, value in slots.items():
            tensors[f"optimizer.{slot}.{names[id(parameter)]}"] = torch.as_tensor(value)
    return {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}


def _restore(tensors: dict[str, Tensor], model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    weights = {name.removeprefix("model."): value for name, value in tensors.items() if name.startswith("model.")}
    slots: dict[str, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith("optimizer."):
            _, slot, parameter = name.split(".", 2)
            slots.setdefault(parameter, {})[slot] = value
    names = _names(model)
    ordered = [names[id(parameter)] for group in optimizer.param_groups for parameter in group["params"]]
    # Looked at before anything is touched: a state that fits only in part must not be half taken over.
    expected = {name: value.shape for name, value in model.state_dict().items()}
    if expected != {name: value.shape for name, value in weights.items()} or set(slots) - set(ordered):
        raise ValueError("its weights are not those of this model")
    model.load_state_dict(weights)
    # Through the optimiser's own state_dict, which puts each tensor on the right device and keeps its type.
    state = optimizer.state_dict()
    state["state"] = {number: slots[name] for number, name in enumerate(ordered) if name in slots}
    optimizer.load_state_dict(state)
