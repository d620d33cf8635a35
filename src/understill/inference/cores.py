"""Cores: how many of them this process may keep busy."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path


def cores() -> int:
    """Count the cores that this process may use; not every system can tell them from those of the machine."""
    allowed: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    there = len(allowed(0)) if allowed else os.cpu_count() or 1
    return min(there, quota() or there)


def quota(root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return how many cores' time a container may use; None where it has no limit."""
    for names in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):  # cgroup v2, v1
        try:
            most, period = (int(part) for name in names for part in (root / name).read_text(encoding="ascii").split())
        except (OSError, ValueError):  # no such file, or "max"
            continue
        return max(1, math.ceil(most / period)) if most > 0 else None
    return None
