"""Where no GPU is, the kernels run under Triton's interpreter, which has to be chosen before they are imported."""

from __future__ import annotations

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture(scope="session", autouse=True)
def _triton() -> None:
    """Skip where there is no Triton; torch for CUDA brings it, torch for CPUs does not."""
    pytest.importorskip("triton", reason="Triton is not installed")
