"""What is made is whole, named by what went in, made once, and refused where a file is not what was written."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from understill.artifact import Artifact
from understill.atomic import CHECKSUMS, fault_of, read_record, refuse_damage, seal, write_record
from understill.errors import UserError
from understill.events import Waiting


def make(root: Path, value: str = "a") -> Artifact:
    artifact = Artifact("probe", "mood", {"value": value}, root)
    with artifact.build() as part:
        (part / "scores.json").write_text('{"score": 0.5}')
        (part / "inside").mkdir()
        (part / "inside" / "weights.bin").write_bytes(bytes(range(256)) * 100)
    return artifact


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_it_is_named_by_what_went_in(tmp_path: Path) -> None:
    one, other = Artifact("probe", "mood", {"a": 1}, tmp_path), Artifact("probe", "mood", {"a": 2}, tmp_path)
    assert one == Artifact("probe", "mood", {"a": 1}, tmp_path) and one != other
    assert one.folder.name == f"probe-mood-{one.fingerprint[:16]}" and one.folder != other.folder
    nameless = Artifact("data", "", {"a": 1}, tmp_path)
    assert nameless.folder.name == f"data-{nameless.fingerprint[:16]}"


def test_it_appears_whole_with_its_facts_and_checksums(tmp_path: Path) -> None:
    artifact = Artifact("probe", "mood", {"value": "a"}, tmp_path)
    assert not artifact.done and not artifact.sound() and artifact.read("scores.json") is None
    make(tmp_path)
    assert artifact.done and artifact.sound() and artifact.read("scores.json") == {"score": 0.5}
    record = read_record(artifact.folder / CHECKSUMS)
    assert record["facts"] == {"value": "a"} and record["fingerprint"] == artifact.fingerprint
    assert sorted(record["files"]) == ["inside/weights.bin", "scores.json"]
    assert [path.name for path in tmp_path.iterdir()] == [artifact.folder.name]


def test_what_fails_on_the_way_leaves_nothing(tmp_path: Path) -> None:
    artifact = Artifact("probe", "mood", {}, tmp_path)
    with pytest.raises(KeyboardInterrupt), artifact.build() as part:
        (part / "scores.json").write_text("half")
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize("name", ["scores.json", "inside/weights.bin", CHECKSUMS])
@pytest.mark.parametrize("harm", [flip, cut, Path.unlink])
def test_any_file_that_is_not_what_was_written_is_noticed_and_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, harm: Callable[[Path], None], name: str
) -> None:
    artifact = make(tmp_path)
    assert artifact.sound()
    harm(artifact.folder / name)
    assert not artifact.sound() and artifact.read("scores.json") is None
    with caplog.at_level(logging.WARNING):
        make(tmp_path)
    assert f"{artifact.folder} does not match its checksums ({name}" in caplog.text and "made again" in caplog.text
    assert artifact.sound() and [path.name for path in tmp_path.iterdir()] == [artifact.folder.name]


def test_what_a_user_adds_is_no_damage(tmp_path: Path) -> None:
    artifact = make(tmp_path)
    (artifact.folder / "notes.txt").write_text("mine")
    (artifact.folder / "inside" / "README.md").write_text("mine too")
    assert artifact.sound()


def test_checksums_of_other_facts_are_not_taken_for_these(tmp_path: Path) -> None:
    one, other = make(tmp_path, "a"), make(tmp_path, "b")
    (one.folder / CHECKSUMS).write_bytes((other.folder / CHECKSUMS).read_bytes())
    assert not one.sound() and other.sound()


def test_what_grows_in_its_own_folder_is_done_once_it_is_sealed(tmp_path: Path) -> None:
    artifact = Artifact("model", "student", {}, tmp_path)
    (artifact.folder / "work").mkdir(parents=True)
    (artifact.folder / "work" / "state").write_text("1")
    (artifact.folder / "done.json").write_text("{}")
    artifact.clear()
    assert not artifact.done and (artifact.folder / "work" / "state").exists()
    artifact.seal(["done.json"])
    (artifact.folder / "work" / "state").write_text("2")
    artifact.clear()
    assert artifact.sound()
    flip(artifact.folder / "done.json")
    artifact.clear()
    assert not artifact.folder.exists()


def test_files_are_read_once_and_again_when_they_are_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    from understill import atomic

    def digest(path: Path) -> str:
        read.append(path.name)
        return file_digest(path)

    file_digest = atomic.file_digest
    artifact = make(tmp_path)
    old = artifact.folder.stat().st_mtime - 60
    for path in (artifact.folder / "scores.json", artifact.folder / "inside" / "weights.bin"):
        os.utime(path, (old, old))
    monkeypatch.setattr(atomic, "file_digest", digest)
    monkeypatch.setattr(atomic, "TICK", -(10**18))  # as if all had been written long ago
    assert artifact.sound() and sorted(read) == ["scores.json", "weights.bin"]
    assert artifact.sound() and len(read) == 2
    flip(artifact.folder / "inside" / "weights.bin")
    assert not artifact.sound() and len(read) == 3


def test_a_file_just_written_is_read_again_since_its_times_may_not_tell(tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(b"one")
    seal(tmp_path)
    status = (tmp_path / "weights").stat()
    with (tmp_path / "weights").open("r+b") as file:
        file.write(b"two")
    os.utime(tmp_path / "weights", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert fault_of(tmp_path) == "weights was changed or damaged"


def test_a_folder_that_cannot_be_made_again_is_refused_by_the_name_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(b"one")
    refuse_damage(tmp_path)  # somebody else's, which says nothing of its files
    assert fault_of(tmp_path) == "checksums.json is missing"
    seal(tmp_path)
    refuse_damage(tmp_path)
    (tmp_path / "weights").write_bytes(b"two")
    with pytest.raises(UserError, match=r"weights was changed or damaged → copy the whole folder again"):
        refuse_damage(tmp_path)


def test_a_record_that_was_changed_by_hand_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_record(path, {"score": 0.5, "name": "ü"})
    assert read_record(path) == {"score": 0.5, "name": "ü"}
    path.write_text(path.read_text(encoding="utf-8").replace("0.5", "0.9"), encoding="utf-8")
    with pytest.raises(ValueError, match="does not match its own checksum"):
        read_record(path)


def test_one_at_a_time_makes_it_and_the_others_say_that_they_wait(tmp_path: Path) -> None:
    artifact, waits, order = Artifact("probe", "mood", {}, tmp_path), threading.Event(), list[str]()

    def note(event: object) -> None:
        assert event == Waiting("the probe")
        waits.set()

    def second() -> None:
        with artifact.exclusive("the probe", note):
            order.append("second")

    thread = threading.Thread(target=second)
    with artifact.exclusive("the probe", lambda event: pytest.fail("nobody is there to wait for")):
        thread.start()
        assert waits.wait(20)
        order.append("first")
    thread.join(20)
    assert order == ["first", "second"]
