"""A device's memory: whether it ran out, and giving back what is kept for later."""

from __future__ import annotations

import gc

import torch


def out_of_memory(error: RuntimeError) -> bool:
    """Tell running out of memory from every other failure."""
    signs = ("out of memory", "can't allocate memory", "not enough memory", "CUBLAS_STATUS_ALLOC_FAILED")
    return isinstance(error, torch.OutOfMemoryError) or any(sign in str(error) for sign in signs)


def give_back() -> None:
    """Let go of memory that nothing uses any more."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
