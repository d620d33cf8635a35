"""The fast path: whole steps as CUDA graphs over packed rows that lie on the device.

It computes what the plain loop computes. Small encoders are bound by the number of kernels and by Python, so a step
(gathering its rows, forward, loss, backward, clipping, update) is recorded once for each of a few sizes and replayed
with one call. Everything that changes from step to step is read from tables on the device, by a counter that lies
there too, so that nothing waits for the host.
"""

from __future__ import annotations

import copy
import gc
import math
from contextlib import suppress
from dataclasses import dataclass
from subprocess import SubprocessError
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn
from transformers import PreTrainedModel

from understill import kernels
from understill.data.batches import Batches
from understill.data.packed import Packed, Resident, Streamed, Stretch, resident_bytes, room
from understill.losses.objective import Loss, Objective
from understill.models.encoder import build_encoder
from understill.models.heads import Heads
from understill.models.memory import out_of_memory
from understill.models.multitask import MultiTaskModel
from understill.models.transformer import TokenStates
from understill.recipe.schema import Training
from understill.train.nan_guard import NanGuard
from understill.train.optim import rate_factor
from understill.train.shared_gradients import SharedGradients
from understill.train.world import ALONE, World

if TYPE_CHECKING:
    from understill.kernels.adam import Slot

#: The optimisers that the kernel knows, and what torch calls the second moment of each.
_SECOND = {"adamw": "exp_avg_sq", "adamax": "exp_inf"}
#: Share of the free memory that rows may take on the device.
_SHARE = 0.25
#: Steps from which on compiling is worth the seconds it takes: of the layers, which all models of a kind share, and of
#: what depends on a model's tasks.
_LONG, _VERY_LONG = 400, 10_000


def why_not(model: MultiTaskModel, accelerator: Accelerator, training: Training) -> str:
    """Say why a model cannot be trained on the fast path; nothing where it can."""
    if accelerator.device.type != "cuda":
        return "there is no CUDA device"
    if accelerator.mixed_precision != "bf16":
        return "the precision is not bf16"
    if training.optimizer not in _SECOND:
        return f"the optimiser is {training.optimizer}, not {' or '.join(_SECOND)}"
    if training.micro_batch and training.micro_batch < training.batch:
        return "training.micro_batch is set"
    if any(task.kind.grouped for task in model.tasks):
        return "ranking tasks are trained by the plain loop"
    if model.heads.compares:
        return "siamese heads are trained by the plain loop"
    if not model.encoder.packable:
        return f"a {model.encoder.config.model_type} encoder cannot read packed rows"
    if fault := kernels.fault():
        return fault
    return "" if model.packs_on(accelerator.device) else "attention over packed rows does not work here"


class NotRecorded(RuntimeError):
    """A step that runs could not be recorded."""


def lacking(error: Exception) -> bool:
    """Tell whether something is missing to compile or record a step: memory, a compiler, what a driver can do.

    Everything else is a mistake of ours, which nobody is served by hiding.
    """
    missing = (NotRecorded, NotImplementedError, ImportError, OSError, SubprocessError)
    compiling = type(error).__module__.startswith(("torch._dynamo", "torch._inductor", "triton"))
    return isinstance(error, missing) or compiling or (isinstance(error, RuntimeError) and out_of_memory(error))


