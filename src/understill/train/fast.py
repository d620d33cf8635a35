"""The fast path: whole steps as CUDA graphs over packed rows that lie on the device.

It computes what the plain loop computes. Small encoders are bound by the number of kernels and by Python, so a step
(gathering its rows, forward, loss, backward, clipping, update) is recorded once for each of a few sizes and replayed
with one call. Everything that changes from step to step is read from tables on the device, by a counter that lies
there too, so that nothing waits for the host.
"""

from __future__ import annotations

import copy
import importlib.util
import logging
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from understill.data.batch import Batches
from understill.data.packed import Packed, Resident, resident_bytes, room
from understill.models.encoder import build_encoder
from understill.models.multitask import MultiTaskModel
from understill.schema import Training
from understill.train.objective import Loss, Objective
from understill.train.optim import rate_factor
from understill.train.trouble import Trouble

if TYPE_CHECKING:
    from understill.kernels.adamw import Slot

log = logging.getLogger(__name__)

#: Share of the free memory that rows may take on the device.
_SHARE = 0.25
#: Steps from which on compiling is worth the seconds it takes: of the layers, which all models of a kind share, and of
#: what depends on a model's tasks.
_LONG, _VERY_LONG = 400, 10_000


def why_not(model: MultiTaskModel, batches: Batches, accelerator: Accelerator, training: Training) -> str:
    """Say why a model cannot be trained on the fast path; nothing where it can."""
    if accelerator.device.type != "cuda":
        return "there is no CUDA device"
    if accelerator.mixed_precision != "bf16":
        return "the precision is not bf16"
    if training.optimizer != "adamw":
        return f"the optimiser is {training.optimizer}, not adamw"
    if training.micro_batch and training.micro_batch < training.batch:
        return "training.micro_batch is set"
    if not model.encoder.packable:
        return f"a {model.encoder.config.model_type} encoder cannot read packed rows"
    if importlib.util.find_spec("triton") is None or not any(map(shutil.which, ("cc", "gcc", "clang"))):
        return "Triton or a C compiler is missing"
    free, _ = torch.cuda.mem_get_info(accelerator.device)
    if resident_bytes(batches.streams) > _SHARE * free:
        return "its rows do not fit on the device"
    return ""


@dataclass(frozen=True, eq=False)
class _Recorded:
    """A step of one size, ready to be replayed."""

    graph: torch.cuda.CUDAGraph
    places: Tensor  # of its gradients


class FastSteps:
    """One model's steps on the fast path."""

    def __init__(
        self,
        model: MultiTaskModel,
        objective: Objective,
        batches: Batches,
        optimizer: torch.optim.Optimizer,
        training: Training,
        trouble: Trouble,
        *,
        start: int,
        total: int,
    ) -> None:
        from understill.kernels.adamw import AdamW, schedule_of

        self.objective, self.batches, self.optimizer, self.trouble = objective, batches, optimizer, trouble
        self.device = next(model.parameters()).device
        self.work = _working_copy(model)
        if total - start >= _LONG:
            _compile_layers(self.work)
        self.loss = torch.compile(self._loss, dynamic=False) if total - start >= _VERY_LONG else self._loss
        self.denominator = float(batches.batch) if training.reduction == "mean" else 1.0
        self.rows = Resident(batches.streams, batches.weights, batches.pad, self.device)
        progress = [number / total for number in range(total)]
        factors = [rate_factor(number, total, training) for number in range(total)]
        self.schedule = schedule_of(factors, progress, training.betas).to(self.device)
        # One value each, not scalars: to index with a scalar makes torch read it on the host.
        self.number = torch.full((1,), start, device=self.device)
        self.done = torch.full((), float(start), device=self.device)  # as the optimiser counts
        self.cursor = torch.zeros(1, dtype=torch.int64, device=self.device)  # the step within its epoch
        self.units = torch.zeros(batches.steps_per_epoch, batches.batch, dtype=torch.int64, device=self.device)
        self.epoch = -1
        self.leaves = _leaves(model, self.work)
        slots = _slots(self.leaves, optimizer, self.done)
        self.adamw = AdamW(slots, self.schedule, training.betas, training.eps, training.clip)
        shape = (3, len(objective.tasks))
        self.parts, self.counts = (torch.zeros(shape, device=self.device) for _ in range(2))
        self.recorded: dict[tuple[int, int], _Recorded | None] = {}
        self.pool, self.side = torch.cuda.graph_pool_handle(), torch.cuda.Stream(self.device)
        # Graphs read seed and offset of the generator they were recorded with, so each model has one of its own.
        self.generator = torch.cuda.default_generators[self.device.index or 0].clone_state()

    def take(self, number: int, seed: int, *, first: bool) -> tuple[Tensor, Tensor]:
        """Take a step; return its loss parts and counts, which hold until the next one."""
        epoch, index = divmod(number, self.batches.steps_per_epoch)
        plan = self.batches.plan(epoch)
        if epoch != self.epoch:
            self.units.copy_(torch.from_numpy(plan.units.astype(np.int64)).pin_memory(), non_blocking=True)
            self.cursor.fill_(index)
            self.epoch = epoch
        size = room(int(plan.tokens[index])), 1 << (int(plan.length[index]) - 1).bit_length()
        self.generator.manual_seed(seed)
        if size not in self.recorded:
            # A size's first step is taken as it is, which compiles what it needs; its second one is recorded.
            self.recorded[size] = None
            self._prepare()
            self._step(size, check=first)
            self._forget()
        else:
            recorded = self.recorded[size]
            if recorded is None:
                recorded = self.recorded[size] = self._record(size)
            recorded.graph.replay()
        return self.parts, self.counts

    def release(self) -> None:
        """Hand the optimiser back to torch, where each weight counts its own steps."""
        for weight, _, _ in self.leaves:
            self.optimizer.state[weight]["step"] = self.done.clone()

    def _record(self, size: tuple[int, int]) -> _Recorded:
        self._prepare()
        graph, places = torch.cuda.CUDAGraph(), self.adamw.table()
        # As torch.cuda.graph does, without collecting garbage each time.
        torch.cuda.synchronize(self.device)
        with torch.cuda.stream(self.side):
            graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
            try:
                found = self._step(size, places)
            finally:
                graph.capture_end()
        places.copy_(found)
        self._forget()
        return _Recorded(graph, places)

    def _prepare(self) -> None:
        """Let everything random come from the model's own generator."""
        torch.cuda.default_generators[self.device.index or 0].graphsafe_set_state(self.generator)
        self._forget()

    def _forget(self) -> None:
        """Drop gradients, so that those of the next step are written, not added."""
        for _, leaf, _ in self.leaves:
            leaf.grad = None

    def _step(self, size: tuple[int, int], places: Tensor | None = None, check: bool = False) -> Tensor:
        """Take one step; return where its gradients lie, in `places` if that is given before the update runs."""
        batch = self.rows.pack(self.units.index_select(0, self.cursor)[0], *size)
        with self._low():
            vectors = self.work.encoder(batch)
            if check:
                self.objective.check(self.work.heads(vectors, batch.task), batch)
        loss = self.loss(vectors, batch)
        torch.autograd.backward(loss.total)
        found = torch.tensor([0 if leaf.grad is None else leaf.grad.data_ptr() for _, leaf, _ in self.leaves])
        if places is None:
            places = found.to(self.device)
        norm = self.adamw.norm(places)
        self.trouble.look(self.number[0] + 1, loss.parts[0], norm)
        self.adamw.update(places, self.number, norm)
        self.parts.copy_(loss.parts)
        self.counts.copy_(loss.counts)
        for counter in (self.number, self.cursor, self.done):
            counter += 1
        return found

    def _low(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, cache_enabled=False)

    def _loss(self, vectors: Tensor, batch: Packed) -> Loss:
        with self._low():
            logits = self.work.heads(vectors, batch.task)
        progress = self.schedule.index_select(0, self.number)[0, 3]
        loss: Loss = self.objective(logits, batch, self.denominator, progress)
        return loss


