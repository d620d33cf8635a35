"""Unpacking: the folder of a Hugging Face encoder, made of an archive in parts or of an int8 ONNX file."""

from __future__ import annotations

import shutil
import stat
import zipfile
import zlib
from collections.abc import Mapping, Set
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from understill.errors import UserError
from understill.models.catalogue import INSTALL_ONNX, WEIGHTS, Asset, AssetSource

#: What is copied from beside quantised weights: what a text encoder needs, and the licence.
_BESIDE = ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "NOTICE")
#: What is taken out of an archive; anything else in it is of no use to a text encoder.
_TAKEN = frozenset({".json", ".md", ".safetensors", ".txt"})
#: How much the files beside the weights may weigh in an archive.
_ALLOWANCE = 64 * 2**20
#: How onnxruntime's quantiser names the three tensors that one weight becomes.
_INTEGERS, _SCALE, _ZERO_POINT = "_quantized", "_scale", "_zero_point"


# An archive in parts --------------------------------------------------------------------------------------------------


def extract_model(asset: Asset, source: AssetSource, parts: list[Path], folder: Path) -> None:
    """Join the parts of an archive and take the model's files out; refuse one that reaches outside its folder."""
    remedy = f"install the parts again with\n  {source.reinstall}"
    joined = folder.with_name("joined.zip")
    with open(joined, "wb") as target:
        for part in parts:
            with open(part, "rb") as piece:
                shutil.copyfileobj(piece, target, 2**20)
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


# An int8 ONNX file ----------------------------------------------------------------------------------------------------


def dequantise_model(asset: Asset, source: AssetSource, package: Path, folder: Path) -> None:
    """Write the weights out in float32, and copy the files beside them."""
    try:
        weights = read_weights(package / source.quantised)
    except ImportError:
        raise UserError(
            f"{asset.name}: its weights are an ONNX file, and the package that reads it is missing; "
            f"install it with\n  {INSTALL_ONNX}"
        ) from None
    (folder / WEIGHTS).write_bytes(save(weights, metadata={"format": "pt"}))
    for name in _BESIDE:
        if (package / name).is_file():
            shutil.copyfile(package / name, folder / name)


def read_weights(path: Path) -> dict[str, NDArray[np.float32]]:
    """Return the weights of an encoder that onnxruntime quantised dynamically; raise ImportError without onnx."""
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(path).graph
    stored: dict[str, NDArray[Any]] = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    stems = [name.removesuffix(_INTEGERS) for name in stored if name.endswith(_INTEGERS)]
    parts = {stem + part for stem in stems for part in (_INTEGERS, _SCALE, _ZERO_POINT)}
    weights = {name: value for name, value in stored.items() if name not in parts}
    matrices = _matrices(graph, set(stems))
    for stem in stems:
        value = dequantise(stored[stem + _INTEGERS], stored[stem + _SCALE], stored[stem + _ZERO_POINT])
        if stem in matrices:
            # The exporter turned each linear layer's matrix round and dropped its name.
            weights[matrices[stem]] = np.ascontiguousarray(value.T)
        else:
            weights[stem] = value
    return weights


def dequantise(integers: NDArray[Any], scale: NDArray[Any], zero_point: NDArray[Any]) -> NDArray[np.float32]:
    """Return (integers − zero point)·scale, rounded once."""
    shifted = integers.astype(np.float32) - zero_point.astype(np.float32)  # small whole numbers: exact
    result: NDArray[np.float32] = shifted * scale
    return result


def _matrices(graph: Any, stems: Set[str]) -> Mapping[str, str]:
    """Name the matrix of every linear layer after the bias that is added to its product."""
    readers = {name: node for node in graph.node for name in node.input}
    names = {}
    for node in graph.node:
        # Attention multiplies as well, but no stored matrix.
        if node.op_type == "MatMulInteger" and (stem := node.input[1].removesuffix(_INTEGERS)) in stems:
            adding = node
            while adding.op_type != "Add":
                adding = readers[adding.output[0]]
            bias = next(name for name in adding.input if name.endswith(".bias"))
            names[stem] = f"{bias.removesuffix('.bias')}.weight"
    return names
