"""The model: one shared encoder with a head for each task."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from understill.data.batch import Batch
from understill.data.packed import Packed
from understill.errors import UserError
from understill.models.encoder import build_encoder, dropout_changes, load_encoder
from understill.models.heads import Heads
from understill.models.siamese import Asked, read_rows
from understill.models.transformer import Encoder, TokenStates
from understill.models.words import WordEncoder, refuse_san
from understill.recipe.schema import EncoderSpec, HeadsSpec
from understill.tasks import Task


class MultiTaskModel(nn.Module):
    """An encoder and one head per task; the outputs of all heads stand side by side."""

    siamese: Tensor

    def __init__(self, encoder: Encoder | WordEncoder, tasks: Sequence[Task], spec: HeadsSpec) -> None:
        super().__init__()
        self.tasks = tuple(tasks)
        self.spec = spec
        self.encoder = encoder
        rates = [spec.dropout_of(task.name) for task in tasks]
        sans = [spec.san_of(task) for task in tasks]
        siamese = [spec.siamese(task) for task in tasks]
        spread: float | None = getattr(encoder.config, "initializer_range", 0.02)
        if isinstance(encoder, WordEncoder):
            encoder.pairs = any(task.pair for task in tasks)
            spread = None
            refuse_san(sans)
            siamese = []  # it reads all texts apart
        self.heads = Heads(encoder.width, tasks, encoder.shape, rates, spread, sans, siamese)
        self.register_buffer("siamese", torch.tensor(siamese, dtype=torch.bool), persistent=False)

    def forward(self, batch: Batch | Packed, only: int | None = None) -> Tensor:
        """Return the logits of every head for every row, [n, columns]; `only` is the task that all rows belong to."""
        vectors, tokens, pairs = self.encode(batch)
        if self.training:
            return self.heads(vectors, batch.task, tokens, only, pairs)  # type: ignore[no-any-return]
        # Answers are kept and compared, so heads give them in full precision, whatever the encoder computes in.
        kind = next(self.heads.parameters()).dtype
        with torch.autocast(vectors.device.type, enabled=False):
            pairs = None if pairs is None else pairs.to(kind)
            return self.heads(vectors.to(kind), batch.task, tokens and tokens.to(kind), only, pairs)  # type: ignore[no-any-return]

    def encode(self, batch: Batch | Packed) -> tuple[Tensor, TokenStates | None, Tensor | None]:
        """Return what the heads read: one vector per row and, where a head wants them, tokens' states and pairs."""
        if self.heads.compares:
            asked = Asked(self.siamese, any(task.pair and not self.spec.siamese(task) for task in self.tasks))
            pad = self.encoder.config.pad_token_id or 0
            vectors, pairs = read_rows(self.encoder, batch, asked, pad)
            return vectors, None, pairs
        if isinstance(self.encoder, WordEncoder) or not self.heads.reads_tokens:
            return self.encoder(batch), None, None
        return *self.encoder.read(batch), None

    def features(self, batch: Batch | Packed, number: int) -> Tensor:
        """Return what the linear head of a task reads of each row, [n, features]."""
        vectors, _, pairs = self.encode(batch)
        return vectors if pairs is None or not bool(self.siamese[number]) else pairs

    def rounded(self, kind: torch.dtype) -> MultiTaskModel:
        """Return the model with its encoder in a lower precision, to answer with; the heads are its own."""
        assert isinstance(self.encoder, Encoder)  # light ones keep their precision
        twin = copy.copy(self)
        twin._modules = {**self._modules, "encoder": self.encoder.rounded(kind)}
        # What accelerate has prepared keeps a forward of its own, which is bound to this model, not to the twin.
        twin.__dict__.pop("forward", None)
        return twin

    def packs_on(self, device: torch.device) -> bool:
        """Tell whether it reads packed rows on a device."""
        return self.encoder.packs_on(device)

    @property
    def light(self) -> bool:
        """Whether a token costs so little that only large batches keep the device busy."""
        return self.encoder.light

    def columns(self, task: str) -> slice:
        """Return where a task's outputs stand."""
        start = 0
        for each in self.tasks:
            if each.name == task:
                return slice(start, start + each.outputs)
            start += each.outputs
        raise KeyError(task)

    def number(self, task: str) -> int:
        """Return the place of a task among all."""
        return [each.name for each in self.tasks].index(task)


def new_model(
    encoder: EncoderSpec, heads: HeadsSpec, tasks: Sequence[Task], seed: int, source: str | None = None
) -> MultiTaskModel:
    """Load the pretrained encoder and put fresh heads on it; the seed decides their first weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return MultiTaskModel(load_encoder(encoder, source), tasks, heads)


def continued(
    parent: MultiTaskModel, tasks: Sequence[Task], heads: HeadsSpec, dropout: float | None = None
) -> MultiTaskModel:
    """Return a new model that starts where another stands: copies of its encoder and of these tasks' heads.

    Tasks are joined by name, and a task's outputs by the names of its labels. `dropout` is that inside the encoder.
    """
    config = copy.deepcopy(parent.encoder.config)
    for key, value in dropout_changes("the model", config, dropout).items():
        setattr(config, key, value)
    with torch.random.fork_rng(devices=[]):
        model = MultiTaskModel(build_encoder(config, parent.encoder.pooling), tasks, heads)
    model.encoder.load_state_dict(parent.encoder.state_dict())
    for head, task in zip(model.heads.tasks, tasks, strict=True):
        place = _place(parent, task, heads)
        weights = parent.heads.tasks[place].state_dict()
        order = task.kind.order(parent.tasks[place], task)
        weights |= {key: weights[key][order] for key in ("out.weight", "out.bias")}
        head.load_state_dict(weights)
    return model


def _place(parent: MultiTaskModel, task: Task, heads: HeadsSpec) -> int:
    """Return the number of the head that answers a task, when it means the same by its outputs."""
    names = [each.name for each in parent.tasks]
    if task.name not in names:
        raise UserError(f"the model has no head for {task.name}; it answers {', '.join(names)}")
    place = names.index(task.name)
    known = parent.tasks[place]
    turned = task.kind.turned(known, task)
    same = (known.kind, sorted(known.labels), known.range) == (task.kind, sorted(task.labels), task.range)
    if turned or not same:
        raise UserError(f"task {task.name} has other labels or another range than the model was trained with")
    kinds = [(spec.san_of(each), spec.siamese(each)) for spec, each in ((parent.spec, known), (heads, task))]
    if kinds[0] != kinds[1]:
        raise UserError(f"task {task.name}: heads.pairs or heads.san is not as the model was trained with")
    if task.kind.scaled and heads.regression != parent.spec.regression:
        raise UserError(
            f"task {task.name}: heads.regression is {heads.regression}, the model's {parent.spec.regression}"
        )
    return place
