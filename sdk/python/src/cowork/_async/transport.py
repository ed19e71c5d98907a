"""Requests over the daemon's UNIX socket, for asyncio.

A connection that is idle is kept for the next request, and keeps the daemon from leaving. Nothing
is sent again that could have had an effect: what the daemon has not read had none. A transport
belongs to the event loop that it is used in; in another loop it starts with new connections.
"""

from __future__ import annotations

import asyncio
import select
from typing import TYPE_CHECKING, cast

from .. import _places, _wire
from .._sync import transport as blocking
from .._wire import Answer, Call, Frames
from ..errors import ConnectionLost, DaemonUnavailable, ProtocolError, from_answer

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Iterable

PIECE = blocking.PIECE

Unanswered = blocking.Unanswered


class AsyncConnection:
    """A connection to the daemon."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def to(cls, path: str) -> AsyncConnection:
        """Connect."""
        return cls(*await asyncio.open_unix_connection(path, limit=PIECE))

    async def exchange(self, request: Call) -> Answer:
        """Send a request, and read the head of its answer."""
        failed: OSError | None = None
        try:
            await self.send(request.start())
            if request.upload is not None:
                async for piece in pieces(request.upload):
                    if piece:
                        await self.send(_wire.chunk(piece))
                await self.send(_wire.chunk(b""))
        except (BrokenPipeError, ConnectionResetError) as error:
            # A daemon that refuses an upload answers before it has read all of it.
            failed = error
        answer = Answer()
        while not answer.head():
            try:
                await self.feed(answer)
            except Unanswered as error:
                raise error if failed is None or error.unread else Unanswered(failed) from failed
        if failed is not None and answer.status < 400:
            raise _lost(failed)
        return answer

    async def feed(self, answer: Answer) -> None:
        """Read once more of an answer."""
        try:
            answer.feed(await self._reader.read(PIECE))
        except (OSError, EOFError) as error:
            if answer.is_untouched:
                raise Unanswered(error) from error
            raise _lost(error) from error

    async def whole(self, answer: Answer) -> bytes:
        """Read the body of an answer to its end."""
        found = [answer.take()]
        while not answer.done:
            await self.feed(answer)
            found.append(answer.take())
        return b"".join(found)

    def is_stale(self) -> bool:
        """Whether the daemon has closed it meanwhile."""
        return self._reader.at_eof() or self._writer.is_closing() or self._is_readable()

    def _is_readable(self) -> bool:
        """Whether something has come that the loop has not got to yet."""
        poll = select.poll()
        poll.register(self._writer.get_extra_info("socket"), select.POLLIN)
        return bool(poll.poll(0))

    async def receive(self) -> bytes:
        """Read some bytes; none means that the daemon has closed it."""
        try:
            return await self._reader.read(PIECE)
        except OSError:
            return b""

    async def send(self, data: bytes) -> None:
        """Send all of it."""
        self._writer.write(data)
        await self._writer.drain()

    def close(self) -> None:
        """Close it."""
        self._writer.close()


async def pieces(source: Iterable[bytes] | AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Read a source of either kind."""
    if hasattr(source, "__aiter__"):
        async for piece in cast("AsyncIterable[bytes]", source):
            yield piece
    else:
        for piece in source:
            yield piece


def _lost(error: BaseException) -> ConnectionLost:
    return ConnectionLost("the connection to the daemon broke off", code="lost", detail=str(error))


async def greet(path: str) -> AsyncConnection | None:
    """Connect if a daemon answers."""
    try:
        connection = await AsyncConnection.to(path)
    except (FileNotFoundError, ConnectionRefusedError):
        return None
    except OSError as error:
        sentence = f"cannot connect to `{path}`"
        raise DaemonUnavailable(sentence, code="no-connection", detail=error.strerror) from error
    try:
        await connection.whole(await connection.exchange(blocking.INFO))
    except ConnectionLost:
        connection.close()
        return None
    except BaseException:
        connection.close()
        raise
    return connection


async def ensure(place: _places.Place) -> AsyncConnection:
    """Connect; the daemon is started first if there is none."""
    found = await greet(place.socket)
    if found is None:
        held = await asyncio.to_thread(blocking.ensure, place)
        try:
            found = await greet(place.socket)
        finally:
            held.close()
    if found is None:
        raise DaemonUnavailable("the daemon left right after its start", code="not-running")
    return found


