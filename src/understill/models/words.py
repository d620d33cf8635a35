"""The word encoder: vectors of words, a small network that pools them into one per text, and features of pairs."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedConfig

from understill.data.batch import Batch
from understill.data.packed import Packed
from understill.data.vectors import KnownVectors
from understill.errors import UserError, nearest
from understill.models import bilstm  # noqa: F401 (which registers itself)
from understill.models.catalogue import WEIGHTS
from understill.models.dropout import Dropout
from understill.models.manifest import MANIFEST
from understill.models.shape import WORDS, HeadShape
from understill.models.siamese import PARTS, combined
from understill.models.textnet import TextNetwork
from understill.plugins import NETWORKS
from understill.recipe.schema import EncoderSpec, SanSpec

#: The vectors that words begin with, beside a network's config.
VECTORS = "vectors.safetensors"
#: Random vectors lie between minus this and this, where no others say how long vectors are.
_SPREAD = 0.25


class WordsConfig(PreTrainedConfig):
    """The hyperparameters of a network over words."""

    model_type = WORDS

    def __init__(
        self,
        network: str = "bilstm",
        vocab_size: int = 1,
        size: int = 300,
        hidden: int = 150,
        dense: int = 200,
        channels: str = "trainable",
        dropout: float = 0.0,
        options: Mapping[str, Any] | None = None,
        **others: Any,
    ) -> None:
        self.network = network
        self.vocab_size, self.size, self.hidden, self.dense = vocab_size, size, hidden, dense
        self.channels, self.dropout, self.options = channels, dropout, dict(options or {})
        super().__init__(**others)


class WordVectors(nn.Module):
    """The vectors of words: trained, left as they are, or one of each side by side (multichannel)."""

    def __init__(self, config: WordsConfig) -> None:
        super().__init__()
        self.trained = nn.Embedding(config.vocab_size, config.size) if config.channels != "static" else None
        self.fixed = nn.Embedding(config.vocab_size, config.size) if config.channels != "trainable" else None
        if self.fixed is not None:
            self.fixed.weight.requires_grad_(False)
        self.width = config.size * len(self.channels)
        self.dropout = Dropout(config.dropout)
        self.fill(torch.empty(config.vocab_size, config.size).uniform_(-_SPREAD, _SPREAD))

    @property
    def channels(self) -> list[nn.Embedding]:
        """The channels there are."""
        return [channel for channel in (self.fixed, self.trained) if channel is not None]

    def fill(self, vectors: Tensor) -> None:
        """Initialise all channels with the same vectors, [words, size]."""
        with torch.no_grad():
            for channel in self.channels:
                channel.weight.copy_(vectors)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the vectors of words, [n, L, width]."""
        return self.dropout(torch.cat([channel(ids) for channel in self.channels], dim=2))  # type: ignore[no-any-return]


