"""Files are whole or not there, and only what is dead is swept."""

from __future__ import annotations

import json
import os
from errno import ENOSPC
from pathlib import Path
from unittest.mock import Mock

import pytest

from understill import atomic
from understill.atomic import STALE, fault_of, hidden_folder, seal, sweep, write_bytes, write_json


def test_json_that_cannot_be_written_leaves_the_old_file(tmp_path: Path) -> None:
    write_json(tmp_path / "facts.json", {"label": "ü", "score": 0.5})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "facts.json", {"score": float("nan")})
    assert json.loads((tmp_path / "facts.json").read_text(encoding="utf-8")) == {"label": "ü", "score": 0.5}
    assert [path.name for path in tmp_path.iterdir()] == ["facts.json"]


def test_a_file_that_does_not_fit_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(path: Path, content: bytes) -> None:
        with path.open("wb") as file:
            file.write(content[:3])
        raise OSError(ENOSPC, "No space left on device")

    write_bytes(tmp_path / "page.html", b"old")
    monkeypatch.setattr(Path, "write_bytes", fill)
    with pytest.raises(OSError, match="No space left"):
        write_bytes(tmp_path / "page.html", b"new page")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    assert (tmp_path / "page.html").read_bytes() == b"old"


def test_only_what_was_not_written_to_for_long_is_swept(tmp_path: Path) -> None:
    for name in (".data-old", ".data-new", "data-whole"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "data.arrow").write_bytes(b"x")
    before = (tmp_path / ".data-old").stat().st_mtime - STALE - 60
    for path in (tmp_path / ".data-old" / "data.arrow", tmp_path / ".data-old", tmp_path / "data-whole"):
        os.utime(path, (before, before))
    sweep(tmp_path, ".data-*")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".data-new", "data-whole"]


def test_a_write_that_fails_names_the_folder_that_it_was_for(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"No space left on device: .*model'"), hidden_folder(tmp_path / "model"):
        raise OSError(28, "No space left on device")
    assert not list(tmp_path.iterdir()), "and leaves nothing"


@pytest.mark.parametrize("number", [23, 24, 12])
def test_a_file_that_cannot_be_opened_for_lack_of_room_in_the_process_is_not_taken_for_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    (tmp_path / "weights").write_bytes(b"whole")
    seal(tmp_path)
    monkeypatch.setattr(atomic, "known_digest", Mock(side_effect=OSError(number, os.strerror(number))))
    with pytest.raises(OSError, match=os.strerror(number)):
        fault_of(tmp_path)


def test_a_file_that_a_disk_cannot_read_is_taken_for_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "weights").write_bytes(b"whole")
    seal(tmp_path)
    monkeypatch.setattr(atomic, "known_digest", Mock(side_effect=OSError(5, os.strerror(5))))
    assert fault_of(tmp_path) == "weights cannot be read: Input/output error"
