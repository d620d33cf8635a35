"""Damage: a small complete run whose files are damaged one at a time, and what every command makes of it."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import random
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from understill import cli, pipeline
from understill.events import Evaluated, Turn
from understill.recipe import load_recipe

#: What may come of a damaged file; only the last is a failure.
OUTCOMES = ("made again", "refused", "rewritten", "not read", "unnoticed")
#: Files for people, and those that nothing reads any more; whatever is damaged elsewhere must be noticed.
FREE = re.compile(r"README\.md|\.lock|\.at-work/|report\.(html|md)|pinned\.yaml")
#: A fingerprint or a step in a path, which is left out of the name of a file kind.
NUMBER = re.compile(r"-[0-9a-f]{16}\b|(?<=checkpoint-)\d+|(?<=best-)\d+|(?<=teachers/)\d+")


@dataclass(frozen=True)
class Scene:
    """A state of the world, the files to be damaged in it, and the command that comes after."""

    name: str
    state: Path  # a copy of the output folder
    files: tuple[Path, ...]  # relative to it
    command: tuple[str, ...]
    kept: bool = True  # whether what was made is compared, and not what is printed


@dataclass
class World:
    """A recipe with teacher, student, words, augmented rows and exports, run whole and interrupted."""

    root: Path
    encoder: Path
    scenes: list[Scene] = field(default_factory=list)

    @property
    def runs(self) -> Path:
        """Where the recipe's output lies while a command is at work."""
        return self.root / "runs"

    @property
    def recipe(self) -> Path:
        """The recipe."""
        return self.root / "recipe.yaml"

    def build(self) -> None:
        """Run the recipe whole, interrupted, and exported, and keep a copy of each state."""
        mean = {"name": str(self.encoder), "max_length": 24, "pooling": "mean"}
        words = {"name": "bilstm", "words": {"size": 8, "hidden": 8, "dense": 8}}
        values = {
            "name": "whole",
            "data": {"demo": 40},
            "tasks": ["mood", "similar"],
            "encoder": {"name": str(self.encoder), "max_length": 24},
            "teachers": [
                {"name": "plain", "training": {"lr": "auto", "keep": "best"}},
                {"name": "pooled", "teaches": ["mood"], "encoder": mean},
            ],
            "targets": {"weak": "keep"},
            "student": {"encoder": words, "augment": {"times": 2, "pos": 0}, "baseline": False},
            "training": {"steps": 6, "batch": 8, "lr": 1e-3, "evaluate": "2 steps", "checkpoint": "2 steps"},
            "output": {"folder": str(self.runs)},
            "machine": {"device": "cpu", "threads": 1},
        }
        self.recipe.write_text(yaml.safe_dump(values), encoding="utf-8")
        self._interrupt("plain-mood")
        self._interrupt("student")
        code, _, err = self.ask("run", str(self.recipe))
        assert code == 0, err
        self._finished()
        self._exports()

    def _interrupt(self, model: str) -> None:
        """Stop the run at the second look at a model's dev sets, with a checkpoint and the best weights on disk."""
        turn, looks = [""], Counter[str]()

        def watch(event: object) -> None:
            if isinstance(event, Turn):
                turn[0] = event.model
            if isinstance(event, Evaluated):
                looks[turn[0]] += 1
                if turn[0] == model and looks[model] == 2:
                    raise KeyboardInterrupt

        try:
            pipeline.run(load_recipe(self.recipe), watch)
        except KeyboardInterrupt:
            pass
        else:
            raise AssertionError(f"{model} was not interrupted")
        self._keep(f"interrupted {model}", ("artifacts/model-*/work/**/*",), ("run", str(self.recipe)))

    def _finished(self) -> None:
        run = ("run", str(self.recipe))
        self._keep(
            "finished", ("artifacts/model-*/**/*", "artifacts/probe-*/*", "artifacts/verdict-*/*", "whole/**/*"), run
        )
        for verb, files in (
            (
                ("report", str(self.runs / "whole")),
                ("artifacts/model-*/*", "artifacts/model-*/predictions/*", "whole/run.json"),
            ),
            (("runs", str(self.runs)), ("whole/run.json",)),
        ):
            self._keep(f"finished, {verb[0]}", files, verb, kept=False)
        whole = self.root / "state-whole"
        shutil.copytree(self.runs, whole, symlinks=True)
        self._remove("model", "probe")
        made = ("artifacts/targets-*/*", "artifacts/verdict-*/*", "artifacts/augmented-*/*", "cache/words-*/*")
        self._keep("models gone", made, run)
        self._remove("targets", "verdict")
        self._keep("cache alone", ("cache/data-*/*", "cache/tokens-*/*"), run)
        shutil.rmtree(self.runs)
        shutil.move(whole, self.runs)

    def _remove(self, *kinds: str) -> None:
        for path in (path for kind in kinds for path in self.runs.glob(f"artifacts/{kind}-*")):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _exports(self) -> None:
        """Export a model in every form, and keep what is asked of the model itself and of each export."""
        text = ("--text", "The film was good", "--task", "mood")
        tree = self.runs / "whole" / "models"
        home = (tree / "plain-mood").resolve().parent.name
        self._keep("model", (f"artifacts/{home}/model/*",), ("predict", str(tree / "plain-mood"), *text), kept=False)
        for name, model, *how in (
            ("onnx", "student", "--to", "onnx"),
            ("int8", "plain-mood", "--to", "int8", "--limit", "100"),
            ("classifier", "plain-mood", "--to", "huggingface"),
            ("sentences", "pooled-mood", "--to", "huggingface"),
        ):
            place = self.runs / "exports" / name
            code, _, err = self.ask("export", str(tree / model), *how, "--out", str(place))
            assert code == 0, err
            self._keep(name, (f"exports/{name}/**/*",), ("predict", str(place), *text), kept=False)

    def _keep(self, name: str, patterns: Sequence[str], command: tuple[str, ...], kept: bool = True) -> None:
        state = self.root / f"state-{len(self.scenes)}"
        shutil.copytree(self.runs, state, symlinks=True)
        paths = {path for pattern in patterns for path in state.glob(pattern) if path.is_file() and path.stat().st_size}
        files = tuple(sorted(path.relative_to(state) for path in paths if not path.is_symlink()))
        self.scenes.append(Scene(name, state, files, command, kept))

    def restore(self, scene: Scene) -> None:
        """Put the output folder back into a state."""
        shutil.rmtree(self.runs, ignore_errors=True)
        shutil.copytree(scene.state, self.runs, symlinks=True)

    def ask(self, *arguments: str) -> tuple[int, str, str]:
        """Run the program in this process: exit code, what it prints, what it warns of or refuses."""
        out, err = io.StringIO(), io.StringIO()
        with _warnings(err), redirect_stdout(out), redirect_stderr(err):
            try:
                cli.main(list(arguments))
            except SystemExit as stop:
                return int(stop.code or 0), out.getvalue(), err.getvalue()
        raise AssertionError("it did not end")


