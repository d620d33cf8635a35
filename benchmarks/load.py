"""The server under load: many connections at once, every answer checked, memory watched, and an end by SIGTERM.

    python3 benchmarks/load.py minilm-onnx minilm-int8 --texts path/to/SST-2/test.parquet --out serving-load.json

The server runs in a process of its own and is asked from here, over connections that are kept open. Each sends its next
request when it has the answer to its last. A request has one text; every tenth has eight, and every tenth a pair where
the model has tasks for pairs. On a machine of two cores both processes share them.

- load: requests a second, latencies, errors by kind, answers compared with those of `understill.load` in this process,
  and the server's memory second by second.
- end: SIGTERM under the same load. A request is lost when it was sent whole and no whole answer came back. Clients that
  connect anew for each request are counted apart, since theirs may be waiting to be accepted.
- batching: a server that passes many rows at once, beside one that passes them one by one (`--batch 1`) and beside
  one that does so with a worker for each core, in turns. One row at a time keeps one core busy, so the second tells
  what batching and the other cores bring together, and the third what is left where all cores are busy anyway.

Without a model it makes one, small and untrained.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from _side_by_side import show, write
from efficiency import read_sentences
from understill.data.vocabulary import word_tokenizer
from understill.export.onnx_graph import write_onnx
from understill.loading import load
from understill.models.folder import load_model, save_model
from understill.models.multitask import MultiTaskModel
from understill.models.words import WordEncoder, WordsConfig
from understill.recipe.schema import HeadsSpec
from understill.tasks import Task

#: Answers are the same when no probability or score is further apart than this; float sums hang on their order.
CLOSE = 1e-4
SEVERAL = 8
#: How servers are set beside each other, by their options.
WAYS: dict[str, tuple[object, ...]] = {
    "on": (),
    "off": ("--batch", 1),
    "off, a worker for each core": ("--batch", 1, "--workers", len(os.sched_getaffinity(0))),
}


# Questions -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Question:
    """A request as it goes over the wire, and what the model says to it without a server."""

    sent: bytes
    rows: int
    want: list[dict[str, Any]]


def questions(model: Path, texts: Sequence[str], mixed: bool) -> list[Question]:
    """Put texts into requests, most of them of one text, and answer all of them here."""
    answerer = load(model)
    single, pair = bool(answerer.choose(None, False)), bool(answerer.choose(None, True))
    draw, found, place = random.Random(0), [], 0
    asked: list[tuple[list[str], list[str] | None]] = []
    while place + 2 * SEVERAL <= len(texts):
        chance = draw.random() if mixed else 1.0
        rows = SEVERAL if chance < 0.1 else 1
        first, second = texts[place : place + rows], texts[place + rows : place + 2 * rows]
        paired = pair and (not single or 0.1 <= chance < 0.2)
        asked.append((list(first), list(second) if paired else None))
        place += 2 * rows if paired else rows
    for paired in (False, True):
        chosen = [each for each in asked if (each[1] is not None) == paired]
        if not chosen:
            continue
        ones = [text for each, _ in chosen for text in each]
        others = [text for _, each in chosen for text in each or ()] if paired else None
        said = answerer.predict(ones, others)
        rows = iter([{name: answers[row] for name, answers in said.items()} for row in range(len(ones))])
        for own, seconds in chosen:
            want = [{name: vars(answer) for name, answer in next(rows).items()} for _ in own]
            body = json.dumps({"texts": own} | ({"pairs": seconds} if paired else {})).encode()
            head = (
                f"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
            )
            found.append(Question(head.encode() + b"\r\n\r\n" + body, len(own), want))
    draw.shuffle(found)
    return found


def apart(question: Question, body: bytes) -> tuple[float, bool]:
    """Return how far an answer is from the one that was given here, and whether all labels are the same."""
    farthest, same = 0.0, True
    said = json.loads(body)["answers"]
    assert len(said) == len(question.want)
    for one, other in zip(said, question.want, strict=True):
        assert set(one) == set(other)
        for name, answer in other.items():
            if answer["label"] is None:
                farthest = max(farthest, abs(one[name]["score"] - answer["score"]))
                continue
            same = same and one[name]["label"] == answer["label"]
            pairs = [(one[name]["probabilities"][label], p) for label, p in answer["probabilities"].items()]
            farthest = max(farthest, *(abs(a - b) for a, b in pairs))
    return farthest, same


# The server's side ---------------------------------------------------------------------------------------------------


@contextmanager
def server(model: Path, *options: object) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A server in a process of its own, and its port."""
    command = [sys.executable, "-m", "understill", "serve", model, "--port", 0, "--log", "errors", *options]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert process.stdout
            line = process.stdout.readline()
            if not line:
                log.seek(0)
                raise SystemExit(f"the server did not start:\n{log.read()}")
            yield process, int(line.rpartition(":")[2])
        finally:
            process.kill()
            process.wait()