class WordNetwork(nn.Module):
    """Word vectors, and the network that makes one vector of a text's."""

    def __init__(self, config: WordsConfig) -> None:
        super().__init__()
        self.words = WordVectors(config)
        self.text: TextNetwork = NETWORKS[config.network](self.words.width, config.hidden, **config.options)

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Return one vector per text, [n, width]."""
        return self.text(self.words(ids), lengths)  # type: ignore[no-any-return]

    def read(self, ids: Tensor, starts: Tensor, lengths: Tensor) -> Tensor:
        """Return one vector per text, [n, width], of texts that lie one after the other in a line of ids."""
        return self.text.read(self.words.channels, ids, starts, lengths)


class WordEncoder(nn.Module):
    """A network over words in an encoder's place: the texts of a pair go through the same network one by one.

    A row of one text is its vector h; a pair is [h1; h2; h1⊙h2; |h1−h2|]. Where a model has tasks of both forms, all
    rows have a pair's width, and heads of tasks with one text read the first part.
    """

    pooling = "default"
    packable = False
    light = True

    def __init__(self, config: WordsConfig) -> None:
        super().__init__()
        self.config = config
        self.network = WordNetwork(config)
        self.shape = HeadShape(pooler=False, activation="relu", dense=config.dense, pair=PARTS)
        self.pairs = True  # whether there may be second texts

    def packs_on(self, device: torch.device) -> bool:
        """Tell whether it reads packed rows on a device; to be trained, it wants them padded."""
        return True

    @property
    def width(self) -> int:
        """The size of a text's vector."""
        return int(self.network.text.width)

    def forward(self, batch: Batch | Packed) -> Tensor:
        """Return one vector per row, [n, width] or [n, 4·width]."""
        texts = self._packed(batch) if isinstance(batch, Packed) else self._padded(batch)
        if not self.pairs:
            return texts
        return combined(*texts)

    def _padded(self, batch: Batch) -> Tensor:
        """Return the vectors of all rows' texts, [n, width], or of first and second ones, [2, n, width]."""
        if not self.pairs:
            return self.network(batch.ids, batch.lengths)  # type: ignore[no-any-return]
        ids, lengths = _apart(batch)
        if torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
            return self._traced(ids, lengths).unflatten(0, (2, -1))  # type: ignore[no-any-return]
        # A pair is about twice as long as each of its texts, and an LSTM's time grows with length: worth a sync.
        return self.network(ids[:, : max(1, int(lengths.max()))], lengths).unflatten(0, (2, -1))  # type: ignore[no-any-return]

    def _traced(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Return the vectors of texts while a graph is traced, where lengths are tensors and texts may be empty.

        Only texts that have words go through the network, and always the first; the vector of an empty text is 0.
        """
        there = (lengths + (torch.arange(lengths.shape[0]) == 0)).nonzero().squeeze(1)
        cells = torch.arange(lengths.max().clamp(min=1))  # type: ignore[call-overload]
        texts = self.network(ids.index_select(0, there).index_select(1, cells), lengths.index_select(0, there))
        return torch.zeros(lengths.shape[0], self.width).index_copy(0, there, texts)

    def _packed(self, batch: Packed) -> Tensor:
        """Return the same of packed rows."""
        starts, lengths = batch.starts[:-1].long(), batch.lengths
        if not self.pairs:
            return self.network.read(batch.ids, starts, lengths)
        # The texts of a row lie one after the other too.
        first = batch.second
        both = torch.stack([starts, starts + first], dim=1), torch.stack([first, lengths - first], dim=1)
        texts = self.network.read(batch.ids, *(each.flatten() for each in both))
        return texts.view(-1, 2, self.width).transpose(0, 1)


def _apart(batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the ids [2n, L] and lengths of all first texts, then of all second ones."""
    first = torch.minimum(batch.second, batch.lengths)
    lengths = torch.cat([first, batch.lengths - first])
    cells = torch.arange(batch.ids.shape[1], device=batch.ids.device)
    places = (first.unsqueeze(1) + cells).clamp(max=batch.ids.shape[1] - 1)
    return torch.cat([batch.ids, batch.ids.gather(1, places)]), lengths


def read_config(folder: Path) -> WordsConfig | None:
    """Return the config of a network over words; None where a folder holds another model."""
    try:
        architecture = json.loads((folder / "config.json").read_text(encoding="utf-8"))["model_type"]
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        return None
    if architecture != WordsConfig.model_type:
        return None
    try:
        return WordsConfig.from_pretrained(folder)
    except Exception as error:  # whatever the library makes of a file that was changed
        raise UserError(f"{folder / 'config.json'}: broken: {error}") from None


def load_words(name: str, folder: Path, config: WordsConfig) -> WordEncoder:
    """Return a network with the weights of an understill model, or a fresh one with its words' initial vectors."""
    encoder = WordEncoder(config)
    try:
        if (folder / MANIFEST).exists():
            encoder.load_state_dict(trained_weights(folder, "encoder."))
        elif (folder / VECTORS).exists():
            held = load_file(folder / VECTORS)
            encoder.network.words.fill(_first(config, held["ids"], held["vectors"]))
    except (OSError, SafetensorError, KeyError, RuntimeError) as error:
        raise UserError(f"encoder {name} cannot be loaded: {str(error).splitlines()[0]}") from error
    return encoder


def trained_weights(folder: Path, prefix: str) -> dict[str, Tensor]:
    """Return the weights of an understill model that have a prefix, by their names without it."""
    held = load_file(folder / WEIGHTS)
    return {key.removeprefix(prefix): value for key, value in held.items() if key.startswith(prefix)}


def _first(config: WordsConfig, ids: Tensor, vectors: Tensor) -> Tensor:
    """Return the initial vectors of all words: unknown ones are random, with the deviation of the known."""
    reach = math.sqrt(3) * float(vectors.std())  # a uniform distribution has the deviation reach / √3
    return torch.empty(config.vocab_size, config.size).uniform_(-reach, reach).index_copy(0, ids, vectors)


def check_network(spec: EncoderSpec) -> None:
    """Refuse options that a network over words does not have."""
    _, _, *known = inspect.signature(NETWORKS[spec.name]).parameters  # after the sizes, which all have
    for key, _ in spec.words.options:
        if key not in known:
            fix = nearest(key, known) if known else "leave it out"
            raise UserError(f"encoder.words.options.{key}: {spec.name} has no such option → {fix}")


def refuse_san(sans: Sequence[SanSpec | None]) -> None:
    """Refuse heads that read token states, which a network over words does not give."""
    if any(sans):
        raise UserError("heads.pairs: san reads what a pretrained encoder makes of each token → write linear")


def save_vectors(folder: Path, vectors: KnownVectors, vocabulary: dict[str, int]) -> None:
    """Write the initial vectors of words, by their ids."""
    words = sorted(vectors.by_word, key=vocabulary.__getitem__)
    ids = torch.tensor([vocabulary[word] for word in words])
    save_file(
        {"ids": ids, "vectors": torch.from_numpy(np.stack([vectors.by_word[word] for word in words]))}, folder / VECTORS
    )
