"""The engine runs each stage after what it needs, and nothing that nobody needs; no stage holds two locks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from hypothesis import given
from hypothesis import strategies as st

import understill
from understill import pipeline
from understill.artifact import Artifact
from understill.engines.local import run_stages
from understill.errors import UserError
from understill.events import Event, Timed, Watch
from understill.pipeline import stage as stage_module
from understill.pipeline.graph import required, study_stages, wanted_keys
from understill.pipeline.record import read_record
from understill.pipeline.stage import Resources, Stage, StageClock
from understill.recipe import Recipe
from understill.recipe.schema import Machine

CPU = Machine(device="cpu")


class Log:
    """Stages that write down when they are run."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def stage(self, key: str, *needs: str, done: bool = False, dropped: bool = False, rows: float = 0.0) -> Stage:
        def run(watch: Watch) -> Generator[None]:
            yield
            self.ran.append(key)

        resources = Resources(places=1, rows=rows)
        return Stage(
            "train", key, key, needs, run, done=lambda: done, dropped=lambda: dropped, resources=resources
        )  # fmt: skip


@given(st.data())
def test_every_stage_runs_once_and_after_all_that_it_needs(data: st.DataObject) -> None:
    log, stages = Log(), []
    for number in range(data.draw(st.integers(1, 8))):
        needs = data.draw(st.sets(st.sampled_from([stage.key for stage in stages]))) if stages else set()
        stages.append(log.stage(str(number), *sorted(needs)))
    listed = data.draw(st.permutations(stages))
    run_stages(listed, [stage.key for stage in stages], CPU)
    assert sorted(log.ran) == sorted(stage.key for stage in stages)
    assert all(log.ran.index(need) < log.ran.index(stage.key) for stage in stages for need in stage.needs)


def test_ready_stages_run_in_the_order_of_the_list() -> None:
    log = Log()
    run_stages([log.stage("b", "a"), log.stage("c"), log.stage("a"), log.stage("d")], ["b", "c", "d"], CPU)
    assert log.ran == ["c", "a", "b", "d"]


def test_what_a_finished_stage_needed_is_not_made_again() -> None:
    log = Log()
    stages = [log.stage("teacher"), log.stage("table", "teacher", done=True), log.stage("student", "table")]
    assert [stage.key for stage in required(stages, ["student"])] == ["table", "student"]
    run_stages(stages, ["student"], CPU)
    assert log.ran == ["table", "student"], "a stage that is done says so itself, when it is its turn"


def test_a_stage_that_a_choice_drops_is_passed_over_with_what_only_it_needs() -> None:
    log = Log()
    stages = [log.stage("words"), log.stage("tuned", "words", dropped=True), log.stage("table", "tuned")]
    run_stages(stages, ["table"], CPU)
    assert log.ran == ["table"]


def test_stages_that_wait_for_each_other_are_no_endless_loop() -> None:
    log = Log()
    with pytest.raises(AssertionError, match="wait for each other: a, b"):
        run_stages([log.stage("a", "b"), log.stage("b", "a")], ["a"], CPU)


def test_a_stage_holds_the_lock_of_what_it_makes_and_no_other(tmp_path: Path) -> None:
    artifacts = [Artifact("model", name, {"name": name}, tmp_path) for name in ("one", "two")]
    held: list[tuple[str, list[bool]]] = []

    def free(artifact: Artifact) -> bool:
        lock = FileLock(f"{artifact.folder}.lock", thread_local=False)
        try:
            with lock.acquire(timeout=0):
                return True
        except TimeoutError:
            return False

    def stage(artifact: Artifact, *needs: str) -> Stage:
        def run(watch: Watch) -> None:
            held.append((artifact.name, [free(each) for each in artifacts]))
            if artifact.name == "two":
                raise UserError("broken")

        return Stage("train", artifact.name, artifact.name, needs, run, makes=artifact)

    with pytest.raises(UserError, match="broken"):
        run_stages([stage(artifacts[0]), stage(artifacts[1], "one")], ["two"], CPU)
    assert held == [("one", [False, True]), ("two", [True, False])]
    assert all(map(free, artifacts)), "also after one that failed"


