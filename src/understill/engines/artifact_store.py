"""A store of artefacts at any fsspec URL: files by their digests, and a manifest for each artefact, written last."""

from __future__ import annotations

import getpass
import json
import tempfile
from pathlib import Path

from filelock import FileLock

from understill.atomic import CHECKSUMS, discard, file_digest, fingerprint, hidden_folder, publish, write_bytes
from understill.errors import UserError


class Store:
    """Artefacts that machines without a shared folder exchange.

    A file lies under its digest, so that it is written once, never changed, and checked by whoever reads it. What an
    artefact holds is said by a copy of its checksums, one small object that is there or not.
    """

    def __init__(self, url: str) -> None:
        from fsspec.core import url_to_fs

        self.url = url
        try:
            self.files, root = url_to_fs(url, use_listings_cache=False)
        except ImportError as error:
            fix = 'pip install "understill[s3]"' if url.startswith("s3:") else f"install what {error} names"
            raise UserError(f"--store {url}: {error} → {fix}") from None
        except ValueError as error:
            raise UserError(f"--store {url}: {error} → write a URL such as s3://bucket/runs") from None
        self.root = root.rstrip("/")

    def check(self) -> None:
        """Refuse a place where nothing can be written."""
        try:
            self.files.makedirs(self.root, exist_ok=True)
            self.files.pipe_file(f"{self.root}/understill", b"artefacts of understill\n")
        except Exception as error:  # each kind of file system has errors of its own
            raise UserError(f"--store {self.url}: nothing can be written there: {error}") from None

    def push(self, folder: Path) -> None:
        """Write a finished artefact, its manifest last."""
        content = (folder / CHECKSUMS).read_bytes()
        for file, (size, digest) in json.loads(content)["files"].items():
            self._push_file(folder / file, size, f"{self.root}/files/{digest}")
        self.files.makedirs(f"{self.root}/artifacts", exist_ok=True)
        self.files.pipe_file(f"{self.root}/artifacts/{folder.name}.json", content)

    def _push_file(self, path: Path, size: int, place: str) -> None:
        if not self.files.exists(place) or self.files.info(place)["size"] != size:  # not there, or half written
            self.files.makedirs(place.rpartition("/")[0], exist_ok=True)
            self.files.put_file(str(path), place)

    def pull(self, folder: Path) -> bool:
        """Bring an artefact here as it is in the store, whole; False where the store has none."""
        try:
            content: bytes = self.files.cat_file(f"{self.root}/artifacts/{folder.name}.json")
        except FileNotFoundError:
            return False
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.pull"):  # of the processes of a node, one
            there = folder / CHECKSUMS
            if not there.exists() or there.read_bytes() != content:
                self._bring(folder, content)
        return True

    def _bring(self, folder: Path, content: bytes) -> None:
        with hidden_folder(folder) as part:
            for file, (_, digest) in json.loads(content)["files"].items():
                (part / file).parent.mkdir(parents=True, exist_ok=True)
                self.files.get_file(f"{self.root}/files/{digest}", str(part / file))
                if file_digest(part / file) != digest:
                    raise UserError(f"{self.url}: files/{digest} was damaged → remove it, and run again")
            write_bytes(part / CHECKSUMS, content)
            if folder.exists():
                discard(folder)
            publish(part, folder, lambda: True)


def finished(folder: Path) -> dict[str, bytes]:
    """Return what the finished artefacts of a folder hold, by their names."""
    return {path.parent.name: path.read_bytes() for path in folder.glob(f"*/{CHECKSUMS}")}


def scratch(url: str, node: str) -> Path:
    """Return the folder of a node for what it makes and brings from a store."""
    return Path(tempfile.gettempdir()) / f"understill-{getpass.getuser()}" / f"{fingerprint(url)[:12]}-{node[:12]}"
