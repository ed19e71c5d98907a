"""What is sent again when a connection breaks, and what is not.

A daemon cannot be made to break off at a chosen byte; a few lines that read and write as told can.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from cowork import AsyncClient, Client, ConnectionLost
from cowork._wire import Call

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
ONCE = "POST /v1/once "


class Server:
    """Answers, but breaks off at orders as is written in ``turns``."""

    def __init__(self, path: Path) -> None:
        self.turns: list[str] = []
        self.seen: list[str] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            with connection:
                if not self._converse(connection):
                    return

    def _converse(self, connection: socket.socket) -> bool:
        while connection.recv(1, socket.MSG_PEEK):
            start = connection.recv(10, socket.MSG_PEEK | socket.MSG_WAITALL)
            if start.startswith(b"POST /over"):
                return False
            if start.startswith(b"POST") and self.turns:
                turn = self.turns.pop(0)
                if turn == "unread":
                    self.seen.append("unread")
                    return True
                self._take(connection)
                if turn == "half":
                    connection.sendall(OK[:20])
                return True
            self._take(connection)
            connection.sendall(OK)
        return True

    def _take(self, connection: socket.socket) -> None:
        text = connection.recv(100_000).decode()
        if not text.startswith("GET /v1/info"):
            self.seen.append(text.partition("HTTP")[0])

    def close(self, path: Path) -> None:
        with socket.socket(socket.AF_UNIX) as last:
            last.connect(str(path))
            last.sendall(b"POST /over")
            self._thread.join()
        self._listener.close()


@pytest.fixture
def server(folder: Path) -> Iterator[Server]:
    folder.joinpath("run").mkdir(mode=0o700)
    server = Server(folder / "run" / "api.sock")
    yield server
    server.close(folder / "run" / "api.sock")


def call(folder: Path, kind: str, request: Call) -> bytes:
    """Ask by either twin."""
    if kind == "threads":
        with Client(runtime=folder / "run", start=False) as client:
            return client.transport.call(request)

    async def ask() -> bytes:
        async with AsyncClient(runtime=folder / "run", start=False) as client:
            return await client.transport.call(request)

    return asyncio.run(ask())


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
class TestTwins:
    def test_what_was_not_read_is_sent_again(self, server: Server, folder: Path, kind: str) -> None:
        server.turns = ["unread"]
        assert call(folder, kind, Call("POST", "/v1/once")) == b"{}"
        assert server.seen == ["unread", ONCE]

    def test_what_was_read_is_not(self, server: Server, folder: Path, kind: str) -> None:
        server.turns = ["read"]
        with pytest.raises(ConnectionLost):
            call(folder, kind, Call("POST", "/v1/once"))
        assert server.seen == [ONCE]

    def test_half_an_answer_is_none(self, server: Server, folder: Path, kind: str) -> None:
        server.turns = ["half"]
        with pytest.raises(ConnectionLost):
            call(folder, kind, Call("POST", "/v1/once", headers={"Idempotency-Key": "a"}))
        assert server.seen == [ONCE]

    def test_a_key_makes_it_safe(self, server: Server, folder: Path, kind: str) -> None:
        server.turns = ["read"]
        request = Call("POST", "/v1/once", headers={"Idempotency-Key": "a"})
        assert call(folder, kind, request) == b"{}"
        assert server.seen == [ONCE, ONCE]

    def test_pieces_that_are_gone_are_not_sent_again(
        self, server: Server, folder: Path, kind: str
    ) -> None:
        server.turns = ["unread"]
        with pytest.raises(ConnectionLost):
            call(folder, kind, Call("POST", "/v1/once", upload=iter([b"a" * 10])))
        assert server.seen == ["unread"]
