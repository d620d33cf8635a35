"""The fast path takes the steps of the plain loop: driven here without a GPU, and as it is where there is one."""

from __future__ import annotations

import ctypes
import importlib.util
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from helpers import TASKS, liven, same, some_model, some_tokens, weights_of
from understill import kernels
from understill.data.batch import Stream
from understill.data.batches import Batches
from understill.data.packed import Streamed, resident_bytes, room
from understill.errors import TrainingError
from understill.losses.composed import ComposedObjective
from understill.losses.fused import FusedObjective
from understill.losses.objective import Loss
from understill.models.multitask import MultiTaskModel, new_model
from understill.recipe.schema import Anneal, Distil, EncoderSpec, HeadsSpec, Machine, SanSpec, Training
from understill.tasks import Task
from understill.train import cuda_graph, loop
from understill.train.checkpoint import load_checkpoint, save_checkpoint
from understill.train.cuda_graph import FastSteps, why_not
from understill.train.device import cpu_has_bf16, make_accelerator
from understill.train.loop import steps
from understill.train.nan_guard import NanGuard
from understill.train.optim import make_optimizer, rate_factor
from understill.train.shared_gradients import SharedGradients
from understill.train.world import ALONE, World

TOTAL = 8
each_optimizer = pytest.mark.parametrize("optimizer", ["adamw", "adamax"])
Replayed = dict[tuple[Any, ...], int]  # by size: tokens, longest row, and what else a step is recorded for


def reported(task: Task, rows: int) -> np.ndarray:
    """Return what a teacher says of each row: log-probabilities, or scores; of every fourth row nothing."""
    logits = torch.from_numpy(np.random.default_rng(rows).normal(size=(rows, task.outputs))).float()
    values = logits.log_softmax(1) if task.kind.name == "classification" else 3 + logits
    values[::4] = torch.nan
    return values.numpy()


def taught_batches() -> Batches:
    """Return three steps an epoch, of short and long rows of which a teacher says something."""
    sizes = [8, 15, 22]
    streams = [
        Stream(number, [some_tokens(task, rows, longest=40)], columns={"logits": reported(task, rows)})
        for number, (task, rows) in enumerate(zip(TASKS, sizes, strict=True))
    ]
    return Batches(streams, batch=16, seed=0, window=2, weights=[1.0, 2.0, 0.5])


def training(**settings: Any) -> Training:
    # A large eps, since Adam blows up the rounding of gradients that are nothing but rounding.
    usual = {"steps": TOTAL, "batch": 16, "lr": 1e-2, "eps": 1e-3, "layer_decay": 0.8, "weight_decay": 0.1}
    return Training(**{**usual, "evaluate": "never", "reduction": "sum", **settings})


class Run:
    """A model with all that its training needs; one of its weights is never used."""

    def __init__(
        self,
        folder: Path,
        device: str = "cpu",
        precision: str = "fp32",
        *,
        tasks: tuple[Task, ...] = TASKS,
        model: MultiTaskModel | None = None,
        batches_: Batches | None = None,
        **settings: Any,
    ) -> None:
        self.training, self.batches = training(**settings), batches_ or taught_batches()
        self.model = model or some_model(folder, dropout=0.0)
        liven(self.model)
        self.model.heads.register_parameter("spare", nn.Parameter(torch.ones(3)))
        self.accelerator = make_accelerator(Machine(device=device, threads=1), precision)
        self.model.to(self.accelerator.device)
        distil = Distil(anneal=Anneal(start=0.2, end=0.9, shape="quadratic"))
        self.objective = FusedObjective(tasks, "sigmoid", distil).to(self.accelerator.device)
        optimizer = make_optimizer(self.model, self.training)
        self.prepared, self.optimizer = self.accelerator.prepare(self.model.train(), optimizer)
        self.guard = NanGuard(len(tasks), self.accelerator.device)
        self.first = weights_of(self.model)

    def plain(self, start: int = 0, stop: int = TOTAL, **settings: Any) -> list[Tensor]:
        """Take steps in the loop; return their losses."""
        run = steps(
            self.prepared,
            self.objective,
            self.batches,
            self.optimizer,
            self.accelerator,
            self.training,
            seed=0,
            start=start,
            guard=self.guard,
            **settings,
        )
        return [torch.cat([step.parts, step.counts]).clone() for step in islice(run, stop - start)]

    def path(self, start: int = 0, world: World = ALONE) -> FastSteps:
        """Return the fast path from a step on."""
        return FastSteps(
            self.model,
            self.objective,
            self.batches,
            self.optimizer.optimizer,
            self.training,
            self.guard,
            start=start,
            total=TOTAL,
            world=world,
        )

    def fast(self, start: int = 0, stop: int = TOTAL) -> list[Tensor]:
        """Take steps on the fast path; return their losses."""
        path = self.path(start)
        numbers = range(start, stop)
        taken = [torch.cat(path.take(number, number, first=number == start)).clone() for number in numbers]
        path.release()
        return taken

    def moved(self, other: Run) -> float:
        """Return how far two models' weights are apart, as a share of the way they went."""
        one, two = weights_of(self.model), weights_of(other.model)
        apart = sum(float((one[name] - two[name]).double().square().sum()) for name in one)
        went = sum(float((one[name] - self.first[name]).double().square().sum()) for name in one)
        return (apart / went) ** 0.5


