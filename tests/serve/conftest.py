"""Tiny exported models, and one server that most tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="needs starlette")
pytest.importorskip("onnxruntime", reason="needs onnxruntime")

from serving import Served, export_tiny, serving


@pytest.fixture(scope="session")
def exports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A student and a teacher with the same tasks, exported."""
    root = tmp_path_factory.mktemp("exports")
    return {"student": export_tiny(root, "bert"), "teacher": export_tiny(root, "static")}


@pytest.fixture(scope="session")
def server(exports: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server of the student with the teacher beside it, and small limits."""
    options = ("--teacher", exports["teacher"], "--max-rows", 50, "--max-characters", 2000, "--max-bytes", 60_000)
    with serving(exports["student"], tmp_path_factory.mktemp("server"), *options) as running:
        yield running
