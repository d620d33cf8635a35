"""Hugging Face: one task as a plain sequence classifier, which `transformers.pipeline()` loads, or as sentences."""

from __future__ import annotations

import copy
from pathlib import Path

from torch import Tensor
from transformers import AutoModelForSequenceClassification, PreTrainedModel

from understill.atomic import seal
from understill.export import sentences
from understill.inference.classifier import KEY
from understill.models.encoder import load_config
from understill.models.folder import ModelFolder
from understill.models.heads import Head
from understill.models.pooling import POOLED
from understill.tasks import Task

#: The names that architectures give their dense layer and their output layer.
_DENSE, _OUT = ("classifier.dense", "pooler.dense", "pre_classifier"), ("classifier.out_proj", "classifier")


def write_classifier(folder: ModelFolder, task: Task, target: Path) -> None:
    """Write one task with its tokeniser: as a sequence classifier, or with mean pooling, which none has, as modules."""
    scores, pooled = task.kind.scaled, folder.model.encoder.pooling in POOLED
    # One that is read anew: the model's own names an attention function that is only there in this process.
    config = load_config(str(folder.path), str(folder.path))
    labels = ("score",) if scores else task.labels
    config.id2label = dict(enumerate(labels))
    config.label2id = {label: number for number, label in enumerate(labels)}
    config.problem_type = "regression" if scores else "single_label_classification"
    link = folder.model.spec.regression
    setattr(
        config,
        KEY,
        {
            "task": task.to_dict(),
            "max_length": folder.max_lengths[task.name],
            "regression": "raw" if pooled or link == "unit" else link,  # a line can be part of the weights
            **({"pooling": folder.model.encoder.pooling} if pooled else {}),
        },
    )
    if pooled:
        config.architectures = [type(folder.model.encoder.network).__name__]
        config.save_pretrained(target)
        sentences.write_modules(folder, task, target)
    else:
        network: PreTrainedModel = AutoModelForSequenceClassification.from_config(config)
        network.load_state_dict(_weights(folder, task, network))
        network.eval().save_pretrained(target)
    _write_tokenizer(folder, task, target)
    seal(target)


def _write_tokenizer(folder: ModelFolder, task: Task, target: Path) -> None:
    """Write the tokeniser, which cuts texts as the task does."""
    tokenizer = copy.deepcopy(folder.tokenizer)
    tokenizer.model_max_length = folder.max_lengths[task.name]
    typed = ["token_type_ids"] if getattr(folder.model.encoder, "typed", False) else []
    # Some tokenisers would not give types by themselves. What they are not said to be made with is not saved.
    tokenizer.model_input_names = ["input_ids", *typed, "attention_mask"]
    tokenizer.init_kwargs["model_input_names"] = tokenizer.model_input_names
    tokenizer.save_pretrained(target)


def _weights(folder: ModelFolder, task: Task, network: PreTrainedModel) -> dict[str, Tensor]:
    """Return a task's weights under the names that the classifier has for them."""
    model = folder.model
    head = model.heads.tasks[model.tasks.index(task)]
    assert isinstance(head, Head)
    named = network.state_dict()
    weights = {f"{network.base_model_prefix}.{key}": value for key, value in model.encoder.network.state_dict().items()}
    for layer, names in ((head.dense, _DENSE), (head.out, _OUT)):
        if layer is not None:
            (name,) = [name for name in names if f"{name}.weight" in named]
            weights |= {f"{name}.{key}": value for key, value in layer.state_dict().items()}
    if task.kind.scaled and model.spec.regression == "unit" and task.range is not None:
        (name,) = [name for name in _OUT if f"{name}.weight" in named]
        low, high = task.range
        weights[f"{name}.weight"] = weights[f"{name}.weight"] * (high - low)
        weights[f"{name}.bias"] = weights[f"{name}.bias"] * (high - low) + low
    return weights


def score_link(folder: ModelFolder, task: Task) -> str:
    """Say how a score comes from what the classifier gives, where that is not the score itself."""
    raw = folder.model.spec.regression != "sigmoid" or folder.model.encoder.pooling in POOLED
    if not task.kind.scaled or raw or task.range is None:
        return ""
    low, high = task.range
    return (
        'With `function_to_apply="sigmoid"`, `pipeline` gives a share x of the scale; '
        f"the score is {low:g} + {high - low:g} · x."
    )
