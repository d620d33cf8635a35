"""Fuzzing: whatever a recipe, a data file or a model's folder holds, or a client sends, it is taken, or refused.

Refused means one UserError, or an HTTP status from 400 to 499.

`python tests/fuzzing.py --inputs 100000` prints what became of every kind of input; `--seed` repeats it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gzip
import io
import json
import os
import random
import re
import signal
import socket
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from kinds import FOLLOWS, MOOD, STARS, TASKS, TEXTS, save_kind
from serving import Served, serving
from understill.atomic import CHECKSUMS, fault_of, seal
from understill.data.check import Check, Rules
from understill.data.files import data_file
from understill.data.read import read_rows
from understill.data.recipe_draft import draft_recipe
from understill.errors import UserError
from understill.export.huggingface import write_classifier
from understill.export.onnx_graph import write_onnx
from understill.inference.loading import load
from understill.inference.predictor import Predictor
from understill.models.folder import load_model
from understill.models.manifest import read_manifest
from understill.recipe import load_recipe, make_recipe
from understill.recipe.schema import LlmServer
from understill.tasks.cells import Fault
from understill.teachers.llm.answers import read_reply
from understill.teachers.llm.cache import AnswerCache, LlmReply
from understill.teachers.llm.client import Ask, LlmClient, NoAnswer, Refused
from understill.teachers.predictions import read_predictions

RECIPES = Path(__file__).parents[1] / "recipes"
#: Seconds that no input may take; far more than any does on a busy machine.
LIMIT = 60
#: How many of a hundred inputs are of each kind: quick ones are many.
SHARES = {
    "recipe text": 20,
    "recipe values": 30,
    "data file": 20,
    "predictions": 9,
    "chat completion": 2,
    "HTTP bytes": 4,
    "manifest": 7,
    "checksums": 5,
    "model folder": 1,
    "safetensors header": 1,
    "ONNX export": 0.6,
    "Hugging Face export": 0.4,
}
#: What people and attackers write where something else belongs.
STRANGE: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**70), 10**7, 0.5, -1.5, 1e308, float("nan"), float("inf"), "", " ",
    "auto", "none", "each", "x" * 300, "../../x", "/etc/passwd", "a\0b", "~", "~nobody/x", "*", "**/*", "[", "=1+1",
    "ㅎㅏㄴ", "한", "é", "\u202e", "\ud83d\ude42", "²", "Ⅷ", "١", "-", ".", "a.b", "{}", "<<", "&a", "*a", "!!set", "%",
    "\t", "1e400", [], [[]], [[], [1]], [None], ["a", "a"], {}, {"": ""}, {"a": {"a": {"a": 1}}}, {"name": 1},
    {"type": "trained"}, {"grid": {"training": {"lr": [1]}}}, [{}], [0, 1], [1, 0], "minilm", "mood", "student", "tab",
)  # fmt: skip
#: Sound requests: a short one, one of a known length, one in chunks, two at once, one that waits to be told to go on.
REQUESTS = tuple(
    request.replace("\n", "\r\n").encode()
    for request in (
        "GET /v1/tasks HTTP/1.1\nHost: localhost\nAccept: */*\n\n",
        "POST /v1/predict HTTP/1.1\nHost: localhost\nContent-Type: application/json\nContent-Length: 42\n\n"
        '{"texts": ["good", "bad"], "tasks": null }',
        "POST /v1/predict HTTP/1.1\nHost: [::1]:80\nContent-Type: application/json\nTransfer-Encoding: chunked\n\n"
        'b\n{"texts": "\n4\ngood\n2\n"}\n0\n\n',
        "GET /healthz HTTP/1.1\nHost: localhost\n\nHEAD /page/page.js HTTP/1.1\nHost: localhost\nRange: bytes=0-9\n\n",
        "POST /v1/predict HTTP/1.0\nHost: localhost\nContent-Type: application/json\nExpect: 100-continue\n"
        'Content-Length: 17\nConnection: close\n\n{"texts": "good"}',
    )
)
#: What a language model's server answers.
TOP = {
    "token": "calm",
    "logprob": -0.1,
    "top_logprobs": [{"token": "calm", "logprob": -0.1}, {"token": "up", "logprob": -2.3}],
}
COMPLETION = {
    "choices": [{"message": {"role": "assistant", "content": "calm"}, "logprobs": {"content": [TOP]}}],
    "usage": {"prompt_tokens": 12, "completion_tokens": 1},
}


@dataclass
class Tally:
    """What became of the inputs of each kind."""

    taken: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    slowest: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{'kind':20} {'inputs':>8} {'taken':>8} {'refused':>8}  slowest"]
        for kind in sorted(self.slowest):
            taken, refused = self.taken[kind], self.refused[kind]
            lines.append(f"{kind:20} {taken + refused:8,} {taken:8,} {refused:8,}  {self.slowest[kind]:.2f} s")
        taken, refused = self.taken.total(), self.refused.total()
        lines.append(f"{'all':20} {taken + refused:8,} {taken:8,} {refused:8,}  {len(self.failures)} failures")
        return "\n".join([*lines, *self.failures])


class Fuzz:
    """Sound inputs of every kind, and what reads them; each is changed at random, and by its number alone."""

    def __init__(self, root: Path, seed: int = 0) -> None:
        self.root, self.seed = root, seed
        self.recipes = [path.read_text(encoding="utf-8") for path in sorted(RECIPES.glob("*.yaml"))]
        self.values = [yaml.safe_load(text) for text in self.recipes]
        model = save_kind(root / "model", "bert", TASKS)
        words = save_kind(root / "words", "bilstm", TASKS[:3])
        (root / "onnx").mkdir()
        write_onnx(load_model(model), TASKS, root / "onnx")
        write_classifier(load_model(model), MOOD, root / "plain")
        self.folders = {path: _contents(path) for path in (model, words, root / "onnx", root / "plain")}
        self.model, self.words, self.onnx, self.plain = self.folders
        self.files, self.answers = dict(_data_files()), AnswerCache(root / "answers")
        self.kinds: dict[str, Callable[[random.Random], None]] = {
            "recipe text": self.recipe_text,
            "recipe values": self.recipe_values,
            "data file": self.data_file,
            "predictions": self.predictions,
            "chat completion": self.completion,
            "HTTP bytes": self.http,
            "manifest": self.manifest,
            "checksums": self.checksums,
            "model folder": self.model_folder,
            "safetensors header": self.header,
            "ONNX export": self.onnx_export,
            "Hugging Face export": self.classifier,
        }
        assert set(self.kinds) == set(SHARES)
        self.server = contextlib.ExitStack()
        self.served: Served | None = None

    def run(self, inputs: int, only: str | None = None) -> Tally:
        """Try so many inputs, of each kind its share, or all of one kind."""
        tally = Tally()
        for kind, share in ({only: 100.0} if only else SHARES).items():
            for number in range(max(2, round(inputs * share / 100))):
                self.one(kind, number, tally)
        return tally

    def one(self, kind: str, number: int, tally: Tally) -> None:
        """Try one input; anything but a UserError is a failure."""
        began = time.perf_counter()
        try:
            with _at_most(LIMIT):
                self.kinds[kind](random.Random(f"{self.seed} {kind} {number}"))
            tally.taken[kind] += 1
        except UserError as error:
            assert str(error).strip(), "a refusal says why"
            tally.refused[kind] += 1
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a panic of Rust is no Exception
            where = "".join(traceback.format_exception(error)[-6:])
            tally.failures.append(f"{kind} {number}: {type(error).__name__}: {str(error)[:300]}\n{where}")
        tally.slowest[kind] = max(tally.slowest.get(kind, 0.0), time.perf_counter() - began)

    # Recipes ---------------------------------------------------------------------------------------------------------

    def recipe_text(self, rng: random.Random) -> None:
        """A recipe file whose text was changed, perhaps with a `--set`."""
        path = self.root / "recipe.yaml"
        path.write_bytes(changed_bytes(rng, changed_text(rng, rng.choice(self.recipes)).encode("utf-8", "replace")))
        keys = ("tasks", "teachers", "0", "1", "seeds", "student", "training", "lr", "grid", "mood", "²", "name", "")
        sets = [".".join(rng.choices(keys, k=rng.randint(1, 5))) + "=" + str(rng.choice(STRANGE))[:300]]
        load_recipe(path, tuple(sets) if rng.random() < 0.3 else ())

    def recipe_values(self, rng: random.Random) -> None:
        """A recipe with other values in it."""
        values = changed_json(rng, rng.choice(self.values), rng.choice(self.values))
        make_recipe(values if isinstance(values, dict) else {"tasks": values})

    # Data ------------------------------------------------------------------------------------------------------------

    def written(self, rng: random.Random) -> Path:
        """Write a changed data file."""
        name = rng.choice(sorted(self.files))
        path = self.root / name
        path.write_bytes(changed_bytes(rng, self.files[name]))
        return path

    def data_file(self, rng: random.Random) -> None:
        """A file of rows: read and checked as training does, or looked at as `init` does."""
        path = self.written(rng)
        if rng.random() < 0.2:
            draft_recipe([path])
            return
        task = rng.choice((MOOD, STARS, FOLLOWS))
        encoding = rng.choice((None, None, None, "cp949", "utf-16", "latin-1"))
        check, used = Check(task, Rules()), 0
        for row in read_rows(data_file(path, encoding), [*task.text, "label"]):
            with contextlib.suppress(Fault):
                if not row.fault:
                    used += check(row.values) is not None
        with contextlib.suppress(Fault):
            check.reader.facts(used)

    def predictions(self, rng: random.Random) -> None:
        """A file of another model's answers."""
        path = self.written(rng)
        labels = {} if rng.random() < 0.7 else {"calm": "calm", "upset": rng.choice(("upset", "calm", "x"))}
        task, values = rng.choice((MOOD, STARS, FOLLOWS)), rng.choice(("auto", "logits", "probabilities"))
        read_predictions("llm", [data_file(path)], task, labels, values)

    def completion(self, rng: random.Random) -> None:
        """What a language model's server answers."""
        content = json.dumps(changed_json(rng, COMPLETION, COMPLETION)).encode()
        content, status = (
            changed_bytes(rng, content) if rng.random() < 0.3 else content,
            rng.choice((200, 200, 200, 404)),
        )
        server = httpx.MockTransport(lambda _: httpx.Response(status, content=content))
        settings = LlmServer(endpoint="http://localhost/v1", model="m", retries=0)

        async def ask() -> LlmReply:
            async with LlmClient("llm", settings, self.answers, "fuzz") as client:
                client._http = httpx.AsyncClient(transport=server)
                return await client.ask(Ask(f"{rng.random()}", 4))

        try:
            reply = asyncio.run(ask())
        except (NoAnswer, Refused) as error:
            raise UserError(f"no answer: {error}") from None
        read_reply(reply, MOOD.labels, MOOD.labels)

    # Clients ---------------------------------------------------------------------------------------------------------

    def http(self, rng: random.Random) -> None:
        """Bytes of a client, of which a server answers each with a status, or none, and goes on."""
        if self.served is None:
            options = ("--log", "errors")
            self.served = self.server.enter_context(serving(self.onnx, self.root, *options))
        host, port = self.served.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=30) as line:
            received = bytearray()
            with contextlib.suppress(ConnectionError):  # it may close before it has read all
                line.sendall(changed_bytes(rng, rng.choice(REQUESTS)))
                line.shutdown(socket.SHUT_WR)
                while piece := line.recv(65536):
                    received += piece
        assert self.served.process.poll() is None, "the server lives on"
        statuses = [int(each) for each in re.findall(rb"HTTP/1\.1 (\d{3}) ", received)]
        assert all(status < 500 for status in statuses), received[:500]
        if any(status >= 400 for status in statuses):
            raise UserError(f"status {max(statuses)}")

    # Models ----------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def changed(self, rng: random.Random, folder: Path, names: tuple[str, ...], sealed: bool = True) -> Iterator[None]:
        """Change a file of a folder, with checksums that fit it or not, and put it back."""
        name = rng.choice(names)
        content = self.folders[folder][name]
        if name.endswith(".json") and rng.random() < 0.8:
            values = json.loads(content)
            content = json.dumps(changed_json(rng, values, values)).encode("utf-8", "replace")
        else:
            content = changed_bytes(rng, content)
        try:
            (folder / name).write_bytes(content)
            if sealed:
                seal(folder)
            yield
        finally:
            for each in (name, CHECKSUMS):
                (folder / each).write_bytes(self.folders[folder][each])

    def manifest(self, rng: random.Random) -> None:
        """A manifest that says something else."""
        with self.changed(rng, self.model, ("understill.json",)):
            read_manifest(self.model)

    def checksums(self, rng: random.Random) -> None:
        """Checksums that say something else: they may be wrong in any way."""
        with self.changed(rng, self.words, (CHECKSUMS,), sealed=False):
            if not fault_of(self.words):
                read_manifest(self.words)

    def model_folder(self, rng: random.Random) -> None:
        """A model folder of which any file is another."""
        folder = rng.choice((self.model, self.words))
        with self.changed(rng, folder, ("config.json", "tokenizer.json", "tokenizer_config.json", "understill.json")):
            ask(load(folder))

    def header(self, rng: random.Random) -> None:
        """Weights whose header, or size, is another."""
        folder = rng.choice((self.model, self.words))
        content = self.folders[folder]["model.safetensors"]
        size = int.from_bytes(content[:8], "little")
        header = changed_json(rng, json.loads(content[8 : 8 + size]), {})
        text = json.dumps(header).encode("utf-8", "replace")
        if rng.random() < 0.3:
            text = changed_bytes(rng, text)
        length = len(text) if rng.random() < 0.8 else rng.choice((0, 2**63, 2**64 - 1, size, len(content)))
        try:
            weights = length.to_bytes(8, "little") + text + content[8 + size :]
            (folder / "model.safetensors").write_bytes(weights)
            seal(folder)
            ask(load(folder))
        finally:
            for name in ("model.safetensors", CHECKSUMS):
                (folder / name).write_bytes(self.folders[folder][name])

    def onnx_export(self, rng: random.Random) -> None:
        """An ONNX export of which any file is another."""
        with self.changed(rng, self.onnx, ("understill.json", "understill.json", "tokenizer.json", "model.onnx")):
            ask(load(self.onnx))

    def classifier(self, rng: random.Random) -> None:
        """A Hugging Face export of which any file is another."""
        with self.changed(rng, self.plain, ("config.json", "tokenizer.json", "tokenizer_config.json")):
            ask(load(self.plain))


