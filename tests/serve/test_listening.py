"""A port is given up without cutting off anybody who got through."""

from __future__ import annotations

import socket
import sys
import threading

import pytest

from understill.errors import UserError
from understill.serve.listening import let_nobody_begin, listen, take_waiting

linux = pytest.mark.skipif(sys.platform != "linux", reason="packet filters are Linux's")


def connect(address: tuple[str, int], seconds: float) -> socket.socket:
    return socket.create_connection(address, timeout=seconds)


@pytest.fixture(params=["127.0.0.1", "::1"])
def listening(request: pytest.FixtureRequest) -> socket.socket:
    try:
        found = listen(request.param, 0)
    except UserError:
        pytest.skip("there is no IPv6 here")
    found.setblocking(False)
    return found


@linux
def test_who_came_before_is_taken_and_who_comes_after_is_ignored(listening: socket.socket) -> None:
    address = listening.getsockname()[:2]
    with listening, connect(address, 5) as early:
        let_nobody_begin(listening)
        with pytest.raises(TimeoutError):
            connect(address, 0.3)
        (taken,) = take_waiting(listening)
        assert take_waiting(listening) == []
        listening.close()
        with taken:
            early.sendall(b"asked")  # what was taken goes on, though nobody listens
            assert taken.recv(10) == b"asked"
            taken.sendall(b"told")
            assert early.recv(10) == b"told"
    with pytest.raises(ConnectionRefusedError):
        connect(address, 5)


@linux
def test_who_was_ignored_reaches_the_next_at_the_port(listening: socket.socket) -> None:
    address = listening.getsockname()[:2]
    found: list[socket.socket] = []
    client = threading.Thread(target=lambda: found.append(connect(address, 20)))
    with listening:
        let_nobody_begin(listening)
        client.start()
        client.join(0.2)
        assert not found
    with listen(*address) as following:
        following.settimeout(20)
        with following.accept()[0]:
            client.join(20)
            found[0].close()


@linux
def test_a_system_without_filters_goes_on_without(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[object] = []

    class Plain(socket.socket):
        def setsockopt(self, *told: object) -> None:
            tried.append(told)
            raise OSError("unknown")

    with Plain() as plain:
        let_nobody_begin(plain)
        assert len(tried) == 1
        monkeypatch.setattr(sys, "platform", "darwin")
        let_nobody_begin(plain)
        assert len(tried) == 1, "elsewhere it is not even tried"