class AsyncBody:
    """The body of an answer, as it comes."""

    def __init__(self, connection: AsyncConnection, answer: Answer) -> None:
        self._connection = connection
        self._answer = answer
        self._closed = False
        self.headers = answer.headers

    async def read(self) -> bytes:
        """The next bytes; none at the end."""
        while not self._closed:
            data = self._answer.take()
            if data:
                return data
            if self._answer.done:
                break
            try:
                await self._connection.feed(self._answer)
            except ConnectionLost:
                if not self._closed:
                    raise
        return b""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while data := await self.read():
            yield data

    async def aclose(self) -> None:
        """Leave the rest unread."""
        self._closed = True
        self._connection.close()


class AsyncWire:
    """A connection that speaks frames."""

    def __init__(self, connection: AsyncConnection, rest: bytes) -> None:
        self._connection = connection
        self._frames = Frames(rest)
        self._writing = asyncio.Lock()

    async def receive(self) -> tuple[int, bytes] | None:
        """The next frame, or none if the daemon has closed the connection."""
        while True:
            found = self._frames.next()
            if found is not None:
                return found
            data = await self._connection.receive()
            if not data:
                return None
            self._frames.feed(data)

    async def send(self, channel: int, data: bytes) -> None:
        """Send a frame."""
        async with self._writing:
            try:
                await self._connection.send(_wire.frame(channel, data))
            except OSError as error:
                raise _lost(error) from error

    async def aclose(self) -> None:
        """Close the connection."""
        self._connection.close()


class AsyncTransport:
    """Asks one daemon."""

    def __init__(self, place: _places.Place) -> None:
        self._place = place
        self._idle: list[AsyncConnection] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    def _take(self) -> AsyncConnection | None:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            # These connections are those of a loop that is over.
            self._loop = loop
            self._idle.clear()
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_stale():
                return connection
            connection.close()
        return None

    async def _fresh(self) -> AsyncConnection:
        """Connect, to a daemon that stays."""
        held = self._take()
        if held is None:
            return await ensure(self._place)
        self._idle.append(held)
        try:
            return await AsyncConnection.to(self._place.socket)
        except (FileNotFoundError, ConnectionRefusedError):
            return await ensure(self._place)
        except OSError as error:
            sentence = f"cannot connect to `{self._place.socket}`"
            raise DaemonUnavailable(
                sentence, code="no-connection", detail=error.strerror
            ) from error

    async def call(self, request: Call) -> bytes:
        """Ask, and read the whole answer."""
        connection, answer = await self._ask(self._take() or await ensure(self._place), request)
        try:
            body = await connection.whole(answer)
        except BaseException:
            connection.close()
            raise
        if answer.keeps_open:
            self._idle.append(connection)
        else:
            connection.close()
        if answer.status >= 400:
            raise from_answer(answer.status, body)
        return body

    async def open(self, request: Call) -> AsyncBody:
        """Ask over a connection of its own, and leave the body to be read."""
        return AsyncBody(*await self._good(request))

    async def upgrade(self, request: Call) -> AsyncWire:
        """Ask for a connection that speaks frames."""
        request.headers.update({"Connection": "Upgrade", "Upgrade": _wire.PROTOCOL})
        connection, answer = await self._good(request)
        if answer.status != 101:
            connection.close()
            raise ProtocolError("the daemon did not change the protocol", code="garbled")
        return AsyncWire(connection, answer.rest())

    async def _good(self, request: Call) -> tuple[AsyncConnection, Answer]:
        connection, answer = await self._ask(await self._fresh(), request)
        if answer.status < 400:
            return connection, answer
        try:
            raise from_answer(answer.status, await connection.whole(answer))
        finally:
            connection.close()

    async def _ask(
        self, connection: AsyncConnection, request: Call
    ) -> tuple[AsyncConnection, Answer]:
        """Send a request, once more if the first time cannot have had an effect."""
        try:
            return connection, await connection.exchange(request)
        except Unanswered as error:
            connection.close()
            if not request.may_be_repeated(unread=error.unread):
                raise
        except BaseException:
            connection.close()
            raise
        connection = await ensure(self._place)
        try:
            return connection, await connection.exchange(request)
        except BaseException:
            connection.close()
            raise

    async def aclose(self) -> None:
        """Let go of idle connections."""
        idle, self._idle = self._idle, []
        if self._loop is asyncio.get_running_loop():
            for connection in idle:
                connection.close()
