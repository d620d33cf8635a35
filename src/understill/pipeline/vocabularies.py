"""Vocabularies of networks over words, made of the rows their models learn from, with the words' first vectors."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from understill.artifact import Artifact
from understill.data.groups import grouping
from understill.data.load import LoadedTask
from understill.data.vectors import read_vectors
from understill.data.word_tokenizer import bare, word_tokenizer
from understill.errors import UserError
from understill.events import Watch, silent
from understill.models.encoder import load_tokenizer
from understill.models.words import WordsConfig, refuse_san, save_vectors
from understill.pipeline.dataloader import chosen_rows
from understill.pipeline.plan.parts import Fold, Plan, Words, WordSource, cache_folder
from understill.plugins import NETWORKS
from understill.recipe import Recipe
from understill.recipe.schema import Settings

log = logging.getLogger(__name__)

#: Goes up whenever the same text would give other words.
WORDS_VERSION = 2
#: The size of word vectors where neither recipe nor file gives one.
SIZE = 300


def plan_words(
    recipe: Recipe,
    loaded: Mapping[str, LoadedTask],
    settings: Settings,
    source: WordSource,
    keys: Sequence[str],
    fold: Fold | None,
) -> Words:
    """Plan the vocabulary of a network over words: it is taken from the rows that its model learns from."""
    network, spec = settings.encoder.name, settings.encoder.words
    refuse_san([settings.heads.san_of(loaded[key].task) for key in keys])
    facts: dict[str, Any] = {
        "stage": "words",
        "version": WORDS_VERSION,
        "network": network,
        "plugin": NETWORKS.facts(network),
        "spec": spec.model_dump(mode="json", exclude={"vectors", "tokenizer"}),
        "source": dict(source.digests),
    }
    if not source.tokenizer:
        facts["data"] = {key: loaded[key].splits["train"].fingerprint for key in keys}
        facts["fold"] = fold.facts if fold else None
    return Words(network, spec, tuple(keys), fold, source, Artifact("words", "", facts, cache_folder(recipe)))


def make_words(plan: Plan, words: Words, watch: Watch = silent) -> None:
    """Write the folder that a network over words begins with, unless it is there already."""
    if words.artifact.sound():
        return
    with words.artifact.build() as part:
        spec = words.spec
        if words.source.tokenizer:
            tokenizer = bare(load_tokenizer(spec.tokenizer, words.source.tokenizer))
        else:
            tokenizer = word_tokenizer(_texts(plan, words), spec.vocabulary)
        vocabulary: dict[str, int] = tokenizer.get_vocab()
        size = _save_vectors(part, words.source.vectors, vocabulary) or spec.size or SIZE
        tokenizer.save_pretrained(part)
        WordsConfig(
            words.network,
            vocab_size=max(vocabulary.values()) + 1,
            size=size,
            hidden=spec.hidden,
            dense=spec.dense,
            channels=spec.channels,
            options=dict(spec.options),
        ).save_pretrained(part)


def _save_vectors(part: Path, file: Path | None, vocabulary: dict[str, int]) -> int:
    """Write the vectors of the words that a file has, and return their size; 0 without a file."""
    if file is None:
        return 0
    vectors = read_vectors(file, vocabulary)
    if not vectors.by_word:
        raise UserError(f"{file} has no word of the training text → name vectors of its language")
    few = len(vectors.by_word) < len(vocabulary) / 2
    what = "%s of %s words have a vector in %s; the others begin at random"
    counts = (f"{len(vectors.by_word):,}", f"{len(vocabulary):,}", file)
    log.log(logging.WARNING if few else logging.INFO, what, *counts)
    save_vectors(part, vectors, vocabulary)
    return vectors.size


def _texts(plan: Plan, words: Words) -> Iterator[str]:
    """Yield the texts of the training rows that the model may see."""
    for task in words.tasks:
        data = plan.loaded[task].splits["train"]
        chosen, done = chosen_rows(data, grouping(data), None, words.fold), 0
        for batch in data.batches():
            mine = batch
            if chosen is not None:
                here = chosen[(chosen >= done) & (chosen < done + batch.num_rows)] - done
                mine = batch.take(here)
            done += batch.num_rows
            for name in ("text1", "text2"):
                if name in mine.schema.names:
                    yield from mine.column(name).to_pylist()
