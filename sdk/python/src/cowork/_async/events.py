"""Events as they happen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from .. import types
from .._json import decode
from .._wire import Call, EventLines, decoded, target
from ..errors import ConnectionLost, DaemonUnavailable
from .pieces import pause

if TYPE_CHECKING:
    from types import TracebackType

    from .transport import AsyncBody, AsyncTransport

TRIES = 20
"""How often a broken connection is made again before it is given up."""

PAUSE = 0.25
"""Seconds between two tries."""


class AsyncEvents:
    """Events, one after the other, until it is closed. ``last`` is the number of the last one."""

    def __init__(
        self,
        transport: AsyncTransport,
        *,
        session: str | None,
        type: str | None,
        after: int | None,
    ) -> None:
        self.last = after
        self._transport = transport
        self._query = {"session": session, "type": type}
        self._body: AsyncBody | None = None
        self._lines = EventLines()
        self._closed = False

    async def open(self) -> Self:
        """Start to listen now, and not when the first event is asked for."""
        if self._body is None and not self._closed:
            await self._connect()
        return self

    async def _connect(self) -> None:
        if self.last is None:
            # The place is named once, so that a connection that breaks early loses nothing.
            request = Call("GET", target("/v1/events", {"after": "end", "limit": 1}))
            self.last = int(decoded(await self._transport.call(request))["next"])
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(self.last)}
        request = Call("GET", target("/v1/events", self._query), headers=headers)
        self._lines = EventLines()
        self._body = await self._transport.open(request)
        if self._closed:
            await self._drop()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> types.Event:
        tries = 0
        while not self._closed:
            try:
                if self._body is None:
                    await self._connect()
                event = await self._next()
            except (ConnectionLost, DaemonUnavailable):
                tries += 1
                await self._drop()
                if tries >= TRIES:
                    raise
                await pause(PAUSE)
                continue
            if event is not None:
                return event
        raise StopAsyncIteration

    async def _next(self) -> types.Event | None:
        """The next event of this connection, or none if it has ended."""
        while True:
            while (found := self._lines.next()) is not None:
                event = self._event(*found)
                if self.last is None or event.id > self.last:
                    self.last = event.id
                    return event
            data = await self._body.read() if self._body is not None else b""
            if not data:
                await self._drop()
                return None
            self._lines.feed(data)

    @staticmethod
    def _event(name: str, data: object) -> types.Event:
        if name == "gap" and isinstance(data, dict):
            return types.Event(int(data["to"]), None, "gap", None, data)
        return decode(types.Event, data)

    async def _drop(self) -> None:
        body, self._body = self._body, None
        if body is not None:
            await body.aclose()

    async def aclose(self) -> None:
        """Stop listening. Whoever waits for the next event gets to the end."""
        self._closed = True
        await self._drop()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()