def family(process: int) -> list[int]:
    """Return a process and those it has started."""
    found = [process]
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        found += [each for child in task.read_text().split() for each in family(int(child))]
    return found


def memory(process: int) -> float:
    """Return the MiB that a server and its workers hold."""
    total = 0
    for each in family(process):
        status = Path(f"/proc/{each}/status").read_text()
        total += int(re.search(r"VmRSS:\s+(\d+)", status)[1])  # type: ignore[index]
    return total / 1024


def cpu(process: int) -> float:
    """Return the seconds of a core that a server and its workers have taken."""
    total = 0
    for each in family(process):
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


# The clients' side ---------------------------------------------------------------------------------------------------


@dataclass
class Told:
    """What the clients met with."""

    milliseconds: list[float] = field(default_factory=list)
    answers: list[tuple[int, bytes]] = field(default_factory=list)  # number of the question, body
    rows: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    turned_away: int = 0  # clients that could not connect any more


class NotSent(Exception):
    """The connection was closed before anything was sent."""


class Client(asyncio.Protocol):
    """One connection; `ask` sends a request and waits for the whole answer."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.answer: asyncio.Future[tuple[int, bytes, bool]] | None = None
        self.size = -1
        self.open = True

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data
        if self.size < 0:
            end = self.data.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self.data[:end]).lower()
            self.status = int(head[9:12])
            self.closing = b"\r\nconnection: close" in head
            self.size = end + 4 + int(re.search(rb"content-length: (\d+)", head)[1])  # type: ignore[index]
            self.start = end + 4
        if len(self.data) >= self.size and self.answer and not self.answer.done():
            self.answer.set_result((self.status, bytes(self.data[self.start : self.size]), self.closing))

    def connection_lost(self, error: Exception | None) -> None:
        self.open = False
        if self.answer and not self.answer.done():
            self.answer.set_exception(error or ConnectionResetError("closed"))

    async def ask(self, sent: bytes) -> tuple[int, bytes, bool]:
        """Send a request and return status and body, and whether the server is about to close the connection."""
        self.data.clear()
        self.size = -1
        self.answer = asyncio.get_running_loop().create_future()
        if not self.open:
            raise NotSent
        self.transport.write(sent)
        return await self.answer


async def client(
    port: int, turns: Iterator[int], asked: Sequence[Question], told: Told, until: float, keep: bool
) -> None:
    """Ask one request after the other until it is time, or until nobody answers any more."""
    loop = asyncio.get_running_loop()
    connection: Client | None = None
    while time.perf_counter() < until:
        if connection is None or not connection.open:
            try:
                _, connection = await loop.create_connection(Client, "127.0.0.1", port)
            except ConnectionRefusedError:
                told.turned_away += 1
                return
            except OSError as error:
                told.errors[f"connecting: {type(error).__name__}"] += 1
                continue
        number = next(turns)
        began = time.perf_counter()
        try:
            status, body, closing = await connection.ask(asked[number].sent)
        except NotSent:
            connection = None
            continue
        except OSError as error:
            told.lost += 1
            told.errors[type(error).__name__] += 1
            connection = None
            continue
        told.milliseconds.append(1000 * (time.perf_counter() - began))
        told.statuses[status] += 1
        if status == 200:
            told.rows += asked[number].rows
            told.answers.append((number, body))
        if closing or not keep:
            connection.transport.close()
            connection = None
    if connection:
        connection.transport.close()


async def press(
    port: int, asked: Sequence[Question], seconds: float, clients: int, *, keep: bool = True, stop: int | None = None
) -> tuple[Told, float]:
    """Let clients ask for so long; `stop` is a process that gets SIGTERM when a third of the time has passed."""
    told, began = Told(), time.perf_counter()
    turns = itertools.cycle(range(len(asked)))
    running = [client(port, turns, asked, told, began + seconds, keep) for _ in range(clients)]
    if stop:
        asyncio.get_running_loop().call_later(seconds / 3, os.kill, stop, signal.SIGTERM)
    await asyncio.gather(*running)
    return told, time.perf_counter() - began


# What is measured ----------------------------------------------------------------------------------------------------


def under_load(model: Path, texts: Sequence[str], options: argparse.Namespace) -> dict[str, Any]:
    """Ask for a long time, check every answer and watch the memory."""
    asked = questions(model, texts, mixed=True)

    async def measure(port: int, process: int) -> tuple[Told, float, list[float], float, float]:
        await press(port, asked, min(3.0, options.seconds / 4), options.connections)
        watched: list[float] = []

        async def watch() -> None:
            while True:
                watched.append(round(memory(process), 1))
                await asyncio.sleep(max(0.1, options.seconds / 60))

        watching = asyncio.create_task(watch())
        before, own = cpu(process), time.process_time()
        told, seconds = await press(port, asked, options.seconds, options.connections)
        watching.cancel()
        return told, seconds, watched, cpu(process) - before, time.process_time() - own

    with server(model, *options.serve) as (process, port):
        told, seconds, watched, theirs, ours = asyncio.run(measure(port, process.pid))
    checked = [apart(asked[number], body) for number, body in told.answers]
    half = len(watched) // 2
    return {
        "part": "load",
        "model": model.name,
        "connections": options.connections,
        "seconds": round(seconds, 2),
        "requests": sum(told.statuses.values()),
        "requests_per_second": round(sum(told.statuses.values()) / seconds, 1),
        "rows_per_second": round(told.rows / seconds, 1),
        "milliseconds": percentiles(told.milliseconds),
        "statuses": dict(told.statuses),
        "errors": dict(told.errors),
        "answers_checked": len(checked),
        "answers_apart": sum(far > CLOSE for far, _ in checked),
        "labels_apart": sum(not same for _, same in checked),
        "farthest_apart": max(far for far, _ in checked),
        "memory_mib": watched,
        "memory_grown": round(statistics.mean(watched[half:]) - statistics.mean(watched[:half]), 1),
        "cores_of_server": round(theirs / seconds, 2),
        "cores_of_clients": round(ours / seconds, 2),
    }


def to_the_end(model: Path, texts: Sequence[str], options: argparse.Namespace, keep: bool) -> dict[str, Any]:
    """Send SIGTERM under load and count what is lost."""
    asked = questions(model, texts, mixed=True)
    total, codes, ends = Told(), Counter[int](), []
    for _ in range(options.ends):
        with server(model, *options.serve) as (process, port):
            seconds = 3.0 if options.small else 6.0
            pressing = press(port, asked, seconds, options.connections, keep=keep, stop=process.pid)
            told, _ = asyncio.run(pressing)
            codes[process.wait(timeout=60)] += 1
        ends.append(sum(told.statuses.values()))
        total.lost += told.lost
        total.turned_away += told.turned_away
        total.statuses += told.statuses
        total.errors += told.errors
    return {
        "part": "end",
        "model": model.name,
        "connections": options.connections,
        "keep_alive": keep,
        "ends": options.ends,
        "answered": ends,
        "lost": total.lost,
        "statuses": dict(total.statuses),
        "errors": dict(total.errors),
        "clients_turned_away": total.turned_away,
        "exit_codes": dict(codes),
    }


def with_and_without(model: Path, texts: Sequence[str], options: argparse.Namespace) -> dict[str, Any]:
    """Set a server that batches beside those that do not, in turns."""
    asked = questions(model, texts, mixed=False)
    rates: dict[str, list[float]] = {name: [] for name in WAYS}
    latencies: dict[str, list[float]] = {name: [] for name in WAYS}
    with ExitStack() as opened:
        ports = {name: opened.enter_context(server(model, *options.serve, *more))[1] for name, more in WAYS.items()}
        for turn in range(options.rounds + 1):
            for name, port in ports.items():
                told, seconds = asyncio.run(press(port, asked, options.round_seconds, options.connections))
                assert set(told.statuses) <= {200, 503} and not told.errors, told
                if turn:
                    rates[name].append(round(told.statuses[200] / seconds, 1))
                    latencies[name] += told.milliseconds
    ratios = {
        name: [round(one / other, 2) for one, other in zip(rates["on"], rates[name], strict=True)]
        for name in list(WAYS)[1:]
    }
    return {
        "part": "batching",
        "model": model.name,
        "connections": options.connections,
        "rounds": options.rounds,
        "seconds_of_a_round": options.round_seconds,
        "requests_per_second": rates,
        "milliseconds": {name: percentiles(found) for name, found in latencies.items()},
        "ratio": {name: round(statistics.median(each), 2) for name, each in ratios.items()},
        "ratios": ratios,
    }


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Return the middle, the far and the very far values."""
    ordered = sorted(values)
    return {
        name: round(ordered[min(len(ordered) - 1, int(part * len(ordered)))], 2)
        for name, part in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("most", 1.0))
    }


