"""Checkpoints made elsewhere, as teachers: any Hugging Face sequence classifier, and other runs' models."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    AutoModelForSequenceClassification,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from understill.atomic import fingerprint, known_digest
from understill.data.batch import Batch, in_order
from understill.data.tokens import encode
from understill.errors import UserError
from understill.models.encoder import identity, load_config, load_tokenizer, loading_fault, resolve
from understill.models.folder import load_model
from understill.models.manifest import MANIFEST, find_model
from understill.models.transformer import max_tokens
from understill.names import expanded
from understill.plugins import TEACHERS
from understill.recipe import Recipe
from understill.recipe.schema import CheckpointSpec, HeadsSpec
from understill.tasks import Task
from understill.teachers.protocol import Opening, Teacher
from understill.teachers.trained import ModelTeacher, NetworkTeacher

#: Tokens read by a model that has no limit of its own.
USUAL_LENGTH = 512
#: Short and long, so that one of two rows is padded.
_PROBES = ("a", "a b a b a b a b a")


@TEACHERS.own("checkpoint")
class CheckpointType:
    """A classifier that is there already."""

    Spec = CheckpointSpec

    @staticmethod
    def digest_of(spec: CheckpointSpec, recipe: Recipe) -> str:
        """Return the digest of what decides its answers, without loading it."""
        try:
            folder = locate(_place(spec, recipe))
        except UserError as error:
            raise UserError(f"teacher {spec.name}: {str(error).removeprefix('encoder ')}") from None
        return checkpoint_digest(folder, spec.labels, spec.max_length)

    @staticmethod
    def open(spec: CheckpointSpec, opening: Opening) -> Teacher:
        """Load it, and refuse it at once where it cannot teach the task."""
        return open_checkpoint(
            opening.name, _place(spec, opening.recipe), opening.data.task, spec.labels, spec.max_length,
            cache=opening.cache, batch=opening.batch, device=opening.device,
        )  # fmt: skip


def _place(spec: CheckpointSpec, recipe: Recipe) -> str:
    there = recipe.find(spec.checkpoint)
    return str(there) if there.is_dir() else spec.checkpoint


class Classifier(nn.Module):
    """A Hugging Face sequence classifier that reads batches."""

    light = False

    def __init__(self, network: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> None:
        super().__init__()
        self.network = network
        self.spec = HeadsSpec(regression="raw")  # its scores are taken as they are
        # Some networks know token types that their tokeniser does not give; they were trained without.
        given = tokenizer("a", "a").get("token_type_ids", ())
        self.typed = 1 in given and getattr(network.config, "type_vocab_size", 0) > 1

    def forward(self, batch: Batch) -> Tensor:
        """Return the logits of every row, [n, outputs]."""
        inputs: dict[str, Tensor] = {"input_ids": batch.ids, "attention_mask": batch.mask.long()}
        if self.typed:
            inputs["token_type_ids"] = batch.types
        logits: Tensor = self.network(**inputs).logits
        return logits

    def packs_on(self, device: torch.device) -> bool:
        """Tell whether it reads packed rows: it does not, since each architecture pools in its own way."""
        return False

    def columns(self, task: str) -> slice:
        """Return where the outputs stand; there is one task, whatever its name."""
        return slice(0, len(output_names(self.network.config)))

    def number(self, task: str) -> int:
        """Return the place of its task, whatever its name."""
        return 0


def open_checkpoint(
    name: str,
    place: str,
    task: Task,
    labels: Mapping[str, str],
    max_length: int | None,
    cache: Path,
    batch: int,
    device: str,
) -> NetworkTeacher:
    """Open a folder or a hub model as a teacher of a task, and refuse it at once where it cannot be one."""
    with _as_teacher(name):
        folder = Path(locate(place))
        digest = checkpoint_digest(str(folder), labels, max_length)
        if (folder / MANIFEST).exists():
            model = load_model(folder)
            if max_length is not None:
                length = _length(name, model.model.encoder.config, model.tokenizer, max_length)
                model = replace(model, max_lengths={each.name: length for each in model.tasks})
            teacher: NetworkTeacher = ModelTeacher(name, digest, model, cache, batch, device, labels)
        else:
            config, tokenizer = load_config(place, str(folder)), load_tokenizer(place, str(folder))
            own = _task_of(name, config, task)
            length = _length(name, config, tokenizer, max_length)
            network = Classifier(_load(name, folder, config), tokenizer).eval()
            _refuse_strange(name, network, tokenizer, task.pair)
            tasks, lengths = {task.head: own}, {task.head: length}
            network.to(device)
            teacher = NetworkTeacher(name, digest, network, tokenizer, tasks, lengths, labels, cache, batch)
    teacher.fit(task)
    return teacher


def locate(place: str) -> str:
    """Return the folder of a checkpoint: a model's, a run's only model, or what the hub has."""
    folder = expanded(place)
    if (folder / MANIFEST).exists() or ((folder / "models").is_dir() and not (folder / "config.json").exists()):
        return str(find_model(folder))
    return resolve(place)


def checkpoint_digest(folder: str, labels: Mapping[str, str], max_length: int | None) -> str:
    """Return the digest of what decides a checkpoint's answers, without loading it."""
    files, manifest = identity(folder), Path(folder) / MANIFEST
    if manifest.exists():
        files[MANIFEST] = known_digest(manifest)  # the tasks and the pooling
    return fingerprint({"files": files, "labels": dict(labels), "max_length": max_length})