# The path without a GPU ----------------------------------------------------------------------------------------------


class TorchAdam:
    """In place of the kernel: reads gradients from their addresses as it does, and updates as torch writes it down."""

    def __init__(
        self,
        slots: Sequence[Any],
        counts: Tensor,
        schedule: Tensor,
        betas: tuple[float, float],
        eps: float,
        clip: float | None,
        adamax: bool,
    ) -> None:
        self.slots, self.schedule, self.betas, self.eps, self.clip = slots, schedule, betas, eps, clip
        self.counts, self.adamax = counts, adamax

    def table(self) -> Tensor:
        return torch.zeros(len(self.slots), dtype=torch.int64)

    def grads(self, table: Tensor) -> Iterator[tuple[int, Any, Tensor]]:
        for number, (slot, address) in enumerate(zip(self.slots, table.tolist(), strict=True)):
            if address:
                kind = slot.weight if slot.copy is None else slot.copy
                memory = (ctypes.c_byte * kind.nbytes).from_address(address)
                yield number, slot, torch.frombuffer(memory, dtype=kind.dtype).view(kind.shape).float()

    def norm(self, table: Tensor) -> Tensor:
        return torch.stack([grad.square().sum() for _, _, grad in self.grads(table)]).sum().sqrt()

    def update(self, table: Tensor, step: Tensor, norm: Tensor) -> None:
        factor = self.schedule[step][0, 0]
        self.counts += table != 0
        scale = 1.0 if self.clip is None else (self.clip / (norm + 1e-6)).clamp(max=1.0)
        for number, slot, grad in self.grads(table):
            _, correction, root, _ = self.schedule[int(self.counts[number]) - 1]
            rate, grad = slot.rate * factor, grad * scale
            slot.second.mul_(self.betas[1])
            if self.adamax:
                grad = grad + slot.decay * slot.weight
                divisor = torch.maximum(slot.second, grad.abs() + self.eps, out=slot.second)
            else:
                slot.weight.mul_(1 - rate * slot.decay)
                divisor = slot.second.addcmul_(grad, grad, value=1 - self.betas[1]).sqrt() / root + self.eps
            slot.first.lerp_(grad, 1 - self.betas[0])
            slot.weight.sub_(rate / correction * slot.first / divisor)
            if slot.copy is not None:
                slot.copy.copy_(slot.weight)


@pytest.fixture(scope="module")
def adam() -> ModuleType:
    """The kernel's module as it is read where Triton is missing: its kernels cannot run."""
    triton, language = ModuleType("triton"), ModuleType("triton.language")
    triton.jit, triton.language = lambda function: function, language  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "triton", triton)
        patch.setitem(sys.modules, "triton.language", language)
        spec = importlib.util.spec_from_file_location("adam", Path(kernels.__path__[0]) / "adam.py")
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        patch.setitem(sys.modules, "adam", module)
        spec.loader.exec_module(module)
    module.Adam = TorchAdam  # type: ignore[attr-defined]
    return module