def _working_copy(model: MultiTaskModel) -> MultiTaskModel:
    """Return the model as it computes: its linear layers in bfloat16, all else its very own.

    Autocast would turn the weights of linear layers into bfloat16 in each step, and their gradients back.
    """
    with torch.device("meta"):
        encoder = build_encoder(copy.deepcopy(model.encoder.config), model.encoder.pooling)
        work = MultiTaskModel(encoder, model.tasks, model.spec)
    for name, module in work.named_modules():
        own = model.get_submodule(name)
        for key, parameter in own.named_parameters(recurse=False):
            low = isinstance(own, nn.Linear)
            setattr(module, key, nn.Parameter(parameter.detach().bfloat16()) if low else parameter)
        for key, buffer in own.named_buffers(recurse=False):
            setattr(module, key, buffer)
    return work.train()


def _compile_layers(model: MultiTaskModel) -> None:
    """Have torch fuse small operations; all layers, of this model and the next, share what is compiled for one."""
    network = model.encoder.network
    network.get_submodule("embeddings").compile(dynamic=True)
    depth = network.config.num_hidden_layers
    for part in network.modules():
        if isinstance(part, nn.ModuleList) and len(part) == depth:
            for layer in part:
                layer.compile(dynamic=True)


_Leaf = tuple[nn.Parameter, nn.Parameter, bool]  # the weight, what computes, whether they differ


def _leaves(model: MultiTaskModel, work: MultiTaskModel) -> list[_Leaf]:
    computing = dict(work.named_parameters())
    pairs = ((weight, computing[name]) for name, weight in model.named_parameters() if weight.requires_grad)
    return [(weight, leaf, leaf is not weight) for weight, leaf in pairs]


def _slots(leaves: list[_Leaf], optimizer: torch.optim.Optimizer, done: Tensor) -> list[Slot]:
    """Return what the optimiser's kernel needs; its moments are those of torch's optimiser, which saves them."""
    from understill.kernels.adamw import Slot

    groups = {id(each): group for group in optimizer.param_groups for each in group["params"]}
    slots = []
    for weight, leaf, low in leaves:
        state, group = optimizer.state[weight], groups[id(weight)]
        for key in ("exp_avg", "exp_avg_sq"):
            state.setdefault(key, torch.zeros_like(weight, memory_format=torch.preserve_format))
        state["step"] = done
        copied = leaf.data if low else None
        slots.append(
            Slot(weight.data, state["exp_avg"], state["exp_avg_sq"], copied, group["base_lr"], group["weight_decay"])
        )
    return slots