def small_model(folder: Path, texts: Sequence[str]) -> Path:
    """Make a small model of two tasks and export it."""
    tasks = (
        Task("mood", "classification", ("text",), "label", labels=("calm", "upset")),
        Task("alike", "regression", ("one", "two"), "label", range=(0.0, 5.0)),
    )
    tokenizer = word_tokenizer(texts, 5000)
    encoder = WordEncoder(WordsConfig("bilstm", vocab_size=len(tokenizer), size=32, hidden=32, dense=32))
    model = MultiTaskModel(encoder, tasks, HeadsSpec())
    save_model(folder / "model", model, tokenizer, {task.name: 64 for task in tasks}, "{}\n", {})
    (folder / "small").mkdir()
    write_onnx(load_model(folder / "model"), tasks, folder / "small")
    return folder / "small"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="*", help="ONNX exports")
    parser.add_argument("--texts", type=Path, help="a Parquet file; SST-2's or the demo's if not given")
    parser.add_argument("--connections", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rounds", type=int, default=3, help="how often servers with and without batching take turns")
    parser.add_argument("--round-seconds", type=float, default=8.0)
    parser.add_argument("--ends", type=int, default=3, help="how often SIGTERM is sent")
    parser.add_argument("--parts", default="load,end,batching", help="which parts to measure")
    parser.add_argument("--serve", default="", help="further options of the server, such as '--workers 2'")
    parser.add_argument("--small", action="store_true", help="a size of seconds")
    parser.add_argument("--out", type=Path, help="write the figures here, as JSON")
    options = parser.parse_args(arguments)
    options.serve = options.serve.split()
    if options.small:
        options.connections, options.seconds, options.rounds, options.round_seconds, options.ends = 20, 1.0, 1, 1.0, 1
    texts = read_sentences(options.texts, 4096)
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for model in options.models or [small_model(Path(folder), texts)]:
            for part in options.parts.split(","):
                if part == "load":
                    found.append(under_load(model, texts, options))
                elif part == "end":
                    found += [to_the_end(model, texts, options, keep) for keep in (True, False)]
                elif part == "batching":
                    found.append(with_and_without(model, texts, options))
                tell(found)
    settings = {"connections": options.connections, "texts": len(texts), "serve": options.serve}
    write(options.out, "cpu", settings, found)


def tell(found: Sequence[dict[str, Any]]) -> None:
    """Print the figures that were taken last."""
    row = found[-1]
    if row["part"] == "load":
        lines = [[name, str(value)] for name, value in row.items() if name != "memory_mib"]
        lines.append(["memory_mib", f"{row['memory_mib'][0]} at first, {row['memory_mib'][-1]} at last"])
        show(f"{row['model']} under load", 2, ["what", "figure"], lines)
    elif row["part"] == "end":
        lines = [[name, *(str(each[name]) for each in found[-2:])] for name in row]
        show(f"{row['model']}, SIGTERM under load", 3, ["what", "kept open", "anew"], lines)
    else:
        lines = [
            [
                name,
                f"{statistics.median(row['requests_per_second'][name]):,.0f}",
                f"{row['ratio'][name]} ({min(row['ratios'][name])} to {max(row['ratios'][name])})"
                if name != "on"
                else "",
                str(row["milliseconds"][name]),
            ]
            for name in WAYS
        ]
        show(f"{row['model']}: batching", 1, ["batching", "requests/s", "on is so many times it", "ms"], lines)


if __name__ == "__main__":
    main()
