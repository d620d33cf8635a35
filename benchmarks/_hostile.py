"""The attackers of load.py's part `hostile`: bounded in count, rate and time, and for a server on this machine only.

    python benchmarks/_hostile.py ATTACK PORT SECONDS

runs one of them and prints, as JSON, what it got back.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress

HOST = "127.0.0.1"
MEBIBYTE = 2**20


def head(length: int | None = None, path: str = "/v1/predict", host: str = "localhost", more: str = "") -> bytes:
    """Return the head of a question whose body has so many bytes; chunked if none are given."""
    size = f"Content-Length: {length}" if length is not None else "Transfer-Encoding: chunked"
    return f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n{more}{size}\r\n\r\n".encode()


def question(body: bytes) -> bytes:
    """Return a whole request."""
    return head(len(body)) + body


def fill(start: bytes, unit: bytes, end: bytes, size: int = 4 * MEBIBYTE - 64) -> bytes:
    """Return JSON of about so many bytes."""
    return start + unit * ((size - len(start) - len(end)) // len(unit)) + end


def hostile_requests() -> list[bytes]:
    """Return 120 requests that are malformed, oversized, or expensive in one way or another."""
    units = (
        b"1,",
        b'"",',
        b"[],",
        b"{},",
        b"null,",
        b"1e5,",
        b"-0.0,",
        b"99999999999999999999,",
        b'"\\u0000",',
        b"[[[",
    )
    wholes = [fill(start, unit, b"") for unit in units for start in (b'{"texts":[', b'{"texts":"a","tasks":[')]
    keys = b"{" + b",".join(b'"%d":1' % number for number in range(300_000)) + b"}"
    odd = [b"", b"{", b"[" * 100_000, b"\x00" * 1000, b"\xff\xfe{}", b'{"texts":"\\ud800"}', b'{"texts":NaN}', b'"x"']
    odd += [b'{"texts":%s}' % value for value in (b"1", b"null", b"{}", b"[[]]", b"true", b"9" * 5000)]
    odd += [b'{"texts":"a","%s":1}' % (b"k" * size) for size in (1, 1000, 100_000)]
    odd += [b'{"texts":"a","top_k":%s}' % value for value in (b"0", b"-1", b"1e400", b"9" * 100)]
    odd += [json.dumps({"texts": ["a"] * rows}).encode() for rows in (513, 10_000, 500_000)]
    bodies = [*wholes, keys, *odd, fill(b'{"texts":"', b"\\u0041", b'"}'), fill(b'{"texts":"', b"a", b'"}', 2**23)]
    lines = [
        b"GET /%s HTTP/1.1\r\n\r\n" % path for path in (b"%00", b"page/%2e%2e/app.py", b"v1/predict", b"a" * 60_000)
    ]
    lines += [b"\x16\x03\x01\x02\x00", b"GET / HTTP/9.9\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\r\n" * 10_000]
    lines += [head(-1), head(5, more="Transfer-Encoding: chunked\r\n") + b"zz\r\n", head() + b"ffffffffffffffff\r\n"]
    lines += [head() + b"1\r\na\r\n" * 40_000, head(10**18) + b"a", head(4, more="Expect: 100-continue\r\n")]
    lines += [head(2, more=f"{name}: {value}\r\n") + b"{}" for name, value in ODD_HEADERS]
    requests = [*map(question, bodies), *lines]
    return [request for request, _ in zip(itertools.cycle(requests), range(120))]


ODD_HEADERS = (
    ("Content-Encoding", "gzip"), ("Range", "bytes=" + "0-," * 9000 + "0-"), ("Authorization", "Bearer " + "k" * 9000),
    ("X-Request-Id", "\\r\\n" * 100), ("Upgrade", "websocket\r\nConnection: upgrade"), ("Cookie", "a=b;" * 9000),
    ("Origin", "https://evil.example"), ("Content-Length", "3"), ("Host", "evil.example"),
)  # fmt: skip


class Attack:
    """Connections of an attacker until a time, and what came back."""

    def __init__(self, port: int, seconds: float) -> None:
        self.port, self.until = port, time.monotonic() + seconds
        self.results: Counter[str] = Counter()

    def goes_on(self) -> bool:
        """Whether there is time left."""
        return time.monotonic() < self.until

    async def send(self, *pieces: bytes, pause: float = 0.0, wait: float = 10.0, leave: bool = False) -> None:
        """Send pieces over a connection of its own, pausing before each but the first, and note the status."""
        writer = None
        try:
            reader, writer = await asyncio.open_connection(HOST, self.port)
            for number, piece in enumerate(pieces):
                if number:
                    await asyncio.sleep(pause)
                if not self.goes_on():
                    break
                writer.write(piece)
                await writer.drain()
            left = 0.0 if leave else min(wait, max(0.1, self.until - time.monotonic()))
            line = await asyncio.wait_for(reader.readline(), left)
            self.results[line[9:12].decode() or "closed"] += 1
        except (OSError, TimeoutError) as error:
            self.results["no answer" if isinstance(error, TimeoutError) else type(error).__name__] += 1
        finally:
            if writer:
                writer.close()
                with suppress(OSError):
                    await writer.wait_closed()

    async def many(self, count: int, act: Callable[[int], Awaitable[None]], pause: float = 0.0) -> None:
        """Have so many attackers act again and again, a little after each other."""

        async def one(number: int) -> None:
            await asyncio.sleep(number * min(0.005, 1.0 / count))
            while self.goes_on():
                await act(number)
                await asyncio.sleep(pause)

        await asyncio.gather(*(one(number) for number in range(count)))


async def requests(attack: Attack) -> None:
    """Send 120 hostile requests in turn, a few at once."""
    turns = itertools.cycle(hostile_requests())
    await attack.many(4, lambda _: attack.send(next(turns), wait=2), pause=0.05)


async def headers(attack: Attack) -> None:
    """Send headers of 20 MB, and of thousands of lines."""
    start, long, many = b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ", b"a" * (20 * MEBIBYTE), b"a: b\r\n" * 10_000
    await attack.many(4, lambda number: attack.send(start + (long if number % 2 else many), wait=2), pause=0.1)


async def connections(attack: Attack) -> None:
    """Open 1,500 connections and say nothing, again and again."""
    await attack.many(1500, lambda _: attack.send(b"", wait=60), pause=1.0)


async def slow(attack: Attack) -> None:
    """Send headers, or bodies, a byte at a time, over 400 connections."""
    body = fill(b'{"texts": "', b"a", b'"}', 300)
    starts = (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ", head(len(body)))
    tails = [[bytes([byte]) for byte in body] for _ in starts]
    await attack.many(400, lambda number: attack.send(starts[number % 2], *tails[number % 2], pause=1.0))


async def bodies(attack: Attack) -> None:
    """Send 150 bodies of 4 MB but for their last byte, and wait."""
    body = fill(b'{"texts": "', b"a", b'"}')
    await attack.many(150, lambda _: attack.send(head(len(body)), body[:-1], wait=60), pause=1.0)


async def texts(attack: Attack) -> None:
    """Send requests of 205 texts of 20,000 exclamation marks."""
    costly = question(json.dumps({"texts": ["!" * 20_000] * 205}).encode())
    await attack.many(2, lambda _: attack.send(costly, wait=60))


async def rebinding(attack: Attack) -> None:
    """Ask as a page of another site would, whose name leads here."""
    body = b'{"texts": "good"}'
    evil = head(len(body), host="evil.example") + body
    await attack.many(10, lambda _: attack.send(evil), pause=0.05)


async def leaving(attack: Attack) -> None:
    """Ask, and leave without the answer."""
    asked = question(json.dumps({"texts": ["a film that is good"] * 64}).encode())
    await attack.many(4, lambda _: attack.send(asked, leave=True), pause=0.05)


ATTACKS = {each.__name__: each for each in (requests, headers, connections, slow, bodies, texts, rebinding, leaving)}

if __name__ == "__main__":
    acting = Attack(int(sys.argv[2]), float(sys.argv[3]))
    asyncio.run(ATTACKS[sys.argv[1]](acting))
    print(json.dumps(acting.results))