class _Size(NamedTuple):
    """What a step is recorded for."""

    tokens: int
    longest: int
    only: int | None  # the task of all rows, where that changes what is done


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
        guard: NanGuard,
        *,
        start: int,
        total: int,
        world: World = ALONE,
    ) -> None:
        from understill.kernels.adam import Adam, schedule_of

        self.objective, self.batches, self.optimizer, self.guard = objective, batches, optimizer, guard
        self.world = world
        self.device = next(model.parameters()).device
        self.work = _working_copy(model)
        # By the whole run, not by what is left: compiled code draws other dropout, and a resumed run takes the same.
        if total >= _LONG:
            _compile_layers(self.work)
        # Heads that read tokens would be compiled anew for each size.
        worth = total >= _VERY_LONG and not self.work.heads.reads_tokens
        self.loss = torch.compile(_loss, dynamic=False) if worth else _loss
        self.denominator = float(batches.batch) if training.reduction == "mean" else 1.0
        self.rows = _tables(batches, self.device)
        progress = [number / total for number in range(total)]
        factors = [rate_factor(number, total, training) for number in range(total)]
        self.schedule = schedule_of(factors, progress, training.betas).to(self.device)
        # One value each, not scalars: to index with a scalar makes torch read it on the host.
        self.number = torch.full((1,), start, device=self.device)
        self.cursor = torch.zeros(1, dtype=torch.int64, device=self.device)  # the step within its stretch
        share = len(range(world.rank, batches.batch, world.size))  # of each batch
        self.units = torch.zeros(batches.steps_per_epoch, share, dtype=torch.int64, device=self.device)
        self.stretch = Stretch(0, 0, np.empty(0))
        self.leaves = _leaves(model, self.work)
        second = _SECOND[training.optimizer]
        slots = _slots(self.leaves, optimizer, second)
        taken = [float(optimizer.state[weight].get("step", 0.0)) for weight, _, _ in self.leaves]
        self.updates = torch.tensor(taken, device=self.device)  # of each weight
        adamax = training.optimizer == "adamax"
        self.adam = Adam(slots, self.updates, self.schedule, training.betas, training.eps, training.clip, adamax)
        shape = (len(objective.parts), len(objective.tasks))
        self.parts, self.counts = (torch.zeros(shape, device=self.device) for _ in range(2))
        # What several processes sum, and where gradients of each size of steps lie in it.
        self.shared = SharedGradients([leaf for _, leaf, _ in self.leaves], shape) if world.size > 1 else None
        self.places: dict[_Size, Tensor] = {}
        self.recorded: dict[_Size, _Recorded | None] = {}
        self.updated = False  # whether the weights may have been touched in the step that is being taken
        self.pool = torch.cuda.graph_pool_handle()
        # Graphs read seed and offset of the generator they were recorded with, so each model has one of its own.
        self.generator = torch.cuda.default_generators[self.device.index or 0].clone_state()
        # Last of all: were there no memory for something above, torch's optimiser would be as it was.
        for number, ((weight, _, _), slot) in enumerate(zip(self.leaves, slots, strict=True)):
            state = {"exp_avg": slot.first, second: slot.second, "step": self.updates[number]}
            optimizer.state[weight].update(state)

    def take(self, number: int, seed: int, *, first: bool) -> tuple[Tensor, Tensor]:
        """Take a step; return its loss parts and counts, which hold until the next one.

        Of several processes each makes gradients of its own rows, and `update` has to follow.
        """
        self.updated = False
        if not self.stretch.first <= number < self.stretch.last:
            self.stretch = self.rows.load(self.batches, number)
            own = self.stretch.rows[:, self.world.rank :: self.world.size]
            rows = torch.from_numpy(own.astype(np.int64)).pin_memory()
            self.units[: len(rows)].copy_(rows, non_blocking=True)
            self.cursor.fill_(number - self.stretch.first)
        epoch, index = divmod(number, self.batches.steps_per_epoch)
        plan = self.batches.plan(epoch)
        only = self.batches.only(number) if self.work.heads.reads_tokens else None
        tokens = self.batches.tokens(number, self.world.rank, self.world.size)
        self.size = size = _Size(room(tokens), 1 << (int(plan.length[index]) - 1).bit_length(), only)
        self.generator.manual_seed(seed)
        if size not in self.recorded:
            # A size's first step is taken as it is, which compiles what it needs; its second one is recorded.
            self.recorded[size] = None
            self._prepare()
            places = self._step(size, check=first)
            if self.shared is not None:
                self.places[size] = places.to(self.device)
            self._forget()
        else:
            recorded = self.recorded[size]
            if recorded is None:
                recorded = self.recorded[size] = self._record(size)
            self.updated = self.shared is None
            recorded.graph.replay()
        return self.parts, self.counts

    def update(self) -> None:
        """Sum what the processes have made of their rows, and update the weights by it."""
        assert self.shared is not None
        for memory in self.shared.memory.values():
            self.world.sum(memory)
        for values, summed in zip((self.parts, self.counts), self.shared.losses, strict=True):
            values.copy_(summed)
        self._apply(self.places[self.size], self.parts)

    def release(self) -> None:
        """Hand the optimiser back to torch, where each weight counts its own steps."""
        # Only fused optimisers count on the device; the others would wait for it once for each weight.
        counts = self.updates if self.optimizer.defaults.get("fused") else self.updates.cpu()
        for (weight, _, _), count in zip(self.leaves, counts, strict=True):
            self.optimizer.state[weight]["step"] = count.clone()
        self._forget()  # what a step that failed half-way has left

    def close(self) -> None:
        """Give the memory back."""
        self.recorded.clear()
        del self.work, self.rows, self.leaves, self.adam
        gc.collect()  # compiled layers refer to themselves
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _record(self, size: _Size) -> _Recorded:
        self._prepare()
        graph, places = torch.cuda.CUDAGraph(), self.adam.table()
        # As torch.cuda.graph does, without collecting garbage each time.
        torch.cuda.synchronize(self.device)
        own = torch.cuda.current_stream(self.device)
        usual = torch.cuda.default_stream(self.device)
        with torch.cuda.stream(torch.cuda.Stream(self.device) if own == usual else own):  # the usual one cannot record
            try:
                addresses = self._capture(graph, size, places)
            except RuntimeError as error:  # the same step has run before, so it is the recording that does not work
                raise NotRecorded(str(error)) from error
            finally:
                self.updated = False  # what is recorded has not run
        places.copy_(addresses)
        self._forget()
        return _Recorded(graph, places)

    def _capture(self, graph: torch.cuda.CUDAGraph, size: _Size, places: Tensor) -> Tensor:
        graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
        try:
            addresses = self._step(size, places)
        except Exception:
            with suppress(RuntimeError):  # what went wrong first is what counts
                graph.capture_end()
            # A broken recording leaves its generator in recording mode: the plain loop needs one that can draw.
            torch.cuda.default_generators[self.device.index or 0].graphsafe_set_state(torch.Generator(self.device))
            raise
        graph.capture_end()
        return addresses

    def _prepare(self) -> None:
        """Let everything random come from the model's own generator."""
        torch.cuda.default_generators[self.device.index or 0].graphsafe_set_state(self.generator)
        self._forget()

    def _forget(self) -> None:
        """Drop gradients, so that those of the next step are written, not added."""
        for _, leaf, _ in self.leaves:
            leaf.grad = None

    def _step(self, size: _Size, places: Tensor | None = None, check: bool = False) -> Tensor:
        """Take one step; return where its gradients lie, in `places` if that is given before the update runs."""
        batch = self.rows.pack(self.units.index_select(0, self.cursor)[0], size.tokens, size.longest)
        with _low(self.device):
            vectors, tokens, _ = self.work.encode(batch)
            if check:
                self.objective.check(self.work.heads(vectors, batch.task, tokens, size.only), batch)
        progress = self.schedule.index_select(0, self.number)[0, 3]
        loss = self.loss(self.work.heads, self.objective, vectors, tokens, batch, size.only, self.denominator, progress)
        torch.autograd.backward(loss.total)
        grads = [leaf.grad for _, leaf, _ in self.leaves]
        if self.shared is not None:
            return self.shared.fill(grads, loss)
        addresses = torch.tensor([0 if grad is None else grad.data_ptr() for grad in grads])
        if places is None:
            places = addresses.to(self.device)
        self.parts.copy_(loss.parts)
        self.counts.copy_(loss.counts)
        self._apply(places, loss.parts)
        return addresses

    def _apply(self, places: Tensor, parts: Tensor) -> None:
        """Update the weights by the gradients at these addresses."""
        norm = self.adam.norm(places)
        self.guard.observe(self.number[0] + 1, parts[0], norm)
        self.updated = True
        self.adam.update(places, self.number, norm)
        for counter in (self.number, self.cursor):
            counter += 1


