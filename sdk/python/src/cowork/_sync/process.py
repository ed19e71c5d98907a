# Made by tools/twin.py from _async/process.py; change that.
"""A command that runs: its output, its input, its end."""

from __future__ import annotations

import codecs
import json
from typing import TYPE_CHECKING, Any, Self

from .. import types
from .._json import decode, present
from .._wire import CONTROL, STDERR, STDIN, STDOUT, TERMINAL, Call, decoded, target
from ..errors import Conflict, ConnectionLost, DaemonUnavailable, ProtocolError
from .pieces import call, feed, pause

if TYPE_CHECKING:
    from types import TracebackType

    from .client import Client
    from .pieces import Callback
    from .transport import Wire

STREAMS: dict[int, types.StreamName] = {STDOUT: "stdout", STDERR: "stderr", TERMINAL: "terminal"}

TRIES = 40
"""How often a broken connection is made again before it is given up."""

PAUSE = 0.25
"""Seconds between two tries."""


class Process:
    """A command that was started.

    Its output is read by iterating, or by :meth:`wait`, which also calls back. If the daemon is
    replaced meanwhile, nothing of it is missed. Leaving it as a context ends the command if it
    still runs; without that it goes on, and :meth:`wait` can be asked for later.
    """

    def __init__(
        self,
        client: Client,
        wire: Wire | None,
        command: types.Command,
        *,
        listeners: dict[types.StreamName, Callback[str, object]],
        lines: Callback[str, object] | None = None,
        capture: bool = True,
    ) -> None:
        self.command = command
        """The command, as it was started or as it ended."""
        self.number = command.number
        """Its number in the session."""
        self._client = client
        self._wire = wire
        self._path = f"/v1/sessions/{command.session}/commands/{command.number}"
        self._listeners = listeners
        self._lines = lines
        self._capture = capture
        self._pieces: list[types.Output] = []
        self._waiting: list[types.Output] = []
        self._decoders = {name: _decoder() for name in STREAMS.values()}
        self._partial = dict.fromkeys(STREAMS.values(), "")
        self._received = dict.fromkeys(STREAMS.values(), 0)
        self._ended = False

    @classmethod
    def start(
        cls,
        client: Client,
        session: str,
        body: dict[str, object],
        **options: Any,
    ) -> Self:
        """Start a command and stay with it."""
        path = f"/v1/sessions/{session}/commands"
        wire = client.transport.upgrade(Call.json("POST", path, body))
        first = wire.receive()
        if first is None:
            wire.close()
            raise ConnectionLost("the connection broke off as the command started", code="lost")
        channel, data = first
        message = decoded(data) if channel == CONTROL else None
        if not isinstance(message, dict) or "started" not in message:
            wire.close()
            raise ProtocolError("the daemon did not say what it started", code="garbled")
        return cls(client, wire, decode(types.Command, message["started"]), **options)

    @classmethod
    def attach(
        cls,
        client: Client,
        session: str,
        number: int,
        *,
        lines: Callback[str, object] | None = None,
    ) -> Self:
        """Join a command that was started."""
        path = f"/v1/sessions/{session}/commands/{number}"
        command = client.call(types.Command, "GET", path)
        process = cls(client, None, command, listeners={}, lines=lines)
        process._recover()
        return process

    # Output.

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> types.Output:
        piece = self._next()
        if piece is None:
            raise StopIteration
        return piece

    def _next(self) -> types.Output | None:
        while True:
            if self._waiting:
                return self._tell(self._waiting.pop(0))
            if self._ended:
                return None
            frame = self._wire.receive() if self._wire is not None else None
            if frame is None:
                self._recover()
                continue
            channel, data = frame
            if channel == CONTROL:
                message = decoded(data)
                if "ended" in message:
                    self._finish(decode(types.Command, message["ended"]))
            elif data and channel in STREAMS:
                self._waiting.append(types.Output(STREAMS[channel], data))

    def _tell(self, piece: types.Output) -> types.Output:
        self._received[piece.stream] += len(piece.data)
        if self._capture:
            self._pieces.append(piece)
        listener = self._listeners.get(piece.stream)
        if listener is not None or self._lines is not None:
            text = self._decoders[piece.stream].decode(piece.data)
            if listener is not None and text:
                call(listener, text)
            if self._lines is not None:
                *whole, rest = (self._partial[piece.stream] + text).split("\n")
                self._partial[piece.stream] = rest
                for line in whole:
                    call(self._lines, line.removesuffix("\r"))
        return piece

    def _finish(self, command: types.Command) -> None:
        self.command = command
        self._ended = True
        for rest in self._partial.values():
            if self._lines is not None and rest:
                call(self._lines, rest)
        self._let_go()

    def _let_go(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()

    def _recover(self) -> None:
        """Attach again after the connection broke, where it broke."""
        self._let_go()
        tries = 0
        while True:
            try:
                received = sum(self._received.values())
                where = target(f"{self._path}/attach", {"from": received})
                self._wire = self._client.transport.upgrade(Call("GET", where))
            except Conflict as error:
                if error.code != "command-ended":
                    raise
                self._read_rest()
            except (ConnectionLost, DaemonUnavailable):
                tries += 1
                if tries >= TRIES:
                    raise
                pause(PAUSE)
                continue
            return

    def _read_rest(self) -> None:
        """The command has ended meanwhile: what it wrote is read from what is kept of it."""
        for stream, received in self._received.items():
            where = target(f"{self._path}/output", {"stream": stream, "from": received})
            data = self._client.transport.call(Call("GET", where))
            if data:
                self._tell(types.Output(stream, data))
        self._finish(self._client.call(types.Command, "GET", self._path))

    def wait(self, *, check: bool = False) -> types.Result:
        """Wait for its end, and give its result with all it wrote."""
        while self._next() is not None:
            pass
        result = types.Result(self.command, self._pieces)
        return result.check() if check else result

    # Input, and what else can be done to it.

    def write(self, data: str | bytes) -> None:
        """Write to its standard input, for which it was started with ``stdin=True``."""
        data = data.encode() if isinstance(data, str) else data
        if data:
            self._send(STDIN, data)

    def close_stdin(self) -> None:
        """End its standard input."""
        self._send(STDIN, b"")

    def feed(self, data: bytes) -> None:
        """Write all of its standard input, and end it, while its output is read."""
        if self._wire is not None:
            feed(self._wire, STDIN, data)

    def _send(self, channel: int, data: bytes) -> None:
        ended = Conflict(f"command {self.number} has ended", code="command-ended", status=409)
        if self._wire is None:
            raise ended
        try:
            self._wire.send(channel, data)
        except ConnectionLost:
            if (self.status()).ended is not None:
                raise ended from None
            raise

    def signal(self, signal: int, whom: types.Whom = "group") -> None:
        """Send it a signal."""
        body = {"signal": int(signal), "whom": whom}
        self._client.call(dict, "POST", f"{self._path}/signal", body)

    def resize(self, size: types.Size) -> None:
        """Give its terminal another size."""
        body = {"columns": size.columns, "rows": size.rows}
        self._client.call(type(None), "POST", f"{self._path}/resize", body)

    def cancel(self, grace: types.Span | None = None) -> types.Command:
        """End it with everything it started; it is killed after the grace."""
        body = present(grace=types.span(grace))
        return self._client.call(types.Command, "POST", f"{self._path}/cancel", body)

    def pause(self) -> types.Command:
        """Let it stand still."""
        return self._client.call(types.Command, "POST", f"{self._path}/pause")

    def resume(self) -> types.Command:
        """Let it go on."""
        return self._client.call(types.Command, "POST", f"{self._path}/resume")

    def status(self) -> types.Command:
        """The command as it is now."""
        return self._client.call(types.Command, "GET", self._path)

    def usage(self) -> types.UsageOfCommand:
        """What it uses now, or has used."""
        return self._client.call(types.UsageOfCommand, "GET", f"{self._path}/usage")

    def detach(self) -> None:
        """Leave it running."""
        if self._wire is not None:
            self._wire.send(CONTROL, json.dumps("detach").encode())
            self._let_go()

    def abandon(self) -> None:
        """End it if it still runs, and say nothing about what it wrote."""
        if self._ended:
            return
        try:
            self.command = self.cancel()
        except Conflict:
            self.command = self.status()
        self._ended = True
        self._let_go()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._wire is not None:
            self.abandon()


def _decoder() -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder("utf-8")(errors="replace")
