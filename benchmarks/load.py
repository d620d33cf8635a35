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
- hostile: a bystander that asks 30 times a second, half of the time over a new connection, while others attack; in
  turns with quiet times. The ratio is that of its 99th percentiles; each attack has a server of its own.
- faults: two workers under load, of which one gets SIGKILL and one SIGSTOP; then both are to end while a third is
  stopped. A request is lost to a fault if its worker was killed; any other is lost without a reason.
- peers: the same model behind LitServe and mosec, which a Python of their own has (`--peer-python`), in turns with our
  server, each started anew for each round; then what each does with SIGTERM, with requests that are too large or
  malformed, and with a bad request among good ones.

Without a model it makes one, small and untrained.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

import understill
from _clients import Client, NotSent, Outcome, Question, bystander, press
from _hostile import ATTACKS
from _side_by_side import show, write
from efficiency import read_sentences
from understill.data.word_tokenizer import word_tokenizer
from understill.export.onnx_graph import write_onnx
from understill.inference.loading import load
from understill.models.folder import load_model, save_model
from understill.models.multitask import MultiTaskModel
from understill.models.words import WordEncoder, WordsConfig
from understill.recipe.schema import HeadsSpec
from understill.tasks import Task

#: Answers are the same when no probability or score is further apart than this; float sums depend on their order.
CLOSE = 1e-4
SEVERAL = 8
PEERS = ("litserve", "mosec")
#: How servers are set beside each other, by their options.
WAYS: dict[str, tuple[object, ...]] = {
    "on": (),
    "off": ("--batch", 1),
    "off, a worker for each core": ("--batch", 1, "--workers", len(os.sched_getaffinity(0))),
}


# Questions -----------------------------------------------------------------------------------------------------------


def questions(model: Path, texts: Sequence[str], mixed: bool) -> list[Question]:
    """Put texts into requests, most of them of one text, and answer all of them here."""
    predictor = load(model)
    single, pair = bool(predictor.choose(None, False)), bool(predictor.choose(None, True))
    draw, place = random.Random(0), 0
    requests: list[Question] = []
    bodies: list[tuple[list[str], list[str] | None]] = []
    while place + 2 * SEVERAL <= len(texts):
        chance = draw.random() if mixed else 1.0
        rows = SEVERAL if chance < 0.1 else 1
        first, second = texts[place : place + rows], texts[place + rows : place + 2 * rows]
        paired = pair and (not single or 0.1 <= chance < 0.2)
        bodies.append((list(first), list(second) if paired else None))
        place += 2 * rows if paired else rows
    for paired in (False, True):
        chosen = [each for each in bodies if (each[1] is not None) == paired]
        if not chosen:
            continue
        ones = [text for each, _ in chosen for text in each]
        others = [text for _, each in chosen for text in each or ()] if paired else None
        answers = predictor.predict(ones, others)
        rows_of = iter([{name: each[row] for name, each in answers.items()} for row in range(len(ones))])
        for own, seconds in chosen:
            want = [{name: vars(answer) for name, answer in next(rows_of).items()} for _ in own]
            body = json.dumps({"texts": own} | ({"pairs": seconds} if paired else {})).encode()
            requests.append(Question(post(body), len(own), want))
    draw.shuffle(requests)
    return requests


def post(body: bytes) -> bytes:
    """Return a request with a body as it goes over the wire."""
    head = f"POST /v1/predict HTTP/1.1\r\nHost: [::1]\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


def apart(question: Question, body: bytes) -> tuple[float, bool]:
    """Return how far an answer is from the one that was given here, and whether all labels are the same."""
    farthest, same = 0.0, True
    answers = json.loads(body)["answers"]
    assert len(answers) == len(question.want)
    for one, other in zip(answers, question.want, strict=True):
        assert set(one) == set(other)
        for name, answer in other.items():
            if answer["label"] is None:
                farthest = max(farthest, abs(one[name]["score"] - answer["score"]))
                continue
            same = same and one[name]["label"] == answer["label"]
            pairs = [(one[name]["probabilities"][label], p) for label, p in answer["probabilities"].items()]
            farthest = max(farthest, *(abs(a - b) for a, b in pairs))
    return farthest, same


