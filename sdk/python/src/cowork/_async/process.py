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

    from .client import AsyncClient
    from .pieces import Callback
    from .transport import AsyncWire

STREAMS: dict[int, types.StreamName] = {STDOUT: "stdout", STDERR: "stderr", TERMINAL: "terminal"}

TRIES = 40
"""How often a broken connection is made again before it is given up."""

PAUSE = 0.25
"""Seconds between two tries."""


class AsyncProcess:
    """A command that was started.

    Its output is read by iterating, or by :meth:`wait`, which also calls back. If the daemon is
    replaced meanwhile, nothing of it is missed. Leaving it as a context ends the command if it
    still runs; without that it goes on, and :meth:`wait` can be asked for later.
    """

    def __init__(
        self,
        client: AsyncClient,
        wire: AsyncWire | None,
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
    async def start(
        cls,
        client: AsyncClient,
        session: str,
        body: dict[str, object],
        **options: Any,
    ) -> Self:
        """Start a command and stay with it."""
        path = f"/v1/sessions/{session}/commands"
        wire = await client.transport.upgrade(Call.json("POST", path, body))
        first = await wire.receive()
        if first is None:
            await wire.aclose()
            raise ConnectionLost("the connection broke off as the command started", code="lost")
        channel, data = first
        message = decoded(data) if channel == CONTROL else None
        if not isinstance(message, dict) or "started" not in message:
            await wire.aclose()
            raise ProtocolError("the daemon did not say what it started", code="garbled")
        return cls(client, wire, decode(types.Command, message["started"]), **options)

    @classmethod
    async def attach(
        cls,
        client: AsyncClient,
        session: str,
        number: int,
        *,
        lines: Callback[str, object] | None = None,
    ) -> Self:
        """Join a command that was started."""
        path = f"/v1/sessions/{session}/commands/{number}"
        command = await client.call(types.Command, "GET", path)
        process = cls(client, None, command, listeners={}, lines=lines)
        await process._recover()
        return process

    # Output.

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> types.Output:
        piece = await self._next()
        if piece is None:
            raise StopAsyncIteration
        return piece

    async def _next(self) -> types.Output | None:
        while True:
            if self._waiting:
                return await self._tell(self._waiting.pop(0))
            if self._ended:
                return None
            frame = await self._wire.receive() if self._wire is not None else None
            if frame is None:
                await self._recover()
                continue
            channel, data = frame
            if channel == CONTROL:
                message = decoded(data)
                if "ended" in message:
                    await self._finish(decode(types.Command, message["ended"]))
            elif data and channel in STREAMS:
                self._waiting.append(types.Output(STREAMS[channel], data))

    async def _tell(self, piece: types.Output) -> types.Output:
        self._received[piece.stream] += len(piece.data)
        if self._capture:
            self._pieces.append(piece)
        listener = self._listeners.get(piece.stream)
        if listener is not None or self._lines is not None:
            text = self._decoders[piece.stream].decode(piece.data)
            if listener is not None and text:
                await call(listener, text)
            if self._lines is not None:
                *whole, rest = (self._partial[piece.stream] + text).split("\n")
                self._partial[piece.stream] = rest
                for line in whole:
                    await call(self._lines, line.removesuffix("\r"))
        return piece

    async def _finish(self, command: types.Command) -> None:
        self.command = command
        self._ended = True
        for rest in self._partial.values():
            if self._lines is not None and rest:
                await call(self._lines, rest)
        await self._let_go()

    async def _let_go(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            await wire.aclose()

    async def _recover(self) -> None:
        """Attach again after the connection broke, where it broke."""
        await self._let_go()
        tries = 0
        while True:
            try:
                received = sum(self._received.values())
                where = target(f"{self._path}/attach", {"from": received})
                self._wire = await self._client.transport.upgrade(Call("GET", where))
            except Conflict as error:
                if error.code != "command-ended":
                    raise
                await self._read_rest()
            except (ConnectionLost, DaemonUnavailable):
                tries += 1
                if tries >= TRIES:
                    raise
                await pause(PAUSE)
                continue
            return

    async def _read_rest(self) -> None:
        """The command has ended meanwhile: what it wrote is read from what is kept of it."""
        for stream, received in self._received.items():
            where = target(f"{self._path}/output", {"stream": stream, "from": received})
            data = await self._client.transport.call(Call("GET", where))
            if data:
                await self._tell(types.Output(stream, data))
        await self._finish(await self._client.call(types.Command, "GET", self._path))

    async def wait(self, *, check: bool = False) -> types.Result:
        """Wait for its end, and give its result with all it wrote."""
        while await self._next() is not None:
            pass
        result = types.Result(self.command, self._pieces)
        return result.check() if check else result

    # Input, and what else can be done to it.

    async def write(self, data: str | bytes) -> None:
        """Write to its standard input, for which it was started with ``stdin=True``."""
        data = data.encode() if isinstance(data, str) else data
        if data:
            await self._send(STDIN, data)

    async def close_stdin(self) -> None:
        """End its standard input."""
        await self._send(STDIN, b"")

    async def feed(self, data: bytes) -> None:
        """Write all of its standard input, and end it, while its output is read."""
        if self._wire is not None:
            await feed(self._wire, STDIN, data)

    async def _send(self, channel: int, data: bytes) -> None:
        ended = Conflict(f"command {self.number} has ended", code="command-ended", status=409)
        if self._wire is None:
            raise ended
        try:
            await self._wire.send(channel, data)
        except ConnectionLost:
            if (await self.status()).ended is not None:
                raise ended from None
            raise

    async def signal(self, signal: int, whom: types.Whom = "group") -> None:
        """Send it a signal."""
        body = {"signal": int(signal), "whom": whom}
        await self._client.call(dict, "POST", f"{self._path}/signal", body)

    async def resize(self, size: types.Size) -> None:
        """Give its terminal another size."""
        body = {"columns": size.columns, "rows": size.rows}
        await self._client.call(type(None), "POST", f"{self._path}/resize", body)

    async def cancel(self, grace: types.Span | None = None) -> types.Command:
        """End it with everything it started; it is killed after the grace."""
        body = present(grace=types.span(grace))
        return await self._client.call(types.Command, "POST", f"{self._path}/cancel", body)

    async def pause(self) -> types.Command:
        """Let it stand still."""
        return await self._client.call(types.Command, "POST", f"{self._path}/pause")

    async def resume(self) -> types.Command:
        """Let it go on."""
        return await self._client.call(types.Command, "POST", f"{self._path}/resume")

    async def status(self) -> types.Command:
        """The command as it is now."""
        return await self._client.call(types.Command, "GET", self._path)

    async def usage(self) -> types.UsageOfCommand:
        """What it uses now, or has used."""
        return await self._client.call(types.UsageOfCommand, "GET", f"{self._path}/usage")

    async def detach(self) -> None:
        """Leave it running."""
        if self._wire is not None:
            await self._wire.send(CONTROL, json.dumps("detach").encode())
            await self._let_go()

    async def abandon(self) -> None:
        """End it if it still runs, and say nothing about what it wrote."""
        if self._ended:
            return
        try:
            self.command = await self.cancel()
        except Conflict:
            self.command = await self.status()
        self._ended = True
        await self._let_go()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._wire is not None:
            await self.abandon()


def _decoder() -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder("utf-8")(errors="replace")
