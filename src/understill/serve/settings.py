"""Settings: all that a server is told when it starts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """How a server is to run; the command line says why the defaults are what they are."""

    model: Path
    teacher: Path | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    max_rows: int = 512
    max_characters: int = 20_000
    max_bytes: int = 4_194_304


def name_of(folder: Path) -> str:
    """Name a model after its folder, and what a run has exported or keeps under `models` after the run too."""
    parts = folder.absolute().parts
    if len(parts) > 2 and parts[-2] in ("export", "models"):
        return f"{parts[-3]}/{parts[-1]}"
    return parts[-1]
