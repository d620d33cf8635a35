"""Encoders small enough to train for real in a second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

WORDS = (
    "The parcel never came . I was charged twice for one order ! My account is locked , please reset the password "
    "A small man plays the guitar while nobody listens . The film was good but far too long ? not bad at all"
)


def tiny_tokenizer(pair: str = "[CLS] $A:0 [SEP]:0 $B:1 [SEP]:1") -> Any:
    """Make a small word-piece tokeniser that knows the words of our own sentences, and parts of words."""
    from transformers import PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = WORDS.lower().split()
    # Written out: trained pieces come in another order, or are others, each time, and so would all scores be.
    parts = [word[at : at + size] for size in (1, 2) for word in words for at in range(len(word))]
    pieces = dict.fromkeys([*special, *parts, *(f"##{part}" for part in parts), *words])
    backend = Tokenizer(models.WordPiece({piece: number for number, piece in enumerate(pieces)}, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    ids = [("[CLS]", 2), ("[SEP]", 3)]
    backend.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair=pair, special_tokens=ids)
    names = {
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "mask_token": "[MASK]",
    }
    return PreTrainedTokenizerFast(tokenizer_object=backend, **names)


def save_tiny(folder: Path, kind: str = "bert", **changes: Any) -> Path:
    """Write a two-layer encoder of an architecture, with its tokeniser, as a Hugging Face folder."""
    import torch
    from transformers import AutoConfig, AutoModel

    tokenizer = tiny_tokenizer()
    sizes = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
    if kind == "distilbert":
        sizes = {"n_layers": 2, "dim": 32, "n_heads": 2, "hidden_dim": 64}
    config = AutoConfig.for_model(
        kind, vocab_size=len(tokenizer), max_position_embeddings=130, pad_token_id=0, **{**sizes, **changes}
    )
    torch.manual_seed(0)
    AutoModel.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