def test_what_a_dry_run_lists_is_what_is_run(make_tiny: Callable[..., Recipe]) -> None:
    recipe = make_tiny(tasks=["mood"], teachers=[{"tasks": "each"}], targets={"weak": "keep"})
    stages = study_stages(pipeline.make_study(recipe))
    assert [stage.action for stage in stages] == [
        "tokenise", "train", "evaluate", "examine", "choose", "label", "distil", "evaluate", "probe",
    ]  # fmt: skip
    keys = [stage.key for stage in stages]
    assert all(keys.index(need) < keys.index(stage.key) for stage in stages for need in stage.needs)
    assert not any(stage.done() for stage in stages)
    pipeline.run(recipe)
    assert all(stage.done() for stage in stages if stage.action != "tokenise")
    left = required(stages, wanted_keys(stages))
    assert {stage.action for stage in left} & {"tokenise", "label"} == set(), "these were there for others"


def test_at_the_first_gradient_few_frames_are_ours(
    make_tiny: Callable[..., Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, stacks = str(Path(understill.__file__).parent), list[list[str]]()

    def backward(*given: object, **settings: object) -> None:
        frame, names = sys._getframe(1), []
        while frame.f_back:
            names += [frame.f_code.co_qualname] if frame.f_code.co_filename.startswith(ours) else []
            frame = frame.f_back
        stacks.append(names)
        raise KeyboardInterrupt

    monkeypatch.setattr(torch.Tensor, "backward", backward)
    with pytest.raises(KeyboardInterrupt):
        pipeline.run_study(make_tiny())
    (stack,) = stacks
    assert len(stack) <= 10, stack  # and two of the command line
    assert stack[-1] == "run_study" and "run_stages" in stack and "train_model" in stack


def test_long_ones_and_those_that_others_wait_for_begin_first_where_several_run_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from understill.engines import local

    begun: list[str] = []

    def take(begin: Callable[[], object], places: int) -> None:
        while (job := begin()) is not None:
            list(job.steps)  # type: ignore[attr-defined]

    monkeypatch.setattr(local, "slots_on", lambda _: 4)
    monkeypatch.setattr(local, "interleave", take)

    def model(name: str, rows: float, *needs: str) -> Sequence[Stage]:
        def train(watch: Watch) -> None:
            begun.append(name)

        def score(watch: Watch) -> None:
            begun.append(f"{name}/scores")

        resources = Resources(places=1, rows=rows)
        return (
            Stage("train", name, name, needs, train, resources=resources),
            Stage("evaluate", name, f"{name}/scores", (name,), score),
        )

    stages = [*model("short", 10), *model("long", 90), *model("teacher", 50), *model("student", 70, "teacher")]
    events: list[Event] = []
    run_stages(stages, [stage.key for stage in stages], CPU, events.append)
    assert [name for name in begun if "/" not in name] == ["teacher", "long", "student", "short"]
    assert all(begun.index(f"{name}/scores") == begun.index(name) + 1 for name in ("teacher", "long", "short"))


def test_the_time_of_each_kind_of_stage_is_counted_for_it_and_together_they_are_the_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr(stage_module.time, "perf_counter", lambda: now)

    def work(seconds: float) -> None:
        nonlocal now
        now += seconds

    def train(watch: Watch) -> Generator[None]:
        for seconds in (40, 1, 2):
            work(seconds)
            yield
        work(4)

    clock = StageClock()
    work(8)
    clock.lap("plan")
    one = Stage("train", "a", "a", (), train)
    two = Stage("evaluate", "a", "a/scores", ("a",), lambda watch: work(16))
    run_stages([one, two], ["a/scores"], CPU, clock=clock)
    assert clock.seconds == {"plan": 8, "wait": 0, "train, first step": 40, "train": 7, "evaluate": 16}


def test_a_run_says_where_its_time_went_and_its_record_does_too(make_tiny: Callable[..., Recipe]) -> None:
    events: list[Event] = []
    run = pipeline.run(make_tiny(tasks=["mood"]), events.append)
    (timed,) = (event for event in events if isinstance(event, Timed))
    kinds = {"plan", "wait", "tokenise", "train, first step", "train", "evaluate", "probe, first step", "probe"}
    assert set(timed.seconds) == {*kinds, "record"}
    assert set(read_record(run.folder)["seconds"]) == kinds