def ask(predictor: Predictor) -> None:
    """Ask a model for whatever it says that it can."""
    single = [task.name for task in predictor.tasks if not task.pair]
    if single:
        predictor.predict(TEXTS, tasks=single[:1])


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def _data_files() -> Iterator[tuple[str, bytes]]:
    """Yield sound files of every format."""
    labels = ["calm", "upset", "1,5", "2", "yes", "-1", "open"] * 2
    rows = [
        {"id": f"{n:024x}", "text": text or "none", "premise": text, "claim": "no\nway, \"really\"", "label": label,
         "calm": 0.125 * (n % 7), "upset": 1 - 0.125 * (n % 7), "score": n % 7, "레이블": "한"}
        for n, (text, label) in enumerate(zip(TEXTS * 2, labels, strict=True))
    ]  # fmt: skip
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    for name, sign in (("a.csv", ","), ("b.csv", ";"), ("c.tsv", "\t")):
        quoted = [sign.join('"' + str(cell).replace('"', '""') + '"' for cell in row.values()) for row in rows]
        yield name, "\n".join([sign.join(rows[0]), *quoted]).encode()
    yield "d.jsonl", lines
    yield "e.jsonl.gz", gzip.compress(lines, mtime=0)
    yield "f.csv", "\n".join(f"{row['text']},{row['label']}" for row in rows).encode("utf-16")
    table = pa.Table.from_pylist(rows)
    for name, kind in (("g.parquet", pa.string()), ("h.parquet", pa.dictionary(pa.int32(), pa.string()))):
        target = io.BytesIO()
        pq.write_table(table.set_column(1, "text", table["text"].cast(kind)), target)
        yield name, target.getvalue()
    target = io.BytesIO()
    dates = pa.array([2**31 - 1, -(2**31), 0], pa.int32()).cast(pa.date32())
    times = pa.array([2**62 // 10**3, -(2**60), 0], pa.int64()).cast(pa.timestamp("us"))
    pq.write_table(pa.table({"text": dates, "label": times, "score": dates, "premise": times, "claim": dates}), target)
    yield "i.parquet", target.getvalue()


# Changes --------------------------------------------------------------------------------------------------------------


def changed_bytes(rng: random.Random, content: bytes) -> bytes:
    """Flip, drop, repeat, swap or cut some bytes, or leave them."""
    data = bytearray(content)
    for _ in range(rng.choice((0, 1, 1, 2, 4, 16))):
        if not data:
            break
        at, size = rng.randrange(len(data)), rng.choice((1, 1, 2, 8, 64))
        match rng.randrange(6):
            case 0:
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                del data[at : at + size]
            case 2:
                data[at:at] = data[at : at + size] * rng.choice((1, 1, 50))
            case 3:
                data[at:at] = rng.choice(
                    (b"\0", b'"', b"\xff\xfe", b"\xed\xa0\x80", b",", b"\n", b"\r", b"'", b"{", b"[")
                )
            case 4:
                data[at : at + size] = rng.randbytes(size)
            case 5 if rng.random() < 0.2:
                del data[at:]
    return bytes(data)


def changed_text(rng: random.Random, text: str) -> str:
    """Move, drop or repeat lines, and put strange values in the place of others."""
    lines = text.split("\n")
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(lines))
        match rng.randrange(6):
            case 0:
                del lines[at : at + rng.randint(1, 3)]
                lines = lines or [""]
            case 1:
                lines.insert(at, rng.choice(lines))
            case 2:
                lines[at] = " " * rng.randrange(5) + lines[at].lstrip()
            case 3:
                key = lines[at].partition(":")[0]
                lines[at] = f"{key}: {rng.choice(STRANGE)}"
            case 4:
                lines[at] = lines[at].replace(
                    rng.choice((":", "-", "{", "[", ",", " ")), rng.choice((":", "{", "", "&a "))
                )
            case 5:
                lines[at] += rng.choice(
                    (" *a", " &a [*a]", " <<: *a", " #", ": ", " {", " ]", "\t", " |", " >", " ---")
                )
    return "\n".join(lines)


def changed_json(rng: random.Random, values: Any, others: Any) -> Any:
    """Return plain values with some replaced, left out, renamed, repeated, or taken from elsewhere."""
    whole = json.loads(json.dumps(values))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places = list(_places(whole))
        if not places:
            break
        holder, key = rng.choice(places)
        match rng.randrange(6):
            case 0 | 1:
                holder[key] = deepcopy(rng.choice(STRANGE))
            case 2:
                del holder[key]
            case 3 if isinstance(holder, dict):
                holder[str(rng.choice(STRANGE))] = holder.pop(key)
            case 3:
                holder.insert(key, holder[key])
            case 4:
                holder[key] = [holder[key], deepcopy(rng.choice(STRANGE))]
            case 5:
                strange = list(_places(others)) or [([0], 0)]
                home, place = rng.choice(strange)
                holder[key] = json.loads(json.dumps(home[place]))
    return whole


def _places(values: Any) -> Iterator[tuple[Any, Any]]:
    """Yield where each value stands: what holds it, and its key."""
    for key in list(values) if isinstance(values, dict) else range(len(values)) if isinstance(values, list) else ():
        yield values, key
        yield from _places(values[key])


@contextlib.contextmanager
def _at_most(seconds: int) -> Iterator[None]:
    """Raise TimeoutError where something takes longer."""

    def late(*_: object) -> None:
        raise TimeoutError(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep what libraries print of their panics from the terminal."""
    sys.stdout.flush()
    kept, nothing = [os.dup(number) for number in (1, 2)], os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nothing, number)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        sys.stdout.flush()
        for number, there in enumerate(kept, 1):
            os.dup2(there, number)
            os.close(there)
        os.close(nothing)


def main() -> int:
    """Print what became of the inputs; 1 where any was a failure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=SHARES, help="one kind of input")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, quiet():
        fuzz = Fuzz(Path(folder), given.seed)
        with fuzz.server:
            tally = fuzz.run(given.inputs, given.only)
    print(tally)
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