def check(asked: Sequence[Question], outcome: Outcome) -> dict[str, Any]:
    """Compare all answers of a server with those that were given here."""
    checked = [apart(asked[number], body) for number, body in outcome.answers]
    return {
        "answers_checked": len(checked),
        "answers_apart": sum(far > CLOSE for far, _ in checked),
        "labels_apart": sum(not same for _, same in checked),
        "farthest_apart": max((far for far, _ in checked), default=None),
    }


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


@contextmanager
def peer(python: str, name: str, model: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A server of another library in a process group of its own, and its port, as soon as it answers."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    source = str(Path(understill.__file__).parents[1])
    settings = {"PYTHONPATH": source, "PEER_MODEL": str(model.resolve()), "PEER_PORT": str(port)}
    command = [python, str(Path(__file__).with_name(f"_peer_{name}.py"))]
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "log").open("w+b") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env=os.environ | settings, cwd=folder, start_new_session=True
        )
        try:
            asyncio.run(_wait_for(port, process, log))
            yield process, port
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


async def _wait_for(port: int, process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
    """Ask until there is an answer."""
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        with suppress(OSError, TimeoutError):
            if (await asyncio.wait_for(ask_once(port, post(b'{"texts": ["good"]}')), 10))[0] == 200:
                return
        await asyncio.sleep(0.2)
    log.seek(0)
    raise SystemExit(f"the server did not start:\n{log.read().decode()[-2000:]}")


def family(process: int) -> list[int]:
    """Return a process and those it has started."""
    members = [process]
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        members += [each for child in task.read_text().split() for each in family(int(child))]
    return members


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


# What is measured ----------------------------------------------------------------------------------------------------


def under_load(model: Path, texts: Sequence[str], options: argparse.Namespace) -> dict[str, Any]:
    """Ask for a long time, check every answer and watch the memory."""
    asked = questions(model, texts, mixed=True)

    async def measure(port: int, process: int) -> tuple[Outcome, float, list[float], float, float]:
        await press(port, asked, min(3.0, options.seconds / 4), options.connections)
        watched: list[float] = []

        async def watch() -> None:
            while True:
                watched.append(round(memory(process), 1))
                await asyncio.sleep(max(0.1, options.seconds / 60))

        watching = asyncio.create_task(watch())
        before, own = cpu(process), time.process_time()
        outcome, seconds = await press(port, asked, options.seconds, options.connections)
        watching.cancel()
        return outcome, seconds, watched, cpu(process) - before, time.process_time() - own

    with server(model, *options.serve) as (process, port):
        outcome, seconds, watched, theirs, ours = asyncio.run(measure(port, process.pid))
    half = len(watched) // 2
    return {
        "part": "load",
        "model": model.name,
        "connections": options.connections,
        "seconds": round(seconds, 2),
        "requests": sum(outcome.statuses.values()),
        "requests_per_second": round(sum(outcome.statuses.values()) / seconds, 1),
        "rows_per_second": round(outcome.rows / seconds, 1),
        "milliseconds": percentiles(outcome.milliseconds),
        "statuses": dict(outcome.statuses),
        "errors": dict(outcome.errors),
        **check(asked, outcome),
        "memory_mib": watched,
        "memory_grown": round(statistics.mean(watched[half:]) - statistics.mean(watched[:half]), 1),
        "cores_of_server": round(theirs / seconds, 2),
        "cores_of_clients": round(ours / seconds, 2),
    }


Start = Callable[[], AbstractContextManager[tuple[subprocess.Popen[Any], int]]]


def to_the_end(
    start: Start, model: Path, texts: Sequence[str], options: argparse.Namespace, keep: bool
) -> dict[str, Any]:
    """Send SIGTERM under load and count what is lost."""
    asked = questions(model, texts, mixed=True)
    total, codes, answered = Outcome(), Counter[str](), []
    for _ in range(options.ends):
        with start() as (process, port):
            seconds = 3.0 if options.small else 6.0
            outcome, _ = asyncio.run(press(port, asked, seconds, options.connections, keep=keep, stop=process.pid))
            try:
                codes[str(process.wait(timeout=60))] += 1
            except subprocess.TimeoutExpired:
                codes["still running after 60 s"] += 1
        answered.append(sum(outcome.statuses.values()))
        total.lost += outcome.lost
        total.turned_away += outcome.turned_away
        total.statuses += outcome.statuses
        total.errors += outcome.errors
    return {
        "part": "end",
        "model": model.name,
        "connections": options.connections,
        "keep_alive": keep,
        "ends": options.ends,
        "answered": answered,
        "lost": total.lost,
        "statuses": dict(total.statuses),
        "errors": dict(total.errors),
        "clients_turned_away": total.turned_away,
        "exit_codes": dict(codes),
    }


def under_attack(name: str, model: Path, asked: Sequence[Question], options: argparse.Namespace) -> dict[str, Any]:
    """Ask as a bystander, in turns while there is quiet and while others attack."""
    quiet, loud, cores, results = [], [], [], Counter[str]()
    total, most = Outcome(), 0.0

    async def turn(port: int, process: int, attack: str | None) -> float:
        nonlocal most
        seconds, program = options.round_seconds, Path(__file__).with_name("_hostile.py")
        command = [sys.executable, program, attack, port, seconds + 1]
        attacker = await asyncio.create_subprocess_exec(*map(str, command), stdout=subprocess.PIPE) if attack else None
        if attacker:
            await asyncio.sleep(1.0)  # until it has begun
        before = cpu(process)
        asking = asyncio.create_task(bystander(port, asked, seconds))
        while not asking.done():
            most = max(most, memory(process))
            await asyncio.sleep(0.1)
        outcome = asking.result()
        if attacker:
            cores.append(round((cpu(process) - before) / seconds, 2))
            results.update(json.loads((await attacker.communicate())[0]))
            total.statuses += outcome.statuses
            total.errors += outcome.errors
            total.answers += outcome.answers
        return percentiles(outcome.milliseconds)["p99"]

    with server(model, *options.serve) as (process, port):
        asyncio.run(bystander(port, asked, 1.0))
        before = memory(process.pid)
        for _ in range(options.rounds):
            quiet.append(asyncio.run(turn(port, process.pid, None)))
            loud.append(asyncio.run(turn(port, process.pid, name)))
    return {
        "part": "hostile",
        "model": model.name,
        "attack": name,
        "quiet_p99": quiet,
        "attacked_p99": loud,
        "ratio": round(statistics.median(one / other for one, other in zip(loud, quiet, strict=True)), 2),
        "bystander": dict(total.statuses) | dict(total.errors),
        "attackers": dict(results),
        "cores_of_server": cores,
        "memory_mib": [round(before), round(most)],
        **check(asked, total),
    }


def with_faults(model: Path, texts: Sequence[str], options: argparse.Namespace) -> dict[str, Any]:
    """Kill one worker under load and stop another; then end the server while one is stopped."""
    asked, seconds = questions(model, texts, mixed=True), max(options.seconds, 20.0)
    faults: dict[str, float] = {}

    async def measure(port: int, process: int) -> Outcome:
        def hurt(number: signal.Signals) -> None:
            os.kill(workers(process)[0], number)
            faults[number.name] = time.perf_counter()

        loop = asyncio.get_running_loop()
        loop.call_later(seconds / 4, hurt, signal.SIGKILL)
        loop.call_later(seconds / 2, hurt, signal.SIGSTOP)
        return (await press(port, asked, seconds, options.connections))[0]

    with server(model, "--workers", 2, *options.serve) as (process, port):
        outcome = asyncio.run(measure(port, process.pid))
        os.kill(workers(process.pid)[0], signal.SIGSTOP)
        began = time.perf_counter()
        process.terminate()
        code = process.wait(timeout=120)
        ended = time.perf_counter() - began
    patience = {"SIGKILL": 2.0, "SIGSTOP": 15.0}
    lost = Counter(
        next((name for name, at in faults.items() if 0 <= when - at <= patience[name]), "without a reason")
        for when in outcome.lost_at
    )
    return {
        "part": "faults",
        "model": model.name,
        "connections": options.connections,
        "seconds": seconds,
        "statuses": dict(outcome.statuses),
        "lost": dict(lost),
        "errors": dict(outcome.errors),
        "milliseconds": percentiles(outcome.milliseconds),
        **check(asked, outcome),
        "seconds_to_end_with_a_stopped_worker": round(ended, 1),
        "exit_code": code,
    }


def workers(process: int) -> list[int]:
    """Return the workers of a server, oldest first."""
    named = [(each, Path(f"/proc/{each}/cmdline").read_bytes()) for each in family(process)[1:]]
    return sorted(each for each, command in named if b"spawn_main" in command)


def with_and_without(model: Path, texts: Sequence[str], options: argparse.Namespace) -> dict[str, Any]:
    """Set a server that batches beside those that do not, in turns."""
    asked = questions(model, texts, mixed=False)
    rates: dict[str, list[float]] = {name: [] for name in WAYS}
    latencies: dict[str, list[float]] = {name: [] for name in WAYS}
    with ExitStack() as opened:
        ports = {name: opened.enter_context(server(model, *options.serve, *more))[1] for name, more in WAYS.items()}
        for turn in range(options.rounds + 1):
            for name, port in ports.items():
                outcome, seconds = asyncio.run(press(port, asked, options.round_seconds, options.connections))
                assert set(outcome.statuses) <= {200, 503} and not outcome.errors, outcome
                if turn:
                    rates[name].append(round(outcome.statuses[200] / seconds, 1))
                    latencies[name] += outcome.milliseconds
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
        "milliseconds": {name: percentiles(each) for name, each in latencies.items()},
        "ratio": {name: round(statistics.median(each), 2) for name, each in ratios.items()},
        "ratios": ratios,
    }


