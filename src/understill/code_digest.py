"""Digest of the code that determines the content of each kind of artefact."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from understill.atomic import fingerprint

_TOKENS = ("data/check", "data/encode", "data/taskdata", "data/tokens", "inference/truncation", "inference/word_cache",
           "tasks")  # fmt: skip
_ANSWERS = ("data/batch", "data/groups", "data/packed", "data/units", "evaluate/metrics", "evaluate/predict",
            "inference/predictor", "kernels", "models", *_TOKENS)  # fmt: skip
#: The kinds of artefacts, and the modules and folders of this package that decide what one holds. What else goes in,
#: such as rows and settings, is among its facts.
DECIDES: dict[str, tuple[str, ...]] = {
    "data": ("data/delimited", "data/demo", "data/files", "data/glue_files", "data/groups", "data/hub", "data/ingest",
             "data/load", "data/read", "data/resolve", "data/source", "data/text_encoding", *_TOKENS),
    "tokens": _TOKENS,
    "augmented": ("data/augment", "data/taggers", *_TOKENS),
    "words": ("data/groups", "data/vectors", "data/word_tokenizer", "models/words", "pipeline/dataloader",
              "pipeline/vocabularies", "teachers/folds", *_TOKENS),
    "model": ("data/batches", "data/sampling", "losses", "pipeline/contrastive_share", "pipeline/dataloader",
              "pipeline/evaluation", "pipeline/hyperparameter_search", "pipeline/hyperparameters",
              "pipeline/initial_weights", "pipeline/model_training", "pipeline/plan", "pipeline/soft_targets",
              "targets", "teachers/folds", "train", *_ANSWERS),
    "verdict": ("inference", "pipeline/teacher_selection", "teachers", *_ANSWERS),
    "targets": ("inference", "pipeline/soft_targets", "targets", "teachers", *_ANSWERS),
    "choice": ("pipeline/teacher_selection", "targets/ensemble"),
    "probe": ("pipeline/linear_probe", "train/probe", *_ANSWERS),
}  # fmt: skip
#: Modules of these folders that decide nothing: where models come from and lie, and how a training is watched.
NEUTRAL = frozenset({
    "inference/cores", "inference/labelling", "inference/onnx", "inference/shards", "inference/stream", "models/assets",
    "models/catalogue", "models/manifest", "models/roles", "models/unpack", "teachers/llm/cache", "teachers/llm/choose",
    "teachers/llm/client", "teachers/llm/usage", "train/checkpoint", "train/interleave", "train/meter", "train/signals",
})  # fmt: skip

PACKAGE = Path(__file__).parent
_LONG = r'"{3}(?:[^"\\]|\\.|"(?!""))*"{3}'
#: Strings, which are kept; comments and blank lines, which are not.
_PARTS = re.compile(rf"""({_LONG}|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|[ \t]*#[^\n]*|\n(?=[ \t]*(?:\#|\n))""", re.S)
_DOCSTRING = re.compile(rf"(\A|(?<=:\n)[ \t]+){_LONG}(?=\n)", re.S)


@cache
def code_digest(kind: str, package: Path = PACKAGE) -> str:
    """Return the digest of the code that decides what an artefact of a kind holds; empty for one that is not known."""
    paths = {path for place in DECIDES.get(kind, ()) for path in _files(package, place)}
    parts = {path.relative_to(package).as_posix(): _digest(path) for path in paths}
    return fingerprint(parts)[:16] if parts else ""


@cache
def _digest(path: Path) -> str:
    """Return the digest of a module, which several kinds may depend on."""
    return fingerprint(without_comments(path.read_text(encoding="utf-8")))


def _files(package: Path, place: str) -> list[Path]:
    files = [package / f"{place}.py"] if (package / f"{place}.py").exists() else list((package / place).rglob("*.py"))
    return [path for path in files if path.relative_to(package).with_suffix("").as_posix() not in NEUTRAL]


def without_comments(source: str) -> str:
    """Return source without comments, blank lines and the content of docstrings.

    By patterns, since a syntax tree takes twenty times as long and is another one in every version of Python.
    """
    bare = _PARTS.sub(lambda part: part[1] or "", source).strip()
    return _DOCSTRING.sub(r'\1""', f"{bare}\n")