def results_in(runs: Path, name: str) -> dict[str, Any]:
    """Return all that a run comes to: weights, answers, targets and scores, without times."""
    patterns = ("model-*/model/model.safetensors", "model-*/predictions/*.parquet", "targets-*/*.parquet")
    files = [path for pattern in patterns for path in runs.glob(f"artifacts/{pattern}")]
    files += runs.glob(f"{name}/teachers/*/*.parquet")
    digests = {str(path.relative_to(runs)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    record = json.loads((runs / name / "run.json").read_text(encoding="utf-8"))
    return {**digests, "run.json": _timeless(record)}


def _timeless(values: Any) -> Any:
    """Return facts without times, and without checksums of them."""
    if isinstance(values, dict):
        times = ("seconds", "started", "finished", "checksum")
        return {name: _timeless(value) for name, value in values.items() if name not in times}
    return [_timeless(value) for value in values] if isinstance(values, list) else values


@contextmanager
def _warnings(stream: io.StringIO) -> Iterator[None]:
    handler = logging.StreamHandler(stream)
    handler.setLevel(logging.WARNING)
    logger = logging.getLogger("understill")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def damage(path: Path, chance: random.Random) -> str:
    """Flip a random bit of a file, or cut it short."""
    content = bytearray(path.read_bytes())
    if chance.random() < 0.3:
        size = chance.randrange(len(content))
        os.truncate(path, size)
        return f"cut to {size} of {len(content)} bytes"
    place, bit = chance.randrange(len(content)), chance.randrange(8)
    content[place] ^= 1 << bit
    path.write_bytes(content)
    return f"bit {bit} of byte {place} of {len(content)}"


@dataclass(frozen=True)
class Trial:
    """One damaged file and what came of it."""

    scene: str
    kind: str
    what: str
    outcome: str
    reported: str


class Trials:
    """Damages files of every kind of every scene, in turn, and sorts what comes of it."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.chance = world, random.Random(seed)
        self.wanted: dict[str, Any] = {}

    def _expected(self, scene: Scene) -> Any:
        self.world.restore(scene)
        code, out, err = self.world.ask(*scene.command)
        assert code == 0, (scene.name, err)
        return results_in(self.world.runs, "whole") if scene.kept else {"printed": out}

    def run(self, count: int) -> list[Trial]:
        """Damage so many files, each kind of file about equally often, and at least once where there is room."""
        kinds: dict[tuple[int, str], list[Path]] = {}
        for number, scene in enumerate(self.world.scenes):
            for path in scene.files:
                kinds.setdefault((number, NUMBER.sub("-…" if "-" in str(path) else "…", str(path))), []).append(path)
        order = list(kinds)
        self.chance.shuffle(order)
        chosen = [order[index % len(order)] for index in range(count)]
        return [
            self._one(self.world.scenes[number], kind, self.chance.choice(kinds[number, kind]))
            for number, kind in chosen
        ]

    def _one(self, scene: Scene, kind: str, file: Path) -> Trial:
        if scene.name not in self.wanted:
            self.wanted[scene.name] = self._expected(scene)
        self.world.restore(scene)
        path = self.world.runs / file
        what = damage(path, self.chance)
        spoilt = path.read_bytes()
        try:
            code, out, err = self.world.ask(*scene.command)
        except Exception as error:  # a bug is as bad as a wrong result
            return Trial(scene.name, kind, what, "unnoticed", f"{type(error).__name__}: {error}")
        named = any(part in err for part in (file.name, *file.parts[1:2]))
        if code == 2 and named:
            return Trial(scene.name, kind, what, "refused", err)
        wanted = self.wanted[scene.name]
        result = {} if code else results_in(self.world.runs, "whole") if scene.kept else {"printed": out}
        if result != wanted:
            differing = [name for name in {**wanted, **result} if wanted.get(name) != result.get(name)]
            return Trial(scene.name, kind, what, "unnoticed", f"exit {code}, {differing}: {err[-500:]}")
        if path.exists() and path.read_bytes() == spoilt:
            outcome = "not read" if FREE.search(str(file)) or not scene.kept else "unnoticed"
            return Trial(scene.name, kind, what, outcome, err)
        return Trial(scene.name, kind, what, "made again" if named else "rewritten", err)


def as_table(trials: Sequence[Trial]) -> str:
    """Count outcomes by scene and kind of file."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    for trial in trials:
        counts.setdefault((trial.scene, trial.kind), Counter())[trial.outcome] += 1
    lines = [f"{'state':<20} {'file':<62} " + " ".join(f"{name:>10}" for name in OUTCOMES)]
    for (scene, kind), result in sorted(counts.items()):
        lines.append(f"{scene:<20} {kind:<62} " + " ".join(f"{result[name] or '':>10}" for name in OUTCOMES))
    total = Counter(trial.outcome for trial in trials)
    lines.append(f"{'all':<20} {len(trials):<62} " + " ".join(f"{total[name]:>10}" for name in OUTCOMES))
    return "\n".join(lines)
