"""A container's share of the cores is kept to, whichever way the kernel tells it."""

from __future__ import annotations

from pathlib import Path

import pytest

from understill.inference import cores as counting
from understill.inference.cores import cores, quota


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu.max": "200000 100000\n"}, 2),
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "10000 100000\n"}, 1),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({}, None),
    ],
)
def test_the_share_of_a_container_is_read(files: dict[str, str], expected: int | None, tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert quota(tmp_path) == expected


def test_cores_are_those_the_process_may_use_and_no_more_than_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting.os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    monkeypatch.setattr(counting, "quota", lambda: None)
    assert cores() == 64
    monkeypatch.setattr(counting, "quota", lambda: 2)
    assert cores() == 2
    monkeypatch.setattr(counting.os, "sched_getaffinity", lambda _: {5}, raising=False)
    assert cores() == 1