def beside_peers(model: Path, texts: Sequence[str], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Set our server beside those of other libraries, in turns, and see what each does with what goes wrong."""
    starts: dict[str, Start] = {"understill": partial(server, model, *options.serve)}
    for name in PEERS:
        if version_of(options.peer_python, name):
            starts[name] = partial(peer, options.peer_python, name, model)
        else:
            print(f"{name} is left out: {options.peer_python or 'no --peer-python'} does not have it")
    asked = questions(model, texts, mixed=False)
    rates: dict[str, list[float]] = {name: [] for name in starts}
    cores_used: dict[str, list[float]] = {name: [] for name in starts}
    totals = {name: Outcome() for name in starts}
    for turn in range(options.rounds):
        for place in range(len(starts)):
            name = list(starts)[(turn + place) % len(starts)]  # each is the first as often as the others
            rate, cores = one_round(starts[name], asked, options, totals[name])
            rates[name].append(rate)
            cores_used[name].append(cores)
    rows = []
    for name, start in starts.items():
        sigterm = {way: to_the_end(start, model, texts, options, way == "kept_open") for way in ("kept_open", "anew")}
        with start() as (_, port):
            refusals = asyncio.run(probe(port))
        rows.append(
            {
                "part": "peers",
                "model": model.name,
                "server": name,
                "version": version_of(sys.executable if name == "understill" else options.peer_python, name),
                "connections": options.connections,
                "seconds_of_a_round": options.round_seconds,
                "requests_per_second": rates[name],
                "times_ours": [round(a / b, 2) for a, b in zip(rates[name], rates["understill"], strict=True)],
                "milliseconds": percentiles(totals[name].milliseconds),
                "statuses": dict(totals[name].statuses),
                "errors": dict(totals[name].errors),
                "cores_of_server": cores_used[name],
                **check(asked, totals[name]),
                "sigterm": sigterm,
                "refusals": refusals,
            }
        )
    return rows


def one_round(
    start: Start, asked: Sequence[Question], options: argparse.Namespace, total: Outcome
) -> tuple[float, float]:
    """Start a server, warm it, and press it once; return requests a second, and the cores that it took."""
    with start() as (process, port):
        asyncio.run(press(port, asked, min(2.0, options.round_seconds / 2), options.connections))
        before = cpu(process.pid)
        outcome, seconds = asyncio.run(press(port, asked, options.round_seconds, options.connections))
        cores = (cpu(process.pid) - before) / seconds
    total.milliseconds += outcome.milliseconds
    total.answers += outcome.answers
    total.statuses += outcome.statuses
    total.errors += outcome.errors
    return round(outcome.statuses[200] / seconds, 1), round(cores, 2)


def version_of(python: str | None, library: str) -> str | None:
    """Return the version of a library that a Python has; None if it has none."""
    program = f"from importlib.metadata import version; print(version('{library}'))"
    if not python:
        return None
    done = subprocess.run([python, "-c", program], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


async def ask_once(port: int, sent: bytes) -> tuple[int, bytes, bool]:
    """Send one request over a connection of its own."""
    _, connection = await asyncio.get_running_loop().create_connection(Client, "127.0.0.1", port)
    try:
        return await connection.ask(sent)
    finally:
        connection.transport.close()


async def probe(port: int) -> dict[str, Any]:
    """Send requests that should be refused, alone and among good ones; return the statuses."""

    async def status(body: bytes) -> str:
        try:
            return str((await asyncio.wait_for(ask_once(port, post(body)), 30))[0])
        except (OSError, TimeoutError, NotSent) as error:
            return type(error).__name__

    bad, good = b'{"texts": [1]}', b'{"texts": ["good"]}'
    mixed = await asyncio.gather(*(status(bad if number % 8 == 4 else good) for number in range(64)))
    return {
        "no_json": await status(b"{"),
        "a_number_as_text": await status(bad),
        "ten_thousand_rows": await status(json.dumps({"texts": ["good"] * 10_000}).encode()),
        "eight_mib": await status(json.dumps({"texts": ["a" * 2**23]}).encode()),
        "good_among_bad": dict(Counter(each for number, each in enumerate(mixed) if number % 8 != 4)),
        "good_afterwards": await status(good),
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
    parser.add_argument("--parts", default="load,end,batching", help="or hostile, faults, peers")
    parser.add_argument("--attacks", help="some of the attacks of the part hostile")
    parser.add_argument("--peer-python", help="a Python that has litserve, mosec, and what an ONNX export needs")
    parser.add_argument("--serve", default="", help="further options of the server, such as '--workers 2'")
    parser.add_argument("--small", action="store_true", help="a size of seconds")
    parser.add_argument("--out", type=Path, help="write the figures here, as JSON")
    options = parser.parse_args(arguments)
    options.serve = options.serve.split()
    if options.small:
        options.connections, options.seconds, options.rounds, options.round_seconds, options.ends = 20, 1.0, 1, 1.0, 1
    texts = read_sentences(options.texts, 4096)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for model in options.models or [small_model(Path(folder), texts)]:
            for part in options.parts.split(","):
                if part == "load":
                    rows.append(under_load(model, texts, options))
                elif part == "end":
                    start = partial(server, model, *options.serve)
                    rows += [to_the_end(start, model, texts, options, keep) for keep in (True, False)]
                elif part == "hostile":
                    asked = questions(model, texts, mixed=False)
                    chosen = options.attacks.split(",") if options.attacks else list(ATTACKS)
                    rows += [under_attack(name, model, asked, options) for name in chosen]
                elif part == "faults":
                    rows.append(with_faults(model, texts, options))
                elif part == "batching":
                    rows.append(with_and_without(model, texts, options))
                elif part == "peers":
                    rows += beside_peers(model, texts, options)
                report(rows)
    settings = {"connections": options.connections, "texts": len(texts), "serve": options.serve}
    write(options.out, "cpu", settings, rows)


def _span(values: Sequence[float]) -> str:
    return f"{min(values):.1f} to {max(values):.1f}"


def report(rows: Sequence[dict[str, Any]]) -> None:
    """Print the figures that were taken last."""
    row = rows[-1]
    if row["part"] in ("load", "faults"):
        lines = [[name, str(value)] for name, value in row.items() if name != "memory_mib"]
        if "memory_mib" in row:
            lines.append(["memory_mib", f"{row['memory_mib'][0]} at first, {row['memory_mib'][-1]} at last"])
        show(f"{row['model']} under {row['part']}", 2, ["what", "figure"], lines)
    elif row["part"] == "hostile":
        attacks = [each for each in rows if each["part"] == "hostile" and each["model"] == row["model"]]
        lines = [
            [each["attack"], str(each["ratio"]), *(_span(each[side]) for side in ("quiet_p99", "attacked_p99"))]
            for each in attacks
        ]
        show(f"{row['model']} attacked", 1, ["attack", "ratio", "quiet p99, ms", "attacked p99, ms"], lines)
    elif row["part"] == "end":
        lines = [[name, *(str(each[name]) for each in rows[-2:])] for name in row]
        show(f"{row['model']}, SIGTERM under load", 3, ["what", "kept open", "anew"], lines)
    elif row["part"] == "peers":
        peers = [each for each in rows if each["part"] == "peers" and each["model"] == row["model"]]
        hidden = ("part", "model", "server", "sigterm")
        lines = [[name, *(str(each[name]) for each in peers)] for name in row if name not in hidden]
        for way in row["sigterm"]:
            for name in ("lost", "statuses", "errors", "exit_codes"):
                lines.append([f"SIGTERM, {way}: {name}", *(str(each["sigterm"][way][name]) for each in peers)])
        show(
            f"{row['model']} beside other servers", 1 + len(peers), ["what", *(each["server"] for each in peers)], lines
        )
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