def _low(device: torch.device) -> torch.autocast:
    return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)


def _loss(
    heads: Heads,
    objective: Objective,
    vectors: Tensor,
    tokens: TokenStates | None,
    batch: Packed,
    only: int | None,
    denominator: float,
    progress: Tensor,
) -> Loss:
    """Return the loss of rows that the encoder has read."""
    with _low(vectors.device):
        logits = heads(vectors, batch.task, tokens, only)
    loss: Loss = objective(logits, batch, denominator, progress)
    return loss


def _tables(batches: Batches, device: torch.device) -> Resident | Streamed:
    """Bring all rows to the device, or where they would take too much of it, those of the next steps."""
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else math.inf
    if resident_bytes(batches.streams) <= _SHARE * free:
        return Resident(batches.streams, batches.weights, batches.pad, device)
    return Streamed(batches, device)


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
    assert isinstance(network, PreTrainedModel)
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


def _slots(leaves: list[_Leaf], optimizer: torch.optim.Optimizer, second_key: str) -> list[Slot]:
    """Return what the optimiser's kernel needs; its moments are those of torch's optimiser where it has some."""
    from understill.kernels.adam import Slot

    groups = {id(each): group for group in optimizer.param_groups for each in group["params"]}
    slots = []
    for weight, leaf, low in leaves:
        state, group = optimizer.state.get(weight, {}), groups[id(weight)]
        first, second = (
            state[key] if key in state else torch.zeros_like(weight, memory_format=torch.preserve_format)
            for key in ("exp_avg", second_key)
        )
        copied = leaf.data if low else None
        slots.append(Slot(weight.data, first, second, copied, group["base_lr"], group["weight_decay"]))
    return slots