@pytest.fixture
def without_gpu(adam: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Replayed:
    """Let the path run on a CPU, where a recorded step is just taken again; says how often each size was replayed."""
    replayed: Replayed = {}
    generator = SimpleNamespace(
        clone_state=torch.Generator, graphsafe_set_state=lambda _: None, manual_seed=lambda _: None
    )

    def record(self: FastSteps, size: tuple[Any, ...]) -> Any:
        assert size not in replayed, "recorded twice"
        replayed[size] = 0

        def replay() -> None:
            replayed[size] += 1
            self.updated = False  # unlike a graph, it may still fail before its update
            self._step(size)
            self._forget()

        return SimpleNamespace(graph=SimpleNamespace(replay=replay))

    monkeypatch.setitem(sys.modules, "understill.kernels.adam", adam)
    monkeypatch.setattr(torch.cuda, "Stream", lambda _: None)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    monkeypatch.setattr(torch.cuda, "default_generators", [generator])
    monkeypatch.setattr(Tensor, "pin_memory", lambda self: self)
    monkeypatch.setattr(FastSteps, "_record", record)
    return replayed


@pytest.fixture
def exact(without_gpu: Replayed, monkeypatch: pytest.MonkeyPatch) -> Replayed:
    """The same in single precision, so that nothing but rounding is forgiven."""
    monkeypatch.setattr(Tensor, "bfloat16", Tensor.clone)
    monkeypatch.setattr(cuda_graph, "_low", lambda _: nullcontext())
    return without_gpu


def assert_alike(one: Run, two: Run) -> None:
    for name, value in weights_of(one.model).items():
        torch.testing.assert_close(weights_of(two.model)[name], value, rtol=1e-4, atol=2e-5)
    assert not same(weights_of(one.model), one.first)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"clip": None, "reduction": "mean"},
        {"clip": 0.05, "betas": (0.5, 0.9)},
        {"schedule": "constant", "warmup": 0.0, "layer_decay": 1.0},
        {"optimizer": "adamax"},
        {"optimizer": "adamax", "clip": 0.05, "betas": (0.5, 0.9), "weight_decay": 0.5},
    ],
    ids=str,
)
def test_losses_and_weights_are_those_of_the_plain_loop(settings: dict[str, Any], tiny: Path, exact: Replayed) -> None:
    plain, path = Run(tiny, **settings), Run(tiny, **settings)
    assert plain.batches.steps_per_epoch < TOTAL, "an epoch ends on the way"
    for one, two in zip(plain.plain(), path.fast(), strict=True):
        torch.testing.assert_close(two, one, rtol=1e-4, atol=1e-5)
    assert_alike(plain, path)
    assert torch.equal(path.model.heads.spare, torch.ones(3)), "a weight that is not used is not even decayed"
    assert sum(exact.values()) > 0, "some steps were replayed"
    path.guard.check([task.name for task in TASKS], path.training)


@pytest.mark.parametrize("start", [0, 4])
def test_rows_that_are_streamed_lead_to_the_same_weights(
    start: int, tiny: Path, exact: Replayed, monkeypatch: pytest.MonkeyPatch
) -> None:
    resident, streamed = Run(tiny), Run(tiny)
    expected = resident.fast(start)
    exact.clear()
    monkeypatch.setattr(cuda_graph, "_tables", lambda batches, device: Streamed(batches, device, 2))
    for one, two in zip(expected, streamed.fast(start), strict=True):
        assert torch.equal(one, two)
    assert same(weights_of(resident.model), weights_of(streamed.model))


