"""Devices: where to train, in which precision and with how many threads, as detected."""

from __future__ import annotations

import ctypes
import logging
import os
import platform
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.tracking import get_available_trackers
from accelerate.utils import LoggerType
from torch import nn

from understill.errors import UserError, nearest
from understill.inference.cores import cores
from understill.recipe.schema import Machine

log = logging.getLogger(__name__)

#: The numbers that glibc's mallopt knows its settings by.
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4

_PROBE = "import torch; x = torch.randn(64, 64).bfloat16(); (x @ x).sum().item()"


def make_accelerator(
    machine: Machine, precision: str, trackers: tuple[str, ...] = (), folder: Path | None = None
) -> Accelerator:
    """Set up accelerate for a recipe's machine and precision."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:  # processes that have joined forget it
        raise UserError("a program of its own cannot share a training → write torchrun … -m understill run RECIPE")
    device = pick_device(machine)
    if device == "cpu":
        _keep_memory()
    set_threads(machine)
    check_trackers(trackers)
    # accelerate keeps one state per process; each model may want another precision.
    AcceleratorState._reset_state(True)
    chosen = pick_precision(precision, device)
    mixed = "no" if chosen == "fp32" else chosen
    return Accelerator(mixed_precision=mixed, cpu=device == "cpu", log_with=list(trackers) or None, project_dir=folder)


def set_threads(machine: Machine) -> None:
    """Take as many threads as the recipe says, or as there are cores: torch does not see a container's limit.

    The number does not follow the load: with other threads floats round differently, and resumed runs would differ.
    """
    if machine.threads:
        torch.set_num_threads(machine.threads)
    elif "OMP_NUM_THREADS" not in os.environ and cores() < torch.get_num_threads():
        torch.set_num_threads(cores())


def device_name(device: str) -> str:
    """Name a device as its maker does, as far as the machine tells."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    return f"{device}, {os.cpu_count() or 1} cores, {platform.machine()}"


def _keep_memory() -> None:
    """Let one step's memory serve the next: given back to the system, it has to be cleared page by page each time."""
    if platform.libc_ver()[0] == "glibc":
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_MAX, 0)  # a mapped block goes back as soon as it is free
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)


def check_trackers(names: tuple[str, ...]) -> None:
    """Refuse trackers that accelerate does not know, or that are not installed."""
    known = [name for name in LoggerType.list() if name != "all"]
    for name in names:
        if name not in known:
            raise UserError(f'output.trackers: "{name}" is not a tracker; {nearest(name, known)}')
        # accelerate itself would leave it out without a word.
        if name not in [str(tracker) for tracker in get_available_trackers()]:
            raise UserError(f"output.trackers: {name} is not installed; pip install {name}")


def pick_device(machine: Machine) -> str:
    """Return cuda, mps or cpu; what is asked for must be there."""
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if machine.device == "auto":
        return next(name for name in ("cuda", "mps", "cpu") if there[name])
    if not there[machine.device]:
        raise UserError(f"machine.device: {machine.device} is not available here; write auto or cpu")
    return machine.device


def released(accelerator: Accelerator, model: nn.Module) -> Any:
    """Return a model as it was before accelerate prepared it."""
    own = accelerator.unwrap_model(model, keep_fp32_wrapper=False)
    # A forward bound to the model stays behind: a cycle that keeps it in memory, and that its copies would call.
    own.__dict__.pop("forward", None)
    return own


def pick_precision(precision: str, device: str) -> str:
    """Return fp32, bf16 or fp16: bf16 on a GPU that has it, fp32 elsewhere, unless the recipe says otherwise."""
    if precision == "auto":
        # Older cards would only emulate it, which is slower than fp32.
        has = device == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        return "bf16" if has else "fp32"
    if precision == "fp16" and device == "cpu":
        raise UserError("training.precision: fp16 needs a GPU; use fp32 here")
    if precision == "bf16" and device == "cpu" and not cpu_has_bf16():
        raise UserError(
            "training.precision: bf16 crashes on this processor; use fp32, "
            "or try the environment variable ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16"
        )
    return precision


@cache
def cpu_has_bf16() -> bool:
    """Try bf16 in a process of its own: on some virtual machines it dies with an illegal instruction."""
    try:
        done = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