@contextmanager
def _as_teacher(name: str) -> Iterator[None]:
    """Word what goes wrong with a model's files as a fault of the teacher."""
    try:
        yield
    except UserError as error:
        message = str(error)
        if message.startswith("teacher "):
            raise
        raise UserError(f"teacher {name}: {message.replace('encoder ', 'checkpoint ', 1)}") from error


def output_names(config: PreTrainedConfig) -> tuple[str, ...]:
    """Return the names of a classifier's outputs, in their order."""
    names: dict[Any, str] = dict(config.id2label or {})
    return tuple(names[number] for number in sorted(names))


def _task_of(name: str, config: PreTrainedConfig, task: Task) -> Task:
    """Return the task with the checkpoint's own labels."""
    if config.problem_type == "multi_label_classification":
        raise UserError(f"teacher {name}: it may give a text several labels at once, {task.name} has one label per row")
    names = output_names(config)
    if len(names) == 1 if task.kind.has_classes else len(names) != task.outputs:
        gives = "one score" if len(names) == 1 else f"{len(names)} classes"
        raise UserError(f"teacher {name}: it gives {gives}, but {task.name} is a {task.kind} task")
    return replace(task, name=task.head, labels=names if task.kind.has_classes else task.labels)


def _length(name: str, config: PreTrainedConfig, tokenizer: PreTrainedTokenizerFast, wanted: int | None) -> int:
    """Return how many tokens are read: as many as the model can where the recipe gives no limit."""
    limit = max_tokens(config)
    if wanted is None:
        return min(limit or USUAL_LENGTH, tokenizer.model_max_length, 2**16 - 1)
    if limit is not None and wanted > limit:
        raise UserError(f"teacher {name}: max_length {wanted} is more than it can read ({limit})")
    return wanted


def _load(name: str, folder: Path, config: PreTrainedConfig) -> PreTrainedModel:
    """Load a classifier with all its weights; safetensors only, and no code from its folder."""
    settings: dict[str, Any] = {"use_safetensors": True, "trust_remote_code": False, "dtype": torch.float32}
    try:
        network, loading = AutoModelForSequenceClassification.from_pretrained(
            folder, output_loading_info=True, ignore_mismatched_sizes=True, **settings
        )
    except Exception as error:  # whatever the library makes of files that were changed
        fault = loading_fault(error)
        if "Unrecognized configuration class" in fault:
            fault = f"a {config.model_type} model has no sequence classifier"
        raise UserError(f"teacher {name}: it cannot be loaded: {fault}") from error
    odd = [*loading["missing_keys"], *(key[0] for key in loading["mismatched_keys"])]
    fresh = [key for key in odd if not key.startswith(f"{network.base_model_prefix}.")]
    if fresh:
        fix = "name a model that was fine-tuned for this task, or train a teacher with encoder:"
        raise UserError(f"teacher {name}: it has no trained classifier ({min(fresh)} is not in its file) → {fix}")
    strange = [key for key in odd if not key.endswith("position_ids")]
    if strange:
        raise UserError(f"teacher {name}: {len(strange)} weights are missing from its file, such as {min(strange)}")
    loaded: PreTrainedModel = network
    return loaded


@torch.inference_mode()
def _refuse_strange(name: str, network: Classifier, tokenizer: PreTrainedTokenizerFast, pair: bool) -> None:
    """Compare with the model's own call: some kinds pad on the left, or count token types in another way."""
    texts: list[Any] = [(text, _PROBES[0]) if pair else text for text in _PROBES]
    takes = inspect.signature(network.network.forward).parameters
    (batch,) = in_order(encode(texts, tokenizer, USUAL_LENGTH), 0, len(texts))
    try:
        for row, logits in zip(batch.row.tolist(), network(batch), strict=True):
            inputs = tokenizer(*(texts[row] if pair else [texts[row]]), return_tensors="pt")
            own = network.network(**{key: value for key, value in inputs.items() if key in takes}).logits[0]
            if not torch.allclose(logits, own, rtol=1e-3, atol=1e-3):
                raise ValueError("it reads padded rows in a way of its own")
    except (ValueError, IndexError, TypeError, RuntimeError) as error:
        kind, first = network.network.config.model_type, str(error).strip().partition("\n")[0]
        fix = "write its logits to a file, and name that under predictions:"
        raise UserError(f"teacher {name}: this {kind} model cannot be asked: {first} → {fix}") from error
