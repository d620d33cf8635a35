"""Triton kernels: the few operations that torch has no fast form of. Used on CUDA devices only."""

from __future__ import annotations

from functools import cache


@cache
def fault() -> str:
    """Say why the kernels cannot be used here; nothing where they can. The first call compiles one to see."""
    try:
        from understill.kernels import adam

        adam.attempt()
    except Exception as error:  # Triton needs a compiler and Python's header files, and says so in many ways
        return f"Triton does not work here: {str(error).strip().partition(chr(10))[0] or type(error).__name__}"
    return ""