class Summed(World):
    """A process whose gradients the test sums."""

    def sum(self, values: Tensor) -> None:
        pass


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("count", [2, 3])
def test_processes_that_share_the_rows_of_each_step_take_the_steps_of_one(
    count: int, streamed: bool, tiny: Path, exact: Replayed, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = FastSteps._record

    def recorded(self: FastSteps, size: tuple[Any, ...]) -> Any:
        exact.pop(size, None)  # each process records for itself
        return record(self, size)

    monkeypatch.setattr(FastSteps, "_record", recorded)
    if streamed:
        monkeypatch.setattr(cuda_graph, "_tables", lambda batches, device: Streamed(batches, device, 2))
    plain, processes = Run(tiny), [Run(tiny) for _ in range(count)]
    paths = [run.path(world=Summed(rank, count)) for rank, run in enumerate(processes)]
    losses = []
    for number in range(TOTAL):
        for path in paths:
            path.take(number, number, first=number == 0)
            assert not path.updated
        for pieces in zip(*(path.shared.memory.values() for path in paths), strict=True):
            total = torch.stack(pieces).sum(dim=0)
            for piece in pieces:
                piece.copy_(total)
        for path in paths:
            path.update()
        losses.append(torch.cat([paths[0].parts, paths[0].counts]).clone())
    for one, two in zip(plain.plain(), losses, strict=True):
        torch.testing.assert_close(two, one, rtol=1e-4, atol=1e-5)
    for run in processes:
        assert_alike(plain, run)
        assert torch.equal(run.model.heads.spare, torch.ones(3)), "a weight that no process uses is not even decayed"
        assert same(weights_of(run.model), weights_of(processes[0].model)), "all have the same bits"
    assert sum(exact.values()) > 0, "some steps were replayed"


def test_shared_gradients_begin_where_the_kernel_can_read_sixteen_bytes_at_once() -> None:
    leaves = [torch.zeros(3), torch.zeros(5, 7), torch.zeros(9, dtype=torch.bfloat16), torch.zeros(1)]
    shared = SharedGradients(leaves, (3, 2))
    loss = Loss(torch.zeros(()), torch.ones(3, 2), torch.full((3, 2), 2.0))
    places = shared.fill([torch.full_like(leaves[0], 4.0), None, torch.ones_like(leaves[2]), leaves[3] + 5], loss)
    assert [bool(place) for place in places] == [True, False, True, True]
    assert all(int(place) % 16 == 0 for place in places)
    sums = {kind: float(values.sum()) for kind, values in shared.memory.items()}
    assert sums == {torch.float32: 3 * 4 + 5 + 6 + 12, torch.bfloat16: 9.0}


@pytest.mark.parametrize("kind", ["electra", "roberta"])
def test_other_architectures_take_the_steps_of_the_plain_loop_too(
    kind: str, tiny_of: Callable[[str], Path], exact: Replayed
) -> None:
    plain, path = Run(tiny_of(kind)), Run(tiny_of(kind))
    plain.plain()
    path.fast()
    assert_alike(plain, path)


@pytest.mark.skipif(not cpu_has_bf16(), reason="bf16 crashes on this processor")
@each_optimizer
def test_in_bf16_the_path_goes_where_the_plain_loop_goes(optimizer: str, tiny: Path, without_gpu: Replayed) -> None:
    plain, path = (Run(tiny, precision="bf16", optimizer=optimizer) for _ in range(2))
    for one, two in zip(plain.plain(), path.fast(), strict=True):
        torch.testing.assert_close(two, one, rtol=0.05, atol=0.05)
    assert plain.moved(path) < 0.1
    low = {name for name, weight in path.path().work.named_parameters() if weight.dtype == torch.bfloat16}
    assert low and all(isinstance(path.model.get_submodule(name.rpartition(".")[0]), nn.Linear) for name in low)
    assert {weight.dtype for weight in path.model.parameters()} == {torch.float32}


def test_only_sizes_seen_before_are_recorded_and_each_only_once(tiny: Path, exact: Replayed) -> None:
    run = Run(tiny)
    path, sizes = run.path(), []
    for number in range(TOTAL):
        path.take(number, 0, first=False)
        plan, index = run.batches.plan(number // 3), number % 3
        sizes.append((room(int(plan.tokens[index])), 1 << (int(plan.length[index]) - 1).bit_length()))
    assert {size[:2] for size in path.recorded} == set(sizes) and 1 < len(set(sizes)) < TOTAL
    replayed = {size[:2]: count for size, count in exact.items()}
    assert replayed == {size: sizes.count(size) - 1 for size in set(sizes) if sizes.count(size) > 1}


@each_optimizer
@pytest.mark.parametrize("stop", [1, 3, 4])  # within an epoch and at its end
def test_a_run_that_was_interrupted_takes_the_steps_it_would_have_taken(
    stop: int, optimizer: str, tiny: Path, tmp_path: Path, exact: Replayed
) -> None:
    whole, first, second = (Run(tiny, optimizer=optimizer) for _ in range(3))
    losses = whole.fast()
    exact.clear()
    path = first.path()
    for number in range(stop):
        path.take(number, 0, first=False)
    save_checkpoint(tmp_path, stop, first.model, first.optimizer.optimizer, {})
    assert load_checkpoint(tmp_path, second.model, second.optimizer.optimizer, ()) == {"step": stop}
    exact.clear()
    for one, two in zip(losses[stop:], second.fast(stop), strict=True):
        assert torch.equal(one, two)
    assert same(weights_of(whole.model), weights_of(second.model))


def kept(run: Run) -> dict[str, Any]:
    """Return what the optimiser keeps of each weight that is used: names, types, places and shapes."""
    state, spare = run.optimizer.optimizer.state, run.model.heads.spare
    return {
        name: {key: (value.dtype, value.device, value.shape) for key, value in state[weight].items()}
        for name, weight in run.model.named_parameters()
        if weight is not spare
    }


@each_optimizer
@pytest.mark.parametrize("stop", [1, 4])
def test_the_plain_loop_goes_on_where_the_fast_path_stops(
    stop: int, optimizer: str, tiny: Path, exact: Replayed
) -> None:
    plain, both = Run(tiny, optimizer=optimizer), Run(tiny, optimizer=optimizer)
    plain.plain()
    both.fast(stop=stop)
    counts = [state["step"] for state in both.optimizer.optimizer.state.values()]
    assert kept(both) == kept(plain)
    assert {float(count) for count in counts} == {0, stop}, "one weight is never used"
    places = {count.untyped_storage().data_ptr() for count in counts}
    assert len(places) == len(counts), "each weight counts its own steps"
    both.plain(stop)
    assert_alike(plain, both)


@each_optimizer
@pytest.mark.parametrize("stop", [1, 4])
def test_the_fast_path_goes_on_where_the_plain_loop_stopped(
    stop: int, optimizer: str, tiny: Path, exact: Replayed
) -> None:
    plain, both = Run(tiny, optimizer=optimizer), Run(tiny, optimizer=optimizer)
    plain.plain()
    both.plain(stop=stop)
    both.fast(stop)
    assert {float(state["step"]) for state in both.optimizer.optimizer.state.values()} == {0, TOTAL}
    assert_alike(plain, both)


@pytest.mark.parametrize("stage", ["forward", "backward"])
def test_without_memory_for_the_fast_path_the_plain_loop_goes_on(
    stage: str,
    tiny: Path,
    exact: Replayed,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    plain, both = Run(tiny), Run(tiny)
    expected = plain.plain()
    monkeypatch.setattr(loop, "why_not", lambda *_: "")
    calls = 0

    def fail(*_: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")

    def scarce(model: MultiTaskModel) -> MultiTaskModel:
        copy = working_copy(model)
        if stage == "forward":
            copy.encoder.register_forward_pre_hook(fail)
        else:
            copy.encoder.network.get_submodule("embeddings.word_embeddings").weight.register_hook(fail)
        return copy

    working_copy = cuda_graph._working_copy
    monkeypatch.setattr(cuda_graph, "_working_copy", scarce)
    with caplog.at_level(logging.WARNING):
        result = both.plain(fast=True)
    why = "CUDA out of memory. Tried to allocate 20.00 GiB"
    assert caplog.messages == [f"the fast path cannot go on ({why}): training goes on without it"]
    for one, two in zip(expected, result, strict=True):
        torch.testing.assert_close(two, one, rtol=1e-4, atol=1e-5)
    assert_alike(plain, both)


#: What may be missing to compile or record a step, as torch, Triton and the system put it.
LACKING = [
    torch.OutOfMemoryError("CUDA out of memory"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"),
    cuda_graph.NotRecorded("operation not permitted when stream is capturing"),
    NotImplementedError("not implemented for 'BFloat16'"),
    FileNotFoundError("gcc"),
    ImportError("libcuda.so.1"),
    subprocess.CalledProcessError(1, "gcc"),
    torch._dynamo.exc.TorchDynamoException("no header files"),
]


def failing(monkeypatch: pytest.MonkeyPatch, error: Exception, at: int) -> None:
    """Let the fast path fail at one of its steps, before that step's update."""
    take, calls = FastSteps.take, []

    def fail(self: FastSteps, number: int, seed: int, *, first: bool) -> Any:
        calls.append(number)
        self.updated = False
        if len(calls) == at:
            raise error
        return take(self, number, seed, first=first)

    monkeypatch.setattr(loop, "why_not", lambda *_: "")
    monkeypatch.setattr(FastSteps, "take", fail)


@pytest.mark.parametrize("at", [1, 3])
@pytest.mark.parametrize("error", LACKING, ids=lambda error: type(error).__name__)
def test_a_step_that_lacks_something_before_its_update_is_taken_by_the_plain_loop(
    error: Exception, at: int, tiny: Path, exact: Replayed, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, both = Run(tiny), Run(tiny)
    failing(monkeypatch, error, at)
    both.plain(fast=True)
    plain.plain()
    assert_alike(plain, both)


@pytest.mark.parametrize("at", [1, 3])
@pytest.mark.parametrize(
    "error",
    [ValueError("shapes"), TypeError("none"), AssertionError(), KeyError("ids"), RuntimeError("size mismatch")],
    ids=lambda error: type(error).__name__,
)
def test_a_mistake_of_ours_is_raised_and_not_hidden_by_a_slow_run(
    error: Exception, at: int, tiny: Path, exact: Replayed, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, error, at)
    with pytest.raises(type(error)):
        Run(tiny).plain(fast=True)


@pytest.mark.parametrize("at", [1, 2, 4])
def test_what_fails_once_weights_may_be_updated_is_raised_whatever_it_is(
    at: int, tiny: Path, exact: Replayed, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, calls = FastSteps.take, []

    def late(self: FastSteps, number: int, seed: int, *, first: bool) -> Any:
        result = take(self, number, seed, first=first)
        calls.append(number)
        if len(calls) == at:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return result

    monkeypatch.setattr(loop, "why_not", lambda *_: "")
    monkeypatch.setattr(FastSteps, "take", late)
    with pytest.raises(torch.OutOfMemoryError):
        Run(tiny).plain(fast=True)


def test_an_objective_of_plug_ins_is_trained_by_the_plain_loop_which_says_so_once(
    tiny: Path, exact: Replayed, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plain, composed = Run(tiny), Run(tiny)
    composed.objective = ComposedObjective(composed.objective.tasks, "sigmoid", composed.objective.distil)
    monkeypatch.setattr(loop, "why_not", lambda *_: "")
    monkeypatch.setattr(FastSteps, "take", lambda *_, **__: pytest.fail("not on the fast path"))
    with caplog.at_level(logging.WARNING):
        composed.plain(fast=True)
    plain.plain()
    (message,) = caplog.messages
    assert message.startswith("training by the plain loop, which is slower than the fast path: ")
    assert_alike(plain, composed)


def test_without_memory_to_begin_with_the_optimiser_is_as_it_was(
    tiny: Path, exact: Replayed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise torch.OutOfMemoryError("out of memory")

    plain, both = Run(tiny), Run(tiny)
    monkeypatch.setattr(loop, "why_not", lambda *_: "")
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", fail)  # nearly the last thing that is asked for
    both.plain(fast=True)
    plain.plain()
    assert same(weights_of(plain.model), weights_of(both.model))


def test_heads_that_read_tokens_are_updated_as_in_the_plain_loop(tiny: Path, exact: Replayed) -> None:
    tasks = tuple(replace(TASKS[1], name=name, head=name) for name in ("one", "two"))
    spec = HeadsSpec(pairs="san", dropout=0.0, san=SanSpec(step_dropout=0.0))

    def run() -> Run:
        streams = [
            Stream(number, [some_tokens(task, rows)])
            for number, (task, rows) in enumerate(zip(tasks, (64, 16), strict=True))
        ]
        batches = Batches(streams, batch=16, seed=3, mode="one_task")
        encoder = EncoderSpec(name=str(tiny), max_length=32, dropout=0.0)
        return Run(tiny, tasks=tasks, model=new_model(encoder, spec, tasks, 0), batches_=batches)

    plain, path = run(), run()
    seen = [plain.batches.only(number) for number in range(TOTAL)]
    assert set(seen) == {0, 1} and seen.count(0) != seen.count(1)
    for one, two in zip(plain.plain(), path.fast(), strict=True):
        torch.testing.assert_close(two, one, rtol=1e-4, atol=1e-4)
    assert_alike(plain, path)
    counts = {float(state["step"]) for state in path.optimizer.optimizer.state.values()}
    assert counts == {0, seen.count(0), seen.count(1), TOTAL}, "a head counts the steps that it was asked in"


def test_targets_are_checked_before_the_first_update(tiny: Path, exact: Replayed) -> None:
    run = Run(tiny)
    for stream in run.batches.streams:
        stream.sources[0].gold[:] = 7.0
    with pytest.raises(TrainingError, match=r"gold 7\.0 is not one of its classes"):
        run.fast()
    assert same(weights_of(run.model), run.first)


def test_a_loss_that_is_no_number_is_noticed_with_its_step_and_task(tiny: Path, exact: Replayed) -> None:
    run = Run(tiny)
    path = run.path()
    for number in range(4):
        if number == 2:
            path.work.heads.tasks[1].out.bias.data.fill_(torch.nan)
        path.take(number, 0, first=False)
    with pytest.raises(TrainingError, match=r"step 3: the loss of topic is no longer a number"):
        run.guard.check([task.name for task in TASKS], run.training)


# Where it applies ----------------------------------------------------------------------------------------------------


def test_everything_that_keeps_a_model_from_the_fast_path_is_said(
    tiny: Path, tiny_of: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, cuda = some_model(tiny), torch.device("cuda", 0)

    def reason(device: torch.device = cuda, precision: str = "bf16", of: Any = model, **settings: Any) -> str:
        accelerator: Any = SimpleNamespace(device=device, mixed_precision=precision)
        return why_not(of, accelerator, training(**settings))

    monkeypatch.setattr(kernels, "fault", lambda: "")
    monkeypatch.setattr(MultiTaskModel, "packs_on", lambda *_: False)
    assert reason() == "attention over packed rows does not work here"
    monkeypatch.setattr(MultiTaskModel, "packs_on", lambda *_: True)
    assert reason() == ""
    assert reason(micro_batch=16) == "", "a batch in one piece is whole"
    assert reason(torch.device("cpu")) == "there is no CUDA device"
    assert reason(precision="no") == reason(precision="fp16") == "the precision is not bf16"
    assert reason(optimizer="adamax") == ""
    assert reason(optimizer="adadelta") == "the optimiser is adadelta, not adamw or adamax"
    assert reason(micro_batch=4) == "training.micro_batch is set"
    assert "albert encoder cannot read packed rows" in reason(of=some_model(tiny_of("albert")))
    monkeypatch.setattr(kernels, "fault", lambda: "there is no compiler")
    assert reason() == "there is no compiler"


def test_kernels_that_cannot_be_used_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "understill.kernels.adam", None)
    monkeypatch.delattr(kernels, "adam", raising=False)
    assert kernels.fault.__wrapped__().startswith("Triton does not work here: ")


def test_rows_that_would_fill_the_device_are_streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = taught_batches()
    need = resident_bytes(batches.streams)
    monkeypatch.setattr(cuda_graph, "Resident", lambda *_: "resident")
    monkeypatch.setattr(cuda_graph, "Streamed", lambda *_: "streamed")
    for free, expected in ((4 * need, "resident"), (4 * need - 4, "streamed")):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _, free=free: (free, 2**40))
        assert cuda_graph._tables(batches, torch.device("cuda")) == expected


def test_on_a_processor_fast_is_the_plain_loop(tiny: Path, caplog: pytest.LogCaptureFixture) -> None:
    plain, asked = Run(tiny), Run(tiny)
    plain.plain()
    with caplog.at_level(logging.INFO):
        asked.plain(fast=True)
    assert same(weights_of(plain.model), weights_of(asked.model))
    assert "not on the fast path: there is no CUDA device" in caplog.messages


# The schedule --------------------------------------------------------------------------------------------------------


@given(
    total=st.integers(1, 300),
    warmup=st.floats(0, 0.9),
    schedule=st.sampled_from(["linear", "constant"]),
    betas=st.tuples(st.floats(0.1, 0.99), st.floats(0.5, 0.9999)),
)
def test_the_schedule_holds_what_each_step_needs(
    adam: ModuleType, total: int, warmup: float, schedule: Any, betas: tuple[float, float]
) -> None:
    settings = Training(warmup=warmup, schedule=schedule, betas=betas)
    factors = [rate_factor(number, total, settings) for number in range(total)]
    table = adam.schedule_of(factors, [number / total for number in range(total)], betas)
    assert table.shape == (total, 4) and table.dtype == torch.float32 and table.is_contiguous()
    done = np.arange(1, total + 1)
    expected = [factors, 1 - betas[0] ** done, np.sqrt(1 - betas[1] ** done), (done - 1) / total]
    np.testing.assert_allclose(table.numpy(), np.stack(expected, axis=1), rtol=1e-6, atol=1e-7)


# The path as it is ---------------------------------------------------------------------------------------------------


def has_everything() -> bool:
    return torch.cuda.is_available() and importlib.util.find_spec("triton") is not None


@pytest.mark.gpu
@pytest.mark.skipif(not has_everything(), reason="needs a CUDA device and Triton")
@each_optimizer
@pytest.mark.parametrize("long", [False, True])
def test_on_a_gpu_recorded_steps_go_where_the_plain_loop_goes(
    long: bool, optimizer: str, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if long:  # then layers and loss are compiled
        monkeypatch.setattr(cuda_graph, "_LONG", 0)
        monkeypatch.setattr(cuda_graph, "_VERY_LONG", 0)
    exact = Run(tiny, "cuda", "fp32", optimizer=optimizer)
    truth = torch.stack(exact.plain())  # before the next is made: accelerate has one precision at a time
    plain, path = (Run(tiny, "cuda", "bf16", optimizer=optimizer) for _ in range(2))
    assert why_not(path.model, path.accelerator, path.training) == ""
    usual, result = torch.stack(plain.plain()), torch.stack(path.plain(fast=True))
    torch.testing.assert_close(result[0], usual[0], rtol=0.02, atol=0.02)
    # Rounding to bfloat16 leads the plain loop away from what is exact; the path may stray as far, not much further.
    assert (result - truth).norm() < 2 * (usual - truth).norm() + 0.01 * truth.norm()
    assert exact.moved(path) < 2 * exact.moved(plain) + 0.01
    path.guard.check([task.name for task in TASKS], path.training)


@pytest.mark.gpu
@pytest.mark.skipif(not has_everything(), reason="needs a CUDA device and Triton")
def test_on_a_gpu_an_interrupted_run_goes_on_as_it_would_have(tiny: Path, tmp_path: Path) -> None:
    whole, first, second = (Run(tiny, "cuda", "bf16") for _ in range(3))
    whole.fast()
    path = first.path()
    for number in range(4):
        path.take(number, number, first=number == 0)
    save_checkpoint(tmp_path, 4, first.model, first.optimizer.optimizer, {})
    load_checkpoint(tmp_path, second.model, second.optimizer.optimizer, ())
    second.fast(4)
    assert whole.moved(second) < 0.01


@pytest.mark.gpu
@pytest.mark.skipif(not has_everything(), reason="needs a CUDA device and Triton")
@each_optimizer
def test_on_a_gpu_torch_gets_its_optimiser_back_as_it_keeps_it(optimizer: str, tiny: Path) -> None:
    plain, path = (Run(tiny, "cuda", "bf16", optimizer=optimizer) for _ in range(2))
    plain.plain(stop=1)
    path.fast(stop=1)
    assert kept(path) == kept(plain)


@pytest.mark.gpu
@pytest.mark.skipif(not has_everything(), reason="needs a CUDA device and Triton")
def test_on_a_gpu_a_recording_that_fails_has_updated_nothing(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    step, recorded = FastSteps._step, []

    def ask(self: FastSteps, size: Any, places: Tensor | None = None, check: bool = False) -> Tensor:
        if places is not None:
            recorded.append(float(places.sum()))  # no recorded step may wait for a value
        return step(self, size, places, check)

    plain, path = (Run(tiny, "cuda", "bf16") for _ in range(2))
    plain.plain()
    monkeypatch.setattr(FastSteps, "_step", ask)
    with caplog.at_level(logging.WARNING):
        taken = path.plain(fast=True)
    assert len(taken) == TOTAL and recorded == []
    assert [message for message in caplog.messages if "the fast path cannot go on" in message]
    counts = {float(state["step"]) for state in path.optimizer.optimizer.state.values()}
    assert counts == {0, TOTAL}, "each step was taken once"
    assert plain.moved(path) < 0.2
